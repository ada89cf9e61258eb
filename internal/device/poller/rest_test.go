package poller

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// sleepsLong waits until somebody sleeps on the device of p, for longer than a minute.
func sleepsLong(t *testing.T, p *Poller) {
	t.Helper()
	testenv.Await(t, "somebody to sleep for long", func() bool { return p.asleep.Load()-p.Now() > int64(time.Minute) })
}

// forLong has who sleeps for a moment sleep for an hour the next time.
var forLong = Config{MaxSleep: time.Millisecond, LongSleep: time.Hour}

// TestLongSleepEnds has a caller, or the background goroutine, sleep for long: the end of the
// caller's context wakes it, what others meet does, and a deadline that comes before it would wake.
func TestLongSleepEnds(t *testing.T) {
	p := newStaged(t, newStage(t), forLong)
	ctx, cancel := context.WithCancel(t.Context())
	waiter := testenv.Start(func() error { return p.Wait(ctx, never{}) })
	sleepsLong(t, p)
	cancel()
	if err := testenv.Ends(t, "a caller whose context has ended", waiter); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}

	var met flag
	waiter = testenv.Start(func() error { return p.Wait(t.Context(), &met) })
	sleepsLong(t, p)
	p.Lock()
	met.Store(true)
	p.Unlock()
	if err := testenv.Ends(t, "a caller whose condition is met", waiter); err != nil {
		t.Error(err)
	}
}

// TestDeadlineIsNotOverslept has a session begin while nobody waits, and while a caller does: its
// hellos are sent again and again.
func TestDeadlineIsNotOverslept(t *testing.T) {
	for _, waits := range []bool{false, true} {
		var sent atomic.Int32
		d := newStage(t)
		d.enqueueing = func() { sent.Add(1) }
		p := newStaged(t, d, forLong)
		ctx, cancel := context.WithCancel(t.Context())
		waiter := testenv.Start(func() error {
			if waits {
				return p.Wait(ctx, never{})
			}
			return nil
		})
		sleepsLong(t, p)
		dial(p, 1)
		testenv.Await(t, "hellos", func() bool { return sent.Load() >= 3 })
		cancel()
		_ = testenv.Ends(t, "the caller", waiter)
	}
}

// never is a condition that is not met.
type never struct{}

func (never) Met() bool { return false }
