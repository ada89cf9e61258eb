package rma_test

import (
	"errors"
	"net"
	"testing"

	"github.com/cilium/ebpf/link"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/userspace"
)

// TestProgramIsTakenAway detaches the XDP program of a rank that runs. Its frames come through the
// kernel from then on, and calls go on.
func TestProgramIsTakenAway(t *testing.T) {
	for _, transport := range []userspace.Transport{userspace.XDPNative, userspace.XDPGeneric} {
		t.Run(string(transport), func(t *testing.T) {
			lab := newLab(t, 2)
			j := newJobIn(t, lab, transport, rma.Config{})
			wins := j.windows(64, 8)
			for round := range 2 {
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
					return errors.Join(err, failed, w.UnlockAll(j.ctx), n.World().Barrier(j.ctx))
				})
				if round == 0 {
					detach(t, lab, 1)
				}
			}
			freeAll(j, wins)
		})
	}
}

// detach takes the program of a rank's interface away.
func detach(t *testing.T, lab *netlab.Lab, rank int) {
	t.Helper()
	if err := lab.Do(rank, func() error {
		nic, err := net.InterfaceByName(lab.Interface(rank))
		if err != nil {
			return err
		}
		links := &link.Iterator{}
		defer links.Close()
		for links.Next() {
			info, err := links.Link.Info()
			if err != nil {
				return err
			}
			if x := info.XDP(); x != nil && int(x.Ifindex) == nic.Index {
				return links.Link.(interface{ Detach() error }).Detach()
			}
		}
		return errors.New("there is no link")
	}); err != nil {
		t.Fatal(err)
	}
}
