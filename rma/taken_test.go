package rma_test

import (
	"errors"
	"net"
	"testing"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/foreign"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/userspace"
)

var takenFrom = []userspace.Transport{userspace.XDPNative, userspace.XDPGeneric}

// TestProgramIsTakenAway has another program in the place of that of a rank that runs. Its frames come through
// the kernel meanwhile, and calls go on. When the other one is gone, the rank's program is back, gets the
// frames, and executes requests.
func TestProgramIsTakenAway(t *testing.T) {
	for _, transport := range takenFrom {
		t.Run(string(transport), func(t *testing.T) {
			const taken = 1
			lab := newLab(t, 2)
			j := newJobIn(t, lab, transport, rma.Config{})
			wins := j.windows(64, 8)
			total := int64(0)
			round := func() (frames [2]uint64, executed uint64) { // that each rank's program has had so far, and that of the one executed
				total += 50
				j.each(func(n *rma.Node) error {
					w, to := rma.View[int64](wins[n.Rank()]), 1-n.Rank()
					err := w.LockAll(j.ctx)
					for range 50 {
						_, failed := w.Fetch(j.ctx, 1, to, rma.At(0), rma.Sum)
						err = errors.Join(err, failed)
					}
					counted, failed := w.Load(j.ctx, to, rma.At(0))
					if counted != total {
						t.Errorf("rank %d counted %d, want %d", n.Rank(), counted, total)
					}
					err = errors.Join(err, failed, w.UnlockAll(j.ctx), n.World().Barrier(j.ctx))
					for _, had := range n.Stats().Device.Filter {
						frames[n.Rank()] += had
					}
					return err
				})
				return frames, j.nodes[1-taken].Stats().Executed
			}
			mode := func(want string) {
				t.Helper()
				testenv.Await(t, "the mode "+want, func() bool { return j.nodes[taken].Mode() == want })
			}
			before, executed := round()
			gone := replaceProgram(t, lab, taken, transport)
			mode("udp")
			first, _ := round() // some frames may have been with the program when it went
			away, _ := round()
			gone()
			mode(string(transport))
			back, again := round()
			if before[taken] == 0 || away[taken] != first[taken] || away[1-taken] == first[1-taken] || back[taken] == away[taken] {
				t.Errorf("the programs of ranks 0 and 1 had %d frames, %d and %d while that of rank %d was away, and %d then", before, first, away, taken, back)
			}
			if executed == 0 || again == executed {
				t.Errorf("the program of rank %d had executed %d requests before, and %d in the end", taken, executed, again)
			}
			if n := j.nodes[taken].Stats().Device.FilterTaken; n == 0 || j.nodes[1-taken].Stats().Device.FilterTaken != 0 {
				t.Errorf("taken %d times, and %d from the other rank", n, j.nodes[1-taken].Stats().Device.FilterTaken)
			}
			freeAll(j, wins)
		})
	}
}

// replaceProgram puts another program in the place of that of a rank, until the returned function is called.
func replaceProgram(t *testing.T, lab *netlab.Lab, rank int, transport userspace.Transport) (gone func()) {
	t.Helper()
	other, err := foreign.New("other")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	flags := link.XDPGenericMode
	if transport == userspace.XDPNative {
		flags = link.XDPDriverMode
	}
	index := indexOf(t, lab, rank)
	var theirs link.Link
	for theirs == nil { // the rank may be faster
		takeProgram(t, lab, rank)
		err := lab.Do(rank, func() (err error) {
			theirs, err = link.AttachXDP(link.XDPOptions{Program: other.Program, Interface: index, Flags: flags})
			return err
		})
		if err != nil && !errors.Is(err, unix.EBUSY) {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { theirs.Close() })
	return func() { theirs.Close() }
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

// takeProgram takes the program of a rank's interface away.
func takeProgram(t *testing.T, lab *netlab.Lab, rank int) {
	t.Helper()
	if err := lab.TakeProgram(rank); err != nil {
		t.Fatal(err)
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
