package comm_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/userspace"
)

// survive creates a communicator of those that are left of c, as the package's comment says.
func survive(ctx context.Context, c *comm.Comm, tag int) (*comm.Comm, error) {
	for {
		d, err := c.CreateGroup(ctx, c.Group().Difference(c.Failed()), tag)
		if !errors.Is(err, mpierr.ProcFailed) {
			return d, err
		}
	}
}

// uses has all ranks of d use it, and a window on it: they add up their ranks in the job.
func uses(ctx context.Context, d *comm.Comm) error {
	sum, want := []int64{0}, int64(0)
	for r := range d.Size() {
		want += int64(d.WorldRank(r))
	}
	mine := []int64{int64(d.WorldRank(d.Rank()))}
	if err := comm.Allreduce(ctx, d, mine, sum, datatype.Sum); err != nil {
		return err
	}
	if sum[0] != want {
		return fmt.Errorf("the sum is %d, want %d", sum[0], want)
	}
	w, err := rma.Allocate(ctx, d, 8, 8, nil)
	if err != nil {
		return err
	}
	return errors.Join(
		w.Fence(ctx, 0),
		w.Accumulate(buffer.Of(mine), 0, rma.At(0), rma.Sum),
		w.Fence(ctx, 0),
		func() error {
			if got := rma.Slice[int64](w.Memory())[0]; d.Rank() == 0 && got != want {
				return fmt.Errorf("the window has %d, want %d", got, want)
			}
			return nil
		}(),
		w.Free(ctx),
	)
}

// die has a rank vanish.
func die(j *comm.Job) error { return j.Poller().Close() }

// without returns the jobs that are not those of the given ranks.
func without(jobs []*comm.Job, ranks ...int) []*comm.Job {
	return slices.DeleteFunc(slices.Clone(jobs), func(j *comm.Job) bool { return slices.Contains(ranks, j.Rank()) })
}

// failedAt says what is wrong with err as the failure of a rank of the communicator.
func failedAt(err error, rank int) error {
	var e *mpierr.Error
	if !errors.As(err, &e) || e.Class != mpierr.ProcFailed || e.Rank != rank || e.Op != "comm create_group" {
		return fmt.Errorf("got %v, want the failure of rank %d", err, rank)
	}
	return nil
}

// TestSurvivors has ranks die in the middle of collectives. The others go on without them.
func TestSurvivors(t *testing.T) {
	for _, test := range []struct{ size, dead int }{{2, 0}, {3, 0}, {3, 2}, {5, 0}, {5, 3}} {
		t.Run(fmt.Sprintf("%d without %d", test.size, test.dead), func(t *testing.T) {
			t.Parallel() // the most of it is waiting
			ctx, jobs := join(t, test.size, soon)
			if err := errors.Join(each(jobs, func(j *comm.Job) error {
				w := j.World()
				for n := 0; ; n++ {
					if j.Rank() == test.dead && n == 20 {
						return die(j)
					}
					if err := w.Barrier(ctx); errors.Is(err, mpierr.ProcFailed) {
						break
					} else if err != nil {
						return err
					}
				}
				d, err := survive(ctx, w, 0)
				if err != nil {
					return err
				}
				if f := w.Failed(); f.Size() != 1 || f.Rank() != comm.Undefined {
					return fmt.Errorf("%d have failed", f.Size())
				}
				if d.Size() != test.size-1 || d.Failed().Size() != 0 {
					return fmt.Errorf("%d members, of which %d have failed", d.Size(), d.Failed().Size())
				}
				if err := uses(ctx, d); err != nil {
					return err
				}
				again, err := d.Split(ctx, 0, -d.Rank()) // as with any other
				if err != nil {
					return err
				}
				return uses(ctx, again)
			})...); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSurvivorsOfMany has ranks die one after the other, or at once, while others create:
// all come to the same group, and what they know of when they begin may differ.
func TestSurvivorsOfMany(t *testing.T) {
	for _, dead := range [][]int{{4, 3}, {0, 1}, {1, 0}, {2, 0, 1}, {0, 4}} {
		t.Run(fmt.Sprint(dead), func(t *testing.T) {
			t.Parallel() // the most of it is waiting
			ctx, jobs := join(t, 5, soon)
			left := without(jobs, dead...)
			if err := errors.Join(each(jobs, func(j *comm.Job) error {
				w := j.World()
				if err := w.Barrier(ctx); err != nil && !errors.Is(err, mpierr.ProcFailed) { // the first may die before its last message leaves
					return err
				}
				if at := slices.Index(dead, j.Rank()); at >= 0 {
					if at == 0 {
						return die(j)
					}
					over := make(chan error)
					time.AfterFunc(time.Duration(at)*soon.DeadAfter, func() { over <- die(j) })
					_, _ = survive(ctx, w, 7) // the others' first try
					return <-over
				}
				if j.Rank()%2 == 0 { // half of them know at the start
					if _, err := comm.Recv(ctx, w, make([]byte, 1), dead[0], 0); !errors.Is(err, mpierr.ProcFailed) {
						return fmt.Errorf("recv: %v", err)
					}
				}
				d, err := survive(ctx, w, 7)
				for err == nil && d.Size() > len(left) { // it was made before the next one died
					for err == nil {
						err = d.Barrier(ctx)
					}
					if errors.Is(err, mpierr.ProcFailed) {
						d, err = survive(ctx, w, 7)
					}
				}
				if err != nil {
					return err
				}
				if d.Size() != len(left) || w.Failed().Size() != len(dead) {
					return fmt.Errorf("%d members, %d have failed", d.Size(), w.Failed().Size())
				}
				return uses(ctx, d)
			})...); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCreateGroupDeaths kills each member of a group while the others wait for it: the call
// fails at all and names it.
func TestCreateGroupDeaths(t *testing.T) {
	t.Parallel() // the most of it is waiting
	for dead := range 3 {
		ctx, jobs := join(t, 4, soon)
		var split sync.WaitGroup
		split.Add(len(jobs))
		if err := errors.Join(each(jobs, func(j *comm.Job) error {
			w := j.World()
			c, err := w.Split(ctx, 0, -j.Rank()) // its ranks are not those of the job
			split.Done()
			if err != nil || c.Rank() == 3 {
				return err
			}
			if c.Rank() == dead {
				split.Wait()
				time.Sleep(soon.DeadAfter / 10) // most of them wait by now
				return die(j)
			}
			g, err := c.Group().Incl([]int{0, 1, 2})
			if err != nil {
				return err
			}
			_, err = c.CreateGroup(ctx, g, 3)
			if err := failedAt(err, dead); err != nil {
				return err
			}
			_, err = c.CreateGroup(ctx, g, 4)
			if err := failedAt(err, dead); err != nil {
				return fmt.Errorf("again: %w", err)
			}
			names, err := c.Failed().Translate([]int{0}, c.Group())
			if err != nil || names[0] != dead {
				return fmt.Errorf("failed: %v, %v", names, err)
			}
			return nil
		})...); err != nil {
			t.Errorf("rank %d dead: %v", dead, err)
		}
	}
}

// TestCreateGroupGivenUp ends the context of each member while others wait for it, or for
// one that comes late: it gets the class Timeout, and the others learn who gave up. Nobody
// has failed, and another tag does.
func TestCreateGroupGivenUp(t *testing.T) {
	for quitter := range 3 {
		for _, late := range []int{0, 1, 2} {
			if late == quitter {
				continue
			}
			for _, e := range endings {
				// No sign of life, or death, helps along.
				ctx, jobs := join(t, 3, userspace.Limits{TxFrames: 64, RxFrames: 64, DeadAfter: time.Hour})
				gone := make(chan bool)
				if err := errors.Join(each(jobs, func(j *comm.Job) error {
					w := j.World()
					short := ctx
					switch w.Rank() {
					case quitter:
						var cancel func()
						short, cancel = e.begin(ctx)
						defer cancel()
						defer close(gone)
					case late:
						<-gone
					}
					_, err := w.CreateGroup(short, w.Group(), 0)
					if w.Rank() == quitter {
						err = e.ended(err, "comm create_group", -1)
					} else {
						err = failedAt(err, quitter)
					}
					if err != nil {
						return err
					}
					if w.Rank() == quitter {
						gone <- true
					}
					if n := w.Failed().Size(); n != 0 {
						return fmt.Errorf("%d have failed", n)
					}
					d, err := w.CreateGroup(ctx, w.Group(), 1)
					if err != nil {
						return err
					}
					return uses(ctx, d)
				})...); err != nil {
					t.Errorf("rank %d gives up, %d is late, %s: %v", quitter, late, e.name, err)
				}
			}
		}
	}
}

// TestCreateGroupRaces ends the contexts of members at about the time when the call ends:
// whoever has the communicator, nobody waits in it for others that do not.
func TestCreateGroupRaces(t *testing.T) {
	ctx, jobs := join(t, 3, userspace.Limits{TxFrames: 64, RxFrames: 64, DeadAfter: time.Hour})
	rounds, made := 300, make([]int, 3)
	if testing.Short() {
		rounds = 50
	}
	if err := errors.Join(each(jobs, func(j *comm.Job) error {
		w := j.World()
		for n := range rounds {
			if err := w.Barrier(ctx); err != nil {
				return err
			}
			short, cancel := context.WithCancel(ctx)
			if n%3 == w.Rank() {
				go func() {
					for range (n / 3) % 20 * 5 {
						runtime.Gosched()
					}
					cancel()
				}()
			}
			d, err := w.CreateGroup(short, w.Group(), n)
			cancel()
			switch {
			case err == nil:
				made[w.Rank()]++
				if err := d.Barrier(ctx); err != nil && !errors.Is(err, mpierr.ProcFailed) {
					return err
				}
			case !errors.Is(err, mpierr.ProcFailed) && !errors.Is(err, mpierr.Timeout):
				return err
			}
		}
		return nil
	})...); err != nil {
		t.Error(err)
	}
	t.Log("made", made, "of", rounds)
}

// TestCreateGroups has each rank in many groups at once, of one to all ranks, each with
// members in another order, while floods of messages without a receive stand around and
// the communicator is broken.
func TestCreateGroups(t *testing.T) {
	const size = 4
	ctx, jobs := join(t, size, userspace.Limits{TxFrames: 64, RxFrames: 64, DeadAfter: time.Hour})
	if err := errors.Join(each(jobs, func(j *comm.Job) error {
		c, err := j.World().Dup(ctx)
		if err != nil {
			return err
		}
		for to := range size {
			for i := range 3000 { // more than there is credit for
				if _, err := comm.Isend(ctx, c, make([]byte, 100), to, i); err != nil {
					return err
				}
			}
		}
		if c.Rank() == 1 {
			over, cancel := context.WithCancel(ctx)
			cancel()
			for err == nil { // one may find all that it waits for
				err = c.Barrier(over)
			}
			if !errors.Is(err, mpierr.Timeout) {
				return err
			}
			err = nil
		}
		for err == nil {
			err = c.Barrier(ctx)
		}
		if !errors.Is(err, mpierr.ProcFailed) {
			return err
		}
		if n := c.Failed().Size(); n != 0 {
			return fmt.Errorf("%d have failed", n)
		}
		var calls []int // as bits: which ranks
		for set := 1; set < 1<<size; set++ {
			if set>>c.Rank()&1 == 1 {
				calls = append(calls, set)
			}
		}
		return errors.Join(each(calls, func(set int) error {
			var ranks []int
			for i := range size {
				if r := (i + set) % size; set>>r&1 == 1 {
					ranks = append(ranks, r)
				}
			}
			g, err := c.Group().Incl(ranks)
			if err != nil {
				return err
			}
			d, err := c.CreateGroup(ctx, g, set)
			if err != nil {
				return fmt.Errorf("%v: %w", ranks, err)
			}
			if s := d.Group().Compare(g); s != comm.Identical {
				return fmt.Errorf("%v: the communicator's group is %v", ranks, s)
			}
			return uses(ctx, d)
		})...)
	})...); err != nil {
		t.Error(err)
	}
}

// TestCreateGroupFrees has each rank free the communicator as soon as it has its new one,
// or if it is not in the group: the others get theirs.
func TestCreateGroupFrees(t *testing.T) {
	ctx, jobs := join(t, 4, userspace.Limits{TxFrames: 64, RxFrames: 64, DeadAfter: time.Hour})
	if err := errors.Join(each(jobs, func(j *comm.Job) error {
		for n := range 50 {
			c, err := j.World().Dup(ctx)
			if err != nil {
				return err
			}
			g, err := c.Group().Excl([]int{n % 4})
			if err != nil {
				return err
			}
			var d *comm.Comm
			if n%4 != c.Rank() {
				d, err = c.CreateGroup(ctx, g, 0)
			}
			if err := errors.Join(err, c.Free()); err != nil {
				return err
			}
			if _, err := c.CreateGroup(ctx, g, 1); !errors.Is(err, mpierr.Comm) {
				return fmt.Errorf("on one that was freed: %v", err)
			}
			if d != nil {
				if err := d.Barrier(ctx); err != nil {
					return err
				}
			}
		}
		return nil
	})...); err != nil {
		t.Error(err)
	}
}

// TestCreateGroupLeft has a member leave the job in good order: it is as absent as one that
// failed.
func TestCreateGroupLeft(t *testing.T) {
	ctx, jobs := join(t, 3, userspace.Limits{TxFrames: 64, RxFrames: 64, DeadAfter: time.Hour})
	if err := errors.Join(each(jobs, func(j *comm.Job) error {
		if err := j.World().Barrier(ctx); err != nil {
			return err
		}
		if j.Rank() == 0 {
			return j.Close()
		}
		d, err := survive(ctx, j.World(), 0)
		if err != nil {
			return err
		}
		return uses(ctx, d)
	})...); err != nil {
		t.Error(err)
	}
}

// TestCreateGroupRefused passes groups and tags that are none.
func TestCreateGroupRefused(t *testing.T) {
	ctx, jobs := join(t, 2, userspace.Limits{})
	if err := errors.Join(each(jobs, func(j *comm.Job) error {
		w := j.World()
		own, err := w.Split(ctx, w.Rank(), 0)
		if err != nil {
			return err
		}
		other, err := w.Group().Incl([]int{1 - w.Rank()})
		if err != nil {
			return err
		}
		for _, test := range []struct {
			name  string
			c     *comm.Comm
			group comm.Group
			tag   int
			class mpierr.Class
		}{
			{"not in the communicator", own, w.Group(), 0, mpierr.Group},
			{"not a member", w, other, 0, mpierr.Group},
			{"empty", w, comm.Group{}, 0, mpierr.Group},
			{"negative tag", w, w.Group(), -1, mpierr.Tag},
			{"any tag", w, w.Group(), comm.AnyTag, mpierr.Tag},
			{"tag too large", w, w.Group(), comm.MaxTag + 1, mpierr.Tag},
		} {
			if _, err := test.c.CreateGroup(ctx, test.group, test.tag); !errors.Is(err, test.class) {
				return fmt.Errorf("%s: %v", test.name, err)
			}
		}
		d, err := own.CreateGroup(ctx, own.Group(), comm.MaxTag)
		if err != nil {
			return err
		}
		return uses(ctx, d)
	})...); err != nil {
		t.Error(err)
	}
}

// TestCreateGroupHalf has the leader die when it has let only one member go. That member
// does not wait in the new communicator for members that do not have it, and all go on
// without the leader.
func TestCreateGroupHalf(t *testing.T) {
	t.Parallel() // the most of it is waiting
	ctx, jobs := join(t, 4, soon)
	if err := errors.Join(each(jobs, func(j *comm.Job) error {
		w := j.World()
		if w.Rank() == 0 {
			if err := w.LeadHalf(ctx, w.Group(), 1); err != nil {
				return err
			}
			time.Sleep(soon.DeadAfter / 10)
			return die(j)
		}
		d, err := w.CreateGroup(ctx, w.Group(), 0)
		if w.Rank() == 1 && err == nil {
			err = comm.Bcast(ctx, d, []byte{0}, 2) // which waits for rank 2 alone
			if !errors.Is(err, mpierr.ProcFailed) {
				return fmt.Errorf("bcast: %v", err)
			}
		} else if err := failedAt(err, 0); err != nil {
			return err
		}
		if d, err = survive(ctx, w, 0); err != nil {
			return err
		}
		return uses(ctx, d)
	})...); err != nil {
		t.Error(err)
	}
}

// TestCreateGroupSpreads has one rank alone know that another has left, for which the
// others would wait for an hour: they learn of it from that one's call.
func TestCreateGroupSpreads(t *testing.T) {
	for knows := range 4 {
		left := (knows + 1) % 4
		ctx, jobs := join(t, 4, userspace.Limits{TxFrames: 64, RxFrames: 64, DeadAfter: time.Hour})
		if err := errors.Join(each(without(jobs, (knows+2)%4, (knows+3)%4), func(j *comm.Job) error {
			one := make([]byte, 1)
			if j.Rank() == left {
				return errors.Join(fails(comm.Recv(ctx, j.World(), one, knows, 0)), j.Close())
			}
			if err := comm.Send(ctx, j.World(), one, left, 0); err != nil {
				return err
			}
			if _, err := comm.Recv(ctx, j.World(), one, left, 0); !errors.Is(err, mpierr.ProcFailed) {
				return fmt.Errorf("recv: %v", err)
			}
			return nil
		})...); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(each(without(jobs, left), func(j *comm.Job) error {
			w := j.World()
			d, err := survive(ctx, w, 0)
			if err != nil {
				return err
			}
			if n := w.Failed().Size(); n != 1 || d.Size() != 3 {
				return fmt.Errorf("%d have failed, and %d go on", n, d.Size())
			}
			return uses(ctx, d)
		})...); err != nil {
			t.Errorf("rank %d knows: %v", knows, err)
		}
	}
}
