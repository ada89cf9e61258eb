package engine

import (
	"errors"
	"testing"
)

// TestGoneSpreads has ranks in a line, each with a session to the next. The first rank's
// knowledge of ranks that are gone comes to the last, over sessions that there are and
// over sessions that begin later. News of a rank comes before the revocation that it has
// caused.
func TestGoneSpreads(t *testing.T) {
	const ranks, gone, left = 6, 5, 4
	f := newFabric(t, ranks, 8, nil)
	f.dial(0, gone)
	f.dial(0, left)
	f.dial(0, 1)
	f.dial(1, 2)
	f.settle()
	f.e[left].Bye()
	f.settle()
	f.cut[gone], f.cut[left] = true, true
	r := f.receive(0, gone, 5, 1, 8)
	f.until(10_000*millisecond, r.Met)
	for rank := range ranks {
		knows := rank == gone || rank == left
		if f.e[0].Gone(rank) != knows {
			t.Errorf("rank 0 takes %d for gone: %v", rank, !knows)
		}
		if f.e[1].Gone(rank) {
			t.Errorf("rank 1 knows of %d, and nobody has told it", rank)
		}
	}
	f.filter = func(_, to int, _ []byte) int {
		if _, broken := f.e[2].Revoked(5); broken && !f.e[2].Gone(gone) {
			t.Error("rank 2 knows that the context is over, and not who is gone")
		}
		return 1
	}
	f.e[0].Revoke(5, gone)
	f.e[0].TellGone(left)
	f.e[0].TellGone(left) // a second time changes nothing
	f.settle()
	f.dial(2, 3)
	f.settle()
	for rank := range 4 {
		if failed, broken := f.e[rank].Revoked(5); !broken || failed != gone {
			t.Errorf("rank %d: the context is over: %v", rank, broken)
		}
		if !f.e[rank].Gone(gone) || !f.e[rank].Gone(left) || f.e[rank].Gone(rank) {
			t.Errorf("rank %d does not know who is gone", rank)
		}
	}
	f.e[1].Revoke(5, 3) // the context is over already; rank 3 lives
	f.e[2].AddGone(0)
	f.e[2].Revoke(5, 0) // as before, but rank 0 is new
	f.settle()
	if f.e[1].Gone(3) || !f.e[1].Gone(0) || !f.e[0].Gone(0) {
		t.Error("who is gone was not told with the second revocation")
	}
}

// TestEndedProcessIsNotWaitedFor tells an engine that the processes of three peers have
// ended. The first owes it a message, the second has left in good order, and it has
// never met the third.
func TestEndedProcessIsNotWaitedFor(t *testing.T) {
	const met, left, stranger = 1, 2, 3
	f := newFabric(t, 4, 8, nil)
	f.dial(0, met)
	f.dial(0, left)
	f.settle()
	f.e[left].Bye()
	f.settle()
	why := errors.New("killed")
	r := f.receive(0, met, 5, 1, 8)
	for _, rank := range []int{met, left, stranger, -1, 4} {
		f.e[0].Ended(rank, why)
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
