package rma_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/rma"
)

// TestAllPairs lets every rank write its own place in every rank's window, read
// it back, and count in a common counter, with windows that differ in size and
// displacement unit. A window may be empty.
func TestAllPairs(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 4, 7} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			j := newJob(t, ranks, rma.Limits{})
			// The last rank of several exposes nothing.
			shape := func(rank int) (size, unit int) {
				if rank > 0 && rank == ranks-1 {
					return 0, 1
				}
				return (ranks + 1 + rank) * 8, 1 << (rank % 4)
			}
			wins := j.windowsOf(shape, nil)
			const times = 20
			j.each(func(n *rma.Node) error {
				w := wins[n.Rank()]
				if size, unit := shape(n.Rank()); w.Size() != size || w.DispUnit() != unit || len(w.Memory()) != size {
					return fmt.Errorf("size %d, unit %d, memory %d", w.Size(), w.DispUnit(), len(w.Memory()))
				}
				err := w.LockAll(j.ctx, 0)
				for target := range ranks {
					size, unit := shape(target)
					if size == 0 {
						if e := w.Put(buffer.Bytes([]byte{1}), target, rma.At(0)); !errors.Is(e, rma.ErrRange) {
							err = errors.Join(err, fmt.Errorf("put to an empty window: %v", e))
						}
						err = errors.Join(err, w.Put(buffer.Bytes(nil), target, rma.At(0)))
						continue
					}
					mine, one, old := int64(1000+n.Rank()), int64(1), int64(0)
					place := rma.At(int64((1 + n.Rank()) * 8 / unit))
					err = errors.Join(err, w.Put(buffer.Value(&mine), target, place))
					mine = -1 // the library has taken it over
					for range times {
						err = errors.Join(err, w.FetchAndOp(buffer.Value(&one), buffer.Value(&old), target, rma.At(0), rma.Sum))
					}
					err = errors.Join(err, w.Flush(j.ctx, target), w.Get(buffer.Value(&mine), target, place), w.Flush(j.ctx, target))
					if mine != int64(1000+n.Rank()) {
						err = errors.Join(err, fmt.Errorf("read %d back from rank %d", mine, target))
					}
				}
				return errors.Join(err, w.UnlockAll(j.ctx), n.World().Barrier(j.ctx))
			})
			j.each(func(n *rma.Node) error {
				w := wins[n.Rank()]
				if w.Size() > 0 {
					want := []int64{int64(ranks * times)}
					for r := range ranks {
						want = append(want, int64(1000+r))
					}
					if got := rma.Slice[int64](w.Memory())[:ranks+1]; !slices.Equal(got, want) {
						return fmt.Errorf("window holds %d, want %d", got, want)
					}
				}
				return w.Free(j.ctx)
			})
		})
	}
}

// TestLargeTransfers moves some MiB both ways at once between two ranks and to
// the own window, at odd lengths and displacements, with each kind of operation.
func TestLargeTransfers(t *testing.T) {
	const size = 3 << 20
	j := newJob(t, 2, rma.Limits{})
	wins := j.windows(2*size, 1)
	j.each(func(n *rma.Node) error {
		w, me := wins[n.Rank()], n.Rank()
		random := rand.New(rand.NewPCG(1, uint64(me)))
		data, got := make([]int64, size/8-1), make([]int64, size/8-1)
		for i := range data {
			data[i] = int64(random.Uint64())
		}
		err := w.LockAll(j.ctx, 0)
		for _, target := range []int{1 - me, me} {
			at := int64(0) // of the target's window, a half for each origin
			if target == me {
				at = size
			}
			check := func(what string, want func(i int) int64) {
				err = errors.Join(err, w.Flush(j.ctx, target))
				for i := range got {
					if got[i] != want(i) {
						err = errors.Join(err, fmt.Errorf("%s at target %d: element %d is %d, want %d", what, target, i, got[i], want(i)))
						return
					}
				}
			}
			err = errors.Join(err, w.Put(buffer.Of(data), target, rma.At(at+3)), w.Flush(j.ctx, target), w.Get(buffer.Of(got), target, rma.At(at+3)))
			check("put and get", func(i int) int64 { return data[i] })
			err = errors.Join(err, w.Put(buffer.Of(data), target, rma.At(at)), w.Flush(j.ctx, target))
			err = errors.Join(err, w.GetAccumulate(buffer.Of(data), buffer.Of(got), target, rma.At(at), rma.Sum))
			check("get_accumulate", func(i int) int64 { return data[i] })
			err = errors.Join(err, w.Accumulate(buffer.Of(data), target, rma.At(at), rma.BXor))
			err = errors.Join(err, w.GetAccumulate(buffer.Buffer{}, buffer.Of(got), target, rma.At(at), rma.NoOp))
			check("accumulate", func(i int) int64 { return 2*data[i] ^ data[i] })
		}
		return errors.Join(err, w.UnlockAll(j.ctx), w.Free(j.ctx))
	})
}

func TestProcNullAndZeroCounts(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	w := j.windows(16, 8)[0]
	one, old := int64(1), int64(42)
	j.must(w.LockAll(j.ctx, 0))
	for _, target := range []int{rma.ProcNull, 0, 1} {
		none := buffer.Of([]int64{})
		j.must(
			w.Put(none, target, rma.At(2)), w.Get(none, target, rma.At(2)),
			w.Accumulate(none, target, rma.At(2), rma.Sum), w.GetAccumulate(none, none, target, rma.At(2), rma.Sum),
		)
		if target == rma.ProcNull {
			j.must(
				w.Put(buffer.Value(&one), target, rma.At(99)), w.Get(buffer.Value(&old), target, rma.At(-1)),
				w.FetchAndOp(buffer.Value(&one), buffer.Value(&old), target, rma.At(0), rma.Sum),
				w.CompareAndSwap(buffer.Value(&one), buffer.Value(&one), buffer.Value(&old), target, rma.At(0)),
			)
		}
		j.must(w.Flush(j.ctx, target), w.FlushLocal(j.ctx, target), w.FlushRanks(j.ctx, target, 1, target), w.FlushLocalRanks(j.ctx, target))
	}
	j.must(w.FlushAll(j.ctx), w.FlushLocalAll(j.ctx), w.UnlockAll(j.ctx))
	if old != 42 {
		t.Errorf("an operation with no process returned %d", old)
	}
}

// TestManyGoroutines lets goroutines share one window: each has a place of its
// own at the target, and all count in one counter.
func TestManyGoroutines(t *testing.T) {
	const goroutines, times = 16, 100
	j := newJob(t, 2, rma.Limits{})
	wins := j.windows((goroutines+1)*8, 8)
	w := wins[0]
	j.must(w.LockAll(j.ctx, 0))
	var group sync.WaitGroup
	errs := make([]error, goroutines)
	for g := range goroutines {
		group.Go(func() {
			one, old, place := int64(1), int64(0), rma.At(int64(g+1))
			for i := range int64(times) {
				next, seen := i+1, int64(0)
				err := errors.Join(
					w.FetchAndOp(buffer.Value(&one), buffer.Value(&old), 1, rma.At(0), rma.Sum),
					w.Get(buffer.Value(&seen), 1, place), w.Flush(j.ctx, 1),
					w.Put(buffer.Value(&next), 1, place), w.Flush(j.ctx, 1),
				)
				if err != nil || seen != i {
					errs[g] = fmt.Errorf("goroutine %d, turn %d: saw %d: %w", g, i, seen, err)
					return
				}
			}
		})
	}
	group.Wait()
	j.must(errs...)
	j.must(w.UnlockAll(j.ctx))
	all := make([]int64, goroutines+1)
	j.must(w.Lock(j.ctx, rma.LockShared, 1, 0), w.Get(buffer.Of(all), 1, rma.At(0)), w.Unlock(j.ctx, 1))
	if all[0] != goroutines*times {
		t.Errorf("the counter is %d, want %d", all[0], goroutines*times)
	}
	for g, v := range all[1:] {
		if v != times {
			t.Errorf("goroutine %d left %d", g, v)
		}
	}
}

// TestOrdering issues accumulates that do not commute, without a flush between
// them, and expects the order issued.
func TestOrdering(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	w := j.windows(8, 8)[0]
	j.must(w.LockAll(j.ctx, 0))
	for target := range 2 {
		want := int64(0)
		olds := make([]int64, 300)
		for i := range olds {
			v := int64(i)
			if i%3 == 0 {
				j.must(w.Accumulate(buffer.Value(&v), target, rma.At(0), rma.Replace))
			} else {
				j.must(w.Accumulate(buffer.Value(&v), target, rma.At(0), rma.Sum))
			}
			j.must(w.FetchAndOp(buffer.Value(&v), buffer.Of(olds[i:i+1]), target, rma.At(0), rma.NoOp))
		}
		j.must(w.Flush(j.ctx, target))
		for i, old := range olds {
			if want += int64(i); i%3 == 0 {
				want = int64(i)
			}
			if old != want {
				t.Fatalf("target %d: after operation %d the value was %d, want %d", target, i, old, want)
			}
		}
	}
	j.must(w.UnlockAll(j.ctx))
}

// TestLargeDisplacements reaches beyond 2^32 bytes, by displacements, by units and by
// the strides and extents of datatypes. Few pages of the window are ever touched.
func TestLargeDisplacements(t *testing.T) {
	const far = 1 << 32
	strided, err := datatype.Hvector(2, 1, far, datatype.Int64)
	strided = committed(t, strided, err)
	sparse, err := datatype.Resized(datatype.Byte, 0, far/2)
	sparse = committed(t, sparse, err)
	for _, hosts := range [][]string{{"", ""}, {"a", "a"}} {
		j := newJobAt(t, hosts, rma.Limits{})
		wins := j.windowsOf(func(rank int) (size, unit int) { return 8 + rank*far + rank*4096, 1 }, nil)
		units := make([]*rma.Win, 2)
		j.each(func(n *rma.Node) (err error) {
			units[n.Rank()], err = rma.Create(j.ctx, n.World(), wins[n.Rank()].Memory(), 1<<31-1, nil)
			return err
		})
		mem := wins[1].Memory()
		for rank, w := range wins {
			word, got, old := int64(42+rank), int64(0), int64(0)
			flush := func() error { return w.Flush(j.ctx, 1) }
			j.must(w.Lock(j.ctx, rma.LockExclusive, 1, 0),
				w.Put(buffer.Value(&word), 1, rma.At(far+8)), flush(), w.Get(buffer.Value(&got), 1, rma.At(far+8)), flush(),
				w.FetchAndOp(buffer.Value(&word), buffer.Value(&old), 1, rma.At(far+8), rma.Sum), flush())
			if there := rma.Slice[int64](mem[far+8:])[0]; got != word || old != word || there != 2*word {
				t.Errorf("%q, rank %d: put %d, got %d, fetched %d, and %d is there", hosts, rank, word, got, old, there)
			}
			in, out := []int64{7 + word, 8 + word}, make([]int64, 2)
			j.must(w.Put(buffer.Of(in), 1, rma.At(16).As(1, strided)), flush(), w.Get(buffer.Of(out), 1, rma.At(16).As(1, strided)), flush())
			if there := rma.Slice[int64](mem[far+16:])[0]; !slices.Equal(in, out) || there != in[1] {
				t.Errorf("%q, rank %d: put %v over a stride, got %v, and %d is there", hosts, rank, in, out, there)
			}
			j.must(w.Put(buffer.Bytes([]byte{1, 2, byte(word)}), 1, rma.At(40).As(3, sparse)), flush())
			if there := []byte{mem[40], mem[far/2+40], mem[far+40]}; !bytes.Equal(there, []byte{1, 2, byte(word)}) {
				t.Errorf("%q, rank %d: %v is there, over extents of 2^31", hosts, rank, there)
			}
			if err := w.Put(buffer.Value(&word), 1, rma.At(far+4096+1)); !errors.Is(err, rma.ErrRange) {
				t.Errorf("%q, rank %d: beyond the end: %v", hosts, rank, err)
			}
			u := units[rank]
			j.must(w.Unlock(j.ctx, 1), u.Lock(j.ctx, rma.LockExclusive, 1, 0), u.Put(buffer.Bytes([]byte{byte(word)}), 1, rma.At(2)), u.Unlock(j.ctx, 1))
			if u.DispUnit() != 1<<31-1 || mem[2*(1<<31-1)] != byte(word) {
				t.Errorf("%q, rank %d: %d is there, 2 units of %d bytes on", hosts, rank, mem[2*(1<<31-1)], u.DispUnit())
			}
		}
		freeAll(j, units)
		freeAll(j, wins)
	}
}
