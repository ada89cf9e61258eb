package onesided

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// locked runs do under an exclusive lock, all in as few frames as possible.
func (f *ranks) locked(e *rank, a *Access, calls ...*Call) error {
	f.T.Helper()
	f.Until(10_000*millisecond, func() bool { return e.Lock(a, true) })
	for _, c := range calls {
		f.issue(e, c)
	}
	f.Until(10_000*millisecond, func() bool { return e.Unlock(a) })
	err := f.flush(e, a)
	a.Unlocked()
	return err
}

// Lock, put and unlock share one bundle and cost one round trip.
func TestLockPutUnlockIsOneRoundTrip(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a := f.access(0, 1)
	f.Pass(millisecond)
	before := f.Frames
	e := f.e[0]
	put := Call{Access: a, Code: wire.CodePut, Origin: word(42)}
	if !e.Lock(a, true) {
		t.Fatal("no room")
	}
	if done, err := e.Issue(&put); !done || err != nil {
		t.Fatal(done, err)
	}
	if !e.Unlock(a) {
		t.Fatal("the unlock does not fit the lock's bundle")
	}
	e.Flush(a)
	for range 2 { // steps of both ranks
		f.Step()
	}
	if !(*FlushWait)(a).Met() {
		t.Fatal("not done after one round trip")
	}
	a.Unlocked()
	if f.Frames-before != 2 {
		t.Errorf("%d frames, want a request and an answer", f.Frames-before)
	}
	if le.Uint64(f.mem[1]) != 42 {
		t.Error("nothing was put")
	}
	f.atRest()
}

// Read, add one, write back: under exclusive locks of several ranks, one of them
// the owner, no update is lost.
func TestExclusiveLocksExclude(t *testing.T) {
	const ranks, rounds = 5, 20
	f := newRanks(t, ranks, 64, nil)
	type worker struct {
		e      *rank
		a      *Access
		stage  int
		rounds int
		value  []byte
		call   Call
	}
	var workers []*worker
	for r := range ranks {
		w := &worker{e: f.e[r], value: make([]byte, 8)}
		if r == 0 {
			w.a = f.e[0].OpenLocal(f.e[0].Windows().Lookup(testWindow))
		} else {
			w.a = f.access(r, 0)
		}
		workers = append(workers, w)
	}
	holders := 0
	f.Until(60_000*millisecond, func() bool {
		done := true
		for _, w := range workers {
			if w.rounds == rounds {
				continue
			}
			done = false
			switch w.stage {
			case 0:
				if w.e.Lock(w.a, true) {
					w.call = Call{Access: w.a, Code: wire.CodeGet, Result: w.value}
					w.stage++
				}
			case 1:
				if ok, _ := w.e.Issue(&w.call); ok {
					w.stage++
				}
			case 2:
				if (*LockWait)(w.a).Met() && (*LocalWait)(w.a).Met() {
					if holders++; holders > 1 {
						t.Fatal("two ranks hold the exclusive lock")
					}
					w.call = Call{Access: w.a, Code: wire.CodePut, Origin: word(le.Uint64(w.value) + 1)}
					w.stage++
				}
			case 3:
				if ok, _ := w.e.Issue(&w.call); ok {
					w.stage++
				}
			case 4:
				if w.e.Unlock(w.a) {
					holders--
					w.e.Flush(w.a)
					w.stage++
				}
			case 5:
				if (*FlushWait)(w.a).Met() {
					w.a.Unlocked()
					w.rounds++
					w.stage = 0
				}
			}
		}
		if !done {
			for _, e := range f.e {
				e.WakeBy(f.Now + 1)
			}
		}
		return done
	})
	if got := le.Uint64(f.mem[0]); got != ranks*rounds {
		t.Errorf("%d updates, want %d", got, ranks*rounds)
	}
	f.atRest()
}

// More ranks queue for a lock than the lot has places. They must not keep out
// the unlock that all of them wait for.
func TestLockQueueLongerThanTheLot(t *testing.T) {
	const ranks = 12
	f := newRanks(t, ranks, 64, func(c *setup) { c.Parked = 6 })
	holder := f.access(1, 0)
	f.e[1].Lock(holder, true)
	f.Until(1000*millisecond, (*LockWait)(holder).Met)
	waiters := make([]*Access, ranks)
	for r := 2; r < ranks; r++ {
		waiters[r] = f.access(r, 0)
		f.e[r].Lock(waiters[r], true)
		c := Call{Access: waiters[r], Code: wire.CodeAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64, Origin: word(1)}
		if ok, _ := f.e[r].Issue(&c); !ok {
			t.Fatal("no room")
		}
		f.e[r].Unlock(waiters[r])
	}
	f.Settle()
	if n := f.e[0].Usage().LockWaits; n != ranks-2 {
		t.Fatalf("%d wait for the lock, want %d", n, ranks-2)
	}
	if !f.e[1].Unlock(holder) {
		t.Fatal("no unlock")
	}
	f.Until(1000*millisecond, (*FlushWait)(holder).Met)
	for r := 2; r < ranks; r++ {
		f.Until(1000*millisecond, (*FlushWait)(waiters[r]).Met)
	}
	if got := le.Uint64(f.mem[0]); got != ranks-2 {
		t.Errorf("%d updates under the lock, want %d", got, ranks-2)
	}
	f.atRest()
}

// A lot full of bundles that came before their turn admits the one they wait for.
func TestFullLotAdmitsWhoseTurnItIs(t *testing.T) {
	f := newRanks(t, 2, 64, func(c *setup) { c.Parked = 6 })
	a := f.access(0, 1)
	lost := false
	f.Filter = func(from, _ int, b []byte) int {
		if from == 0 && kindOfFrame(b) == wire.KindData && !lost {
			lost = true
			return 0
		}
		return 1
	}
	for i := range uint64(12) {
		c := Call{Access: a, Code: wire.CodeAccumulate, Op: datatype.Replace, Basic: datatype.BasicUint64, Origin: word(i)}
		if ok, _ := f.e[0].Issue(&c); !ok {
			t.Fatal("no room")
		}
		a.session.CloseBundle(link.Request)
	}
	if err := f.flush(f.e[0], a); err != nil {
		t.Fatal(err)
	}
	if f.e[1].Stats.Parked == 0 || f.e[1].Stats.ParkingFull == 0 {
		t.Errorf("the lot was never full: %+v", f.e[1].Stats)
	}
	if got := le.Uint64(f.mem[1]); got != 11 {
		t.Errorf("the window holds %d, want the last value 11", got)
	}
	f.atRest()
}

func TestLockRefusals(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	s := f.access(0, 1).session
	a := f.e[0].OpenAccess(s, 99)
	e := f.e[0]
	if !e.Lock(a, true) {
		t.Fatal("no room")
	}
	for _, c := range []Call{{Access: a, Code: wire.CodePut, Origin: word(1)}, {Access: a, Code: wire.CodeGet, Result: make([]byte, 8)}} {
		if done, err := e.Issue(&c); !done || err != nil { // they travel with the request
			t.Errorf("%v: %v, %v", c.Code, done, err)
		}
	}
	f.Until(1000*millisecond, func() bool { return e.Unlock(a) })
	if err := f.flush(e, a); !errors.Is(err, mpierr.Win) {
		t.Errorf("lock of an unknown window: %v", err)
	}
	a.Unlocked()
	f.atRest()
}

// The window goes away while a peer and the owner itself wait for its lock.
func TestForgottenWindowRefusesThoseWhoWait(t *testing.T) {
	f := newRanks(t, 3, 64, nil)
	holder, waiter := f.access(1, 0), f.access(2, 0)
	own := f.e[0].OpenLocal(f.e[0].Windows().Lookup(testWindow))
	f.e[1].Lock(holder, true)
	f.Settle()
	f.e[2].Lock(waiter, false)
	f.e[0].Lock(own, true)
	f.Settle()
	if f.e[0].Unlock(own) {
		t.Error("a lock was given back before it was held")
	}
	f.e[0].Windows().Remove(testWindow)
	f.e[0].ForgetWindow(testWindow)
	f.Until(1000*millisecond, (*LockWait)(waiter).Met)
	if err := waiter.TakeError(); !errors.Is(err, mpierr.Win) {
		t.Errorf("peer: %v", err)
	}
	if !(*LockWait)(own).Met() {
		t.Error("the owner waits on")
	}
	if err := own.TakeError(); !errors.Is(err, mpierr.Win) {
		t.Errorf("owner: %v", err)
	}
	f.e[1].Unlock(holder)
	if err := f.flush(f.e[1], holder); !errors.Is(err, mpierr.Win) {
		t.Errorf("unlock of a window that is gone: %v", err)
	}
	f.atRest()
}

// The lock of a rank that dies goes to those who wait, though no frame arrives
// after the death was noticed.
func TestDeadHolderLetsGo(t *testing.T) {
	for _, waiterIsOwner := range []bool{false, true} {
		t.Run(fmt.Sprint(waiterIsOwner), func(t *testing.T) {
			f := newRanks(t, 3, 64, nil)
			holder := f.access(1, 0)
			f.e[1].Lock(holder, true)
			f.Until(1000*millisecond, (*LockWait)(holder).Met)
			waiter := f.access(2, 0)
			e := f.e[2]
			if waiterIsOwner {
				waiter, e = f.e[0].OpenLocal(f.e[0].Windows().Lookup(testWindow)), f.e[0]
			}
			e.Lock(waiter, true)
			f.Settle()
			f.Cut[1] = true
			f.Until(7500*millisecond, (*LockWait)(waiter).Met)
			e.Unlock(waiter)
			f.flush(e, waiter)
			f.atRest()
		})
	}
}

// TestCloseUnposted forgets an access whose target never posted: what was kept back goes too.
func TestCloseUnposted(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a := f.access(0, 1)
	e := f.e[0]
	e.Start(a)
	f.issue(e, &Call{Access: a, Code: wire.CodePut, Origin: make([]byte, 8)})
	f.issue(e, &Call{Access: a, Code: wire.CodeComplete})
	f.Settle()
	e.CloseAccess(a)
	f.atRest()
	// Behind a lock that is given back as soon as it is held.
	own := f.e[1].OpenLocal(f.e[1].cfg.Windows.Lookup(testWindow))
	f.e[1].Lock(own, true)
	a = f.access(0, 1)
	e.Lock(a, true)
	f.Settle()
	e.Leave(a)
	e.Start(a)
	f.issue(e, &Call{Access: a, Code: wire.CodePut, Origin: []byte("put late")})
	e.CloseAccess(a)
	f.Settle()
	f.e[1].Unlock(own)
	f.Settle()
	if f.e[1].Lock(own, true); !own.Held() {
		t.Error("the lock is not free")
	}
	f.e[1].Unlock(own)
	if string(f.mem[1][:8]) != string(make([]byte, 8)) {
		t.Error("what was lost has been put")
	}
	f.atRest()
}

// TestLeaveAgain tries again and again to have a lock that another rank holds.
func TestLeaveAgain(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a := f.access(0, 1)
	e := f.e[0]
	own := f.e[1].OpenLocal(f.e[1].cfg.Windows.Lookup(testWindow))
	f.e[1].Lock(own, true)
	for range 1000 {
		e.Lock(a, true)
		f.Settle()
		e.Leave(a)
		if n := a.queue.Len(); n > 1 {
			t.Fatalf("%d calls are kept back", n)
		}
	}
	f.e[1].Unlock(own)
	f.Settle()
	f.atRest()
}

// TestLeaveHeld gives up a lock that has been granted meanwhile: it is free at once.
func TestLeaveHeld(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a := f.access(0, 1)
	f.e[0].Lock(a, true)
	f.Settle()
	if !a.Held() {
		t.Fatal("not granted")
	}
	f.e[0].Leave(a)
	f.Settle()
	own := f.e[1].OpenLocal(f.e[1].cfg.Windows.Lookup(testWindow))
	f.e[1].Lock(own, true)
	if !own.Held() {
		t.Error("the lock is not free")
	}
	f.e[1].Unlock(own)
	f.atRest()
}

// TestCallsBehindThoseKeptBack issues a call while earlier ones, which were kept back for
// a lock, are on their way out: it stays behind them.
func TestCallsBehindThoseKeptBack(t *testing.T) {
	f := newRanks(t, 2, 1024, nil)
	a, e := f.access(0, 1), f.e[0]
	own := f.e[1].OpenLocal(f.e[1].cfg.Windows.Lookup(testWindow))
	f.e[1].Lock(own, true)
	replace := func(v byte) *Call {
		return &Call{Access: a, Code: wire.CodeAccumulate, Basic: datatype.BasicByte, Op: datatype.Replace, Origin: bytes.Repeat([]byte{v}, 1024)}
	}
	e.Lock(a, true)
	for v := range byte(200) { // more than there are slots
		f.issue(e, replace(v))
	}
	f.Settle()
	f.e[1].Unlock(own)
	for !a.Held() || a.queue.Empty() {
		if !f.Step() {
			t.Fatal("all that was kept back has gone out at once")
		}
	}
	last := replace(255)
	for done := false; !done; f.Step() { // when slots have come back that nobody has taken yet
		done, _ = e.Issue(last)
	}
	f.Until(1000*millisecond, func() bool { return e.Unlock(a) })
	if err := f.flush(e, a); err != nil || f.mem[1][0] != 255 || f.mem[1][1023] != 255 {
		t.Errorf("the last call is not the last: %d, %v", f.mem[1][0], err)
	}
	a.Unlocked()
	f.atRest()
}
