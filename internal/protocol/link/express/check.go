package express

import (
	"sync/atomic"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/window"
)

// Padded returns n rounded up to a multiple of 8.
func Padded(n int) int { return (n + 7) &^ 7 }

// Form says what a record that communicates needs: the bytes of the window from its
// displacement on, and the length of its result, which an answer pads to a multiple of 8.
// It returns false for a record that the tier never executes. Records of locks need nothing.
func Form(r *wire.Record) (span, result int, ok bool) {
	n, none := len(r.Data), r.Flags == 0
	switch r.Code {
	case wire.CodeLock:
		return 0, 0, r.Flags <= wire.FlagExclusive && n == 0
	case wire.CodeUnlock:
		return 0, 0, none && n == 0
	case wire.CodePut:
		return n, 0, none && whole(r.Disp, n)
	case wire.CodeGet:
		want, ok := part(r)
		return want, want, none && ok && n == wire.PartLen && whole(r.Disp, want)
	case wire.CodeAccumulate:
		return n, 0, none && combines(r, n)
	case wire.CodeGetAccumulate:
		want, ok := part(r)
		operand := want
		if datatype.Op(r.Op) == datatype.NoOp {
			operand = 0
		}
		return want, want, none && ok && n == wire.PartLen+operand && combines(r, want)
	case wire.CodeCompareSwap:
		size := integerSize(r.Basic)
		return size, size, none && size != 0 && n == 2*size && r.Disp%uint64(size) == 0
	}
	return 0, 0, false
}

// part reads how many bytes of result r asks for, which is to be the whole result.
func part(r *wire.Record) (want int, ok bool) {
	if len(r.Data) < wire.PartLen {
		return 0, false
	}
	offset, length := wire.Part(r.Data)
	return int(length), offset == 0 && length <= MaxResults
}

// whole reports whether n bytes at a displacement are moved without tearing an element
// by words of 8 bytes and what is left of them.
func whole(disp uint64, n int) bool {
	switch n {
	case 0:
		return false
	case 1, 2, 4:
		return disp%uint64(n) == 0
	}
	return disp%8 == 0
}

// combines reports whether the tier executes the accumulate r on n bytes of the window.
func combines(r *wire.Record, n int) bool {
	size, op := integerSize(r.Basic), datatype.Op(r.Op)
	if size == 0 || n == 0 || n%size != 0 || r.Disp%uint64(size) != 0 || op < datatype.Sum || op > datatype.NoOp {
		return false
	}
	if n == size {
		return true
	}
	switch op {
	case datatype.Sum, datatype.BAnd, datatype.BOr, datatype.BXor, datatype.Replace:
		return size >= 4 && n/size <= MaxElements
	}
	return false
}

// integerSize returns the size of an integer, 0 if basic is none.
func integerSize(basic uint8) int {
	b := datatype.Basic(basic)
	if b < datatype.BasicInt8 || b > datatype.BasicUint64 {
		return 0
	}
	return b.Size()
}

// step is one record of a request that may be executed.
type step struct {
	wire.Record
	mem    []byte           // of the window, that the record is about
	lock   *window.LockWord // of CodeLock and CodeUnlock
	result int              // bytes
	gone   bool             // its window is not exposed any more
}

// plan is a request all of whose records may be executed.
type plan struct {
	steps   [MaxRecords]step
	n       int
	results int   // bytes of all of them, padded
	fate    uint8 // of the request when it is done
}

// check reads the records of a request from a rank into p. It returns the reason why they
// cannot be executed here. A request that goes on need not have all of its windows left.
func (t *Tables) check(p *plan, rank uint32, body []byte, n int, goesOn bool) Reason {
	rest := body
	for p.n = 0; p.n < n; p.n++ {
		s := &p.steps[p.n]
		size := wire.NextRecord(rest, &s.Record)
		if size == 0 {
			return BadForm
		}
		rest = rest[size:]
		span, result, ok := Form(&s.Record)
		if !ok {
			return Operation
		}
		w, ok := t.find(s.Window)
		s.gone = !ok
		switch {
		case !ok && !goesOn:
			return NoWindow
		case ok && !w.admits(rank):
			return Outsider
		}
		switch {
		case s.Code == wire.CodeLock, s.Code == wire.CodeUnlock:
			if !p.locks(n) {
				return Operation
			}
			if ok && w.lock == nil {
				return Locked
			}
			s.lock = w.lock
		case ok:
			size := min(atomic.LoadUint64(&w.entry.Size), uint64(len(w.mem)))
			if s.Disp > size || uint64(span) > size-s.Disp || !onOnePage(atomic.LoadUint64(&w.entry.Base)+s.Disp, span, s.Code) {
				return Bounds
			}
			s.mem = w.mem[s.Disp:][:span:span]
		}
		s.result = result
		p.results += Padded(result)
	}
	last := &p.steps[n-1]
	if (p.steps[0].Code == wire.CodeLock) != (last.Code == wire.CodeUnlock) {
		return Operation
	}
	records := len(body) - len(rest)
	if len(body) != max(records, p.results) {
		return BadForm
	}
	return None
}

// locks reports whether the record of a lock that was just read is in its place in a
// request of n records: a lock is the first, and the unlock of the same window the last.
func (p *plan) locks(n int) bool {
	first, s := &p.steps[0], &p.steps[p.n]
	if s.Code == wire.CodeLock {
		return p.n == 0 && n > 1
	}
	return p.n == n-1 && first.Code == wire.CodeLock && first.Window == s.Window
}

// onOnePage reports whether the program reaches span bytes at an address in a chunk
// through one page of it.
func onOnePage(at uint64, span int, code wire.Code) bool {
	offset := at % PageLen
	if span > 8 && (code == wire.CodePut || code == wire.CodeGet) && offset > farthest {
		return false
	}
	return offset+uint64(span) <= PageLen
}
