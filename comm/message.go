package comm

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/protocol/engine"
)

const (
	AnySource = engine.AnySource // a receive from any rank of the communicator (MPI_ANY_SOURCE)
	AnyTag    = engine.AnyTag    // a receive of any tag (MPI_ANY_TAG)
	MaxTag    = engine.MaxTag    // the largest tag; the least is 0 (MPI_TAG_UB)
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
	defer c.handle(ctx, &err)
	return c.sendTo(ctx, "send", bytesOf(buf), dest, tag)
}

// Recv receives a message into buf, which may be longer (MPI_Recv). It blocks until
// the message is there. One that is longer than buf fills it and fails with class
// Truncate. If ctx ends before a message has been matched, the receive is withdrawn;
// one that is on its way is waited for, which the death of its sender ends too.
func Recv[T datatype.Element](ctx context.Context, c *Comm, buf []T, source, tag int) (s Status, err error) {
	defer c.handle(ctx, &err)
	return c.recvFrom(ctx, "recv", bytesOf(buf), source, tag, false)
}

// Isend begins Send, and returns its request (MPI_Isend): buf may be changed once it
// has completed. It blocks until dest has joined the job, for no other reason.
func Isend[T datatype.Element](ctx context.Context, c *Comm, buf []T, dest, tag int) (_ *Request, err error) {
	defer c.handle(ctx, &err)
	return c.isend(ctx, bytesOf(buf), dest, tag)
}

// Irecv begins Recv, and returns its request (MPI_Irecv): buf may be used, and status,
// if it is not nil, says what was received, once it has completed. It blocks until
// source, if it names a rank, has joined the job, for no other reason.
func Irecv[T datatype.Element](ctx context.Context, c *Comm, buf []T, source, tag int, status *Status) (_ *Request, err error) {
	defer c.handle(ctx, &err)
	return c.irecv(ctx, bytesOf(buf), source, tag, status)
}

// Sendrecv sends send to dest and receives into recv, both at once (MPI_Sendrecv):
// ranks that exchange in a ring do not wait for each other in vain. It blocks until
// both are done. If one fails, the other is given up as if ctx had ended.
func Sendrecv[S, R datatype.Element](ctx context.Context, c *Comm, send []S, dest, sendTag int, recv []R, source, recvTag int) (s Status, err error) {
	defer c.handle(ctx, &err)
	return c.exchange(ctx, bytesOf(send), dest, sendTag, bytesOf(recv), source, recvTag)
}

// Probe blocks until there is a message that a receive with the same source and tag
// would get, and returns its source, tag and length (MPI_Probe).
func (c *Comm) Probe(ctx context.Context, source, tag int) (s Status, err error) {
	defer c.handle(ctx, &err)
	return c.recvFrom(ctx, "probe", nil, source, tag, true)
}

// Iprobe is Probe that does not block: ok tells whether there is a message
// (MPI_Iprobe).
func (c *Comm) Iprobe(source, tag int) (s Status, ok bool, err error) {
	defer c.handle(context.Background(), &err)
	if err := c.checkReceive("iprobe", source, tag); err != nil {
		return Status{}, false, err
	}
	if source == ProcNull {
		return nullStatus, true, nil
	}
	r := c.newReceive(nil, source, tag, true)
	defer receives.Put(r)
	e := c.job.poller.Lock()
	if c.job.poller.Closed() {
		c.job.poller.Unlock()
		return Status{}, false, c.named("iprobe", source, errClosed)
	}
	ok = e.TryReceive(r)
	_, known := c.known(e, source)
	e.Tick()
	c.job.poller.Unlock()
	if !ok && (source == AnySource || !known) {
		c.greet()
	}
	if !ok {
		return Status{}, false, nil
	}
	s, err = c.status("iprobe", r)
	return s, err == nil, err
}

// Pools of the structures that blocking calls need while they wait.
var (
	sendings  = sync.Pool{New: func() any { return new(engine.Sending) }}
	receives  = sync.Pool{New: func() any { return new(engine.Receive) }}
	exchanges = sync.Pool{New: func() any { return new(halves) }}
)

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
	if (dest < 0 || dest >= c.size) && dest != ProcNull {
		return mpierr.New(op, mpierr.Rank, dest, "the communicator has %d ranks", c.size)
	}
	return c.checkTag(op, tag)
}

func (c *Comm) checkReceive(op string, source, tag int) error {
	if (source < 0 || source >= c.size) && source != ProcNull && source != AnySource {
		return mpierr.New(op, mpierr.Rank, source, "the communicator has %d ranks", c.size)
	}
	if tag == AnyTag {
		tag = 0 // as good as any
	}
	return c.checkTag(op, tag)
}

// enter locks the engine for a call that concerns a rank of the communicator, and
// returns the session with it, nil for this rank and AnySource. With an error,
// nothing is locked.
func (c *Comm) enter(ctx context.Context, rank int) (e *engine.Engine, s *engine.Session, err error) {
	p := c.job.poller
	e = p.Lock()
	s, known := c.known(e, rank)
	if !known && !p.Closed() {
		p.UnlockQuiet()
		if s, err = c.job.Session(ctx, c.WorldRank(rank)); err != nil {
			return nil, nil, err
		}
		e = p.Lock()
	}
	if p.Closed() {
		p.Unlock()
		return nil, nil, errClosed
	}
	return e, s, nil
}

// known returns the session with a rank, and whether there is one or none is needed.
func (c *Comm) known(e *engine.Engine, rank int) (*engine.Session, bool) {
	if rank == AnySource || c.WorldRank(rank) == c.job.rank {
		return nil, true
	}
	s := e.Session(c.WorldRank(rank))
	return s, s != nil
}

// greet opens sessions with all members, so that the failure of one that this rank
// has never heard of is noticed. It does not wait for them.
func (c *Comm) greet() {
	c.greeted.Do(func() {
		c.job.goBackground(func(ctx context.Context) {
			for rank := range c.size {
				_, err := c.session(ctx, rank)
				if _, logged := errors.AsType[buildError](err); err != nil && !logged && ctx.Err() == nil {
					c.job.log.Warn("a member of a communicator cannot be reached", "rank", c.WorldRank(rank), "error", err)
				}
			}
		})
	})
}

// sendTo is Send.
func (c *Comm) sendTo(ctx context.Context, op string, data []byte, dest, tag int) error {
	if err := c.checkSend(op, dest, tag); err != nil || dest == ProcNull {
		return err
	}
	return c.push(ctx, op, data, dest, tag)
}

// push sends data to a rank of the communicator.
func (c *Comm) push(ctx context.Context, op string, data []byte, dest, tag int) error {
	e, s, err := c.enter(ctx, dest)
	if err != nil {
		return c.named(op, dest, err)
	}
	p := c.newSending(s, data, tag)
	e.PostSend(p)
	return c.finishSend(op, dest, p, c.job.poller.WaitLocked(ctx, p))
}

func (c *Comm) newSending(to *engine.Session, data []byte, tag int) *engine.Sending {
	p := sendings.Get().(*engine.Sending)
	*p = engine.Sending{To: to.Peer(), Context: c.context, Tag: tag, Data: data}
	return p
}

// finishSend ends a blocking send, which was waited for with the result err: it is
// given up unless it is over.
func (c *Comm) finishSend(op string, dest int, p *engine.Sending, err error) error {
	if err != nil {
		spare := slices.Clone(p.Data) // before others have to wait for it
		e := c.job.poller.Lock()
		if !e.Abandon(p, spare) {
			err = nil
		}
		e.Tick()
		c.job.poller.Unlock()
	}
	if err == nil {
		err = p.Err()
	}
	*p = engine.Sending{}
	sendings.Put(p)
	if err != nil {
		return c.named(op, dest, err)
	}
	return nil
}

// isend is Isend.
func (c *Comm) isend(ctx context.Context, data []byte, dest, tag int) (*Request, error) {
	if err := c.checkSend("isend", dest, tag); err != nil {
		return nil, err
	}
	if dest == ProcNull {
		return c.nothing(), nil
	}
	e, s, err := c.enter(ctx, dest)
	if err != nil {
		return nil, c.named("isend", dest, err)
	}
	p := &engine.Sending{To: s.Peer(), Context: c.context, Tag: tag, Data: data}
	e.PostSend(p)
	c.job.poller.Unlock()
	return NewRequest(c.job.poller, p, func() error {
		if err := p.Err(); err != nil {
			return c.ended(c.named("isend", dest, err))
		}
		return nil
	}), nil
}

// met is the condition of a request that has nothing to wait for.
type met struct{}

func (met) Met() bool { return true }

func (c *Comm) nothing() *Request {
	return NewRequest(c.job.poller, met{}, func() error { return nil })
}

// ended returns what a request of c ended with, and tells c's handler.
func (c *Comm) ended(err error) error {
	c.CallErrhandler(err)
	return err
}

// newReceive returns a receive, or probe, from a rank or any.
func (c *Comm) newReceive(buf []byte, source, tag int, probe bool) *engine.Receive {
	r := receives.Get().(*engine.Receive)
	c.setReceive(r, buf, source, tag, probe)
	return r
}

func (c *Comm) setReceive(r *engine.Receive, buf []byte, source, tag int, probe bool) {
	*r = engine.Receive{Context: c.context, Source: AnySource, Tag: tag, Members: c.worldRanks, Buffer: buf, Probe: probe}
	if source != AnySource {
		r.Source = c.WorldRank(source)
	}
}

// recvFrom is Recv, or Probe.
func (c *Comm) recvFrom(ctx context.Context, op string, buf []byte, source, tag int, probe bool) (Status, error) {
	if err := c.checkReceive(op, source, tag); err != nil {
		return Status{}, err
	}
	if source == ProcNull {
		return nullStatus, nil
	}
	return c.pull(ctx, op, buf, source, tag, probe)
}

// pull receives from a rank of the communicator, or any, or probes.
func (c *Comm) pull(ctx context.Context, op string, buf []byte, source, tag int, probe bool) (Status, error) {
	e, _, err := c.enter(ctx, source)
	if err != nil {
		return Status{}, c.named(op, source, err)
	}
	r := c.newReceive(buf, source, tag, probe)
	e.PostReceive(r)
	if source == AnySource && !r.Met() {
		c.greet()
	}
	return c.finishReceive(op, source, r, c.job.poller.WaitLocked(ctx, r))
}

// finishReceive ends a blocking receive, which was waited for with the result err: it
// is withdrawn, or, if it has matched a message meanwhile, waited for.
func (c *Comm) finishReceive(op string, source int, r *engine.Receive, err error) (Status, error) {
	if err != nil {
		e := c.job.poller.Lock()
		withdrawn := e.WithdrawReceive(r)
		c.job.poller.Unlock()
		if !withdrawn {
			err = c.job.poller.Wait(context.Background(), r)
		}
	}
	if err != nil {
		return Status{}, c.named(op, source, err) // the engine may still know r
	}
	s, err := c.status(op, r)
	*r = engine.Receive{}
	receives.Put(r)
	return s, err
}

// status returns what r, which is met, has received, or why it has not.
func (c *Comm) status(op string, r *engine.Receive) (Status, error) {
	err := r.Err()
	if err != nil && !errors.Is(err, mpierr.Truncate) {
		return Status{}, c.named(op, mpierr.NoRank, err)
	}
	s := Status{Source: c.rankOf(r.From), Tag: r.Got, Count: r.Length}
	if err != nil {
		return s, c.named(op, mpierr.NoRank, err)
	}
	return s, nil
}

// irecv is Irecv.
func (c *Comm) irecv(ctx context.Context, buf []byte, source, tag int, status *Status) (*Request, error) {
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
	e, _, err := c.enter(ctx, source)
	if err != nil {
		return nil, c.named("irecv", source, err)
	}
	r := new(engine.Receive)
	c.setReceive(r, buf, source, tag, false)
	e.PostReceive(r)
	if source == AnySource && !r.Met() {
		c.greet()
	}
	c.job.poller.Unlock()
	return NewRequest(c.job.poller, r, func() error {
		s, err := c.status("irecv", r)
		*status = s
		return c.ended(err)
	}), nil
}

// exchange is Sendrecv.
func (c *Comm) exchange(ctx context.Context, send []byte, dest, sendTag int, recv []byte, source, recvTag int) (Status, error) {
	const op = "sendrecv"
	err := c.checkSend(op, dest, sendTag)
	if err == nil {
		err = c.checkReceive(op, source, recvTag)
	}
	switch {
	case err != nil:
		return Status{}, err
	case source == ProcNull:
		return nullStatus, c.sendTo(ctx, op, send, dest, sendTag)
	case dest == ProcNull:
		return c.recvFrom(ctx, op, recv, source, recvTag, false)
	}
	return c.swap(ctx, op, send, dest, sendTag, recv, source, recvTag)
}

// swap is push and pull at the same time.
func (c *Comm) swap(ctx context.Context, op string, send []byte, dest, sendTag int, recv []byte, source, recvTag int) (Status, error) {
	e, to, err := c.enter(ctx, dest)
	peer := dest
	if err == nil {
		if _, known := c.known(e, source); !known {
			c.job.poller.UnlockQuiet()
			peer = source
			e, _, err = c.enter(ctx, source)
		}
	}
	if err != nil {
		return Status{}, c.named(op, peer, err)
	}
	r, p := c.newReceive(recv, source, recvTag, false), c.newSending(to, send, sendTag)
	h := exchanges.Get().(*halves)
	h.p, h.r = p, r
	e.PostReceive(r)
	e.PostSend(p)
	if source == AnySource && !r.Met() {
		c.greet()
	}
	err = c.job.poller.WaitLocked(ctx, h)
	sent, received := err, err
	if err == nil {
		c.job.poller.Lock()
		if !p.Met() {
			sent = errOtherHalf
		}
		if !r.Met() {
			received = errOtherHalf
		}
		c.job.poller.UnlockQuiet()
	}
	*h = halves{}
	exchanges.Put(h)
	fault := c.finishSend(op, dest, p, sent)
	s, err := c.finishReceive(op, source, r, received)
	if fault != nil && sent != errOtherHalf {
		err = fault
	}
	return s, err
}

// halves is the condition of a send and a receive at the same time: both are over, or
// one has failed.
type halves struct {
	p *engine.Sending
	r *engine.Receive
}

func (h *halves) Met() bool {
	sent, received := h.p.Met(), h.r.Met()
	return sent && received || sent && h.p.Err() != nil || received && h.r.Err() != nil
}

// errOtherHalf is what a half is given up with; the call returns the other's error.
var errOtherHalf = errors.New("the other half of the exchange has failed")
