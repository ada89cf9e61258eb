package rma_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/internal/lab/testjob"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/userspace"
)

// TestSealedWindowsAreLeftToProcesses shows that the XDP program executes requests in a job that seals
// its frames only where both ends allow that they travel in clear.
func TestSealedWindowsAreLeftToProcesses(t *testing.T) {
	lab := newLab(t, 2)
	if err := lab.AcceptAnswers(); err != nil {
		t.Fatal(err)
	}
	j := joined(t, placesAt(t, lab, userspace.XDPNative, testjob.At(secure.Seal)), lab.Do, rma.Config{})
	for allowed := range 4 {
		t.Run(fmt.Sprintf("%02b", allowed), func(t *testing.T) {
			wins := make([]*rma.Win, 2)
			j.each(func(n *rma.Node) (err error) {
				info := rma.Info{"xdprma_express": "true"}
				if allowed>>n.Rank()&1 != 0 {
					info = rma.InClear()
				}
				wins[n.Rank()], err = rma.Allocate(j.ctx, n.World(), 8, 1, info)
				return err
			})
			for r, w := range wins {
				if w.Unattended(1-r) != (allowed == 3) || (w.Info()["xdprma_in_clear"] == "true") != (allowed>>r&1 != 0) {
					t.Errorf("rank %d: in reach %v, info %v", r, w.Unattended(1-r), w.Info())
				}
			}
			before := j.nodes[0].Stats().Link.Executed
			j.each(func(n *rma.Node) error {
				w := wins[n.Rank()]
				if n.Rank() != 0 {
					return nil
				}
				word := []int64{7}
				err := errors.Join(w.LockAll(j.ctx, 0), w.Flush(j.ctx, 1))
				for range 20 {
					_, fault := rma.Fetch(j.ctx, w, int64(1), 1, rma.At(0), rma.Sum)
					err = errors.Join(err, fault)
				}
				err = errors.Join(err, w.Get(buffer.Of(word), 1, rma.At(0)), w.Flush(j.ctx, 1), w.UnlockAll(j.ctx))
				if word[0] != 20 {
					err = errors.Join(err, fmt.Errorf("the word is %d", word[0]))
				}
				return err
			})
			if executed := j.nodes[0].Stats().Link.Executed - before; (executed > 0) != (allowed == 3) {
				t.Errorf("the program has executed %d requests", executed)
			}
			freeAll(j, wins)
		})
	}
}
