package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/lossy"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

// serial counts the nodes of the tree.
func serial(branches int) (count int) {
	for tasks := []uint64{root}; len(tasks) > 0; count++ {
		last := tasks[len(tasks)-1]
		tasks = tasks[:len(tasks)-1]
		children(last, branches, func(c uint64) { tasks = append(tasks, c) })
	}
	return count
}

func TestSteal(t *testing.T) {
	const branches = 600
	want := fmt.Sprintf("steal: %d nodes", serial(branches))
	for name, options := range map[string][]rmatest.Option{
		"frames":        nil,
		"shared memory": {rmatest.Unchecked(), rmatest.Hosts(1)},
		"lossy":         {&rmatest.Network{Seed: 2, Loss: 0.01, Duplication: 0.01, Reordering: 0.05}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			rmatest.Run(t, 4, func(t *rmatest.T, node *rma.Node) {
				text := &out
				if node.Rank() != 0 {
					text = nil
				}
				t.Must(run(t.Context(), node, branches, 1000, text))
			}, options...)
			if !strings.HasPrefix(out.String(), want) {
				t.Errorf("got %s, want %s", &out, want)
			}
			t.Log(out.String())
		})
	}
}

func TestStealOverLoss(t *testing.T) {
	const branches = 600
	want := fmt.Sprintf("steal: %d nodes", serial(branches))
	lossy.Networks(t, func(t *testing.T, net *rmatest.Network) {
		var out bytes.Buffer
		rmatest.Run(t, 4, func(t *rmatest.T, node *rma.Node) {
			text := &out
			if node.Rank() != 0 {
				text = nil
			}
			t.Must(run(t.Context(), node, branches, 100, text))
		}, net, rmatest.Unchecked())
		if !strings.HasPrefix(out.String(), want) {
			t.Errorf("got %s, want %s", &out, want)
		}
	})
}
