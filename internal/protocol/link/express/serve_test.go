package express

import (
	"bytes"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/window"
)

// A request is executed, and its repeat is answered alike without being executed.
func TestRequestIsExecutedOnce(t *testing.T) {
	tt := newTarget()
	list := []record{put(8, "hello, window"), get(8, 13), fetch(datatype.Sum, 5), fetch(datatype.Sum, 1)}
	want := append([]byte("hello, window\x00\x00\x00"), 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0)
	for _, why := range []Reason{None, Repeated, Repeated} {
		for _, by := range []By{ByProgram, ByUser} {
			if got := tt.expect(t, request(1, list...), by, Answer, why); !bytes.Equal(got, want) {
				t.Errorf("answer %q, want %q", got, want)
			}
			why = Repeated
		}
	}
	if n := le.Uint64(tt.mem); n != 6 {
		t.Errorf("the sum is %d", n)
	}
}

// Each state of a slot has its rule for each number of a request.
func TestClaims(t *testing.T) {
	const busyProgram, busyUser = uint64(ByProgram), uint64(ByUser)
	for _, c := range []struct {
		last, state uint64
		request     uint64
		v           Verdict
		why         Reason
	}{
		{0, stateDone, 1, Answer, None},
		{0, stateDone, 2, Drop, Stale},
		{7, stateDone, 8, Answer, None},
		{7, stateDone, 7, Answer, Repeated},
		{7, stateDone, 6, Drop, Stale},
		{7, stateDone, 9, Drop, Stale},
		{7, stateDone, MaxExchange, Drop, Stale},
		{7, busyProgram, 7, Drop, Busy},
		{7, busyUser, 7, Drop, Busy},
		{7, busyProgram, 8, Drop, Stale},
		{7, busyProgram, 6, Drop, Stale},
		{7, stateInterrupted, 7, Answer, None},
		{7, stateInterrupted, 8, Drop, Stale},
		{MaxExchange - 1, stateDone, MaxExchange, Answer, None},
		{0, stateDone, MaxExchange + 1, Drop, BadForm},
		{0, stateDone, 0, Drop, BadForm},
	} {
		for _, by := range []By{ByProgram, ByUser} {
			tt := newTarget()
			tt.state(c.last, c.state)
			t.Run(fmt.Sprint(c.last, "/", c.state, " gets ", c.request, " by ", by), func(t *testing.T) {
				tt.expect(t, request(c.request, fetch(datatype.Sum, 1)), by, c.v, c.why)
				if executed := le.Uint64(tt.mem) == 1; executed != (c.v == Answer && c.why == None) {
					t.Errorf("executed: %v", executed)
				}
			})
		}
	}
}

// An exchange that was interrupted goes on with the record at which it was.
func TestInterrupted(t *testing.T) {
	tt := newTarget()
	tt.state(1, stateInterrupted)
	tt.slots[0].Outcome = outcome{progress: 2}.pack()
	tt.slots[0].Results[0], tt.slots[0].Results[1] = 70, 71
	body := tt.expect(t, request(1, fetch(datatype.Sum, 1), fetch(datatype.Sum, 1), fetch(datatype.Sum, 1)), ByUser, Answer, None)
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
		{"from the start", 0, 0, request(1, put(0, "x")), true},
	} {
		for _, by := range []By{ByProgram, ByUser} {
			tt := newTarget()
			tt.state(1, stateInterrupted)
			tt.slots[0].Outcome, tt.slots[0].Locked = outcome{progress: c.done}.pack(), c.locked
			tt.words[0] = 1 << Program
			v, why := Drop, BadForm
			if c.goesOn {
				v, why = Answer, None
			}
			t.Run(fmt.Sprint(c.name, " by ", by), func(t *testing.T) { tt.expect(t, bytes.Clone(c.frame), by, v, why) })
			held := tt.words[0] != 0
			if c.locked != 0 && held == c.goesOn || c.locked == 0 && !held {
				t.Errorf("%s: the lock is held: %v", c.name, held)
			}
			if state := tt.slots[0].Word; !c.goesOn && state != word(1, stateInterrupted) {
				t.Errorf("%s: the exchange is in state %#x", c.name, state)
			}
		}
	}
}

// An exchange that was interrupted, and a window of which went away then, is ended by user
// space: no record is executed twice, and the lock is given up once.
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
			words := make([]uint64, window.LockWordLen/8)
			tt.Expose(Window{ID: gone, Mem: bytesOf(make([]uint64, 8)), Lock: window.LockWordIn(bytesOf(words))}, nil)
			left := c.after
			if c.list[0].Code == wire.CodeLock {
				left-- // the lock is not asked about
			}
			tt.SetInterrupt(func() bool { left--; return left == -1 })
			frame := request(1, c.list...)
			if _, v, why := tt.Serve(0, bytes.Clone(frame), ByProgram); v != ToUser || why != Interrupted {
				t.Fatalf("verdict %d, %v", v, why)
			}
			tt.Retract(gone)
			held := words[0] // in memory that is gone
			if tt.expect(t, bytes.Clone(frame), ByProgram, ToUser, NoWindow); tt.Claim(0, 1) {
				t.Fatal("claimed for a bundle")
			}
			buffer := new(results)
			for i := range buffer {
				buffer[i] = 0xee // of another session
			}
			tt.buffer.Store(buffer)
			for i, by := range []By{ByUser, ByUser, ByProgram} {
				b := bytes.Clone(frame)
				why := Repeated
				if i == 0 {
					why = None
				}
				body := tt.expect(t, b, by, Answer, why)
				if b[fateAt] != c.fate {
					t.Errorf("fate %#b, want %#b", b[fateAt], c.fate)
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
			if tt.words[0] != 0 || words[0] != held || tt.slots[0].Locked != 0 || tt.slots[0].Word != word(1, stateDone) {
				t.Errorf("the locks are %#x and %#x, of window %d", tt.words[0], words[0], tt.slots[0].Locked)
			}
			tt.expect(t, request(2, add), ByProgram, Answer, None)
		})
	}
}

// A request of which nothing is done, though it was begun, may become a bundle.
func TestBegunRequestIsTaken(t *testing.T) {
	tt := newTarget()
	tt.SetInterrupt(func() bool { return true })
	frame := request(1, put(0, "x"))
	tt.expect(t, frame, ByProgram, ToUser, Interrupted)
	tt.Retract(id)
	if tt.expect(t, frame, ByUser, ToUser, NoWindow); !tt.Claim(0, 1) {
		t.Error("not claimed")
	}
}

// A request that is taken as a bundle is answered so, and is not executed.
func TestTaken(t *testing.T) {
	tt := newTarget()
	frame := request(1, lock(0), unlock(), put(0, "x")) // in no order that is executed
	tt.expect(t, frame, ByUser, ToUser, Operation)
	if tt.Claim(0, 2) || !tt.Claim(0, 1) || tt.Claim(0, 1) {
		t.Fatal("claimed what cannot be, or not what can")
	}
	tt.expect(t, bytes.Clone(frame), ByUser, Drop, Busy)
	tt.Unclaim(0, 1)
	tt.expect(t, frame, ByUser, ToUser, Operation)
	if !tt.Claim(0, 1) {
		t.Fatal("not claimed again")
	}
	tt.PublishTaken(0, 1)
	h, _, _ := Decode(frame[:tt.Taken(0, frame)])
	if want := (Header{Session: peerSession, Exchange: 1, Try: 1, Flags: wire.FlagResponse, Fate: FateTaken}); h != want {
		t.Errorf("%+v, want %+v", h, want)
	}
	again := request(1, lock(0), unlock(), put(0, "x"))
	if n, v, why := tt.Serve(0, again, ByProgram); v != Answer || why != Repeated || !bytes.Equal(again[:n], frame[:n]) {
		t.Errorf("its repeat: %v, %v, %x", v, why, again[:n])
	}
	tt.expect(t, request(2, put(0, "x")), ByProgram, Answer, None)
}

// An answer tells that the program's own was lost only where it was.
func TestLostAnswersAreTold(t *testing.T) {
	for _, c := range []struct {
		first, second By
		flags         uint8
		want          bool
	}{
		{ByProgram, ByUser, wire.FlagUser, true},
		{ByProgram, ByUser, 0, false},
		{ByUser, ByUser, wire.FlagUser, false},
		{ByProgram, ByProgram, 0, false},
	} {
		tt := newTarget()
		tt.expect(t, request(1, put(0, "x")), c.first, Answer, None)
		frame := requestOf(Header{Exchange: 1, Try: 2, Flags: c.flags}, put(0, "x"))
		n, v, why := tt.Serve(0, frame, c.second)
		if h, _, _ := Decode(frame[:n]); v != Answer || why != Repeated || h.Before != c.want {
			t.Errorf("%+v: %v, %v, %+v", c, v, why, h)
		}
	}
}

// A request with a lock is executed only while the lock is free.
func TestLocks(t *testing.T) {
	const exclusive = wire.FlagExclusive
	for _, c := range []struct {
		name   string
		before func(w *window.LockWord)
		flags  uint8
		v      Verdict
		why    Reason
	}{
		{"free", func(*window.LockWord) {}, 0, Answer, None},
		{"free, exclusive", func(*window.LockWord) {}, exclusive, Answer, None},
		{"beside a shared one", func(w *window.LockWord) { w.Take(3, window.LockShared) }, 0, Answer, None},
		{"exclusive beside a shared one", func(w *window.LockWord) { w.Take(3, window.LockShared) }, exclusive, ToUser, Locked},
		{"beside an exclusive one", func(w *window.LockWord) { w.Take(3, window.LockExclusive) }, 0, ToUser, Locked},
		{"held by the program on another processor", func(w *window.LockWord) { w.Take(Program, window.LockShared) }, 0, ToUser, Locked},
		{"retired", (*window.LockWord).Retire, 0, ToUser, Locked},
	} {
		tt := newTarget()
		w := tt.Lock(id)
		c.before(w)
		held := tt.words[0]
		frame := request(1, lock(c.flags), put(0, "x"), unlock())
		t.Run(c.name, func(t *testing.T) { tt.expect(t, frame, ByProgram, c.v, c.why) })
		if after := tt.words[0]; after != held || tt.slots[0].Locked != 0 {
			t.Errorf("%s: the lock was %#x and is %#x", c.name, held, after)
		}
		if c.why == Locked { // nothing is left of it, and it may come again
			w.Give(3)
			w.Give(Program)
			if !w.Retired() {
				tt.expect(t, frame, ByProgram, Answer, None)
			}
		}
	}
	tt := newTarget()
	tt.Retract(id)
	tt.Expose(Window{ID: id, Mem: tt.mem[:size]}, nil)
	tt.expect(t, request(1, lock(0), put(0, "x"), unlock()), ByProgram, ToUser, Locked)
}

// Where requests wait at the lock's owner, user space hears of it from both.
func TestAwaitedLock(t *testing.T) {
	const closed = 1 << 63
	for _, by := range []By{ByProgram, ByUser} {
		tt := newTarget()
		// The owner closes the word while the program holds it.
		tt.state(1, stateInterrupted)
		tt.slots[0].Outcome, tt.slots[0].Locked = outcome{progress: 1}.pack(), id+1
		tt.words[0] = closed | 1<<Program
		v := ToUser
		if by == ByUser {
			v = Answer
		}
		frame := request(1, lock(0), put(0, "x"), unlock())
		tt.expect(t, frame, by, v, Awaited)
		if tt.mem[0] != 'x' || tt.words[0] != closed || tt.slots[0].Locked != 0 {
			t.Errorf("%q, lock %#x", tt.mem[0], tt.words[0])
		}
		tt.expect(t, request(1, lock(0), put(0, "x"), unlock()), ByUser, Answer, Repeated)
	}
}

// A lock that an interrupted exchange of a dead session holds is given up.
func TestAbandon(t *testing.T) {
	tt := newTarget()
	tt.Lock(id).Take(Program, window.LockExclusive)
	tt.slots[0].Locked = id + 1
	tt.CloseSlot(0)
	if tt.Abandon(0) || tt.words[0] != 0 || tt.Abandon(0) {
		t.Errorf("lock %#x", tt.words[0])
	}
	tt.slots[0].Locked = 77 // of a window that is gone
	if tt.Abandon(0) {
		t.Error("told of a window that is gone")
	}
}

// The same requests, served by several goroutines, are executed once.
func TestDuplicatesAtOnce(t *testing.T) {
	tt := newTarget()
	const exchanges = 300
	var group sync.WaitGroup
	for g := range 3 {
		group.Go(func() {
			by := By(1 + g%2)
			for n := uint64(1); n <= exchanges; n++ {
				for {
					frame := request(n, lock(wire.FlagExclusive), fetch(datatype.Sum, 3), unlock())
					end, v, why := tt.Serve(0, frame, by)
					if v == Answer {
						if _, body, _ := Decode(frame[:end]); le.Uint64(body) != 3*(n-1) {
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

// Serve allocates nothing.
func TestServeAllocatesNothing(t *testing.T) {
	tt, n := newTarget(), uint64(0)
	frames := make([][]byte, 102)
	for i := range frames {
		frames[i] = request(uint64(i+1), lock(0), fetch(datatype.Max, 5), get(0, 600), unlock())
	}
	if allocs := testing.AllocsPerRun(100, func() {
		if _, v, why := tt.Serve(0, frames[n], ByUser); v != Answer {
			t.Error(why)
		}
		n++
	}); allocs != 0 {
		t.Errorf("%v allocations a request", allocs)
	}
}
