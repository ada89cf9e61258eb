package onesided

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// TestOrderOfBundles looks which calls travel in ordered bundles.
func TestOrderOfBundles(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a := f.access(0, 1)
	accumulates := map[wire.Code]bool{
		wire.CodePut: false, wire.CodeGet: false, wire.CodeAccumulate: true, wire.CodeGetAccumulate: true, wire.CodeCompareSwap: true,
	}
	for code, accumulate := range accumulates {
		for order, want := range map[Order]bool{OrderNone: false, OrderAccumulates: accumulate, OrderAll: true} {
			for _, typed := range []bool{false, true} {
				c := Call{Access: a, Code: code, Basic: datatype.BasicInt64, Op: datatype.Sum, Order: order, Origin: word(1), Compare: word(0), Result: make([]byte, 8)}
				switch {
				case code == wire.CodeGet:
					c.Origin = nil
				case !code.Fetches():
					c.Result = nil
				}
				if typed && code != wire.CodeCompareSwap {
					c.Typed = f.e[0].Typed(&Local{Mem: c.Origin}, &Local{Mem: c.Result}, datatype.Int64, 1, 8)
					c.Origin, c.Result = nil, nil
				}
				bundles, ordered := 0, 0
				f.Filter = func(from, _ int, b []byte) int {
					if from == 0 && len(b) > wire.HeaderLen && wire.Kind(b[5]) == wire.KindData {
						if bundles++; b[6]&wire.FlagOrdered != 0 {
							ordered++
						}
					}
					return 1
				}
				f.issue(f.e[0], &c)
				if err := f.flush(f.e[0], a); err != nil || bundles != 1 || (ordered == 1) != want {
					t.Errorf("%v with order %d, typed %t: %d bundles, %d of them ordered, want %t: %v", code, order, typed, bundles, ordered, want, err)
				}
			}
		}
	}
}

// TestAllInOrder has a rank put to some bytes, get them and add to them, short and long, without a
// flush, while frames get lost, so that later ones overtake them. Every result is that of its place in the order.
func TestAllInOrder(t *testing.T) {
	const size = 40_000
	for seed := range uint64(20) {
		f := newRanks(t, 2, size, nil)
		a := f.access(0, 1)
		r := rand.New(rand.NewPCG(seed, 7))
		f.Filter = func(int, int, []byte) int { return []int{0, 1, 1, 1, 1, 1, 1, 1, 1, 2}[r.IntN(10)] }
		model := make([]byte, size)
		type fetched struct{ got, want []byte }
		var results []fetched
		for range 60 {
			n := 1 + r.IntN([]int{8, 8, 600, size}[r.IntN(4)])
			at := 0
			if r.IntN(2) == 0 {
				at = r.IntN(size - n + 1)
			}
			mem := model[at : at+n]
			c := Call{Access: a, Disp: uint64(at), Basic: datatype.BasicUint8, Op: datatype.Sum, Order: OrderAll}
			switch r.IntN(4) {
			case 0, 1:
				c.Code, c.Result = wire.CodeGet, make([]byte, n)
				results = append(results, fetched{c.Result, bytes.Clone(mem)})
			case 2:
				c.Code, c.Origin = wire.CodeAccumulate, noise(n)
				for i, v := range c.Origin {
					mem[i] += v
				}
			default:
				c.Code, c.Origin = wire.CodePut, bytes.Repeat([]byte{byte(r.Uint32())}, n)
				copy(mem, c.Origin)
			}
			f.issue(f.e[0], &c)
		}
		if err := f.flush(f.e[0], a); err != nil {
			t.Fatal(err)
		}
		for i, x := range results {
			if !bytes.Equal(x.got, x.want) {
				t.Fatalf("seed %d: get %d of %d bytes has other results than its place in the order gives", seed, i, len(x.want))
			}
		}
		if !bytes.Equal(f.mem[1], model) {
			t.Fatalf("seed %d: the window holds something else than the operations in order leave", seed)
		}
	}
}
