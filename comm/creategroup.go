package comm

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"github.com/xdprma/xdprma/internal/engine"
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/userspace"
)

// The members of a group create a communicator around the first of them. It takes the
// new one's id and tells all others, on the second context of the communicator that they
// have: that one is never revoked. A member that has the id says so to the first, which
// lets all go once it has heard of each. Who gives up before it has the id tells the first.
// Who gives up afterwards breaks the new communicator, as does the first, and nobody can
// have it without the id being known to all. So nobody waits in it for a member that does
// not have it, whoever dies when.
//
// Each member passes the group without those that it knows to be gone, and they may know
// of different ones. Calls with different groups do not see each other's messages. Each
// says at the start which ranks of the communicator are gone, which spreads, and a call
// whose group has one of them fails. So all come to call with the same group.

const createGroup = "comm create_group"

// creation is a call of CreateGroup.
type creation struct {
	c      *Comm
	world  []int  // the group's ranks in the job
	tag    int    // of its messages: no two groups, or tags, have the same by design
	digest uint64 // of the group and the tag; by accident two may have the same tag
}

// CreateGroup returns a communicator of the processes of g, a group of c's, in the group's
// order (MPI_Comm_create_group, section 6.4.2 of the standard's 3.1). It is collective over
// the members of g, which pass the same group and tag, and nobody else calls it. It needs
// nothing of c but that the members of g live: it works where c is broken, so it is how
// those go on who survive the failure of others. It blocks until all members have called,
// or it has failed at one.
//
// Calls on c at the same time need different tags if a process is in the groups of both.
// So does a new call with the same group if one has failed. After the failure of a process
// the new group is another, and may have the same tag. Tags are from 0 to MaxTag.
// The new communicator has c's error handler and no attributes.
//
// If a member of g is known to have failed (see Failed), or does so meanwhile, the call
// fails at all with class ProcFailed, which names it. If ctx ends at one, or c is freed, that
// one gets the class Timeout, or Comm, and the others ProcFailed, which names it; those that
// have their communicator already find it broken. A member that never calls is waited for
// until ctx ends. Other classes: Group if g has processes outside c, or not this one; Tag;
// NoMem if there are no more communicators to be had; Closed.
func (c *Comm) CreateGroup(ctx context.Context, g Group, tag int) (_ *Comm, err error) {
	defer c.handle(ctx, &err)
	if err := c.checkTag(createGroup, tag); err != nil {
		return nil, err
	}
	for _, w := range g.world {
		if w >= c.job.size || c.rankOf(w) < 0 {
			return nil, mpierr.New(createGroup, mpierr.Group, mpierr.NoRank, "the group has processes that are not in the communicator")
		}
	}
	if g.find(c.job.rank) == Undefined {
		return nil, mpierr.New(createGroup, mpierr.Group, mpierr.NoRank, "this process is not in the group: only its members call")
	}
	k := c.newCreation(g, tag)
	if err := k.begin(); err != nil {
		return nil, err
	}
	if k.world[0] == c.job.rank {
		return k.lead(ctx)
	}
	return k.follow(ctx)
}

func (c *Comm) newCreation(g Group, tag int) *creation {
	b := binary.LittleEndian.AppendUint64(nil, uint64(tag))
	for _, w := range g.world {
		b = binary.LittleEndian.AppendUint64(b, uint64(w))
	}
	sum := sha256.Sum256(b)
	return &creation{
		c: c, world: g.world, digest: binary.LittleEndian.Uint64(sum[:]),
		tag: MaxTag + 1 + int(binary.LittleEndian.Uint32(sum[8:])&MaxTag),
	}
}

// Failed returns the group of c's processes that this rank knows to have failed, or to
// have left the job, in c's order (MPI_Comm_get_failed of the proposals for fault
// tolerance). It is local, does not block, and asks nobody. A rank learns of a failure when
// a call of its own needs that process, or may be served by any, and of those that others
// know of when they call CreateGroup, or when one has broken a communicator for others. A
// process that gave up a collective has not failed. One that has failed stays in the
// group, even if it is started again. A rank that finds itself in it was given up by
// another, which did not hear of it in time.
func (c *Comm) Failed() Group {
	e, _ := c.job.poller.Lock()
	defer c.job.poller.UnlockQuiet()
	return c.Group().filter(e.Gone)
}

// begin says who of c is gone, and fails if the group has one of them.
func (k *creation) begin() error {
	e, now := k.c.job.poller.Lock()
	defer k.c.job.poller.Unlock()
	if k.c.job.poller.Closed() {
		return k.error(errClosed)
	}
	for r := range k.c.size {
		if w := k.c.WorldRank(r); e.Gone(w) {
			e.TellGone(now, w)
		}
	}
	e.Tick(now)
	return k.orNil(k.gone(e))
}

var errGone = errors.New("it has failed, or has left the job")

// gone returns that a member is gone, or nil.
func (k *creation) gone(e *engine.Engine) error {
	for _, w := range k.world {
		if e.Gone(w) {
			return &mpierr.Error{Class: mpierr.ProcFailed, Rank: w, Err: errGone}
		}
	}
	return nil
}

// error returns err, which names ranks of the job, as the error of the call.
func (k *creation) error(err error) error { return k.c.named(createGroup, mpierr.NoRank, err) }

func (k *creation) orNil(err error) error {
	if err == nil {
		return nil
	}
	return k.error(err)
}

// lead is the call of the group's first member.
func (k *creation) lead(ctx context.Context) (*Comm, error) {
	id := k.c.job.contextID()
	err := k.tellAll(ctx, id)
	if id == 0 {
		return nil, k.error(errNoContexts(createGroup, k.c.job.rank))
	}
	d := k.newComm(id)
	if err == nil {
		err = k.gather(ctx, d)
	}
	if err != nil {
		return nil, k.broken(d, err)
	}
	k.letGo(d, k.world[1:])
	return d, nil
}

func (k *creation) newComm(id uint32) *Comm {
	d := newComm(k.c.job, id, k.world)
	d.errhandler.Store(k.c.errhandler.Load())
	d.turn = 1 // what the first says last was its first collective
	return d
}

// broken breaks d, and returns err, which names ranks of the job, as the call's error.
func (k *creation) broken(d *Comm, err error) error {
	err = k.error(err)
	d.Break(k.c, err)
	return err
}

// tellAll tells all others the id of the new communicator. If ctx ends before a member has
// joined the job, the rest are told in the background: they wait for nothing else.
func (k *creation) tellAll(ctx context.Context, id uint32) error {
	for i, w := range k.world[1:] {
		s, err := k.session(ctx, w)
		if err != nil {
			rest := k.world[1+i:]
			k.c.job.goBackground(func(ctx context.Context) {
				for _, w := range rest {
					if s, err := k.session(ctx, w); err == nil {
						k.tell(s, id)
					}
				}
			})
			return err
		}
		k.tell(s, id)
	}
	return nil
}

// session returns the session with a rank of the job. One that cannot be reached is gone.
func (k *creation) session(ctx context.Context, w int) (*engine.Session, error) {
	s, err := k.c.job.Session(ctx, w)
	if errors.Is(err, mpierr.ProcFailed) {
		e, now := k.c.job.poller.Lock()
		e.TellGone(now, w)
		k.c.job.poller.Unlock()
	}
	return s, err
}

const noticeLen = 12

// tell tells a member, or the first, an id: that of the new communicator, or 0, for giving
// up. It does not wait until that has left.
func (k *creation) tell(s *engine.Session, id uint32) {
	data := binary.LittleEndian.AppendUint32(nil, id)
	data = binary.LittleEndian.AppendUint64(data, k.digest)
	k.send(s, k.c.context|secondContext, k.tag, data)
}

func (k *creation) send(s *engine.Session, context uint32, tag int, data []byte) {
	e, now := k.c.job.poller.Lock()
	if !k.c.job.poller.Closed() {
		e.PostSend(now, &engine.Sending{Session: s, Context: context, Tag: tag, Data: data})
		e.Tick(now)
	}
	k.c.job.poller.Unlock()
}

// listen returns a receive of what tell has told, by a rank of the job.
func (k *creation) listen(from int) *engine.Receive {
	return &engine.Receive{Context: k.c.context | secondContext, Source: from, Tag: k.tag, Buf: make([]byte, noticeLen)}
}

// told returns the id that r, which is met, has received.
func (k *creation) told(r *engine.Receive) (id uint32, err error) {
	switch {
	case r.Err() != nil:
		return 0, r.Err()
	case r.Length != noticeLen:
		return 0, mpierr.New(createGroup, mpierr.Intern, r.From, "%d bytes about a communicator", r.Length)
	case binary.LittleEndian.Uint64(r.Buf[4:]) != k.digest:
		return 0, mpierr.New(createGroup, mpierr.Tag, r.From, "it creates another communicator whose messages cannot be told apart: take another tag")
	}
	return binary.LittleEndian.Uint32(r.Buf), nil
}

// gathering is the wait of the first for all others. It is over when all have d's id, or
// one has failed.
type gathering struct {
	*creation
	e     *engine.Engine
	d     *Comm
	heard []*engine.Receive // of the others
}

func (g *gathering) Met() bool {
	here, err := g.state()
	return here || err != nil
}

// state returns whether all others have d's id, and why the call fails.
func (g *gathering) state() (here bool, err error) {
	if err := g.gone(g.e); err != nil {
		return false, err
	}
	if failed, broken := g.e.Revoked(g.d.context); broken {
		return false, &mpierr.Error{Class: mpierr.ProcFailed, Rank: failed, Err: errGivenUp}
	}
	here = true
	for _, r := range g.heard {
		if !r.Met() {
			here = false
			continue
		}
		id, err := g.told(r)
		if err != nil {
			return false, err
		}
		if id != g.d.context {
			return false, &mpierr.Error{Class: mpierr.ProcFailed, Rank: r.Source, Err: errGivenUp}
		}
	}
	return here, nil
}

var errGivenUp = errors.New("it has given up the creation of the communicator")

// gather waits until all others have d's id.
func (k *creation) gather(ctx context.Context, d *Comm) error {
	p := k.c.job.poller
	e, now := p.Lock()
	if p.Closed() {
		p.Unlock()
		return errClosed
	}
	g := &gathering{creation: k, e: e, d: d}
	for _, w := range k.world[1:] {
		r := k.listen(w)
		e.PostReceive(now, r)
		g.heard = append(g.heard, r)
	}
	ended := p.WaitLocked(ctx, g)
	e, now = p.Lock()
	defer p.Unlock()
	here, err := g.state()
	for _, r := range g.heard {
		e.WithdrawReceive(now, r)
	}
	switch {
	case p.Closed():
		return errClosed
	case err != nil:
		return err
	case !here:
		return ended
	}
	return nil
}

// letGo tells members that all have d's id. It does so on d, so that they learn when d is
// broken before.
func (k *creation) letGo(d *Comm, members []int) {
	for _, w := range members {
		if s, err := k.session(context.Background(), w); err == nil { // there has been one
			k.send(s, d.context, goTag, nil)
		}
	}
}

const goTag = MaxTag + 1

// follow is the call of the others.
func (k *creation) follow(ctx context.Context) (*Comm, error) {
	s, id, err := k.learnID(ctx)
	if err != nil {
		switch mpierr.ClassOf(err) {
		case mpierr.ProcFailed, mpierr.NoMem, mpierr.Closed: // which the first knows, or learns
		default:
			k.giveUp()
		}
		return nil, k.error(err)
	}
	d := k.newComm(id)
	k.tell(s, id)
	if err := k.await(ctx, &engine.Receive{Context: id, Source: k.world[0], Tag: goTag}, false); err != nil {
		return nil, k.broken(d, err)
	}
	return d, nil
}

// learnID waits for the id of the new communicator from the first, and returns the session
// with that.
func (k *creation) learnID(ctx context.Context) (s *engine.Session, id uint32, err error) {
	first := k.world[0]
	if s, err = k.session(ctx, first); err != nil {
		return nil, 0, err
	}
	r := k.listen(first)
	if err := k.await(ctx, r, true); err != nil { // the first may not call if it knows that one is gone
		return nil, 0, err
	}
	switch id, err = k.told(r); {
	case err != nil:
	case id == 0:
		err = errNoContexts(createGroup, first)
	case !isContextID(id):
		err = mpierr.New(createGroup, mpierr.Intern, first, "%d is no id of a communicator", id)
	}
	return s, id, err
}

// giveUp tells the first that this rank will not have the id. It may have to join before.
func (k *creation) giveUp() {
	k.c.job.goBackground(func(ctx context.Context) {
		if s, err := k.session(ctx, k.world[0]); err == nil {
			k.tell(s, 0)
		}
	})
}

// waiting is the wait for r, which is over as well when a member is gone.
type waiting struct {
	*creation
	e *engine.Engine
	r *engine.Receive
}

func (w *waiting) Met() bool { return w.r.Met() || w.gone(w.e) != nil }

// await receives r, or returns why it does not. all says to give up when any member is gone.
func (k *creation) await(ctx context.Context, r *engine.Receive, all bool) error {
	p := k.c.job.poller
	e, now := p.Lock()
	if p.Closed() {
		p.Unlock()
		return errClosed
	}
	e.PostReceive(now, r)
	cond := userspace.Condition(r)
	if all {
		cond = &waiting{k, e, r}
	}
	ended := p.WaitLocked(ctx, cond)
	e, now = p.Lock()
	defer p.Unlock()
	if r.Met() {
		return r.Err()
	}
	e.WithdrawReceive(now, r)
	if ended != nil {
		return ended
	}
	return k.gone(e)
}
