package main

import (
	"math"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/lossy"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

const rounds = 30 // that a test takes

// watched is what one rank has seen of a run.
type watched struct {
	losses []float64
	ranks  int // that were left in the end
	line   []float64
}

// fit runs the program as four ranks, of which victim dies in the middle, and returns what each
// has seen. With a victim of -1 nobody dies. If ahead is a rank, it
// kills the victim and takes the step for done, as where the victim dies in the barrier behind it.
func fit(t *testing.T, victim, ahead int, net *rmatest.Network, options ...rmatest.Option) [4]watched {
	var seen [4]watched
	rmatest.Run(t, len(seen), func(t *rmatest.T, node *rma.Node) {
		w := &seen[node.Rank()]
		w.losses = make([]float64, rounds)
		t.Must(run(t.Context(), node, rounds, func(s *session, loss float64) {
			w.losses[s.round] = loss
			if s.round == rounds/2 && s.win.Comm().Size() == len(seen) {
				switch {
				case node.Rank() == ahead:
					s.round++
					net.Kill(victim)
				case node.Rank() == victim && ahead < 0:
					net.Kill(victim)
				}
			}
			w.ranks, w.line = s.win.Comm().Size(), s.line
		}))
	}, append(options, net)...)
	for rank, w := range seen {
		if rank != victim && w.losses[rounds-1] == 0 {
			t.Errorf("rank %d has not taken all %d steps", rank, rounds)
		}
	}
	return seen
}

// check says what is wrong with what a rank has seen that has lived to the end.
func (w watched) check(t *testing.T, rank, ranks int) {
	t.Helper()
	for round := 1; round < len(w.losses); round++ {
		if w.losses[round] >= w.losses[round-1] && w.losses[round-1] != 0 {
			t.Errorf("rank %d: the loss rose from %g to %g in round %d", rank, w.losses[round-1], w.losses[round], round)
		}
	}
	for i, want := range line {
		if math.Abs(w.line[i]-want) > 0.2 {
			t.Errorf("rank %d found %.2f, want %.2f", rank, w.line, line)
			break
		}
	}
	if w.ranks != ranks {
		t.Errorf("rank %d was one of %d in the end, want %d", rank, w.ranks, ranks)
	}
}

// TestFit has the loss go down in each round, also when a worker dies, or the server.
func TestFit(t *testing.T) {
	for name, test := range map[string]struct {
		network *rmatest.Network
		options []rmatest.Option
	}{
		"frames":        {network: &rmatest.Network{}},
		"shared memory": {&rmatest.Network{}, []rmatest.Option{rmatest.Unchecked(), rmatest.Hosts(1)}},
		"lossy":         {network: &rmatest.Network{Seed: 1, Loss: 0.02, Duplication: 0.02, Reordering: 0.05}},
	} {
		for fate, victim := range map[string]int{"nobody dies": -1, "a worker dies": 2, "the server dies": 0} {
			t.Run(name+", "+fate, func(t *testing.T) {
				ranks := 4
				if victim >= 0 {
					ranks--
				}
				for rank, w := range fit(t, victim, -1, test.network, test.options...) {
					if rank != victim {
						w.check(t, rank, ranks)
					}
				}
			})
		}
	}
}

// TestRoundsAreAgreedOn has a rank be a round ahead of the others when they go on.
func TestRoundsAreAgreedOn(t *testing.T) {
	for rank, w := range fit(t, 2, 1, &rmatest.Network{}) {
		if rank != 2 {
			w.check(t, rank, 3)
		}
	}
}

// TestFitOverLoss compares the line with that which one process finds. The order of additions
// changes its last digits.
func TestFitOverLoss(t *testing.T) {
	alone := &session{line: make([]float64, len(line))}
	for i := range points {
		alone.points = append(alone.points, pointAt(i))
	}
	for range rounds - 1 { // a rank pulls before each of the steps
		_, step := alone.gradient()
		for i := range step {
			alone.line[i] += step[i]
		}
	}
	lossy.Networks(t, func(t *testing.T, net *rmatest.Network) {
		for rank, w := range fit(t, -1, -1, net, rmatest.Unchecked()) {
			for i, want := range alone.line {
				if math.Abs(w.line[i]-want) > 1e-9 {
					t.Errorf("rank %d found %v, want %v", rank, w.line, alone.line)
					break
				}
			}
		}
	})
}

// TestFitOverLossAndDeath has the survivors find the line.
func TestFitOverLossAndDeath(t *testing.T) {
	for fate, victim := range map[string]int{"a worker dies": 2, "the server dies": 0} {
		t.Run(fate, func(t *testing.T) {
			lossy.Networks(t, func(t *testing.T, net *rmatest.Network) {
				for rank, w := range fit(t, victim, -1, net, rmatest.Unchecked()) {
					if rank != victim {
						w.check(t, rank, 3)
					}
				}
			})
		})
	}
}
