package link

import (
	"errors"

	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/mpierr"
)

type sessionState uint8

const (
	dialing sessionState = iota // hello sent, the peer's id is not known
	open
	dead // forever: only another incarnation of the peer gets a new session
)

// Session is the link's side of everything that one rank keeps about another. It holds no
// memory in proportion to what the ranks expose: what is in flight lives in the slots.
type Session struct {
	// Upper is what the layer above keeps about the peer. It is set by its Begin.
	Upper any
	// Told counts what the layer above counts on both sides of the link: the header of
	// each frame carries Sent, and Heard is the most that the peer's frames have carried.
	Told struct{ Sent, Heard uint32 }

	link *Link
	identity
	outgoing
	incoming
	pace     pace
	exchange express.Origin
	serving  serving
	fate
	debts
	liveness  reliable.Liveness
	suspicion suspicion
	renewing  renewing
	times     [numTimelines]onTimeline
}

// identity says who the peer is, and which way leads to it.
type identity struct {
	rank     int
	path     PathID
	localID  uint64              // in frames to this rank
	remoteID uint64              // in frames to the peer
	peer     uint64              // the peer's incarnation, 0 while unknown
	greeting *greeting           // until the session opens; nil in a job without a key
	guard    *secure.Guard       // protects frames; nil: checksums do
	codes    *secure.ExpressKeys // likewise express frames
}

// outgoing is what is on its way to the peer. Of each class there is its own.
type outgoing struct {
	maxPayload int        // of frames: what the path is known to carry
	length     pathLength // and what it may
	credits    int32
	ways       [numWays]track
	runs       runs
	leaving    slotList // sent for the first time by the next call of Output, which chooses the way
	departing  int      // bytes of them
	longer     int32    // how many of them are not small
	nextSeq    [NumClasses]uint64
	sentSeq    [NumClasses]uint64 // no bundle from it on has been sent, or executed
	acked      [NumClasses]uint64 // every bundle below it has been applied by the peer
	open       [NumClasses]int32
	sealed     bool                 // the open bundle of requests takes nothing that Room is asked for
	queue      [NumClasses]slotList // complete, never sent
	again      [NumClasses]slotList // found lost
	inFlight   [NumClasses]int32
	extra      [NumClasses]int32 // of them, those beyond the window
	held       [NumClasses]int32 // slots in any state
	order      uint32            // of the last ordered bundle closed
	promptSeq  uint64            // last request sent with FlagAckNow
	congestion reliable.Congestion
	rtt        reliable.RTT
	againAt    int64                // when what was found lost may be sent again; 0: nothing waits
	oldest     [NumClasses]struct { // the oldest bundle that the peer lacks, if it was lost several times
		seq   uint64
		since int64
	}
	overdue int32 // bytes of the longest frame of what has not arrived for too long; 0: there is none
	isDirty bool
	isLate  bool
}

// incoming is what has come from the peer.
type incoming struct {
	recv      [NumClasses]reliable.Receiver
	acks      acks
	answering uint64         // the bundle of responses that came last
	orderSeen uint32         // last ordered bundle applied
	joining   []joining      // bundles that come in pieces
	parked    [numRows]int32 // bundles that wait here, for others or for room
}

// track is what is on its way to the peer by one of the ways. Frames of one way overtake
// those of the other, so each numbers its packets by itself.
type track struct {
	nextPacket uint64
	ackLargest uint64   // largest packet that the peer is known to have
	cutPacket  uint64   // losses of packets up to here have been reacted to
	flight     slotList // both classes, oldest packet first
	resendAt   int64    // 0: nothing in flight
	probed     bool     // the timer has expired since the last acknowledgement
}

// acks is what there is to acknowledge.
type acks struct {
	came [numWays]struct {
		packets reliable.PacketNumbers
		unacked int32 // since the last acknowledgement
	}
	now bool
	at  int64 // 0: nothing to acknowledge
}

// fate is how the session stands, and why it ends.
type fate struct {
	state    sessionState
	call     calling
	unfound  bool // dead because nobody could say where the peer is
	err      *mpierr.Error
	fault    error // why the next Tick gives it up; nil: it does not
	isActive bool
	resetAt  int64
}

// Rank returns the peer's rank.
func (s *Session) Rank() int { return s.rank }

// Life returns the peer's incarnation, 0 while that is unknown.
func (s *Session) Life() uint64 { return s.peer }

// ID returns the random number that names the session in frames to this rank.
func (s *Session) ID() uint64 { return s.localID }

// PeerID returns what ID is at the peer, 0 while that is unknown.
func (s *Session) PeerID() uint64 { return s.remoteID }

// HasPath reports whether the way to the peer is known.
func (s *Session) HasPath() bool { return s.path != NoPath }

// Dialing reports whether the peer has not answered yet.
func (s *Session) Dialing() bool { return s.state == dialing }

// Open reports whether the session is open.
func (s *Session) Open() bool { return s.state == open }

// Dead reports whether the session has ended.
func (s *Session) Dead() bool { return s.state == dead }

// Unfound reports whether the session is dead because nobody could say where the peer is.
func (s *Session) Unfound() bool { return s.unfound }

// Awaited reports whether somebody waits for the peer.
func (s *Session) Awaited() bool { return s.Watched() > 0 || s.Holds() || s.link.cfg.Upper.Waits(s) }

// Failure returns why the session is dead, or nil.
func (s *Session) Failure() *mpierr.Error { return s.err }

// Err is Failure as an error.
func (s *Session) Err() error {
	if s.err == nil {
		return nil
	}
	return s.err
}

// Why a session ends.
var (
	errSilent    = errors.New("not heard of within the limit")
	errUnheard   = errors.New("it has not acknowledged what it was sent")
	errStuck     = errors.New("it lives, and has applied nothing within twice the limit of what it was sent")
	errWorn      = errors.New("so many frames with wrong tags came in its name that its keys are worn out: somebody forges frames, or much is damaged on the way")
	ErrReset     = errors.New("it has declared this process dead, or has restarted")
	ErrRestarted = errors.New("it has restarted")
)

// Session returns the session with rank, or nil if there is none yet.
func (l *Link) Session(rank int) *Session { return l.byRank[rank] }

// Dial returns the session with incarnation peer of rank, starting the handshake
// over path if there is none. It does not wait: calls on the session are queued
// until it opens, and fail if it does not.
func (l *Link) Dial(rank int, path PathID, peer uint64) *Session {
	s := l.byRank[rank]
	switch {
	case s == nil:
		s = l.newSession(rank, path)
	case s.path == NoPath && s.state == dialing: // Connect has begun it
		s.path = path
	case s.peer >= peer || s.path == NoPath:
		return s
	default:
		s.Fail(ErrRestarted)
		l.makeWay(s)
		s = l.newSession(rank, path)
	}
	s.peer = peer
	l.call(s)
	return s
}

// Connect returns the session with rank. If there is none yet, it begins one whose way is
// not known, and has Config.Seek look for it. Calls on the session are queued until Dial
// knows the way, or the peer dials, and fail with Unreachable.
func (l *Link) Connect(rank int) *Session {
	s := l.byRank[rank]
	if s == nil {
		s = l.newSession(rank, NoPath)
		l.cfg.Seek(rank)
	}
	return s
}

// Unreachable ends the session that Connect began with rank: no way to it was found.
func (l *Link) Unreachable(rank int, why error) {
	if s := l.byRank[rank]; s != nil && s.path == NoPath {
		s.Fail(why)
	}
}

// NotFound ends the session that Connect began with rank, and forgets it: nobody can say where
// the rank is. Calls that wait for it fail with why, which says nothing of whether it lives.
// The next Connect looks again. A rank whose hello was answered has been found: it may have opened
// the session at its end.
func (l *Link) NotFound(rank int, why error) {
	s := l.byRank[rank]
	if s == nil || s.path != NoPath || s.state != dialing {
		return
	}
	if a := l.answers[rank]; a != nil {
		l.Dial(rank, a.path, a.life)
		return
	}
	s.unfound = true
	s.Fail(why)
	l.stats.PeersFailed--
	l.makeWay(s)
}

func (l *Link) newSession(rank int, path PathID) *Session {
	s := l.cfg.Upper.Begin()
	s.link = l
	s.identity = identity{rank: rank, path: path}
	s.outgoing = outgoing{
		maxPayload: l.minPayload, credits: 1,
		nextSeq: [NumClasses]uint64{1, 1}, sentSeq: [NumClasses]uint64{1, 1}, acked: [NumClasses]uint64{1, 1},
		open: [NumClasses]int32{None, None}, leaving: newSlotList(), congestion: l.cfg.Congestion(),
	}
	for w := range s.ways {
		s.ways[w] = track{nextPacket: 1, flight: newSlotList()}
	}
	s.liveness.Heard(l.Now)
	l.name(s)
	for c := range s.queue {
		s.queue[c], s.again[c] = newSlotList(), newSlotList()
	}
	if l.answers[rank] == nil { // else the device knows it already
		l.opened = append(l.opened, Opened{s.localID, s.place()})
	}
	l.byID[s.localID], l.byRank[rank] = s, s
	return s
}

// newID returns a session id that is not in use.
func (l *Link) newID() (id uint64) {
	for id == 0 || l.byID[id] != nil || l.waiting[id] != nil || l.served.isQuiescing(id) {
		id = l.cfg.Rand()
	}
	return id
}

// makeWay removes a dead session that a newer one replaces.
func (l *Link) makeWay(s *Session) {
	delete(l.byID, s.localID)
	if at := &l.recent[s.localID%recentSessions]; *at == s {
		*at = nil
	}
	if l.byRank[s.rank] == s {
		delete(l.byRank, s.rank)
	}
	l.closed = append(l.closed, s.localID)
	l.takeOff(expiry, s)
	forgetKeys(s.guard, s.codes)
	s.guard, s.codes = nil, nil
}

// reshare works out credits again, when it may have changed.
func (l *Link) reshare() {
	share := l.cfg.RxFrames / (4 * max(2, len(l.active)-l.silent))
	l.credits = uint32(min(max(share, leastCredits), reliable.Span/2))
}

const leastCredits = 4

// Fail ends a session: every call that waits for the peer gets the process-failed class.
func (s *Session) Fail(why error) {
	if s.state == dead {
		return
	}
	l := s.link
	s.state = dead
	s.greeting.over()
	l.endTurn(s)
	s.err = &mpierr.Error{Op: "session", Class: mpierr.ProcFailed, Rank: s.rank, Err: why}
	if s.unfound && errors.Is(why, mpierr.NoMem) { // here, and not the peer's
		s.err.Class = mpierr.NoMem
	}
	l.stats.PeersFailed++
	if a := l.answers[s.rank]; a != nil && a.localID == s.localID {
		l.withdraw(a)
	}
	if x := s.suspicion; x.since != 0 {
		s.suspicion = suspicion{}
		l.asked(s.rank, x.life, false)
	}
	l.freeAll(s)
	l.parked.drop(s)
	l.cfg.Upper.Failed(s)
	s.length, s.joining = pathLength{}, nil
	s.exchange = express.Origin{}
	l.closePlace(s)
	s.liveness.Settle()
	s.againAt, s.renewing.askAt = 0, 0
	l.takeOff(renewal, s)
	s.acks.now, s.acks.at, s.runs = false, 0, runs{}
	for w := range s.ways {
		s.ways[w].resendAt = 0
	}
}

// GiveUp is Fail for a peer that may live, such as one that is silent: it may be that only
// its own frames are lost. It is told, so that it does not take as long to notice.
func (s *Session) GiveUp(why error) {
	s.Fail(why)
	s.link.answerDead(s)
}

func (l *Link) freeAll(s *Session) {
	for c := range s.queue {
		if s.open[c] != None {
			l.freeSlot(s.open[c])
			s.open[c] = None
		}
		l.held[c] -= s.held[c]
		l.freeList(&s.queue[c])
		l.freeList(&s.again[c])
	}
	l.freeList(&s.leaving)
	for w := range s.ways {
		l.freeList(&s.ways[w].flight)
	}
	if s.exchange.Running() {
		l.freeSlot(s.exchange.Current().Slot)
	}
	s.inFlight, s.extra, s.held = [NumClasses]int32{}, [NumClasses]int32{}, [NumClasses]int32{}
}

func (l *Link) freeList(list *slotList) {
	for list.head != None {
		i := list.head
		l.remove(list, i)
		l.freeSlot(i)
	}
}
