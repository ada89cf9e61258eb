package rma_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/lab/testjob"
	"github.com/xdprma/xdprma/rma"
)

// TestPanicInEngineEndsRank has a rank panic with the engine's lock, in a program that recovers. Its process ends with the
// text all the same, so that the launcher can tell the others, long before silence would.
func TestPanicInEngineEndsRank(t *testing.T) {
	if repeated() {
		testenv.HasRun(t)
	}
	t.Parallel()
	if os.Getenv("XDPRMA_RANK") != "" { // the process that the test starts
		node, err := rma.Join(t.Context(), rma.Config{})
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() { t.Logf("recovered: %v", recover()) }()
			node.PanicInEngine()
		}()
		return
	}
	places, server, err := testjob.Serve(2)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit)
	defer cancel()
	own := testjob.Config(&places[0])
	own.Limits.DeadAfter = time.Hour
	node, err := rma.Join(ctx, own)
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestPanicInEngineEndsRank$")
	child.Env = append(os.Environ(), places[1].Environ()...)
	out, err := child.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "a fault of the engine") || !strings.Contains(string(out), "PanicInEngine") || strings.Contains(string(out), "recovered") {
		t.Errorf("the rank ended with %v, and said\n%s", err, out)
	}
	server.Ended(1, "its process has ended") // as a launcher says
	if err := node.World().Barrier(ctx); !errors.Is(err, rma.ErrProcFailed) {
		t.Errorf("a barrier with it: %v", err)
	}
}

// TestProgramsOwnPanicsAreRecovered has code of the program panic inside of calls, which go on panicking and leave a
// rank that works.
func TestProgramsOwnPanicsAreRecovered(t *testing.T) {
	j := newJob(t, 1, rma.Limits{})
	world := j.nodes[0].World()
	c, err := world.Dup(j.ctx)
	if err != nil {
		t.Fatal(err)
	}
	c.SetErrhandler(func(_ *comm.Comm, err error) { panic(err) })
	key := comm.NewKeyval(func(*comm.Comm, int) (int, bool, error) { panic("a copy function") }, nil)
	dup, err := world.Dup(j.ctx)
	j.must(err, key.Set(dup, 1))
	receive := func() *comm.Request {
		r, err := comm.Irecv(j.ctx, c, make([]int64, 1), 0, 0, nil)
		j.must(err, comm.Send(j.ctx, c, make([]int64, 2), 0, 0))
		return r
	}
	for name, call := range map[string]func(){
		"an error handler in WaitAny":  func() { _, _ = comm.WaitAny(j.ctx, receive()) },
		"an error handler in TestSome": func() { _, _ = comm.TestSome(receive()) },
		"an error handler in Wait":     func() { _ = receive().Wait(j.ctx) },
		"a copy function":              func() { _, _ = dup.Dup(j.ctx) },
		"no window":                    func() { _ = rma.WinOf[int64]{}.Put(nil, 0, rma.At(0)) },
		"an empty window":              func() { _, _ = new(rma.Win).Test() },
		"an empty request":             func() { _, _ = new(comm.Request).Test() },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: there was no panic", name)
				}
			}()
			call()
		}()
	}
	w, err := rma.AllocateOf[int64](j.ctx, world, 1)
	j.must(err, w.LockAll(j.ctx), w.Store(j.ctx, 7, 0, rma.At(0)), w.UnlockAll(j.ctx), w.Free(j.ctx))
}

// TestPanicOfOneIsToldToAll has a copy function panic at one rank, which recovers. The others learn that there is no
// communicator, and the one that was to be duplicated works on.
func TestPanicOfOneIsToldToAll(t *testing.T) {
	j := newJob(t, 3, rma.Limits{})
	key := comm.NewKeyval(func(c *comm.Comm, _ int) (int, bool, error) {
		if c.Rank() == 1 {
			panic("a copy function")
		}
		return 0, true, nil
	}, nil)
	j.each(func(n *rma.Node) error {
		world, sum := n.World(), []int{1}
		if err := key.Set(world, 1); err != nil {
			return err
		}
		func() {
			defer func() {
				if why := recover(); (why != nil) != (n.Rank() == 1) {
					t.Errorf("rank %d panics with %v", n.Rank(), why)
				}
			}()
			if _, err := world.Dup(j.ctx); !errors.Is(err, rma.ErrOther) {
				t.Errorf("rank %d: the duplicate ended with %v", n.Rank(), err)
			}
		}()
		err := comm.Allreduce(j.ctx, world, sum, sum, rma.Sum)
		if sum[0] != 3 {
			t.Errorf("rank %d: the sum is %d", n.Rank(), sum[0])
		}
		return errors.Join(err, key.Delete(world))
	})
}

// TestNoContext gives calls that wait no context: they say so, and leave nothing behind.
func TestNoContext(t *testing.T) {
	j := newJob(t, 1, rma.Limits{})
	world := j.nodes[0].World()
	one, err := comm.Irecv(j.ctx, world, make([]int64, 1), 0, 6, nil)
	j.must(err)
	var none context.Context
	for name, call := range map[string]func() error{
		"Recv":    func() error { _, err := comm.Recv(none, world, make([]int64, 1), 0, 5); return err },
		"Wait":    func() error { return one.Wait(none) },
		"WaitAny": func() error { _, err := comm.WaitAny(none, one); return err },
		"Probe":   func() error { _, err := world.Probe(none, 0, 7); return err },
	} {
		if err := call(); !errors.Is(err, rma.ErrArg) {
			t.Errorf("%s: %v, want the class of a wrong argument", name, err)
		}
	}
	got := make([]int64, 1)
	j.must(comm.Send(j.ctx, world, []int64{3}, 0, 5))
	if _, err := comm.Recv(j.ctx, world, got, 0, 5); err != nil || got[0] != 3 {
		t.Errorf("the message went to %d: %v", got[0], err)
	}

	j = newJob(t, 2, rma.Limits{}) // a collective of one rank waits for nothing
	j.each(func(n *rma.Node) error {
		ctx, want := j.ctx, rma.ErrProcFailed
		if n.Rank() == 0 {
			ctx, want = none, rma.ErrArg
		}
		c, err := n.World().Dup(j.ctx)
		if err == nil {
			if got := c.Barrier(ctx); !errors.Is(got, want) {
				t.Errorf("rank %d: the barrier ended with %v, want class %v", n.Rank(), got, want)
			}
			err = n.World().Barrier(j.ctx)
		}
		return err
	})
}
