package rma_test

import (
	"errors"
	"net"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/userspace"
)

var takenFrom = []userspace.Transport{userspace.XDPNative, userspace.XDPGeneric}

// TestProgramIsTakenAway detaches the XDP program of a rank that runs. Its frames come through the
// kernel from then on, and calls go on.
func TestProgramIsTakenAway(t *testing.T) {
	for _, transport := range takenFrom {
		t.Run(string(transport), func(t *testing.T) {
			const taken, rounds = 1, 3
			lab := newLab(t, 2)
			j := newJobIn(t, lab, transport, rma.Config{})
			wins := j.windows(64, 8)
			var seen [rounds][2]uint64 // frames that each rank's program has had by the end of each round
			for round := range rounds {
				j.each(func(n *rma.Node) error {
					w, to := rma.View[int64](wins[n.Rank()]), 1-n.Rank()
					err := w.LockAll(j.ctx)
					for range 50 {
						_, failed := w.Fetch(j.ctx, 1, to, rma.At(0), rma.Sum)
						err = errors.Join(err, failed)
					}
					counted, failed := w.Load(j.ctx, to, rma.At(0))
					if counted != int64(50*(round+1)) {
						t.Errorf("round %d: rank %d counted %d", round, n.Rank(), counted)
					}
					err = errors.Join(err, failed, w.UnlockAll(j.ctx), n.World().Barrier(j.ctx))
					for _, frames := range n.Stats().Device.Filter {
						seen[round][n.Rank()] += frames
					}
					return err
				})
				if round == 0 {
					takeProgram(t, lab, taken)
				}
			}
			freeAll(j, wins)
			// Some frames may have been with the program when it went.
			if seen[0][taken] == 0 || seen[2][taken] != seen[1][taken] || seen[2][1-taken] == seen[1][1-taken] {
				t.Errorf("the programs of ranks 0 and 1 have had %d frames; that of rank %d was taken after the first", seen, taken)
			}
		})
	}
}

// TestTakingLeavesOtherLabsAlone has a lab that is older. Its ranks have programs and interfaces of the
// same indices, and keep their programs.
func TestTakingLeavesOtherLabsAlone(t *testing.T) {
	for _, transport := range takenFrom {
		t.Run(string(transport), func(t *testing.T) {
			older, lab := newLab(t, 2), newLab(t, 2)
			newJobIn(t, older, transport, rma.Config{})
			newJobIn(t, lab, transport, rma.Config{})
			for rank := range 2 {
				was, err := older.Program(rank)
				if err != nil || was == 0 {
					t.Fatalf("rank %d of the older lab has program %d: %v", rank, was, err)
				}
				if a, b := indexOf(t, older, rank), indexOf(t, lab, rank); a != b {
					t.Fatalf("rank %d has interface %d in the older lab and %d in the other one: this shows nothing", rank, a, b)
				}
				takeProgram(t, lab, rank)
				if now, err := older.Program(rank); err != nil || now != was {
					t.Errorf("rank %d of the older lab had program %d and has %d: %v", rank, was, now, err)
				}
			}
		})
	}
}

// takeProgram takes the program of a rank's interface away, and sees that it has none.
func takeProgram(t *testing.T, lab *netlab.Lab, rank int) {
	t.Helper()
	if err := lab.TakeProgram(rank); err != nil {
		t.Fatal(err)
	}
	if id, err := lab.Program(rank); err != nil || id != 0 {
		t.Errorf("the interface of rank %d has program %d: %v", rank, id, err)
	}
}

// indexOf returns the index of a rank's interface in its namespace.
func indexOf(t *testing.T, lab *netlab.Lab, rank int) (index int) {
	t.Helper()
	if err := lab.Do(rank, func() error {
		nic, err := net.InterfaceByName(lab.Interface(rank))
		if err == nil {
			index = nic.Index
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return index
}
