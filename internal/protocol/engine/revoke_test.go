package engine

import (
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// TestRevokeOvertakes loses the frame of a message, after which its sender breaks the
// communicator: what was sent before can still be received.
func TestRevokeOvertakes(t *testing.T) {
	f := newRanks(t, 2, 8, nil)
	f.dial(0, 1)
	f.Settle()
	lose := true
	f.Filter = func(from, _ int, b []byte) int {
		if lose && from == 0 && kindOfFrame(b) == wire.KindData {
			lose = false
			return 0
		}
		return 1
	}
	f.send(0, 1, 5, 1, content(1, 100))
	f.Settle()
	f.e[0].Revoke(5, 0)
	f.Pass(1000 * millisecond)
	if _, broken := f.e[1].Revoked(5); lose || !broken {
		t.Fatal("nothing was lost, or broken")
	}
	if r := f.receive(1, 0, 5, 1, 100); !r.Met() || r.Err() != nil {
		t.Errorf("the message: %v, %v", r.Met(), r.Err())
	}
	if r := f.receive(1, 0, 5, 1, 100); !r.Met() || r.Err() == nil {
		t.Errorf("another one: %v, %v", r.Met(), r.Err())
	}
	f.atRest()
}

// TestOnlyMembersRevoke has ranks break a context, of which one is not in its group, before
// and after the others know the context: the outsider achieves nothing, and is not told.
func TestOnlyMembersRevoke(t *testing.T) {
	const context, outsider = 100, 2
	for _, late := range []bool{false, true} {
		for _, who := range []int{1, outsider} {
			f := newRanks(t, 4, 8, nil)
			e, group := f.e[0], []int{0, 1, 3}
			for rank := 1; rank < 4; rank++ {
				f.dial(0, rank)
			}
			f.Settle()
			if !late {
				e.OpenContext(context, group)
			}
			if f.e[who].Revoke(context, 3); who == outsider {
				r := wire.Record{Code: wire.CodeRevoke, Window: context, Disp: 0} // a second time
				(*others)(f.e[0]).Request(&e.Session(outsider).Session, r)
			}
			f.Settle()
			if _, broken := e.Revoked(context); broken == late && who != outsider {
				t.Errorf("late %v, rank %d: broken %v before the context is known", late, who, broken)
			}
			e.OpenContext(context, group)
			e.OpenContext(context, group) // a second time changes nothing
			f.Settle()
			if _, broken := e.Revoked(context); broken != (who != outsider) {
				t.Errorf("late %v, rank %d: broken %v", late, who, broken)
			}
			if n := e.Stats.Outsiders; (n > 0) != (!late && who == outsider) {
				t.Errorf("late %v, rank %d: %d requests of outsiders", late, who, n)
			}
			for rank := 1; rank < 4 && who != outsider; rank++ {
				f.e[rank].OpenContext(context, group) // what it was told holds from now on
				if _, told := f.e[rank].Revoked(context); told != (rank == 3) && rank != who {
					t.Errorf("late %v: rank %d was told: %v", late, rank, told)
				}
			}
			f.atRest()
		}
	}
}

// TestMessagesOfOutsidersAreDropped sends on a context whose group the sender is not in:
// nothing is kept of it, and no receive gets it.
func TestMessagesOfOutsidersAreDropped(t *testing.T) {
	const context = 100
	f := newRanks(t, 3, 8, nil)
	f.e[0].OpenContext(context, []int{0, 1})
	r := &Receive{Context: context, Source: AnySource, Tag: AnyTag, Members: []int{0, 1}, Buffer: make([]byte, 8)}
	f.dial(0, 1)
	f.e[0].PostReceive(r)
	for i, size := range []int{8, 4000, 20_000} {
		p := f.send(2, 0, context, i, content(i, size))
		f.Until(1000*millisecond, p.Met)
	}
	f.Settle()
	if n := f.e[0].Stats.Outsiders; r.Met() || n != 3 || f.e[0].Usage().Unexpected != 0 {
		t.Errorf("received %v, %d of outsiders, %+v", r.Met(), n, f.e[0].Usage())
	}
	f.send(1, 0, context, 1, content(1, 8))
	f.Until(1000*millisecond, r.Met)
	f.atRest()
}
