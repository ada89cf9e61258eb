package windows

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

// deadIndex is a process that the owner takes for dead.
const deadIndex = 9

func newWord() *LockWord { return LockWordIn(make([]byte, LockWordLen)) }

// TestLockWord takes and gives a word as the processes of a host do.
func TestLockWord(t *testing.T) {
	w := newWord()
	take := func(want bool, index int, kind window.LockType) {
		t.Helper()
		if w.Take(index, kind) != want {
			t.Fatalf("process %d, %v: not %v", index, kind, want)
		}
	}
	give := func(index int, wantHeld, wantTell bool) {
		t.Helper()
		if held, tell := w.Give(index); held != wantHeld || tell != wantTell {
			t.Fatalf("process %d gave it up: %v, %v", index, held, tell)
		}
	}
	take(true, 1, window.LockShared)
	take(true, 2, window.LockShared)
	take(false, 2, window.LockShared) // it has it
	take(false, 3, window.LockExclusive)
	give(3, false, false)
	give(1, true, false)
	take(false, 3, window.LockExclusive)
	give(2, true, false)
	take(true, MaxSharers-1, window.LockExclusive)
	take(false, 1, window.LockShared)
	take(false, 1, window.LockExclusive)
	w.close()
	give(MaxSharers-1, true, true)
	take(false, 1, window.LockShared)
	take(false, 1, window.LockExclusive)
	w.open()
	take(true, 1, window.LockShared)
	take(false, MaxSharers, window.LockShared)
	give(MaxSharers, false, false)
	give(-1, false, false)
	var holders []int
	w.Holders(func(i int) { holders = append(holders, i) })
	if len(holders) != 1 || holders[0] != 1 {
		t.Errorf("held by %d", holders)
	}
}

// TestSharedLock has a shared lock's owner grant requests in order while other
// processes hold the word.
func TestSharedLock(t *testing.T) {
	var l Lock[int]
	w := newWord()
	l.Share(w, func(index int) bool { return index == deadIndex })
	acquire := func(want bool, holder uint64, kind window.LockType) {
		t.Helper()
		if got, class := l.Acquire(holder, kind, 0); got != want || class != mpierr.Success {
			t.Fatalf("holder %d: %v, %v", holder, got, class)
		}
	}
	granted := func(list []Grant[int], want ...uint64) {
		t.Helper()
		ok := len(list) == len(want)
		for i := range list {
			ok = ok && list[i].Holder == want[i]
		}
		if !ok {
			t.Fatalf("granted to %v, want %v", list, want)
		}
	}
	release := func(holder uint64, want ...uint64) {
		t.Helper()
		list, class := l.Release(holder, nil)
		if class != mpierr.Success {
			t.Fatal(class)
		}
		granted(list, want...)
	}
	// Shared holders of both kinds go together.
	acquire(true, 10, window.LockShared)
	if !w.Take(1, window.LockShared) {
		t.Fatal("a shared lock keeps another one away")
	}
	acquire(true, 11, window.LockShared)
	// An exclusive request closes the word to those who come later, and gets it
	// when all have gone.
	acquire(false, 12, window.LockExclusive)
	if w.Take(2, window.LockShared) {
		t.Fatal("a later process overtakes the request that waits")
	}
	acquire(false, 13, window.LockShared)
	release(10)
	release(11)
	if held, tell := w.Give(1); !held || !tell {
		t.Fatal("the last holder is not told that the owner waits")
	}
	granted(l.Retry(nil), 12)
	release(12, 13)
	if !w.Take(2, window.LockShared) {
		t.Fatal("the word stayed closed")
	}
	release(13)
	// A waiter that gives up opens the word too.
	acquire(false, 14, window.LockExclusive)
	granted(l.Drop(14, nil))
	if !w.Take(3, window.LockShared) {
		t.Fatal("the word stayed closed after the request was withdrawn")
	}
	// Blocking.
	if l.Block() {
		t.Fatal("blocked while processes hold it")
	}
	w.Give(2)
	w.Give(3)
	if !l.Block() || w.Take(2, window.LockShared) {
		t.Fatal("not blocked")
	}
	granted(l.Unblock(nil))
	if !w.Take(2, window.LockExclusive) {
		t.Fatal("not free after the end of the block")
	}
	acquire(false, 15, window.LockShared)
	w.Give(2)
	granted(l.Retry(nil), 15)
	release(15)
	// A process that was taken for dead takes the lock all the same, and loses it.
	if !w.Take(deadIndex, window.LockExclusive) {
		t.Fatal("the word stayed closed")
	}
	acquire(true, 16, window.LockExclusive)
	if held, _ := w.Give(deadIndex); held {
		t.Error("the dead process holds the lock beside another")
	}
	release(16)
}

// TestSharedLockExcludes hammers a word from goroutines that stand for processes,
// and from the owner, under exclusive and shared locks. The race detector sees it
// if a lock does not exclude.
func TestSharedLockExcludes(t *testing.T) {
	const processes, times = 4, 2000
	var (
		w     = newWord()
		owner sync.Mutex // as the engine's lock
		l     Lock[chan bool]
		value int
		wrote int
		group sync.WaitGroup
	)
	l.Share(w, func(index int) bool { return index == deadIndex })
	hand := func(list []Grant[chan bool]) {
		for _, g := range list {
			g.Ticket <- true
		}
	}
	viaOwner := func(holder uint64, kind window.LockType) {
		ticket := make(chan bool, 1)
		owner.Lock()
		ok, _ := l.Acquire(holder, kind, ticket)
		owner.Unlock()
		if !ok {
			<-ticket
		}
	}
	for p := range processes + 2 {
		remote := p >= processes // has no bit in the word
		rng := rand.New(rand.NewPCG(1, uint64(p)))
		group.Go(func() {
			for range times {
				kind := window.LockExclusive
				if rng.IntN(2) == 0 {
					kind = window.LockShared
				}
				direct := !remote && w.Take(p+1, kind)
				if !direct {
					viaOwner(uint64(p), kind)
				}
				if kind == window.LockExclusive {
					value++
					runtime.Gosched()
					wrote++
				} else if value != wrote {
					t.Error("a shared holder saw a change that an exclusive one makes")
				}
				if !direct {
					owner.Lock()
					list, _ := l.Release(uint64(p), nil)
					hand(list)
					owner.Unlock()
					continue
				}
				held, tell := w.Give(p + 1)
				if !held {
					t.Error("a lock was lost")
				}
				if tell {
					owner.Lock()
					hand(l.Retry(nil))
					owner.Unlock()
				}
			}
		})
	}
	group.Wait()
	if value != wrote || *w.word != 0 {
		t.Errorf("%d and %d, word %#x", value, wrote, *w.word)
	}
}

// TestBlockEvicts blocks a lock whose word a process holds: only once that is dead.
func TestBlockEvicts(t *testing.T) {
	var l Lock[int]
	w, dead := newWord(), false
	l.Share(w, func(int) bool { return dead })
	if !w.Take(3, window.LockExclusive) || l.Block() {
		t.Fatal("the word is not held")
	}
	if dead = true; !l.Block() || w.Take(4, window.LockShared) {
		t.Error("not blocked for the dead")
	}
	if l.Unblock(nil); !w.Take(4, window.LockShared) {
		t.Error("blocked for ever")
	}
}
