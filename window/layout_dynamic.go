package window

import (
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/mpierr"
)

// scatters reports whether memory that was refused with class may still be reached
// block by block: in a dynamic window the gaps of a datatype need not be attached,
// and its blocks may lie in several regions.
func (l *Layout) scatters(w *Window, class mpierr.Class) bool {
	return class == mpierr.RMARange && w.flavor == FlavorDynamic
}

// blocks calls use with the memory of every block of n bytes of packed data from
// position on: of elements of type b, or of bytes if b is 0. It looks at all of
// them before it uses any. Classes: Count, Win, RMARange, Disp.
func (l *Layout) blocks(w *Window, it *datatype.Iter, b datatype.Basic, position uint64, n int, use func(mem []byte)) mpierr.Class {
	for _, looking := range [...]bool{true, false} {
		if b == 0 {
			it.Reset(l.Type, l.Count)
		} else {
			it.ResetElements(l.Type, l.Count)
		}
		if position > maxDisp || !it.SeekPacked(int64(position)) || it.Remaining() < int64(n) {
			return mpierr.Count
		}
		for left := n; left > 0; {
			off, size, _, ok := it.Next(left)
			if !ok {
				return mpierr.Count
			}
			mem, class := w.Slice(l.Disp+uint64(off), size)
			switch {
			case class != mpierr.Success:
				return class
			case b != 0 && !datatype.Aligned(b, mem):
				return mpierr.Disp
			case !looking:
				use(mem)
			}
			left -= size
		}
	}
	return mpierr.Success
}
