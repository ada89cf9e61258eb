package windows

import (
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/elements"
	"github.com/xdprma/xdprma/internal/words"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

// Layout is memory of a window that a datatype describes: Count entries of Type,
// with displacement 0 at byte Disp of the window. Its methods are the typed
// counterparts of the window's data path, and check what came from the wire in
// the same way. They move the part of the packed data that starts at position,
// and walk the memory with an iterator of the caller's, whose state does not
// matter. The datatype must be committed. In a dynamic window its blocks must be
// attached, and not its gaps.
type Layout struct {
	Disp  uint64
	Type  *datatype.Type
	Count int
}

// maxDisp is beyond every window and leaves room for what a datatype adds.
const maxDisp = 1 << 61

// located is a layout whose place in the window is known.
type located struct {
	w      *Window
	disp   uint64
	mem    []byte // from the first byte to the last; nil if it lies in several regions of a dynamic window
	origin int64  // the index in mem of displacement 0, which may lie outside
}

// block returns n bytes at an offset from displacement 0. They are inside.
func (s *located) block(off int64, n int) []byte {
	if s.mem != nil {
		return s.mem[s.origin+off:][:n]
	}
	mem, _ := s.w.Slice(s.disp+uint64(off), n)
	return mem
}

// Check reports whether the layout lies in the window and has n bytes from
// position on. Of a dynamic window, memory between its blocks need not be
// attached; then every call looks at the blocks that it needs. Classes: Count, Win,
// RMARange.
func (l *Layout) Check(w *Window, it *datatype.Iter, position uint64, n int) mpierr.Class {
	_, class := l.place(w, it, position, n, false)
	return class
}

// place is Check, and puts it before the bytes.
func (l *Layout) place(w *Window, it *datatype.Iter, position uint64, n int, elements bool) (located, mpierr.Class) {
	lo, hi, err := l.Type.Bounds(l.Count)
	if err != nil {
		return located{}, mpierr.Count
	}
	if l.Disp > maxDisp || int64(l.Disp)+lo < 0 {
		return located{}, mpierr.RMARange
	}
	mem, class := w.Slice(l.Disp+uint64(lo), int(hi-lo))
	if class == mpierr.RMARange && w.flavor == window.FlavorDynamic {
		mem = nil
	} else if class != mpierr.Success {
		return located{}, class
	}
	if elements {
		it.ResetElements(l.Type, l.Count)
	} else {
		it.Reset(l.Type, l.Count)
	}
	if position > maxDisp || !it.SeekPacked(int64(position)) || it.Remaining() < int64(n) {
		return located{}, mpierr.Count
	}
	return located{w: w, disp: l.Disp, mem: mem, origin: -lo}, mpierr.Success
}

// open is place for n bytes that are accessed next.
func (l *Layout) open(w *Window, it *datatype.Iter, position uint64, n int, elements bool) (located, mpierr.Class) {
	s, class := l.place(w, it, position, n, elements)
	if class != mpierr.Success || s.mem != nil {
		return s, class
	}
	for n > 0 {
		off, block, _, _ := it.Next(n)
		if _, class := w.Slice(l.Disp+uint64(off), block); class != mpierr.Success {
			return located{}, class
		}
		n -= block
	}
	it.SeekPacked(int64(position))
	return s, mpierr.Success
}

// Put copies data to the memory. Classes: Count, Win, RMARange.
func (l *Layout) Put(w *Window, it *datatype.Iter, position uint64, data []byte) mpierr.Class {
	s, class := l.open(w, it, position, len(data), false)
	if class != mpierr.Success {
		return class
	}
	for len(data) > 0 {
		off, n, _, _ := it.Next(len(data))
		words.CopyIn(s.block(off, n), data[:n])
		data = data[n:]
	}
	return mpierr.Success
}

// Get fills dst from the memory. Classes: Count, Win, RMARange.
func (l *Layout) Get(w *Window, it *datatype.Iter, position uint64, dst []byte) mpierr.Class {
	s, class := l.open(w, it, position, len(dst), false)
	if class != mpierr.Success {
		return class
	}
	for len(dst) > 0 {
		off, n, _, _ := it.Next(len(dst))
		words.CopyOut(dst[:n], s.block(off, n))
		dst = dst[n:]
	}
	return mpierr.Success
}

// Accumulate combines data, elements of type b, into the memory. Classes: those
// of Window.Accumulate, and Type if not all elements of the layout are of type b.
// A refusal changes nothing.
func (l *Layout) Accumulate(w *Window, it *datatype.Iter, op datatype.Op, b datatype.Basic, position uint64, data []byte) mpierr.Class {
	if class := op.Check(b); class != mpierr.Success {
		return class
	}
	if op == datatype.NoOp {
		return mpierr.Op
	}
	s, class := l.elements(w, it, b, position, len(data))
	if class != mpierr.Success {
		return class
	}
	for len(data) > 0 {
		off, n, _, _ := it.Next(len(data))
		elements.Accumulate(op, b, s.block(off, n), data[:n])
		data = data[n:]
	}
	return mpierr.Success
}

// GetAccumulate is Accumulate, and stores the former values in result, as
// Window.GetAccumulate does. A refusal changes nothing.
func (l *Layout) GetAccumulate(w *Window, it *datatype.Iter, op datatype.Op, b datatype.Basic, position uint64, data, result []byte) mpierr.Class {
	if class := op.Check(b); class != mpierr.Success {
		return class
	}
	if op == datatype.NoOp {
		data = nil
	} else if len(data) != len(result) {
		return mpierr.Count
	}
	s, class := l.elements(w, it, b, position, len(result))
	if class != mpierr.Success {
		return class
	}
	for len(result) > 0 {
		off, n, _, _ := it.Next(len(result))
		operand := data
		if data != nil {
			operand, data = data[:n], data[n:]
		}
		elements.GetAccumulate(op, b, s.block(off, n), operand, result[:n])
		result = result[n:]
	}
	return mpierr.Success
}

// elements is open for n bytes of elements of type b. It looks at the alignment
// of all of them before any is changed.
func (l *Layout) elements(w *Window, it *datatype.Iter, b datatype.Basic, position uint64, n int) (located, mpierr.Class) {
	if l.Type.Basic() != b {
		return located{}, mpierr.Type
	}
	if n&(b.Size()-1) != 0 {
		return located{}, mpierr.Count
	}
	s, class := l.open(w, it, position, n, true)
	if class != mpierr.Success {
		return located{}, class
	}
	for left := n; left > 0; {
		off, n, _, _ := it.Next(left)
		if !elements.Aligned(b, s.block(off, n)) {
			return located{}, mpierr.Disp
		}
		left -= n
	}
	it.SeekPacked(int64(position))
	return s, mpierr.Success
}
