package job

import (
	"context"
	"net"

	"github.com/xdprma/xdprma/internal/device/poller"
	"github.com/xdprma/xdprma/internal/protocol/calls/collective"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/mpierr"
)

// ErrClosed is what ends the calls that wait when the job is closed.
var ErrClosed = &mpierr.Error{Op: "wait", Class: mpierr.Closed, Rank: mpierr.NoRank, Err: net.ErrClosed}

// Carry steps m until it is over. It fails if the job is closed meanwhile; whatever else
// goes wrong, m knows.
func (j *Job) Carry(ctx context.Context, m collective.Machine) error {
	p := j.poller
	if ctx == nil {
		m.GiveUp(poller.ErrNoContext)
	} else if err := ctx.Err(); err != nil {
		m.GiveUp(err)
	}
	defer p.Guard()
	e := p.Lock()
	for {
		if p.Closed() {
			m.Drop(e)
			p.Unlock()
			return ErrClosed
		}
		var err error
		switch m.Step(e) {
		case collective.Done:
			p.Unlock()
			return nil
		case collective.Work:
			p.UnlockQuiet()
			j.work(ctx, m)
		case collective.Wait:
			err = p.WaitLocked(ctx, m)
		case collective.Last:
			if err = p.WaitLocked(ctx, m); err == nil {
				return nil
			}
		case collective.Finish:
			_ = p.WaitLocked(context.Background(), m) // it fails if the job is closed
		}
		if err != nil {
			m.GiveUp(err)
		}
		e = p.Lock()
	}
}

// work has m compute, without the engine's lock. If a function of the program panics in it, m is carried to its end
// before that goes on: the program may recover, and the other ranks wait for this one.
func (j *Job) work(ctx context.Context, m collective.Machine) {
	returned := false
	defer func() {
		if !returned {
			_ = j.Carry(ctx, m)
		}
	}()
	m.Work()
	returned = true
}

// InEngine has f use the engine, unless the job is closed.
func (j *Job) InEngine(f func(e *engine.Engine)) {
	defer j.poller.Guard()
	e := j.poller.Lock()
	if !j.poller.Closed() {
		f(e)
	}
	j.poller.Unlock()
}
