package onesided

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func committed(t *datatype.Type, err error) *datatype.Type {
	if err == nil {
		err = t.Commit()
	}
	return must(t, err)
}

// randomType returns a type of a random construction over old, whose steps in
// bytes are multiples of grid.
func randomType(r *rand.Rand, old *datatype.Type, depth, grid int) *datatype.Type {
	if depth == 0 {
		return old
	}
	old = randomType(r, old, depth-1, grid)
	some, sign := func(n int) int { return 1 + r.IntN(n) }, 1-2*r.IntN(2)
	count, block := some(5), some(4)
	lens, disps, at := make([]int, count), make([]int, count), 0
	for i := range lens {
		lens[i] = r.IntN(4)
		disps[i] = at
		at += lens[i] + r.IntN(4)
	}
	r.Shuffle(count, func(i, j int) { lens[i], lens[j], disps[i], disps[j] = lens[j], lens[i], disps[j], disps[i] })
	inBytes := make([]int, count)
	for i := range disps {
		inBytes[i] = disps[i] * max(old.Extent(), grid)
	}
	switch r.IntN(7) {
	case 0:
		return must(datatype.Contiguous(count, old))
	case 1:
		return must(datatype.Vector(count, block, sign*(block+r.IntN(4)), old))
	case 2:
		return must(datatype.Hvector(count, block, sign*(block*old.Extent()+grid*r.IntN(4)), old))
	case 3:
		return must(datatype.Indexed(lens, disps, old))
	case 4:
		return must(datatype.Hindexed(lens, inBytes, old))
	case 5:
		return must(datatype.Subarray([]int{count + 2, block + 2}, []int{count, block}, []int{r.IntN(3), r.IntN(3)}, datatype.OrderC, old))
	default:
		lb, extent := old.TrueExtent()
		return must(datatype.Resized(old, lb-grid*r.IntN(3), (extent+grid-1)/grid*grid+grid*r.IntN(3)))
	}
}

// record is a struct with elements of all sizes.
func record() *datatype.Type {
	return must(datatype.Struct([]int{1, 3, 1, 2, 1}, []int{0, 1, 8, 16, 32},
		[]*datatype.Type{datatype.Uint8, datatype.Int16, datatype.Float32, datatype.Int64, datatype.Complex128}))
}

// reshaped returns a type with the signature of count entries of t and a random
// shape.
func reshaped(r *rand.Rand, t *datatype.Type, count int) *datatype.Type {
	var lens, disps []int
	var types []*datatype.Type
	var it datatype.Iter
	at := 0
	for it.ResetElements(t, count); ; {
		_, n, b, ok := it.Next(16 * (1 + r.IntN(8)))
		if !ok {
			break
		}
		lens, disps, types = append(lens, n/b.Size()), append(disps, at), append(types, basicType(b))
		at += n + r.IntN(3)*8
	}
	if r.IntN(2) == 0 { // the same in reverse: before displacement 0
		for i := range disps {
			disps[i] = -disps[i] - 16*8
		}
		for i := range disps[1:] {
			disps[i+1] = min(disps[i+1], disps[i]-lens[i+1]*types[i+1].Size())
		}
	}
	return committed(datatype.Struct(lens, disps, types))
}

func basicType(b datatype.Basic) *datatype.Type {
	for _, t := range []*datatype.Type{datatype.Uint8, datatype.Int16, datatype.Uint16, datatype.Float32, datatype.Uint32, datatype.Int64, datatype.Uint64, datatype.Complex128} {
		if t.Basic() == b {
			return t
		}
	}
	panic(b.String())
}

// places returns the displacement of each byte of the data.
func places(t *datatype.Type, count int) []int64 {
	var out []int64
	var it datatype.Iter
	for it.Reset(t, count); ; {
		off, _, _, ok := it.Next(1)
		if !ok {
			return out
		}
		out = append(out, off)
	}
}

// local returns random memory for count entries of t, with bytes to spare.
func local(r *rand.Rand, t *datatype.Type, count int) *Local {
	lo, hi, err := t.Bounds(count)
	if err != nil {
		panic(err)
	}
	before, after := r.Int64N(20), r.Int64N(20)
	mem := make([]byte, before+hi-lo+after)
	for i := range mem {
		mem[i] = byte(r.Uint32())
	}
	return &Local{Mem: mem, Base: before - lo, Type: t, Count: count}
}

func (l *Local) gather() []byte {
	var out []byte
	for _, p := range places(l.Type, l.Count) {
		out = append(out, l.Mem[l.Base+p])
	}
	return out
}

// weather loses, doubles and reorders frames.
func weather(r *rand.Rand, f *ranks) {
	type late struct {
		from, to int
		payload  []byte
	}
	var held []late
	f.Filter = func(from, to int, payload []byte) int {
		if len(held) > 0 && r.IntN(3) == 0 {
			i := r.IntN(len(held))
			l := held[i]
			held = append(held[:i], held[i+1:]...)
			f.e[l.to].Receive(l.payload, link.PathID(l.from))
		}
		switch r.IntN(12) {
		case 0:
			return 0
		case 1:
			return 2
		case 2, 3:
			if kindOfFrame(payload) == wire.KindData {
				held = append(held, late{from, to, bytes.Clone(payload)})
				return 0
			}
		}
		return 1
	}
}

// Random datatypes at origin, result and target, against a model of bytes: calls
// over a network that loses and reorders, and to the own window.
func TestTypedCallsAgainstModel(t *testing.T) {
	const memory = 1 << 16
	for seed := range testenv.Seeds(150, 30) {
		r := rand.New(rand.NewPCG(seed, 7))
		f := newRanks(t, 2, memory, nil)
		a := f.access(0, 1)
		target := 1
		if seed%5 == 4 {
			a, target = f.e[0].OpenLocal(f.e[0].cfg.Windows.Lookup(testWindow)), 0
		} else if seed%2 == 1 {
			weather(r, f)
		}
		copy(f.mem[target], noise(memory))
		for range 12 {
			typedCall(t, r, f, a, target, fmt.Sprintf("seed %d", seed))
			if t.Failed() {
				return
			}
		}
		f.Filter = nil
		f.atRest()
	}
}

func typedCall(t *testing.T, r *rand.Rand, f *ranks, a *Access, target int, where string) {
	code := []wire.Code{wire.CodePut, wire.CodeGet, wire.CodeAccumulate, wire.CodeGetAccumulate}[r.IntN(4)]
	mixed := code == wire.CodePut || code == wire.CodeGet
	var tt *datatype.Type
	var count int
	var lo, hi int64
	for { // until one fits
		old := []*datatype.Type{datatype.Uint8, datatype.Uint16, datatype.Uint32, datatype.Uint64}[r.IntN(4)]
		if mixed && r.IntN(2) == 0 {
			old = record()
		}
		tt = committed(randomType(r, old, 1+r.IntN(3), 8), nil)
		count = 1 + r.IntN(8)
		if r.IntN(4) == 0 {
			count *= 40
		}
		var err error
		if lo, hi, err = tt.Bounds(count); err == nil && hi > lo && lo > -1<<15 && hi < 1<<15 && !tt.OverlapsSelf(count) {
			break
		}
	}
	toff := places(tt, count)
	if b := tt.Basic(); b != 0 && r.IntN(4) == 0 { // less data than there is room for
		toff = toff[:(1+r.IntN(len(toff)/b.Size()))*b.Size()]
	}
	ot, rt := reshaped(r, tt, count), reshaped(r, tt, count)
	origin, result := local(r, ot, 1), local(r, rt, 1)
	switch r.IntN(4) {
	case 0: // without gaps
		n := tt.Size() * count
		origin, result = &Local{Mem: noise(n)}, &Local{Mem: make([]byte, n)}
	case 1:
		origin, result = local(r, tt, count), local(r, tt, count)
	}
	gather := func(l *Local) []byte {
		if l.Type == nil {
			return bytes.Clone(l.Mem)
		}
		return l.gather()
	}
	first := max(0, (-lo+7)/8)
	disp := 8 * (first + r.Int64N(1+(int64(len(f.mem[target]))-hi)/8-first))
	basic := tt.Basic()
	c := Call{Access: a, Code: code, Disp: uint64(disp), Basic: basic, Op: datatype.Sum, Order: Order(r.IntN(3))}
	want, data := bytes.Clone(f.mem[target]), gather(origin)
	var old []byte
	for _, p := range toff {
		old = append(old, want[disp+p])
	}
	aligned := true
	update := data
	switch code {
	case wire.CodeGet:
		origin, update = &Local{}, old
	case wire.CodePut:
		result = &Local{}
	default:
		if code == wire.CodeAccumulate {
			result = &Local{}
		}
		update = summed(basic, old, data)
		for i := 0; i < len(toff); i += basic.Size() {
			aligned = aligned && (disp+toff[i])%int64(basic.Size()) == 0
		}
	}
	var wantResult []byte
	if result.Mem != nil {
		wantResult = bytes.Clone(result.Mem)
		if result.Type == nil {
			copy(wantResult, old)
		} else {
			at := places(result.Type, result.Count)
			for i, v := range old {
				wantResult[result.Base+at[i]] = v
			}
		}
	}
	c.Typed = f.e[0].Typed(origin, result, tt, count, len(toff))
	f.issue(f.e[0], &c)
	err := f.flush(f.e[0], a)
	if !aligned {
		if !errors.Is(err, mpierr.Disp) {
			t.Errorf("%s: an element that is not aligned: %v", where, err)
		}
		copy(f.mem[target], noise(len(f.mem[target])))
		return
	}
	if err != nil {
		t.Fatalf("%s: %v with %d of %v: %v", where, code, count, tt, err)
	}
	for i, p := range toff {
		want[disp+p] = update[i]
	}
	if !bytes.Equal(f.mem[target], want) {
		t.Errorf("%s: %v with %d of %v from %v: wrong bytes at the target", where, code, count, tt, origin.Type)
	}
	if result.Mem != nil && !bytes.Equal(result.Mem, wantResult) {
		t.Errorf("%s: %v with %d of %v to %v: wrong result", where, code, count, tt, result.Type)
	}
}

func summed(b datatype.Basic, x, y []byte) []byte {
	out := bytes.Clone(x)
	for i := 0; i < len(x); i += b.Size() {
		var v, w [8]byte
		copy(v[:], x[i:i+b.Size()])
		copy(w[:], y[i:i+b.Size()])
		binary.LittleEndian.PutUint64(v[:], le.Uint64(v[:])+le.Uint64(w[:]))
		copy(out[i:i+b.Size()], v[:])
	}
	return out
}

// TestLongTypedCallHere lets calls of many blocks act on this rank's own window, in turns
// whose length is no multiple of that of a block.
func TestLongTypedCallHere(t *testing.T) {
	const rows, words, stride = 200, 118, 119
	f := newRanks(t, 1, 8*rows*stride, nil)
	e, mem := f.e[0], f.mem[0]
	a := e.OpenLocal(e.cfg.Windows.Lookup(testWindow))
	rowType := committed(datatype.Vector(rows, words, stride, datatype.Uint64))
	ones := bytes.Repeat(word(1), rows*words)
	for round := range uint64(3) {
		c := &Call{Access: a, Code: wire.CodeAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64,
			Typed: e.Typed(&Local{Mem: ones}, &Local{}, rowType, 1, len(ones))}
		for done := false; !done; { // it waits for nothing
			done = must(e.Issue(c))
		}
		for i := range rows * stride {
			want := round + 1
			if i%stride >= words {
				want = 0
			}
			if got := binary.LittleEndian.Uint64(mem[8*i:]); got != want {
				t.Fatalf("round %d: word %d of row %d is %d, want %d", round, i%stride, i/stride, got, want)
			}
		}
	}
}
