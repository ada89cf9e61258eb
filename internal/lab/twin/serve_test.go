package twin

import (
	"bytes"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/window"
)

// A request is executed, and its repeat is answered alike without being executed.
func TestRequestIsExecutedOnce(t *testing.T) {
	tt := newTarget()
	list := []record{put(8, "hello, window"), get(8, 13), fetch(datatype.Sum, 5), fetch(datatype.Sum, 1)}
	want := append([]byte("hello, window\x00\x00\x00"), 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0)
	for _, why := range []Reason{None, Repeated, Repeated} {
		if got := tt.expect(t, request(1, list...), Answer, why); !bytes.Equal(got, want) {
			t.Errorf("answer %q, want %q", got, want)
		}
	}
	if n := le.Uint64(tt.mem); n != 6 {
		t.Errorf("the sum is %d", n)
	}
}

// Each state of a slot has its rule for each number of a request.
func TestClaims(t *testing.T) {
	const done, program, user = express.StateDone, express.StateProgram, express.StateUser
	for _, c := range []struct {
		last, state uint64
		request     uint64
		v           Verdict
		why         Reason
	}{
		{0, done, 1, Answer, None},
		{0, done, 2, Drop, Stale},
		{7, done, 8, Answer, None},
		{7, done, 7, Answer, Repeated},
		{7, done, 6, Drop, Stale},
		{7, done, 9, Drop, Stale},
		{7, done, express.MaxExchange, Drop, Stale},
		{7, program, 7, Drop, Busy},
		{7, user, 7, Drop, Busy},
		{7, program, 8, Drop, Stale},
		{7, program, 6, Drop, Stale},
		{7, express.StateInterrupted, 7, Answer, None},
		{7, express.StateInterrupted, 8, Drop, Stale},
		{express.MaxExchange - 1, done, express.MaxExchange, Answer, None},
		{0, done, express.MaxExchange + 1, Drop, BadForm},
		{0, done, 0, Drop, BadForm},
	} {
		tt := newTarget()
		tt.state(c.last, c.state)
		tt.done(1, 0)
		t.Run(fmt.Sprint(c.last, "/", c.state, " gets ", c.request), func(t *testing.T) {
			tt.expect(t, request(c.request, put(8, "x"), fetch(datatype.Sum, 1)), c.v, c.why)
			if executed := le.Uint64(tt.mem) == 1; executed != (c.v == Answer && c.why == None) {
				t.Errorf("executed: %v", executed)
			}
		})
	}
}

// An exchange that was interrupted goes on with the record at which it was.
func TestInterrupted(t *testing.T) {
	tt := newTarget()
	tt.state(1, express.StateInterrupted)
	tt.done(2, 0)
	tt.Place(0).Results[0], tt.Place(0).Results[1] = 70, 71
	body := tt.expect(t, request(1, fetch(datatype.Sum, 1), fetch(datatype.Sum, 1), fetch(datatype.Sum, 1)), Answer, None)
	if le.Uint64(tt.mem) != 1 || le.Uint64(body) != 70 || le.Uint64(body[8:]) != 71 || le.Uint64(body[16:]) != 0 {
		t.Errorf("the sum is %d, the answer %x", le.Uint64(tt.mem), body)
	}
}

// A request with the number of an interrupted exchange and other records does not go on with
// that: no lock stays behind, and none that another session holds is given up.
func TestAnotherRequestDoesNotGoOn(t *testing.T) {
	mine := request(1, lock(0), put(0, "x"), unlock())
	for _, c := range []struct {
		name   string
		done   uint8
		locked uint64
		frame  []byte
		goesOn bool
	}{
		{"the same", 1, id + 1, mine, true},
		{"without the lock", 1, id + 1, request(1, put(0, "x"), put(0, "x")), false},
		{"shorter", 2, id + 1, request(1, lock(0), unlock()), false},
		{"with the lock of another session", 1, 0, mine, false},
		{"without lock, shorter", 1, 0, request(1, put(0, "x")), false},
	} {
		tt := newTarget()
		tt.state(1, express.StateInterrupted)
		tt.done(c.done, c.locked)
		tt.words[0] = 1 << process
		v, why := Drop, BadForm
		if c.goesOn {
			v, why = Answer, None
		}
		t.Run(c.name, func(t *testing.T) { tt.expect(t, bytes.Clone(c.frame), v, why) })
		held := tt.held() != 0
		if c.locked != 0 && held == c.goesOn || c.locked == 0 && !held {
			t.Errorf("%s: the lock is held: %v", c.name, held)
		}
		if state := tt.Place(0).Word; !c.goesOn && state != express.WordOf(1, express.StateInterrupted) {
			t.Errorf("%s: the exchange is in state %#x", c.name, state)
		}
	}
}

// An exchange that was interrupted, and a window of which went away then, goes on all the
// same: no record is executed twice, the lock is given up once, and what is refused is told
// though it was interrupted again.
func TestWindowGoesWhileInterrupted(t *testing.T) {
	const gone = id + 1
	other := func(r record) record { return of(r, gone) }
	add := fetch(datatype.Sum, 3)
	for _, c := range []struct {
		name  string
		list  []record
		after int // records
		fate  uint8
		sum   uint64
		body  []uint64
	}{
		{"under the lock of another window", []record{lock(wire.FlagExclusive), add, other(add), add, unlock()}, 1, 1 << 2, 6, []uint64{0, 0, 3}},
		{"with its lock", []record{other(lock(wire.FlagExclusive)), add, other(put(0, "x")), other(unlock())}, 1, 1<<2 | 1<<3, 3, []uint64{0}},
		{"without a lock", []record{add, add, other(add), add}, 1, 1 << 2, 9, []uint64{0, 3, 0, 6}},
		{"after its own record", []record{other(add), add, add}, 1, 0, 6, []uint64{0, 0, 3}},
		{"for the last record", []record{add, add, add, add, add, add, add, other(add)}, 6, 1 << 7, 21, []uint64{0, 3, 6, 9, 12, 15, 18, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tt := newTarget()
			words := make([]byte, windows.LockWordLen)
			tt.Expose(express.Window{ID: gone}, make([]byte, 64), windows.LockWordIn(words), nil)
			asked, stop := 0, c.after+1
			if c.list[0].Code == wire.CodeLock {
				stop-- // the lock is not asked about
			}
			tt.SetInterrupt(func() bool { asked++; return asked == stop || asked == stop+2 })
			frame := request(1, c.list...)
			tt.expect(t, frame, ToUser, Interrupted)
			tt.Retract(gone)
			held := le.Uint64(words) // in memory that is gone
			if tt.Claim(0, 1) {
				t.Fatal("claimed for a bundle")
			}
			if _, v, why := tt.Serve(0, bytes.Clone(frame)); v != Answer && why != Interrupted {
				t.Fatalf("verdict %d, %v", v, why)
			}
			tt.SetInterrupt(nil)
			why := Repeated
			if tt.Place(0).Word != express.WordOf(1, express.StateDone) {
				why = None
			}
			for _, why := range []Reason{why, Repeated} {
				b := bytes.Clone(frame)
				body := tt.expect(t, b, Answer, why)
				if b[7] != c.fate {
					t.Errorf("fate %#b, want %#b", b[7], c.fate)
				}
				for i, want := range c.body {
					if got := le.Uint64(body[8*i:]); len(body) != 8*len(c.body) || got != want {
						t.Errorf("result %d of %d is %d, want %d", i, len(body)/8, got, want)
					}
				}
			}
			if got := le.Uint64(tt.mem); got != c.sum {
				t.Errorf("the sum is %d, want %d", got, c.sum)
			}
			if tt.held() != 0 || le.Uint64(words) != held || tt.Place(0).Locked != 0 {
				t.Errorf("the locks are %#x and %#x, of window %d", tt.held(), words[0], tt.Place(0).Locked)
			}
			tt.expect(t, request(2, add), Answer, None)
		})
	}
}

// A request that was interrupted before its first record may become a bundle.
func TestNothingBegunIsTaken(t *testing.T) {
	tt := newTarget()
	tt.SetInterrupt(func() bool { return true })
	tt.expect(t, request(1, put(0, "x")), ToUser, Interrupted)
	if !tt.Claim(0, 1) {
		t.Error("not claimed")
	}
}

// A request that user space takes as a bundle is not executed, and its repeat is answered so.
func TestTaken(t *testing.T) {
	tt := newTarget()
	frame := request(1, lock(0), unlock(), put(0, "x")) // in no order that is executed
	if tt.expect(t, frame, ToUser, Operation); !tt.Claim(0, 1) {
		t.Fatal("not claimed")
	}
	tt.expect(t, frame, Drop, Busy)
	tt.PublishTaken(0, 1)
	tt.expect(t, frame, Answer, Repeated)
	if frame[7] != express.FateTaken {
		t.Errorf("fate %d", frame[7])
	}
	tt.expect(t, request(2, put(0, "x")), Answer, None)
}

// A request with a lock is executed only while the lock is free.
func TestLocks(t *testing.T) {
	const exclusive = wire.FlagExclusive
	for _, c := range []struct {
		name   string
		before func(w *windows.LockWord)
		flags  uint8
		v      Verdict
		why    Reason
	}{
		{"free", func(*windows.LockWord) {}, 0, Answer, None},
		{"free, exclusive", func(*windows.LockWord) {}, exclusive, Answer, None},
		{"beside a shared one", func(w *windows.LockWord) { w.Take(3, window.LockShared) }, 0, Answer, None},
		{"exclusive beside a shared one", func(w *windows.LockWord) { w.Take(3, window.LockShared) }, exclusive, ToUser, Locked},
		{"beside an exclusive one", func(w *windows.LockWord) { w.Take(3, window.LockExclusive) }, 0, ToUser, Locked},
		{"held by the program on another processor", func(w *windows.LockWord) { w.Take(process, window.LockShared) }, 0, ToUser, Locked},
		{"retired", (*windows.LockWord).Retire, 0, ToUser, Locked},
	} {
		tt := newTarget()
		w := windows.LockWordIn(tt.words)
		c.before(w)
		held := tt.held()
		frame := request(1, lock(c.flags), put(0, "x"), unlock())
		t.Run(c.name, func(t *testing.T) { tt.expect(t, frame, c.v, c.why) })
		if after := tt.held(); after != held || tt.Place(0).Locked != 0 {
			t.Errorf("%s: the lock was %#x and is %#x", c.name, held, after)
		}
		if c.why == Locked { // nothing is left of it, and it may come again
			w.Give(3)
			w.Give(process)
			if !w.Retired() {
				tt.expect(t, frame, Answer, None)
			}
		}
	}
	tt := newTarget()
	tt.Retract(id)
	tt.Expose(express.Window{ID: id}, tt.mem[:size], nil, nil)
	tt.expect(t, request(1, lock(0), put(0, "x"), unlock()), ToUser, Locked)
}

// Where requests wait at the lock's owner, user space hears of it, until it has answered.
func TestAwaitedLock(t *testing.T) {
	const closed = 1 << 63
	tt := newTarget()
	// The owner closes the word while the program holds it.
	tt.state(1, express.StateInterrupted)
	tt.done(1, id+1)
	le.PutUint64(tt.words, closed|1<<process)
	frame := request(1, lock(0), put(0, "x"), unlock())
	tt.expect(t, frame, ToUser, Awaited)
	if tt.mem[0] != 'x' || tt.held() != closed || tt.Place(0).Locked != 0 {
		t.Errorf("%q, lock %#x", tt.mem[0], tt.held())
	}
	tt.told(t, frame)
}

// told has the frame of an exchange, which user space is to look at, come twice before user space gets it, and
// once more afterwards.
func (tt target) told(t *testing.T, frame []byte) {
	t.Helper()
	tt.expect(t, frame, ToUser, Awaited)
	tt.expect(t, frame, ToUser, Awaited)
	h, _, _ := express.Read(frame)
	if tt.Answer(0, make([]byte, express.MaxPayload), &h, true) == 0 {
		t.Error("user space has no answer")
	}
	tt.expect(t, frame, Answer, Repeated)
}

// TestAwaitedNotification has a request of several notifications interrupted behind the one that
// somebody waits for.
func TestAwaitedNotification(t *testing.T) {
	tt := newTarget()
	wait := windows.CounterWait{Counters: tt.counters, AtLeast: 1}
	wait.Name([]int{1})
	wait.Arm()
	stop := 2
	tt.SetInterrupt(func() bool { stop--; return stop == 0 })
	frame := request(1, notify(1), put(0, "x"))
	tt.expect(t, frame, ToUser, Interrupted)
	if wait.Done() < 0 || tt.mem[0] != 0 {
		t.Fatalf("counted to %d, and the window has %q", tt.counters.Read(1), tt.mem[0])
	}
	tt.told(t, frame)
	tt.expect(t, request(2, put(0, "y")), Answer, None)
	tt.expect(t, request(3, notify(1)), ToUser, Awaited)
}

// The same requests, served by several goroutines, are executed once.
func TestDuplicatesAtOnce(t *testing.T) {
	tt := newTarget()
	const exchanges = 300
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			for n := uint64(1); n <= exchanges; n++ {
				for {
					frame := request(n, lock(wire.FlagExclusive), fetch(datatype.Sum, 3), unlock())
					end, v, why := tt.Serve(0, frame)
					if v == Answer {
						if _, body, _ := express.Decode(frame[:end], nil); le.Uint64(body) != 3*(n-1) {
							t.Errorf("exchange %d fetched %d", n, le.Uint64(body))
						}
						break
					}
					if why == Stale {
						break // the others are ahead
					}
					if why != Busy {
						t.Errorf("exchange %d: %v", n, why)
						return
					}
					runtime.Gosched()
				}
			}
		})
	}
	group.Wait()
	if n := le.Uint64(tt.mem); n != 3*exchanges {
		t.Errorf("%d after %d exchanges that add 3", n, exchanges)
	}
}
