package rma_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/rma"
)

// TestOverlap has the origin's local overlap the memory at the target, in ways in which a
// call acts on memory that the process maps. A put and a get do what Go's copy does.
func TestOverlap(t *testing.T) {
	once(t)
	const size = 300_000 // several turns of the engine
	j := newJobAt(t, []string{"one", "one"}, rma.Limits{})
	allocated, dynamic := j.windows(size, 1), j.dynamics()
	own := allocated[0].Memory()
	shared, err := allocated[0].SharedQuery(1)
	if err != nil {
		t.Fatal(err)
	}
	attached := make([]byte, size)
	j.must(dynamic[0].Attach(attached))
	at := rma.Address(buffer.Bytes(attached))
	for _, test := range []struct {
		name   string
		win    *rma.Win
		target int
		base   int64
		mem    []byte
	}{
		{"own window", allocated[0], 0, 0, own},
		{"window of a rank of the host", allocated[0], 1, 0, shared.Memory},
		{"dynamic window, in turns", dynamic[0], 0, at, attached},
	} {
		j.must(test.win.LockAll(j.ctx, 0))
		for _, n := range []int{3, 8, 32, 100, 5000, 200_000} {
			for _, shift := range []int{1, 4, 8, 31, 4096, 70_001} {
				for _, get := range []bool{false, true} {
					for _, up := range []bool{false, true} {
						origin, place := 5, 5+shift
						if up == get {
							origin, place = place, origin
						}
						testenv.Fill(test.mem, uint32(n))
						want := slices.Clone(test.mem)
						local, where := buffer.Bytes(test.mem[origin:origin+n]), rma.At(test.base+int64(place))
						if get {
							copy(want[origin:origin+n], want[place:place+n])
							j.must(test.win.Get(local, test.target, where))
						} else {
							copy(want[place:place+n], want[origin:origin+n])
							j.must(test.win.Put(local, test.target, where))
						}
						j.must(test.win.Flush(j.ctx, test.target))
						if !bytes.Equal(test.mem, want) {
							t.Fatalf("%s: get %v of %d bytes, origin at %d, target at %d: not what copy does", test.name, get, n, origin, place)
						}
					}
				}
			}
		}
		j.must(test.win.UnlockAll(j.ctx))
	}
	freeAll(j, allocated)
	freeAll(j, dynamic)
}
