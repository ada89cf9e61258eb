package comm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/xdprma/xdprma/internal/device/poller"
	"github.com/xdprma/xdprma/internal/launch/job"
	"github.com/xdprma/xdprma/mpierr"
)

// Request is the handle of an operation that goes on after the call that began it
// (MPI_Request). Wait or Test ends it; from then on it is inactive: Wait and Test
// return what it ended with again, and the functions on several requests pass it
// over, as they do nil. Any goroutine may use it.
type Request struct {
	poller *poller.Poller
	cond   poller.Condition
	finish func() error
	lock   underLock // nil for messages

	mu       sync.Mutex
	inactive atomic.Bool // set once err is what the operation ended with
	err      error
}

// underLock is the condition of an operation that may have to wait for a lock first. It is
// told how many calls wait for it, and when one has looked: that lock holds up no others.
type underLock interface {
	Waiting(calls int32)
	Polled()
}

// newRequest is inside.Request.
func newRequest(p *poller.Poller, cond poller.Condition, finish func() error) *Request {
	lock, _ := cond.(underLock)
	return &Request{poller: p, cond: cond, finish: finish, lock: lock}
}

// Wait blocks until the operation has completed at this rank, and returns its
// error (MPI_Wait). If ctx ends first, the error has class ErrTimeout, and the operation
// goes on. rma.Node.Close ends it, with class ErrClosed.
func (r *Request) Wait(ctx context.Context) error { return r.wait(ctx, []*Request{r}) }

// wait is Wait in a call that waits for all of the requests, r among them.
func (r *Request) wait(ctx context.Context, all []*Request) error {
	if r == nil {
		return nil
	}
	if r.active() {
		if err := await(ctx, r.poller, r.cond, all); err != nil && !r.poller.Closed() {
			return mpierr.Named("wait", mpierr.NoRank, err)
		}
	}
	return r.end("wait")
}

// await waits until cond is met, in a call that waits for the requests.
func await(ctx context.Context, p *poller.Poller, cond poller.Condition, requests []*Request) error {
	var few [8]underLock
	locks := few[:0]
	defer p.Guard()
	p.Lock()
	for _, r := range requests {
		if r.active() && r.lock != nil {
			r.lock.Waiting(1)
			locks = append(locks, r.lock)
		}
	}
	err := p.WaitLocked(ctx, cond)
	for _, l := range locks {
		l.Waiting(-1)
	}
	return err
}

// Test reports whether the operation has completed, and if so, its error
// (MPI_Test). It does not block, and makes progress: called again and again it
// comes true. A nil request has completed.
func (r *Request) Test() (done bool, err error) {
	if r == nil {
		return true, nil
	}
	if r.active() && !r.poll([]*Request{r}) {
		return false, nil
	}
	return true, r.end("test")
}

func (r *Request) active() bool { return r != nil && !r.inactive.Load() }

// end makes r, which is over, inactive, and returns what it ended with. A request that
// Close has ended will not be finished.
func (r *Request) end(op string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inactive.Load() {
		return r.err
	}
	if !r.poller.Closed() || r.met() {
		r.err = r.finish()
	} else {
		r.err = mpierr.Named(op, mpierr.NoRank, job.ErrClosed)
	}
	r.inactive.Store(true)
	return r.err
}

func (r *Request) met() bool {
	r.poller.Lock()
	defer r.poller.UnlockQuiet()
	return r.cond.Met()
}

// poll sends what is ready and reports whether r is over, in a call that looks for all of
// the requests.
func (r *Request) poll(all []*Request) bool {
	defer r.poller.Guard()
	r.poller.Lock()
	r.poller.Tick()
	met := r.cond.Met()
	polled(all)
	r.poller.Unlock()
	return met || r.poller.Closed()
}

// polled notes that a call looks for the requests, and will look again.
func polled(requests []*Request) {
	for _, r := range requests {
		if r.active() && r.lock != nil {
			r.lock.Polled()
		}
	}
}

// anyOf is met when one of the requests is over. They are those that were active when
// the wait began: another goroutine may end them.
type anyOf []*Request

func (c anyOf) Met() bool {
	for _, r := range c {
		if r.cond.Met() {
			return true
		}
	}
	return false
}

// Awaits says in words what is waited for, and which rank of the job, or NoRank.
func (c anyOf) Awaits() (what string, rank int) {
	if a, ok := c[0].cond.(interface{ Awaits() (string, int) }); ok && len(c) == 1 {
		return a.Awaits()
	}
	return fmt.Sprintf("one of %d requests", len(c)), mpierr.NoRank
}

// Idles reports whether what is waited for need not ever come, of any of the requests.
func (c anyOf) Idles() bool {
	for _, r := range c {
		if i, ok := r.cond.(interface{ Idles() bool }); !ok || !i.Idles() {
			return false
		}
	}
	return true
}

// pollerOf returns the poller of the active requests, which are all of one node; nil if
// there are none.
func pollerOf(op string, requests []*Request) (p *poller.Poller, err error) {
	for _, r := range requests {
		switch {
		case !r.active():
		case p == nil:
			p = r.poller
		case r.poller != p:
			return nil, mpierr.New(op, mpierr.Arg, mpierr.NoRank, "the requests belong to different nodes: wait for each by itself")
		}
	}
	return p, nil
}

// endSome ends the active requests that are over, at most most of them, and returns
// their indexes and errors.
func endSome(op string, p *poller.Poller, requests []*Request, most int) (indexes []int, err error) {
	closed := p.Closed()
	defer p.Guard()
	p.Lock()
	for i, r := range requests {
		if len(indexes) == most {
			break
		}
		if r.active() && (closed || r.cond.Met()) {
			indexes = append(indexes, i)
		}
	}
	p.UnlockQuiet()
	ended := indexes[:0]
	for _, i := range indexes {
		if requests[i].active() { // neither another goroutine has ended it, nor is it here twice
			ended = append(ended, i)
			err = errors.Join(err, requests[i].end(op))
		}
	}
	return ended, err
}

// WaitAll waits for all requests, and returns their errors joined (MPI_Waitall). If
// ctx ends first, those that have completed are inactive, and the others go on.
func WaitAll(ctx context.Context, requests ...*Request) error {
	var err error
	for i, r := range requests {
		if !r.active() {
			continue
		}
		fault := r.wait(ctx, requests[i:])
		if err = errors.Join(err, fault); r.active() { // ctx has ended
			return err
		}
	}
	return err
}

// WaitAny waits until one of the active requests has completed, and returns its
// index and error (MPI_Waitany). The index is -1 if none is active, or if ctx
// ended first. Class ErrArg if the requests are of several nodes.
func WaitAny(ctx context.Context, requests ...*Request) (index int, err error) {
	indexes, err := waitSome(ctx, "wait_any", requests, 1)
	if len(indexes) == 0 {
		return -1, err
	}
	return indexes[0], err
}

// WaitSome waits until at least one of the active requests has completed, and
// returns the indexes of all that have, and their errors joined (MPI_Waitsome).
// There are none if none is active, or if ctx ended first. Class ErrArg if the
// requests are of several nodes.
func WaitSome(ctx context.Context, requests ...*Request) (indexes []int, err error) {
	return waitSome(ctx, "wait_some", requests, len(requests))
}

func waitSome(ctx context.Context, op string, requests []*Request, most int) ([]int, error) {
	for {
		p, err := pollerOf(op, requests)
		if p == nil {
			return nil, err
		}
		if indexes, err := endSome(op, p, requests, most); len(indexes) > 0 {
			return indexes, err
		}
		list := slices.DeleteFunc(slices.Clone(requests), func(r *Request) bool { return !r.active() })
		if len(list) == 0 {
			continue
		}
		if err := await(ctx, p, anyOf(list), list); err != nil && !p.Closed() {
			return nil, mpierr.Named(op, mpierr.NoRank, err)
		}
	}
}

// TestAll reports whether all requests have completed, and then ends them and
// returns their errors joined (MPI_Testall). Otherwise none is ended.
func TestAll(requests ...*Request) (done bool, err error) {
	for _, r := range requests {
		if r.active() && !r.poll(requests) {
			return false, nil
		}
	}
	for _, r := range requests {
		if r.active() {
			err = errors.Join(err, r.end("test_all"))
		}
	}
	return true, err
}

// TestAny is WaitAny that does not block (MPI_Testany): done is false if no active
// request has completed, and true with index -1 if none is active.
func TestAny(requests ...*Request) (index int, done bool, err error) {
	indexes, active, err := testSome("test_any", requests, 1)
	if len(indexes) == 0 {
		return -1, !active, err
	}
	return indexes[0], true, err
}

// TestSome is WaitSome that does not block (MPI_Testsome).
func TestSome(requests ...*Request) (indexes []int, err error) {
	indexes, _, err = testSome("test_some", requests, len(requests))
	return indexes, err
}

func testSome(op string, requests []*Request, most int) (indexes []int, active bool, err error) {
	p, err := pollerOf(op, requests)
	if p == nil {
		return nil, false, err
	}
	defer p.Guard()
	p.Lock()
	p.Tick()
	polled(requests)
	p.Unlock()
	indexes, err = endSome(op, p, requests, most)
	return indexes, true, err
}
