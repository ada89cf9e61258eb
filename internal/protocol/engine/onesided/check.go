package onesided

import (
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/window"
)

// Checking mode: the target remembers what each origin has accessed in its window
// until the origin completes it, and reports accesses that conflict (section
// 11.7). The end of a lock's epoch it sees itself; of flushes the origin tells it
// with a CodeMark, applied after all before it, and the flush waits until that has been applied.

// Ordered lets a window's checker forget everything: all that has been issued to the
// window is ordered before all that will be.
func (x *base) Ordered(id uint32) {
	if w := x.cfg.Windows.Lookup(id); w != nil {
		w.Checker().EndAll()
	}
}

// completed lets the window's checker forget what an origin has completed.
func (x *base) completed(holder uint64, id uint32, onlyReads bool) {
	w := x.cfg.Windows.Lookup(id)
	switch {
	case w == nil:
	case onlyReads:
		w.Checker().EndReads(holder)
	default:
		w.Checker().End(holder)
	}
}

// forget lets the checkers of all windows forget s, which is dead.
func (x *base) forget(s *Peer) {
	x.cfg.Windows.All(func(w *windows.Window) { w.Checker().End(s.ID()) })
}

// note tells a window's checker of an access of n bytes.
func (x *base) note(c *windows.Checker, holder uint64, a window.Access, start uint64, n int, remember, ordered bool) {
	before := c.Total()
	c.Turn(x.turn)
	for _, k := range c.Note(holder, a, start, n, remember, ordered) {
		if x.cfg.OnConflict != nil {
			x.cfg.OnConflict(k)
		}
	}
	x.totals.Conflicts += uint64(c.Total() - before)
}

// observe tells a window's checker of a request that has been applied.
func (x *Target) observe(s *Peer, c *windows.Checker, r *wire.Record) {
	a, n, remember := accessOf(s, r, r.Data)
	x.note(c, s.ID(), a, r.Disp, n, remember, r.Flags&wire.FlagInOrder != 0)
}

// observeTyped is observe for a request with a datatype, block by block.
func (x *Target) observeTyped(s *Peer, c *windows.Checker, r *wire.Record) {
	var where wire.Layout
	data, _ := where.Get(r.Data)
	a, n, remember := accessOf(s, r, data)
	it := &x.walks.bytes
	it.Reset(s.peerType(where.Type), int(where.Count))
	it.SeekPacked(int64(where.Position))
	c.Turn(x.turn)
	for n > 0 && it.Remaining() > 0 && !c.Spent() {
		off, block, _, _ := it.Next(n)
		x.note(c, s.ID(), a, r.Disp+uint64(off), block, remember, r.Flags&wire.FlagInOrder != 0)
		n -= block
	}
}

// accessOf returns what a request does with how many bytes, and whether the origin
// will tell when it has completed. data is that of the record, without a layout.
func accessOf(s *Peer, r *wire.Record, data []byte) (a window.Access, n int, remember bool) {
	row := r.Code.Row()
	a, n = window.Access{Origin: s.Rank(), Call: row.Call}, len(data)
	if r.Code.Accumulates() {
		a.Op, a.Basic = datatype.Op(r.Op), datatype.Basic(r.Basic)
	}
	remember = !a.Reads() || r.Flags&wire.FlagFollowed == 0
	switch row.Data {
	case wire.DataPart, wire.DataPartOperand:
		_, want := wire.Part(data)
		n = int(want)
	case wire.DataPair:
		n /= 2
	}
	return a, n, remember
}
