package comm

import (
	"context"

	"github.com/xdprma/xdprma/internal/protocol/engine"
)

// Connect returns the session with a rank of the job, for callers that must not wait; it
// is called with the engine's lock held. Where there is no session yet, it begins one, on
// which calls are queued, and looks for the rank in the background: until the rank has
// published its address, and then for as long as a silent peer is waited for.
func (j *Job) Connect(e *engine.Engine, rank int) *engine.Session {
	s, begun := e.Meet(rank)
	if begun {
		j.seek(rank)
	}
	return s
}

// seek looks for the way to a rank in the background. It may be called with the engine's
// lock held.
func (j *Job) seek(rank int) { j.goBackground(func(ctx context.Context) { j.find(ctx, rank) }) }

// find looks for the way to a rank, and tells the engine of it.
func (j *Job) find(ctx context.Context, rank int) {
	peer, err := j.peer(ctx, rank)
	path := engine.NoPath
	if err == nil {
		path, err = j.poller.Path(ctx, peer.addr)
	}
	e := j.poller.Lock()
	defer j.poller.Unlock()
	if err != nil {
		e.Unreachable(rank, err)
		return
	}
	e.Dial(rank, path, peer.incarnation)
	e.Tick()
}
