package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

func TestHistogram(t *testing.T) {
	for name, options := range map[string][]rmatest.Option{
		"frames":        nil,
		"shared memory": {rmatest.Unchecked(), rmatest.Hosts(1)},
		"lossy":         {&rmatest.Network{Seed: 1, Loss: 0.02, Duplication: 0.02, Reordering: 0.05}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			rmatest.Run(t, 3, func(t *rmatest.T, node *rma.Node) {
				text := &out
				if node.Rank() != 0 {
					text = nil
				}
				t.Must(run(t.Context(), node, 2000, 10, text))
			}, options...)
			if !strings.HasSuffix(out.String(), "histogram: OK, 6000 numbers\n") {
				t.Errorf("got %s", &out)
			}
		})
	}
}

func TestBins(t *testing.T) {
	for number, want := range map[float64]int{-100: 0, -3: 0, -2.41: 0, -2.39: 1, 0: 5, 2.99: 9, 3: 9, 100: 9} {
		if got := binOf(number, 10); got != want {
			t.Errorf("%g is in bin %d, want %d", number, got, want)
		}
	}
}
