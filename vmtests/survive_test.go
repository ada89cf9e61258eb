package vmtests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/rma"
)

func init() { programs["surviving"] = surviving }

// The work of surviving: shares, each of them a sum of numbers that follow on each other.
const (
	shares    = 64
	shareSize = 1000
)

// surviving: all ranks count together, share by share, in a window at the first of them,
// and the victim is killed while they do. The others begin again without it, and get the
// right result.
func surviving(s *self) error {
	fmt.Println("ready")
	c := s.world
	for deaths := 0; ; {
		total, err := countTogether(s.ctx, c)
		if err == nil && deaths == 1 {
			if want := int64(shares*shareSize) * (shares*shareSize - 1) / 2; total != want {
				return fmt.Errorf("the result is %d, want %d", total, want)
			}
			break
		}
		if err == nil {
			continue // nobody has been killed yet
		}
		if !errors.Is(err, rma.ErrProcFailed) {
			return err
		}
		// A collective that is given up breaks the communicator for those who do not know.
		over, cancel := context.WithCancel(s.ctx)
		cancel()
		_ = c.Barrier(over)
		deaths++
		if c, err = s.survive(); err != nil {
			return fmt.Errorf("after %d deaths: %w", deaths, err)
		}
		dead, err := s.world.Failed().Translate([]int{0}, s.world.Group())
		if err != nil || !slices.Equal(dead, []int{victim}) || c.Size() != s.size-1 || c.Failed().Size() != 0 {
			return fmt.Errorf("%v have failed, %d ranks go on, %w", dead, c.Size(), err)
		}
	}
	fmt.Println("done")
	return s.listen("leave")
}

// survive creates a communicator of those that are left.
func (s *self) survive() (*comm.Comm, error) {
	for {
		c, err := s.world.CreateGroup(s.ctx, s.world.Group().Difference(s.world.Failed()), 1)
		if !errors.Is(err, rma.ErrProcFailed) {
			return c, err
		}
	}
}

// countTogether takes shares off a counter until there are none left, and returns the sum
// of all at every rank.
func countTogether(ctx context.Context, c *comm.Comm) (int64, error) {
	win, err := rma.Allocate(ctx, c, 16, 8, nil) // the next share, and the sum
	if err != nil {
		return 0, err
	}
	one, next, sum := []int64{1}, []int64{0}, []int64{0}
	if err := win.LockAll(ctx, 0); err != nil {
		return 0, err
	}
	for {
		err := all(
			func() error { return win.FetchAndOp(buffer.Of(one), buffer.Of(next), 0, rma.At(0), rma.Sum) },
			func() error { return win.Flush(ctx, 0) },
		)
		if err != nil {
			return 0, err
		}
		if next[0] >= shares {
			break
		}
		sum[0] = 0
		for n := next[0] * shareSize; n < (next[0]+1)*shareSize; n++ {
			sum[0] += n
		}
		err = all(
			func() error { return win.Accumulate(buffer.Of(sum), 0, rma.At(1), rma.Sum) },
			func() error { return win.Flush(ctx, 0) },
		)
		if err != nil {
			return 0, err
		}
	}
	if err := win.UnlockAll(ctx); err != nil {
		return 0, err
	}
	if err := c.Barrier(ctx); err != nil {
		return 0, err
	}
	sum[0] = 0
	if c.Rank() == 0 {
		sum[0] = rma.Slice[int64](win.Memory())[1]
	}
	total := []int64{0}
	if err := comm.Allreduce(ctx, c, sum, total, datatype.Sum); err != nil {
		return 0, err
	}
	return total[0], win.Free(ctx)
}

// A rank is killed in the middle of work, and the others finish it without that one.
func TestKilledAndSurvived(t *testing.T) {
	t.Parallel()
	for _, g := range testenv.Cases([]ground{onMemory}, onXDP, onUDP) {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			j := g.job(t, 5, spec{program: "surviving", deadAfter: deadAfter})
			for _, r := range j.ranks {
				j.await(r, "ready")
			}
			time.Sleep(100 * time.Millisecond) // work
			j.ranks[victim].kill()
			<-j.ranks[victim].done
			j.ranks = append(j.ranks[:victim:victim], j.ranks[victim+1:]...)
			for _, r := range j.ranks {
				j.await(r, "done")
			}
			for _, r := range j.ranks {
				r.tell("leave")
			}
			j.finish()
		})
	}
}
