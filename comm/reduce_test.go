package comm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/mpierr"
)

// value is element i of what a rank contributes.
func value(rank, i int) int64 { return int64((rank+3)*7919*(i+1)) % 100003 }

// part is n elements of a rank's contribution.
func part(rank, n int) []int64 {
	s := make([]int64, n)
	for i := range s {
		s[i] = value(rank, i)
	}
	return s
}

// collectives runs every collective on c and compares with what a loop computes.
func collectives(ctx context.Context, c *comm.Comm, n int) error {
	size, rank := c.Size(), c.Rank()
	var whole []int64
	sum := make([]int64, n)
	for r := range size {
		whole = append(whole, part(r, n)...)
		for i := range n {
			sum[i] += value(r, i)
		}
	}
	same := func(what string, got, want []int64) error {
		if !slices.Equal(got, want) {
			return fmt.Errorf("%s of %d elements at rank %d of %d is wrong", what, n, rank, size)
		}
		return nil
	}
	for root := range size {
		buf, all, mine, total := part(rank, n), make([]int64, size*n), make([]int64, n), make([]int64, n)
		err := errors.Join(
			comm.Bcast(ctx, c, buf, root), same("bcast", buf, part(root, n)),
			comm.Gather(ctx, c, part(rank, n), all, root), comm.Scatter(ctx, c, whole, mine, root), same("scatter", mine, part(rank, n)),
			comm.Reduce(ctx, c, part(rank, n), total, datatype.Sum, root),
		)
		if rank == root {
			err = errors.Join(err, same("gather", all, whole), same("reduce", total, sum))
		}
		if err != nil {
			return err
		}
	}
	all, total := make([]int64, size*n), make([]int64, n)
	send, recv, want := make([]int64, size*n), make([]int64, size*n), make([]int64, size*n)
	for r := range size {
		for i := range n {
			send[r*n+i], want[r*n+i] = value(rank*size+r, i), value(r*size+rank, i)
		}
	}
	floats, sums := make([]float64, n), make([]float64, n)
	for i := range floats {
		floats[i] = rand.New(rand.NewPCG(uint64(rank), uint64(i))).Float64()
	}
	err := errors.Join(
		comm.Allgather(ctx, c, part(rank, n), all), same("allgather", all, whole),
		comm.Allreduce(ctx, c, part(rank, n), total, datatype.Sum), same("allreduce", total, sum),
		comm.Alltoall(ctx, c, send, recv), same("alltoall", recv, want),
		comm.Allreduce(ctx, c, floats, sums, datatype.Sum),
	)
	if err != nil {
		return err
	}
	root := slices.Clone(sums)
	if err := comm.Bcast(ctx, c, root, 0); err != nil || !slices.Equal(root, sums) {
		return fmt.Errorf("allreduce differs between ranks: %w", err)
	}
	return nil
}

func TestTypedCollectives(t *testing.T) {
	for _, size := range []int{1, 2, 3, 4, 7} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			ctx, jobs := join(t, size, comm.Limits{})
			for _, n := range []int{0, 1, 200, 30_000} {
				if err := errors.Join(each(jobs, func(j *comm.Job) error { return collectives(ctx, j.World(), n) })...); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestLargeCollectives moves more than a rank keeps of what it has not asked for.
func TestLargeCollectives(t *testing.T) {
	ctx, jobs := join(t, 3, comm.Limits{})
	if err := errors.Join(each(jobs, func(j *comm.Job) error { return collectives(ctx, j.World(), 700_000) })...); err != nil {
		t.Fatal(err)
	}
}

func TestCollectivesRefused(t *testing.T) {
	ctx, jobs := join(t, 1, comm.Limits{})
	one, two := make([]int64, 1), make([]int64, 2)
	for i, test := range []struct {
		got  func(c *comm.Comm) error
		want mpierr.Class
	}{
		{func(c *comm.Comm) error { return comm.Bcast(ctx, c, one, 1) }, mpierr.Rank},
		{func(c *comm.Comm) error { return comm.Gather(ctx, c, one, two, 0) }, mpierr.Count},
		{func(c *comm.Comm) error { return comm.Scatter(ctx, c, one, two, 0) }, mpierr.Count},
		{func(c *comm.Comm) error { return comm.Alltoall(ctx, c, one, two) }, mpierr.Count},
		{func(c *comm.Comm) error { return comm.Reduce(ctx, c, one, two, datatype.Sum, 0) }, mpierr.Count},
		{func(c *comm.Comm) error { return comm.Allreduce(ctx, c, one, one, datatype.NoOp) }, mpierr.Op},
		{func(c *comm.Comm) error {
			return comm.Allreduce(ctx, c, []bool{true}, []bool{true}, datatype.Sum)
		}, mpierr.Op},
	} {
		c, err := jobs[0].World().Dup(ctx) // a collective that fails breaks its communicator
		if err != nil {
			t.Fatal(err)
		}
		if err := test.got(c); !errors.Is(err, test.want) {
			t.Errorf("call %d: %v, want class %v", i, err, test.want)
		}
	}
}

// TestCommunicators divides, duplicates and creates communicators, uses all of them
// at once, and breaks one: the others go on.
func TestCommunicators(t *testing.T) {
	const size = 5
	ctx, jobs := join(t, size, comm.Limits{})
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
		return errors.Join(odd.Barrier(ctx), w.Barrier(ctx), dup.Free(), odd.Free())
	})...); err != nil {
		t.Fatal(err)
	}
}

func TestGroups(t *testing.T) {
	_, jobs := join(t, 4, comm.Limits{})
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
	for _, ranks := range [][]int{{4}, {-1}, {1, 1}} {
		if _, err := g.Incl(ranks); !errors.Is(err, mpierr.Rank) {
			t.Errorf("incl %v: %v", ranks, err)
		}
		if _, err := g.Excl(ranks); !errors.Is(err, mpierr.Rank) {
			t.Errorf("excl %v: %v", ranks, err)
		}
		if _, err := g.Translate(ranks, a); !errors.Is(err, mpierr.Rank) {
			t.Errorf("translate %v: %v", ranks, err)
		}
	}
}

// TestLargeBlocks gathers and broadcasts blocks of bytes that are larger than anything a
// rank keeps, one collective after the other, with a rank that is late.
func TestLargeBlocks(t *testing.T) {
	for _, size := range []int{2, 5} {
		const n = 5<<20 + 13
		ctx, jobs := join(t, size, comm.Limits{TxFrames: 64, RxFrames: 64})
		if err := errors.Join(each(jobs, func(j *comm.Job) error {
			w := j.World()
			if w.Rank() == size-1 {
				time.Sleep(10 * time.Millisecond)
			}
			blocks, err := w.AllGather(ctx, text(w.Rank(), 0, n))
			if err != nil {
				return err
			}
			for from, b := range blocks {
				if !bytes.Equal(b, text(from, 0, n)) {
					return fmt.Errorf("block %d is wrong", from)
				}
			}
			for root := range 2 {
				got, err := w.Broadcast(ctx, text(root, 1, n), root)
				if err != nil || !bytes.Equal(got, text(root, 1, n)) {
					return fmt.Errorf("broadcast of %d: %d bytes, %w", root, len(got), err)
				}
			}
			send, recv := make([]int64, size*(n>>3)), make([]int64, size*(n>>3))
			send[w.Rank()] = 7
			return errors.Join(comm.Alltoall(ctx, w, send, recv), comm.Allreduce(ctx, w, send, recv, datatype.Sum))
		})...); err != nil {
			t.Fatal(err)
		}
	}
}
