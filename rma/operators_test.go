package rma_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/rma"
)

var allOps = []rma.Op{rma.Sum, rma.Prod, rma.Min, rma.Max, rma.LAnd, rma.LOr, rma.LXor,
	rma.BAnd, rma.BOr, rma.BXor, rma.Replace, rma.NoOp}

// model says what an operator makes of a value in the window and an operand; ok
// is false where it is not defined.
type model[T any] func(op rma.Op, a, b T) (result T, ok bool)

type integer interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~int | ~uint
}

func logical[T integer](v bool) T {
	if v {
		return 1
	}
	return 0
}

func onIntegers[T integer](op rma.Op, a, b T) (T, bool) {
	switch op {
	case rma.LAnd:
		return logical[T](a != 0 && b != 0), true
	case rma.LOr:
		return logical[T](a != 0 || b != 0), true
	case rma.LXor:
		return logical[T]((a != 0) != (b != 0)), true
	case rma.BAnd:
		return a & b, true
	case rma.BOr:
		return a | b, true
	case rma.BXor:
		return a ^ b, true
	}
	return onReals(op, a, b)
}

func onReals[T integer | float32 | float64](op rma.Op, a, b T) (T, bool) {
	switch op {
	case rma.Sum:
		return a + b, true
	case rma.Prod:
		return a * b, true
	case rma.Min:
		return min(a, b), true
	case rma.Max:
		return max(a, b), true
	}
	return onAny(op, a, b)
}

func onComplex[T complex64 | complex128](op rma.Op, a, b T) (T, bool) {
	switch op {
	case rma.Sum:
		return a + b, true
	case rma.Prod:
		return a * b, true
	}
	return onAny(op, a, b)
}

func onBools(op rma.Op, a, b bool) (bool, bool) {
	switch op {
	case rma.LAnd:
		return a && b, true
	case rma.LOr:
		return a || b, true
	case rma.LXor:
		return a != b, true
	}
	return onAny(op, a, b)
}

func onAny[T any](op rma.Op, a, b T) (T, bool) {
	switch op {
	case rma.Replace:
		return b, true
	case rma.NoOp:
		return a, true
	}
	return a, false
}

// TestOperators holds every operation with every operator on every type against
// a model, on another rank's window and on the caller's own.
func TestOperators(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	wins := j.windows(4096, 1)
	w := wins[0]
	j.must(w.LockAll(j.ctx, 0))
	for target, where := range []string{"self", "other"} {
		t.Run(where, func(t *testing.T) {
			b := &bench{t, j, w, target}
			testOperators(b, []int8{1, -3, 127, -128, 0, 5, 7}, onIntegers)
			testOperators(b, []int16{1, -3, 32767, -32768, 0, 5, 7}, onIntegers)
			testOperators(b, []int32{1, -3, 1 << 30, -1 << 31, 0, 5, 7}, onIntegers)
			testOperators(b, []int64{1, -3, 1 << 62, -1 << 63, 0, 5, 7}, onIntegers)
			testOperators(b, []int{2, -3, 1 << 62, -1 << 63, 0, 5, 7}, onIntegers)
			testOperators(b, []uint8{1, 3, 255, 128, 0, 5, 7}, onIntegers)
			testOperators(b, []uint16{1, 3, 65535, 1 << 15, 0, 5, 7}, onIntegers)
			testOperators(b, []uint32{1, 3, 1<<32 - 1, 1 << 31, 0, 5, 7}, onIntegers)
			testOperators(b, []uint64{1, 3, 1<<64 - 1, 1 << 63, 0, 5, 7}, onIntegers)
			testOperators(b, []uint{2, 3, 1<<64 - 1, 1 << 63, 0, 5, 7}, onIntegers)
			testOperators(b, []float32{1.5, -3.25, 1e30, -1e-30, 0, 5, 7}, onReals)
			testOperators(b, []float64{1.5, -3.25, 1e300, -1e-300, 0, 5, 7}, onReals)
			testOperators(b, []complex64{1 + 2i, -3, 4i, 0, 5 - 1i}, onComplex)
			testOperators(b, []complex128{1 + 2i, -3, 4i, 0, 5 - 1i}, onComplex)
			testOperators(b, []bool{true, false, true, true, false}, onBools)
			testSwap(b, []int8{-1, 5})
			testSwap(b, []int16{-1, 5})
			testSwap(b, []int32{-1, 5})
			testSwap(b, []int64{-1, 5})
			testSwap(b, []uint8{255, 5})
			testSwap(b, []uint16{65535, 5})
			testSwap(b, []uint32{1<<32 - 1, 5})
			testSwap(b, []uint64{1<<64 - 1, 5})
			testSwap(b, []bool{true, false})
			testBytes(b)
		})
	}
	j.must(w.UnlockAll(j.ctx))
}

// bench is where the operations of a test go.
type bench struct {
	*testing.T
	j      *job
	w      *rma.Win
	target int
}

const benchDisp = 64

func (b *bench) at() rma.Location { return rma.At(benchDisp) }

// put and get set and read the window by Put and Get.
func put[T datatype.Element](b *bench, values []T) {
	b.Helper()
	b.j.must(b.w.Put(buffer.Of(values), b.target, b.at()), b.w.Flush(b.j.ctx, b.target))
}

func get[T datatype.Element](b *bench, n int) []T {
	b.Helper()
	got := make([]T, n)
	b.j.must(b.w.Get(buffer.Of(got), b.target, b.at()), b.w.Flush(b.j.ctx, b.target))
	return got
}

func testOperators[T interface {
	datatype.Element
	comparable
}](b *bench, values []T, m model[T]) {
	before := values
	operand := slices.Clone(values)
	slices.Reverse(operand)
	for _, op := range allOps {
		want, defined := slices.Clone(before), false
		for i := range want {
			want[i], defined = m(op, before[i], operand[i])
		}
		name := fmt.Sprintf("%T %v", before, op)
		check := func(call string, err error, allowed bool, old, expect []T) {
			b.Helper()
			if !allowed {
				if !errors.Is(err, rma.ErrOp) {
					b.Errorf("%s %s: got %v, want class op", name, call, err)
				}
				expect = before
			} else if err != nil {
				b.Errorf("%s %s: %v", name, call, err)
			}
			b.j.must(b.w.Flush(b.j.ctx, b.target))
			if allowed && old != nil && !slices.Equal(old, before[:len(old)]) {
				b.Errorf("%s %s returned %v, want %v", name, call, old, before[:len(old)])
			}
			if got := get[T](b, len(before)); !slices.Equal(got, expect) {
				b.Errorf("%s %s left %v, want %v", name, call, got, expect)
			}
			put(b, before)
		}
		put(b, before)
		err := b.w.Accumulate(buffer.Of(operand), b.target, b.at(), op)
		check("accumulate", err, defined && op != rma.NoOp, nil, want)

		old := make([]T, len(before))
		err = b.w.GetAccumulate(buffer.Of(operand), buffer.Of(old), b.target, b.at(), op)
		b.j.must(b.w.Flush(b.j.ctx, b.target))
		check("get_accumulate", err, defined, old, want)

		old = make([]T, 1)
		err = b.w.FetchAndOp(buffer.Value(&operand[0]), buffer.Of(old), b.target, b.at(), op)
		b.j.must(b.w.Flush(b.j.ctx, b.target))
		check("fetch_and_op", err, defined, old, append(want[:1:1], before[1:]...))
	}
}

// testSwap swaps with a comparison that holds, and with one that does not.
func testSwap[T interface {
	datatype.Element
	comparable
}](b *bench, v []T) {
	for _, c := range []struct{ window, compare, want T }{{v[0], v[0], v[1]}, {v[0], v[1], v[0]}} {
		put(b, []T{c.window})
		var old T
		b.j.must(b.w.CompareAndSwap(buffer.Value(&v[1]), buffer.Value(&c.compare), buffer.Value(&old), b.target, b.at()), b.w.Flush(b.j.ctx, b.target))
		if got := get[T](b, 1); old != c.window || got[0] != c.want {
			b.Errorf("%T: compare_and_swap of %v with %v returned %v and left %v, want %v", v, c.window, c.compare, old, got[0], c.want)
		}
	}
}

// testBytes does bitwise operations and compare and swap on data of type byte.
func testBytes(b *bench) {
	put(b, []byte{0xf0, 0x0f, 3})
	b.j.must(b.w.Accumulate(buffer.Bytes([]byte{0x3c, 0x3c, 5}), b.target, b.at(), rma.BXor))
	if got := get[byte](b, 3); !slices.Equal(got, []byte{0xcc, 0x33, 6}) {
		b.Errorf("bxor on bytes left %x", got)
	}
	if err := b.w.Accumulate(buffer.Bytes([]byte{1}), b.target, b.at(), rma.Sum); !errors.Is(err, rma.ErrOp) {
		b.Errorf("sum on bytes: got %v, want class op", err)
	}
	old := []byte{0}
	b.j.must(b.w.CompareAndSwap(buffer.Bytes([]byte{9}), buffer.Bytes([]byte{0xcc}), buffer.Bytes(old), b.target, b.at()), b.w.Flush(b.j.ctx, b.target))
	if got := get[byte](b, 1); old[0] != 0xcc || got[0] != 9 {
		b.Errorf("compare_and_swap on bytes returned %x and left %x", old, got)
	}
}

// TestNoOpIgnoresOrigin reads atomically with origins that would otherwise be
// wrong: none, of another type or length, and the result itself.
func TestNoOpIgnoresOrigin(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	w := j.windows(64, 8)[0]
	values, result, element := []int64{0, 1, 2, 3, 4, 5, 6, 7}, make([]int64, 4), int64(0)
	for target := range 2 {
		j.must(w.Lock(j.ctx, rma.LockExclusive, target, 0), w.Put(buffer.Of(values), target, rma.At(0)), w.Flush(j.ctx, target))
		for name, origin := range map[string]buffer.Buffer{
			"none": {}, "of another type": buffer.Of([]float64{1}), "shorter": buffer.Of([]int64{1}),
			"longer": buffer.Of(make([]int64, 20000)), "the result": buffer.Of(result),
		} {
			clear(result)
			element = 0
			j.must(w.GetAccumulate(origin, buffer.Of(result), target, rma.At(3), rma.NoOp),
				w.FetchAndOp(origin, buffer.Value(&element), target, rma.At(5), rma.NoOp), w.Flush(j.ctx, target))
			if !slices.Equal(result, values[3:7]) || element != 5 {
				t.Errorf("target %d, origin %s: got %v and %d", target, name, result, element)
			}
		}
		j.must(w.Unlock(j.ctx, target))
	}
}
