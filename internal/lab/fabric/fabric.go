// Package fabric joins the links of a few ranks for tests, without threads or a clock.
package fabric

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/link"
)

// Fabric joins a few ranks: frames arrive at once, in order, unless Filter says otherwise. A
// path is the rank that it leads to.
type Fabric struct {
	T      testing.TB
	Now    int64
	Cut    []bool                                                           // frames from and to these ranks vanish
	Filter func(from, to int, payload []byte) (copies int)                  // of a frame that arrive; nil: one
	Frames int                                                              // delivered
	Rank   func(rank int) string                                            // describes a rank for failures; may be nil
	Told   func(rank int, opened []link.Opened, quiescing, closed []uint64) // what links announce; may be nil

	links    []*link.Link
	slabs    []*link.Slab
	reaped   [1]int32
	arriving []byte // scratch
}

const millisecond int64 = 1e6

// New returns a fabric of ranks, which Start gives their links.
func New(t testing.TB, ranks int) *Fabric {
	return &Fabric{T: t, Now: 1000, Cut: make([]bool, ranks), links: make([]*link.Link, ranks), slabs: make([]*link.Slab, ranks)}
}

// Start has a rank live with link l, which sends from slab; or live again.
func (f *Fabric) Start(rank int, l *link.Link, slab *link.Slab) {
	f.links[rank], f.slabs[rank] = l, slab
	l.Now = f.Now
}

// Advance lets time pass until t.
func (f *Fabric) Advance(t int64) {
	f.Now = t
	for _, l := range f.links {
		l.Now = t
	}
}

// Step lets every link act and delivers what they send; it reports whether anything was sent.
func (f *Fabric) Step() bool {
	moved := false
	for from, l := range f.links {
		l.Tick()
		if opened, quiescing, closed := l.Announcements(); f.Told != nil {
			f.Told(from, opened, quiescing, closed)
		}
		for len(l.Output()) > 0 {
			moved = true
			o := l.Output()[0]
			f.Deliver(from, int(o.Path), f.slabs[from].Payload(o.Slot)[:o.Len])
			l.Took(1)
			f.reaped[0] = o.Slot
			l.Reaped(f.reaped[:])
		}
	}
	return moved
}

// Deliver has a frame arrive, or not, as Cut and Filter say.
func (f *Fabric) Deliver(from, to int, payload []byte) {
	if f.Cut[from] || f.Cut[to] {
		return
	}
	copies := 1
	if f.Filter != nil {
		copies = f.Filter(from, to, payload)
	}
	for range copies {
		f.Frames++
		f.arriving = append(f.arriving[:0], payload...) // the link may decrypt it where it lies
		f.links[to].Receive(f.arriving, link.PathID(from))
	}
}

// Settle runs without letting time pass until nothing moves.
func (f *Fabric) Settle() {
	f.T.Helper()
	for range 10_000 {
		if !f.Step() {
			return
		}
	}
	f.T.Fatal("the ranks never come to rest")
}

// next returns the first deadline of a link.
func (f *Fabric) next() int64 {
	next := link.Never
	for _, l := range f.links {
		next = min(next, l.Deadline())
	}
	return next
}

// Until lets time pass until done, at most limit.
func (f *Fabric) Until(limit int64, done func() bool) {
	f.T.Helper()
	end := f.Now + limit
	for range 1_000_000 {
		f.Settle()
		if done() {
			return
		}
		next := f.next()
		if next == link.Never || next > end {
			f.T.Fatalf("not done after %d ms (next deadline %d, now %d)\n%s", limit/millisecond, next, f.Now, f.Describe())
		}
		f.Advance(max(f.Now+1, next))
	}
	f.T.Fatal("the ranks are busy without end")
}

// Took returns how long something takes, which is at most a second.
func (f *Fabric) Took(met func() bool) int64 {
	f.T.Helper()
	start := f.Now
	f.Until(1000*millisecond, met)
	return f.Now - start
}

// Pass lets time go by.
func (f *Fabric) Pass(d int64) {
	f.T.Helper()
	for n, end := 0, f.Now+d; ; n++ {
		if n > 100_000 {
			f.T.Fatalf("the ranks are busy without end\n%s", f.Describe())
		}
		f.Settle()
		next := min(end, f.next())
		if f.Now >= end {
			return
		}
		f.Advance(max(f.Now+1, next))
	}
}

// Carries loses all frames that are longer than the path carries from now on.
func (f *Fabric) Carries(most int) {
	f.Filter = func(_, _ int, b []byte) int {
		if len(b) > most {
			return 0
		}
		return 1
	}
}

// Detain keeps the frames from one rank to another back. The result delivers them.
func (f *Fabric) Detain(from, to int) (release func()) {
	var late [][]byte
	f.Filter = func(a, b int, payload []byte) int {
		if a != from || b != to {
			return 1
		}
		late = append(late, bytes.Clone(payload))
		return 0
	}
	return func() {
		f.Filter = nil
		for _, payload := range late {
			f.links[to].Receive(payload, link.PathID(from))
		}
		f.Settle()
	}
}

// Describe tells the state of all ranks.
func (f *Fabric) Describe() (s string) {
	for r, l := range f.links {
		s += fmt.Sprintf("rank %d: %+v\n", r, l.Usage())
		if f.Rank != nil {
			s += fmt.Sprintf("        %s\n", f.Rank(r))
		}
	}
	return s
}

// AtRest fails the test unless, after a while, no link holds anything. Ranks that are cut off
// are left out.
func (f *Fabric) AtRest() {
	f.T.Helper()
	f.Pass(300_000 * millisecond) // keys of sessions at rest are renewed meanwhile, once
	for r, l := range f.links {
		if f.Cut[r] {
			continue
		}
		u := l.Usage()
		u.Sessions = 0
		if want := (link.Usage{Slots: u.Slots, FreeSlots: u.Slots}); u != want {
			f.T.Errorf("rank %d still holds something: %+v\n%s", r, u, f.Describe())
		}
		if l.Deadline() != link.Never {
			f.T.Errorf("rank %d has a deadline in %d ns", r, l.Deadline()-f.Now)
		}
	}
}
