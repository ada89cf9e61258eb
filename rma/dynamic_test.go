package rma_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/rma"
)

// dynamics creates a dynamic window on each rank.
func (j *job) dynamics() []*rma.Win {
	j.t.Helper()
	wins := make([]*rma.Win, len(j.nodes))
	j.each(func(n *rma.Node) (err error) {
		wins[n.Rank()], err = rma.CreateDynamic(j.ctx, n.World(), nil)
		return err
	})
	return wins
}

// TestDynamic lets every rank use every operation on memory that the others, and
// it itself, have attached.
func TestDynamic(t *testing.T) {
	const ranks, words = 3, 1000 // more than a frame holds
	j := newJob(t, ranks, rma.Limits{})
	wins := j.dynamics()
	var memory [ranks][]int64
	var where [ranks]int64
	for r, w := range wins {
		if w.Memory() != nil || w.Size() != 0 || w.DispUnit() != 1 || w.Flavor() != rma.FlavorDynamic {
			t.Errorf("memory of %d bytes, size %d, unit %d, flavour %v", len(w.Memory()), w.Size(), w.DispUnit(), w.Flavor())
		}
		mem := make([]byte, 8*(ranks*words+1))
		memory[r] = rma.Slice[int64](mem)
		where[r] = rma.Address(buffer.Of(memory[r]))
		j.must(w.Attach(mem))
	}
	j.each(func(n *rma.Node) error {
		w := wins[n.Rank()]
		err := w.LockAll(j.ctx, 0)
		for target := range ranks {
			place := rma.At(rma.AddAddress(where[target], int64(8*words*n.Rank())))
			data, back := make([]int64, words), make([]int64, words)
			for i := range data {
				data[i] = int64(100*n.Rank() + i)
			}
			err = errors.Join(err, w.Put(buffer.Of(data), target, place), w.Flush(j.ctx, target),
				w.Accumulate(buffer.Of(data), target, place, rma.Sum),
				w.GetAccumulate(buffer.Of(data), buffer.Of(back), target, place, rma.NoOp), w.Flush(j.ctx, target))
			for i := range back {
				if back[i] != 2*data[i] {
					return fmt.Errorf("element %d of rank %d: %d", i, target, back[i])
				}
			}
			one, old, first, swapped := int64(1), int64(0), 2*data[0], int64(-1-n.Rank())
			counter := rma.At(where[target] + 8*ranks*words)
			err = errors.Join(err, w.FetchAndOp(buffer.Value(&one), buffer.Value(&old), target, counter, rma.Sum),
				w.CompareAndSwap(buffer.Value(&swapped), buffer.Value(&first), buffer.Value(&old), target, place), w.Flush(j.ctx, target),
				w.Get(buffer.Of(back), target, place), w.Flush(j.ctx, target))
		}
		return errors.Join(err, w.UnlockAll(j.ctx), n.World().Barrier(j.ctx))
	})
	for r := range memory {
		if got := memory[r][ranks*words]; got != ranks {
			t.Errorf("rank %d counted %d", r, got)
		}
		for i := range ranks * words {
			want := int64(2 * (100*(i/words) + i%words))
			if i%words == 0 {
				want = int64(-1 - i/words)
			}
			if memory[r][i] != want {
				t.Fatalf("rank %d, element %d: %d, want %d", r, i, memory[r][i], want)
			}
		}
	}
	j.each(func(n *rma.Node) error { return wins[n.Rank()].Free(j.ctx) })
}

// TestDynamicRefused reaches for what is not attached: the target tells the
// origin when it completes the operation.
func TestDynamicRefused(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	wins, fixed := j.dynamics(), j.windows(8, 1)
	w, mem, data := wins[0], make([]byte, 64), make([]byte, 64)
	where := rma.Address(buffer.Bytes(mem))
	refused := func(what string, err error, class rma.Class) {
		t.Helper()
		if !errors.Is(err, class) {
			t.Errorf("%s: %v, want %v", what, err, error(class))
		}
	}
	for target := range wins {
		j.must(w.Lock(j.ctx, rma.LockShared, target, 0))
		for what, at := range map[string]int64{"not attached": where, "null": 0, "a negative address": -4096, "the last address": math.MaxInt64} {
			j.must(w.Put(buffer.Bytes(data[:8]), target, rma.At(at)))
			refused("put: "+what, w.Flush(j.ctx, target), rma.ErrRange)
			j.must(w.Get(buffer.Bytes(data[:8]), target, rma.At(at)))
			refused("get: "+what, w.Flush(j.ctx, target), rma.ErrRange)
		}
		refused("an address that overflows", w.Put(buffer.Bytes(data), target, rma.At(-1)), rma.ErrRange)
		j.must(wins[target].Attach(mem), w.Put(buffer.Bytes(data), target, rma.At(where)), w.Flush(j.ctx, target))
		j.must(w.Put(buffer.Bytes(data), target, rma.At(where+1)))
		refused("beyond the end", w.Flush(j.ctx, target), rma.ErrRange)
		var x int64
		refused("unaligned", w.Accumulate(buffer.Value(&x), target, rma.At(where+1), rma.Sum), rma.ErrDisp)
		j.must(wins[target].Detach(mem), w.Put(buffer.Bytes(data), target, rma.At(where)))
		err := w.Flush(j.ctx, target)
		refused("detached", err, rma.ErrRange)
		if !strings.Contains(err.Error(), "no memory attached") {
			t.Errorf("%v does not say why", err)
		}
		j.must(w.Unlock(j.ctx, target))
	}
	refused("attach to a fixed window", fixed[0].Attach(mem), rma.ErrRMAFlavor)
	refused("detach from a fixed window", fixed[0].Detach(mem), rma.ErrRMAFlavor)
	refused("detach twice", w.Detach(mem), rma.ErrBase)
	j.must(w.Attach(mem))
	refused("attach twice", w.Attach(mem[8:]), rma.ErrRMAAttach)
	j.each(func(n *rma.Node) error { return wins[n.Rank()].Free(j.ctx) })
	refused("attach to a freed window", w.Attach(mem), rma.ErrWin)
	refused("detach from a freed window", w.Detach(mem), rma.ErrWin)
}

// TestDynamicShares attaches memory to two windows and makes a third over it:
// accumulates through all of them add up.
func TestDynamicShares(t *testing.T) {
	const ranks, times = 3, 300
	j := newJob(t, ranks, rma.Limits{})
	first, second := j.dynamics(), j.dynamics()
	mem := make([]byte, 16)
	fixed := make([]*rma.Win, ranks)
	j.each(func(n *rma.Node) (err error) {
		expose := mem[:0]
		if n.Rank() == 0 {
			expose = mem
		}
		fixed[n.Rank()], err = rma.Create(j.ctx, n.World(), expose, 1, nil)
		return err
	})
	j.must(first[0].Attach(mem), second[0].Attach(mem))
	where := rma.Address(buffer.Bytes(mem))
	j.each(func(n *rma.Node) error {
		var err error
		one := complex(1, 2) // 16 bytes: no processor instruction covers them
		for i := range times {
			w, at := first[n.Rank()], rma.At(where)
			switch (i + n.Rank()) % 3 {
			case 1:
				w = second[n.Rank()]
			case 2:
				w, at = fixed[n.Rank()], rma.At(0)
			}
			err = errors.Join(err, w.Lock(j.ctx, rma.LockShared, 0, 0), w.Accumulate(buffer.Value(&one), 0, at, rma.Sum), w.Unlock(j.ctx, 0))
		}
		return errors.Join(err, n.World().Barrier(j.ctx))
	})
	if got := rma.Slice[complex128](mem)[0]; got != complex(ranks*times, 2*ranks*times) {
		t.Errorf("sum %v", got)
	}
}

func TestAddresses(t *testing.T) {
	words := make([]int64, 4)
	base := rma.Address(buffer.Of(words))
	if got := rma.Address(buffer.Value(&words[3])); got != rma.AddAddress(base, 24) || rma.SubAddress(got, base) != 24 || rma.SubAddress(base, got) != -24 {
		t.Errorf("addresses %#x and %#x", base, got)
	}
	if rma.AddAddress(math.MaxInt64, 1) != math.MinInt64 || rma.SubAddress(math.MinInt64, math.MaxInt64) != 1 {
		t.Error("address arithmetic is not that of unsigned numbers")
	}
}

// TestDynamicDatatypes reaches many regions with one call: the blocks of the
// datatype are attached, what lies between them is not.
func TestDynamicDatatypes(t *testing.T) {
	const regions, words = 300, 3 // several frames
	j := newJob(t, 2, rma.Limits{})
	wins := j.dynamics()
	w := wins[0]
	j.must(w.LockAll(j.ctx, 0))
	for target := range wins {
		var memory [][]byte
		var lengths, places []int
		for range regions {
			mem := make([]byte, 8*words, 8*words+64) // never two side by side
			memory = append(memory, mem)
			lengths, places = append(lengths, words), append(places, int(rma.Address(buffer.Bytes(mem))))
			j.must(wins[target].Attach(mem))
		}
		typ, err := datatype.Hindexed(lengths, places, datatype.Int64)
		typ = committed(t, typ, err)
		at := rma.At(0).As(1, typ) // displacements are absolute
		data, back, old := make([]int64, regions*words), make([]int64, regions*words), make([]int64, regions*words)
		for i := range data {
			data[i] = int64(i + 1)
		}
		j.must(w.Put(buffer.Of(data), target, at), w.Flush(j.ctx, target),
			w.Accumulate(buffer.Of(data), target, at, rma.Sum),
			w.GetAccumulate(buffer.Of(data), buffer.Of(old), target, at, rma.Sum), w.Flush(j.ctx, target),
			w.Get(buffer.Of(back), target, at), w.Flush(j.ctx, target), wins[target].Sync())
		for i := range data {
			if got := rma.Slice[int64](memory[i/words])[i%words]; got != 3*data[i] || back[i] != 3*data[i] || old[i] != 2*data[i] {
				t.Fatalf("rank %d, element %d: %d there, got %d, before %d", target, i, got, back[i], old[i])
			}
		}
		j.must(wins[target].Detach(memory[regions/2]))
		for what, call := range map[string]func() error{
			"put":            func() error { return w.Put(buffer.Of(data), target, at) },
			"get":            func() error { return w.Get(buffer.Of(back), target, at) },
			"accumulate":     func() error { return w.Accumulate(buffer.Of(data), target, at, rma.Sum) },
			"get_accumulate": func() error { return w.GetAccumulate(buffer.Of(data), buffer.Of(old), target, at, rma.Sum) },
		} {
			j.must(call())
			if err := w.Flush(j.ctx, target); !errors.Is(err, rma.ErrRange) {
				t.Errorf("%s with a hole at rank %d: got %v, want class outside the window", what, target, err)
			}
		}
	}
	j.must(w.UnlockAll(j.ctx))
	j.each(func(n *rma.Node) error { return wins[n.Rank()].Free(j.ctx) })
}

// TestDetachMeanwhile attaches and detaches memory while another rank puts to it.
// Once Detach has returned, nobody writes to it any more: the owner may.
func TestDetachMeanwhile(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	wins := j.dynamics()
	mem := make([]int64, 500)
	where := rma.Address(buffer.Of(mem))
	stop, done, landed := make(chan bool), make(chan error), make(chan bool, 1)
	go func() {
		data := make([]int64, len(mem))
		for i := range data {
			data[i] = 7
		}
		err := wins[0].LockAll(j.ctx, 0)
		for put := true; put && err == nil; {
			err = errors.Join(wins[0].Put(buffer.Of(data), 1, rma.At(where)), wins[0].Flush(j.ctx, 1))
			if errors.Is(err, rma.ErrRange) {
				err = nil // it was not attached
			} else {
				select {
				case landed <- true:
				default:
				}
			}
			select {
			case <-stop:
				put = false
			default:
			}
		}
		done <- errors.Join(err, wins[0].UnlockAll(j.ctx))
	}()
	for i := range 200 {
		j.must(wins[1].Attach(rma.BytesOf(mem)))
		if i%2 == 0 {
			select {
			case <-landed:
			case err := <-done:
				t.Fatal(err)
			}
		}
		j.must(wins[1].Detach(rma.BytesOf(mem)))
		for i := range mem {
			if mem[i] != 0 && mem[i] != 7 {
				t.Fatalf("element %d is %d", i, mem[i])
			}
			mem[i] = 0
		}
		for i := range mem {
			if mem[i] != 0 {
				t.Fatalf("element %d was written after the detach", i)
			}
		}
	}
	close(stop)
	j.must(<-done)
	j.each(func(n *rma.Node) error { return wins[n.Rank()].Free(j.ctx) })
}
