package epochs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/calls/epochs"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

// putTo has rank 0 put a byte to each of some targets.
func putTo(s *stage, targets ...int) {
	s.T.Helper()
	for _, target := range targets {
		s.issue(0, target, onesided.Call{Code: wire.CodePut, Origin: []byte{byte(target)}})
	}
}

// TestFlushRanksAsksAllAtOnce has the frames that ask rank 0's targets go out before any answers, and
// completes nothing at another target, which is lost.
func TestFlushRanksAsksAllAtOnce(t *testing.T) {
	s := newStage(t, 5, nil)
	s.must(0, s.w[0].LockAll(window.ModeNoCheck))
	putTo(s, 1, 2, 3, 4)
	s.must(0, s.w[0].FlushAll("flush_all", epochs.AtTarget)) // there are sessions with all
	putTo(s, 1, 2, 3, 4)
	asked := map[int]bool{}
	s.Filter = func(from, to int, b []byte) int {
		if from == 0 && b[6]&wire.FlagAckNow != 0 {
			asked[to] = true
		}
		return 0
	}
	c := s.w[0].FlushRanks("flush_ranks", []int{1, 4, 1, 3}, epochs.AtTarget)
	if s.step(0, &c) != epochs.Waits || !asked[1] || !asked[3] || !asked[4] || asked[2] {
		t.Errorf("before any answer these targets were asked: %v", asked)
	}
	s.Filter = func(from, to int, _ []byte) int {
		if from == 2 || to == 2 {
			return 0
		}
		return 1
	}
	for range 100 { // until what was lost has been sent again
		s.settle()
	}
	s.must(0, c)
	for _, r := range []int{1, 3, 4} {
		if s.mem[r][0] != byte(r) {
			t.Errorf("rank %d holds %d", r, s.mem[r][0])
		}
	}
	all := s.giveUp(0, s.w[0].FlushAll("flush_all", epochs.AtTarget))
	gaveUp(t, &all)
}

// TestFlushRanksRefused names a target without an epoch, or none: nobody is asked.
func TestFlushRanksRefused(t *testing.T) {
	s := newStage(t, 3, nil)
	s.must(0, s.w[0].Lock(window.LockShared, 1, window.ModeNoCheck))
	putTo(s, 1)
	s.must(0, s.w[0].Flush("flush", 1, epochs.AtTarget))
	putTo(s, 1)
	s.Filter = func(from, to int, b []byte) int {
		if b[6]&wire.FlagAckNow != 0 {
			t.Errorf("rank %d was asked", to)
		}
		return 1
	}
	for _, x := range []struct {
		targets []int
		class   mpierr.Class
		rank    int
	}{{[]int{1, 2}, mpierr.RMASync, 2}, {[]int{1, 3}, mpierr.Rank, 3}, {[]int{-5, 1}, mpierr.Rank, -5}} {
		c := s.w[0].FlushRanks("flush_ranks", x.targets, epochs.AtTarget)
		var e *mpierr.Error
		if status := c.Step(s.turn(0)); status != epochs.Over || !errors.As(c.Err(), &e) || e.Class != x.class || e.Rank != x.rank || e.Op != "flush_ranks" {
			t.Errorf("%v: status %d, %v", x.targets, status, c.Err())
		}
		s.settle()
	}
	s.Filter = nil
	s.must(0, s.w[0].FlushRanks("flush_ranks", nil, epochs.AtTarget))
	s.must(0, s.w[0].Unlock(1))
	none := s.w[0].FlushRanks("flush_ranks", nil, epochs.AtTarget)
	if s.step(0, &none); !errors.Is(none.Err(), mpierr.RMASync) {
		t.Errorf("of no targets, without an epoch: %v", none.Err())
	}
}

// TestFlushRanksNamesTheFirst has two targets refuse, and names the first in the list.
func TestFlushRanksNamesTheFirst(t *testing.T) {
	s := newStage(t, 4, nil)
	s.must(0, s.w[0].LockAll(window.ModeNoCheck))
	for r := 1; r < 4; r++ {
		s.issue(0, r, onesided.Call{Code: wire.CodePut, Disp: map[bool]uint64{true: 0, false: windowSize}[r == 2], Origin: []byte{1}})
	}
	c := s.w[0].FlushRanks("flush_ranks", []int{2, 3, 1}, epochs.AtTarget)
	var e *mpierr.Error
	if s.step(0, &c) != epochs.Over || !errors.As(c.Err(), &e) || e.Class != mpierr.RMARange || e.Rank != 3 {
		t.Errorf("of three targets of which the last two refuse: %v", c.Err())
	}
	s.must(0, s.w[0].FlushAll("flush_all", epochs.AtTarget)) // each error is told once
}

// TestFlushRanksLeavesOthersLocks has a flush wait whose second target is opened meanwhile, by another
// goroutine: the flush has nothing to do there. So when it is given up, the next flush that waits for
// the lock there counts as one that waits.
func TestFlushRanksLeavesOthersLocks(t *testing.T) {
	s := newStage(t, 4, nil)
	for _, held := range []int{0, 1} {
		s.must(3, s.w[3].Lock(window.LockExclusive, held, 0))
		s.must(3, s.w[3].Flush("flush", held, epochs.AtTarget))
	}
	s.must(2, s.w[2].LockAll(0))
	s.issue(2, 0, onesided.Call{Code: wire.CodePut, Origin: []byte{1}})
	c := s.w[2].FlushRanks("flush_ranks", []int{0, 1}, epochs.AtTarget)
	if s.step(2, &c) != epochs.Waits {
		t.Fatal("the lock of rank 0 is not waited for")
	}
	s.issue(2, 1, onesided.Call{Code: wire.CodePut, Origin: []byte{1}})
	c.GiveUp(s.turn(2), context.Canceled)
	gaveUp(t, &c)
	second := s.w[2].FlushRanks("flush_ranks", []int{1, 0}, epochs.AtTarget)
	if s.step(2, &second) != epochs.Waits {
		t.Fatal("the lock of rank 1 is not waited for")
	}
	other, _ := s.windows(windowID+1, func(c *epochs.Config) { c.Loads = func(int) bool { return false } })
	s.must(2, other[2].Lock(window.LockExclusive, 3, 0)) // a flush waits for those asked for before
	s.must(2, other[2].Unlock(3))
	second.GiveUp(s.turn(2), context.Canceled)
	last := s.giveUp(2, other[2].Lock(window.LockExclusive, 3, 0))
	gaveUp(t, &last)
	s.must(3, s.w[3].Unlock(0))
	s.must(3, s.w[3].Unlock(1))
	s.must(2, s.w[2].UnlockAll())
}

// TestFlushIsFlushRanksOfOne flushes one target in both ways: what comes of it, and each frame, is the same.
func TestFlushIsFlushRanksOfOne(t *testing.T) {
	trace := func(flush func(w *epochs.Window) epochs.Call) (steps []string) {
		s := newStage(t, 3, nil)
		s.Filter = func(from, to int, b []byte) int {
			steps = append(steps, fmt.Sprintf("%d to %d: %x", from, to, b))
			return 1
		}
		run := func() {
			for range 2 {
				c := flush(s.w[0])
				status := s.step(0, &c)
				steps = append(steps, fmt.Sprint(status, c.Err()))
				s.settle()
			}
		}
		s.must(0, s.w[0].LockAll(window.ModeNoCheck))
		run() // nothing was issued there
		putTo(s, 1, 2)
		run()
		s.issue(0, 1, onesided.Call{Code: wire.CodePut, Disp: windowSize, Origin: []byte{1}}) // refused
		run()
		return steps
	}
	for _, done := range []epochs.Completion{epochs.AtTarget, epochs.AtOrigin} {
		one := trace(func(w *epochs.Window) epochs.Call { return w.Flush("flush", 1, done) })
		list := trace(func(w *epochs.Window) epochs.Call { return w.FlushRanks("flush", []int{1}, done) })
		if !slices.Equal(one, list) || len(one) < 10 {
			t.Errorf("completion %d: the flush of one target goes\n%s\nand that of a list of one\n%s", done, strings.Join(one, "\n"), strings.Join(list, "\n"))
		}
	}
}
