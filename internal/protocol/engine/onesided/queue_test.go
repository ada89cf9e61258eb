package onesided

import (
	"errors"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// TestQueueOfALockOutlivesItsHolders has three ranks ask for a lock, to write a block under
// it that the path does not carry. A rank that waits hears from the target, and has sent
// nothing yet that cannot pass. So each is given up after a limit of its own, and the next gets the
// lock: a call behind n holders lasts n limits longer.
func TestQueueOfALockOutlivesItsHolders(t *testing.T) {
	f := newRanks(t, 4, 8192, nil)
	var queue []*Access
	for from := 1; from < 4; from++ {
		queue = append(queue, f.access(from, 0))
	}
	f.Settle()
	f.Carries(300)
	for i, a := range queue {
		f.e[i+1].Lock(a, true)
		f.issue(f.e[i+1], &Call{Access: a, Code: wire.CodePut, Origin: noise(8000)})
		f.e[i+1].Flush(a)
		f.Settle()
	}
	for i, a := range queue {
		if !a.Held() {
			t.Fatalf("rank %d has not got the lock", i+1)
		}
		began := f.Now
		f.Until(3*testLimit, (*FlushWait)(a).Met)
		if err := a.TakeError(); !errors.Is(err, mpierr.ProcFailed) || f.Now-began < testLimit {
			t.Errorf("rank %d, %d ms after it got the lock: %v", i+1, (f.Now-began)/millisecond, err)
		}
		for j, b := range queue[i+1:] {
			if (*FlushWait)(b).Met() || b.Failed() {
				t.Fatalf("rank %d no longer waits behind rank %d: %v", i+j+2, i+1, b.TakeError())
			}
		}
		f.Settle()
	}
}
