package rma_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/rma"
)

// patient is for tests in which nobody is to be found out by silence: a call that only silence
// would end fails by the test's limit.
var patient = rma.Limits{DeadAfter: time.Hour}

// TestHolderLeaves has a rank close while it holds a lock, and another rank wait for that lock
// at the time, or ask for it later. The owner gives up the lock of one that has left. An owner
// that leaves refuses all that wait.
func TestHolderLeaves(t *testing.T) {
	const waiter, leaver, third = 0, 1, 2
	for _, hosts := range [][]string{{"", "", ""}, {"host", "host", "host"}, {"host", "host", ""}} {
		for _, owner := range []int{waiter, leaver, third} {
			for _, late := range []bool{false, true} {
				t.Run(fmt.Sprintf("%q owner %d late %v", hosts, owner, late), func(t *testing.T) {
					j := newJobAt(t, hosts, patient)
					wins := j.windows(8, 8)
					j.must(wins[leaver].Lock(j.ctx, rma.LockExclusive, owner, 0), wins[leaver].Flush(j.ctx, owner))
					if late {
						j.must(j.nodes[leaver].Close())
					}
					w, locked := wins[waiter], make(chan error, 1)
					go func() {
						if err := w.Lock(j.ctx, rma.LockExclusive, owner, 0); err != nil {
							locked <- err
							return
						}
						locked <- w.Flush(j.ctx, owner)
					}()
					if !late {
						j.must(j.nodes[leaver].Close())
					}
					err := <-locked
					switch {
					case owner != leaver && err != nil:
						t.Errorf("the lock of one that has left: %v", err)
					case owner == leaver && hosts[leaver] == "" && !errors.Is(err, rma.ErrProcFailed):
						t.Errorf("a lock at one that has left: got %v, want class process failed", err)
					case errors.Is(err, context.DeadlineExceeded):
						t.Errorf("nobody was told: %v", err)
					}
				})
			}
		}
	}
}

// TestOwnerLeavesHeldLock has the owner of a window close while one rank holds its lock and
// another waits for it.
func TestOwnerLeavesHeldLock(t *testing.T) {
	const waiter, owner, holder = 0, 1, 2
	j := newJobAt(t, []string{"", "", ""}, patient)
	wins := j.windows(8, 8)
	j.must(wins[holder].Lock(j.ctx, rma.LockExclusive, owner, 0), wins[holder].Flush(j.ctx, owner))
	w := wins[waiter]
	j.must(w.Lock(j.ctx, rma.LockShared, owner, 0))
	ctx, cancel := context.WithTimeout(j.ctx, 20*time.Millisecond)
	defer cancel()
	if err := w.Flush(ctx, owner); !errors.Is(err, context.DeadlineExceeded) { // the request has left
		t.Errorf("a flush behind a lock that is held: %v", err)
	}
	j.must(j.nodes[owner].Close())
	if err := w.Flush(j.ctx, owner); !errors.Is(err, rma.ErrProcFailed) {
		t.Errorf("got %v, want class process failed", err)
	}
}

// TestEndsSayWhy has a rank end in each way that tells the others why its program has failed. They wait for it, meet it
// for the first time afterwards, or share its memory.
func TestEndsSayWhy(t *testing.T) {
	once(t)
	why := errors.New("open /nothere")
	for _, end := range []struct {
		name, said string
		run        func(n *rma.Node) error
	}{
		{"with an error", "its program has failed: open /nothere", func(n *rma.Node) error { return n.CloseWith(why) }},
		{"by a panic", "its program has failed: panic: open /nothere", func(n *rma.Node) (err error) {
			defer func() { err, _ = recover().(error) }()
			defer n.Close()
			panic(why)
		}},
		{"by an abort", "it has aborted the job: open /nothere", func(n *rma.Node) error { n.Abort(1, why); return why }},
	} {
		for _, hosts := range [][]string{{"", "", ""}, {"host", "host", "host"}} {
			j := newJobOf(t, hosts, rma.Config{Limits: patient, Exit: func(int) {}})
			j.windows(8, 8)
			waits := make(chan error)
			go func() {
				_, err := comm.Recv(j.ctx, j.nodes[0].World(), make([]byte, 1), 1, 7)
				waits <- err
			}()
			if err := end.run(j.nodes[1]); !errors.Is(err, why) {
				t.Errorf("%s: got %v", end.name, err)
			}
			later := comm.Send(j.ctx, j.nodes[2].World(), make([]byte, 100_000), 1, 7)
			for when, err := range map[string]error{"who waits": <-waits, "who comes later": later} {
				if !errors.Is(err, rma.ErrProcFailed) || !strings.Contains(err.Error(), end.said) {
					t.Errorf("%s, %q: %s gets %v, want %q", end.name, hosts, when, err, end.said)
				}
			}
		}
	}
}
