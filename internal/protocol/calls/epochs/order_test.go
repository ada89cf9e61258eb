package epochs_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/calls/epochs"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/window"
)

// held is a stage of three ranks whose rank 2 holds the lock of rank 0, which rank 1 has
// asked for.
func held(t *testing.T) *stage {
	s := newStage(t, 3, nil)
	s.must(2, s.w[2].Lock(window.LockExclusive, 0, 0))
	s.must(2, s.w[2].Flush("flush", 0, epochs.AtTarget))
	s.must(1, s.w[1].Lock(window.LockShared, 0, 0))
	s.issue(1, 0, onesided.Call{Code: wire.CodePut, Origin: []byte{1}})
	return s
}

// TestLocksAreGrantedInTheOrderAsked asks for a lock that is not granted, and then for others
// that are free: none of them is held before the first.
func TestLocksAreGrantedInTheOrderAsked(t *testing.T) {
	for second, kind := range map[int]window.LockType{1: window.LockExclusive, 2: window.LockShared} { // 1: its own
		t.Run(fmt.Sprint("of rank ", second), func(t *testing.T) {
			s := held(t)
			c := s.w[1].Lock(kind, second, 0)
			if s.step(1, &c) != epochs.Waits {
				t.Fatal("the second lock is not waited for")
			}
			for _, target := range []int{1, 2} { // both are free for others
				s.must(0, s.w[0].Lock(window.LockExclusive, target, 0))
				s.must(0, s.w[0].Flush("flush", target, epochs.AtTarget))
				s.must(0, s.w[0].Unlock(target))
			}
			if c.Until().Met() {
				t.Error("the wait is over, and the first lock is not granted")
			}
			s.must(2, s.w[2].Unlock(0))
			s.must(1, c)
			s.must(1, s.w[1].Unlock(0))
			s.must(1, s.w[1].Unlock(second))
		})
	}
}

// TestLockAllComesAfterOtherLocks has two ranks lock in one order: the first window at rank 0,
// and then the other window at rank 1, which rank 1 itself locks with lock_all. It waits
// for the first lock and must not hold the second one, which the holder of the first needs.
func TestLockAllComesAfterOtherLocks(t *testing.T) {
	s := held(t)
	other, _ := s.windows(windowID+1, nil)
	c := other[1].LockAll(0)
	if s.step(1, &c) != epochs.Waits {
		t.Fatal("the first lock is not waited for")
	}
	s.must(2, other[2].Lock(window.LockExclusive, 1, 0))
	s.must(2, other[2].Unlock(1))
	s.must(2, s.w[2].Unlock(0))
	s.must(1, c)
	s.must(1, other[1].UnlockAll())
	s.must(1, s.w[1].Unlock(0))
}

// TestOrderOfLocksGivenUp gives up a lock that comes after one which is not granted. The
// error says so, and the epoch can be begun once the first is granted.
func TestOrderOfLocksGivenUp(t *testing.T) {
	s := held(t)
	c := s.giveUp(1, s.w[1].Lock(window.LockExclusive, 1, 0))
	gaveUp(t, &c)
	if !strings.Contains(c.Err().Error(), "asked for before") {
		t.Errorf("given up: %v", c.Err())
	}
	s.must(2, s.w[2].Unlock(0))
	s.must(1, s.w[1].Lock(window.LockExclusive, 1, 0))
	s.must(1, s.w[1].Unlock(1))
	s.must(1, s.w[1].Unlock(0))
}

// TestAwaitedLocksHoldNobodyUp has two goroutines wait for a lock, and another one take the
// next: it does not come after the first, until both give their waits up.
func TestAwaitedLocksHoldNobodyUp(t *testing.T) {
	for name, wait := range map[string]func(w *epochs.Window) epochs.Call{
		"flush":     func(w *epochs.Window) epochs.Call { return w.Flush("flush", 0, epochs.AtTarget) },
		"flush all": func(w *epochs.Window) epochs.Call { return w.FlushAll("flush_all", epochs.AtOrigin) },
		"flush ranks": func(w *epochs.Window) epochs.Call {
			return w.FlushRanks("flush_ranks", []int{0, 0, 2}, epochs.AtTarget)
		},
		"unlock": func(w *epochs.Window) epochs.Call { return w.Unlock(0) },
	} {
		t.Run(name, func(t *testing.T) {
			s := held(t)
			if name == "flush ranks" {
				s.must(1, s.w[1].Lock(window.LockShared, 2, window.ModeNoCheck))
			}
			var waiting [2]epochs.Call
			for i := range waiting {
				if waiting[i] = wait(s.w[1]); s.step(1, &waiting[i]) != epochs.Waits {
					t.Fatal("the lock is not waited for")
				}
			}
			for i := range waiting { // one that gives up does not end the wait of the other
				s.must(1, s.w[1].Lock(window.LockExclusive, 1, 0))
				s.must(1, s.w[1].Unlock(1))
				waiting[i].GiveUp(s.turn(1), context.Canceled)
			}
			c := s.giveUp(1, s.w[1].Lock(window.LockExclusive, 1, 0))
			gaveUp(t, &c)
		})
	}
}

// TestFlushAllWaitsForAnyLock has a flush of all targets wait for a lock that is not the first one's:
// it holds nobody up.
func TestFlushAllWaitsForAnyLock(t *testing.T) {
	s := newStage(t, 3, nil)
	s.must(1, s.w[1].Lock(window.LockShared, 0, 0))
	s.must(1, s.w[1].Flush("flush", 0, epochs.AtTarget))
	s.must(0, s.w[0].Lock(window.LockExclusive, 2, 0))
	s.must(0, s.w[0].Flush("flush", 2, epochs.AtTarget))
	s.must(1, s.w[1].Lock(window.LockShared, 2, 0))
	s.issue(1, 2, onesided.Call{Code: wire.CodePut, Origin: []byte{1}})
	waiting := s.w[1].FlushAll("flush_all", epochs.AtTarget)
	if s.step(1, &waiting) != epochs.Waits {
		t.Fatal("the lock is not waited for")
	}
	s.must(1, s.w[1].Lock(window.LockExclusive, 1, 0))
	s.must(1, s.w[1].Unlock(1))
}

// TestPolledLocksHoldNobodyUp has one goroutine look again and again whether an operation is
// over that waits for a lock, and another one take the next. It may once the first has looked
// meanwhile: to have looked before says nothing, for that may have been the same goroutine.
func TestPolledLocksHoldNobodyUp(t *testing.T) {
	s := held(t)
	var r onesided.Request
	s.issue(1, 0, onesided.Call{Code: wire.CodeGet, Result: make([]byte, 1), Request: &r})
	r.Polled()
	c := s.w[1].Lock(window.LockExclusive, 1, 0)
	if s.step(1, &c) != epochs.Waits {
		t.Fatal("the second lock is not waited for")
	}
	if r.Polled(); !c.Until().Met() {
		t.Error("the lock comes after one that is looked for")
	}
	s.must(1, c)
	s.must(1, s.w[1].Unlock(1))
	second := s.giveUp(1, s.w[1].Lock(window.LockExclusive, 1, 0))
	gaveUp(t, &second)
}

// TestPollsOfEarlierEpochsSayNothing has a goroutine ask for a lock of lock_all while another
// one waits to lock. It has looked for an operation of an earlier epoch there: that does not
// say that it looks for one now.
func TestPollsOfEarlierEpochsSayNothing(t *testing.T) {
	s := held(t)
	other, _ := s.windows(windowID+1, func(c *epochs.Config) { c.Loads = func(int) bool { return false } })
	s.w, other = other, s.w // operations go to the other window
	var r onesided.Request
	s.must(1, s.w[1].LockAll(0))
	s.issue(1, 0, onesided.Call{Code: wire.CodeGet, Result: make([]byte, 1), Request: &r})
	r.Polled()
	s.must(1, s.w[1].UnlockAll())

	s.must(2, s.w[2].Lock(window.LockExclusive, 0, 0))
	s.must(2, s.w[2].Flush("flush", 0, epochs.AtTarget))
	c := other[1].Lock(window.LockExclusive, 1, 0)
	if s.step(1, &c) != epochs.Waits {
		t.Fatal("the first lock is not waited for")
	}
	s.must(1, s.w[1].LockAll(0))
	s.issue(1, 0, onesided.Call{Code: wire.CodePut, Origin: []byte{1}})
	s.must(2, other[2].Unlock(0))
	if c.Until().Met() {
		t.Error("the lock that lock_all has asked for does not come first")
	}
	s.must(2, s.w[2].Unlock(0))
	s.must(1, c)
}
