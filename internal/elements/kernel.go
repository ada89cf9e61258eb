// Package elements combines elements of window memory, each atomically.
package elements

import (
	"encoding/binary"
	"math"
	"sync"
	"sync/atomic"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/words"
)

var le = binary.LittleEndian

// A kernel combines each element of operand into dst and stores the old values
// in result unless that is nil. dst is aligned and a whole number of elements;
// the others are as long as dst and aligned anyhow.
type kernel func(dst, operand, result []byte)

// Accumulate replaces each element of dst, window memory, by op of itself and
// the element at the same place in operand, which holds little-endian values at
// any alignment. The two must not overlap. It does not block.
//
// Each element is updated atomically with respect to every other accumulate on
// elements of its size, in this process and in others that map the same memory,
// and to sync/atomic calls on the same word. Two widths need a word of care:
//
//   - Elements of 1 and 2 bytes are updated by compare-and-swap of the aligned
//     4-byte word around them. Neighbours in that word are not disturbed, inside
//     the window or out of it, but the race detector takes them for accessed.
//   - Elements of 16 bytes (Complex128 and the pairs with a value of 8 bytes) are
//     updated under a lock of this process: they are not atomic with respect to
//     other processes.
//
// It panics if op is not defined for b, if dst is not aligned for b or not a
// whole number of elements, or if the lengths differ; callers check what comes
// from a peer with Op.Check, Aligned and Basic.Size.
func Accumulate(op datatype.Op, b datatype.Basic, dst, operand []byte) {
	k := find(op, b, dst)
	if len(operand) != len(dst) {
		panic("elements: operand and window slice differ in length")
	}
	if op != datatype.NoOp {
		k(dst, operand, nil)
	}
}

// GetAccumulate is Accumulate, and stores in result the little-endian values
// that the elements of dst had before. result must be as long as dst and overlap
// neither dst nor operand. With NoOp, operand is not looked at and may be nil.
func GetAccumulate(op datatype.Op, b datatype.Basic, dst, operand, result []byte) {
	k := find(op, b, dst)
	if op == datatype.NoOp {
		operand = result // any bytes of the right number
	}
	if len(operand) != len(dst) || len(result) != len(dst) {
		panic("elements: operand, result and window slice differ in length")
	}
	if len(dst) > 0 {
		k(dst, operand, result)
	}
}

// CompareAndSwap replaces dst, one element of type b in window memory, by swap
// if it equals compare, and stores in result the value it had before. It is
// atomic as Accumulate is. It panics unless b.Comparable, dst is aligned, and
// all four slices are one element long.
func CompareAndSwap(b datatype.Basic, dst, compare, swap, result []byte) {
	size := b.Size()
	if !b.Comparable() || !Aligned(b, dst) {
		panic("elements: compare-and-swap of a type it is not defined for, or not aligned")
	}
	if len(dst) != size || len(compare) != size || len(swap) != size || len(result) != size {
		panic("elements: compare-and-swap of more or less than one element")
	}
	switch size {
	case 8:
		p, want, next := words.Word64(dst, 0), le.Uint64(compare), le.Uint64(swap)
		old := atomic.LoadUint64(p)
		for old == want && !atomic.CompareAndSwapUint64(p, old, next) {
			old = atomic.LoadUint64(p)
		}
		le.PutUint64(result, old)
	case 4:
		p, want, next := words.Word32(dst, 0), le.Uint32(compare), le.Uint32(swap)
		old := atomic.LoadUint32(p)
		for old == want && !atomic.CompareAndSwapUint32(p, old, next) {
			old = atomic.LoadUint32(p)
		}
		le.PutUint32(result, old)
	default:
		want, next := loadNarrow(compare, size), loadNarrow(swap, size)
		old := updateNarrow(dst, 0, size, next, func(a, b uint32) uint32 {
			if a == want {
				return b
			}
			return a
		})
		storeNarrow(result, size, old)
	}
}

// Aligned reports whether elements of type b at the start of dst can be
// accumulated. An empty dst is always aligned.
func Aligned(b datatype.Basic, dst []byte) bool {
	return len(dst) == 0 || words.Address(dst)&uintptr(b.Align()-1) == 0
}

func find(op datatype.Op, b datatype.Basic, dst []byte) kernel {
	if !op.Valid() || !b.Valid() || kernels[op][b] == nil {
		panic("elements: operator not defined for the datatype")
	}
	if len(dst)&(b.Size()-1) != 0 || !Aligned(b, dst) {
		panic("elements: window slice not aligned, or not a whole number of elements")
	}
	return kernels[op][b]
}

// Where combining leaves an element as it was, its atomic load was the whole
// operation and nothing is written.

func lift8(f func(a, b uint64) uint64) kernel {
	return func(dst, operand, result []byte) {
		for i := 0; i < len(dst); i += 8 {
			p, v := words.Word64(dst, i), le.Uint64(operand[i:])
			old := atomic.LoadUint64(p)
			for next := f(old, v); next != old && !atomic.CompareAndSwapUint64(p, old, next); next = f(old, v) {
				old = atomic.LoadUint64(p)
			}
			if result != nil {
				le.PutUint64(result[i:], old)
			}
		}
	}
}

func lift4(f func(a, b uint32) uint32) kernel {
	return func(dst, operand, result []byte) {
		for i := 0; i < len(dst); i += 4 {
			p, v := words.Word32(dst, i), le.Uint32(operand[i:])
			old := atomic.LoadUint32(p)
			for next := f(old, v); next != old && !atomic.CompareAndSwapUint32(p, old, next); next = f(old, v) {
				old = atomic.LoadUint32(p)
			}
			if result != nil {
				le.PutUint32(result[i:], old)
			}
		}
	}
}

func lift2(f func(a, b uint32) uint32) kernel { return liftNarrow(2, f) }
func lift1(f func(a, b uint32) uint32) kernel { return liftNarrow(1, f) }

func liftNarrow(size int, f func(a, b uint32) uint32) kernel {
	return func(dst, operand, result []byte) {
		for i := 0; i < len(dst); i += size {
			old := updateNarrow(dst, i, size, loadNarrow(operand[i:], size), f)
			if result != nil {
				storeNarrow(result[i:], size, old)
			}
		}
	}
}

// updateNarrow replaces the element of 1 or 2 bytes at dst[i] by f of itself and
// v, and returns what it was.
func updateNarrow(dst []byte, i, size int, v uint32, f func(a, b uint32) uint32) uint32 {
	p, shift := words.Container(dst, i)
	mask := uint32(1)<<(8*size) - 1
	for {
		all := atomic.LoadUint32(p)
		old := all >> shift & mask
		next := f(old, v) & mask
		if next == old || atomic.CompareAndSwapUint32(p, all, all&^(mask<<shift)|next<<shift) {
			return old
		}
	}
}

func loadNarrow(b []byte, size int) uint32 {
	if size == 1 {
		return uint32(b[0])
	}
	return uint32(le.Uint16(b))
}

func storeNarrow(b []byte, size int, v uint32) {
	if size == 1 {
		b[0] = byte(v)
		return
	}
	le.PutUint16(b, uint16(v))
}

// wideLocks guard the elements of 16 bytes, chosen by address.
var wideLocks [64]struct {
	sync.Mutex
	_ [56]byte // a cache line each
}

// wide is an element of 16 bytes.
type wide struct{ low, high uint64 }

func liftWide(f func(a, b wide) wide) kernel {
	return func(dst, operand, result []byte) {
		base := words.Address(dst)
		for i := 0; i < len(dst); i += 16 {
			v := loadWide(operand[i:])
			lock := &wideLocks[(base+uintptr(i))>>4%uintptr(len(wideLocks))]
			lock.Lock()
			old := loadWide(dst[i:])
			storeWide(dst[i:], f(old, v))
			lock.Unlock()
			if result != nil {
				storeWide(result[i:], old)
			}
		}
	}
}

func lift16(f func(a, b complex128) complex128) kernel {
	return liftWide(func(a, b wide) wide {
		c := f(a.complex(), b.complex())
		return wide{math.Float64bits(real(c)), math.Float64bits(imag(c))}
	})
}

func (w wide) complex() complex128 {
	return complex(math.Float64frombits(w.low), math.Float64frombits(w.high))
}

func loadWide(b []byte) wide { return wide{le.Uint64(b), le.Uint64(b[8:])} }

func storeWide(b []byte, w wide) {
	le.PutUint64(b, w.low)
	le.PutUint64(b[8:], w.high)
}

func add8(dst, operand, result []byte) {
	for i := 0; i < len(dst); i += 8 {
		v := le.Uint64(operand[i:])
		sum := atomic.AddUint64(words.Word64(dst, i), v)
		if result != nil {
			le.PutUint64(result[i:], sum-v)
		}
	}
}

func add4(dst, operand, result []byte) {
	for i := 0; i < len(dst); i += 4 {
		v := le.Uint32(operand[i:])
		sum := atomic.AddUint32(words.Word32(dst, i), v)
		if result != nil {
			le.PutUint32(result[i:], sum-v)
		}
	}
}

func swap8(dst, operand, result []byte) {
	for i := 0; i < len(dst); i += 8 {
		old := atomic.SwapUint64(words.Word64(dst, i), le.Uint64(operand[i:]))
		if result != nil {
			le.PutUint64(result[i:], old)
		}
	}
}

func swap4(dst, operand, result []byte) {
	for i := 0; i < len(dst); i += 4 {
		old := atomic.SwapUint32(words.Word32(dst, i), le.Uint32(operand[i:]))
		if result != nil {
			le.PutUint32(result[i:], old)
		}
	}
}
