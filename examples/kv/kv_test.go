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

func output(t *testing.T, ranks, visits int, options ...rmatest.Option) string {
	return lossy.Output(t, ranks, func(ctx context.Context, node *rma.Node, out io.Writer) error {
		return run(ctx, node, visits, out)
	}, options...)
}

func TestKv(t *testing.T) {
	if out := output(t, 3, 300); !strings.HasPrefix(out, "kv: OK, 900 visits") {
		t.Errorf("got %s", out)
	}
}

// TestKvOverLoss compares the visits with those that are counted without ranks.
func TestKvOverLoss(t *testing.T) {
	const ranks, visits, pages = 3, 100, 100
	var counts [pages + 1]int
	most := 0
	for rank := range uint64(ranks) {
		random := rand.NewZipf(rand.New(rand.NewPCG(3, rank)), 1.3, 1, pages-1)
		for range visits {
			page := 1 + random.Uint64()
			counts[page]++
			most = max(most, counts[page])
		}
	}
	lossy.Networks(t, func(t *testing.T, net *rmatest.Network) {
		if got, want := output(t, ranks, visits, net, rmatest.Unchecked()), fmt.Sprintf("kv: OK, %d visits, most of page 1: %d\n", ranks*visits, most); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}
