package rma_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/rma"
)

func committed(t testing.TB, typ *datatype.Type, err error) *datatype.Type {
	t.Helper()
	if err == nil {
		err = typ.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	return typ
}

func pattern(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 9))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// packed returns the data of count entries of typ in mem.
func packed(t testing.TB, mem []byte, origin int64, typ *datatype.Type, count int) []byte {
	t.Helper()
	b := make([]byte, count*typ.Size())
	if _, err := datatype.Pack(b, mem, origin, typ, count, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

// constructions returns a datatype of each constructor, all of elements of int64.
func constructions(t testing.TB) map[string]*datatype.Type {
	const i64 = 8
	old := datatype.Int64
	all := map[string]*datatype.Type{"predefined": old}
	add := func(name string, typ *datatype.Type, err error) { all[name] = committed(t, typ, err) }
	of := func(typ *datatype.Type, err error) func(name string) {
		return func(name string) { add(name, typ, err) }
	}
	of(datatype.Contiguous(5, old))("contiguous")
	of(datatype.Vector(4, 2, 3, old))("vector")
	of(datatype.Vector(4, 2, -3, old))("vector backwards")
	of(datatype.Hvector(4, 2, 5*i64, old))("hvector")
	of(datatype.Indexed([]int{1, 0, 3, 2}, []int{7, 2, 0, 4}, old))("indexed")
	of(datatype.Hindexed([]int{1, 3}, []int{6 * i64, -2 * i64}, old))("hindexed")
	of(datatype.IndexedBlock(2, []int{9, 0, 5}, old))("indexed_block")
	of(datatype.HindexedBlock(2, []int{5 * i64, 0, 11 * i64}, old))("hindexed_block")
	of(datatype.Struct([]int{1, 2}, []int{0, 2 * i64}, []*datatype.Type{old, all["vector"]}))("create_struct")
	of(datatype.Subarray([]int{5, 6}, []int{3, 2}, []int{1, 3}, datatype.OrderC, old))("subarray")
	of(datatype.Subarray([]int{5, 6}, []int{3, 2}, []int{1, 3}, datatype.OrderFortran, old))("subarray in the other order")
	of(datatype.DistributedArray(6, 3, []int{5, 7}, []datatype.Distribution{datatype.DistributeBlock, datatype.DistributeCyclic},
		[]int{datatype.DefaultArg, 2}, []int{2, 3}, datatype.OrderC, old))("darray")
	of(datatype.Resized(all["vector"], -2*i64, 20*i64))("resized")
	of(datatype.Dup(all["indexed"]))("dup")
	return all
}

// TestDatatypeConstructors uses a datatype of each constructor at origin, result
// and target of each call, against data packed and unpacked in this process.
func TestDatatypeConstructors(t *testing.T) {
	const size, disp = 8192, 100 // the second in units of 8 bytes
	j := newJob(t, 2, rma.Limits{})
	wins := j.windows(size, 8)
	w, ctx := wins[0], j.ctx
	j.must(w.LockAll(ctx, 0))
	for name, typ := range constructions(t) {
		for _, count := range []int{0, 1, 3} {
			for target, tw := range wins {
				t.Run(fmt.Sprintf("%s, %d to rank %d", name, count, target), func(t *testing.T) {
					lo, hi, err := typ.Bounds(count)
					if err != nil {
						t.Fatal(err)
					}
					n := count * typ.Size()
					at := rma.At(disp).As(count, typ)
					before := pattern(size, 1)
					copy(tw.Memory(), before)
					mine := pattern(int(hi-lo)+16, 2)
					local := buffer.TypedAt(mine, int(8-lo), count, typ)
					data := packed(t, mine, 8-lo, typ, count)
					// with returns the window's bytes if data was written there.
					with := func(data []byte) []byte {
						b := bytes.Clone(before)
						if _, err := datatype.Unpack(b, disp*8, typ, count, 0, data); err != nil {
							t.Fatal(err)
						}
						return b
					}
					holds := func(call string, want []byte, errs ...error) {
						t.Helper()
						if err := errors.Join(append(errs, w.Flush(ctx, target))...); err != nil {
							t.Fatalf("%s: %v", call, err)
						}
						if !bytes.Equal(tw.Memory(), want) {
							t.Fatalf("%s: the window holds something else", call)
						}
						copy(tw.Memory(), before)
					}
					ints := buffer.Of(rma.Slice[int64](data))
					holds("put", with(data), w.Put(local, target, at))
					holds("put, a slice at the target", append(append(bytes.Clone(before[:disp*8]), data...), before[disp*8+len(data):]...), w.Put(local, target, rma.At(disp)))
					holds("put without gaps", with(data), w.Put(ints, target, at))
					old := packed(t, before, disp*8, typ, count)
					sum := make([]byte, n)
					for i, v := range rma.Slice[int64](old) {
						rma.Slice[int64](sum)[i] = v + rma.Slice[int64](data)[i]
					}
					holds("accumulate", with(sum), w.Accumulate(local, target, at, rma.Sum))
					got := make([]byte, n)
					there := buffer.Of(rma.Slice[int64](got))
					holds("get without gaps", before, w.Get(there, target, at))
					if !bytes.Equal(got, old) {
						t.Error("get brought something else")
					}
					clear(got)
					holds("get_accumulate", with(sum), w.GetAccumulate(local, there, target, at, rma.Sum))
					if !bytes.Equal(got, old) {
						t.Error("get_accumulate brought something else")
					}
					wantMine := bytes.Clone(mine)
					if _, err := datatype.Unpack(wantMine, 8-lo, typ, count, 0, old); err != nil {
						t.Fatal(err)
					}
					for call, do := range map[string]func() error{
						"get":            func() error { return w.Get(local, target, at) },
						"get_accumulate": func() error { return w.GetAccumulate(buffer.Buffer{}, local, target, at, rma.NoOp) },
					} {
						saved := bytes.Clone(mine)
						holds(call, before, do())
						if !bytes.Equal(mine, wantMine) {
							t.Errorf("%s brought something else", call)
						}
						copy(mine, saved)
					}
				})
			}
		}
	}
	j.must(w.UnlockAll(ctx))
}

type particle struct {
	ID       int64
	Kind     uint8
	Position [3]float64
	Mass     float32
	Flags    [3]bool
}

// TestStructs moves Go structs, whole and field by field, and leaves padding alone.
func TestStructs(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	w, ctx := j.windows(1000*64, 1)[0], j.ctx
	typ, err := datatype.FromGo[particle]()
	j.must(err, w.Lock(ctx, rma.LockExclusive, 1, 0))
	all, back := make([]particle, 900), make([]particle, 900)
	for i := range all {
		f := float64(i)
		all[i] = particle{int64(i), uint8(i), [3]float64{f, -f, f / 3}, float32(i) / 7, [3]bool{i%2 == 0, i%3 == 0, true}}
	}
	j.must(w.Put(buffer.OfStructs(all), 1, rma.At(0)), w.Flush(ctx, 1), w.Get(buffer.OfStructs(back), 1, rma.At(0)), w.Flush(ctx, 1))
	if !slices.Equal(all, back) {
		t.Error("what came back is not what was put")
	}
	masses := make([]float32, len(all))
	// The mass of each, as a column.
	column, err := datatype.Hvector(len(all), 1, typ.Extent(), datatype.Float32)
	column = committed(t, column, err)
	j.must(w.Get(buffer.Of(masses), 1, rma.At(40).As(1, column)), w.Flush(ctx, 1))
	for i, m := range masses {
		if m != all[i].Mass {
			t.Fatalf("mass %d is %v, want %v", i, m, all[i].Mass)
		}
	}
	type withPointer struct{ P *int }
	if err := w.Put(buffer.OfStructs([]withPointer{{}}), 1, rma.At(0)); !errors.Is(err, rma.ErrType) {
		t.Errorf("a struct with a pointer: %v", err)
	}
	j.must(w.Unlock(ctx, 1))
}

// TestPairs finds the largest value and where it is, as the standard's example
// for MPI_MAXLOC does.
func TestPairs(t *testing.T) {
	const ranks, cells = 4, 300
	j := newJob(t, ranks, rma.Limits{})
	wins := j.windows(cells*16, 16)
	type pair = datatype.Pair[float64]
	value := func(rank, cell int) float64 { return float64((rank*7919 + cell*104729) % 1009) }
	j.each(func(n *rma.Node) error {
		w := wins[n.Rank()]
		mine := make([]pair, cells)
		for c := range mine {
			mine[c] = pair{Value: value(n.Rank(), c), Index: int32(n.Rank())}
		}
		least := []pair{{Value: -1}}
		lowest := slices.Repeat(least, cells)
		err := w.LockAll(j.ctx, 0)
		if n.Rank() == 0 {
			err = errors.Join(err, w.Put(buffer.Of(lowest), 0, rma.At(0)), w.FlushAll(j.ctx))
		}
		err = errors.Join(err, n.World().Barrier(j.ctx), w.Accumulate(buffer.Of(mine[1:]), 0, rma.At(1), rma.MaxLoc))
		old := make([]pair, 1)
		err = errors.Join(err, w.FetchAndOp(buffer.Of(mine[:1]), buffer.Of(old), 0, rma.At(0), rma.MaxLoc),
			w.FlushAll(j.ctx), n.World().Barrier(j.ctx))
		got := make([]pair, cells)
		err = errors.Join(err, w.Get(buffer.Of(got), 0, rma.At(0)), w.UnlockAll(j.ctx))
		for c, g := range got {
			want := pair{Value: -1}
			for r := range ranks {
				if v := value(r, c); v > want.Value {
					want = pair{Value: v, Index: int32(r)}
				}
			}
			if g != want {
				return errors.Join(err, fmt.Errorf("cell %d is %v, want %v", c, g, want))
			}
		}
		one := []int64{1}
		if e := w.Accumulate(buffer.Of(one), rma.ProcNull, rma.At(0), rma.MinLoc); !errors.Is(e, rma.ErrOp) {
			err = errors.Join(err, fmt.Errorf("MinLoc of int64: %v", e))
		}
		return err
	})
}

// TestTypedRefused gives each call what it must refuse, and sees that nothing has
// changed.
func TestTypedRefused(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	wins := j.windows(128, 8)
	w, ctx := wins[0], j.ctx
	vec, err := datatype.Vector(3, 1, 2, datatype.Int64)
	vec = committed(t, vec, err)
	raw, err := datatype.Vector(3, 1, 2, datatype.Int64)
	j.must(err)
	gone, err := datatype.Dup(vec)
	j.must(err, gone.Commit(), gone.Free())
	overlap, err := datatype.Vector(3, 2, 1, datatype.Int64)
	overlap = committed(t, overlap, err)
	back, err := datatype.Hvector(3, 1, -8, datatype.Int64)
	back = committed(t, back, err)
	mixed, err := datatype.Commit(datatype.Struct([]int{1, 2}, []int{0, 8}, []*datatype.Type{datatype.Int64, datatype.Float64}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := datatype.Commit(datatype.Vector(-1, 1, 1, datatype.Int64)); !errors.Is(err, datatype.ErrCount) {
		t.Errorf("commit of a negative vector: %v, want class count", err)
	}
	mem := make([]byte, 128)
	good, ints := buffer.Typed(mem, 1, vec), buffer.Of(make([]int64, 3))
	at := rma.At(0)
	one := buffer.Of([]int64{1})
	for target := range 2 {
		j.must(w.Lock(ctx, rma.LockExclusive, target, 0))
		put := func(b buffer.Buffer, at rma.Location) error { return w.Put(b, target, at) }
		get := func(b buffer.Buffer, at rma.Location) error { return w.Get(b, target, at) }
		acc := func(b buffer.Buffer, at rma.Location, op rma.Op) error { return w.Accumulate(b, target, at, op) }
		for _, c := range []struct {
			what string
			err  error
			want rma.Class
		}{
			{"origin not committed", put(buffer.Typed(mem, 1, raw), at), rma.ErrType},
			{"origin freed", put(buffer.Typed(mem, 1, gone), at), rma.ErrType},
			{"origin without a datatype", put(buffer.Typed(mem, 1, nil), at), rma.ErrType},
			{"negative count at the origin", put(buffer.Typed(mem, -1, vec), at), rma.ErrCount},
			{"endless count at the origin", put(buffer.Typed(mem, 1<<60, vec), at), rma.ErrCount},
			{"memory with pointers", put(buffer.Typed(make([]*int64, 9), 1, vec), at), rma.ErrType},
			{"memory too short", put(buffer.Typed(mem[:39], 1, vec), at), rma.ErrArg},
			{"memory starts too late", put(buffer.Typed(mem, 1, back), at), rma.ErrArg},
			{"origin far away", put(buffer.TypedAt(mem, 1<<62, 1, back), at), rma.ErrArg},
			{"result not committed", get(buffer.Typed(mem, 1, raw), at), rma.ErrType},
			{"result overlaps itself", get(buffer.Typed(mem, 1, overlap), at), rma.ErrType},
			{"target not committed", put(ints, at.As(1, raw)), rma.ErrType},
			{"target freed", get(ints, at.As(1, gone)), rma.ErrType},
			{"target without a datatype", put(ints, at.As(1, nil)), rma.ErrType},
			{"negative count at the target", put(ints, at.As(-1, vec)), rma.ErrCount},
			{"endless count at the target", put(ints, at.As(1<<59, vec)), rma.ErrCount},
			{"target overlaps itself", put(buffer.Of(make([]int64, 6)), at.As(1, overlap)), rma.ErrType},
			{"accumulate to a target that overlaps itself", acc(buffer.Of(make([]int64, 6)), at.As(1, overlap), rma.Sum), rma.ErrType},
			{"entries overlap", put(buffer.Of(make([]int64, 6)), at.As(2, must(datatype.Resized(vec, 0, 16)))), rma.ErrType},
			{"other elements", put(buffer.Of(make([]uint64, 3)), at.As(1, vec)), rma.ErrType},
			{"bytes for numbers", put(buffer.Bytes(mem[:24]), at.As(1, vec)), rma.ErrType},
			{"other order", put(buffer.Typed(mem, 2, mixed), at.As(6, datatype.Int64)), rma.ErrType},
			{"other elements in a get", get(buffer.Of(make([]uint64, 3)), at.As(1, vec)), rma.ErrType},
			{"too much data", put(buffer.Of(make([]int64, 4)), at.As(1, vec)), rma.ErrCount},
			{"too small a result", get(buffer.Of(make([]int64, 2)), at.As(1, vec)), rma.ErrCount},
			{"behind the window", put(good, rma.At(14)), rma.ErrRange},
			{"a mixture at the target", put(buffer.Typed(mem, 1, mixed), at), rma.ErrType},
			{"target longer than the window", put(one, at.As(4, vec)), rma.ErrRange},
			{"before the window", put(ints, rma.At(1).As(1, back)), rma.ErrRange},
			{"far behind the window", get(good, rma.At(1<<55)), rma.ErrRange},
			{"beyond all addresses", get(good, rma.At(1<<62)), rma.ErrRange},
			{"negative displacement", put(good, rma.At(-1)), rma.ErrDisp},
			{"accumulate of a mixture", acc(buffer.Typed(mem, 1, mixed), at, rma.Sum), rma.ErrType},
			{"no such operator", acc(good, at, rma.MaxLoc), rma.ErrOp},
			{"no_op", acc(good, at, rma.NoOp), rma.ErrOp},
			{"get_accumulate to other elements", w.GetAccumulate(good, buffer.Of(make([]uint64, 3)), target, at, rma.Sum), rma.ErrType},
			{"get_accumulate to less", w.GetAccumulate(good, one, target, at, rma.Sum), rma.ErrCount},
			{"get_accumulate to a target that overlaps itself", w.GetAccumulate(buffer.Of(make([]int64, 6)), buffer.Typed(mem, 1, overlap), target, at, rma.Sum), rma.ErrType},
			{"fetch_and_op of a derived datatype", w.FetchAndOp(good, one, target, at, rma.Sum), rma.ErrType},
			{"fetch_and_op at a derived datatype", w.FetchAndOp(one, one, target, at.As(1, vec), rma.Sum), rma.ErrType},
			{"fetch_and_op of two", w.FetchAndOp(one, one, target, at.As(2, datatype.Int64), rma.Sum), rma.ErrCount},
			{"compare_and_swap of a derived datatype", w.CompareAndSwap(one, good, one, target, at), rma.ErrType},
			{"compare_and_swap at a derived datatype", w.CompareAndSwap(one, one, one, target, at.As(1, vec)), rma.ErrType},
			{"to nobody, not committed", w.Put(buffer.Typed(mem, 1, raw), rma.ProcNull, at), rma.ErrType},
		} {
			if !errors.Is(c.err, c.want) {
				t.Errorf("%s: %v, want class %v", c.what, c.err, c.want)
			}
		}
		// These look alike, and are allowed.
		buf := make([]int64, 8)
		j.must(
			w.Put(good, rma.ProcNull, at),
			put(buffer.Typed(mem[:0], 0, vec), at), put(buffer.Typed(mem, 1, must(datatype.Contiguous(0, datatype.Int64))), rma.At(16)),
			put(one, at.As(2, vec)), get(buffer.Of(buf), at.As(2, vec)),
			put(buffer.Typed(mem, 1, mixed), at.As(2, mixed)),
			get(buffer.Of(buf[:6]), at.As(1, overlap)), // read twice
			put(ints, rma.At(2).As(1, back)),
			w.FetchAndOp(one, buffer.Of(buf[:1]), target, at.As(1, datatype.Int64), rma.NoOp),
			w.GetAccumulate(buffer.Typed(mem, 1, raw), ints, target, at, rma.NoOp), // the origin is ignored
			w.Unlock(ctx, target))
		if !bytes.Equal(wins[target].Memory()[8:], make([]byte, 120)) {
			t.Error("a refused call has changed the window")
		}
	}
}

func must(typ *datatype.Type, err error) *datatype.Type {
	if err == nil {
		err = typ.Commit()
	}
	if err != nil {
		panic(err)
	}
	return typ
}

// TestTypedLarge moves some MiB through datatypes with gaps, both ways at once,
// while the datatypes are freed.
func TestTypedLarge(t *testing.T) {
	const words = 200_000
	j := newJob(t, 2, rma.Limits{})
	wins := j.windows(3*words*8, 8)
	j.each(func(n *rma.Node) error {
		w, other, ctx := wins[n.Rank()], 1-n.Rank(), context.Background()
		mine := make([]uint64, 2*words)
		for i := range mine {
			mine[i] = uint64(n.Rank()+1)<<32 + uint64(i)
		}
		back := slices.Repeat([]uint64{7}, 2*words)
		two, three := must(datatype.Vector(words, 1, 2, datatype.Uint64)), must(datatype.Vector(words, 1, 3, datatype.Uint64))
		err := errors.Join(w.LockAll(ctx, 0),
			w.Put(buffer.Typed(mine, 1, two), other, rma.At(0).As(1, three)), w.Flush(ctx, other),
			w.Accumulate(buffer.Typed(mine, 1, two), other, rma.At(0).As(1, three), rma.Sum),
			w.Flush(ctx, other),
			w.Get(buffer.Typed(back, 1, two), other, rma.At(0).As(1, three)))
		err = errors.Join(err, two.Free(), three.Free(), w.UnlockAll(ctx))
		for i, v := range back {
			want := 2 * mine[i]
			if i%2 == 1 {
				want = 7
			}
			if v != want {
				return errors.Join(err, fmt.Errorf("word %d is %d, want %d", i, v, want))
			}
		}
		return errors.Join(err, n.World().Barrier(ctx))
	})
}

// TestTypedKeptBack issues calls with derived datatypes before the target has
// posted, gives up their memory and their datatypes at once, and completes them.
func TestTypedKeptBack(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	wins := j.windows(1000*8, 8)
	started := make(chan bool)
	j.each(func(n *rma.Node) error {
		w := wins[n.Rank()]
		if n.Rank() == 1 {
			for i := range rma.Slice[int64](w.Memory()) {
				rma.Slice[int64](w.Memory())[i] = int64(i)
			}
			<-started
			return errors.Join(w.Post(j.ctx, []int{0}, 0), w.Wait(j.ctx))
		}
		two, three := must(datatype.Vector(300, 1, 2, datatype.Int64)), must(datatype.Vector(300, 1, 3, datatype.Int64))
		mine, got := slices.Repeat([]int64{1000}, 600), make([]int64, 600)
		err := errors.Join(w.Start(j.ctx, []int{1}, 0),
			w.Accumulate(buffer.Typed(mine, 1, two), 1, rma.At(0).As(1, three), rma.Sum),
			w.GetAccumulate(buffer.Typed(mine, 1, two), buffer.Typed(got, 1, two), 1, rma.At(0).As(1, three), rma.Sum),
			two.Free(), three.Free())
		clear(mine)
		close(started)
		err = errors.Join(err, w.Complete(j.ctx))
		for i := range 300 {
			if got[2*i] != int64(1000+3*i) {
				return errors.Join(err, fmt.Errorf("element %d was %d", i, got[2*i]))
			}
		}
		return err
	})
	for i, v := range rma.Slice[int64](wins[1].Memory()) {
		want := int64(i)
		if i%3 == 0 && i < 900 {
			want += 2000
		}
		if v != want {
			t.Fatalf("element %d is %d, want %d", i, v, want)
		}
	}
}

// TestTypedCounts gives counts beyond 32 bits of datatypes without extent, or
// without data: they are counted, and nothing overflows.
func TestTypedCounts(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	w := j.windows(64, 8)[0]
	still, err := datatype.Resized(datatype.Int64, 0, 0)
	still = committed(t, still, err)
	empty, err := datatype.Contiguous(0, datatype.Int64)
	empty = committed(t, empty, err)
	x, none := []int64{5}, []int64{}
	j.must(w.LockAll(j.ctx, 0))
	for _, n := range []int{2, 1 << 40, 1 << 60, 1 << 61, 1 << 62} {
		if err := w.Get(buffer.Of(x), 1, rma.At(0).As(n, still)); !errors.Is(err, rma.ErrCount) {
			t.Errorf("get of %d elements at one place, into one: %v", n, err)
		}
		if err := w.Put(buffer.Typed(x, n, still), 1, rma.At(0).As(1, datatype.Int64)); !errors.Is(err, rma.ErrCount) {
			t.Errorf("put of %d elements from one place, to one: %v", n, err)
		}
		j.must(w.Put(buffer.Typed(none, n, empty), 1, rma.At(0).As(n, empty)),
			w.Get(buffer.Typed(none, n, empty), 1, rma.At(0).As(1, empty)),
			w.Accumulate(buffer.Typed(none, n, empty), 1, rma.At(0).As(n, empty), rma.Sum))
	}
	j.must(w.UnlockAll(j.ctx))
}
