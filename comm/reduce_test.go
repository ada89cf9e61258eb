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

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/userspace"
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
	random := rand.New(rand.NewPCG(uint64(rank), uint64(n)))
	for i := range floats {
		floats[i] = random.Float64()
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
			ctx, jobs := join(t, size, userspace.Limits{})
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
	ctx, jobs := join(t, 3, userspace.Limits{})
	if err := errors.Join(each(jobs, func(j *comm.Job) error { return collectives(ctx, j.World(), int(testenv.Seeds(700_000, 100_000))) })...); err != nil {
		t.Fatal(err)
	}
}

func TestCollectivesRefused(t *testing.T) {
	ctx, jobs := join(t, 1, userspace.Limits{})
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
		{func(c *comm.Comm) error { return comm.Allreduce(ctx, c, one, one, datatype.Replace) }, mpierr.Op},
		{func(c *comm.Comm) error { return comm.Reduce(ctx, c, one, one, datatype.Replace, 0) }, mpierr.Op},
		{func(c *comm.Comm) error { return comm.Reduce(ctx, c, one, one, datatype.MaxLoc, 0) }, mpierr.Op},
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

// TestMistakeOfAll has the ranks make the same mistake one after the other: the second
// is told of it too, and not of the failure of the first.
func TestMistakeOfAll(t *testing.T) {
	ctx, jobs := join(t, 2, userspace.Limits{})
	one, two := make([]int64, 1), make([]int64, 2)
	for name, test := range map[string]struct {
		call func(c *comm.Comm) error
		want mpierr.Class
	}{
		"bcast":           {func(c *comm.Comm) error { return comm.Bcast(ctx, c, one, 2) }, mpierr.Rank},
		"gather":          {func(c *comm.Comm) error { return comm.Gather(ctx, c, one, one, c.Rank()) }, mpierr.Count},
		"scatter":         {func(c *comm.Comm) error { return comm.Scatter(ctx, c, one, one, c.Rank()) }, mpierr.Count},
		"allgather":       {func(c *comm.Comm) error { return comm.Allgather(ctx, c, one, one) }, mpierr.Count},
		"alltoall":        {func(c *comm.Comm) error { return comm.Alltoall(ctx, c, one, two) }, mpierr.Count},
		"reduce":          {func(c *comm.Comm) error { return comm.Reduce(ctx, c, one, two, datatype.Sum, c.Rank()) }, mpierr.Count},
		"allreduce":       {func(c *comm.Comm) error { return comm.Allreduce(ctx, c, one, one, datatype.NoOp) }, mpierr.Op},
		"allgather typed": {func(c *comm.Comm) error { return c.AllgatherBuffer(ctx, buffer.Of(one), buffer.Of(one)) }, mpierr.Count},
		"bcast typed":     {func(c *comm.Comm) error { return c.BcastBuffer(ctx, buffer.Typed(one, 1, nil), 0) }, mpierr.Type},
	} {
		both := make([]*comm.Comm, 2)
		if err := errors.Join(each(jobs, func(j *comm.Job) (err error) {
			both[j.Rank()], err = j.World().Dup(ctx)
			return err
		})...); err != nil {
			t.Fatal(err)
		}
		for rank, c := range both {
			if rank > 0 { // until it has heard of the failure
				if _, err := comm.Recv(ctx, c, one, 0, 0); !errors.Is(err, mpierr.ProcFailed) {
					t.Fatal(err)
				}
			}
			if err := test.call(c); !errors.Is(err, test.want) {
				t.Errorf("%s at rank %d: %v, want class %v", name, rank, err, test.want)
			}
		}
	}
}

// pairs runs every collective and message on pairs, and finds where among the ranks
// the smallest and the largest values are, as the standard's examples do.
func pairs[P datatype.Element](ctx context.Context, c *comm.Comm, pair func(value, index int) P) error {
	size, rank := c.Size(), c.Rank()
	value := func(rank, i int) int { return (rank+1)*(i+3)%7 - 2 }
	for _, n := range []int{0, 1, 3, 400} {
		row := func(rank int) []P {
			s := make([]P, n)
			for i := range s {
				s[i] = pair(value(rank, i), rank)
			}
			return s
		}
		var whole []P
		for r := range size {
			whole = append(whole, row(r)...)
		}
		least, most := row(0), row(0)
		for i := range n {
			low, high := 0, 0
			for r := range size {
				if value(r, i) < value(low, i) {
					low = r
				}
				if value(r, i) > value(high, i) {
					high = r
				}
			}
			least[i], most[i] = pair(value(low, i), low), pair(value(high, i), high)
		}
		same := func(what string, got, want []P) error {
			if !slices.Equal(got, want) {
				return fmt.Errorf("%s of %d %Ts at rank %d of %d: got %v, want %v", what, n, *new(P), rank, size, got, want)
			}
			return nil
		}
		buf, all, gathered, mine := row(rank), make([]P, size*n), make([]P, size*n), make([]P, n)
		low, high, got := make([]P, n), make([]P, n), make([]P, n)
		root := size - 1
		err := errors.Join(
			comm.Bcast(ctx, c, buf, root), same("bcast", buf, row(root)),
			comm.Gather(ctx, c, row(rank), gathered, root),
			comm.Scatter(ctx, c, whole, mine, root), same("scatter", mine, row(rank)),
			comm.Allgather(ctx, c, row(rank), all), same("allgather", all, whole),
			comm.Alltoall(ctx, c, slices.Repeat(row(rank), size), all), same("alltoall", all, whole),
			comm.Reduce(ctx, c, row(rank), low, datatype.MinLoc, root),
			comm.Allreduce(ctx, c, row(rank), high, datatype.MaxLoc), same("maxloc", high, most),
		)
		if rank == root {
			err = errors.Join(err, same("gather", gathered, whole), same("minloc", low, least))
		}
		left := (rank + size - 1) % size
		s, e := comm.Sendrecv(ctx, c, row(rank), (rank+1)%size, 1, got, left, 1)
		if err = errors.Join(err, e, same("sendrecv", got, row(left))); err != nil {
			return err
		}
		if comm.CountOf[P](s) != n {
			return fmt.Errorf("a message of %d %Ts counts %d", n, *new(P), comm.CountOf[P](s))
		}
	}
	return nil
}

func pairOf[V datatype.PairValue](value, index int) datatype.Pair[V] {
	return datatype.Pair[V]{Value: V(value), Index: int32(index)}
}

func TestPairsInCollectives(t *testing.T) {
	for _, size := range []int{1, 2, 5} {
		ctx, jobs := join(t, size, userspace.Limits{})
		if err := errors.Join(each(jobs, func(j *comm.Job) error {
			w := j.World()
			return errors.Join(pairs(ctx, w, pairOf[int16]), pairs(ctx, w, pairOf[int32]), pairs(ctx, w, pairOf[int64]),
				pairs(ctx, w, pairOf[float32]), pairs(ctx, w, pairOf[float64]))
		})...); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLargeBlocks gathers and broadcasts blocks of bytes that are larger than anything a
// rank keeps, one collective after the other, with a rank that is late.
func TestLargeBlocks(t *testing.T) {
	for _, size := range testenv.Cases([]int{2}, 5) {
		const n = 5<<20 + 13
		ctx, jobs := join(t, size, userspace.Limits{TxFrames: 64, RxFrames: 64})
		if err := errors.Join(each(jobs, func(j *comm.Job) error {
			w := j.World()
			if w.Rank() == size-1 {
				time.Sleep(10 * time.Millisecond)
			}
			blocks, err := w.AllgatherBytes(ctx, text(w.Rank(), 0, n))
			if err != nil {
				return err
			}
			for from, b := range blocks {
				if !bytes.Equal(b, text(from, 0, n)) {
					return fmt.Errorf("block %d is wrong", from)
				}
			}
			for root := range 2 {
				got, err := w.BcastBytes(ctx, text(root, 1, n), root)
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
