// Package message is send and receive between the ranks of a job. A message goes this way:
//
//  1. PostSend sends a short one as soon as there is credit and room, in one record or
//     in several, and offers a long one (out.go).
//  2. The receiver matches it with the oldest receive that wants it, or keeps it until
//     PostReceive (match.go), and grants its sender credit (in.go, rest.go).
//  3. It gets an offered message from the sender's memory, and tells the sender when it
//     has it (in.go).
//
// Messages of a context that was freed go nowhere (freed.go). Memory that goes ends the
// sends and receives that would read or write there (evict.go). Records travel over a
// link. The package knows nothing of windows: it asks the layer above, through Config,
// to get offered messages, and asks which members are gone.
package message

import (
	"github.com/xdprma/xdprma/internal/protocol/engine/line"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/stats"
)

// Config holds what Messages is told at the start.
type Config struct {
	Rank, Size    int   // of this process, and of the job
	DeadAfter     int64 // silence after which a peer that owes an answer is dead
	MaxUnexpected int   // bytes of messages between two ranks without a receive, beyond a small share of each sender's
	Members       Members
	Counts        *Counts
	// Peer returns what is kept about the peer of a session.
	Peer func(*link.Session) *Peer
	// Get begins to get what a peer has offered into the memory of a receive. Got tells
	// the end of it.
	Get func(from *link.Session, offer uint32, into []byte, r *Receive)
}

// Members says who can still send and receive, and in which contexts.
type Members interface {
	// Left returns the error of what needs a peer that has left in good order, or nil.
	Left(s *link.Session) *mpierr.Error
	// Culprit returns why one of the members has failed, or nil.
	Culprit(members []int) *mpierr.Error
	// LostMember returns why one of the members is dead; and if all others have left,
	// that one of these has.
	LostMember(members []int) (err, left *mpierr.Error)
	// Revoked reports whether a context was revoked, and because of which rank.
	Revoked(context uint32) (failed int, ok bool)
	// Outside reports whether a context is known, and a rank not among its group.
	Outside(context uint32, rank int) bool
	// ForgetContext forgets the group of a context that nothing uses any more.
	ForgetContext(context uint32)
}

// Messages is one rank's end of all that it sends and receives.
type Messages struct {
	link      *link.Link
	cfg       Config
	counts    *Counts
	match     matching
	freed     freed
	offers    map[uint32]*Sending // what others may get from this rank, by id
	lastOffer uint32
}

// New returns the messages of one rank over l.
func New(l *link.Link, cfg Config) *Messages {
	return &Messages{link: l, cfg: cfg, counts: cfg.Counts, offers: map[uint32]*Sending{}}
}

// Peer is what is kept about the peer of one session.
type Peer struct {
	*link.Session
	lanes [numLanes]lane
	rest  rest   // of the peer's last message
	news  []news // of offers, which the peer is to be told
	swept bool   // somebody waits for a message of any rank
}

// NewPeer returns what is kept about the peer of s, which begins.
func NewPeer(s *link.Session) Peer {
	p := Peer{Session: s}
	for i := range p.lanes {
		p.lanes[i] = lane{Account: Account{Credit: wire.MessageWindow, Granted: wire.MessageWindow}}
	}
	return p
}

// lane is what a rank keeps about the messages of one kind to and from a peer.
type lane struct {
	Account
	sending line.Line[Sending] // not sent yet, in order
	untold  bool               // the peer does not know yet what it was granted
}

// Account is the credit for the messages of one kind to and from a peer. Costs and credits
// are totals.
type Account struct {
	Spent  uint64 // cost of what was sent
	Credit uint64 // what that may reach

	SpentHere uint64 // cost of what the peer has sent
	PaidHere  uint64 // of it, what needs no room any more
	Granted   uint64 // what the peer may reach
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

// peer is Config.Peer of the session with a rank, or nil if there is none.
func (x *Messages) peer(rank int) *Peer {
	if s := x.link.Session(rank); s != nil {
		return x.cfg.Peer(s)
	}
	return nil
}

// left returns the error of what needs s, if that has left; or nil.
func (x *Messages) left(s *Peer) *mpierr.Error { return x.cfg.Members.Left(s.Session) }

// waiting returns how many messages to s have not been sent.
func (s *Peer) waiting() (n int) {
	for i := range s.lanes {
		n += s.lanes[i].sending.Len()
	}
	return n
}

// Waits reports whether a message waits for s that Ready would send.
func (s *Peer) Waits() bool { return s.waiting() > 0 }

// Owes reports whether somebody waits for a message that s may send, among others.
func (s *Peer) Owes() bool { return s.swept }

// Coming returns how many bytes of the last message of s are still to come.
func (s *Peer) Coming() int { return s.rest.missing }

// AtRest reports whether nothing is to come of the last message of s, and s is to be told
// of no offer.
func (s *Peer) AtRest() bool { return s.rest == rest{} && !s.HasNews() }

// Accounts returns the credit for the messages of each kind.
func (s *Peer) Accounts() (all [numLanes]Account) {
	for i := range s.lanes {
		all[i] = s.lanes[i].Account
	}
	return all
}

// HasNews reports whether s is still to be told of offers.
func (s *Peer) HasNews() bool { return len(s.news) > 0 }

// Ready sends the messages to s that wait, as far as there is credit and room, and tells
// it what has become of offers, and its credit.
func (x *Messages) Ready(s *Peer) {
	for i := range s.lanes {
		x.issueLane(s, &s.lanes[i])
	}
	x.TellNews(s)
}

// UpToDate reports whether Ready has nothing to send to s.
func (s *Peer) UpToDate() bool {
	return !s.HasNews() && !s.lanes[laneCollective].waits() && !s.lanes[laneUser].waits()
}

// waits reports whether something waits to be sent.
func (l *lane) waits() bool { return l.untold || !l.sending.Empty() }

// Counts counts what Messages did and what it refused. All are totals.
type Counts = stats.Messages

// Usage says what Messages holds at this moment.
type Usage struct {
	Unexpected int // bytes of messages between two ranks that no receive has matched
	Receives   int // receives and probes without a message
	Sends      int // messages that their receivers do not have
}

// Usage returns what x holds.
func (x *Messages) Usage() Usage {
	u := Usage{Unexpected: x.match.bytes, Receives: x.match.posted.Len(), Sends: len(x.offers)}
	for rank := range x.cfg.Size {
		if s := x.peer(rank); s != nil {
			u.Sends += s.waiting()
		}
	}
	return u
}
