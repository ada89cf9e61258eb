package vmtests

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/rma"
)

func init() {
	programs["queue"] = queue
	programs["suspended"] = suspended
}

// queue: rank 1 holds the lock of rank 0's window, ranks 2 and 3 wait for it in
// this order, and rank 2 is killed while it waits. Rank 3 must get the lock.
func queue(s *self) error {
	win, err := rma.Allocate(s.ctx, s.world, 8, 8, nil)
	if err != nil {
		return err
	}
	if s.rank == 0 {
		fmt.Println("ready")
		return s.listen("leave")
	}
	if err := s.listen("lock"); err != nil {
		return err
	}
	one, old := []int64{1}, []int64{0}
	add := func() error { return win.FetchAndOp(buffer.Of(one), buffer.Of(old), 0, rma.At(0), rma.Sum) }
	locked := make(chan error, 1)
	go func() { locked <- win.Lock(s.ctx, rma.LockExclusive, 0, 0) }()
	waits := false
	var soon <-chan time.Time // never for the first, which gets the lock
	if s.rank != 1 {
		soon = time.After(100 * time.Millisecond)
	}
	select {
	case err := <-locked:
		if err := errors.Join(err, add()); err != nil {
			return err
		}
	case <-soon: // as ranks do that share memory with the owner
		waits = true
	}
	switch {
	case waits:
	case s.rank != 1:
		// Now the request has left, but there is no sign of its arrival.
		ctx, cancel := context.WithTimeout(s.ctx, 100*time.Millisecond)
		defer cancel()
		if err := win.Flush(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("a flush behind a lock that is held: %v", err)
		}
	default:
		if err := win.Flush(s.ctx, 0); err != nil {
			return err
		}
	}
	fmt.Println("asked")
	if s.rank == 1 {
		if err := s.listen("unlock"); err != nil {
			return err
		}
	}
	if waits {
		if err := errors.Join(<-locked, add()); err != nil {
			return err
		}
	}
	if err := win.Unlock(s.ctx, 0); err != nil {
		return err
	}
	fmt.Println("had", old[0])
	return s.listen("leave")
}

func TestKilledWaiter(t *testing.T) {
	t.Parallel()
	for _, g := range grounds() {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			j := g.job(t, 4, spec{program: "queue", deadAfter: deadAfter})
			for _, r := range j.ranks[1:] {
				r.tell("lock")
				j.await(r, "asked")
			}
			j.ranks[2].kill()
			<-j.ranks[2].done
			j.ranks[1].tell("unlock")
			if had := j.await(j.ranks[1], "had"); had != " 0" {
				t.Errorf("the first had%s", had)
			}
			// The dead rank had asked for an addition, which may or may not have taken
			// place.
			if had := j.await(j.ranks[3], "had"); had != " 1" && had != " 2" {
				t.Errorf("the last had%s", had)
			}
			j.ranks = append(j.ranks[:2], j.ranks[3])
			for _, r := range j.ranks {
				r.tell("leave")
			}
			j.finish()
		})
	}
}

// suspended: a rank is stopped for longer than the limit. It has failed for its
// peer for good, and has to see that itself when it goes on.
func suspended(s *self) error {
	win, err := rma.Allocate(s.ctx, s.world, 8, 8, nil)
	if err != nil {
		return err
	}
	if err := win.LockAll(s.ctx, 0); err != nil {
		return err
	}
	one, old := []int64{1}, []int64{0}
	if s.rank == 2 { // has nothing to do with rank 1
		fmt.Println("ready")
		return s.listen("leave")
	}
	fmt.Println("ready")
	for n := 0; ; n++ {
		err := win.FetchAndOp(buffer.Of(one), buffer.Of(old), 1-s.rank, rma.At(0), rma.Sum)
		if err == nil {
			err = win.Flush(s.ctx, 1-s.rank)
		}
		if err != nil {
			fmt.Println("failed", errors.Is(err, rma.ErrProcFailed), err)
			break
		}
		if n == 0 {
			fmt.Println("running")
		}
	}
	return s.listen("leave")
}

func TestSuspendedRank(t *testing.T) {
	for _, g := range testenv.Cases([]ground{onXDP}, onUDP, onMemory) {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			j := g.job(t, 3, spec{program: "suspended", deadAfter: deadAfter})
			for _, r := range j.ranks { // or the window's creation would fail at rank 2
				j.await(r, "ready")
			}
			for _, r := range j.ranks[:2] {
				j.await(r, "running")
			}
			j.ranks[1].signal(unix.SIGSTOP)
			for i, r := range j.ranks[:2] {
				if failed := j.await(r, "failed "); !strings.HasPrefix(failed, "true") {
					t.Errorf("rank %d: %s", i, failed)
				}
				j.ranks[1].signal(unix.SIGCONT)
			}
			for _, r := range j.ranks {
				r.tell("leave")
			}
			j.finish()
		})
	}
}
