package rma_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/userspace"
)

// TestRights has owners restrict what others may do with their memory, over each way that
// requests take.
func TestRights(t *testing.T) {
	for _, test := range []struct {
		name string
		join func(t *testing.T) *job
	}{
		{"udp", func(t *testing.T) *job { return newJob(t, 3, rma.Limits{}) }},
		{"one host", func(t *testing.T) *job { return newJobOf(t, []string{"a", "a", "a"}, rma.Config{}) }},
		{"xdp-native", func(t *testing.T) *job { return newLabJob(t, 3, userspace.XDPNative, rma.Limits{}) }},
		{"xdp-generic", func(t *testing.T) *job { return newLabJob(t, 3, userspace.XDPGeneric, rma.Limits{}) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			once(t)
			j := test.join(t)
			othersMayRead(t, j)
			oneMayAdd(t, j)
			locksAreRefused(t, j)
			activeTargetNeedsNoLock(t, j)
		})
	}
}

// owned creates a window of which rank 0 restricts the others, which restrict nobody.
func owned(j *job, others rma.Rights, except map[int]rma.Rights) []*rma.Win {
	j.t.Helper()
	wins := make([]*rma.Win, len(j.nodes))
	j.each(func(n *rma.Node) (err error) {
		info := rma.Info{}
		if n.Rank() == 0 {
			info = rma.Access(others, except)
		}
		wins[n.Rank()], err = rma.Allocate(j.ctx, n.World(), 64, 8, info)
		return err
	})
	return wins
}

// denied returns how many requests the owner has refused for want of a right.
func denied(j *job) uint64 { return j.nodes[0].Stats().Denied }

// lacks checks that a call, with the flush that ends it, is refused for want of a right, which the
// owner counts.
func lacks(t *testing.T, j *job, what string, call func() error) {
	t.Helper()
	before := denied(j)
	err := call()
	if !errors.Is(err, rma.ErrAccess) || !strings.Contains(err.Error(), "xdprma_access") {
		t.Errorf("%s: got %v, want class access", what, err)
	}
	if got := denied(j) - before; got != 1 {
		t.Errorf("%s: the owner has counted %d requests, not 1", what, got)
	}
}

// othersMayRead has a window that others may read under a lock, and nothing else.
func othersMayRead(t *testing.T, j *job) {
	wins := owned(j, rma.MayRead|rma.MayLock, nil)
	for i := range wins[0].Memory() {
		wins[0].Memory()[i] = byte(i)
	}
	before := bytes.Clone(wins[0].Memory())
	w, one := wins[1], int64(1)
	old := int64(0)
	j.must(w.Lock(j.ctx, rma.LockShared, 0), w.Flush(j.ctx, 0))
	flushed := func(err error) error { return errors.Join(err, w.Flush(j.ctx, 0)) }
	for range 20 { // by each way that requests take
		lacks(t, j, "put", func() error { return flushed(w.Put(buffer.Value(&one), 0, rma.At(0))) })
		lacks(t, j, "accumulate", func() error { return flushed(w.Accumulate(buffer.Value(&one), 0, rma.At(0), rma.Sum)) })
		lacks(t, j, "fetch_and_op", func() error {
			return flushed(w.FetchAndOp(buffer.Value(&one), buffer.Value(&old), 0, rma.At(0), rma.Sum))
		})
		lacks(t, j, "compare_and_swap", func() error {
			return flushed(w.CompareAndSwap(buffer.Value(&one), buffer.Value(&one), buffer.Value(&old), 0, rma.At(0)))
		})
		got := make([]byte, 64)
		j.must(flushed(w.Get(buffer.Bytes(got), 0, rma.At(0))))
		if !bytes.Equal(got, before) || old != 0 {
			t.Fatalf("got %x, want %x; fetched %d", got, before, old)
		}
		if v, err := rma.Load[int64](j.ctx, w, 0, rma.At(1)); err != nil || v != 0x0f0e0d0c0b0a0908 {
			t.Errorf("loaded %#x, %v", v, err)
		}
	}
	for w.Unattended(0) && j.nodes[0].Stats().Device.Filter["express_no_access"] == 0 { // the program learns of the window late
		lacks(t, j, "put", func() error { return flushed(w.Put(buffer.Value(&one), 0, rma.At(0))) })
	}
	column, err := datatype.Vector(4, 1, 2, datatype.Int64)
	j.must(err, column.Commit())
	into := make([]int64, 4)
	j.must(flushed(w.Get(buffer.Of(into), 0, rma.At(0).As(1, column))))
	lacks(t, j, "typed put", func() error { return flushed(w.Put(buffer.Of(into), 0, rma.At(0).As(1, column))) })
	// The same rank may do all at another owner, and the owner in its own memory.
	j.must(w.Unlock(j.ctx, 0), w.Lock(j.ctx, rma.LockExclusive, 2), w.Put(buffer.Value(&one), 2, rma.At(0)), w.Unlock(j.ctx, 2))
	if !bytes.Equal(wins[0].Memory(), before) {
		t.Errorf("the memory is %x, want %x", wins[0].Memory(), before)
	}
	j.must(wins[0].Lock(j.ctx, rma.LockExclusive, 0), wins[0].Put(buffer.Value(&one), 0, rma.At(0)), wins[0].Unlock(j.ctx, 0))
	if wins[0].Memory()[0] != 1 || wins[0].Info()["xdprma_access"] != "read,lock" || wins[1].Info()["xdprma_access"] != "all" {
		t.Errorf("the owner's put: %x; info %v", wins[0].Memory()[:8], wins[0].Info())
	}
	freeAll(j, wins)
}

// oneMayAdd has a window that one rank may add to, and nobody read.
func oneMayAdd(t *testing.T, j *job) {
	wins := owned(j, rma.MayLock, map[int]rma.Rights{1: rma.MayAccumulate | rma.MayLock})
	const times = 50
	one := int64(1)
	refused := denied(j)
	j.each(func(n *rma.Node) error {
		w := wins[n.Rank()]
		if n.Rank() == 0 {
			return nil
		}
		err := w.LockAll(j.ctx)
		for range times {
			got := errors.Join(w.Accumulate(buffer.Value(&one), 0, rma.At(3), rma.Sum), w.Flush(j.ctx, 0))
			if n.Rank() == 2 && errors.Is(got, rma.ErrAccess) {
				got = nil
			} else if n.Rank() == 2 {
				got = errors.New("rank 2 has added")
			}
			err = errors.Join(err, got)
		}
		return errors.Join(err, w.UnlockAll(j.ctx))
	})
	if got := denied(j) - refused; got != times {
		t.Errorf("%d requests were counted as denied, not %d", got, times)
	}
	lacks(t, j, "replace", func() error {
		return errors.Join(wins[1].Lock(j.ctx, rma.LockShared, 0), wins[1].Flush(j.ctx, 0),
			wins[1].Accumulate(buffer.Value(&one), 0, rma.At(3), rma.Replace), wins[1].Unlock(j.ctx, 0))
	})
	got := int64(7)
	lacks(t, j, "get", func() error {
		return errors.Join(wins[1].Lock(j.ctx, rma.LockShared, 0), wins[1].Flush(j.ctx, 0), wins[1].Get(buffer.Value(&got), 0, rma.At(3)), wins[1].Unlock(j.ctx, 0))
	})
	if sum := wins[0].Memory()[24]; sum != times || got != 7 {
		t.Errorf("the sum is %d, want %d; got %d", sum, times, got)
	}
	freeAll(j, wins)
}

// locksAreRefused has a rank without the right to lock take each kind of lock. It learns so no
// later than its first flush at the owner, and goes on with others.
func locksAreRefused(t *testing.T, j *job) {
	wins := owned(j, rma.MayAll&^rma.MayLock, map[int]rma.Rights{2: rma.MayAll})
	w, one := wins[1], int64(1)
	for _, kind := range []rma.LockType{rma.LockShared, rma.LockExclusive} {
		err := errors.Join(w.Lock(j.ctx, kind, 0), w.Flush(j.ctx, 0))
		if !errors.Is(err, rma.ErrAccess) {
			t.Errorf("a lock, and its flush: %v", err)
		}
		if err := w.Put(buffer.Value(&one), 0, rma.At(0)); !errors.Is(err, rma.ErrAccess) {
			t.Errorf("a put under a lock that was refused: %v", err)
		}
		_ = w.Unlock(j.ctx, 0)
		err = errors.Join(w.Lock(j.ctx, kind, 0), w.Put(buffer.Value(&one), 0, rma.At(0)), w.Unlock(j.ctx, 0))
		if !errors.Is(err, rma.ErrAccess) {
			t.Errorf("a lock, a put and the unlock: %v", err)
		}
	}
	err := w.LockAll(j.ctx)
	if err == nil {
		err = errors.Join(w.Put(buffer.Value(&one), 0, rma.At(0)), w.Flush(j.ctx, 0))
		j.must(w.Put(buffer.Value(&one), 2, rma.At(0)), w.Flush(j.ctx, 2))
	}
	if !errors.Is(err, rma.ErrAccess) || !strings.Contains(err.Error(), "xdprma_access") {
		t.Errorf("lock_all, a put and the flush: %v", err)
	}
	if _, err := rma.Load[int64](j.ctx, w, 0, rma.At(0)); !errors.Is(err, rma.ErrAccess) {
		t.Errorf("a load under lock_all: %v", err)
	}
	_ = w.UnlockAll(j.ctx)
	if wins[0].Memory()[0] != 0 || wins[2].Memory()[0] != 1 {
		t.Errorf("the owner has %x, and rank 2 %x", wins[0].Memory()[:8], wins[2].Memory()[:8])
	}
	// Nobody holds the lock, and it is there for others.
	j.must(wins[2].Lock(j.ctx, rma.LockExclusive, 0), wins[2].Put(buffer.Value(&one), 0, rma.At(0)), wins[2].Unlock(j.ctx, 0))
	// With ModeNoCheck no lock is asked for.
	j.must(w.Lock(j.ctx, rma.LockShared, 0, rma.ModeNoCheck), w.Put(buffer.Value(&one), 0, rma.At(1)), w.Unlock(j.ctx, 0))
	if m := wins[0].Memory(); m[0] != 1 || m[8] != 1 {
		t.Errorf("the owner has %x", m[:16])
	}
	freeAll(j, wins)
}

// activeTargetNeedsNoLock puts between fences, and between start and complete, without the right
// to lock.
func activeTargetNeedsNoLock(t *testing.T, j *job) {
	wins := owned(j, rma.MayWrite, map[int]rma.Rights{2: rma.MayNothing})
	value := int64(5)
	refused := func(err error) error {
		if errors.Is(err, rma.ErrAccess) {
			return nil
		}
		return fmt.Errorf("the end of an epoch with a call that is not allowed: %w", err)
	}
	j.each(func(n *rma.Node) error {
		w, me := wins[n.Rank()], n.Rank()
		err := w.Fence(j.ctx)
		if me != 0 {
			err = errors.Join(err, w.Put(buffer.Value(&value), 0, rma.At(me)))
		}
		end := w.Fence(j.ctx)
		if me == 2 {
			end = refused(end)
		}
		return errors.Join(err, end, w.Fence(j.ctx, rma.ModeNoSucceed))
	})
	got := int64(7)
	j.each(func(n *rma.Node) error {
		w := wins[n.Rank()]
		switch n.Rank() {
		case 0:
			return errors.Join(w.Post(j.ctx, []int{1, 2}), w.Wait(j.ctx))
		case 1:
			return errors.Join(w.Start(j.ctx, []int{0}), w.Put(buffer.Value(&value), 0, rma.At(3)), w.Complete(j.ctx))
		}
		return errors.Join(w.Start(j.ctx, []int{0}), w.Get(buffer.Value(&got), 0, rma.At(3)), refused(w.Complete(j.ctx)))
	})
	m := wins[0].Memory()
	if m[8] != 5 || m[16] != 0 || m[24] != 5 || got != 7 {
		t.Errorf("the owner has %x, rank 2 got %d", m, got)
	}
	freeAll(j, wins)
}

// TestRightsToDynamicWindows has ranks get from and put to memory that is attached.
func TestRightsToDynamicWindows(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	wins := make([]*rma.Win, 2)
	j.each(func(n *rma.Node) (err error) {
		wins[n.Rank()], err = rma.CreateDynamic(j.ctx, n.World(), rma.Access(rma.MayRead|rma.MayLock, nil))
		return err
	})
	mem := make([]int64, 4)
	mem[1] = 3
	own := buffer.Of(mem)
	j.must(wins[0].Attach(own.Memory()))
	at := rma.Address(own)
	w, got := wins[1], int64(0)
	j.must(w.Lock(j.ctx, rma.LockShared, 0), w.Flush(j.ctx, 0), w.Get(buffer.Value(&got), 0, rma.At(at+8)), w.Flush(j.ctx, 0))
	lacks(t, j, "put", func() error { return errors.Join(w.Put(buffer.Value(&got), 0, rma.At(at)), w.Flush(j.ctx, 0)) })
	if j.must(w.Unlock(j.ctx, 0)); got != 3 || mem[0] != 0 {
		t.Errorf("got %d, and the owner has %v", got, mem)
	}
	freeAll(j, wins)
}

// TestRestrictedWindowIsNotMapped looks for the memory of a window on one host: if an owner
// restricts somebody, nobody else maps any of it; if all ranks have all rights, the others do.
func TestRestrictedWindowIsNotMapped(t *testing.T) {
	j := newJobAt(t, []string{"a", "a"}, rma.Limits{})
	for _, test := range []struct {
		info   rma.Info
		mapped bool
	}{
		{nil, true}, {rma.Access(rma.MayAll, nil), true}, {rma.Access(rma.MayNothing, map[int]rma.Rights{0: rma.MayAll, 1: rma.MayAll}), true},
		{rma.Access(rma.MayAll, map[int]rma.Rights{0: rma.MayRead}), true}, {rma.Access(rma.MayAll, map[int]rma.Rights{1: rma.MayRead}), false},
	} {
		wins := make([]*rma.Win, 2)
		j.each(func(n *rma.Node) (err error) {
			var info rma.Info
			if n.Rank() == 0 {
				info = test.info
			}
			wins[n.Rank()], err = rma.Allocate(j.ctx, n.World(), 64, 1, info)
			return err
		})
		for r, w := range wins {
			shared, err := w.SharedQuery(1 - r)
			if err != nil || (shared.Memory != nil) != test.mapped {
				t.Errorf("info %v: rank %d maps the other's memory: %v, %v", test.info, r, shared.Memory != nil, err)
			}
		}
		freeAll(j, wins)
	}
}

// TestAccessRefused creates windows with rights that cannot be.
func TestAccessRefused(t *testing.T) {
	j := newJobAt(t, []string{"a", "a"}, rma.Limits{})
	for _, test := range []struct {
		name   string
		info   rma.Info
		shared bool
		want   string
	}{
		{"no rights", rma.Info{"xdprma_access": "everything"}, false, "xdprma_access"},
		{"no rights by bits", rma.Access(1<<6, nil), false, "invalid"},
		{"no such rank", rma.Access(rma.MayAll, map[int]rma.Rights{2: rma.MayRead}), false, "names rank 2"},
		{"a rank below 0", rma.Access(rma.MayAll, map[int]rma.Rights{-1: rma.MayRead}), false, "xdprma_access"},
		{"memory that others map", rma.Access(rma.MayRead, nil), true, "cannot be guarded"},
	} {
		for r, err := range j.outcomes(func(n *rma.Node) error {
			var info rma.Info
			if n.Rank() == 0 {
				info = test.info
			}
			make := rma.Allocate
			if test.shared {
				make = rma.AllocateShared
			}
			_, err := make(j.ctx, n.World(), 64, 1, info)
			return err
		}) {
			if !errors.Is(err, rma.ErrArg) || r == 0 && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: rank %d: %v", test.name, r, err)
			}
		}
	}
	wins := make([]*rma.Win, 2)
	j.each(func(n *rma.Node) (err error) {
		wins[n.Rank()], err = rma.AllocateShared(j.ctx, n.World(), 64, 1, rma.Access(rma.MayAll, nil))
		return err
	})
	for i, err := range j.outcomes(func(n *rma.Node) error {
		return wins[n.Rank()].SetInfo(j.ctx, rma.Access(rma.MayAll, map[int]rma.Rights{7: rma.MayRead}))
	}) {
		if !errors.Is(err, rma.ErrArg) {
			t.Errorf("set_info at rank %d: %v", i, err)
		}
	}
	j.each(func(n *rma.Node) error { return wins[n.Rank()].SetInfo(j.ctx, rma.Access(rma.MayNothing, nil)) })
	if got := wins[0].Info()["xdprma_access"]; got != "all" {
		t.Errorf("set_info has changed the rights: %q", got)
	}
	freeAll(j, wins)
}
