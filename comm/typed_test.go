package comm_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/userspace"
)

// made returns a datatype that was just constructed, committed.
func made(t *datatype.Type, err error) *datatype.Type {
	if err == nil {
		err = t.Commit()
	}
	if err != nil {
		panic(err)
	}
	return t
}

// A shape is a way for 12n elements of type int64 to lie in memory.
type shape struct {
	name     string
	words    int // of memory
	origin   int // displacement 0
	count    int
	datatype *datatype.Type
}

// shapes returns different ones, each with 12n elements.
func shapes(n int) []shape {
	i64 := datatype.Int64
	backwards := made(datatype.Hvector(12, 1, -16, i64))
	return []shape{
		{"elements", 12 * n, 0, 12 * n, i64},
		{"vectors", 21 * n, 0, n, made(datatype.Resized(made(datatype.Vector(4, 3, 5, i64)), 0, 21*8))},
		{"indexed", 40 * n, 0, 2 * n, made(datatype.Resized(made(datatype.Indexed([]int{1, 3, 2}, []int{7, 0, 12}, i64)), 0, 20*8))},
		{"backwards", 24 * max(n, 1), 23, n, made(datatype.Resized(backwards, 0, 24*8))},
		{"part of an array", 30 * n, 0, n, made(datatype.Subarray([]int{5, 6}, []int{3, 4}, []int{1, 1}, datatype.OrderC, i64))},
		{"columns", 12 * n, 0, 12, made(datatype.Resized(made(datatype.Vector(n, 1, 12, i64)), 0, 8))},
	}
}

// memory returns what lies where a shape is, with the gaps, different for every rank.
func (s shape) memory(rank int) []int64 { return part(rank, s.words+1) }

func (s shape) buffer(mem []int64) buffer.Buffer {
	return buffer.TypedAt(mem, s.origin, s.count, s.datatype)
}

// packed returns the elements of the shape in mem.
func (s shape) packed(mem []int64) []int64 {
	data := make([]int64, s.count*s.datatype.Size()/8)
	if _, err := datatype.Pack(buffer.Of(data).Memory(), buffer.Of(mem).Memory(), int64(8*s.origin), s.datatype, s.count, 0); err != nil {
		panic(err)
	}
	return data
}

// holds returns an error unless mem is what it was for rank, with data unpacked into it.
func (s shape) holds(mem []int64, rank int, data []int64) error {
	want := s.memory(rank)
	if _, err := datatype.Unpack(buffer.Of(want).Memory(), int64(8*s.origin), s.datatype, s.count, 0, buffer.Of(data).Memory()); err != nil {
		panic(err)
	}
	if !slices.Equal(mem, want) {
		return fmt.Errorf("%s: at rank %d there is something else", s.name, rank)
	}
	return nil
}

// TestTypedMessages sends elements of every shape to every shape, from rank 0 to rank 1
// and from rank 1 to itself.
func TestTypedMessages(t *testing.T) {
	ctx, jobs := join(t, 2, userspace.Limits{})
	for _, n := range testenv.Cases([]int{0, 7, 1000}, 1, 150, 3000) {
		if err := errors.Join(each(jobs, func(j *comm.Job) error {
			w := j.World()
			for i, from := range shapes(n) {
				for _, to := range testenv.Cases(shapes(n)[i:i+1], shapes(n)...) { // each with itself, and all pairs
					if err := typedMessages(ctx, w, from, to); err != nil {
						return fmt.Errorf("%d times, from %s to %s: %w", n, from.name, to.name, err)
					}
				}
			}
			return nil
		})...); err != nil {
			t.Fatal(err)
		}
	}
}

func typedMessages(ctx context.Context, w *comm.Comm, from, to shape) error {
	out, in, again := from.memory(w.Rank()), to.memory(w.Rank()), to.memory(w.Rank())
	send := from.buffer(out)
	if w.Rank() == 0 {
		if err := w.SendBuffer(ctx, send, 1, 1); err != nil {
			return err
		}
		r, err := w.IsendBuffer(ctx, send, 1, 2)
		if err != nil {
			return err
		}
		_, err = w.SendrecvBuffer(ctx, send, 1, 3, to.buffer(in), 1, 3)
		return errors.Join(err, r.Wait(ctx), to.holds(in, 0, from.packed(from.memory(1))))
	}
	data := from.packed(from.memory(0))
	s, err := w.RecvBuffer(ctx, to.buffer(in), 0, 1)
	if err = errors.Join(err, to.holds(in, 1, data)); err != nil {
		return err
	}
	if want := (comm.Status{Source: 0, Tag: 1, Count: 8 * len(data)}); s != want || len(data) > 0 && s.Entries(to.datatype) != to.count {
		return fmt.Errorf("the status is %v, want %v", s, want)
	}
	short, err := datatype.Dup(to.datatype)
	if err != nil {
		return err
	}
	r, err := w.IrecvBuffer(ctx, buffer.TypedAt(again, to.origin, to.count, made(short, nil)), comm.AnySource, 2, &s)
	if err = errors.Join(err, short.Free(), r.Wait(ctx), to.holds(again, 1, data)); err != nil || s.Count != 8*len(data) {
		return fmt.Errorf("irecv: %v, %w", s, err)
	}
	in = to.memory(1)
	if _, err = w.SendrecvBuffer(ctx, send, 0, 3, to.buffer(in), 0, 3); err != nil {
		return err
	}
	self := to.memory(1)
	_, err = w.SendrecvBuffer(ctx, send, 1, 4, to.buffer(self), 1, 4)
	return errors.Join(err, to.holds(in, 1, data), to.holds(self, 1, from.packed(out)))
}

// sample has padding, and a field that is none of its data.
type sample struct {
	Kind  uint8
	Value float64
	_     [3]int32
	Flags [3]bool
	Pair  datatype.Pair[int16]
}

// TestStructMessages sends Go structs whole, and their parts to slices.
func TestStructMessages(t *testing.T) {
	ctx, jobs := join(t, 2, userspace.Limits{})
	const n = 700
	all := make([]sample, n)
	values := make([]float64, n)
	for i := range all {
		all[i] = sample{Kind: uint8(i), Value: float64(i) / 8, Flags: [3]bool{i%2 == 0, i%3 == 0, i%5 == 0}, Pair: datatype.Pair[int16]{Value: int16(-i), Index: int32(i)}}
		values[i] = all[i].Value
	}
	field := made(datatype.Resized(made(datatype.Hindexed([]int{1}, []int{8}, datatype.Float64)), 0, made(datatype.FromGo[sample]()).Extent()))
	one := all[n-1]
	if err := errors.Join(each(jobs, func(j *comm.Job) error {
		w := j.World()
		if w.Rank() == 0 {
			return errors.Join(w.SendBuffer(ctx, buffer.OfStructs(all), 1, 0), w.SendBuffer(ctx, buffer.Typed(all, n, field), 1, 1),
				comm.Send(ctx, w, values, 1, 2), w.SendBuffer(ctx, buffer.Value(&one.Value), 1, 3), w.SendBuffer(ctx, buffer.Bytes([]byte("text")), 1, 4))
		}
		got, parts := make([]sample, n), make([]sample, n)
		slice, value, text := make([]float64, n), 0.0, make([]byte, 4)
		_, err := w.RecvBuffer(ctx, buffer.OfStructs(got), 0, 0)
		_, err1 := comm.Recv(ctx, w, slice, 0, 1)
		_, err2 := w.RecvBuffer(ctx, buffer.Typed(parts, n, field), 0, 2)
		_, err3 := w.RecvBuffer(ctx, buffer.Value(&value), 0, 3)
		_, err4 := w.RecvBuffer(ctx, buffer.Bytes(text), 0, 4)
		if err := errors.Join(err, err1, err2, err3, err4); err != nil {
			return err
		}
		for i := range parts {
			if got[i] != all[i] || slice[i] != values[i] || parts[i] != (sample{Value: values[i]}) {
				return fmt.Errorf("sample %d: %v, %v, %v", i, got[i], slice[i], parts[i])
			}
		}
		if value != one.Value || string(text) != "text" {
			return fmt.Errorf("a value is %v, a text %q", value, text)
		}
		return nil
	})...); err != nil {
		t.Fatal(err)
	}
}

// TestTypedLengths receives messages that are longer than the buffer, and shorter.
func TestTypedLengths(t *testing.T) {
	ctx, jobs := join(t, 1, userspace.Limits{})
	w := jobs[0].World()
	every := made(datatype.Vector(3, 1, 2, datatype.Int64)) // of 5 words
	for _, test := range []struct {
		sent    []int64
		want    [5]int64
		class   mpierr.Class
		entries int
	}{
		{nil, [5]int64{}, 0, 0},
		{[]int64{1}, [5]int64{1}, 0, comm.Undefined},
		{[]int64{1, 2}, [5]int64{1, 0, 2}, 0, comm.Undefined},
		{[]int64{1, 2, 3}, [5]int64{1, 0, 2, 0, 3}, 0, 1},
		{[]int64{1, 2, 3, 4, 5, 6}, [5]int64{1, 0, 2, 0, 3}, mpierr.Truncate, 2},
		{make([]int64, 3*50_000), [5]int64{}, mpierr.Truncate, 50_000},
	} {
		receives := map[string]func(b buffer.Buffer) (comm.Status, error){
			"recv": func(b buffer.Buffer) (comm.Status, error) { return w.RecvBuffer(ctx, b, 0, 0) },
			"irecv": func(b buffer.Buffer) (s comm.Status, err error) {
				r, err := w.IrecvBuffer(ctx, b, 0, 0, &s)
				return s, errors.Join(err, r.Wait(ctx))
			},
		}
		for name, receive := range receives {
			var got [5]int64
			r, err := comm.Isend(ctx, w, test.sent, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			s, err := receive(buffer.Typed(got[:], 1, every))
			if got != test.want || mpierr.ClassOf(err) != test.class && !(test.class == 0 && err == nil) {
				t.Errorf("%s: %d elements: got %v, %v", name, len(test.sent), got, err)
			}
			if name == "recv" && (s.Count != 8*len(test.sent) || s.Entries(every) != test.entries) {
				t.Errorf("%s: %d elements: status %v, %d entries", name, len(test.sent), s, s.Entries(every))
			}
			if err := r.Wait(ctx); err != nil {
				t.Error(err)
			}
		}
	}
	empty := made(datatype.Contiguous(0, datatype.Int64))
	if (comm.Status{}).Entries(empty) != 0 || (comm.Status{Count: 8}).Entries(empty) != comm.Undefined {
		t.Error("entries of a datatype without data")
	}
	if s, err := w.RecvBuffer(ctx, buffer.Typed(make([]int64, 5), 1, every), comm.ProcNull, 0); err != nil || s.Source != comm.ProcNull {
		t.Errorf("from nobody: %v, %v", s, err)
	}
}

// typedCollectives runs every collective on c with a shape of its own at each rank.
func typedCollectives(ctx context.Context, c *comm.Comm, n int) error {
	size, rank := c.Size(), c.Rank()
	at := func(rank, n int) shape { all := shapes(n); return all[rank%len(all)] }
	mine, whole := at(rank, n), at(rank+1, n*size)
	parts := func(rank int) []int64 { s := at(rank, n); return s.packed(s.memory(rank)) }         // what a rank has
	wholes := func(rank int) []int64 { s := at(rank+1, n*size); return s.packed(s.memory(rank)) } // for all
	var gathered, crossed []int64
	for r := range size {
		gathered = append(gathered, parts(r)...)
		crossed = append(crossed, wholes(r)[12*n*rank:12*n*(rank+1)]...)
	}
	for root := range size {
		out, in, many, some := mine.memory(rank), mine.memory(rank), whole.memory(rank), mine.memory(rank)
		err := errors.Join(
			c.BcastBuffer(ctx, mine.buffer(out), root), mine.holds(out, rank, parts(root)),
			c.GatherBuffer(ctx, mine.buffer(in), whole.buffer(many), root),
			c.ScatterBuffer(ctx, whole.buffer(whole.memory(rank)), mine.buffer(some), root),
			mine.holds(some, rank, wholes(root)[12*n*rank:12*n*(rank+1)]),
		)
		want := gathered
		if rank != root {
			want = wholes(rank) // not touched
		}
		if err = errors.Join(err, whole.holds(many, rank, want)); err != nil {
			return err
		}
	}
	many, cross := whole.memory(rank), whole.memory(rank)
	return errors.Join(
		c.AllgatherBuffer(ctx, mine.buffer(mine.memory(rank)), whole.buffer(many)), whole.holds(many, rank, gathered),
		c.AlltoallBuffer(ctx, whole.buffer(whole.memory(rank)), whole.buffer(cross)), whole.holds(cross, rank, crossed),
	)
}

func TestDerivedCollectives(t *testing.T) {
	for _, size := range testenv.Cases([]int{3}, 1, 2, 6) {
		ctx, jobs := join(t, size, userspace.Limits{})
		for _, n := range []int{0, 1, 20, 500} {
			if err := errors.Join(each(jobs, func(j *comm.Job) error { return typedCollectives(ctx, j.World(), n) })...); err != nil {
				t.Fatalf("%d ranks, %d times: %v", size, n, err)
			}
		}
	}
}

// TestBuffersRefused passes every wrong buffer to every call.
func TestBuffersRefused(t *testing.T) {
	ctx, jobs := join(t, 1, userspace.Limits{})
	mem := make([]int64, 8)
	before := bytes.Clone(buffer.Of(mem).Memory())
	uncommitted, err := datatype.Vector(2, 1, 2, datatype.Int64)
	if err != nil {
		t.Fatal(err)
	}
	freed := made(datatype.Vector(2, 1, 2, datatype.Int64))
	late := buffer.Typed(mem, 1, freed)
	if err := freed.Free(); err != nil {
		t.Fatal(err)
	}
	vector := made(datatype.Vector(2, 1, 2, datatype.Int64))
	twice := made(datatype.Resized(vector, 0, 0))
	for _, test := range []struct {
		name string
		b    buffer.Buffer
		send mpierr.Class // of what sends it
		recv mpierr.Class // of what receives into it
	}{
		{"not committed", buffer.Typed(mem, 1, uncommitted), mpierr.Type, mpierr.Type},
		{"no datatype", buffer.Typed(mem, 1, nil), mpierr.Type, mpierr.Type},
		{"freed", late, mpierr.Type, mpierr.Type},
		{"pointers", buffer.OfStructs([]*int{nil}), mpierr.Type, mpierr.Type},
		{"pointers in memory", buffer.Typed([]string{""}, 1, vector), mpierr.Type, mpierr.Type},
		{"negative", buffer.Typed(mem, -1, vector), mpierr.Count, mpierr.Count},
		{"too many", buffer.Typed(mem, 1<<62, vector), mpierr.Count, mpierr.Count},
		{"outside", buffer.Typed(mem, 4, vector), mpierr.Arg, mpierr.Arg},
		{"before", buffer.TypedAt(mem, -1, 1, vector), mpierr.Arg, mpierr.Arg},
		{"bytes twice", buffer.Typed(mem, 2, twice), 0, mpierr.Type},
		{"more than there is", buffer.Typed(mem, 1<<40, twice), mpierr.Count, mpierr.Type},
	} {
		b, none := test.b, buffer.Buffer{}
		for i, call := range []struct {
			got  func(c *comm.Comm) error
			want mpierr.Class
		}{
			{func(c *comm.Comm) error { return c.SendBuffer(ctx, b, comm.ProcNull, 0) }, test.send},
			{func(c *comm.Comm) error { return fails(c.IsendBuffer(ctx, b, comm.ProcNull, 0)) }, test.send},
			{func(c *comm.Comm) error { return fails(c.RecvBuffer(ctx, b, comm.ProcNull, 0)) }, test.recv},
			{func(c *comm.Comm) error { return fails(c.IrecvBuffer(ctx, b, comm.ProcNull, 0, nil)) }, test.recv},
			{func(c *comm.Comm) error {
				return fails(c.SendrecvBuffer(ctx, b, comm.ProcNull, 0, none, comm.ProcNull, 0))
			}, test.send},
			{func(c *comm.Comm) error {
				return fails(c.SendrecvBuffer(ctx, none, comm.ProcNull, 0, b, comm.ProcNull, 0))
			}, test.recv},
			{func(c *comm.Comm) error { return c.BcastBuffer(ctx, b, 0) }, test.send},
			{func(c *comm.Comm) error { return c.GatherBuffer(ctx, none, b, 0) }, cmp.Or(test.recv, mpierr.Count)},
			{func(c *comm.Comm) error { return c.ScatterBuffer(ctx, b, none, 0) }, cmp.Or(test.send, mpierr.Count)},
			{func(c *comm.Comm) error { return c.AllgatherBuffer(ctx, b, none) }, cmp.Or(test.send, mpierr.Count)},
			{func(c *comm.Comm) error { return c.AlltoallBuffer(ctx, none, b) }, cmp.Or(test.recv, mpierr.Count)},
		} {
			c, err := jobs[0].World().Dup(ctx) // a collective that fails breaks its communicator
			if err != nil {
				t.Fatal(err)
			}
			var told error
			c.SetErrhandler(func(_ *comm.Comm, err error) { told = err })
			if err := call.got(c); mpierr.ClassOf(err) != call.want || err != told {
				t.Errorf("%s: call %d: %v, want class %v; the handler was told %v", test.name, i, err, call.want, told)
			}
		}
	}
	if !bytes.Equal(buffer.Of(mem).Memory(), before) {
		t.Error("a call that was refused has changed the memory")
	}
}

// TestTypedLengthsDiffer has ranks whose buffers have different lengths meet in
// collectives: all fail, and none hangs.
func TestTypedLengthsDiffer(t *testing.T) {
	ctx, jobs := join(t, 2, userspace.Limits{})
	every := made(datatype.Vector(3, 1, 2, datatype.Int64))
	bad, err := datatype.Vector(3, 1, 2, datatype.Int64) // not committed
	if err != nil {
		t.Fatal(err)
	}
	for i, test := range []struct {
		call func(c *comm.Comm, mine buffer.Buffer) error
		good buffer.Buffer // at rank 0
		bad  buffer.Buffer // at rank 1
		want mpierr.Class
	}{
		{func(c *comm.Comm, b buffer.Buffer) error { return c.BcastBuffer(ctx, b, 0) }, buffer.Of(make([]int64, 3)), buffer.Typed(make([]int64, 10), 2, every), mpierr.Count},
		{func(c *comm.Comm, b buffer.Buffer) error {
			return c.AllgatherBuffer(ctx, b, buffer.Of(make([]int64, 6)))
		}, buffer.Of(make([]int64, 3)), buffer.Typed(make([]int64, 10), 2, every), mpierr.Count},
		{func(c *comm.Comm, b buffer.Buffer) error { return c.BcastBuffer(ctx, b, 0) }, buffer.Of(make([]int64, 3)), buffer.Typed(make([]int64, 5), 1, bad), mpierr.Type},
		{func(c *comm.Comm, b buffer.Buffer) error { return c.AlltoallBuffer(ctx, b, b) }, buffer.Of(make([]int64, 2)), buffer.Typed(make([]int64, 5), 1, bad), mpierr.Type},
	} {
		var cs [2]*comm.Comm
		if err := errors.Join(each(jobs, func(j *comm.Job) (err error) {
			cs[j.Rank()], err = j.World().Dup(ctx)
			return err
		})...); err != nil {
			t.Fatal(err)
		}
		classes := map[mpierr.Class]bool{}
		errs := each(jobs, func(j *comm.Job) error {
			c := cs[j.Rank()]
			b := test.good
			if j.Rank() == 1 {
				b = test.bad
			}
			return errors.Join(test.call(c, b), c.Barrier(ctx))
		})
		for rank, err := range errs {
			if err == nil {
				t.Errorf("call %d: rank %d noticed nothing", i, rank)
			}
			classes[test.want] = classes[test.want] || errors.Is(err, test.want)
		}
		if !classes[test.want] {
			t.Errorf("call %d: no rank got class %v: %v", i, test.want, errs)
		}
	}
}

// ofPairs is generic in the type of its pairs, as datatype.Pair says.
func ofPairs[P datatype.Pair[int64] | datatype.Pair[float64]](p []P) buffer.Buffer {
	return buffer.Of(p)
}

// A generic function may take the pair, though not its value's type, as a parameter.
func TestPairsInGenericCode(t *testing.T) {
	if b := ofPairs(make([]datatype.Pair[float64], 3)); b.Basic() != datatype.BasicFloat64Int32 || b.Len() != 3 {
		t.Errorf("%d elements of %v", b.Len(), b.Basic())
	}
}

// A pointer that is nil is no element: the call that is given it says so.
func TestNoValue(t *testing.T) {
	b := buffer.Value[int64](nil)
	if err := b.Check("send", "send buffer", 3); mpierr.ClassOf(err) != mpierr.Arg || !strings.Contains(err.Error(), "nil") || b.Len() != 0 || len(b.Memory()) != 0 {
		t.Errorf("%d elements, %v", b.Len(), err)
	}
}
