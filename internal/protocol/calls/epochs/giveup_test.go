package epochs_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/calls/epochs"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

// gaveUp checks that a call has ended with the error of being given up.
func gaveUp(t *testing.T, c *epochs.Call) {
	t.Helper()
	if !errors.Is(c.Err(), mpierr.Timeout) || !errors.Is(c.Err(), context.Canceled) {
		t.Errorf("%s, given up: %v", c.Name(), c.Err())
	}
}

// TestLockGivenUpOpensNoEpoch gives up waiting for the lock of the rank's own window: the
// next lock there is granted, and then another rank's.
func TestLockGivenUpOpensNoEpoch(t *testing.T) {
	s := newStage(t, 2, nil)
	s.must(1, s.w[1].Lock(window.LockExclusive, 0, 0))
	s.must(1, s.w[1].Flush("flush", 0, epochs.AtTarget))
	s.issue(1, 0, onesided.Call{Code: wire.CodePut, Origin: []byte{1}})
	s.settle()
	c := s.giveUp(0, s.w[0].Lock(window.LockExclusive, 0, 0))
	gaveUp(t, &c)
	if err := s.w[0].MayAccess("put", 0, false); !errors.Is(err, mpierr.RMASync) {
		t.Errorf("access without an epoch: %v", err)
	}
	all := s.giveUp(0, s.w[0].LockAll(0))
	gaveUp(t, &all)
	s.must(1, s.w[1].Unlock(0))
	for range 2 {
		s.must(0, s.w[0].Lock(window.LockExclusive, 0, 0))
		s.must(0, s.w[0].Unlock(0))
		s.must(1, s.w[1].Lock(window.LockExclusive, 0, 0))
		s.must(1, s.w[1].Unlock(0))
	}
}

// TestUnlockGivenUpGoesOn gives up an unlock that the target has not heard of: nothing can
// be issued until it is made again, and then the lock is free.
func TestUnlockGivenUpGoesOn(t *testing.T) {
	s := newStage(t, 3, nil)
	s.must(0, s.w[0].Lock(window.LockExclusive, 1, 0))
	s.issue(0, 1, onesided.Call{Code: wire.CodePut, Origin: []byte{7}})
	s.settle()
	s.Filter = lost
	for range 3 {
		c := s.giveUp(0, s.w[0].Unlock(1))
		gaveUp(t, &c)
		if err := s.w[0].MayAccess("put", 1, false); !errors.Is(err, mpierr.RMASync) {
			t.Errorf("access while the unlock goes on: %v", err)
		}
	}
	s.Filter = nil
	for range 100 { // until what was lost has been sent again
		s.settle()
	}
	s.must(0, s.w[0].Unlock(1))
	s.must(2, s.w[2].Lock(window.LockExclusive, 1, 0))
	s.must(2, s.w[2].Flush("flush", 1, epochs.AtTarget))
	s.must(2, s.w[2].Unlock(1))
	if s.mem[1][0] != 7 {
		t.Error("the put of the epoch is lost")
	}
}

// TestGivenUpTellsOfTargetsThatHaveNotAnswered gives up calls on a target that this rank has
// never heard of, and says so.
func TestGivenUpTellsOfTargetsThatHaveNotAnswered(t *testing.T) {
	s := newStage(t, 2, nil)
	s.Filter = lost
	s.must(0, s.w[0].Lock(window.LockShared, 1, 0))
	for _, begin := range []epochs.Call{s.w[0].Flush("flush", 1, epochs.AtTarget), s.w[0].Unlock(1)} {
		c := s.giveUp(0, begin)
		gaveUp(t, &c)
		if !strings.Contains(c.Err().Error(), "has not joined the job") {
			t.Errorf("given up: %v", c.Err())
		}
	}
}

// TestCompleteGivenUpBringsTheRest gives up a complete because the target has not posted:
// made again after the post, it brings the result.
func TestCompleteGivenUpBringsTheRest(t *testing.T) {
	s := newStage(t, 2, nil)
	s.mem[1][0] = 9
	if err := s.w[0].Start(s.turn(0), []int{1}, 0); err != nil {
		t.Fatal(err)
	}
	result := make([]byte, 1)
	s.issue(0, 1, onesided.Call{Code: wire.CodeGet, Result: result})
	c := s.giveUp(0, s.w[0].Complete())
	gaveUp(t, &c)
	if err := s.w[1].Post(s.turn(1), []int{0}, 0); err != nil {
		t.Fatal(err)
	}
	s.settle()
	s.must(0, s.w[0].Complete())
	s.must(1, s.w[1].Wait())
	if result[0] != 9 {
		t.Error("complete is over, and the result is not there")
	}
	again := s.w[0].Complete()
	if s.step(0, &again); !errors.Is(again.Err(), mpierr.RMASync) {
		t.Errorf("a third complete: %v", again.Err())
	}
}

// TestWaitGivenUpStaysExposed gives up a wait, twice at once: the exposure goes on until an
// origin has completed, and then ends for whoever waits.
func TestWaitGivenUpStaysExposed(t *testing.T) {
	s := newStage(t, 2, nil)
	if err := errors.Join(s.w[1].Post(s.turn(1), []int{0}, 0), s.w[0].Start(s.turn(0), []int{1}, 0)); err != nil {
		t.Fatal(err)
	}
	stays := s.w[1].Wait()
	if s.step(1, &stays) != epochs.Waits {
		t.Fatal("the wait is over before the origin has completed")
	}
	for range 2 {
		c := s.giveUp(1, s.w[1].Wait())
		gaveUp(t, &c)
	}
	if over, err := s.w[1].Test(s.turn(1)); over || err != nil {
		t.Errorf("test: %v, %v", over, err)
	}
	if s.step(1, &stays) != epochs.Waits {
		t.Error("a wait ends because another one was given up")
	}
	s.must(0, s.w[0].Complete())
	s.must(1, s.w[1].Wait())
	if s.step(1, &stays) != epochs.Over || stays.Err() != nil {
		t.Errorf("the other wait: %v", stays.Err())
	}
	s.must(1, s.w[1].Lock(window.LockExclusive, 1, 0)) // it is exposed no more
	s.must(1, s.w[1].Unlock(1))
}

// TestGivenUpCallsMeetTheOthers gives up a fence and a free while they wait for what was
// issued: both still have the ranks meet, so that no other rank waits in vain.
func TestGivenUpCallsMeetTheOthers(t *testing.T) {
	s := newStage(t, 2, nil)
	c := s.w[0].Fence(0)
	if s.step(0, &c) != epochs.Gathers || c.Met(s.turn(0), nil) != epochs.Over || c.Err() != nil {
		t.Fatal(c.Err())
	}
	s.Filter = lost
	for _, begin := range []func() epochs.Call{func() epochs.Call { return s.w[0].Fence(window.ModeNoSucceed) }, s.w[0].Free} {
		c := begin()
		if c.Name() == "fence" {
			s.issue(0, 1, onesided.Call{Code: wire.CodePut, Origin: []byte{1}})
		}
		if s.step(0, &c) != epochs.Waits || c.GiveUp(s.turn(0), context.Canceled) != epochs.Gathers {
			t.Fatalf("%s given up does not meet the others", c.Name())
		}
		if c.Met(s.turn(0), context.Canceled) != epochs.Over {
			t.Errorf("%s is not over", c.Name())
		}
		gaveUp(t, &c)
	}
	s.w[0].Close(s.turn(0))
	late := s.w[0].Flush("flush", 1, epochs.AtTarget)
	if s.step(0, &late); !errors.Is(late.Err(), mpierr.Win) {
		t.Errorf("a flush of the window that was freed: %v", late.Err())
	}
}

// TestQuietFreeMeetsNobody frees a window whose ranks have said that they take no locks.
func TestQuietFreeMeetsNobody(t *testing.T) {
	s := newStage(t, 2, func(c *epochs.Config) { c.Quiet = true })
	s.must(0, s.w[0].Free())
}

// putWithoutRoom has rank 0 put ones to all of rank 1's window, in an epoch of a lock, until
// there is no room.
func putWithoutRoom(s *stage) *epochs.Operation {
	s.T.Helper()
	s.must(0, s.w[0].Lock(window.LockShared, 1, 0))
	s.must(0, s.w[0].Flush("flush", 1, epochs.AtTarget))
	s.Filter = lost
	o := &epochs.Operation{Call: onesided.Call{Code: wire.CodePut, Origin: bytes.Repeat([]byte{1}, windowSize)}, Name: "put", Target: 1}
	s.w[0].Used(1)
	status := s.w[0].Issue(s.turn(0), o, nil)
	for status == epochs.Waits && o.Until().Met() {
		status = s.w[0].Issue(s.turn(0), o, nil)
	}
	if status != epochs.Waits {
		s.T.Fatalf("the put does not wait for room: status %d, %v", status, o.Err())
	}
	return o
}

// TestPutGivenUpHalfWay gives up a put that has no room for its second half: the first half
// arrives.
func TestPutGivenUpHalfWay(t *testing.T) {
	s := newStage(t, 2, nil)
	o := putWithoutRoom(s)
	var e *mpierr.Error
	if status := s.w[0].GiveUp(s.turn(0), o, context.Canceled); status != epochs.Over || !errors.As(o.Err(), &e) ||
		e.Op != "put" || e.Rank != 1 || e.Class != mpierr.Timeout {
		t.Errorf("given up: status %d, %v", status, o.Err())
	}
	s.Filter = nil
	for range 100 { // until what was lost has been sent again
		s.settle()
	}
	s.must(0, s.w[0].Flush("flush", 1, epochs.AtTarget))
	s.must(0, s.w[0].Unlock(1))
	n := bytes.IndexByte(s.mem[1], 0)
	if n <= 0 || bytes.Count(s.mem[1], []byte{1}) != n {
		t.Errorf("%d bytes have arrived, %d of them in a row", bytes.Count(s.mem[1], []byte{1}), n)
	}
}

// TestFreeEndsCallsThatWaitForRoom frees a window while a put waits for room.
func TestFreeEndsCallsThatWaitForRoom(t *testing.T) {
	s := newStage(t, 2, nil)
	o := putWithoutRoom(s)
	s.w[0].Close(s.turn(0))
	if status := s.w[0].Issue(s.turn(0), o, nil); status != epochs.Over || !errors.Is(o.Err(), mpierr.Win) {
		t.Errorf("after the window was freed: status %d, %v", status, o.Err())
	}
}
