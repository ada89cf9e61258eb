package link

import (
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// Bundle is a received bundle of requests on its way to taking effect.
type Bundle struct {
	Session *Session
	Body    []byte
	At      int    // bytes of Body already applied
	Done    uint32 // bytes of the record at Body[At:] already answered
	Upper   Memo   // of the layer above

	seq     uint64
	order   uint32
	flags   uint8
	counted bool // it no longer holds up later bundles
	row     row  // where it is parked, or may be
}

// Memo is what the layer above remembers of a bundle from one attempt to apply it to the
// next.
type Memo struct {
	Begun  bool // what the bundle starts with has taken effect
	Key    uint32
	Token  uint32
	Refuse mpierr.Class // refuse what is left for this reason
	Denied bool         // the record before was refused
}

// parkingLot keeps copies of bundles that cannot be applied yet: they came
// before their turn, no transmit slot was free for their answers, or it is too early. It is
// bounded; what finds no room is not acknowledged and comes again.
//
// The last third of it is kept for bundles whose turn it is: a lot full of bundles that
// wait for them would otherwise never empty. A bundle whose turn it is waits only for a
// slot, which an answer gives back, or for a time soon to come.
type parkingLot struct {
	limit [numRows]int32
	share [numRows]Share
	taken [numRows]int32
	n     int
	list  []*Bundle
	free  []*Bundle
	kept  int // by Keep
}

// row is a part of the parking lot.
type row uint8

const (
	anyRow  row = iota // for any bundle
	dueRow             // for those whose turn it was when they came
	numRows            // how many there are; as a row: no place
)

// split divides the places. Of those for bundles whose turn it is, one is kept for each
// peer, if there are as many: nothing but silence is to end the session of one that has none.
func (p *parkingLot) split(places, peers int) {
	for r, n := range [numRows]int{anyRow: places - places/3, dueRow: places / 3} {
		p.limit[r], p.share[r] = int32(n), ShareOf(n)
	}
	due := &p.share[dueRow]
	due.kept = max(due.kept, int32(min(peers, places/3)))
}

// place returns where a bundle of s may be parked, or numRows if it may not come in. One
// that came before its turn gets no place beyond what s may have in flight. Bundles
// that are kept do not count, or those that they wait for might find no room.
func (l *Link) place(s *Session, due bool) row {
	p := &l.parked
	for r := range numRows {
		if r == dueRow && !due || r == anyRow && s.parked[r] >= leastCredits && s.parked[r] >= int32(l.credits) {
			continue
		}
		if p.share[r].Admits(s.parked[r], 1, p.limit[r]-p.taken[r]) {
			return r
		}
	}
	return numRows
}

// copyOf returns a copy of b in memory of the lot.
func (p *parkingLot) copyOf(b *Bundle) *Bundle {
	var c *Bundle
	if n := len(p.free); n > 0 {
		c = p.free[n-1]
		p.free = p.free[:n-1]
	} else {
		c = &Bundle{}
	}
	memory := append(c.Body[:0], b.Body...)
	*c = *b
	c.Body = memory
	return c
}

func (p *parkingLot) recycle(b *Bundle) {
	*b = Bundle{Body: b.Body[:0]}
	p.free = append(p.free, b)
}

func (p *parkingLot) add(b *Bundle) {
	p.list = append(p.list, b)
	p.n++
	p.taken[b.row]++
	b.Session.parked[b.row]++
}

func (p *parkingLot) removeAt(i int) {
	b := p.list[i]
	p.taken[b.row]--
	b.Session.parked[b.row]--
	p.recycle(b)
	p.n--
	copy(p.list[i:], p.list[i+1:])
	p.list[p.n] = nil
	p.list = p.list[:p.n]
}

// drop forgets what s has sent.
func (p *parkingLot) drop(s *Session) {
	for i := 0; i < p.n; {
		if p.list[i].Session == s {
			p.removeAt(i)
			continue
		}
		i++
	}
}

// retryParked applies what can be applied now, until nothing changes.
func (l *Link) retryParked() {
	for again := true; again; {
		again = false
		for i := 0; i < l.parked.n; {
			b := l.parked.list[i]
			if !l.tryApply(b) {
				i++
				continue
			}
			// The origin has heard that the bundle arrived, and nothing else will
			// make it ask whether it took effect.
			b.Session.acks.now = true
			b.Session.MarkDirty()
			l.parked.removeAt(i)
			again = true
		}
	}
}

// wakeParked asks for a Tick if bundles are parked: something that they may wait
// for has come about.
func (l *Link) wakeParked() {
	if l.parked.n > 0 {
		l.WakeBy(l.Now)
	}
}

// due reports whether it is b's turn. Of the bundles of a session that have not
// been applied, the one with the lowest sequence number always is due.
func (b *Bundle) due() bool {
	s := b.Session
	switch {
	case b.At > 0 || b.counted:
		return true
	case b.flags&wire.FlagOrdered != 0 && b.order != s.orderSeen+1:
		return false
	}
	return b.flags&wire.FlagAfterAll == 0 || s.recv[Request].Next() == b.seq
}

// tryApply applies b if it is its turn, and reports whether it is done with.
func (l *Link) tryApply(b *Bundle) bool {
	if !b.due() || !l.cfg.Upper.Apply(b) {
		return false
	}
	if !b.counted {
		l.applied(b)
	}
	return true
}

// applied records that b has taken effect, or that it is kept and no
// longer holds up what comes after it.
func (l *Link) applied(b *Bundle) {
	s := b.Session
	if b.flags&wire.FlagOrdered != 0 {
		s.orderSeen++
	}
	s.recv[Request].Applied(b.seq)
	s.MarkDirty()
}

// Keep returns a copy of b, which the layer above keeps for as long as it likes: b no
// longer holds up later bundles, and Apply is to return true for it.
func (l *Link) Keep(b *Bundle) *Bundle {
	c := l.parked.copyOf(b)
	c.counted, c.row = true, dueRow
	l.parked.kept++
	return c
}

// Resume has b, which Keep has returned, applied by the next Tick.
func (l *Link) Resume(b *Bundle) {
	l.parked.kept--
	l.parked.add(b)
	l.wakeParked()
}

// Resumed reports whether a bundle of s that was resumed, with a key of the layer above,
// still waits for room.
func (l *Link) Resumed(s *Session, key uint32) bool {
	for _, b := range l.parked.list {
		if b.Session == s && b.counted && b.Upper.Key == key {
			return true
		}
	}
	return false
}

// Forget drops b, which Keep has returned.
func (l *Link) Forget(b *Bundle) {
	l.parked.kept--
	l.parked.recycle(b)
}
