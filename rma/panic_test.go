package rma_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

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
