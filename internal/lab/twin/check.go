package twin

import (
	"sync/atomic"

	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/window"
)

// step is one record of a request that may be executed.
type step struct {
	wire.Record
	mem    []byte            // of the window, that the record is about
	lock   *windows.LockWord // of CodeLock and CodeUnlock
	result int               // bytes
	counts *windows.Counters // of which that of the token counts up; nil: none does
	gone   bool              // its window is not exposed any more
}

// plan is a request all of whose records may be executed.
type plan struct {
	steps   [express.MaxRecords]step
	n       int
	results int  // bytes of all of them, padded
	goesOn  bool // it was begun before, so that not all of its windows need be left
}

// check reads the n records of a request from a rank into r. It returns the reason why they
// cannot be executed here.
func (p *Program) check(r *plan, rank uint32, body []byte, n int) Reason {
	rest := body
	for r.n = 0; r.n < n; r.n++ {
		s := &r.steps[r.n]
		size := wire.NextRecord(rest, &s.Record)
		if size == 0 {
			return BadForm
		}
		rest = rest[size:]
		span, result, ok := onesided.Form(&s.Record)
		if !ok {
			return Operation
		}
		e := p.Find(s.Window)
		s.gone = e == nil
		switch {
		case s.gone && !r.goesOn:
			return NoWindow
		case !s.gone && (!e.MayAny(rank) || !e.May(rank, needs(&s.Record))):
			return NoAccess
		case !s.gone && s.Notifies():
			if s.Token >= atomic.LoadUint32(&e.Counts) {
				return Bounds
			}
			s.counts = p.shown[s.Window].counters
		}
		switch {
		case s.Code == wire.CodeLock, s.Code == wire.CodeUnlock:
			if !r.locks(n) {
				return Operation
			}
			if s.gone {
				break
			}
			if atomic.LoadUint32(&e.Flags)&express.FlagLock == 0 {
				return Locked
			}
			s.lock = p.shown[s.Window].lock
		case !s.gone && s.Code != wire.CodeNotify:
			size := atomic.LoadUint64(&e.Size)
			if s.Disp > size || uint64(span) > size-s.Disp || !onOnePage(atomic.LoadUint64(&e.Base)+s.Disp, span, s.Code) {
				return Bounds
			}
			s.mem = p.shown[s.Window].mem[s.Disp:][:span:span]
		}
		s.result = result
		r.results += express.Padded(result)
	}
	last := &r.steps[n-1]
	if (r.steps[0].Code == wire.CodeLock) != (last.Code == wire.CodeUnlock) {
		return Operation
	}
	records := len(body) - len(rest)
	if len(body) != max(records, r.results) {
		return BadForm
	}
	return None
}

// needs returns the rights that a record needs. An unlock is of a lock in the same request, and
// needs the right of that.
func needs(r *wire.Record) uint8 {
	if r.Code == wire.CodeUnlock {
		return uint8(window.MayLock)
	}
	return uint8(onesided.Needs(r))
}

// locks reports whether the record of a lock that was just read is in its place in a
// request of n records: a lock is the first, and the unlock of the same window the last.
func (r *plan) locks(n int) bool {
	first, s := &r.steps[0], &r.steps[r.n]
	if s.Code == wire.CodeLock {
		return r.n == 0 && n > 1
	}
	return r.n == n-1 && first.Code == wire.CodeLock && first.Window == s.Window
}

// onOnePage reports whether the program reaches span bytes at an address in a chunk
// through one page of it.
func onOnePage(at uint64, span int, code wire.Code) bool {
	offset := at % express.PageLen
	if span > 8 && (code == wire.CodePut || code == wire.CodeGet) && offset > express.PageLen-express.MaxResults {
		return false
	}
	return offset+uint64(span) <= express.PageLen
}
