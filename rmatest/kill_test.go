package rmatest

import (
	"errors"
	"sync"
	"testing"

	"github.com/xdprma/xdprma/rma"
)

// A rank that is killed says no farewell, even if it has closed its node before the call that ends
// its context returns. A rank that waits for notifications learns of the death, though a farewell would
// not have ended its wait.
func TestKillIsNoFarewell(t *testing.T) {
	t.Parallel()
	var net Network
	var met sync.WaitGroup // a barrier of the ranks may be over at one alone
	met.Add(3)
	closed, told := make(chan struct{}), make(chan struct{})
	Run(t, 3, func(t *T, node *rma.Node) {
		ctx := t.Context()
		win, err := rma.Allocate(ctx, node.World(), 8, 8, rma.Counters(1))
		t.Must(err)
		met.Done()
		met.Wait()
		switch node.Rank() {
		case 0:
			defer close(told)
			if _, err := win.WaitNotified(ctx, 0, 1); !errors.Is(err, rma.ErrProcFailed) {
				t.Errorf("the wait for notifications ended with %v, want class process failed", err)
			}
		case 1:
			r := net.serving(2).ranks[2]
			cancel := r.cancel
			r.cancel = func(why error) {
				cancel(why)
				<-closed
			}
			net.Kill(2)
			select { // rank 0 is not to be left alone: that would end its wait too
			case <-told:
			case <-ctx.Done():
			}
		case 2:
			<-ctx.Done()
			_ = node.Close()
			close(closed)
			return
		}
		_ = win.Free(ctx)
	}, &net)
}
