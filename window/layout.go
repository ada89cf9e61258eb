package window

import (
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/mpierr"
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

// Slice returns the memory from the first byte of the layout to the last, and the
// index in it of displacement 0, which may lie outside. Classes: Count if the
// entries reach too far for a datatype, Win, RMARange.
func (l *Layout) Slice(w *Window) (mem []byte, origin int64, class mpierr.Class) {
	lo, hi, err := l.Type.Bounds(l.Count)
	if err != nil {
		return nil, 0, mpierr.Count
	}
	at := int64(l.Disp) + lo
	if l.Disp > maxDisp || at < 0 {
		return nil, 0, mpierr.RMARange
	}
	mem, class = w.Slice(uint64(at), int(hi-lo))
	return mem, -lo, class
}

// open is Slice, and places it before n bytes from position on; Count if there
// are not so many.
func (l *Layout) open(w *Window, it *datatype.Iter, position uint64, n int, elements bool) (mem []byte, origin int64, class mpierr.Class) {
	mem, origin, class = l.Slice(w)
	if class != mpierr.Success {
		return nil, 0, class
	}
	if elements {
		it.ResetElements(l.Type, l.Count)
	} else {
		it.Reset(l.Type, l.Count)
	}
	if position > maxDisp || !it.SeekPacked(int64(position)) || it.Remaining() < int64(n) {
		return nil, 0, mpierr.Count
	}
	return mem, origin, mpierr.Success
}

// Put copies data to the memory. Classes: Count, Win, RMARange.
func (l *Layout) Put(w *Window, it *datatype.Iter, position uint64, data []byte) mpierr.Class {
	mem, origin, class := l.open(w, it, position, len(data), false)
	if l.scatters(w, class) {
		return l.blocks(w, it, 0, position, len(data), func(mem []byte) {
			datatype.CopyIn(mem, data[:len(mem)])
			data = data[len(mem):]
		})
	}
	if class == mpierr.Success {
		it.Unpack(mem, origin, data)
	}
	return class
}

// Get fills dst from the memory. Classes: Count, Win, RMARange.
func (l *Layout) Get(w *Window, it *datatype.Iter, position uint64, dst []byte) mpierr.Class {
	mem, origin, class := l.open(w, it, position, len(dst), false)
	if l.scatters(w, class) {
		return l.blocks(w, it, 0, position, len(dst), func(mem []byte) {
			datatype.CopyOut(dst[:len(mem)], mem)
			dst = dst[len(mem):]
		})
	}
	if class == mpierr.Success {
		it.Pack(dst, mem, origin)
	}
	return class
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
	mem, origin, class := l.elements(w, it, b, position, len(data))
	if l.scatters(w, class) {
		return l.blocks(w, it, b, position, len(data), func(mem []byte) {
			datatype.Accumulate(op, b, mem, data[:len(mem)])
			data = data[len(mem):]
		})
	}
	if class != mpierr.Success {
		return class
	}
	for len(data) > 0 {
		off, n, _, _ := it.Next(len(data))
		datatype.Accumulate(op, b, mem[origin+off:][:n], data[:n])
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
	mem, origin, class := l.elements(w, it, b, position, len(result))
	if l.scatters(w, class) {
		return l.blocks(w, it, b, position, len(result), func(mem []byte) {
			n := len(mem)
			operand := data
			if data != nil {
				operand, data = data[:n], data[n:]
			}
			datatype.GetAccumulate(op, b, mem, operand, result[:n])
			result = result[n:]
		})
	}
	if class != mpierr.Success {
		return class
	}
	for len(result) > 0 {
		off, n, _, _ := it.Next(len(result))
		operand := data
		if data != nil {
			operand, data = data[:n], data[n:]
		}
		datatype.GetAccumulate(op, b, mem[origin+off:][:n], operand, result[:n])
		result = result[n:]
	}
	return mpierr.Success
}

// elements is open for n bytes of elements of type b. It looks at the alignment
// of all of them before any is changed.
func (l *Layout) elements(w *Window, it *datatype.Iter, b datatype.Basic, position uint64, n int) (mem []byte, origin int64, class mpierr.Class) {
	if l.Type.Basic() != b {
		return nil, 0, mpierr.Type
	}
	if n&(b.Size()-1) != 0 {
		return nil, 0, mpierr.Count
	}
	mem, origin, class = l.open(w, it, position, n, true)
	if class != mpierr.Success {
		return nil, 0, class
	}
	for left := n; left > 0; {
		off, n, _, _ := it.Next(left)
		if !datatype.Aligned(b, mem[origin+off:][:n]) {
			return nil, 0, mpierr.Disp
		}
		left -= n
	}
	it.SeekPacked(int64(position))
	return mem, origin, mpierr.Success
}
