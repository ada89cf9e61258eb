package engine

import (
	"errors"
	"fmt"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// TestGoneSpreads has ranks in a line, each with a session to the next. The last loses whom
// the first has lost, over sessions that there are and over sessions that begin later. News
// of a rank comes before the revocation that it has caused.
func TestGoneSpreads(t *testing.T) {
	const ranks, gone, left = 6, 5, 4
	f := newRanks(t, ranks, 8, nil)
	f.dial(0, gone)
	f.dial(0, left)
	f.dial(0, 1)
	f.dial(1, 2)
	f.Settle()
	f.e[left].Bye("")
	f.Settle()
	f.Cut[gone], f.Cut[left] = true, true
	r := f.receive(0, gone, 5, 1, 8)
	f.Until(10_000*millisecond, r.Met)
	for rank := range ranks {
		knows := rank == gone || rank == left
		if f.e[0].Gone(rank) != knows {
			t.Errorf("rank 0 takes %d for gone: %v", rank, !knows)
		}
		if f.e[1].Gone(rank) {
			t.Errorf("rank 1 knows of %d, and nobody has told it", rank)
		}
	}
	f.Filter = func(_, to int, _ []byte) int {
		if _, broken := f.e[2].Revoked(5); broken && f.e[2].Session(gone) == nil {
			t.Error("rank 2 knows that the context is over, and does not listen for the rank that is gone")
		}
		return 1
	}
	f.e[0].Revoke(5, gone)
	f.e[0].TellGone(left)
	f.e[0].TellGone(left) // a second time changes nothing
	f.Settle()
	f.dial(2, 3)
	f.Until(4*testLimit, func() bool { return f.e[3].Gone(gone) && f.e[3].Gone(left) })
	for rank := range 4 {
		if failed, broken := f.e[rank].Revoked(5); !broken || failed != gone {
			t.Errorf("rank %d: the context is over: %v", rank, broken)
		}
		if !f.e[rank].Gone(gone) || !f.e[rank].Gone(left) || f.e[rank].Gone(rank) {
			t.Errorf("rank %d does not know who is gone", rank)
		}
	}
	f.e[1].Revoke(5, 3) // the context is over already; rank 3 lives
	f.Cut[3] = true
	f.e[2].Ended(3, 0, errors.New("killed"))
	f.e[2].Revoke(5, 3) // as before, but rank 3 is lost
	f.Until(4*testLimit, func() bool { return f.e[0].Gone(3) && f.e[1].Gone(3) })
}

// TestLiveRankIsNotGone has a rank say, without truth, that it has lost another that lives.
// Of the two that are told one has a session with that rank, and the other has none. Both
// hear it, and nothing else happens.
func TestLiveRankIsNotGone(t *testing.T) {
	const told, stranger, live, liar = 0, 1, 2, 3
	f := newRanks(t, 4, 8, nil)
	f.dial(told, live)
	f.dial(liar, told)
	f.dial(liar, stranger)
	f.dial(stranger, told)
	f.Settle()
	f.report(liar, live)
	f.Pass(4 * testLimit)
	for rank := range 4 {
		for of := range 4 {
			if f.e[rank].Gone(of) {
				t.Errorf("rank %d takes rank %d for gone", rank, of)
			}
		}
		if _, found := f.e[rank].Dispute([]int{rank, (rank + 1) % 4, (rank + 2) % 4, (rank + 3) % 4}); found {
			t.Errorf("rank %d parts with a member", rank)
		}
	}
	if s := f.e[stranger].Session(live); s == nil || !s.Open() {
		t.Error("the rank that had no session with the one said to be gone did not listen for it")
	}
	f.atRest()
	f.Cut[live] = true
	f.report(liar, live) // it has said so already
	if f.Pass(4 * testLimit); f.e[told].Gone(live) {
		t.Error("the liar is heeded twice")
	}
	f.report(stranger, live)
	f.Until(4*testLimit, func() bool { return f.e[told].Gone(live) })
}

// report has a rank say that it has lost another, which it has not.
func (f *ranks) report(liar, rank int) {
	for to, e := range f.e {
		if s := e.Session(liar); s != nil && s.Open() {
			r := wire.Gone{By: uint32(liar), Rank: uint32(rank)}.Record()
			if class := (*others)(e).Request(&s.Session, r); class != mpierr.Success {
				f.T.Errorf("rank %d gets class %v", to, class)
			}
		}
	}
}

// TestBrokenPairParts breaks the way between two ranks. Both say that they have lost the
// other, and the third hears both. All that the first keeps agree; the one that is parted
// with finds out.
func TestBrokenPairParts(t *testing.T) {
	for _, c := range []struct{ a, b, goes int }{{1, 2, 2}, {0, 1, 1}, {0, 3, 3}, {2, 3, 3}} {
		t.Run(fmt.Sprintf("%d and %d", c.a, c.b), func(t *testing.T) {
			f := newRanks(t, 4, 8, nil)
			for from := range 4 {
				for to := range from {
					f.dial(from, to)
				}
			}
			f.Settle()
			f.Filter = func(from, to int, _ []byte) int {
				if from == c.a && to == c.b || from == c.b && to == c.a {
					return 0
				}
				return 1
			}
			r := f.receive(c.a, c.b, 5, 1, 8)
			f.Until(4*testLimit, r.Met)
			f.e[c.a].TellGone(c.b)
			var keep []int
			for rank := range 4 {
				if rank != c.goes {
					keep = append(keep, rank)
				}
			}
			all := []int{0, 1, 2, 3}
			f.Until(4*testLimit, func() bool {
				agreed := true
				for _, rank := range keep {
					if gone, found := f.e[rank].Dispute(all); found {
						f.e[rank].Session(gone).GiveUp(errors.New("parted with"))
						f.e[rank].TellGone(gone)
					}
					agreed = agreed && f.e[rank].Gone(c.goes)
				}
				return agreed
			})
			f.Pass(4 * testLimit)
			for _, rank := range keep {
				for _, of := range keep {
					if f.e[rank].Gone(of) {
						t.Errorf("rank %d takes rank %d for gone", rank, of)
					}
				}
				if !f.e[c.goes].Gone(rank) {
					t.Errorf("the one that goes has not lost rank %d", rank)
				}
			}
		})
	}
}

// TestLeaverIsNoReasonToPart has two ranks lose each other, and one of them leave. The others
// do not part with the one that is left.
func TestLeaverIsNoReasonToPart(t *testing.T) {
	const leaves, lives = 0, 2
	f := newRanks(t, 4, 8, nil)
	for from := range 4 {
		for to := range from {
			f.dial(from, to)
		}
	}
	f.Settle()
	for _, rank := range []int{leaves, lives} {
		f.e[rank].Session(leaves + lives - rank).Fail(errors.New("it is taken for silent"))
		f.e[rank].TellGone(leaves + lives - rank)
	}
	f.Pass(testLimit)
	if rank, found := f.e[1].Dispute([]int{0, 1, 2, 3}); !found || rank != lives {
		t.Errorf("rank 1 parts with rank %d, %v", rank, found)
	}
	f.e[leaves].Bye("")
	f.Pass(testLimit)
	for _, by := range []int{1, 3} {
		if rank, found := f.e[by].Dispute([]int{0, 1, 2, 3}); found || !f.e[by].Gone(leaves) || f.e[by].Gone(lives) {
			t.Errorf("rank %d parts with rank %d, %v", by, rank, found)
		}
	}
}

// TestLaterLifeIsGone restarts a rank before others have met it. They are told that it is
// lost, meet its second life, and learn that this is not the first. One that nobody says
// is lost is a member; see TestUnknownFirstLife.
func TestLaterLifeIsGone(t *testing.T) {
	f := newRanks(t, 3, 8, nil)
	f.dial(0, 1)
	f.dial(0, 2)
	f.Settle()
	f.start(1, 2, 3, 8, nil)
	f.dial(1, 0)
	f.dial(1, 2)
	f.Settle()
	if !f.e[0].Gone(1) || f.e[2].Gone(1) {
		t.Fatal("rank 0 has not lost the first life, or rank 2 has")
	}
	f.e[0].TellGone(1)
	f.Settle()
	if !f.e[2].Gone(1) || f.e[2].Gone(0) || f.e[1].Gone(0) || f.e[1].Gone(2) {
		t.Error("rank 2 takes the second life for the first")
	}
	if !f.e[1].Gone(1) {
		t.Error("the second life does not know that it is no member")
	}
	if !f.e[2].Session(1).Open() {
		t.Error("the session with the second life has ended")
	}
}

// TestEndedProcessIsNotWaitedFor tells an engine that the processes of three peers have
// ended. The first owes it a message, the second has left in good order, and it has
// never met the third.
func TestEndedProcessIsNotWaitedFor(t *testing.T) {
	const met, left, stranger = 1, 2, 3
	f := newRanks(t, 4, 8, nil)
	f.dial(0, met)
	f.dial(0, left)
	f.Settle()
	f.e[left].Bye("")
	f.Settle()
	why := errors.New("killed")
	r := f.receive(0, met, 5, 1, 8)
	for _, rank := range []int{met, left, stranger, -1, 4} {
		f.e[0].Ended(rank, 0, why)
	}
	if f.e[0].Gone(-1) || f.e[0].Gone(0) || f.e[0].Gone(4) {
		t.Error("this rank, or one that there is not, is gone")
	}
	if !r.Met() || !errors.Is(r.Err(), why) {
		t.Errorf("the receive: met %v, %v", r.Met(), r.Err())
	}
	if n := f.e[0].Stats.PeersFailed; n != 1 {
		t.Errorf("%d peers have failed, want 1: the other has left before", n)
	}
	for _, rank := range []int{met, left, stranger} {
		if !f.e[0].Gone(rank) {
			t.Errorf("rank %d is not gone", rank)
		}
	}
}

// TestEndOfOneLife tells an engine of ends of processes that others with their rank may follow.
func TestEndOfOneLife(t *testing.T) {
	why := errors.New("killed")
	unsought := func(c *Config) { c.Seek = func(int) {} }

	// Another life has ended, too, before this rank could hear of it.
	f := newRanks(t, 2, 8, unsought)
	f.dial(0, 1)
	f.Settle()
	life := f.e[0].Session(1).Life()
	f.Cut[1] = true
	f.e[0].Ended(1, life, why)
	f.e[0].Ended(1, life+1, why)
	p := &Sending{To: f.e[0].Connect(1).Peer(), Context: 1, Tag: 1, Data: make([]byte, 8)}
	f.e[0].PostSend(p)
	f.e[0].Tick()
	f.Settle()
	if !p.Met() || !errors.Is(p.Err(), why) {
		t.Errorf("a send after the end of a later life: %v, %v", p.Met(), p.Err())
	}

	// An earlier one ended while this rank still looks for the one that lives.
	f = newRanks(t, 2, 8, unsought)
	f.start(1, 2, 2, 8, unsought)
	f.e[0].Connect(1)
	f.e[0].Ended(1, 1, why)
	f.dial(0, 1)
	f.Settle()
	f.e[0].Ended(1, 1, why)
	if s := f.e[0].Session(1); !s.Open() {
		t.Errorf("the rank that lives is taken for dead: %v", s.Err())
	}

	// One that was looked for could not join, and the next one can.
	f = newRanks(t, 2, 8, unsought)
	f.e[0].Connect(1)
	f.e[0].Ended(1, 1, why)
	f.e[0].NotFound(1, why)
	if s := f.e[0].Connect(1); s.Dead() {
		t.Errorf("the rank is not looked for again: %v", s.Err())
	}
}

// TestSuspectIsAsked has an engine hear of ranks that may have ended: of one that it has never met it has the way looked for,
// if it is to.
func TestSuspectIsAsked(t *testing.T) {
	why := errors.New("its connection was lost")
	var sought []int
	told := map[int]bool{}
	f := newRanks(t, 4, 8, func(c *Config) {
		if c.Rank == 0 {
			c.Seek = func(rank int) { sought = append(sought, rank) }
			c.Asked = func(rank int, _ uint64, lives bool) { told[rank] = lives }
		}
	})
	for _, rank := range []int{-1, 0, 4} {
		f.e[0].Suspected(rank, 1, true, why)
	}
	f.e[0].Suspected(3, 1, false, why)
	if f.e[0].Session(3) != nil || len(sought) > 0 {
		t.Fatalf("ranks %v are looked for", sought)
	}
	f.dial(0, 1)
	f.Settle()
	f.e[0].Suspected(1, 1, false, why)
	f.e[0].Suspected(2, 1, true, why)
	f.e[0].Suspected(3, 1, true, why)
	f.Cut[3] = true
	for _, rank := range sought {
		f.dial(0, rank)
	}
	f.Pass(1000 * millisecond)
	if len(sought) != 2 || len(told) != 3 || !told[1] || !told[2] || told[3] {
		t.Errorf("ranks %v are looked for, and those live: %v", sought, told)
	}
	if !f.e[0].Gone(3) || f.e[0].Gone(1) || f.e[0].Gone(2) {
		t.Errorf("gone: %t, %t, %t", f.e[0].Gone(1), f.e[0].Gone(2), f.e[0].Gone(3))
	}
}
