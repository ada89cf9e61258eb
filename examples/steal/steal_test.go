package main

import (
	"context"
	"fmt"
	"io"
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

func output(t *testing.T, branches, effort int, options ...rmatest.Option) string {
	return lossy.Output(t, 4, func(ctx context.Context, node *rma.Node, out io.Writer) error {
		return run(ctx, node, branches, effort, out)
	}, options...)
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
			out := output(t, branches, 1000, options...)
			if !strings.HasPrefix(out, want) {
				t.Errorf("got %s, want %s", out, want)
			}
			t.Log(out)
		})
	}
}

func TestStealOverLoss(t *testing.T) {
	const branches = 600
	want := fmt.Sprintf("steal: %d nodes", serial(branches))
	lossy.Networks(t, func(t *testing.T, net *rmatest.Network) {
		if out := output(t, branches, 100, net, rmatest.Unchecked()); !strings.HasPrefix(out, want) {
			t.Errorf("got %s, want %s", out, want)
		}
	})
}
