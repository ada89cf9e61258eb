package windows

import (
	"slices"
	"sync/atomic"
)

// CounterLen is the bytes that a counter takes: its number, and the number at which somebody
// is to be woken.
const CounterLen = 16

// MaxCounters is how many counters a window has at most.
const MaxCounters = 1 << 16

// counter counts notifications. Origins on this host and the owner's XDP program change it as
// the owner does, by one atomic addition each. Whoever counts looks at awaited afterwards, and
// whoever waits looks at count after writing awaited: so one of them sees the other.
type counter struct{ count, awaited uint64 }

// Counters are those of a window that notified operations count up at its owner.
type Counters struct {
	all   []counter
	waits []*CounterWait // of this process, that sleep
}

// NewCounters returns n counters in this process's memory.
func NewCounters(n int) *Counters { return &Counters{all: make([]counter, n)} }

// CountersIn returns the counters in b, which is aligned to 8 bytes and zero at first.
func CountersIn(b []byte) *Counters { return &Counters{all: countersAt(b)} }

// Len returns how many there are; c may be nil.
func (c *Counters) Len() int {
	if c == nil {
		return 0
	}
	return len(c.all)
}

// Count adds one to counter i, and reports whether the owner is to look for those who wait.
func (c *Counters) Count(i uint32) (awaited bool) {
	x := &c.all[i]
	n := atomic.AddUint64(&x.count, 1)
	at := atomic.LoadUint64(&x.awaited)
	return at != 0 && n >= at
}

// Read returns the number of counter i.
func (c *Counters) Read(i int) uint64 { return atomic.LoadUint64(&c.all[i].count) }

// Reset sets counter i to zero, and returns what it was.
func (c *Counters) Reset(i int) uint64 { return atomic.SwapUint64(&c.all[i].count, 0) }

// CounterWait waits for one of some counters to get to a number.
type CounterWait struct {
	Counters *Counters
	Which    []int  // of the counters; see Name
	AtLeast  uint64 // the number
	sorted   []int  // Which, in order
}

// Name says which counters w waits for. It needs no lock.
func (w *CounterWait) Name(counters []int) {
	w.Which = append(w.Which[:0], counters...)
	w.sorted = append(w.sorted[:0], counters...)
	slices.Sort(w.sorted)
}

// Cleared returns a wait for no counters, with the memory of w.
func (w *CounterWait) Cleared() CounterWait {
	return CounterWait{Which: w.Which[:0], sorted: w.sorted[:0]}
}

// Done returns the first of the counters that has got to the number, -1 if none has.
func (w *CounterWait) Done() int {
	for _, i := range w.Which {
		if w.Counters.Read(i) >= w.AtLeast {
			return i
		}
	}
	return -1
}

// Arm has whoever counts tell the owner when a counter gets to the number, until Disarm. It is called
// with the engine's lock held, and Done again afterwards.
func (w *CounterWait) Arm() {
	c := w.Counters
	c.waits = append(c.waits, w)
	for _, i := range w.Which {
		if at := &c.all[i].awaited; atomic.LoadUint64(at) == 0 || w.AtLeast < atomic.LoadUint64(at) {
			atomic.StoreUint64(at, w.AtLeast)
		}
	}
}

// Disarm ends Arm. It is called with the engine's lock held. Other waits stay armed all the while.
func (w *CounterWait) Disarm() {
	c := w.Counters
	c.waits = slices.DeleteFunc(c.waits, func(other *CounterWait) bool { return other == w })
	for _, i := range w.Which {
		least := uint64(0)
		for _, other := range c.waits {
			if _, waits := slices.BinarySearch(other.sorted, i); waits && (least == 0 || other.AtLeast < least) {
				least = other.AtLeast
			}
		}
		atomic.StoreUint64(&c.all[i].awaited, least)
	}
}
