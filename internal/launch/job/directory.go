package job

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/netip"
	"sync"
	"time"

	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/protocol/engine"
)

// Limits of what hellos, of which many may be forged, make a rank ask the rendezvous.
const (
	lookUpPause = 10 * time.Millisecond // between two questions for one rank
	mostLookUps = 64                    // at a time
)

// directory is what ranks have published, as far as this one has learned. The engine judges
// hellos by it. The rest is looked up in the background.
type directory struct {
	lookUp func(ctx context.Context, rank int) // asks the rendezvous, and takes in the answer

	mu      sync.Mutex
	open    bool
	ctx     context.Context // until close
	end     context.CancelFunc
	asking  sync.WaitGroup
	lookUps int
	ranks   map[int]*listing
}

// listing is what is known of one rank.
type listing struct {
	peerAddress           // incarnation 0: nothing
	asked       bool      // a look-up goes on
	again       time.Time // before which there is no other
}

// begin lets look-ups begin. Before, what is missing stays so.
func (d *directory) begin(lookUp func(ctx context.Context, rank int)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open, d.lookUp = true, lookUp
	d.ctx, d.end = context.WithCancel(context.Background())
}

// close ends all look-ups, and waits for them.
func (d *directory) close() {
	d.mu.Lock()
	if d.open {
		d.open = false
		d.end()
	}
	d.mu.Unlock()
	d.asking.Wait()
}

// judge says whether a rank has published that it is of an incarnation and at an address.
// It is called with the engine's lock held, and does not block. If it does not know, it has
// the rendezvous asked, unless that was done a moment ago.
func (d *directory) judge(rank int, incarnation uint64, at netip.AddrPort) engine.Verdict {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.at(rank)
	switch {
	case incarnation == l.incarnation && at == l.addr:
		return engine.Confirmed
	case incarnation <= l.incarnation:
		return engine.Refuted
	}
	now := time.Now()
	if d.open && !l.asked && d.lookUps < mostLookUps && !now.Before(l.again) {
		l.asked, l.again = true, now.Add(lookUpPause)
		d.lookUps++
		d.asking.Go(func() {
			d.lookUp(d.ctx, rank)
			d.mu.Lock()
			defer d.mu.Unlock()
			l.asked = false
			d.lookUps--
		})
	}
	return engine.Unknown
}

// learn takes in what a rank has published, and reports whether that is news. A rank without
// an address is one that this rank cannot speak with: all its hellos are refuted.
func (d *directory) learn(rank int, p peerAddress) (news bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.at(rank)
	if p.incarnation <= l.incarnation { // the answer to an earlier question may come later
		return false
	}
	l.peerAddress = p
	return true
}

// ended takes in that a process of a rank has ended, or if its incarnation is 0, that no process will
// have the rank any more.
func (d *directory) ended(rank int, incarnation uint64) {
	d.learn(rank, peerAddress{incarnation: cmp.Or(incarnation, math.MaxUint64)})
}

func (d *directory) at(rank int) *listing {
	l := d.ranks[rank]
	if l == nil {
		if d.ranks == nil {
			d.ranks = make(map[int]*listing)
		}
		l = &listing{}
		d.ranks[rank] = l
	}
	return l
}

// lookUp asks the rendezvous what a rank has published, of which a hello has come, and has
// the engine judge the hello again.
func (j *Job) lookUp(ctx context.Context, rank int) {
	p, found, err := j.store.FindNow(ctx, rank)
	ended, ok := errors.AsType[*bootstrap.EndedError](err)
	ok = ok && ended.Rank == rank // else it is that of the rank which has served the rendezvous
	switch {
	case ok:
		j.directory.ended(rank, ended.Incarnation)
	case err == nil && found:
		_, _ = j.take(rank, p.Incarnation, p.Place) // which tells what is wrong with it
	}
	if err != nil && !ok && !errors.Is(err, bootstrap.ErrLeft) && ctx.Err() == nil {
		j.warnUnknown.Do(func() {
			j.log.Warn("the rendezvous cannot be asked who a rank is: ranks that this one has not met cannot reach it", "rank", rank, "error", err)
		})
	}
	e := j.poller.Lock()
	defer j.poller.Unlock()
	if !j.poller.Closed() {
		e.Learned(rank)
		j.poller.Tick()
	}
}
