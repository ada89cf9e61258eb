package datatype

import (
	"github.com/xdprma/xdprma/mpierr"

	"github.com/xdprma/xdprma/internal/words"
)

// Pack copies data out of mem, where displacement 0 is at mem[origin], to dst,
// until dst is full or the data ends, and returns the bytes copied. The iterator
// has advanced by as much; one that keeps elements whole stops before an element
// that does not fit. Memory is read as CopyOut reads it.
//
// It panics if the data is not inside mem; Pack the function checks that.
func (it *Iter) Pack(dst, mem []byte, origin int64) int {
	done := 0
	for done < len(dst) {
		off, n, _, ok := it.Next(len(dst) - done)
		if !ok {
			break
		}
		at := origin + off
		words.CopyOut(dst[done:done+n], mem[at:at+int64(n)])
		done += n
	}
	return done
}

// Unpack copies src to mem, in the way that Pack copies from it, until src or
// the space ends, and returns the bytes copied. Memory is written as CopyIn
// writes it.
func (it *Iter) Unpack(mem []byte, origin int64, src []byte) int {
	done := 0
	for done < len(src) {
		off, n, _, ok := it.Next(len(src) - done)
		if !ok {
			break
		}
		at := origin + off
		words.CopyIn(mem[at:at+int64(n)], src[done:done+n])
		done += n
	}
	return done
}

// Pack copies to dst the packed data of count entries of t, from the byte at
// from on, and returns the bytes copied. The entries are in mem, with
// displacement 0 at mem[origin]; origin itself may be outside of mem. It does
// not block. Its error has class ErrType if t is not committed, ErrCount as Bounds
// has, and ErrArg if mem does not hold all the entries or from is beyond the data.
func Pack(dst, mem []byte, origin int64, t *Type, count int, from int64) (int, error) {
	var it Iter
	if err := begin(&it, "pack", mem, origin, t, count, from); err != nil {
		return 0, err
	}
	return it.Pack(dst, mem, origin), nil
}

// Unpack copies src to count entries of t in mem, as what follows the first from
// bytes of the packed data, and returns the bytes copied. Otherwise it is like
// Pack.
func Unpack(mem []byte, origin int64, t *Type, count int, from int64, src []byte) (int, error) {
	var it Iter
	if err := begin(&it, "unpack", mem, origin, t, count, from); err != nil {
		return 0, err
	}
	return it.Unpack(mem, origin, src), nil
}

func begin(it *Iter, op string, mem []byte, origin int64, t *Type, count int, from int64) error {
	if !t.Committed() {
		return fail(op, mpierr.Type, "%s is not committed", t)
	}
	lo, hi, err := t.Bounds(count)
	if err != nil {
		return err
	}
	if hi > lo && (origin < -lo || origin > int64(len(mem))-hi) {
		return fail(op, mpierr.Arg, "%d entries of %s reach from %d to %d, outside of %d bytes with origin %d", count, t, lo, hi, len(mem), origin)
	}
	it.Reset(t, count)
	if !it.SeekPacked(from) {
		return fail(op, mpierr.Arg, "byte %d of %d", from, it.Size())
	}
	return nil
}
