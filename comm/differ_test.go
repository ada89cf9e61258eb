package comm_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/userspace"
)

// TestOneLengthDiffers has one rank pass a slice of another length to the collectives that
// have no root: everybody is told, in that call or the next one.
func TestOneLengthDiffers(t *testing.T) {
	for _, size := range testenv.Cases([]int{3, 6}, 2, 5) {
		ctx, jobs := join(t, size, userspace.Limits{})
		for odd := range size {
			for _, n := range [][2]int{{0, 1}, {1, 0}, {3, 4000}, {4000, 3}, {900, 1100}} {
				for _, gathers := range []bool{false, true} {
					errs := each(jobs, func(j *comm.Job) error {
						c, err := j.World().Dup(ctx)
						if err != nil {
							t.Error(err)
							return err
						}
						length := n[0]
						if j.Rank() == odd {
							length = n[1]
						}
						send := make([]uint32, length)
						if gathers {
							err = comm.Allgather(ctx, c, send, make([]uint32, length*size))
						} else {
							err = comm.Allreduce(ctx, c, send, send, datatype.Sum)
						}
						err = errors.Join(err, c.Barrier(ctx))
						return errors.Join(err, c.Free())
					})
					for rank, err := range errs {
						if !errors.Is(err, mpierr.Count) && !errors.Is(err, mpierr.ProcFailed) {
							t.Errorf("%d ranks, rank %d has %d elements and not %d, gathers %v: rank %d: %v", size, odd, n[1], n[0], gathers, rank, err)
						}
					}
				}
			}
		}
	}
}

// TestSameBits has all ranks get the same result of an allreduce, be it of values that are no
// numbers, of both zeros, and of equal values in different places.
func TestSameBits(t *testing.T) {
	special := []float64{0, math.Copysign(0, -1), math.NaN(), math.Float64frombits(0x7ff8_0000_0000_0123), math.Float64frombits(0xfff8_0000_0000_0456),
		math.Inf(1), math.Inf(-1), 1e300, -1e300, 1e-300, 0.1, 0.3}
	for _, size := range []int{1, 2, 3, 5, 6, 7, 8} {
		ctx, jobs := join(t, size, userspace.Limits{})
		for _, n := range []int{1, 7, 1501} {
			for _, op := range []datatype.Op{datatype.Sum, datatype.Prod, datatype.Max, datatype.Min} {
				results, narrow := make([][]uint64, size), make([][]uint32, size)
				err := errors.Join(each(jobs, func(j *comm.Job) error {
					rng := rand.New(rand.NewPCG(uint64(j.Rank()), uint64(n)))
					buf, small := make([]float64, n), make([]float32, n)
					for i := range buf {
						buf[i] = special[rng.IntN(len(special))]
						small[i] = float32(special[rng.IntN(len(special))])
					}
					err := errors.Join(comm.Allreduce(ctx, j.World(), buf, buf, op), comm.Allreduce(ctx, j.World(), small, small, op))
					for i := range buf {
						results[j.Rank()] = append(results[j.Rank()], math.Float64bits(buf[i]))
						narrow[j.Rank()] = append(narrow[j.Rank()], math.Float32bits(small[i]))
					}
					return err
				})...)
				if err != nil {
					t.Fatal(err)
				}
				for rank := range size {
					if !slices.Equal(results[rank], results[0]) || !slices.Equal(narrow[rank], narrow[0]) {
						t.Errorf("%d ranks, %v of %d elements: rank %d has another result than rank 0", size, op, n, rank)
					}
				}
			}
		}
	}
}

// TestReductionsGivenUp has a rank give up collectives without a root at any moment. All have
// their memory again, and the communicators that were made after are not disturbed.
func TestReductionsGivenUp(t *testing.T) {
	const size = 5
	ctx, jobs := join(t, size, userspace.Limits{})
	for round := range 24 {
		n := []int{1, 2000, 30_000, 300_000}[round%4]
		err := errors.Join(each(jobs, func(j *comm.Job) error {
			c, err := j.World().Dup(ctx)
			if err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
			mine := ctx
			if j.Rank() == round%size {
				short, cancel := context.WithTimeout(ctx, time.Duration(round/4)*300*time.Microsecond)
				defer cancel()
				mine = short
			}
			buf, all := make([]int64, n), make([]int64, n*size)
			for err == nil {
				if err = comm.Allreduce(mine, c, buf, buf, datatype.Sum); err == nil {
					err = comm.Allgather(mine, c, buf, all)
				}
				clear(buf)
				clear(all)
			}
			if !errors.Is(err, mpierr.Timeout) && !errors.Is(err, mpierr.ProcFailed) {
				return fmt.Errorf("round %d: %w", round, err)
			}
			return c.Free()
		})...)
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(each(jobs, func(j *comm.Job) error { return collectives(ctx, j.World(), 500) })...); err != nil {
		t.Error(err)
	}
}
