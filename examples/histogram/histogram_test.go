package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/lossy"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

func output(t *testing.T, ranks, numbers, bins int, options ...rmatest.Option) string {
	return lossy.Output(t, ranks, func(ctx context.Context, node *rma.Node, out io.Writer) error {
		return run(ctx, node, numbers, bins, out)
	}, options...)
}

func TestHistogram(t *testing.T) {
	for name, options := range map[string][]rmatest.Option{
		"frames":        nil,
		"shared memory": {rmatest.Unchecked(), rmatest.Hosts(1)},
		"lossy":         {&rmatest.Network{Seed: 1, Loss: 0.02, Duplication: 0.02, Reordering: 0.05}},
	} {
		t.Run(name, func(t *testing.T) {
			if out := output(t, 3, 2000, 10, options...); !strings.HasSuffix(out, "histogram: OK, 6000 numbers\n") {
				t.Errorf("got %s", out)
			}
		})
	}
}

// TestHistogramOverLoss compares each bin with one that is counted without ranks.
func TestHistogramOverLoss(t *testing.T) {
	const ranks, numbers, bins = 3, 2000, 10
	counts := make([]int, bins)
	for rank := range ranks {
		random := rand.New(rand.NewPCG(7, uint64(rank)))
		for range numbers {
			counts[binOf(random.NormFloat64(), bins)]++
		}
	}
	lossy.Networks(t, func(t *testing.T, net *rmatest.Network) {
		out := output(t, ranks, numbers, bins, net, rmatest.Unchecked())
		lines := strings.Split(out, "\n")
		for bin, n := range counts {
			if !strings.Contains(lines[min(bin, len(lines)-1)], fmt.Sprintf(" %7d #", n)) {
				t.Errorf("bin %d is to have %d numbers:\n%s", bin, n, out)
			}
		}
	})
}

func TestBins(t *testing.T) {
	for number, want := range map[float64]int{-100: 0, -3: 0, -2.41: 0, -2.39: 1, 0: 5, 2.99: 9, 3: 9, 100: 9} {
		if got := binOf(number, 10); got != want {
			t.Errorf("%g is in bin %d, want %d", number, got, want)
		}
	}
}
