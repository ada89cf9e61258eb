package engine

import (
	"slices"

	"github.com/xdprma/xdprma/internal/mpierr"
)

// AnySource and AnyTag are the wildcards of a Receive.
const (
	AnySource = -1
	AnyTag    = -31
)

// MaxTag is the largest tag that AnyTag stands for. Those beyond, up to a length of
// 32 bits, are for collectives, whose messages have credit of their own.
const MaxTag = 1<<31 - 1

// lane is what a rank keeps about the messages of one kind to and from a peer, for
// which there is credit. Costs and credits are totals.
type lane struct {
	sending line[Sending] // not sent yet, in order
	spent   uint64        // cost of what was sent
	credit  uint64        // what that may reach

	spentHere uint64 // cost of what the peer has sent
	paidHere  uint64 // of it, what needs no room any more
	granted   uint64 // what the peer may reach
	untold    bool   // it does not know yet
}

// The kinds of messages.
const (
	laneCollective = iota
	laneUser
	numLanes
)

func laneOf(tag int) int {
	if tag > MaxTag {
		return laneCollective
	}
	return laneUser
}

// waitingSends returns how many messages to s have not been sent.
func (s *Session) waitingSends() (n int) {
	for i := range s.lanes {
		n += s.lanes[i].sending.len()
	}
	return n
}

// Receive is a receive, or a probe, on its way. The caller keeps it until Met.
type Receive struct {
	Context    uint32
	Source     int    // a rank of the job, or AnySource
	Tag        int    // or AnyTag
	Members    []int  // those of the communicator, which AnySource means; nil: all ranks of the job
	Collective bool   // the death of any member ends it
	Buf        []byte // where the message goes; must not move or be used until Met
	Probe      bool   // look at the message and leave it

	// What has been received; valid once it is met without an error, or truncated.
	From, Got, Length int // sender, tag, and bytes sent

	phase   receivePhase
	session *Session // of a receive from one rank: watched until there is a message
	pull    Request  // of a message that was offered
	access  *Access  // to it
	err     *mpierr.Error
}

type receivePhase uint8

const (
	receiveIdle receivePhase = iota
	receivePosted
	receivePulling // the message is chosen, and on its way
	receiveDone
)

// Met reports whether the receive is over.
func (r *Receive) Met() bool { return r.phase == receiveDone }

// Err returns why the receive failed, or nil.
func (r *Receive) Err() error {
	if r.err == nil {
		return nil
	}
	return r.err
}

// wants reports whether messages of a rank may match r.
func (r *Receive) wants(from int) bool {
	return r.Source == from || r.Source == AnySource && isMember(r.Members, from)
}

func isMember(members []int, rank int) bool { return members == nil || slices.Contains(members, rank) }

// needs reports whether the death of a rank ends r.
func (r *Receive) needs(rank int) bool {
	return r.wants(rank) || r.Collective && isMember(r.Members, rank)
}

func (r *Receive) matches(a *arrival) bool {
	return r.Context == a.context && (r.Tag == a.tag || r.Tag == AnyTag && a.tag <= MaxTag) && r.wants(a.from)
}

// arrival is a message that has arrived, or been offered, and that no receive has
// matched yet.
type arrival struct {
	context uint32
	tag     int
	from    int
	length  int      // bytes of the message
	cost    int      // of the sender's credit
	data    []byte   // what has come of a message that was sent
	session *Session // of the sender; nil: this rank
	offer   uint32   // how the sender names a message that it has offered; 0: it was sent
	own     *Sending // set where this rank has offered it to itself
}

// matching holds receives without a message in the order posted, and messages
// without a receive in the order of their arrival. No receive matches a message of
// the other list. Messages of one sender arrive in the order sent.
type matching struct {
	posted   line[Receive]
	arrivals line[arrival]
	free     []*arrival
	pulls    []*Access // to offers, for the next ones
	bytes    int       // cost of the arrivals
	ownBytes int       // of them, those of this rank itself
	anyone   int       // posted receives from AnySource

	starved bool  // senders wait for credit that the limit did not allow
	probed  bool  // somebody has looked for messages since the last sweep
	sweepAt int64 // when those that may send are to be watched; 0: nobody waits for any source
}

// keptArrivals is how many arrivals, and accesses to offers, are kept for the next ones.
const keptArrivals = 64

// find returns the oldest arrival that matches r, or -1.
func (m *matching) find(r *Receive) int {
	return slices.IndexFunc(m.arrivals.all(), r.matches)
}

// keep adds a to the arrivals, with a copy of its data.
func (m *matching) keep(a *arrival) {
	var k *arrival
	if n := len(m.free); n > 0 {
		k = m.free[n-1]
		m.free = m.free[:n-1]
	} else {
		k = &arrival{}
	}
	memory := append(k.data[:0], a.data...)
	*k = *a
	k.data = memory
	if k.coming() {
		k.session.rest.kept = k
	}
	m.arrivals.join(k)
	m.bytes += a.cost
	if a.session == nil {
		m.ownBytes += a.cost
	}
}

// remove takes arrival i out. It is valid until the next keep.
func (m *matching) remove(i int) *arrival {
	a := m.arrivals.leave(i)
	if a.coming() {
		a.session.rest.kept = nil
	}
	m.bytes -= a.cost
	if a.session == nil {
		m.ownBytes -= a.cost
	}
	if len(m.free) < keptArrivals {
		m.free = append(m.free, a)
	}
	return a
}

// deliver gives the message a to those that wait for one: every probe that it
// matches, and the first receive, which it returns; nil if there is none. hungry
// says that a receive goes on waiting which a later message of the sender may match.
func (e *Engine) deliver(a *arrival) (match *Receive, hungry bool) {
	m := &e.match
	for i := 0; i < m.posted.len(); {
		r := m.posted.at(i)
		if !r.matches(a) {
			hungry = hungry || laneOf(r.Tag) == laneOf(a.tag) && r.wants(a.from)
			i++
			continue
		}
		e.removePosted(i)
		if !r.Probe {
			return r, hungry
		}
		r.found(a)
		r.end(nil)
	}
	return nil, hungry
}

// found says which message r has.
func (r *Receive) found(a *arrival) { r.From, r.Got, r.Length = a.from, a.tag, a.length }

func (r *Receive) end(err *mpierr.Error) {
	r.phase = receiveDone
	if err != nil {
		r.err = err
	}
}

// addPosted adds r to the receives that wait.
func (e *Engine) addPosted(r *Receive) {
	m := &e.match
	r.phase = receivePosted
	m.posted.join(r)
	if r.needsMany() {
		m.anyone++
		e.sweepSoon()
	}
	if r.Source == AnySource {
		return
	}
	if r.session = e.Session(r.Source); r.session != nil {
		r.session.Watch(1)
		r.session.Await()
	}
}

func (r *Receive) needsMany() bool { return r.Source == AnySource || r.Collective }

// removePosted takes out posted receive i.
func (e *Engine) removePosted(i int) {
	m := &e.match
	r := m.posted.leave(i)
	if r.needsMany() {
		m.anyone--
	}
	if r.session != nil {
		r.session.Watch(-1)
	}
}

// endPosted ends the posted receives that why gives an error for.
func (e *Engine) endPosted(why func(*Receive) *mpierr.Error) {
	for i := 0; i < e.match.posted.len(); {
		r := e.match.posted.at(i)
		err := why(r)
		if err == nil {
			i++
			continue
		}
		e.removePosted(i)
		r.end(err)
	}
}

// sweepSoon has all ranks watched if receives from any of them go on for long.
// Most do not, and a look at all sessions for each would cost too much.
func (e *Engine) sweepSoon() {
	if m := &e.match; m.sweepAt == 0 {
		m.sweepAt = e.Now + e.cfg.DeadAfter/4
	}
	e.WakeBy(e.match.sweepAt)
}

// sweep watches all ranks, or none, until the next one.
func (e *Engine) sweep() {
	m := &e.match
	if m.sweepAt == 0 {
		return
	}
	if e.Now >= m.sweepAt {
		m.sweepAt = 0
		interest := m.anyone > 0 || m.probed || e.sendsForMany()
		m.probed = false
		for rank := range e.cfg.Size {
			s := e.Session(rank)
			if s == nil || s.Dead() {
				continue
			}
			if s.swept = interest && s.Left() == nil; s.swept {
				s.Await()
			}
		}
		if !interest {
			return
		}
		m.sweepAt = e.Now + e.cfg.DeadAfter/4
	}
	e.WakeBy(m.sweepAt)
}

// noSender returns why no message can come any more that r would match, or nil:
// the sender is dead, or has left. Of any source, no member may be dead, since the
// message may have been its; and some other member must be there. In a collective, which
// a dead member cannot take part in, others may have given up where this rank does not
// see it.
func (e *Engine) noSender(r *Receive) *mpierr.Error {
	if r.Source != AnySource {
		switch s := e.Session(r.Source); {
		case s != nil && s.Left() != nil:
			return s.Left()
		case s != nil && s.Failure() != nil:
			return s.Failure()
		case !r.Collective:
			return nil
		}
	}
	if r.Collective {
		return e.Culprit(r.Members)
	}
	err, left := e.LostMember(r.Members)
	if err == nil {
		return left
	}
	return err
}
