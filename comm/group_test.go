package comm_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/userspace"
)

// TestCommunicators divides, duplicates and creates communicators, uses all of them
// at once, and breaks one: the others go on.
func TestCommunicators(t *testing.T) {
	const size = 5
	ctx, jobs := join(t, size, userspace.Limits{})
	broken := errors.New("broken")
	if err := errors.Join(each(jobs, func(j *comm.Job) error {
		w := j.World()
		odd, err := w.Split(ctx, w.Rank()%2, -w.Rank())
		if err != nil {
			return err
		}
		if want := []int{3, 2}[w.Rank()%2]; odd.Size() != want || odd.WorldRank(odd.Rank()) != w.Rank() || odd.WorldRank(0) < odd.WorldRank(odd.Size()-1) {
			return fmt.Errorf("split: rank %d of %d", odd.Rank(), odd.Size())
		}
		dup, err := odd.Dup(ctx)
		if err != nil {
			return err
		}
		color := comm.Undefined
		if w.Rank() > 0 {
			color = 5
		}
		some, err := w.Split(ctx, color, 0)
		if err != nil || (some == nil) != (w.Rank() == 0) {
			return fmt.Errorf("split with undefined: %v, %w", some, err)
		}
		host, err := w.SplitHost(ctx, 0)
		if err != nil || host.Size() != size {
			return fmt.Errorf("split by host: %w", err)
		}
		g, err := w.Group().Incl([]int{4, 2})
		if err != nil {
			return err
		}
		two, err := w.Create(ctx, g)
		if err != nil || (two != nil) != (w.Rank() == 4 || w.Rank() == 2) {
			return fmt.Errorf("create: %v, %w", two, err)
		}
		if two != nil && two.WorldRank(0) != 4 {
			return fmt.Errorf("create: rank 0 is %d", two.WorldRank(0))
		}
		var all []*comm.Comm
		for _, c := range []*comm.Comm{w, odd, dup, some, host, two} {
			if c != nil {
				all = append(all, c)
			}
		}
		if err := errors.Join(each(all, func(c *comm.Comm) error { return collectives(ctx, c, 100) })...); err != nil {
			return err
		}
		_ = comm.Bcast(ctx, dup, make([]int64, 1+dup.Rank()), 0) // a mistake
		if err := dup.Barrier(ctx); err == nil {
			return broken
		}
		if err := w.Free(); !errors.Is(err, mpierr.Arg) {
			return fmt.Errorf("free of the world: %w", err)
		}
		back, err := w.Split(ctx, 0, -w.Rank())
		if err != nil {
			return err
		}
		for i, test := range []struct {
			a, b *comm.Comm
			want comm.Similarity
		}{{w, w, comm.Identical}, {w, host, comm.Congruent}, {odd, dup, comm.Congruent}, {w, back, comm.Similar}, {odd, w, comm.Unequal}} {
			if got := test.a.Compare(test.b); got != test.want {
				return fmt.Errorf("comparison %d: %v, want %v", i, got, test.want)
			}
		}
		return errors.Join(odd.Barrier(ctx), w.Barrier(ctx), dup.Free(), odd.Free())
	})...); err != nil {
		t.Fatal(err)
	}
}

// TestCreate passes groups without common members at once, and groups that are wrong:
// every member of those learns so, and nobody gets a communicator that another has not.
func TestCreate(t *testing.T) {
	const size = 4
	ctx, jobs := join(t, size, userspace.Limits{})
	refused := errors.New("refused")
	for _, test := range []struct {
		what   string
		groups [size][]int // that the ranks pass
		want   [size]int   // size of what they get, 0 for nil, -1 for class Arg
	}{
		{"one", [size][]int{{3, 0}, {3, 0}, {3, 0}, {3, 0}}, [size]int{2, 0, 0, 2}},
		{"two that share no member", [size][]int{{0, 1}, {0, 1}, {3, 2}, {3, 2}}, [size]int{2, 2, 2, 2}},
		{"of one each, and none", [size][]int{{0}, {}, {2}, {3}}, [size]int{1, 0, 1, 1}},
		{"another at one member", [size][]int{{0, 1}, {0, 1, 2}, {0, 1, 2}, {3}}, [size]int{-1, -1, -1, 1}},
		{"another order", [size][]int{{0, 1}, {1, 0}, {2, 3}, {2, 3}}, [size]int{-1, -1, 2, 2}},
	} {
		for rank, err := range each(jobs, func(j *comm.Job) error {
			g, err := j.World().Group().Incl(test.groups[j.Rank()])
			if err != nil {
				return err
			}
			c, err := j.World().Create(ctx, g)
			switch want := test.want[j.Rank()]; {
			case errors.Is(err, mpierr.Arg) && c == nil && want == -1:
				return nil
			case err != nil:
				return err
			case c == nil && want == 0:
				return nil
			case c == nil || c.Size() != want || c.Group().Compare(g) != comm.Identical:
				return refused
			}
			return c.Barrier(ctx)
		}) {
			if err != nil {
				t.Errorf("%s: rank %d: %v", test.what, rank, err)
			}
		}
	}
	if err := errors.Join(each(jobs, func(j *comm.Job) error {
		half, err := j.World().Split(ctx, j.Rank()/2, 0)
		if err != nil {
			return err
		}
		// Also at a rank that is not in the group itself.
		g, err := j.World().Group().Incl([]int{0, 2})
		if err != nil {
			return err
		}
		for _, g := range []comm.Group{g, j.World().Group()} {
			if c, err := half.Create(ctx, g); !errors.Is(err, mpierr.Arg) || c != nil {
				return fmt.Errorf("a group that goes beyond the communicator: %v, %w", c, err)
			}
		}
		return half.Barrier(ctx)
	})...); err != nil {
		t.Fatal(err)
	}
}

// TestFreed uses a communicator after Free. Requests begun before go on, and Size, Rank
// and Compare still answer.
func TestFreed(t *testing.T) {
	ctx, jobs := join(t, 2, userspace.Limits{})
	if err := errors.Join(each(jobs, func(j *comm.Job) error {
		c, err := j.World().Dup(ctx)
		if err != nil {
			return err
		}
		key := comm.NewKeyval[int](nil, nil)
		in, out := []int64{0}, []int64{int64(j.Rank() + 1)}
		begun, err := comm.Irecv(ctx, c, in, 1-j.Rank(), 1, nil)
		if err == nil {
			err = errors.Join(comm.Send(ctx, c, out, 1-j.Rank(), 1), key.Set(c, 1), c.Free(), begun.Wait(ctx))
		}
		if err != nil || in[0] != int64(2-j.Rank()) {
			return fmt.Errorf("a receive that goes on: %d, %w", in[0], err)
		}
		if _, ok := key.Get(c); ok {
			return errors.New("the attribute has stayed")
		}
		one := func(_ any, err error) error { return err }
		for what, err := range map[string]error{
			"free": c.Free(), "barrier": c.Barrier(ctx), "bcast": comm.Bcast(ctx, c, out, 0), "set": key.Set(c, 1),
			"split": one(c.Split(ctx, 0, 0)), "dup": one(c.Dup(ctx)), "create": one(c.Create(ctx, c.Group())), "host": one(c.SplitHost(ctx, 0)),
			"allgather": one(c.AllgatherBytes(ctx, nil)), "broadcast": one(c.BcastBytes(ctx, nil, 0)),
			"send": comm.Send(ctx, c, out, 0, 0), "send to none": comm.Send(ctx, c, out, comm.ProcNull, 0),
			"recv": one(comm.Recv(ctx, c, in, 0, comm.AnyTag)), "isend": one(comm.Isend(ctx, c, out, 0, 0)),
			"irecv": one(comm.Irecv(ctx, c, in, comm.AnySource, 0, nil)), "probe": one(c.Probe(ctx, 0, comm.AnyTag)),
		} {
			if !errors.Is(err, mpierr.Comm) {
				return fmt.Errorf("%s: got %w, want class communicator", what, err)
			}
		}
		if _, _, err := c.Iprobe(0, 0); !errors.Is(err, mpierr.Comm) {
			return fmt.Errorf("iprobe: %w", err)
		}
		if c.Size() != 2 || c.Rank() != j.Rank() || c.Compare(j.World()) != comm.Congruent {
			return errors.New("it is another")
		}
		return j.World().Barrier(ctx)
	})...); err != nil {
		t.Fatal(err)
	}
}

func TestGroups(t *testing.T) {
	_, jobs := join(t, 4, userspace.Limits{})
	g := jobs[1].World().Group()
	of := func(ranks ...int) comm.Group {
		in, err := g.Incl(ranks)
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	a, b := of(3, 1), of(1, 2)
	for i, test := range []struct{ got, want comm.Group }{
		{a.Union(b), of(3, 1, 2)}, {a.Intersection(b), of(1)}, {a.Difference(b), of(3)}, {b.Difference(a), of(2)},
		{comm.Group{}.Union(b), b}, {a.Union(comm.Group{}), a},
	} {
		if test.got.Compare(test.want) != comm.Identical || test.got.Rank() != test.want.Rank() {
			t.Errorf("case %d: %v, want %v", i, test.got, test.want)
		}
	}
	if out, err := g.Excl([]int{0, 2}); err != nil || out.Compare(of(1, 3)) != comm.Identical {
		t.Errorf("excl: %v, %v", out, err)
	}
	if a.Rank() != 1 || of(0).Rank() != comm.Undefined || a.Size() != 2 || (comm.Group{}).Rank() != comm.Undefined {
		t.Error("wrong rank or size")
	}
	if a.Compare(of(1, 3)) != comm.Similar || a.Compare(b) != comm.Unequal || a.Compare(of(3)) != comm.Unequal {
		t.Error("wrong comparison")
	}
	if got, err := a.Translate([]int{1, 0}, b); err != nil || !slices.Equal(got, []int{0, comm.Undefined}) {
		t.Errorf("translate: %v, %v", got, err)
	}
	if got, err := g.Translate([]int{comm.ProcNull, 3, 3}, a); err != nil || !slices.Equal(got, []int{comm.ProcNull, 0, 0}) {
		t.Errorf("translate of ProcNull and of one rank twice: %v, %v", got, err)
	}
	for _, ranks := range [][]int{{4}, {-1}, {1, 1}} {
		if _, err := g.Incl(ranks); !errors.Is(err, mpierr.Rank) {
			t.Errorf("incl %v: %v", ranks, err)
		}
		if _, err := g.Excl(ranks); !errors.Is(err, mpierr.Rank) {
			t.Errorf("excl %v: %v", ranks, err)
		}
		if _, err := g.Translate(ranks[:1], a); !errors.Is(err, mpierr.Rank) && ranks[0] != 1 {
			t.Errorf("translate %v: %v", ranks, err)
		}
	}
}

func TestGroupRanges(t *testing.T) {
	_, jobs := join(t, 10, userspace.Limits{TxFrames: 64, RxFrames: 64})
	g := jobs[0].World().Group()
	type ranges = []comm.Range
	for _, test := range []struct {
		ranges ranges
		want   []int // nil: refused
		class  mpierr.Class
	}{
		{ranges{}, []int{}, 0},
		{ranges{{0, 9, 3}}, []int{0, 3, 6, 9}, 0},
		{ranges{{1, 8, 3}, {9, 5, -2}, {2, 2, 7}}, []int{1, 4, 7, 9, 5, 2}, mpierr.Rank}, // 7 twice
		{ranges{{1, 8, 3}, {8, 5, -3}}, []int{1, 4, 7, 8, 5}, 0},
		{ranges{{0, 11, 9}}, []int{0, 9}, 0}, // computed ranks count
		{ranges{{3, math.MaxInt, math.MaxInt}}, []int{3}, 0},
		{ranges{{3, math.MinInt, math.MinInt}}, []int{3}, mpierr.Rank},
		{ranges{{0, 12, 4}}, nil, mpierr.Rank},
		{ranges{{9, -1, -1}}, nil, mpierr.Rank},
		{ranges{{-1, 3, 1}}, nil, mpierr.Rank},
		{ranges{{0, 3, 0}}, nil, mpierr.Arg},
		{ranges{{0, 3, -1}}, nil, mpierr.Arg},
		{ranges{{3, 0, 1}}, nil, mpierr.Arg},
	} {
		in, err := g.RangeIncl(test.ranges)
		out, err2 := g.RangeExcl(test.ranges)
		if test.class != 0 {
			if !errors.Is(err, test.class) || !errors.Is(err2, test.class) {
				t.Errorf("%v: %v and %v, want class %v", test.ranges, err, err2, test.class)
			}
			continue
		}
		want, err3 := g.Incl(test.want)
		rest, err4 := g.Excl(test.want)
		if err := errors.Join(err, err2, err3, err4); err != nil || in.Compare(want) != comm.Identical || out.Compare(rest) != comm.Identical {
			t.Errorf("%v: %v and %v, %v", test.ranges, in, out, err)
		}
	}
}
