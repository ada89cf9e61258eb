package rmatest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

// recorder is a test whose failures are looked at.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	lines    []string
	failed   bool
	skipped  bool
	deadline time.Time
}

func (r *recorder) Deadline() (time.Time, bool) { return r.deadline, !r.deadline.IsZero() }

func (r *recorder) note(failed bool, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines, r.failed = append(r.lines, text), r.failed || failed
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Log(args ...any)   { r.note(false, fmt.Sprint(args...)) }
func (r *recorder) Error(args ...any) { r.note(true, fmt.Sprint(args...)) }
func (r *recorder) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}
func (r *recorder) FailNow()          { r.Fail(); runtime.Goexit() }
func (r *recorder) Fatal(args ...any) { r.Error(args...); runtime.Goexit() }
func (r *recorder) Skip(args ...any) {
	r.skipped = true
	r.Log(args...)
	runtime.Goexit()
}

// record runs a job in a test that is looked at, and returns that.
func record(t *testing.T, size int, deadline time.Time, program func(t *rmatest.T, node *rma.Node), options ...rmatest.Option) *recorder {
	r := &recorder{TB: t, deadline: deadline}
	done := make(chan struct{})
	go func() {
		defer close(done)
		rmatest.Run(r, size, program, options...)
	}()
	<-done
	return r
}

// barrier has the ranks wait for the others.
func barrier(t *rmatest.T, node *rma.Node) { t.Must(node.World().Barrier(t.Context())) }

func TestFailures(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		program func(t *rmatest.T, node *rma.Node)
		want    []string // each is part of the one line
	}{
		"fatal": {func(t *rmatest.T, node *rma.Node) {
			if node.Rank() == 2 {
				t.Fatalf("the sum is %d", 7)
			}
			barrier(t, node)
		}, []string{"rank 2: the sum is 7"}},
		"consequence": {func(t *rmatest.T, node *rma.Node) {
			if node.Rank() == 1 {
				t.Fatal("the cause")
			}
			<-t.Context().Done()
			t.Error("a consequence")
			t.Fail()
		}, []string{"rank 1: the cause"}},
		"all fatal": {func(t *rmatest.T, node *rma.Node) { t.Fatal("the same") }, []string{": the same"}},
		"panic": {func(t *rmatest.T, node *rma.Node) {
			if node.Rank() == 1 {
				panic("out of luck")
			}
			barrier(t, node)
		}, []string{"rank 1: panic: out of luck", "failure_test.go"}},
		"exit": {func(t *rmatest.T, node *rma.Node) {
			if node.Rank() == 1 {
				runtime.Goexit()
			}
			barrier(t, node)
		}, []string{"rank 1: its function has ended its goroutine"}},
		"error": {func(t *rmatest.T, node *rma.Node) {
			barrier(t, node)
			if node.Rank() == 0 {
				t.Errorf("it is %v", false)
			}
			barrier(t, node)
		}, []string{"rank 0: it is false"}},
		"window": {func(t *rmatest.T, node *rma.Node) {
			_, err := rma.Allocate(t.Context(), node.World(), 8, 8, nil)
			t.Must(err)
			if node.Rank() != 1 {
				<-t.Context().Done()
			}
		}, []string{"rank 1: it has returned and not freed its windows, 1 in number"}},
		"conflict": {func(t *rmatest.T, node *rma.Node) {
			ctx := t.Context()
			win, err := rma.Allocate(ctx, node.World(), 8, 8, nil)
			t.Must(err)
			t.Must(win.Fence(ctx, 0))
			if v := int64(1); node.Rank() != 1 {
				t.Must(win.Put(buffer.Value(&v), 1, rma.At(0)))
			}
			t.Must(win.Fence(ctx, 0))
			t.Must(win.Free(ctx))
		}, []string{"conflicting accesses", "put by rank", "bytes 0 to 8"}},
		"store and read": {func(t *rmatest.T, node *rma.Node) {
			ctx := t.Context()
			win, err := rma.AllocateOf[int64](ctx, node.World(), 1)
			t.Must(err)
			if node.Rank() == 0 {
				t.Must(win.Lock(ctx, rma.LockShared, 1))
				t.Must(win.Store(ctx, 7, 1, rma.At(0)))
				_, err := win.Load(ctx, 1, rma.At(0)) // which needs no flush
				t.Must(err)
				t.Must(win.Read(ctx, make([]int64, 1), 1, rma.At(0)))
				t.Must(win.Unlock(ctx, 1))
			}
			t.Must(win.Free(ctx))
		}, []string{"get_accumulate with replace of int64 by rank 0 and get by rank 0", "a Flush between them"}},
	} {
		r := record(t, 3, time.Time{}, test.program)
		if !r.failed || len(r.lines) != 1 {
			t.Errorf("%s: failed %v, with %q; want one line", name, r.failed, r.lines)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(r.lines[0], want) {
				t.Errorf("%s: %q does not say %q", name, r.lines[0], want)
			}
		}
	}
}

// A job that hangs says which ranks do, and where, before the test's deadline, though a rank
// is stopped and another one does not look at its context.
func TestHang(t *testing.T) {
	t.Parallel()
	var net rmatest.Network
	forever := make(chan struct{})
	defer close(forever)
	r := record(t, 4, time.Now().Add(5*time.Second), func(t *rmatest.T, node *rma.Node) {
		switch node.Rank() {
		case 0:
			net.Stop(1)
		case 1, 2:
			_, _ = comm.Recv(t.Context(), node.World(), make([]byte, 1), 3, 5)
		case 3:
			<-forever
		}
	}, &net)
	text := strings.Join(r.lines, "\n")
	for _, want := range []string{"have not ended within", "rank 1 runs and is stopped:", "rank 2 runs:", "rank 3 runs:",
		"rank 2 runs:\n    it waits for a message from rank 3 with tag 5, since ", "TestHang", "comm.Recv", "of that:\nrank 3"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\ndoes not say %q", text, want)
		}
	}
	if strings.Contains(text, "internal/device") {
		t.Errorf("%s\nshows the inside of the library", text)
	}
	if strings.Contains(text, "rank 0 ") {
		t.Errorf("%s\nnames rank 0, which has ended", text)
	}
}

// A rank's function may leave a goroutine that uses the library.
func TestLeftGoroutine(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	err := rmatest.Job(2, func(ctx context.Context, node *rma.Node) error {
		go linger(node, end)
		return node.World().Barrier(ctx)
	})
	close(end)
	if err == nil || !strings.Contains(err.Error(), "goroutines are left") || !strings.Contains(err.Error(), "rmatest_test.linger") {
		t.Errorf("%v", err)
	}
}

func linger(_ *rma.Node, end chan struct{}) { <-end }

func TestSkip(t *testing.T) {
	t.Parallel()
	r := record(t, 2, time.Time{}, func(t *rmatest.T, node *rma.Node) {
		if node.Rank() == 1 {
			testenv.HasRun(t)
		}
		barrier(t, node)
	})
	if !r.skipped || r.failed || len(r.lines) != 1 || !strings.HasPrefix(r.lines[0], "rank 1: ") {
		t.Errorf("skipped %v, failed %v: %q", r.skipped, r.failed, r.lines)
	}
}

func TestCleanup(t *testing.T) {
	t.Parallel()
	var order []string
	r := record(t, 1, time.Time{}, func(t *rmatest.T, node *rma.Node) {
		win, err := rma.Allocate(t.Context(), node.World(), 8, 8, nil)
		t.Must(err)
		t.Cleanup(func() { order = append(order, "free"); t.Must(win.Free(t.Context())) })
		t.Cleanup(func() { order = append(order, "last") })
	})
	if r.failed || strings.Join(order, " ") != "last free" {
		t.Errorf("%q, %q", order, r.lines)
	}
}

// The others go on when a rank is killed, and what the rank says does not count.
func TestKill(t *testing.T) {
	t.Parallel()
	var net rmatest.Network
	var met sync.WaitGroup // a barrier of the ranks may be over at one alone
	met.Add(3)
	var put sync.WaitGroup // by those that live
	put.Add(2)
	rmatest.Run(t, 3, func(t *rmatest.T, node *rma.Node) {
		ctx := t.Context()
		win, err := rma.Allocate(ctx, node.World(), 8, 8, nil)
		t.Must(err)
		t.Must(win.LockAll(ctx, 0))
		met.Done()
		if node.Rank() == 2 {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), rmatest.ErrDead) {
				panic("killed for another reason")
			}
			t.Fatal(win.FlushAll(context.Background()), node.World().Barrier(context.Background()))
		}
		if node.Rank() == 0 {
			met.Wait()
			net.Kill(2)
		}
		one := int64(1)
		for {
			err := errors.Join(win.Put(buffer.Value(&one), 2, rma.At(0)), win.Flush(ctx, 2))
			if errors.Is(err, rma.ErrProcFailed) {
				break
			}
			t.Must(err)
		}
		t.Must(win.Put(buffer.Value(&one), 1-node.Rank(), rma.At(0)))
		t.Must(win.Flush(ctx, 1-node.Rank()))
		put.Done()
		put.Wait()
		_ = win.UnlockAll(ctx)
		if err := win.Free(ctx); !errors.Is(err, rma.ErrProcFailed) {
			t.Errorf("free: %v", err)
		}
	}, &net, rmatest.Unchecked())
}

// A rank that is stopped serves nobody, and serves them when it goes on.
func TestStop(t *testing.T) {
	t.Parallel()
	var net rmatest.Network
	rmatest.Run(t, 2, func(t *rmatest.T, node *rma.Node) {
		ctx := t.Context()
		win, err := rma.Allocate(ctx, node.World(), 8, 8, nil)
		t.Must(err)
		if node.Rank() == 0 {
			one := int64(1)
			t.Must(win.Lock(ctx, rma.LockShared, 1, 0))
			net.Stop(1)
			net.Stop(1)
			t.Must(win.Put(buffer.Value(&one), 1, rma.At(0)))
			short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			if err := win.Flush(short, 1); !errors.Is(err, rma.ErrTimeout) {
				t.Errorf("a rank that is stopped has answered: %v", err)
			}
			cancel()
			net.Resume(1)
			net.Resume(1)
			t.Must(win.Unlock(ctx, 1))
		}
		t.Must(win.Free(ctx))
	}, &net)
}

// Others find out by silence that a rank is stopped for good.
func TestStoppedForGood(t *testing.T) {
	t.Parallel()
	var net rmatest.Network
	stopped := make(chan struct{})
	rmatest.Run(t, 2, func(t *rmatest.T, node *rma.Node) {
		barrier(t, node)
		if node.Rank() == 0 {
			net.Stop(1)
			close(stopped)
			if err := node.World().Barrier(t.Context()); !errors.Is(err, rma.ErrProcFailed) {
				t.Errorf("%v, want class process failed", err)
			}
			net.Resume(1)
		} else {
			<-stopped
			_ = node.World().Barrier(t.Context())
		}
	}, &net, rmatest.Limits(rma.Limits{DeadAfter: 2 * time.Second}))
}

// The seed of a network with faults is told when a test fails, and no other.
func TestSeedIsTold(t *testing.T) {
	t.Parallel()
	fail := func(t *rmatest.T, node *rma.Node) { t.Fatal("it fails") }
	if r := record(t, 1, time.Time{}, fail, &rmatest.Network{Seed: 7, Loss: 0.1}); len(r.lines) != 2 || !strings.Contains(r.lines[1], "Seed to 7") {
		t.Errorf("%q", r.lines)
	}
	err := rmatest.Job(1, func(context.Context, *rma.Node) error { return errors.New("it fails") }, &rmatest.Network{Seed: 7, Delay: 1})
	if err == nil || err.Error() != "rank 0: it fails (for the same faults, set the network's Seed to 7)" {
		t.Errorf("%v", err)
	}
}

func TestMisuse(t *testing.T) {
	t.Parallel()
	none := func(context.Context, *rma.Node) error { return nil }
	var net rmatest.Network
	for _, err := range []error{
		rmatest.Job(0, none),
		rmatest.Job(2, none, rmatest.Hosts(3)),
		rmatest.Job(2, none, &rmatest.Network{Loss: 2}),
		rmatest.Job(2, none, &rmatest.Network{Delay: -1}),
		rmatest.Job(1, func(context.Context, *rma.Node) error { return rmatest.Job(1, none, &net) }, &net),
		rmatest.Job(1, none, rmatest.Limits(rma.Limits{TxFrames: 1})),
	} {
		if err == nil {
			t.Error("a mistake was taken")
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a network without a job has stopped a rank")
		}
	}()
	net.Stop(0)
}

// A panic ends the other ranks before the cleanups, which may wait for them, and it is what the
// test tells.
func TestPanicBeforeCleanup(t *testing.T) {
	t.Parallel()
	for name, cleanup := range map[string]func(t *rmatest.T, win rma.WinOf[int64]){
		"collective": func(t *rmatest.T, win rma.WinOf[int64]) { t.Must(win.Free(t.Context())) },
		"fatal":      func(t *rmatest.T, _ rma.WinOf[int64]) { t.Fatal("from a cleanup") },
	} {
		r := record(t, 2, time.Time{}, func(t *rmatest.T, node *rma.Node) {
			win, err := rma.AllocateOf[int64](t.Context(), node.World(), 1)
			t.Must(err)
			t.Cleanup(func() { cleanup(t, win) })
			if node.Rank() == 1 {
				panic("out of luck")
			}
			_ = node.World().Barrier(t.Context())
		})
		if len(r.lines) != 1 || !strings.HasPrefix(r.lines[0], "rank 1: panic: out of luck\n") {
			t.Errorf("%s: %q", name, r.lines)
		}
	}
}

// Stop does nothing to a rank that was killed, and a rank that is stopped goes on when nobody
// else is left.
func TestStopDoesNotHang(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(net *rmatest.Network){
		"of a killed rank":   func(net *rmatest.Network) { net.Kill(1); net.Stop(1) },
		"without an end":     func(net *rmatest.Network) { net.Stop(1) },
		"and then killed":    func(net *rmatest.Network) { net.Stop(1); net.Kill(1) },
		"of all but a dead":  func(net *rmatest.Network) { net.Stop(1); net.Stop(0); net.Kill(2) },
		"of a rank and back": func(net *rmatest.Network) { net.Stop(1); net.Resume(1); net.Stop(1) },
	} {
		var net rmatest.Network
		var begun sync.WaitGroup
		begun.Add(3)
		if err := rmatest.Job(3, func(ctx context.Context, node *rma.Node) error {
			begun.Done()
			begun.Wait()
			if node.Rank() == 2 {
				stop(&net)
			}
			return nil
		}, &net, rmatest.Within(testenv.Limit/2)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
