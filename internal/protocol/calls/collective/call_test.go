package collective

import (
	"bytes"
	"errors"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/mpierr"
)

// lab is the ranks of a job, whose frames arrive when a test says so.
type lab struct {
	e     []*engine.Engine
	slabs []*engine.Slab
	held  map[[2]int]bool     // from and to: nothing arrives
	wait  map[[2]int][][]byte // what would have
}

func newLab(ranks int) *lab {
	l := &lab{held: map[[2]int]bool{}, wait: map[[2]int][][]byte{}}
	ids := uint64(0)
	for r := range ranks {
		slab := engine.HeapSlab(256, 0, 1400)
		l.slabs = append(l.slabs, slab)
		l.e = append(l.e, engine.New(engine.Config{
			LinkConfig: engine.LinkConfig{
				Rank: r, Size: ranks, Job: 1, Incarnation: 1, Slab: slab, DeadAfter: 5e9,
				Rand: func() uint64 { ids++; return ids },
			},
			Windows: &windows.Table{},
		}))
	}
	for r, e := range l.e {
		e.Now = 1
		for to := range ranks {
			if to != r {
				e.Dial(to, engine.PathID(to), 1)
			}
		}
	}
	l.pump()
	return l
}

// pump has frames arrive until there are none.
func (l *lab) pump() {
	for moved := true; moved; {
		moved = false
		for from, e := range l.e {
			e.Tick()
			e.Announcements()
			for _, o := range e.Output() {
				way := [2]int{from, int(o.Path)}
				l.wait[way] = append(l.wait[way], bytes.Clone(l.slabs[from].Payload(o.Slot)[:o.Len]))
				e.Reaped([]int32{o.Slot})
			}
			e.Took(len(e.Output()))
		}
		for from := range l.e {
			for to, e := range l.e {
				way := [2]int{from, to}
				if l.held[way] {
					continue
				}
				for _, b := range l.wait[way] {
					moved = true
					e.Receive(b, engine.PathID(from))
				}
				l.wait[way] = nil
			}
		}
		for _, e := range l.e {
			e.Now += 1000
		}
	}
}

// step steps m at a rank until it needs something from others, which it returns.
func (l *lab) step(rank int, m Machine) Need {
	for range 1000 {
		switch need := m.Step(l.e[rank]); {
		case need == Work:
			m.Work()
		case need == Wait && m.Met(), need == Finish && m.Met():
		default:
			return need
		}
	}
	panic("the machine asks for steps without a pause")
}

// carry carries calls of all ranks out.
func (l *lab) carry(t *testing.T, calls ...Machine) {
	t.Helper()
	for range 100 {
		left := false
		for r, m := range calls {
			left = l.step(r, m) != Done || left
		}
		if !left {
			return
		}
		l.pump()
	}
	t.Fatal("the calls do not end")
}

var errEnough = &mpierr.Error{Class: mpierr.Timeout, Rank: mpierr.NoRank, Err: errors.New("enough")}

// TestHalfFailedCallWaitsForWhatIsOnItsWay has a half of a transfer fail while the message
// of the other is being fetched into the caller's memory: the call goes on until that is
// over, and says so, and does not ask for another step before.
func TestHalfFailedCallWaitsForWhatIsOnItsWay(t *testing.T) {
	l := newLab(2)
	c := []Comm{New(WorldContext, nil, 0, 2), New(WorldContext, nil, 1, 2)}
	var calls []*Call
	for r := range c {
		k := c[r].Alltoall(make([]byte, 200_000), make([]byte, 200_000))
		if need := l.step(r, k); need != Wait {
			t.Fatalf("rank %d needs %d, not Wait", r, need)
		}
		calls = append(calls, k)
	}
	l.held[[2]int{1, 0}] = true
	l.pump() // rank 1 has been offered the message, and asks for it
	l.e[1].Revoke(WorldContext, 0)
	if need := l.step(1, calls[1]); need != Finish {
		t.Fatalf("rank 1 needs %d, not Finish", need)
	}
	if calls[1].Met() {
		t.Error("what is on its way counts as here")
	}
	l.held[[2]int{1, 0}] = false
	l.pump()
	l.carry(t, calls[0], calls[1])
	for r, k := range calls {
		if !errors.Is(k.Err(), mpierr.ProcFailed) {
			t.Errorf("rank %d: %v", r, k.Err())
		}
	}
}

// TestGivenUpBeforeItBeginsSendsNothing gives a barrier up before its first step: nobody
// takes a message of it for a part of what he has called.
func TestGivenUpBeforeItBeginsSendsNothing(t *testing.T) {
	l := newLab(2)
	c := []Comm{New(WorldContext, nil, 0, 2), New(WorldContext, nil, 1, 2)}
	k := c[0].Barrier("barrier")
	k.GiveUp(errEnough)
	if need := l.step(0, k); need != Done || !errors.Is(k.Err(), mpierr.Timeout) {
		t.Fatalf("needs %d: %v", need, k.Err())
	}
	other := c[1].Barrier("barrier")
	l.step(1, other)
	l.pump()
	if l.step(1, other); !errors.Is(other.Err(), mpierr.ProcFailed) {
		t.Errorf("the other's barrier: %v", other.Err())
	}
}

// halfSplit has ranks 0 and 1 of three, one colour, make a communicator. Rank 0 gets it and
// sends rank 1 a message there; rank 1 waits for rank 2, of another colour, to say that it
// has its own.
func halfSplit(t *testing.T) (l *lab, waits *Split, part uint32) {
	l = newLab(3)
	c := []Comm{New(WorldContext, nil, 0, 3), New(WorldContext, nil, 1, 3), New(WorldContext, nil, 2, 3)}
	var s []*Split
	for r := range c {
		s = append(s, c[r].Split("comm split", ID(0, r, 3), r/2, 0))
		s[r].Prepare = func(*Part) error {
			if r == 2 {
				l.held[[2]int{2, 1}] = true // all of the first round has come
			}
			return nil
		}
	}
	for range 20 {
		for r := range s {
			l.step(r, s[r])
		}
		l.pump()
	}
	p, err := s[0].Result()
	if err != nil || p == nil || !s[0].over || s[1].over || !s[1].last {
		t.Fatalf("rank 0 has %v, %v; rank 1 has all: %v", p, err, s[1].over)
	}
	l.e[0].OpenContext(p.Context, p.Group)
	l.e[0].PostSend(&engine.Sending{To: l.e[0].Session(1).Peer(), Context: p.Context, Tag: 1, Data: make([]byte, 100)})
	l.pump()
	return l, s[1], p.Context
}

// TestRenouncedPartKeepsNothing has a rank give up a split after another has sent it a
// message on the new communicator: the message is dropped, with what it has cost.
func TestRenouncedPartKeepsNothing(t *testing.T) {
	l, s, part := halfSplit(t)
	s.GiveUp(errEnough)
	if need := l.step(1, s); need != Done {
		t.Fatalf("needs %d", need)
	}
	l.e[1].FreeContext(WorldContext) // where rank 0 is further on
	if u := l.e[1].Usage(); u.Unexpected != 0 {
		t.Errorf("%d bytes of messages are kept", u.Unexpected)
	}
	l.pump()
	if failed, broken := l.e[0].Revoked(part); !broken || failed != 1 {
		t.Errorf("rank 0 holds the new communicator for broken: %t, by rank %d", broken, failed)
	}
}

// TestPartIsBrokenByItsMember has a split fail at a rank because of one of another colour:
// in the new communicator it is this rank that is to blame.
func TestPartIsBrokenByItsMember(t *testing.T) {
	l, s, part := halfSplit(t)
	l.e[1].Revoke(WorldContext, 2)
	if need := l.step(1, s); need != Done {
		t.Fatalf("needs %d", need)
	}
	var e *mpierr.Error
	if _, err := s.Result(); !errors.As(err, &e) || e.Class != mpierr.ProcFailed || e.Rank != 2 {
		t.Errorf("the split: %v", err)
	}
	if failed, broken := l.e[1].Revoked(part); !broken || failed != 1 {
		t.Errorf("the new communicator is broken: %t, by rank %d", broken, failed)
	}
}
