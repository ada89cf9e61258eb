package rma_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
	"github.com/xdprma/xdprma/userspace"
)

// share is what each goroutine has of each target's memory in the tests here.
const share = 20_000

// orderly issues operations of a goroutine on its share of a target's memory.
type orderly struct {
	w            *rma.Win
	base, target int // of the share
	every3rd     *datatype.Type
	r            *rand.Rand
	calls        int
	waits        int // after one call in so many, at random, a flush follows; 0: after none
}

func newOrderly(w *rma.Win, part, target, calls, waits int) (*orderly, error) {
	every3rd, err := datatype.Resized(datatype.Byte, 0, 3)
	if err != nil {
		return nil, err
	}
	r := rand.New(rand.NewPCG(uint64(part), uint64(target)))
	return &orderly{w: w, base: part * share, target: target, every3rd: every3rd, r: r, calls: calls, waits: waits}, every3rd.Commit()
}

// keepOrder returns an error if a result is not that of its place in the order.
func (o *orderly) keepOrder(ctx context.Context) error {
	type fetched struct{ got, want []byte }
	var results []fetched
	w, target, r, model := o.w, o.target, o.r, make([]byte, share)
	for range o.calls {
		unit := []int{1, 8}[r.IntN(2)]
		n := 3 * unit * (1 + r.IntN([]int{2, 2, 200 / unit, share / 3 / unit}[r.IntN(4)]))
		at := unit * r.IntN((share-n)/unit+1)
		mem, data, where := model[at:at+n], bytes.Repeat([]byte{byte(r.Uint32())}, n), rma.At(o.base+at)
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
			operand := buffer.Bytes(data)
			if unit == 8 {
				operand = buffer.Of(rma.Slice[int64](data))
			}
			err = w.Accumulate(operand, target, where, rma.BXor)
		case 3:
			for i := 0; i < n; i += 3 {
				mem[i] = data[i]
			}
			err = w.Put(buffer.Bytes(data[:n/3]), target, where.As(n/3, o.every3rd))
		default:
			copy(mem, data)
			err = w.Put(buffer.Bytes(data), target, where)
		}
		if err == nil && o.waits > 0 && r.IntN(o.waits) == 0 {
			err = w.Flush(ctx, target)
		}
		runtime.Gosched() // or on few processors one goroutine is through before the next begins
		if err != nil {
			return err
		}
	}
	last := make([]byte, share)
	if err := errors.Join(w.Get(buffer.Bytes(last), target, rma.At(o.base)), w.Flush(ctx, target)); err != nil {
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
						o, err := newOrderly(w, node.Rank(), target, 40, 0)
						t.Must(err)
						t.Must(o.keepOrder(ctx))
					}
					t.Must(w.UnlockAll(ctx))
					t.Must(w.SetInfo(ctx, rma.Info{"xdprma_ordered": "false"}))
					if got := w.Info()["xdprma_ordered"]; got != "false" {
						t.Errorf("the window is not ordered any more, and says %q", got)
					}
					t.Must(w.Free(ctx))
				}, append(options, bad)...)
			})
		}
	}
}

// TestOrderedInXDP has two goroutines of each rank work on the memory of both others, whose programs
// execute some of the operations: those that somebody waits for while nothing else is under way.
func TestOrderedInXDP(t *testing.T) {
	const ranks, each = 3, 2
	j := newLabJob(t, ranks, userspace.XDPNative, rma.Limits{})
	wins := j.windowsOf(func(int) (int, int) { return ranks * each * share, 1 }, rma.Ordered())
	awaitReach(j, wins[0])
	before := executed(j.nodes[1])
	j.each(func(n *rma.Node) error {
		w := wins[n.Rank()]
		errs := []error{w.LockAll(j.ctx)}
		done := make(chan error)
		for target := range ranks {
			for i := range each {
				go func() {
					o, err := newOrderly(w, each*n.Rank()+i, target, 300, 2)
					if err == nil {
						err = o.keepOrder(j.ctx)
					}
					done <- err
				}()
			}
		}
		for range ranks * each {
			errs = append(errs, <-done)
		}
		return errors.Join(append(errs, w.UnlockAll(j.ctx))...)
	})
	if executed(j.nodes[1]) == before {
		t.Error("the program has executed nothing")
	}
	freeAll(j, wins)
}
