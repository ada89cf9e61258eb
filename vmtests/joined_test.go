package vmtests

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/rma"
)

func init() { programs["long"] = long }

// long has every rank put to and get from the next one, much at a time, with small calls
// between, and checks all that arrives.
func long(s *self) error {
	const size, rounds = 300_000, 30
	win, err := rma.Allocate(s.ctx, s.world, 2*size+8, 1, nil)
	if err != nil {
		return err
	}
	if err := win.LockAll(s.ctx, 0); err != nil {
		return err
	}
	to, from := (s.rank+1)%s.size, (s.rank+s.size-1)%s.size
	data, got := make([]byte, size), make([]byte, size)
	for round := range rounds {
		fill(data, s.rank, to, round)
		if err := win.Put(buffer.Bytes(data), to, rma.At(int64(round%2)*size)); err != nil {
			return err
		}
		before, err := count(s, win, to, 2*size)
		if err != nil {
			return err
		}
		if err := check(before == int64(round), "round %d: the counter is %d", round, before); err != nil {
			return err
		}
		if err := win.Flush(s.ctx, to); err != nil {
			return err
		}
		if err := win.Get(buffer.Bytes(got), to, rma.At(int64(round%2)*size)); err != nil {
			return err
		}
		if err := win.Flush(s.ctx, to); err != nil {
			return err
		}
		if err := check(bytes.Equal(got, data), "round %d: a get has other bytes than the put before", round); err != nil {
			return err
		}
	}
	if err := win.UnlockAll(s.ctx); err != nil {
		return err
	}
	if err := s.world.Barrier(s.ctx); err != nil {
		return err
	}
	fill(data, from, s.rank, rounds-1)
	if err := check(bytes.Equal(win.Memory()[(rounds-1)%2*size:][:size], data), "the last put has left something else"); err != nil {
		return err
	}
	return win.Free(s.ctx)
}

// count adds one to a counter of a rank, and returns what it was.
func count(s *self, win *rma.Win, to int, at int64) (before int64, err error) {
	one := int64(1)
	if err := win.FetchAndOp(buffer.Value(&one), buffer.Value(&before), to, rma.At(at), rma.Sum); err != nil {
		return 0, err
	}
	return before, win.FlushLocal(s.ctx, to)
}

// Long transfers go joined where both ends can, and nothing is taken for lost on networks that
// lose nothing.
func TestLongTransfersGoJoined(t *testing.T) {
	for _, c := range []struct {
		ranks, mtu int
		transports []string
		joined     bool
	}{
		{2, 1500, []string{"auto"}, true},
		{3, 1500, []string{"xdp-generic"}, true},
		{2, 9000, []string{"auto"}, true},
		{2, 1500, []string{"udp"}, true},
		{2, 1500, []string{"udp", "xdp-generic"}, true},
		{2, 1500, []string{"xdp-native"}, false},
	} {
		t.Run(fmt.Sprintf("%d ranks, MTU %d, %v", c.ranks, c.mtu, c.transports), func(t *testing.T) {
			if c.mtu == 9000 {
				testenv.NeedsFeature(t, testenv.MultiBuffer)
			}
			lab := labtest.New(t, netlab.Config{Ranks: c.ranks, MTU: c.mtu})
			j := start(t, lab, spec{program: "long", transports: c.transports})
			j.finish()
			checkNothingLost(j)
			for _, r := range j.ranks {
				r.rewind()
				e := j.counters(r).Link
				if e.Lost != 0 {
					t.Errorf("rank %d takes %d bundles for lost", r.n, e.Lost)
				}
				if c.joined && e.Joined < e.Sent/2 || !c.joined && e.Joined > 0 {
					t.Errorf("of %d bundles of rank %d %d went joined", e.Sent, r.n, e.Joined)
				}
			}
		})
	}
}
