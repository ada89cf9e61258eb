package message

import (
	"slices"

	"github.com/xdprma/xdprma/internal/protocol/engine/line"
	"github.com/xdprma/xdprma/mpierr"
)

// AnySource and AnyTag are the wildcards of a Receive.
const (
	AnySource = -1
	AnyTag    = -31
)

// MaxTag is the largest tag that AnyTag stands for. Larger tags, up to a length of 32
// bits, are for collectives, whose messages have credit of their own.
const MaxTag = 1<<31 - 1

// Receive is a receive, or a probe, on its way. The caller keeps it until Met.
type Receive struct {
	Context    uint32
	Source     int    // a rank of the job, or AnySource
	Tag        int    // or AnyTag
	Members    []int  // those of the communicator, which AnySource means; nil: all ranks of the job
	Collective bool   // the death of any member ends it
	Buffer     []byte // where the message goes; must not move or be used until Met
	Probe      bool   // look at the message and leave it

	// The message that was received; valid once the receive is met without an error, or
	// truncated.
	From, Got, Length int // sender, tag, and bytes sent

	phase   receivePhase
	session *Peer // of a receive from one rank: watched until there is a message
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

// Matched reports whether the receive has a message, which may still be on its way.
func (r *Receive) Matched() bool { return r.phase >= receivePulling }

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
	session *Peer    // of the sender; nil: this rank
	offer   uint32   // how the sender names a message that it has offered; 0: it was sent
	own     *Sending // set where this rank has offered it to itself
}

// matching holds receives without a message in the order posted, and messages
// without a receive in the order of their arrival. No receive matches a message of
// the other list. Messages of one sender arrive in the order sent.
type matching struct {
	posted   line.Line[Receive]
	arrivals line.Line[arrival]
	free     []*arrival
	bytes    int     // cost of the arrivals
	ownBytes int     // of them, those of this rank itself
	anyone   int     // posted receives from AnySource, and calls that wait for any of some ranks otherwise
	expected [][]int // for each of the latter, these ranks

	starved bool  // senders wait for credit that the limit did not allow
	probed  bool  // somebody has looked for messages since the last sweep
	sweepAt int64 // when those that may send are to be watched; 0: nobody waits for any source
}

// keptArrivals is how many arrivals are kept for the next ones.
const keptArrivals = 64

// find returns the oldest arrival that matches r, or -1.
func (m *matching) find(r *Receive) int {
	return slices.IndexFunc(m.arrivals.All(), r.matches)
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
	m.arrivals.Join(k)
	m.bytes += a.cost
	if a.session == nil {
		m.ownBytes += a.cost
	}
}

// remove takes arrival i out. It is valid until the next keep.
func (m *matching) remove(i int) *arrival {
	a := m.arrivals.Leave(i)
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
func (x *Messages) deliver(a *arrival) (match *Receive, hungry bool) {
	m := &x.match
	for i := 0; i < m.posted.Len(); {
		r := m.posted.At(i)
		if !r.matches(a) {
			hungry = hungry || laneOf(r.Tag) == laneOf(a.tag) && r.wants(a.from)
			i++
			continue
		}
		x.removePosted(i)
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
func (x *Messages) addPosted(r *Receive) {
	m := &x.match
	r.phase = receivePosted
	m.posted.Join(r)
	if r.needsMany() {
		m.anyone++
		x.sweepSoon()
	}
	if r.Source == AnySource {
		return
	}
	if r.session = x.peer(r.Source); r.session != nil {
		r.session.Watch(1)
		r.session.Await()
	}
}

func (r *Receive) needsMany() bool { return r.Source == AnySource || r.Collective }

// removePosted takes out posted receive i.
func (x *Messages) removePosted(i int) {
	m := &x.match
	r := m.posted.Leave(i)
	if r.needsMany() {
		m.anyone--
	}
	if r.session != nil {
		r.session.Watch(-1)
	}
}

// endPosted ends the posted receives that why gives an error for.
func (x *Messages) endPosted(why func(*Receive) *mpierr.Error) {
	for i := 0; i < x.match.posted.Len(); {
		r := x.match.posted.At(i)
		err := why(r)
		if err == nil {
			i++
			continue
		}
		x.removePosted(i)
		r.end(err)
	}
}

// sweepSoon has all ranks watched if receives from any of them go on for long.
// Most do not, and a look at all sessions for each would cost too much.
func (x *Messages) sweepSoon() {
	if m := &x.match; m.sweepAt == 0 {
		m.sweepAt = x.link.Now + x.cfg.DeadAfter/4
	}
	x.link.WakeBy(x.match.sweepAt)
}

// Expect says that a call waits for something of any of some ranks, nil standing for all, until Unexpect.
// Their failure is noticed even if there is no session with them yet.
func (x *Messages) Expect(ranks []int) {
	x.match.anyone++
	x.match.expected = append(x.match.expected, ranks)
	x.sweepSoon()
}

// Unexpect ends Expect, which was called with the same ranks.
func (x *Messages) Unexpect(ranks []int) {
	m := &x.match
	m.anyone--
	i := slices.IndexFunc(m.expected, func(other []int) bool { return slices.Equal(other, ranks) })
	m.expected = slices.Delete(m.expected, i, i+1)
}

// greetExpected begins sessions with the ranks that calls wait for and that there are none with.
func (x *Messages) greetExpected() {
	for _, ranks := range x.match.expected {
		for rank := range x.cfg.Size {
			if rank != x.cfg.Rank && (ranks == nil || slices.Contains(ranks, rank)) {
				x.link.Connect(rank)
			}
		}
	}
}

// Sweep watches all ranks, or none, until the next one.
func (x *Messages) Sweep() {
	m := &x.match
	if m.sweepAt == 0 {
		return
	}
	if x.link.Now >= m.sweepAt {
		m.sweepAt = 0
		interest := m.anyone > 0 || m.probed || x.sendsForMany()
		m.probed = false
		x.greetExpected()
		for rank := range x.cfg.Size {
			s := x.peer(rank)
			if s == nil || s.Dead() {
				continue
			}
			if s.swept = interest && x.left(s) == nil; s.swept {
				s.Await()
			}
		}
		if !interest {
			return
		}
		m.sweepAt = x.link.Now + x.cfg.DeadAfter/4
	}
	x.link.WakeBy(m.sweepAt)
}

// noSender returns why no message can come any more that r would match, or nil:
// the sender is dead, or has left. Of any source, no member may be dead, since the
// message may have been its; and some other member must be there. In a collective, which
// a dead member cannot take part in, others may have given up where this rank does not
// see it.
func (x *Messages) noSender(r *Receive) *mpierr.Error {
	if r.Source != AnySource {
		switch s := x.peer(r.Source); {
		case s != nil && x.left(s) != nil:
			return x.left(s)
		case s != nil && s.Failure() != nil:
			return s.Failure()
		case !r.Collective:
			return nil
		}
	}
	if r.Collective {
		return x.cfg.Members.Culprit(r.Members)
	}
	err, left := x.cfg.Members.LostMember(r.Members)
	if err == nil {
		return left
	}
	return err
}
