package comm

import (
	"context"
	"errors"
	"sync"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/launch/job"
	"github.com/xdprma/xdprma/internal/protocol/calls/collective"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/mpierr"
)

const (
	AnySource = -1        // a receive from any rank of the communicator (MPI_ANY_SOURCE)
	AnyTag    = -31       // a receive of any tag (MPI_ANY_TAG)
	MaxTag    = 1<<31 - 1 // the largest tag; the least is 0 (MPI_TAG_UB)
)

// ProcNull is the rank of a process that does not exist: communication with it does
// nothing and succeeds (MPI_PROC_NULL).
const ProcNull = -2

// Status says what a receive has received, or a probe found (MPI_Status).
type Status struct {
	Source int // rank in the communicator
	Tag    int
	Count  int // bytes of the message; see CountOf
}

// nullStatus is that of a receive from ProcNull.
var nullStatus = Status{Source: ProcNull, Tag: AnyTag}

// CountOf returns how many elements of type T the message of s has, Undefined if its
// length is no whole number of them (MPI_Get_count).
func CountOf[T datatype.Element](s Status) int {
	size := datatype.BasicOf[T]().Size()
	if s.Count%size != 0 {
		return Undefined
	}
	return s.Count / size
}

// Entries returns how many entries of t the message of s has, Undefined if its length
// is no whole number of them (MPI_Get_count with a derived datatype).
func (s Status) Entries(t *datatype.Type) int {
	switch size := t.Size(); {
	case s.Count == 0:
		return 0
	case size == 0 || s.Count%size != 0:
		return Undefined
	default:
		return s.Count / size
	}
}

// Send sends buf to rank dest (MPI_Send). It blocks until buf may be changed: the
// message has left, or, if it is long, dest has received it. If ctx ends first, buf may
// be changed, and the message is withdrawn. If a receive has matched the message before
// dest hears that it is withdrawn, dest receives it all the same. Until then the library
// keeps a copy.
func Send[T datatype.Element](ctx context.Context, c *Comm, buf []T, dest, tag int) (err error) {
	defer c.handle(&err)
	return c.sendTo(ctx, "send", buffer.Of(buf).Memory(), dest, tag)
}

// Recv receives a message into buf, which may be longer (MPI_Recv). It blocks until
// the message is there. One that is longer than buf fills it and fails with class
// ErrTruncate. If ctx ends before a message has been matched, the receive is withdrawn;
// one that is on its way is waited for, which the death of its sender ends too.
func Recv[T datatype.Element](ctx context.Context, c *Comm, buf []T, source, tag int) (s Status, err error) {
	defer c.handle(&err)
	return c.recvFrom(ctx, "recv", buffer.Of(buf).Memory(), source, tag, false)
}

// Isend begins Send, and returns its request (MPI_Isend): buf may be changed once it
// has completed. It is local.
func Isend[T datatype.Element](ctx context.Context, c *Comm, buf []T, dest, tag int) (_ *Request, err error) {
	defer c.handle(&err)
	return c.isend(buffer.Of(buf).Memory(), dest, tag)
}

// Irecv begins Recv, and returns its request (MPI_Irecv): buf may be used, and status,
// if it is not nil, says what was received, once it has completed. It is local.
func Irecv[T datatype.Element](ctx context.Context, c *Comm, buf []T, source, tag int, status *Status) (_ *Request, err error) {
	defer c.handle(&err)
	return c.irecv(buffer.Of(buf).Memory(), source, tag, status)
}

// Sendrecv sends send to dest and receives into recv, both at once (MPI_Sendrecv):
// ranks that exchange in a ring do not wait for each other in vain. It blocks until
// both are done. If one fails, the other is given up as if ctx had ended.
func Sendrecv[S, R datatype.Element](ctx context.Context, c *Comm, send []S, dest, sendTag int, recv []R, source, recvTag int) (s Status, err error) {
	defer c.handle(&err)
	return c.sendrecv(ctx, buffer.Of(send).Memory(), dest, sendTag, buffer.Of(recv).Memory(), source, recvTag)
}

// Probe blocks until there is a message that a receive with the same source and tag
// would get, and returns its source, tag and length (MPI_Probe).
func (c *Comm) Probe(ctx context.Context, source, tag int) (s Status, err error) {
	defer c.handle(&err)
	return c.recvFrom(ctx, "probe", nil, source, tag, true)
}

// Iprobe is Probe that does not block: ok tells whether there is a message
// (MPI_Iprobe).
func (c *Comm) Iprobe(source, tag int) (s Status, ok bool, err error) {
	defer c.handle(&err)
	if err := c.checkReceive("iprobe", source, tag); err != nil {
		return Status{}, false, err
	}
	if source == ProcNull {
		return nullStatus, true, nil
	}
	defer c.job.Poller().Guard()
	e, err := c.enter("iprobe", source)
	if err != nil {
		return Status{}, false, err
	}
	c.expect(e, source)
	r := c.receiveOf(nil, source, tag, true)
	ok = e.TryReceive(r)
	c.job.Poller().Tick()
	c.job.Poller().Unlock()
	if !ok {
		return Status{}, false, nil
	}
	s, err = c.status("iprobe", mpierr.NoRank, r, r.Err())
	return s, err == nil, err
}

func (c *Comm) checkTag(op string, tag int) error {
	if c.freed.Load() {
		return errFreed(op)
	}
	if tag < 0 || tag > MaxTag {
		return mpierr.New(op, mpierr.Tag, mpierr.NoRank, "tag %d is not within 0 and %d", tag, MaxTag)
	}
	return nil
}

func (c *Comm) checkSend(op string, dest, tag int) error {
	if (dest < 0 || dest >= c.members.Size) && dest != ProcNull {
		return mpierr.New(op, mpierr.Rank, dest, "the communicator has %d ranks", c.members.Size)
	}
	return c.checkTag(op, tag)
}

func (c *Comm) checkReceive(op string, source, tag int) error {
	if (source < 0 || source >= c.members.Size) && source != ProcNull && source != AnySource {
		return mpierr.New(op, mpierr.Rank, source, "the communicator has %d ranks", c.members.Size)
	}
	if tag == AnyTag {
		tag = 0 // as good as any
	}
	return c.checkTag(op, tag)
}

// transfers are used again by calls that block.
var transfers = sync.Pool{New: func() any { return new(collective.Transfer) }}

// none is the half of a transfer that there is not.
var none = collective.Half{Rank: collective.Nobody}

// transfer carries out a message to a rank, or one from another, or both, whose arguments are
// right; a half of ProcNull is done at once. With probe, it looks at the message that it would
// receive, and leaves it.
func (c *Comm) transfer(ctx context.Context, op string, send, recv collective.Half, probe bool) (s Status, err error) {
	if recv.Rank == ProcNull {
		s, recv = nullStatus, none
	}
	if send.Rank == ProcNull {
		send = none
	}
	if send.Rank == collective.Nobody && recv.Rank == collective.Nobody {
		return s, nil
	}
	t := transfers.Get().(*collective.Transfer)
	t.Begin(&c.members, send, recv)
	t.In.Probe = probe
	if err := c.job.Carry(ctx, t); err != nil {
		return Status{}, c.named(op, mpierr.NoRank, err) // the engine may still know t
	}
	sent, received := t.Errs()
	if recv.Rank != collective.Nobody {
		s, err = c.status(op, recv.Rank, &t.In, received)
	}
	if sent != nil {
		err = c.named(op, send.Rank, sent)
	}
	*t = collective.Transfer{}
	transfers.Put(t)
	return s, err
}

// sendTo is Send.
func (c *Comm) sendTo(ctx context.Context, op string, data []byte, dest, tag int) error {
	if err := c.checkSend(op, dest, tag); err != nil {
		return err
	}
	_, err := c.transfer(ctx, op, collective.Half{Rank: dest, Tag: tag, Data: data}, none, false)
	return err
}

// recvFrom is Recv, or Probe.
func (c *Comm) recvFrom(ctx context.Context, op string, buf []byte, source, tag int, probe bool) (Status, error) {
	if err := c.checkReceive(op, source, tag); err != nil {
		return Status{}, err
	}
	return c.transfer(ctx, op, none, collective.Half{Rank: source, Tag: tag, Data: buf}, probe)
}

// sendrecv is Sendrecv.
func (c *Comm) sendrecv(ctx context.Context, send []byte, dest, sendTag int, recv []byte, source, recvTag int) (Status, error) {
	const op = "sendrecv"
	err := c.checkSend(op, dest, sendTag)
	if err == nil {
		err = c.checkReceive(op, source, recvTag)
	}
	if err != nil {
		return Status{}, err
	}
	return c.transfer(ctx, op, collective.Half{Rank: dest, Tag: sendTag, Data: send}, collective.Half{Rank: source, Tag: recvTag, Data: recv}, false)
}

// isend is Isend.
func (c *Comm) isend(data []byte, dest, tag int) (*Request, error) {
	if err := c.checkSend("isend", dest, tag); err != nil {
		return nil, err
	}
	if dest == ProcNull {
		return c.nothing(), nil
	}
	defer c.job.Poller().Guard()
	e, err := c.enter("isend", dest)
	if err != nil {
		return nil, err
	}
	p := &engine.Sending{To: e.Connect(c.WorldRank(dest)).Peer(), Context: c.members.Context, Tag: tag, Data: data}
	e.PostSend(p)
	c.job.Poller().Unlock()
	return newRequest(c.job.Poller(), p, func() error {
		if err := p.Err(); err != nil {
			return c.ended(c.named("isend", dest, err))
		}
		return nil
	}), nil
}

// enter locks the engine for a call that concerns a rank of c, and defers its Guard. With an error,
// nothing is locked.
func (c *Comm) enter(op string, rank int) (*engine.Engine, error) {
	e := c.job.Poller().Lock()
	if c.job.Poller().Closed() {
		c.job.Poller().Unlock()
		return nil, c.named(op, rank, job.ErrClosed)
	}
	return e, nil
}

// met is the condition of a request that has nothing to wait for.
type met struct{}

func (met) Met() bool { return true }

func (c *Comm) nothing() *Request {
	return newRequest(c.job.Poller(), met{}, func() error { return nil })
}

// ended returns what a request of c ended with, and tells c's handler.
func (c *Comm) ended(err error) error {
	c.CallErrhandler(err)
	return err
}

// receiveOf returns a receive from a rank or any, or a probe.
func (c *Comm) receiveOf(buf []byte, source, tag int, probe bool) *engine.Receive {
	r := &engine.Receive{Context: c.members.Context, Source: AnySource, Tag: tag, Members: c.members.Group, Buffer: buf, Probe: probe}
	if source != AnySource {
		r.Source = c.WorldRank(source)
	}
	return r
}

// expect has the failure of a rank, or any, noticed by who waits for its message.
func (c *Comm) expect(e *engine.Engine, source int) {
	if source == AnySource {
		c.members.Greet(e)
	} else {
		e.Connect(c.WorldRank(source))
	}
}

// status returns what r, which is met, has received from a rank or any. err is why it has
// not.
func (c *Comm) status(op string, source int, r *engine.Receive, err error) (Status, error) {
	if err != nil && !errors.Is(err, mpierr.Truncate) {
		return Status{}, c.named(op, source, err)
	}
	s := Status{Source: c.rankOf(r.From), Tag: r.Got, Count: r.Length}
	if err != nil {
		return s, c.named(op, mpierr.NoRank, err)
	}
	return s, nil
}

// irecv is Irecv.
func (c *Comm) irecv(buf []byte, source, tag int, status *Status) (*Request, error) {
	if status == nil {
		status = new(Status)
	}
	if err := c.checkReceive("irecv", source, tag); err != nil {
		return nil, err
	}
	if source == ProcNull {
		*status = nullStatus
		return c.nothing(), nil
	}
	defer c.job.Poller().Guard()
	e, err := c.enter("irecv", source)
	if err != nil {
		return nil, err
	}
	c.expect(e, source)
	r := c.receiveOf(buf, source, tag, false)
	e.PostReceive(r)
	c.job.Poller().Unlock()
	return newRequest(c.job.Poller(), r, func() error {
		s, err := c.status("irecv", mpierr.NoRank, r, r.Err())
		*status = s
		return c.ended(err)
	}), nil
}
