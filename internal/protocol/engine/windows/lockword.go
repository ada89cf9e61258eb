package windows

import (
	"github.com/xdprma/xdprma/window"
	"math/bits"
	"sync/atomic"
)

// LockWord is the lock of one window (section 11.5.3) as a word of memory that the
// processes of a host share, so that one compare-and-swap takes or gives it where
// nobody is in the way. It says who holds the lock and how: a bit for each process,
// by its index on the host, and whether the one holder has it exclusively. So the
// word is right at every instant, even if a holder is killed.
//
// The owner has index 0, which stands for all ranks that its Lock has granted the lock. Its
// XDP program has index 1.
// While requests wait in that Lock, the owner keeps the word closed: the others ask the
// owner, which grants in order, instead of taking the word. So nobody starves. A process
// that gives the lock up while the word is closed tells the owner.
type LockWord struct{ word, retired *uint64 }

// MaxSharers is how many processes of a host can hold a LockWord; those with a
// higher index ask the owner.
const MaxSharers = 62

const ownerIndex = 0

const (
	wordClosed    uint64 = 1 << 63
	wordExclusive uint64 = 1 << 62
	wordHolders          = wordExclusive - 1
)

// LockWordLen is the bytes that a LockWord takes: two cache lines, for what changes
// often and what does not.
const LockWordLen = 128

// LockWordIn returns the word at the start of b, which is aligned to 8 bytes and
// zero at first, for nobody holds it.
func LockWordIn(b []byte) *LockWord { return &LockWord{wordAt(b), wordAt(b[64:])} }

// Retire says that the owner's window is no more. The other processes then ask the owner
// instead, which refuses.
func (l *LockWord) Retire() { atomic.StoreUint64(l.retired, 1) }

// Retired reports whether Retire was called.
func (l *LockWord) Retired() bool { return atomic.LoadUint64(l.retired) != 0 }

// Take takes the lock for a process, and returns false if others are in the way,
// or it must ask the owner.
func (l *LockWord) Take(index int, kind window.LockType) bool { return l.take(index, kind, wordClosed) }

func (l *LockWord) take(index int, kind window.LockType, blockers uint64) bool {
	if uint(index) >= MaxSharers {
		return false
	}
	next := uint64(1) << index
	blockers |= wordExclusive | next
	if kind == window.LockExclusive {
		blockers |= wordHolders
		next |= wordExclusive
	}
	for {
		v := atomic.LoadUint64(l.word)
		if v&blockers != 0 {
			return false
		}
		if atomic.CompareAndSwapUint64(l.word, v, v|next) {
			return true
		}
	}
}

// Give gives the lock up for a process. held is false if it did not hold the lock;
// tell says that requests wait at the owner, who is to be told.
func (l *LockWord) Give(index int) (held, tell bool) {
	if uint(index) >= MaxSharers {
		return false, false
	}
	bit := uint64(1) << index
	for {
		v := atomic.LoadUint64(l.word)
		if v&bit == 0 {
			return false, false
		}
		if atomic.CompareAndSwapUint64(l.word, v, v&^(bit|wordExclusive)) {
			return true, v&wordClosed != 0
		}
	}
}

func (l *LockWord) close() { atomic.OrUint64(l.word, wordClosed) }
func (l *LockWord) open()  { atomic.AndUint64(l.word, ^wordClosed) }

// Holders calls f with the index of each process that holds the lock.
func (l *LockWord) Holders(f func(index int)) {
	for v := atomic.LoadUint64(l.word) & wordHolders; v != 0; v &= v - 1 {
		f(bits.TrailingZeros64(v))
	}
}

// Host is what a window has in common with the processes of its host.
type Host struct {
	Lock  *LockWord
	Ranks []int // of the processes in the job, by their index in Lock; the owner is the first
}

// InKernel stands among Host.Ranks, after the owner, for the owner's XDP program, which
// takes the lock for the time of one request. It lives as long as the owner.
const InKernel = -1

// IndexOf returns the index of a rank of the job, -1 if it has none.
func (h *Host) IndexOf(rank int) int {
	for i, r := range h.Ranks {
		if r == rank {
			return i
		}
	}
	return -1
}
