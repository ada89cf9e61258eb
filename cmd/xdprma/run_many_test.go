package main

import (
	"bytes"
	"context"
	encoding "encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/rma"
)

// envMany makes this test's binary a rank that puts to all others.
const envMany = "XDPRMA_TEST_MANY"

// putToAll is a rank: it puts to each other one, passes a barrier, and looks for what they have put.
func putToAll() (err error) {
	ctx := context.Background()
	node, err := rma.Join(ctx, rma.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	size, own := node.Size(), uint64(node.Rank()+1)
	w, err := rma.Allocate(ctx, node.World(), 8*size, 8)
	if err != nil {
		return err
	}
	if err := w.LockAll(ctx); err != nil {
		return err
	}
	for i := range size {
		if err := w.Put(buffer.Value(&own), (node.Rank()+i)%size, rma.At(node.Rank())); err != nil {
			return err
		}
	}
	if err := w.UnlockAll(ctx); err != nil {
		return err
	}
	if err := node.World().Barrier(ctx); err != nil {
		return err
	}
	for from := range size {
		if got := encoding.NativeEndian.Uint64(w.Memory()[8*from:]); got != uint64(from+1) {
			return fmt.Errorf("rank %d has put %d, not %d", from, got, from+1)
		}
	}
	if err := w.Free(ctx); err != nil {
		return err
	}
	fmt.Println("all have put")
	return nil
}

// TestRunManyRanks starts many more ranks than there are processors, each with a namespace of its own
// and the limits that hold by default. With each other one a rank makes a handshake by the job's key.
func TestRunManyRanks(t *testing.T) {
	testenv.NeedsRoot(t)
	ranks := testenv.Ranks(48)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := command(t, "run", "-n", strconv.Itoa(ranks), "--transport", "udp", "--env", envMany+"=1", "--", self)
	if s := c.run(t); s != 0 || strings.Count(c.stdout.String(), "all have put") != ranks {
		t.Errorf("status %d, %d of %d ranks are done: %.4000s", s, strings.Count(c.stdout.String(), "all have put"), ranks, &c.stderr)
	}
}

// TestPatienceFollowsTheCrowd sees that silence counts later where more ranks share a processor, but where
// the environment says when.
func TestPatienceFollowsTheCrowd(t *testing.T) {
	for _, c := range []struct {
		shared    int // ranks a processor
		said, set time.Duration
	}{
		{1, 0, 0},
		{16, 0, 0},
		{17, 0, 6 * time.Second},
		{128, 0, 40 * time.Second},
		{128, time.Second, 0},
	} {
		var stderr bytes.Buffer
		r := &runner{ranks: c.shared * runtime.NumCPU(), console: newConsole(io.Discard, &stderr)}
		r.all.DeadAfter = c.said
		r.configs = make([]bootstrap.Config, r.ranks)
		r.patience()
		for rank := range r.configs {
			if got := r.configs[rank].SilenceByDefault; got != c.set {
				t.Fatalf("%d ranks a processor, %v said: rank %d is told %v, not %v", c.shared, c.said, rank, got, c.set)
			}
		}
		if told := fmt.Sprintf("%d ranks share each processor: one that is silent counts as failed after %v,", c.shared, c.set); (c.set != 0) != strings.Contains(stderr.String(), told) {
			t.Errorf("%d ranks a processor: %q", c.shared, &stderr)
		}
	}
}
