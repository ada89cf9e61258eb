package rma_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/rma"
)

var activeSizes = []int{1, 2, 3, 4, 7}

// others returns all ranks of n's job but n, and with self n too.
func others(n *rma.Node, self bool) (ranks []int) {
	for r := range n.Size() {
		if self || r != n.Rank() {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// TestFence has every rank put, accumulate and get in epochs between fences, on two
// windows at once, and finds all of it there after the next fence.
func TestFence(t *testing.T) {
	for _, size := range activeSizes {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			j := newJob(t, size, rma.Limits{})
			first, second := j.windows(8*(size+1), 8), j.windows(8, 8)
			j.each(func(n *rma.Node) error {
				a, b := first[n.Rank()], second[n.Rank()]
				if err := errors.Join(a.Fence(j.ctx, rma.ModeNoPrecede), b.Fence(j.ctx, rma.ModeNoPrecede)); err != nil {
					return err
				}
				got := make([]int64, size)
				for round := range 20 {
					v := int64(round*size + n.Rank() + 1)
					for target := range size {
						err := errors.Join(
							a.Put(buffer.Value(&v), target, rma.At(int64(n.Rank()))),
							a.Accumulate(buffer.Value(&v), target, rma.At(int64(size)), rma.Sum),
							b.Accumulate(buffer.Value(&v), target, rma.At(0), rma.Max),
						)
						if err != nil {
							return err
						}
					}
					if err := errors.Join(b.Fence(j.ctx, 0), a.Fence(j.ctx, 0)); err != nil {
						return err
					}
					mem := rma.Slice[int64](a.Memory())
					for r := range size {
						if want := int64(round*size + r + 1); mem[r] != want {
							return fmt.Errorf("round %d: element %d is %d, want %d", round, r, mem[r], want)
						}
					}
					if want := int64((round + 1) * size); rma.Slice[int64](b.Memory())[0] != want {
						return fmt.Errorf("round %d: the maximum is %d, want %d", round, rma.Slice[int64](b.Memory())[0], want)
					}
					neighbour := (n.Rank() + 1) % size
					if err := errors.Join(a.Get(buffer.Of(got), neighbour, rma.At(0)), a.Fence(j.ctx, rma.ModeNoStore|rma.ModeNoPut)); err != nil {
						return err
					}
					if got[n.Rank()] != v {
						return fmt.Errorf("round %d: got %d, want %d", round, got, v)
					}
				}
				sum := int64(20*size) * int64(20*size+1) / 2
				if got := rma.Slice[int64](a.Memory())[size]; got != sum {
					return fmt.Errorf("the sum is %d, want %d", got, sum)
				}
				return errors.Join(a.Fence(j.ctx, rma.ModeNoSucceed), b.Fence(j.ctx, rma.ModeNoSucceed), a.Free(j.ctx), b.Free(j.ctx))
			})
		})
	}
}

// TestPostStart has every rank expose its window to all others, itself too, and
// work on theirs, round after round, in both orders of Post and Start.
func TestPostStart(t *testing.T) {
	for _, size := range activeSizes {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			j := newJob(t, size, rma.Limits{})
			wins := j.windows(8*(size+1), 8)
			j.each(func(n *rma.Node) error {
				w, group := wins[n.Rank()], others(n, true)
				for round := range 30 {
					v, old := int64(round*size+n.Rank()+1), int64(-1)
					begin := []func() error{
						func() error { return w.Post(j.ctx, group, 0) },
						func() error { return w.Start(j.ctx, group, 0) },
					}
					if (round+n.Rank())%2 == 1 {
						begin[0], begin[1] = begin[1], begin[0]
					}
					if err := errors.Join(begin[0](), begin[1]()); err != nil {
						return err
					}
					next := (n.Rank() + 1) % size
					for _, target := range group {
						one := int64(1)
						if err := errors.Join(w.Put(buffer.Value(&v), target, rma.At(int64(n.Rank()))), w.Accumulate(buffer.Value(&one), target, rma.At(int64(size)), rma.Sum)); err != nil {
							return err
						}
					}
					if err := errors.Join(w.FetchAndOp(buffer.Value(&v), buffer.Value(&old), next, rma.At(int64(size)), rma.NoOp), w.Complete(j.ctx)); err != nil {
						return err
					}
					if old <= int64(round*size) || old > int64((round+1)*size) {
						return fmt.Errorf("round %d: fetched %d", round, old)
					}
					if err := w.Wait(j.ctx); err != nil {
						return err
					}
					mem := rma.Slice[int64](w.Memory())
					for r := range size {
						if want := int64(round*size + r + 1); mem[r] != want {
							return fmt.Errorf("round %d: element %d is %d, want %d", round, r, mem[r], want)
						}
					}
					if mem[size] != int64((round+1)*size) {
						return fmt.Errorf("round %d: the sum is %d", round, mem[size])
					}
				}
				return w.Free(j.ctx)
			})
		})
	}
}

// TestWeakStart goes through a whole access epoch of puts, and a second one, before
// the target has posted once; the data is a copy. A get waits for the post.
func TestWeakStart(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	wins := j.windows(16, 8)
	origin, target := wins[0], wins[1]
	for v := int64(1); v <= 2; v++ {
		x, big := v, make([]int64, 1)
		big[0] = 10 * v
		j.must(origin.Start(j.ctx, []int{1}, 0), origin.Put(buffer.Value(&x), 1, rma.At(0)), origin.Put(buffer.Of(big), 1, rma.At(1)), origin.Complete(j.ctx))
		x, big[0] = -1, -1
	}
	mem := rma.Slice[int64](target.Memory())
	time.Sleep(20 * time.Millisecond)
	j.must(target.Sync())
	if mem[0] != 0 || mem[1] != 0 {
		t.Fatalf("the window changed before the post: %v", mem)
	}
	for v := int64(1); v <= 2; v++ {
		j.must(target.Post(j.ctx, []int{0}, 0), target.Wait(j.ctx))
		if mem[0] != v || mem[1] != 10*v {
			t.Fatalf("epoch %d: the window holds %v", v, mem)
		}
	}
	got := int64(0)
	j.must(origin.Start(j.ctx, []int{1}, 0), origin.Get(buffer.Value(&got), 1, rma.At(1)))
	done := make(chan error, 1)
	go func() { done <- origin.Complete(j.ctx) }()
	select {
	case err := <-done:
		t.Fatalf("a get completed before the post: %v", err)
	case <-time.After(10 * time.Millisecond):
	}
	j.must(target.Post(j.ctx, []int{0}, 0))
	if over, err := target.Test(); over && err != nil {
		t.Fatal(err)
	}
	j.must(<-done)
	for over := false; !over; {
		var err error
		if over, err = target.Test(); err != nil {
			t.Fatal(err)
		}
	}
	if got != 20 {
		t.Errorf("got %d, want 20", got)
	}
}

// TestOperationAfterLock issues operations after a lock that is not granted and
// whose request has left without them, from the goroutine that itself holds the
// lock in the way. They must not wait for it.
func TestOperationAfterLock(t *testing.T) {
	once(t)
	j := newJob(t, 2, rma.Limits{})
	a, b := j.windows(16, 8), j.windows(16, 8)
	holder, w := a[1], a[0] // rank 1 holds rank 1's lock, rank 0 asks for it
	v, big, old := int64(7), make([]int64, 1), int64(0)
	j.must(holder.Lock(j.ctx, rma.LockExclusive, 1, 0), w.Lock(j.ctx, rma.LockExclusive, 1, 0))
	// This sends the request too, and asks for no lock, which would come after that one.
	j.must(b[0].Lock(j.ctx, rma.LockShared, 1, rma.ModeNoCheck), b[0].Put(buffer.Value(&v), 1, rma.At(0)), b[0].Unlock(j.ctx, 1))
	j.must(w.Put(buffer.Value(&v), 1, rma.At(0)), w.Put(buffer.Of(big), 1, rma.At(1)),
		w.FetchAndOp(buffer.Value(&v), buffer.Value(&old), 1, rma.At(0), rma.Sum))
	v, big[0] = 100, 100
	mem := rma.Slice[int64](holder.Memory())
	if mem[0] != 0 {
		t.Errorf("a put under a lock that is not held changed the window to %v", mem)
	}
	mem[1] = 5
	j.must(holder.Unlock(j.ctx, 1), w.Unlock(j.ctx, 1), holder.Sync())
	if mem[0] != 14 || mem[1] != 0 || old != 7 {
		t.Errorf("the window holds %v, fetched %d, want [14 0], 7", mem, old)
	}
}

// TestActiveMisuse makes every mistake of active target synchronisation that one
// rank can see, and goes on.
func TestActiveMisuse(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	w := j.windows(8, 8)[0]
	v := int64(1)
	put := func() error { return w.Put(buffer.Value(&v), 1, rma.At(0)) }
	for i, c := range []struct {
		got  error
		want rma.Class
	}{
		{w.Complete(j.ctx), rma.ErrRMASync},
		{w.Wait(j.ctx), rma.ErrRMASync},
		{second(w.Test()), rma.ErrRMASync},
		{w.Start(j.ctx, []int{2}, 0), rma.ErrRank},
		{w.Post(j.ctx, []int{1, 1}, 0), rma.ErrRank},
		{w.Start(j.ctx, []int{1}, rma.ModeNoPut), rma.ErrAssert},
		{w.Post(j.ctx, []int{1}, rma.ModeNoSucceed), rma.ErrAssert},
		{w.Fence(j.ctx, rma.ModeNoCheck), rma.ErrAssert},
		{w.Start(j.ctx, nil, 0), 0},
		{put(), rma.ErrRMASync},
		{w.Start(j.ctx, nil, 0), rma.ErrRMASync},
		{w.Lock(j.ctx, rma.LockShared, 1, 0), rma.ErrRMASync},
		{w.Fence(j.ctx, 0), rma.ErrRMASync},
		{w.Free(j.ctx), rma.ErrRMASync},
		{w.Flush(j.ctx, 1), rma.ErrRMASync},
		{w.Complete(j.ctx), 0},
		{w.Lock(j.ctx, rma.LockShared, 1, 0), 0},
		{w.Start(j.ctx, []int{1}, 0), rma.ErrRMASync},
		{w.Fence(j.ctx, 0), rma.ErrRMASync},
		{w.Unlock(j.ctx, 1), 0},
		{w.Post(j.ctx, nil, 0), 0},
		{w.Post(j.ctx, nil, 0), rma.ErrRMASync},
		{w.Lock(j.ctx, rma.LockShared, 0, 0), rma.ErrRMASync},
		{w.LockAll(j.ctx, 0), rma.ErrRMASync},
		{w.Free(j.ctx), rma.ErrRMASync},
		{w.Wait(j.ctx), 0},
		{w.Lock(j.ctx, rma.LockShared, 0, 0), 0},
		{w.Post(j.ctx, []int{1}, 0), rma.ErrRMASync},
		{w.Unlock(j.ctx, 0), 0},
	} {
		if rma.ClassOf(c.got) != c.want {
			t.Errorf("call %d: got %v, want class %v", i, c.got, c.want)
		}
	}
}

// TestActiveAssertions gives the calls of active target synchronisation what they
// take, and a fence what is not true: it is told, and the data is there all the same.
func TestActiveAssertions(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	wins := j.windows(8, 8)
	mem := rma.Slice[int64](wins[1].Memory())
	fence := func(assert rma.Assert) []error {
		return j.outcomes(func(n *rma.Node) error { return wins[n.Rank()].Fence(j.ctx, assert) })
	}
	put := func(v int64) error { return wins[0].Put(buffer.Value(&v), 1, rma.At(0)) }
	j.must(fence(rma.ModeNoPrecede | rma.ModeNoStore | rma.ModeNoPut)...)
	j.must(put(1))
	if errs := fence(rma.ModeNoPrecede); !errors.Is(errs[0], rma.ErrAssert) || errs[1] != nil || mem[0] != 1 {
		t.Errorf("a fence that is said to complete nothing: %v, %d is there", errs, mem[0])
	}
	j.must(fence(rma.ModeNoPrecede | rma.ModeNoSucceed)...)
	if err := put(2); !errors.Is(err, rma.ErrRMASync) {
		t.Errorf("a put after a fence that is said to begin nothing: %v", err)
	}
	for v := int64(3); v < 6; v++ {
		j.must(wins[1].Post(j.ctx, []int{0}, rma.ModeNoCheck|rma.ModeNoStore|rma.ModeNoPut))
		j.must(wins[0].Start(j.ctx, []int{1}, rma.ModeNoCheck), put(v), wins[0].Complete(j.ctx), wins[1].Wait(j.ctx))
		if mem[0] != v {
			t.Errorf("%d is there after an epoch without checks, want %d", mem[0], v)
		}
	}
	j.must(wins[0].Start(j.ctx, []int{1}, rma.ModeNoCheck), put(6))
	err := errors.Join(wins[0].Complete(j.ctx), wins[0].Lock(j.ctx, rma.LockShared, 1, 0), wins[0].Unlock(j.ctx, 1))
	if !errors.Is(err, rma.ErrRMASync) {
		t.Errorf("a start without checks, and without a post: %v", err)
	}
	for rank, err := range fence(rma.ModeNoCheck) {
		if !errors.Is(err, rma.ErrAssert) {
			t.Errorf("rank %d: a fence without checks: %v", rank, err)
		}
	}
	freeAll(j, wins)
}

func second[T any](_ T, err error) error { return err }

// TestLockWhileExposed asks for the lock of a window that its owner has exposed.
func TestLockWhileExposed(t *testing.T) {
	once(t)
	j := newJob(t, 2, rma.Limits{})
	wins := j.windows(8, 8)
	j.must(wins[1].Post(j.ctx, nil, 0), wins[0].Lock(j.ctx, rma.LockShared, 1, 0))
	if err := wins[0].Unlock(j.ctx, 1); !errors.Is(err, rma.ErrRMASync) {
		t.Errorf("a lock of an exposed window: got %v, want class wrong synchronisation", err)
	}
	j.must(wins[1].Wait(j.ctx), wins[0].Lock(j.ctx, rma.LockShared, 1, 0), wins[0].Flush(j.ctx, 1))
	if err := wins[1].Post(j.ctx, []int{0}, 0); !errors.Is(err, rma.ErrRMASync) {
		t.Errorf("a post of a locked window: got %v, want class wrong synchronisation", err)
	}
	j.must(wins[0].Unlock(j.ctx, 1), wins[1].Post(j.ctx, nil, 0), wins[1].Wait(j.ctx))
}

// TestActiveCancelled ends the context of calls that wait for a rank that does not
// come. The error names it, and the window works afterwards.
func TestActiveCancelled(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	wins := j.windows(8, 8)
	short, cancel := context.WithTimeout(j.ctx, 10*time.Millisecond)
	defer cancel()
	got := int64(0)
	j.must(wins[0].Start(j.ctx, []int{1}, 0), wins[0].Get(buffer.Value(&got), 1, rma.At(0)))
	var e *rma.Error
	if err := wins[0].Complete(short); !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &e) || e.Rank != 1 {
		t.Errorf("complete: got %v", err)
	}
	if err := wins[1].Post(j.ctx, []int{0}, 0); err != nil { // meets the epoch that was given up
		t.Fatal(err)
	}
	j.must(wins[1].Wait(j.ctx), wins[1].Post(j.ctx, []int{0}, 0))
	if err := wins[1].Wait(short); !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &e) || e.Rank != 0 {
		t.Errorf("wait: got %v", err)
	}
	j.must(wins[0].Start(j.ctx, []int{1}, 0), wins[0].Complete(j.ctx), wins[1].Wait(j.ctx))
}

// TestActiveDeath lets the other side of post and start vanish, or leave in good
// order: whoever waits for it learns so.
func TestActiveDeath(t *testing.T) {
	t.Parallel()
	for _, leaves := range []bool{false, true} {
		j := newJob(t, 3, soon)
		wins := j.windows(8, 8)
		got := int64(0)
		j.must(wins[0].Start(j.ctx, []int{2}, 0), wins[0].Get(buffer.Value(&got), 2, rma.At(0)))
		j.must(wins[1].Post(j.ctx, []int{2}, 0))
		go func() {
			if leaves {
				_ = j.nodes[2].Close()
			} else {
				j.nodes[2].Silence()
			}
		}()
		if err := wins[0].Complete(j.ctx); !errors.Is(err, rma.ErrProcFailed) {
			t.Errorf("leaves %v: complete: got %v, want class process failed", leaves, err)
		}
		if err := wins[1].Wait(j.ctx); !errors.Is(err, rma.ErrProcFailed) {
			t.Errorf("leaves %v: wait: got %v, want class process failed", leaves, err)
		}
	}
}

// TestActiveDeathPolled lets the origin of an exposure vanish that nothing is sent to
// any more: who asks again and again whether the exposure is over learns so.
func TestActiveDeathPolled(t *testing.T) {
	t.Parallel()
	j := newJob(t, 2, soon)
	w := j.windows(8, 8)[0]
	j.must(w.Post(j.ctx, []int{1}, 0))
	testenv.Await(t, "the post's arrival", func() bool { return w.Usage().Active == 0 })
	j.nodes[1].Silence()
	over, err := w.Test()
	for ; !over && err == nil && j.ctx.Err() == nil; over, err = w.Test() {
		time.Sleep(time.Millisecond)
	}
	if !over || !errors.Is(err, rma.ErrProcFailed) {
		t.Errorf("got %v, %v, want class process failed", over, err)
	}
}

// TestWeakWithOneself completes an epoch at the rank's own window before it posts.
func TestWeakWithOneself(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	j.each(func(n *rma.Node) error { return nil })
	w := j.windows(8, 8)[0]
	v := int64(7)
	for range 3 {
		j.must(w.Start(j.ctx, []int{0}, 0), w.Put(buffer.Value(&v), 0, rma.At(0)), w.Complete(j.ctx), w.Post(j.ctx, []int{0}, 0), w.Wait(j.ctx))
	}
	if got := rma.Slice[int64](w.Memory())[0]; got != 7 {
		t.Errorf("the window holds %d", got)
	}
}

// TestRefusedCallIsNoUse begins other epochs after a fence under which calls were
// refused: none was issued.
func TestRefusedCallIsNoUse(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	wins := j.windows(8, 8)
	j.each(func(n *rma.Node) error { return wins[n.Rank()].Fence(j.ctx, 0) })
	w, v := wins[0], int64(1)
	if err := w.Put(buffer.Value(&v), 1, rma.At(1)); !errors.Is(err, rma.ErrRange) {
		t.Errorf("put: %v", err)
	}
	if _, err := w.Rput(buffer.Value(&v), 1, rma.At(0)); !errors.Is(err, rma.ErrRMASync) {
		t.Errorf("rput: %v", err)
	}
	j.must(w.Lock(j.ctx, rma.LockShared, 1, 0), w.Unlock(j.ctx, 1))
}

// TestNobodyNeedsEpoch communicates with the null process: epochs are needed as for
// others, and a window.
func TestNobodyNeedsEpoch(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	wins := j.windows(8, 8)
	w, v := wins[0], int64(1)
	put := func() error { return w.Put(buffer.Value(&v), rma.ProcNull, rma.At(0)) }
	rput := func() error { return second(w.Rput(buffer.Value(&v), rma.ProcNull, rma.At(0))) }
	flush := func() error { return w.Flush(j.ctx, rma.ProcNull) }
	for name, call := range map[string]func() error{"put": put, "rput": rput, "flush": flush} {
		if err := call(); !errors.Is(err, rma.ErrRMASync) {
			t.Errorf("%s outside an epoch: %v", name, err)
		}
	}
	j.each(func(n *rma.Node) error { return wins[n.Rank()].Fence(j.ctx, 0) })
	j.must(put())
	if err := rput(); !errors.Is(err, rma.ErrRMASync) {
		t.Errorf("rput in the epoch of a fence: %v", err)
	}
	j.must(w.LockAll(j.ctx, 0), put(), rput(), flush(), w.UnlockAll(j.ctx))
	freeAll(j, wins)
	for name, call := range map[string]func() error{"put": put, "rput": rput, "flush": flush} {
		if err := call(); !errors.Is(err, rma.ErrWin) {
			t.Errorf("%s after Free: %v", name, err)
		}
	}
}
