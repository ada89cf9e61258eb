package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/lab/lossy"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/lab/testjob"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

// way says how ranks of a test reach each other's windows.
type way struct {
	name   string
	memory bool // as ranks of one host do
	check  bool
}

var (
	byFrames = way{name: "by frames"}
	ways     = []way{byFrames, {name: "in memory", memory: true}, {name: "in checking mode", check: true}}
)

// ranks runs f on all ranks of a job in this process, and returns their errors
// joined.
func ranks(t *testing.T, size int, by way, f func(ctx context.Context, node *rma.Node) error) error {
	t.Helper()
	places, stop, err := testjob.Places(size)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Limit)
	defer cancel()
	errs := make(chan error)
	for rank := range size {
		go func() {
			place := places[rank]
			place.Frames = !by.memory
			c := testjob.Config(&place)
			c.Check, c.OnConflict = by.check, func(c rma.Conflict) { t.Error(c.Err()) }
			node, err := rma.Join(ctx, c)
			if err == nil {
				err = f(ctx, node)
				err = errors.Join(err, node.Close())
			}
			errs <- err
		}()
	}
	for range size {
		err = errors.Join(err, <-errs)
	}
	return err
}

// TestChapter runs each example on its own, by frames, in memory that ranks share, and
// with the search for conflicting accesses: the examples are in order.
func TestChapter(t *testing.T) {
	for _, e := range examples {
		t.Run(e.number, func(t *testing.T) {
			for _, by := range ways {
				for _, size := range testenv.Cases([]int{4}, 2) {
					err := ranks(t, size, by, func(ctx context.Context, node *rma.Node) error { return e.try(ctx, node.World()) })
					if err != nil {
						t.Errorf("%d ranks %s: %v", size, by.name, err)
					}
				}
			}
		})
	}
}

// TestChapterOverLoss runs the examples, each of which compares its results.
func TestChapterOverLoss(t *testing.T) {
	lossy.Networks(t, func(t *testing.T, net *rmatest.Network) {
		rmatest.Run(t, 3, func(t *rmatest.T, node *rma.Node) {
			t.Must(runAll(t.Context(), node, examples, io.Discard))
		}, net, rmatest.Unchecked())
	})
}

// TestProgramRunsAllExamples runs all examples as the program does.
func TestProgramRunsAllExamples(t *testing.T) {
	all, err := choose([]string{"all"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = ranks(t, 3, byFrames, func(ctx context.Context, node *rma.Node) error {
		if node.Rank() == 0 {
			return runAll(ctx, node, all, &out)
		}
		return runAll(ctx, node, all, io.Discard)
	})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if want := fmt.Sprintf("chapter: OK examples=%d ranks=3 mode=udp", len(all)); lines[len(lines)-1] != want || len(lines) != len(all)+1 {
		t.Errorf("got\n%s, want a line an example and %s", &out, want)
	}
}

// TestExamplesAreChosenByNumber names examples by number.
func TestExamplesAreChosenByNumber(t *testing.T) {
	for i := range 23 {
		number := fmt.Sprintf("11.%d", i+1)
		if got, err := choose([]string{number}); err != nil || len(got) != 1 || got[0].number != number {
			t.Errorf("example %s: %v, %v", number, got, err)
		}
	}
	for _, numbers := range [][]string{nil, {"11.24"}, {"11.1", "all"}} {
		if _, err := choose(numbers); err == nil {
			t.Errorf("%q was accepted", numbers)
		}
	}
}

// TestFailures makes sure that an example can fail, and says where.
func TestFailures(t *testing.T) {
	wrong := example{"0", "fails", func(ctx context.Context, _ *comm.Comm) { equal(1, 2) }}
	late := example{"0", "fails", func(ctx context.Context, _ *comm.Comm) { check(rma.ErrRange) }}
	for _, e := range []example{wrong, late} {
		err := ranks(t, 2, byFrames, func(ctx context.Context, node *rma.Node) error {
			return runAll(ctx, node, []example{e}, io.Discard)
		})
		if err == nil || !strings.Contains(err.Error(), "rank 1: chapter_test.go:") {
			t.Errorf("got %v", err)
		}
	}
	if err := ranks(t, 1, byFrames, func(ctx context.Context, node *rma.Node) error {
		return runAll(ctx, node, examples, io.Discard)
	}); err == nil {
		t.Error("a single rank was accepted")
	}
}
