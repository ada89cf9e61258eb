package sim

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

var (
	le  = binary.LittleEndian
	one = []byte{1, 0, 0, 0, 0, 0, 0, 0}
)

// regionModel is what a task's region of a window must hold after a flush.
type regionModel struct {
	data, combined []byte
	risen          uint64
}

func newRegionModel() *regionModel {
	return &regionModel{data: make([]byte, dataSize), combined: make([]byte, combineSize)}
}

// tallied counts changes of a word: issued, and known to have happened.
type tallied struct {
	issued, confirmed uint64
	seen              map[uint64]bool
}

type holder struct {
	t         *task
	exclusive bool
}

// targetModel is what all ranks together know about the windows of one life.
type targetModel struct {
	counters [numWindows][numShared]tallied
	slots    [numWindows][numShared]*task
	guarded  [numWindows]tallied
	tally    [numWindows]tallied
	holders  [numWindows][]holder
	risen    [numWindows]map[int]uint64
	messages map[sender]uint64 // the next message's number, by incarnation and count
	lost     map[sender]uint64 // those of ranks that failed

	withdrawn map[sender]map[uint64]bool // messages that were given up: each may come, or not
}

type sender struct{ rank, task int }

func (m *targetModel) init() {
	for i := range numWindows {
		m.risen[i] = map[int]uint64{}
		for j := range m.counters[i] {
			m.counters[i][j].seen = map[uint64]bool{}
		}
	}
	m.messages, m.lost, m.withdrawn = map[sender]uint64{}, map[sender]uint64{}, map[sender]map[uint64]bool{}
}

// compare looks straight into the target's memory, at the moment a flush is over.
func (t *task) compare(k *link, win int, m *regionModel) {
	at := t.region()
	mem := k.to.mem[win]
	t.sameBytes(k, "after a flush the window holds", mem[at:at+dataSize], m.data)
	t.sameBytes(k, "after a flush the window holds accumulated", mem[at+dataSize:at+risingAt], m.combined)
	if m.risen > 0 {
		if v := le.Uint64(mem[at+risingAt:]); v != t.l.incarnation<<32|m.risen {
			t.w.failf("rank %d task %d: after a flush the rising word at rank %d is %x, want %x", t.l.rank, t.index, k.to.rank, v, m.risen)
		}
	}
}

func (t *task) sameBytes(k *link, what string, got, want []byte) {
	if bytes.Equal(got, want) {
		return
	}
	i := 0
	for got[i] == want[i] {
		i++
	}
	t.w.failf("rank %d task %d at rank %d: %s wrong bytes from %d of %d on", t.l.rank, t.index, k.to.rank, what, i, len(want))
}

// checkOrder sees that words written in rising order never fall.
func (w *World) checkOrder(l *life) {
	for win := range numWindows {
		for i := range w.plan.ranks * w.plan.tasks {
			v := le.Uint64(l.mem[win][regionsAt+i*regionSize+risingAt:])
			if v < l.model.risen[win][i] {
				w.failf("rank %d: the word of region %d went back from %x to %x", l.rank, i, l.model.risen[win][i], v)
			}
			l.model.risen[win][i] = v
		}
	}
}

func (t *task) counted(c *tallied, old uint64) {
	c.confirmed++
	if c.seen[old] || old >= c.issued {
		t.w.failf("rank %d fetched %d, which is too large or was fetched before, after %d increments", t.l.rank, old, c.issued)
	}
	c.seen[old] = true
}

func (t *task) takenSlot(k *link, win, i int) {
	m := &k.to.model
	if h := m.slots[win][i]; h != nil {
		t.w.failf("rank %d took slot %d at rank %d, which rank %d has", t.l.rank, i, k.to.rank, h.l.rank)
	}
	m.slots[win][i] = t
}

// acquired notes that a lock is held, and that nobody holds it besides who may.
func (t *task) acquired(k *link, win int, exclusive bool) {
	m := &k.to.model
	owner := k.to.e.Session(t.l.rank)
	late := owner != nil && owner.Dead() // a rank that was stopped hears of a grant that was taken back
	for _, h := range m.holders[win] {
		if _, gone := t.w.mayFail(k.to, h.t.l); gone || late || !(exclusive || h.exclusive) {
			continue
		}
		t.w.failf("ranks %d and %d hold the lock of window %d at rank %d", t.l.rank, h.t.l.rank, win, k.to.rank)
	}
	m.holders[win] = append(m.holders[win], holder{t, exclusive})
}

func (t *task) released(k *link, win int) {
	m := &k.to.model
	for i, h := range m.holders[win] {
		if h.t == t {
			m.holders[win] = append(m.holders[win][:i:i], m.holders[win][i+1:]...)
			return
		}
	}
	panic("sim: a lock was released that was not acquired")
}

// allEqual sees that what the last holder of a lock wrote was there in full
// before the next one held it. A holder that fails may leave half of it.
func (t *task) allEqual(k *link, block []byte) {
	if t.w.plan.ranksFail() {
		return
	}
	for i := 8; i < len(block); i += 8 {
		if le.Uint64(block[i:]) != le.Uint64(block) {
			t.w.failf("rank %d task %d at rank %d: word %d is %d and the first is %d, under the exclusive lock",
				t.l.rank, t.index, k.to.rank, i/8, le.Uint64(block[i:]), le.Uint64(block))
		}
	}
}

// checkModels compares the words that all ranks share with what was done to them.
func (w *World) checkModels() {
	check := func(l *life, what string, win int, c *tallied, at int) {
		if v := le.Uint64(l.mem[win][at:]); v < c.confirmed || v > c.issued {
			w.failf("%s of window %d at rank %d: %d, but %d changes were issued and %d confirmed", what, win, l.rank, v, c.issued, c.confirmed)
		}
	}
	for _, l := range w.alive() {
		for win := range numWindows {
			for i := range numShared {
				check(l, "counter", win, &l.model.counters[win][i], counterAt+8*i)
			}
			check(l, "guarded word", win, &l.model.guarded[win], guardedAt)
			check(l, "tally", win, &l.model.tally[win], tallyAt)
		}
		for _, to := range w.alive() {
			k := l.links[to]
			if k == nil || k.failed() {
				continue
			}
			for task, n := range k.sent {
				s := sender{l.rank, task}
				got := max(to.model.messages[s], l.incarnation<<32)
				for to.model.withdrawn[s][got] {
					got++
				}
				if got != l.incarnation<<32|n && n > 0 {
					w.failf("rank %d task %d sent %d messages to rank %d, which took up to %x", l.rank, task, n, to.rank, got)
				}
			}
		}
	}
}

// failedAt checks an error: only the failure of a rank that the plan lets fail is in
// order, and only in time.
func (t *task) failedAt(to *life, err error, since int64) bool {
	if err == nil {
		return false
	}
	w := t.w
	from, ok := w.mayFail(t.l, to)
	if !ok || !errors.Is(err, mpierr.ProcFailed) {
		w.failf("rank %d, %s at rank %d: %v", t.l.rank, t.doing, to.rank, err)
	}
	if took := w.now - max(from, since); took > w.failsWithin(t.l.rank, to.rank) {
		w.failf("rank %d, %s at rank %d: failed only after %d ms", t.l.rank, t.doing, to.rank, took/millisecond)
	}
	return true
}

// bundleID names a bundle, or a piece of one, among those that a rank has sent: by the
// session id in its frames, its class and its sequence number.
type bundleID struct {
	session, seq uint64
	at           uint32 // where the piece begins
	response     bool
}

// sends counts how often a bundle was sent.
type sends struct {
	n     int
	first int64
}

// mostSends is how often a bundle or a hello may be sent: a peer that does not take it is
// dead some time. With loss all around a bundle needs a few dozen.
const mostSends = 100

// exchange is bundleID.at of exchanges.
const exchange = 1<<32 - 1

// countSend sees that no bundle is sent without end.
func (w *World) countSend(l *life, b []byte) {
	id := bundleID{session: le.Uint64(b[8:]), seq: le.Uint64(b[32:]), response: b[6]&wire.FlagResponse != 0}
	switch wire.Kind(b[5]) {
	case wire.KindHello:
		id.seq = le.Uint64(b[len(b)-8:]) // the code
		if !w.plan.keyed {
			id.seq = le.Uint64(b[wire.HeaderLen+24:]) // the id of the session that it is for
		}
	case wire.KindData:
		var piece wire.PieceOf
		if id.seq == 0 && piece.Decode(b[wire.HeaderLen:]) {
			id.seq, id.at = piece.Sequence, piece.Offset
		}
		if id.seq == 0 {
			return // a probe, of which each is new
		}
	case wire.KindExpress:
		if id.response {
			return // each is to a request of its own
		}
		id.at = exchange
	default:
		return
	}
	s := l.sends[id]
	if s == nil {
		s = &sends{first: w.now}
		l.sends[id] = s
	}
	if s.n++; s.n > w.most {
		w.most = s.n
	}
	if s.n > mostSends {
		w.failf("rank %d has sent a frame %d times in %d ms: %s", l.rank, s.n, (w.now-s.first)/millisecond, describeFrame(b))
	}
}
