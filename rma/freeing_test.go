package rma_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/lab/logs"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/lab/testjob"
	"github.com/xdprma/xdprma/rma"
)

// TestFreeMeetsFree lets a rank pass a barrier of the program while another one frees a
// window: Free waits for Free, and for nothing else.
func TestFreeMeetsFree(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	wins := j.windows(8, 8)
	freed, passed := make(chan error, 1), make(chan error, 2)
	go func() { freed <- wins[0].Free(j.ctx) }()
	for _, n := range j.nodes {
		go func() { passed <- n.World().Barrier(j.ctx) }()
	}
	j.must(<-passed, <-passed)
	one := int64(1)
	for range 3 {
		j.must(wins[1].Lock(j.ctx, rma.LockShared, 0, 0), wins[1].Put(buffer.Value(&one), 0, rma.At(0)), wins[1].Unlock(j.ctx, 0))
	}
	select {
	case err := <-freed:
		t.Fatalf("Free has returned %v before the other rank called it", err)
	default:
	}
	j.must(wins[1].Free(j.ctx), <-freed)
}

// TestFreeTwoAtOnce frees two windows from two goroutines, in opposite orders.
func TestFreeTwoAtOnce(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	for range 5 {
		wins := [2][]*rma.Win{j.windows(8, 8), j.windows(8, 8)}
		var begun [2][2]chan bool // by window and rank
		for i := range begun {
			begun[i] = [2]chan bool{make(chan bool), make(chan bool)}
		}
		j.each(func(n *rma.Node) error {
			r := n.Rank()
			free := func(i int) error {
				close(begun[i][r])
				err := wins[i][r].Free(j.ctx)
				select {
				case <-begun[i][1-r]:
				default:
					t.Errorf("rank %d: window %d is free before the other rank has called Free", r, i)
				}
				return err
			}
			done := make(chan error)
			go func() { done <- free(r) }()
			<-begun[r][r]
			return errors.Join(free(1-r), <-done)
		})
	}
}

// TestFreeAfterBrokenCollective gives up a barrier of the program, and a fence of the
// window: it can be freed all the same.
func TestFreeAfterBrokenCollective(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	wins := j.windows(8, 8)
	short, cancel := context.WithTimeout(j.ctx, 5*time.Millisecond)
	defer cancel()
	if err := j.nodes[0].World().Barrier(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("barrier: %v", err)
	}
	j.each(func(n *rma.Node) error {
		return errors.Join(wins[n.Rank()].Fence(j.ctx, 0), wins[n.Rank()].SetInfo(j.ctx, rma.Info{"accumulate_ops": "same_op"}))
	})
	if err := wins[0].Fence(short, rma.ModeNoSucceed); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("fence: %v", err)
	}
	freeAll(j, wins)
}

// TestFreeTells has Free return what nothing else has told: the failure of an operation
// of a post and start epoch, and that of a target which has never posted.
func TestFreeTells(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	wins := make([]*rma.Win, 2)
	j.each(func(n *rma.Node) (err error) { // the memory is not aligned, which the target alone knows
		wins[n.Rank()], err = rma.Create(j.ctx, n.World(), make([]byte, 32)[1:], 1, nil)
		return err
	})
	x := int64(1)
	j.each(func(n *rma.Node) error {
		w := wins[n.Rank()]
		if n.Rank() == 1 {
			return errors.Join(w.Post(j.ctx, []int{0}, 0), w.Wait(j.ctx))
		}
		return errors.Join(w.Start(j.ctx, []int{1}, 0), w.Accumulate(buffer.Value(&x), 1, rma.At(0), rma.Sum), w.Complete(j.ctx))
	})
	errs := j.outcomes(func(n *rma.Node) error { return wins[n.Rank()].Free(j.ctx) })
	if !errors.Is(errs[0], rma.ErrDisp) || errs[1] != nil {
		t.Errorf("after a refused accumulate: %v", errs)
	}
	wins = j.windows(8, 8)
	j.must(wins[0].Start(j.ctx, []int{1}, 0), wins[0].Put(buffer.Value(&x), 1, rma.At(0)), wins[0].Complete(j.ctx))
	errs = j.outcomes(func(n *rma.Node) error { return wins[n.Rank()].Free(j.ctx) })
	if !errors.Is(errs[0], rma.ErrRMASync) || errs[1] != nil {
		t.Errorf("after a start without a post: %v", errs)
	}
	if err := wins[0].Free(j.ctx); !errors.Is(err, rma.ErrWin) {
		t.Errorf("the window was not freed: %v", err)
	}
}

// TestCallsBesideFreeGetErrors frees a window, and closes the node, while other goroutines
// lock it and put: they get errors that say so, and nothing worse.
func TestCallsBesideFreeGetErrors(t *testing.T) {
	over := func(err error) bool { return errors.Is(err, rma.ErrClosed) || errors.Is(err, rma.ErrWin) }
	for _, hosts := range [][]string{{"a", "a"}, {"a", "b"}} {
		for round := range 10 {
			j := newJobAt(t, hosts, rma.Limits{})
			wins := j.windows(1<<16, 8)
			w := wins[0]
			data := make([]byte, 1<<16)
			var group sync.WaitGroup
			begun := make(chan struct{}, 2)
			for target := range 2 {
				group.Go(func() {
					for range 200 { // then Free finds no epoch open, if it has not before
						err := w.Lock(j.ctx, rma.LockShared, target, 0)
						if err == nil {
							err = errors.Join(w.Put(buffer.Bytes(data), target, rma.At(0)), w.Unlock(j.ctx, target))
						}
						select {
						case begun <- struct{}{}:
						default:
						}
						switch {
						case over(err):
							return
						case err != nil && !errors.Is(err, rma.ErrRMASync) && !errors.Is(err, rma.ErrProcFailed):
							t.Errorf("round %d, hosts %q, rank %d: %v", round, hosts, target, err)
							return
						}
					}
				})
			}
			<-begun
			if round%2 == 0 {
				j.must(j.nodes[0].Close())
			}
			group.Go(func() {
				for errors.Is(w.Free(j.ctx), rma.ErrRMASync) { // while an epoch is open
					runtime.Gosched()
				}
			})
			if round%2 != 0 {
				group.Go(func() { _ = wins[1].Free(j.ctx) })
			}
			group.Wait()
			if err := w.Lock(j.ctx, rma.LockShared, 1, 0); !over(err) {
				t.Errorf("round %d, hosts %q: a lock afterwards: %v", round, hosts, err)
			}
			j.close()
		}
	}
}

// TestFreedAlone accesses the window of a rank whose Free did not wait for the others:
// they are told, by frames and in memory.
func TestFreedAlone(t *testing.T) {
	for _, hosts := range [][]string{{"a", "a"}, {"a", "b"}} {
		j := newJobAt(t, hosts, rma.Limits{})
		wins := j.windows(8, 8)
		w := wins[0]
		x := int64(1)
		j.must(w.Lock(j.ctx, rma.LockShared, 1, 0), w.Put(buffer.Value(&x), 1, rma.At(0)), w.Unlock(j.ctx, 1))
		cancelled, cancel := context.WithCancel(j.ctx)
		cancel()
		if err := wins[1].Free(cancelled); !errors.Is(err, context.Canceled) {
			t.Errorf("free: %v", err)
		}
		for _, assert := range []rma.Assert{0, rma.ModeNoCheck} {
			err := w.Lock(j.ctx, rma.LockShared, 1, assert)
			if err == nil {
				err = errors.Join(w.Put(buffer.Value(&x), 1, rma.At(0)), w.Unlock(j.ctx, 1))
			}
			if !errors.Is(err, rma.ErrWin) {
				t.Errorf("hosts %q, assertion %d: got %v, want invalid window", hosts, assert, err)
			}
		}
		j.close()
	}
}

// TestCreateAtOnce creates windows on several communicators of the same ranks at the
// same time: their ids do not collide.
func TestCreateAtOnce(t *testing.T) {
	j := newJob(t, 4, rma.Limits{})
	comms := make([][]*comm.Comm, len(j.nodes))
	j.each(func(n *rma.Node) error {
		r, world := n.Rank(), n.World()
		for _, color := range []int{0, r % 2, r / 2, r & 1 & (r >> 1)} {
			c, err := world.Split(j.ctx, color, -r)
			if err != nil {
				return err
			}
			comms[r] = append(comms[r], c)
		}
		return nil
	})
	for range 10 {
		j.each(func(n *rma.Node) error {
			errs := make(chan error)
			for _, c := range comms[n.Rank()] {
				go func() {
					w, err := rma.Allocate(j.ctx, c, 8, 8, nil)
					if err == nil {
						err = w.Free(j.ctx)
					}
					errs <- err
				}()
			}
			var err error
			for range comms[n.Rank()] {
				err = errors.Join(err, <-errs)
			}
			return err
		})
	}
}

// TestAllocateTooMuch asks for memory that nobody has.
func TestAllocateTooMuch(t *testing.T) {
	for _, hosts := range [][]string{{"a", "a"}, {"a", "b"}} {
		j := newJobAt(t, hosts, rma.Limits{})
		for _, size := range []int{1 << 45, math.MaxInt} {
			for shared, allocate := range map[bool]func(context.Context, *comm.Comm, int, int, ...rma.Info) (*rma.Win, error){false: rma.Allocate, true: rma.AllocateShared} {
				if shared && hosts[0] != hosts[1] {
					continue
				}
				for _, err := range j.outcomes(func(n *rma.Node) error {
					_, err := allocate(j.ctx, n.World(), size, 1, nil)
					return err
				}) {
					if !errors.Is(err, rma.ErrNoMem) {
						t.Errorf("hosts %q, %d bytes, shared %v: got %v, want out of memory", hosts, size, shared, err)
					}
				}
			}
		}
		j.close()
	}
}

// TestTooMuchForAHostIsNoWindowByFrames asks on a host whose ranks share memory for more than there are
// addresses. The error says how much, and no warning speaks of a window that there is not.
func TestTooMuchForAHostIsNoWindowByFrames(t *testing.T) {
	once(t)
	places, stop, err := testjob.Places(2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	for rank := range places {
		places[rank].Host, places[rank].Frames = "a", false
	}
	var log logs.Log
	j := joined(t, places, func(_ int, join func() error) error { return join() }, rma.Config{Logger: log.Logger()})
	const size = 1 << 62
	for shared, allocate := range map[bool]func(context.Context, *comm.Comm, int, int, ...rma.Info) (*rma.Win, error){false: rma.Allocate, true: rma.AllocateShared} {
		told := false
		for _, err := range j.outcomes(func(n *rma.Node) error {
			_, err := allocate(j.ctx, n.World(), size*n.Rank()+8*(1-n.Rank()), 1)
			return err
		}) {
			if !errors.Is(err, rma.ErrNoMem) {
				t.Errorf("shared %v: %v", shared, err)
			}
			told = told || err != nil && strings.Contains(err.Error(), fmt.Sprint(size)) && !strings.Contains(err.Error(), "-1 bytes")
		}
		if !told {
			t.Errorf("shared %v: no rank says how much was asked for", shared)
		}
	}
	if log.Lines("they use frames") != 0 {
		t.Errorf("the log:\n%s", &log)
	}
}

// TestFenceGivenUpElsewhere gives up a fence on a window of some ranks: the others,
// which have made theirs at the same time, are not concerned.
func TestFenceGivenUpElsewhere(t *testing.T) {
	j := newJob(t, 4, rma.Limits{})
	wins := make([]*rma.Win, len(j.nodes))
	j.each(func(n *rma.Node) error {
		half, err := n.World().Split(j.ctx, n.Rank()/2, 0)
		if err != nil {
			return err
		}
		wins[n.Rank()], err = rma.Allocate(j.ctx, half, 64, 8, nil)
		return errors.Join(err, n.World().Barrier(j.ctx))
	})
	cancelled, cancel := context.WithCancel(j.ctx)
	cancel()
	if err := wins[0].Fence(cancelled, 0); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	j.each(func(n *rma.Node) error { return n.World().Barrier(j.ctx) }) // all are told before
	if err := wins[1].Fence(j.ctx, 0); !errors.Is(err, rma.ErrProcFailed) {
		t.Errorf("rank 1, which would wait: %v", err)
	}
	j.each(func(n *rma.Node) error {
		w := wins[n.Rank()]
		if n.Rank() < 2 {
			return w.Free(j.ctx)
		}
		return errors.Join(w.Fence(j.ctx, 0), w.Free(j.ctx))
	})
}

// TestFreeWithAGetOutstanding gives up a get from a rank that is stopped, and frees the
// window that its result lies in, which unmaps that: the answer, when it comes, touches
// nothing. A write to memory that is not there would end the process.
func TestFreeWithAGetOutstanding(t *testing.T) {
	once(t)
	for _, freed := range []int{0, 1} { // the window of the get, and another one
		j := newJob(t, 2, rma.Limits{})
		wins := [2][]*rma.Win{j.windows(4096, 8), j.windows(4096, 8)}
		j.each(func(n *rma.Node) error { return wins[0][n.Rank()].Fence(j.ctx, 0) })
		before := j.nodes[0].Stats()
		release := j.nodes[1].Hold()
		over, cancel := context.WithCancel(j.ctx)
		cancel()
		j.must(wins[0][0].Get(buffer.Bytes(wins[freed][0].Memory()), 1, rma.At(0)))
		if err := wins[0][0].Fence(over, rma.ModeNoSucceed); !errors.Is(err, rma.ErrTimeout) {
			t.Errorf("fence: %v", err)
		}
		if err := wins[freed][0].Free(over); !errors.Is(err, rma.ErrTimeout) {
			t.Errorf("free: %v", err)
		}
		release()
		testenv.Await(t, "a late answer", func() bool {
			after := j.nodes[0].Stats()
			return after.BadAnswers > before.BadAnswers
		})
		j.close()
	}
}
