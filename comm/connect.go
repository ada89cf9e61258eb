package comm

import (
	"context"

	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/protocol/engine"
)

// seek looks in the background for the way to a rank that the engine has begun a session
// with: until the rank has published its address, and then for as long as a silent peer is
// waited for. It may be called with the engine's lock held.
func (j *Job) seek(rank int) { j.goBackground(func(ctx context.Context) { j.find(ctx, rank) }) }

// find looks for the way to a rank, and tells the engine of it.
func (j *Job) find(ctx context.Context, rank int) {
	peer, path, err := j.way(ctx, rank)
	e := j.poller.Lock()
	defer j.poller.Unlock()
	if j.closed() { // which ends what waits for the rank
		return
	}
	if e.Dial(rank, path, peer.incarnation); err != nil {
		e.Unreachable(rank, err) // a later process of the rank is let in all the same
	}
	e.Tick()
}

// way returns where a rank is, and the way there.
func (j *Job) way(ctx context.Context, rank int) (peer peerAddress, path engine.PathID, err error) {
	if peer, err = j.peer(ctx, rank); err != nil {
		return peer, engine.NoPath, err
	}
	if own := j.poller.Device().LocalAddr().Addr(); own.Is4() != peer.addr.Addr().Is4() {
		err := otherFamily(rank, peer.addr.Addr(), j.rank, own)
		return peer, engine.NoPath, &mpierr.Error{Op: "connect", Class: mpierr.ProcFailed, Rank: rank, Err: err}
	}
	path, err = j.poller.Path(ctx, peer.addr)
	return peer, path, err
}
