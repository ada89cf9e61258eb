package onesided

import (
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/window"
)

// TestWaitersNoticeAWordThatWasGivenUp has a rank give up a lock by the word that it shares
// with the owner, and stop before it says so: those who wait at the owner, which may be one
// of them, get the lock soon.
func TestWaitersNoticeAWordThatWasGivenUp(t *testing.T) {
	for waiter := range 3 {
		if waiter == 1 {
			continue // the sharer
		}
		f := newRanks(t, 3, 64, nil)
		host := &windows.Host{Lock: windows.LockWordIn(make([]byte, windows.LockWordLen)), Ranks: []int{0, 1}}
		w, err := windows.New(windows.Config{ID: 9, Flavor: window.FlavorCreate, Memory: windows.Slice(f.mem[0]), Size: 64, DispUnit: 1, GroupSize: 3, Host: host})
		if err == nil {
			err = f.e[0].Windows().Add(w)
		}
		if err != nil {
			t.Fatal(err)
		}
		f.access(1, 0) // the owner knows the sharer
		held := f.e[1].OpenAccess(f.dial(1, 0), 9)
		held.Share(host.Lock, 1)
		if f.e[1].Lock(held, true); !held.Held() {
			t.Fatal("the word was not taken")
		}
		waits := f.e[0].OpenLocal(w)
		if waiter != 0 {
			f.access(waiter, 0)
			waits = f.e[waiter].OpenAccess(f.dial(waiter, 0), 9)
		}
		f.e[waiter].Lock(waits, true)
		f.Pass(20 * millisecond)
		if waits.Held() {
			t.Fatal("two ranks hold the lock")
		}
		if _, tell := host.Lock.Give(1); !tell {
			t.Fatal("nobody waits")
		}
		f.Cut[1] = true
		f.Until(10*millisecond, (*LockWait)(waits).Met)
		f.e[waiter].Unlock(waits)
		f.Settle()
		if !host.Lock.Take(1, window.LockShared) {
			t.Error("the word stays closed")
		}
	}
}

// TestClosedAccessHasGivenTheWordUp closes an access whose lock is held by the word, with a
// rank that waits for it at the owner, and without: the word is given up at once, since its
// memory may be unmapped next, and who waits gets the lock.
func TestClosedAccessHasGivenTheWordUp(t *testing.T) {
	for _, waited := range []bool{false, true} {
		f := newRanks(t, 3, 64, nil)
		host := &windows.Host{Lock: windows.LockWordIn(make([]byte, windows.LockWordLen)), Ranks: []int{0, 1}}
		w, err := windows.New(windows.Config{ID: 9, Flavor: window.FlavorCreate, Memory: windows.Slice(f.mem[0]), Size: 64, DispUnit: 1, GroupSize: 3, Host: host})
		if err == nil {
			err = f.e[0].Windows().Add(w)
		}
		if err != nil {
			t.Fatal(err)
		}
		f.access(1, 0)
		f.access(2, 0)
		held := f.e[1].OpenAccess(f.dial(1, 0), 9)
		held.Share(host.Lock, 1)
		if f.e[1].Lock(held, true); !held.Held() {
			t.Fatal("the word was not taken")
		}
		waits := f.e[2].OpenAccess(f.dial(2, 0), 9)
		if waited {
			f.e[2].Lock(waits, true)
			f.Pass(20 * millisecond)
		}
		f.e[1].CloseAccess(held)
		if held.shared.word != nil || held.shared.byWord {
			t.Error("the word is still looked at")
		}
		if _, tell := host.Lock.Give(1); tell {
			t.Error("the word was not given up")
		}
		if !waited {
			if !host.Lock.Take(0, window.LockExclusive) {
				t.Error("the word stays closed")
			}
			continue
		}
		f.Until(10_000*millisecond, (*LockWait)(waits).Met)
		if f.Settle(); !waits.Held() {
			t.Error("who waited was not given the lock")
		}
	}
}
