package elements

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/xdprma/xdprma/datatype"
)

// TestCombineGivesWhatAccumulateGives compares Combine with Accumulate for every operator and datatype, with
// values of all kinds, the odd ones among floats included, aligned and not.
func TestCombineGivesWhatAccumulateGives(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	odd := []float64{math.NaN(), math.Float64frombits(0xfff8_0000_0000_0abc), math.Float64frombits(0x7ff8_1230_0000_0000), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), math.MaxFloat64, math.SmallestNonzeroFloat64, 1}
	fill := func(b []byte, kind datatype.Basic) {
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		for i := 0; i+8 <= len(b) && kind == datatype.BasicFloat64; i += 16 {
			le.PutUint64(b[i:], math.Float64bits(odd[rng.IntN(len(odd))]))
		}
		for i := 0; i+4 <= len(b) && kind == datatype.BasicFloat32; i += 8 {
			le.PutUint32(b[i:], math.Float32bits(float32(odd[rng.IntN(len(odd))])))
		}
		if kind == datatype.BasicBool {
			for i := range b {
				b[i] &= 1
			}
		}
	}
	tried := 0
	for op := range datatype.Op(opCount) {
		for b := range datatype.Basic(basicCount) {
			if !op.Valid() || !b.Valid() || op.Check(b) != 0 {
				continue
			}
			for _, n := range []int{0, 1, 2, 100} {
				for offset := range 2 {
					size := n * b.Size()
					memory, operand := make([]byte, size+16), make([]byte, size+16)[offset:][:size]
					dst := memory[:size]
					fill(dst, b)
					fill(operand, b)
					want, kept := bytes.Clone(memory), bytes.Clone(operand)
					Accumulate(op, b, want[:size], operand)
					Combine(op, b, dst, operand)
					oneNaN(memory, b)
					oneNaN(want, b)
					if !bytes.Equal(memory, want) || !bytes.Equal(operand, kept) {
						t.Errorf("%v of %d %v, offset %d: % x, want % x", op, n, b, offset, dst, want[:size])
					}
					tried++
				}
			}
		}
	}
	if tried < 500 {
		t.Errorf("%d cases", tried)
	}
	for name, call := range map[string]func(){
		"lengths that differ":  func() { Combine(datatype.Sum, datatype.BasicInt64, make([]byte, 16), make([]byte, 8)) },
		"no operator of it":    func() { Combine(datatype.BAnd, datatype.BasicFloat64, make([]byte, 8), make([]byte, 8)) },
		"not aligned":          func() { Combine(datatype.Sum, datatype.BasicInt64, make([]byte, 16)[1:9], make([]byte, 8)) },
		"no whole element":     func() { Combine(datatype.Sum, datatype.BasicInt64, make([]byte, 9), make([]byte, 9)) },
		"no datatype at all":   func() { Combine(datatype.Sum, 0, make([]byte, 8), make([]byte, 8)) },
		"no operator, at all":  func() { Combine(0, datatype.BasicInt64, make([]byte, 8), make([]byte, 8)) },
		"longer operand, also": func() { Combine(datatype.Sum, datatype.BasicInt64, make([]byte, 8), make([]byte, 16)) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call()
		}()
	}
}

// oneNaN makes all NaN of memory the same.
func oneNaN(memory []byte, b datatype.Basic) {
	for i := 0; i+8 <= len(memory) && b == datatype.BasicFloat64; i += 8 {
		if math.IsNaN(math.Float64frombits(le.Uint64(memory[i:]))) {
			le.PutUint64(memory[i:], math.Float64bits(math.NaN()))
		}
	}
	for i := 0; i+4 <= len(memory) && b == datatype.BasicFloat32; i += 4 {
		if v := math.Float32frombits(le.Uint32(memory[i:])); v != v {
			le.PutUint32(memory[i:], math.Float32bits(float32(math.NaN())))
		}
	}
}

func BenchmarkCombine(b *testing.B) {
	dst, operand := make([]byte, 64<<10), make([]byte, 64<<10)
	for _, f := range []struct {
		name string
		call func(op datatype.Op, b datatype.Basic, dst, operand []byte)
	}{{"Accumulate", Accumulate}, {"Combine", Combine}} {
		for _, basic := range []datatype.Basic{datatype.BasicInt64, datatype.BasicFloat64, datatype.BasicInt8} {
			b.Run(fmt.Sprint(f.name, " ", basic), func(b *testing.B) {
				b.SetBytes(int64(len(dst)))
				for b.Loop() {
					f.call(datatype.Sum, basic, dst, operand)
				}
			})
		}
	}
}
