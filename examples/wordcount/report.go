package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/xdprma/xdprma/rma"
)

const (
	topWords  = 10
	mostWrong = 20 // differences that are printed
)

// report reads the table, compares it with a count made by this process alone,
// and prints the most frequent words. It returns an error if anything differs.
func report(ctx context.Context, node *rma.Node, c *corpus, t *table, out io.Writer) error {
	got, err := t.read(ctx)
	if err != nil {
		return err
	}
	want, err := countAlone(c)
	if err != nil {
		return err
	}
	if n := differences(out, got, want); n > 0 {
		return fmt.Errorf("%d words differ from the count of one process", n)
	}
	words := slices.SortedFunc(maps.Keys(got), func(a, b string) int {
		return cmp.Or(cmp.Compare(got[b], got[a]), cmp.Compare(a, b))
	})
	for _, w := range words[:min(len(words), topWords)] {
		fmt.Fprintf(out, "%10d %s\n", got[w], w)
	}
	total := int64(0)
	for _, n := range got {
		total += n
	}
	fmt.Fprintf(out, "wordcount: OK ranks=%d words=%d distinct=%d mode=%s\n", node.Size(), total, len(got), node.Mode())
	return nil
}

// countAlone counts the corpus in this process.
func countAlone(c *corpus) (map[string]int64, error) {
	places := map[string]int{} // looking up does not allocate, as assigning would
	var counts []int64
	for _, path := range c.files {
		text, err := readText(path)
		if err != nil {
			return nil, err
		}
		eachWord(text, func(b []byte) {
			i, ok := places[string(b)]
			if !ok {
				i = len(counts)
				places[string(b)] = i
				counts = append(counts, 0)
			}
			counts[i]++
		})
	}
	all := make(map[string]int64, len(places))
	for w, i := range places {
		all[w] = counts[i]
	}
	return all, nil
}

// differences prints where got is not want, and returns in how many words.
func differences(out io.Writer, got, want map[string]int64) int {
	all := maps.Clone(want)
	maps.Copy(all, got)
	n := 0
	for _, w := range slices.Sorted(maps.Keys(all)) {
		if got[w] == want[w] {
			continue
		}
		if n++; n <= mostWrong {
			fmt.Fprintf(out, "%q: %d in the table, %d counted by one process\n", w, got[w], want[w])
		}
	}
	return n
}
