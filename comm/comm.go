package comm

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/xdprma/xdprma/internal/attribute"
	"github.com/xdprma/xdprma/internal/engine"
	"github.com/xdprma/xdprma/internal/mpierr"
)

// worldContext is the message context of the world communicator.
const worldContext = 1

// Comm is a communicator: a group of ranks and a message context of their own.
// Its collectives are called by all ranks of the group in the same order, and by
// one goroutine of each rank at a time. Once a collective has failed at a member,
// be it because its context ended, the communicator is broken: that collective or
// the next one fails at every member, so that none waits for one that has given up.
type Comm struct {
	job     *Job
	context uint32
	group   []int // ranks in the job, nil for all of them
	rank    int
	size    int

	errhandler atomic.Pointer[Errhandler]
	name       atomic.Pointer[string]
	attributes attribute.Set
	greeted    sync.Once // the members have been called, for receives from any of them

	mu   sync.Mutex // one collective at a time
	wait engine.MessageWait
	room roomWait
	turn uint32 // collectives done, so that messages of two cannot be mixed up
	buf  []byte
}

func newComm(j *Job, context uint32, group []int) *Comm {
	c := &Comm{job: j, context: context, group: group, rank: j.rank, size: j.size}
	if group != nil {
		c.size, c.rank = len(group), -1
		for i, r := range group {
			if r == j.rank {
				c.rank = i
			}
		}
	}
	return c
}

// windowContext marks the message contexts of windows; the rest is the window's id.
const windowContext = 1 << 31

// ForWindow returns a communicator of the same ranks for the messages of the window
// with the given id. They are apart from those of c, so that the window's
// collectives and those of the program do not disturb each other.
func (c *Comm) ForWindow(id uint32) *Comm { return newComm(c.job, windowContext|id, c.group) }

// Rank returns this process's rank in the communicator.
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of ranks in the communicator.
func (c *Comm) Size() int { return c.size }

// Job returns the job that the communicator belongs to.
func (c *Comm) Job() *Job { return c.job }

// WorldRank returns the rank in the job of a rank of the communicator.
func (c *Comm) WorldRank(rank int) int {
	if c.group == nil {
		return rank
	}
	return c.group[rank]
}

// roomWait is met when a message may be sent.
type roomWait struct {
	engine  *engine.Engine
	session *engine.Session
}

func (w *roomWait) Met() bool { return w.engine.SendRoom(w.session) }

// tag of a round of the current collective.
func (c *Comm) tag(round int) uint32 { return c.turn<<8&^(1<<31) | uint32(round) }

// session returns the session with a rank of the communicator, nil for this rank.
func (c *Comm) session(ctx context.Context, rank int) (*engine.Session, error) {
	world := c.WorldRank(rank)
	if world == c.job.rank {
		return nil, nil
	}
	return c.job.Session(ctx, world)
}

// send sends data in as many messages as it takes; each tells the whole length.
func (c *Comm) send(ctx context.Context, to int, tag uint32, data []byte) error {
	s, err := c.session(ctx, to)
	if err != nil {
		return err
	}
	total := uint64(len(data))
	for {
		piece := data[:min(len(data), engine.MaxMessage)]
		e, now := c.job.poller.Lock()
		ok := e.Send(now, s, c.context, tag, total, piece)
		e.Tick(now) // the caller may have nothing to wait for
		c.job.poller.Unlock()
		if !ok {
			c.room = roomWait{e, s}
			if err := c.job.poller.Wait(ctx, &c.room); err != nil {
				return err
			}
			continue
		}
		if data = data[len(piece):]; len(data) == 0 {
			return nil
		}
	}
}

var (
	errPeerLeft = errors.New("it has left the job")
	errRevoked  = errors.New("the communicator is broken: this member has failed, or given up a collective")
)

// receive waits for what a rank sends under tag, and appends it to buf. The
// error is of class ProcFailed if the rank dies, leaves, or has itself seen a
// member fail.
func (c *Comm) receive(ctx context.Context, from int, tag uint32, buf []byte) ([]byte, error) {
	s, err := c.session(ctx, from)
	if err != nil {
		return nil, err
	}
	start := len(buf)
	for {
		var total uint64
		var ok bool
		if total, buf, ok, err = c.next(ctx, s, from, tag, buf); err != nil {
			return nil, err
		}
		if ok && uint64(len(buf)-start) >= total {
			return buf, nil
		}
	}
}

func (c *Comm) next(ctx context.Context, s *engine.Session, from int, tag uint32, buf []byte) (uint64, []byte, bool, error) {
	world := c.WorldRank(from)
	e, now := c.job.poller.Lock()
	c.wait = engine.MessageWait{Engine: e, Context: c.context, Tag: tag, From: world}
	word, data, ok := e.Take(c.context, tag, world, buf)
	if !ok {
		if err := c.revoked(e); err != nil {
			c.job.poller.Unlock()
			return 0, buf, false, err
		}
	}
	if ok || s == nil {
		c.job.poller.Unlock()
		return word, data, ok, nil
	}
	if err := s.Err(); err != nil {
		c.job.poller.Unlock()
		return 0, buf, false, err
	}
	if s.Left() {
		c.job.poller.Unlock()
		return 0, buf, false, &mpierr.Error{Op: "collective", Class: mpierr.ProcFailed, Rank: world, Err: errPeerLeft}
	}
	e.Watch(now, s, 1)
	c.job.poller.Unlock()
	err := c.job.poller.Wait(ctx, &c.wait)
	e, now = c.job.poller.Lock()
	e.Watch(now, s, -1)
	c.job.poller.Unlock()
	return 0, buf, false, err
}

// usable returns nil unless the communicator is broken or the job closed.
func (c *Comm) usable() error {
	e, _ := c.job.poller.Lock()
	defer c.job.poller.Unlock()
	if c.job.poller.Closed() {
		return net.ErrClosed
	}
	return c.revoked(e)
}

func (c *Comm) revoked(e *engine.Engine) error {
	if failed, yes := e.Revoked(c.context); yes {
		return &mpierr.Error{Op: "collective", Class: mpierr.ProcFailed, Rank: failed, Err: errRevoked}
	}
	return nil
}

// named returns err as the error of call op.
func (c *Comm) named(op string, err error) *mpierr.Error {
	named := &mpierr.Error{Op: op, Class: mpierr.Closed, Rank: mpierr.NoRank, Err: err}
	var e *mpierr.Error
	switch {
	case c.job.poller.Closed():
		named.Err = net.ErrClosed
	case errors.As(err, &e):
		named.Class, named.Rank, named.Err = e.Class, e.Rank, e.Err
	case errors.Is(err, context.DeadlineExceeded):
		named.Class = mpierr.Timeout
	}
	return named
}

// failed names the collective in err, and breaks the communicator.
func (c *Comm) failed(op string, err error) error {
	named := c.named(op, err)
	if c.job.poller.Closed() {
		return named
	}
	culprit := named.Rank
	if culprit == mpierr.NoRank {
		culprit = c.job.rank
	}
	eng, now := c.job.poller.Lock()
	eng.Revoke(now, c.context, culprit)
	eng.Tick(now)
	c.job.poller.Unlock()
	return named
}
