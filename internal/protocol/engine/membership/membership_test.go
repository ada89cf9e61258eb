package membership

import (
	"errors"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/fabric"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// above is a layer above a link that has members and nothing else.
type above struct {
	fabric.NoExchanges
	view *View
}

// peer is what it keeps about another rank.
type peer struct {
	link.Session
	Member
}

func (a *above) Begin() *link.Session {
	p := &peer{}
	p.Upper = p
	return &p.Session
}

func (a *above) Apply(*link.Bundle) bool       { return true }
func (a *above) Answers(*link.Session, []byte) {}
func (a *above) Ready(s *link.Session)         { a.view.Ready(s) }
func (a *above) Waits(*link.Session) bool      { return false }
func (a *above) Owes(*link.Session) bool       { return false }

func (a *above) Inquire(*link.Session) (asked bool, fault error) { return false, nil }

func (a *above) Failed(s *link.Session) { a.view.TakeFailure(s) }
func (a *above) Sweep()                 {}

// newView returns the view of rank 0, which has a session with all others.
func newView(size int, over func(uint32, int)) *View {
	a, id := &above{}, uint64(0)
	l := link.New(link.Config{
		Rank: 0, Size: size, Job: 1, Incarnation: 1, Rand: func() uint64 { id++; return id },
		Slab: link.HeapSlab(64, 0, wire.MinPayload), RxFrames: 64, Parked: 64, DeadAfter: 1e9,
		Congestion: func() reliable.Congestion { return reliable.NewAIMD() }, Seek: func(int) {}, Upper: a, Stats: &link.Stats{},
	})
	l.Now = 1
	a.view = New(l, Config{Size: size, Over: over, Member: func(s *link.Session) *Member { return &s.Upper.(*peer).Member }})
	for rank := 1; rank < size; rank++ {
		l.Dial(rank, link.PathID(rank), 1)
	}
	return a.view
}

func never(uint32, int) {}

// TestReportsAreBounded has a peer say that it has lost more ranks than there are, each of
// them twice, and that others have. This rank takes none for gone.
func TestReportsAreBounded(t *testing.T) {
	const size, peer = 4, 1
	v := newView(size, never)
	for by := range uint32(size + 1) {
		for rank := range uint32(100) {
			want := mpierr.Rank
			if rank < size && by < size && (by == peer || by == 0 && rank == peer || by != 0 && rank == 0) {
				want = mpierr.Success
			}
			if by == peer && rank == peer {
				continue // it says that it is gone itself
			}
			for range 2 {
				r := wire.Gone{By: by, Rank: rank}.Record()
				if class := v.TakeGone(v.link.Session(peer), &r); class != want {
					t.Errorf("rank %d has lost %d: class %v, want %v", by, rank, class, want)
				}
			}
		}
	}
	if n := len(v.gone.known); n != 0 {
		t.Errorf("%d ranks are gone", n)
	}
	if n := len(v.reported); n >= size {
		t.Errorf("%d ranks are reported", n)
	}
	for rank := 1; rank < size; rank++ {
		if m := v.cfg.Member(v.link.Session(rank)); len(m.lost) >= size || len(m.questions) >= size {
			t.Errorf("rank %d has lost %d and is asked %d questions", rank, m.lost, len(m.questions))
		}
	}
}

// TestRevokedIsBounded has a peer break more communicators than there can be.
func TestRevokedIsBounded(t *testing.T) {
	v := newView(2, func(context uint32, _ int) { t.Errorf("context %d, which nobody knows, is over", context) })
	for context := range uint32(4 * keptEarly) {
		r := wire.Record{Code: wire.CodeRevoke, Window: context, Disp: 1}
		if class := v.TakeRevoke(v.link.Session(1), &r); class != mpierr.Success {
			t.Fatal(class)
		}
	}
	if in := &v.revoked; len(in.early[1]) != keptEarly || len(in.early) != 1 || len(in.failed) != 0 {
		t.Errorf("%d and %d contexts are remembered", len(in.early[1]), len(in.failed))
	}
}

// TestContextIsOverOnce has members and an outsider revoke a context that is known: the
// layer above is told once, and of a member's word alone.
func TestContextIsOverOnce(t *testing.T) {
	const context, outsider = 100, 2
	told := 0
	v := newView(4, func(c uint32, failed int) {
		if told++; c != context || failed != 3 {
			t.Errorf("context %d is over because of rank %d", c, failed)
		}
	})
	v.OpenContext(context, []int{0, 1, 3})
	r := wire.Record{Code: wire.CodeRevoke, Window: context, Disp: 3}
	if class := v.TakeRevoke(v.link.Session(outsider), &r); class != mpierr.Comm || told != 0 {
		t.Errorf("an outsider gets %v, and %d contexts are over", class, told)
	}
	for _, from := range []int{1, 3} {
		if class := v.TakeRevoke(v.link.Session(from), &r); class != mpierr.Success || told != 1 {
			t.Errorf("rank %d gets %v, and %d contexts are over", from, class, told)
		}
	}
}

// TestLeaverSaysWhy has a peer leave because its program has failed: that is a failure, once.
func TestLeaverSaysWhy(t *testing.T) {
	v := newView(3, never)
	leaver := v.link.Session(1)
	v.TakeLeave(leaver, "it has aborted the job")
	for range 2 {
		err, left := v.LostMember(nil)
		if culprit := v.Culprit(nil); err == nil || left != nil || culprit != err || err.Rank != 1 || err.Err.Error() != "it has aborted the job" {
			t.Errorf("the rank that has failed: %v, %v", err, left)
		}
		leaver.Fail(errors.New("its process has ended"))
	}
}

// TestLeaverIsNoFailure has one peer leave and then end, and another end without leaving:
// both are gone, and only the second has failed.
func TestLeaverIsNoFailure(t *testing.T) {
	v := newView(4, never)
	leaver, failed := v.link.Session(1), v.link.Session(2)
	if !v.TakeLeave(leaver, "") || v.TakeLeave(leaver, "") {
		t.Error("a rank leaves once")
	}
	if err, left := v.LostMember([]int{0, 1}); err != nil || left == nil || left.Rank != 1 {
		t.Errorf("of the members that have left: %v, %v", err, left)
	}
	if err, left := v.LostMember(nil); err != nil || left != nil {
		t.Errorf("while others are there: %v, %v", err, left)
	}
	why := errors.New("killed")
	leaver.Fail(why)
	failed.Fail(why)
	if !v.Gone(1) || !v.Gone(2) || v.Gone(3) {
		t.Error("the wrong ranks are gone")
	}
	if err := v.Culprit([]int{0, 1, 3}); err != nil {
		t.Errorf("the rank that has left is to blame: %v", err)
	}
	if err, _ := v.LostMember(nil); v.Culprit(nil) == nil || v.Culprit(nil).Rank != 2 || err == nil || err.Rank != 2 {
		t.Errorf("rank 2 is not to blame: %v, %v", v.Culprit(nil), err)
	}
}
