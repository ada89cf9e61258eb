package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/lossy"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/lab/testjob"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

func TestEachWord(t *testing.T) {
	long := strings.Repeat("a", maxWord)
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{" \t1234_!\n", nil},
		{"one", []string{"one"}},
		{"One, TWO;three4four", []string{"one", "two", "three", "four"}},
		{"snake_case it's", []string{"snake", "case", "it", "s"}},
		{"Öl straße 日本語", []string{"öl", "straße", "日本語"}},
		{"a\xffb\xc3", []string{"a", "b"}},
		{"“x”—y", []string{"x", "y"}},
		{long + "b c", []string{long, "c"}},
		{long[1:] + "é" + "b", []string{long[1:]}}, // é does not fit, and nothing after it counts
	} {
		var got []string
		eachWord([]byte(c.text), func(w []byte) { got = append(got, string(w)) })
		if !slices.Equal(got, c.want) {
			t.Errorf("%q: got %q, want %q", c.text, got, c.want)
		}
	}
}

// writeCorpus makes files with words that collide in a small table, and one that
// is no text.
func writeCorpus(t *testing.T, files int) *corpus {
	dir := t.TempDir()
	for i := range files {
		var b strings.Builder
		for j := range 2000 {
			fmt.Fprintf(&b, "common %s own%s ", letters(j%97), letters(i))
		}
		writeFile(t, filepath.Join(dir, fmt.Sprintf("f%02d.txt", i)), b.String())
	}
	writeFile(t, filepath.Join(dir, "binary"), "binary\x00binary")
	c, err := openCorpus(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func writeFile(t *testing.T, path, text string) {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func letters(n int) string { return string([]byte{byte('a' + n/26), byte('a' + n%26)}) }

// runJob runs the count on ranks of this process and returns what rank 0 printed
// and the error of each rank.
func runJob(t *testing.T, ranks int, c *corpus, slots int64) (string, []error) {
	places, stop, err := testjob.Places(ranks)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Limit)
	defer cancel()
	var out bytes.Buffer
	errs := make([]error, ranks)
	finished := make(chan bool)
	for rank := range ranks {
		go func() {
			defer func() { finished <- true }()
			node, err := rma.Join(ctx, testjob.Config(&places[rank]))
			if err != nil {
				errs[rank] = err
				return
			}
			w := io.Discard
			if rank == 0 {
				w = &out
			}
			errs[rank] = run(ctx, node, c, slots, w)
			errs[rank] = errors.Join(errs[rank], node.Close())
		}()
	}
	for range ranks {
		<-finished
	}
	return out.String(), errs
}

func TestAnyNumberOfRanksCountsTheSame(t *testing.T) {
	const files = 12
	c := writeCorpus(t, files)
	for _, ranks := range []int{1, 2, 4} {
		out, errs := runJob(t, ranks, c, 128)
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("%d ranks: %v\n%s", ranks, err, out)
		}
		want := fmt.Sprintf("wordcount: OK ranks=%d words=%d distinct=%d mode=udp\n", ranks, files*6000, 1+97+files)
		if !strings.HasSuffix(out, want) {
			t.Errorf("%d ranks: got\n%s, want it to end in\n%s", ranks, out, want)
		}
		counts := regexp.MustCompile("(?m)^chunk .*\n").ReplaceAllString(out, "") // without what a slow count says meanwhile
		if top := fmt.Sprintf("%10d common\n", files*2000); !strings.HasPrefix(counts, top) {
			t.Errorf("%d ranks: the most frequent word is wrong:\n%s", ranks, out)
		}
	}
}

// TestCountOverLoss has rank 0 compare the whole table with a count of its own.
func TestCountOverLoss(t *testing.T) {
	const files = 12
	c := writeCorpus(t, files)
	want := fmt.Sprintf("wordcount: OK ranks=4 words=%d distinct=%d ", files*6000, 1+97+files)
	lossy.Networks(t, func(t *testing.T, net *rmatest.Network) {
		out := lossy.Output(t, 4, func(ctx context.Context, node *rma.Node, out io.Writer) error {
			return run(ctx, node, c, 128, out)
		}, net, rmatest.Unchecked())
		if !strings.Contains(out, want) {
			t.Errorf("got\n%s, want in it\n%s", out, want)
		}
	})
}

func TestFullTable(t *testing.T) {
	_, errs := runJob(t, 2, writeCorpus(t, 4), 8)
	if err := errors.Join(errs...); err == nil || !strings.Contains(err.Error(), "the table is full: all 8 slots") {
		t.Errorf("got %v", err)
	}
	for rank, err := range errs {
		if err == nil {
			t.Errorf("rank %d succeeded", rank)
		}
	}
}

func TestDifferencesNameWordAndCounts(t *testing.T) {
	var out bytes.Buffer
	n := differences(&out, map[string]int64{"a": 1, "b": 2, "d": 4}, map[string]int64{"a": 1, "b": 3, "c": 1})
	want := `"b": 2 in the table, 3 counted by one process
"c": 0 in the table, 1 counted by one process
"d": 4 in the table, 0 counted by one process
`
	if n != 3 || out.String() != want {
		t.Errorf("%d differences:\n%s", n, &out)
	}
}

func TestEmptyCorpus(t *testing.T) {
	if _, err := openCorpus(t.TempDir()); err == nil {
		t.Error("a folder without files was accepted")
	}
}
