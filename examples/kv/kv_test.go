package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/lossy"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

func TestKv(t *testing.T) {
	var out bytes.Buffer
	rmatest.Run(t, 3, func(t *rmatest.T, node *rma.Node) {
		text := &out
		if node.Rank() != 0 {
			text = nil
		}
		t.Must(run(t.Context(), node, 300, text))
	})
	if !strings.HasPrefix(out.String(), "kv: OK, 900 visits") {
		t.Errorf("got %s", &out)
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
		var out bytes.Buffer
		rmatest.Run(t, ranks, func(t *rmatest.T, node *rma.Node) {
			text := &out
			if node.Rank() != 0 {
				text = nil
			}
			t.Must(run(t.Context(), node, visits, text))
		}, net, rmatest.Unchecked())
		if got, want := out.String(), fmt.Sprintf("kv: OK, %d visits, most of page 1: %d\n", ranks*visits, most); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}
