package engine

import (
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/wire"
)

// bundle is a received bundle of requests on its way to taking effect.
type bundle struct {
	session *Session
	seq     uint64
	order   uint32
	flags   uint8
	body    []byte
	at      int    // bytes of body already applied
	done    uint32 // bytes of the record at body[at:] already answered
	counted bool   // it no longer holds up later bundles
	row     row    // where it is parked, or may be
	lock    lockState
	refuse  mpierr.Class // the lock was refused: refuse what depends on it too
}

// lockState belongs to a bundle that starts with a lock record and has passed it.
type lockState struct {
	given  bool // held or queued for; the origin has not been told that it was held
	window uint32
	token  uint32
}

// parkingLot keeps copies of bundles that cannot be applied yet: they came
// before their turn, or no transmit slot was free for their answers. It is
// bounded; what finds no room is not acknowledged and comes again.
//
// The last third of it is kept for bundles whose turn it is: a lot full of bundles
// that wait for them would otherwise never empty. Those wait only for slots, which
// answers give back.
type parkingLot struct {
	limit   [numRows]int32
	share   [numRows]share
	taken   [numRows]int32
	n       int
	list    []*bundle
	free    []*bundle
	waiting int // bundles in a lock's queue: one a peer and window at most
}

// row is a part of the parking lot.
type row uint8

const (
	anyRow  row = iota // for any bundle
	dueRow             // for those whose turn it was when they came
	numRows            // how many there are; as a row: no place
)

func (p *parkingLot) split(places int) {
	for r, n := range [numRows]int{anyRow: places - places/3, dueRow: places / 3} {
		p.limit[r], p.share[r] = int32(n), shareOf(n)
	}
}

// place returns where a bundle of s may be parked, or numRows if it may not come in. One
// that came before its turn gets no place beyond what s may have in flight. Bundles in a
// lock's queue do not count, or the unlock that they wait for might find no room.
func (e *Engine) place(s *Session, due bool) row {
	p := &e.parked
	for r := range numRows {
		if r == dueRow && !due || r == anyRow && s.parked[r] >= leastCredits && s.parked[r] >= int32(e.creditsFor()) {
			continue
		}
		if p.share[r].admits(s.parked[r], 1, p.limit[r]-p.taken[r]) {
			return r
		}
	}
	return numRows
}

// copyOf returns a copy of b in memory of the lot.
func (p *parkingLot) copyOf(b *bundle) *bundle {
	var c *bundle
	if n := len(p.free); n > 0 {
		c = p.free[n-1]
		p.free = p.free[:n-1]
	} else {
		c = &bundle{}
	}
	memory := append(c.body[:0], b.body...)
	*c = *b
	c.body = memory
	return c
}

func (p *parkingLot) recycle(b *bundle) {
	*b = bundle{body: b.body[:0]}
	p.free = append(p.free, b)
}

func (p *parkingLot) add(b *bundle) {
	p.list = append(p.list, b)
	p.n++
	p.taken[b.row]++
	b.session.parked[b.row]++
}

func (p *parkingLot) removeAt(i int) {
	b := p.list[i]
	p.taken[b.row]--
	b.session.parked[b.row]--
	p.recycle(b)
	p.n--
	copy(p.list[i:], p.list[i+1:])
	p.list[p.n] = nil
	p.list = p.list[:p.n]
}

// drop forgets what s has sent.
func (p *parkingLot) drop(s *Session) {
	for i := 0; i < p.n; {
		if p.list[i].session == s {
			p.removeAt(i)
			continue
		}
		i++
	}
}

// retryParked applies what can be applied now, until nothing changes.
func (e *Engine) retryParked() {
	for again := true; again; {
		again = false
		for i := 0; i < e.parked.n; {
			b := e.parked.list[i]
			if !e.tryApply(b) {
				i++
				continue
			}
			// The origin has heard that the bundle arrived, and nothing else will
			// make it ask whether it took effect.
			b.session.ackNow = true
			e.markDirty(b.session)
			e.parked.removeAt(i)
			again = true
		}
	}
}

// wakeParked asks for a Tick if bundles are parked: something that they may wait
// for has come about.
func (e *Engine) wakeParked() {
	if e.parked.n > 0 {
		e.wakeBy(e.now)
	}
}

// due reports whether it is b's turn. Of the bundles of a session that have not
// been applied, the one with the lowest sequence number always is due.
func (b *bundle) due() bool {
	s := b.session
	switch {
	case b.at > 0 || b.counted:
		return true
	case b.flags&wire.FlagOrdered != 0 && b.order != s.orderSeen+1:
		return false
	}
	return b.flags&wire.FlagFence == 0 || s.recv[request].Next() == b.seq
}

// tryApply applies b if it is its turn, and reports whether it is done with.
func (e *Engine) tryApply(b *bundle) bool {
	if !b.due() || !e.apply(b) {
		return false
	}
	if !b.counted {
		e.applied(b)
	}
	return true
}

// applied records that b has taken effect, or that it waits for a lock and no
// longer holds up what comes after it.
func (e *Engine) applied(b *bundle) {
	s := b.session
	if b.flags&wire.FlagOrdered != 0 {
		s.orderSeen++
	}
	s.recv[request].Applied(b.seq)
	e.markDirty(s)
}
