package rma_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

// share is what each rank has of each target's memory in TestOrdered.
const share = 20_000

// keepOrder issues operations on this rank's share of a target's memory without a flush between
// them, and returns an error if a result is not that of its place in the order.
func keepOrder(t *rmatest.T, w *rma.Win, rank, target int, every3rd *datatype.Type, r *rand.Rand) error {
	type fetched struct{ got, want []byte }
	var results []fetched
	model, base := make([]byte, share), rank*share
	for range 40 {
		n := 3 * (1 + r.IntN([]int{2, 2, 200, share / 3}[r.IntN(4)]))
		at := r.IntN(share - n + 1)
		mem, data, where := model[at:at+n], bytes.Repeat([]byte{byte(r.Uint32())}, n), rma.At(base+at)
		var err error
		switch r.IntN(5) {
		case 0, 1:
			got := make([]byte, n)
			results = append(results, fetched{got, bytes.Clone(mem)})
			err = w.Get(buffer.Bytes(got), target, where)
		case 2:
			for i := range mem {
				mem[i] ^= data[i]
			}
			err = w.Accumulate(buffer.Bytes(data), target, where, rma.BXor)
		case 3:
			for i := 0; i < n; i += 3 {
				mem[i] = data[i]
			}
			err = w.Put(buffer.Bytes(data[:n/3]), target, where.As(n/3, every3rd))
		default:
			copy(mem, data)
			err = w.Put(buffer.Bytes(data), target, where)
		}
		if err != nil {
			return err
		}
	}
	last := make([]byte, share)
	if err := errors.Join(w.Get(buffer.Bytes(last), target, rma.At(base)), w.Flush(t.Context(), target)); err != nil {
		return err
	}
	for i, x := range append(results, fetched{last, model}) {
		if !bytes.Equal(x.got, x.want) {
			return fmt.Errorf("get %d at rank %d does not have what the operations before it leave", i, target)
		}
	}
	return nil
}

// TestOrdered has ranks work on the memory of all without flushes, on a network that loses frames
// and has them overtake each other: in checking mode, which reports nothing, without it, and in memory
// of the host. The window is ordered from its creation, or since a later call.
func TestOrdered(t *testing.T) {
	for name, options := range map[string][]rmatest.Option{
		"checked": nil, "unchecked": {rmatest.Unchecked()}, "one host": {rmatest.Hosts(1), rmatest.Unchecked()},
	} {
		for _, later := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, later %t", name, later), func(t *testing.T) {
				bad := &rmatest.Network{Loss: 0.05, Duplication: 0.05, Reordering: 0.2, Delay: 100 * time.Microsecond}
				rmatest.Run(t, 3, func(t *rmatest.T, node *rma.Node) {
					ctx, info := t.Context(), rma.Ordered()
					every3rd, err := datatype.Resized(datatype.Byte, 0, 3)
					t.Must(err)
					t.Must(every3rd.Commit())
					if later {
						info = nil
					}
					w, err := rma.Allocate(ctx, node.World(), 3*share, 1, rma.Unordered(), info)
					t.Must(err)
					if later {
						t.Must(w.SetInfo(ctx, rma.Ordered()))
					}
					if got := w.Info()["xdprma_ordered"]; got != "true" {
						t.Errorf("the window is said to be ordered: %q", got)
					}
					t.Must(w.LockAll(ctx, 0))
					for target := range 3 {
						t.Must(keepOrder(t, w, node.Rank(), target, every3rd, rand.New(rand.NewPCG(uint64(node.Rank()), uint64(target)))))
					}
					t.Must(w.UnlockAll(ctx))
					t.Must(w.SetInfo(ctx, rma.Info{"xdprma_ordered": "false"}))
					if got := w.Info()["xdprma_ordered"]; got != "" {
						t.Errorf("the window is not ordered any more, and says %q", got)
					}
					t.Must(w.Free(ctx))
				}, append(options, bad)...)
			})
		}
	}
}
