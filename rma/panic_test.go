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
	var none context.Context
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
		"no context":                   func() { _, _ = comm.Recv(none, world, make([]int64, 1), 0, 5) },
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
