package onesided

import (
	"errors"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// TestLockGivenUpBeforeThePeerIsThere gives up a lock while the session is being opened,
// with and without a known way to the peer: it is released as soon as it is held, so that
// the next lock of the same rank is granted, and that of another rank.
func TestLockGivenUpBeforeThePeerIsThere(t *testing.T) {
	for _, known := range []bool{false, true} {
		f := newRanks(t, 3, 64, nil)
		e := f.e[0]
		var s *Peer
		f.Cut[1] = true
		if known {
			s = f.dial(0, 1)
		} else {
			s = e.Connect(1)
		}
		a := e.OpenAccess(s, testWindow)
		if !e.Lock(a, true) {
			t.Fatal("no room")
		}
		f.Pass(millisecond)
		e.Leave(a)
		f.Pass(millisecond)
		f.Cut[1] = false
		f.dial(0, 1)
		for range 2 {
			f.Until(1000*millisecond, func() bool { return e.Lock(a, true) })
			f.Until(1000*millisecond, (*LockWait)(a).Met)
			if err := a.TakeError(); err != nil || !a.Held() {
				t.Fatalf("way known %v: the next lock: held %v, %v", known, a.Held(), err)
			}
			f.Until(1000*millisecond, func() bool { return e.Unlock(a) })
			if err := f.flush(e, a); err != nil {
				t.Fatal(err)
			}
			a.Unlocked()
		}
		b := f.access(2, 1)
		if err := f.locked(f.e[2], b, &Call{Access: b, Code: wire.CodePut, Origin: word(7)}); err != nil {
			t.Errorf("way known %v: another rank's lock: %v", known, err)
		}
		f.atRest()
	}
}

// TestCallsUnderARefusedLockFail issues calls in epochs whose lock was refused, by another
// rank whose window is exposed, and by this one's own, which has been forgotten: none takes
// effect, and the next epoch is as any.
func TestCallsUnderARefusedLockFail(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	e := f.e[1]
	own := e.OpenLocal(e.Windows().Lookup(testWindow))
	other := f.access(0, 1)
	for _, a := range []*Access{other, own} {
		origin, why := f.e[0], mpierr.RMASync
		if a == own {
			origin, why = e, mpierr.Win
			f.Until(1000*millisecond, func() bool { return f.e[0].Lock(other, true) })
			f.Until(1000*millisecond, (*LockWait)(other).Met)
		} else {
			e.Expose(testWindow, true)
		}
		if !origin.Lock(a, true) {
			t.Fatal("no room")
		}
		origin.Flush(a)
		if a == own {
			e.ForgetWindow(testWindow)
		}
		f.Until(1000*millisecond, (*LockWait)(a).Met)
		if err := a.TakeError(); !errors.Is(err, why) || a.Held() {
			t.Fatalf("the lock: held %v, %v", a.Held(), err)
		}
		result := make([]byte, 8)
		for _, c := range []Call{
			{Access: a, Code: wire.CodePut, Origin: word(1)},
			{Access: a, Code: wire.CodeGet, Result: result},
		} {
			if done, err := origin.Issue(&c); !done || !errors.Is(err, why) {
				t.Errorf("%v under the lock that was refused: %v, %v", c.Code, done, err)
			}
		}
		if origin.Direct(a) {
			t.Error("calls may act at once without the lock")
		}
		if !origin.Unlock(a) {
			t.Error("the epoch does not end")
		}
		if err := f.flush(origin, a); err != nil {
			t.Error(err)
		}
		a.Unlocked()
		if le.Uint64(f.mem[1]) != 0 {
			t.Error("a put took effect without its lock")
		}
		e.Expose(testWindow, false)
		if err := f.locked(origin, a, &Call{Access: a, Code: wire.CodePut, Origin: word(7)}); err != nil || le.Uint64(f.mem[1]) != 7 {
			t.Errorf("the next epoch: %v", err)
		}
		clear(f.mem[1])
	}
}

// TestRefusalOfALockGivenUpIsNotTold gives up a lock that the target then refuses: the
// next epoch hears nothing of it.
func TestRefusalOfALockGivenUpIsNotTold(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a, e := f.access(0, 1), f.e[0]
	f.e[1].Expose(testWindow, true)
	if !e.Lock(a, true) {
		t.Fatal("no room")
	}
	e.Leave(a)
	f.Pass(millisecond)
	f.e[1].Expose(testWindow, false)
	if err := f.locked(e, a, &Call{Access: a, Code: wire.CodePut, Origin: word(7)}); err != nil || le.Uint64(f.mem[1]) != 7 {
		t.Errorf("the next epoch: %v", err)
	}
	f.atRest()
}
