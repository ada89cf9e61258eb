package engine

import (
	"errors"

	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/reliable"
	"github.com/xdprma/xdprma/internal/wire"
)

type sessionState uint8

const (
	dialing sessionState = iota // hello sent, the peer's id is not known
	open
	dead // forever: only another incarnation of the peer gets a new session
)

// Session is everything that one rank keeps about another. It holds no memory in
// proportion to the window or the span: what is in flight lives in the slots.
type Session struct {
	rank      int
	path      PathID
	state     sessionState
	bye       bool // the peer will issue nothing more
	isActive  bool
	isDirty   bool
	isLate    bool
	leaving   bool   // the peer is still to be told that this rank leaves
	localID   uint64 // in frames to this rank
	remoteID  uint64 // in frames to the peer
	peer      uint64 // the peer's incarnation, 0 while unknown
	err       *mpierr.Error
	access    map[uint32]*Access // this rank's accesses at the peer, by window
	types     *givenTypes        // datatypes defined at the peer, or nil
	lockOpen  *Access            // whose lock record started the open bundle of requests, or nil
	told      int                // revocations passed on to the peer
	toldGone  int                // ranks that are gone, of which it was told
	marks     []*Access          // those whose completions the peer is to be told of, in checking mode
	deferring []*Access          // those that keep calls back
	posting   []*Access          // those whose posts the peer is to be told of

	// Messages between the two ranks.
	lanes [numLanes]lane
	rest  rest   // of the peer's last message
	news  []news // of offers, which the peer is to be told
	swept bool   // somebody waits for a message of any rank

	// Sending.
	maxPayload int   // of frames: what the path is known to carry
	reach      reach // and what it may
	credits    int32
	nextPacket uint64
	nextSeq    [numClasses]uint64
	acked      [numClasses]uint64 // every bundle below it has been applied by the peer
	open       [numClasses]int32
	queue      [numClasses]slotList // complete, never sent
	again      [numClasses]slotList // found lost
	inFlight   [numClasses]int32
	held       [numClasses]int32 // slots in any state
	flight     slotList          // both classes, oldest packet first
	order      uint32            // of the last ordered bundle closed
	promptSeq  uint64            // last request sent with FlagAckNow
	ackLargest uint64            // largest packet that the peer is known to have
	cutPacket  uint64            // losses of packets up to here have been reacted to
	congestion reliable.Congestion
	rtt        reliable.RTT
	resendAt   int64                // 0: nothing in flight
	againAt    int64                // when what was found lost may be sent again; 0: nothing waits
	oldest     [numClasses]struct { // the oldest bundle that the peer lacks, if it was lost several times
		seq   uint64
		since int64
	}
	overdue bool // it has not arrived for too long
	probed  bool // the timer has expired since the last acknowledgement

	// Receiving.
	recv      [numClasses]reliable.Receiver
	packets   reliable.Packets
	orderSeen uint32      // last ordered bundle applied
	peerTypes *takenTypes // datatypes that the peer has defined here, or nil
	joining   []joining   // bundles that come in pieces
	unacked   int32
	ackNow    bool
	ackAt     int64 // 0: nothing to acknowledge

	// Refusals of requests that no answer was due for, so that a flush knows
	// whether it has heard of all of them.
	refusalsSent uint32
	refusalsSeen uint32
	refusalsTold uint32

	// Life.
	heard   int64          // when the peer was last heard
	waiting int64          // since when the peer owes an answer; 0: it owes none
	expired int32          // timeouts since the peer was last heard
	pending int32          // operations that await an answer
	watch   int32          // waiters that need to know if the peer dies
	reached bool           // its memory was accessed without asking it, since it was last asked for a sign of life
	blocks  bool           // the peer may hold a lock that somebody waits for
	parked  [numRows]int32 // its bundles that wait here, for others of its bundles or for room
	pingAt  int64
	resetAt int64
}

// Err returns why the session is dead, or nil.
func (s *Session) Err() error {
	if s.err == nil {
		return nil
	}
	return s.err
}

var (
	errSilent    = errors.New("not heard of within the limit")
	errUnheard   = errors.New("it has not acknowledged within the limit what it was sent")
	errReset     = errors.New("it has declared this process dead, or has restarted")
	errRestarted = errors.New("it has restarted")
	errLeft      = errors.New("it has left the job")
	errUnmet     = errors.New("this process leaves the job and has not met it")
	errRefused   = errors.New("refused by the target")
)

// refusals says what a target has most likely refused for, which the class alone goes
// back to tell.
var refusals = map[mpierr.Class]error{
	mpierr.RMARange: errors.New("refused by the target: it has no memory attached there"),
	mpierr.Disp:     errors.New("refused by the target: the address there is not aligned to the elements"),
	mpierr.Win:      errors.New("refused by the target: it has freed the window"),
	mpierr.Group:    errors.New("refused by the target: this rank is not in the window's group"),
}

// Session returns the session with rank, or nil if there is none yet.
func (e *Engine) Session(rank int) *Session { return e.byRank[rank] }

// Dial returns the session with incarnation peer of rank, starting the handshake
// over path if there is none. It does not wait: calls on the session are queued
// until it opens, and fail if it does not.
func (e *Engine) Dial(now int64, rank int, path PathID, peer uint64) *Session {
	e.now = now
	s := e.byRank[rank]
	switch {
	case s == nil:
		s = e.newSession(rank, path)
	case s.path == NoPath && s.state == dialing: // Meet has begun it
		s.path = path
	case s.peer >= peer || s.path == NoPath:
		return s
	default:
		e.fail(s, errRestarted)
		e.forget(s)
		s = e.newSession(rank, path)
	}
	s.peer = peer
	s.waiting = now
	s.pingAt = now // the first hello is due at once
	e.markDirty(s)
	e.wakeBy(now)
	return s
}

// Meet returns the session with rank. If there is none yet, it begins one whose way is
// not known: calls on it are queued until Dial knows the way, or the peer dials, and
// fail with Unreachable.
func (e *Engine) Meet(now int64, rank int) (s *Session, begun bool) {
	e.now = now
	if s = e.byRank[rank]; s != nil {
		return s, false
	}
	return e.newSession(rank, NoPath), true
}

// Unreachable ends the session that Meet began with rank: no way to it was found.
func (e *Engine) Unreachable(now int64, rank int, why error) {
	e.now = now
	if s := e.byRank[rank]; s != nil && s.path == NoPath {
		e.fail(s, why)
	}
}

func (e *Engine) newSession(rank int, path PathID) *Session {
	s := &Session{
		rank: rank, path: path, maxPayload: wire.MinPayload, credits: 1,
		nextPacket: 1, nextSeq: [numClasses]uint64{1, 1}, acked: [numClasses]uint64{1, 1},
		open: [numClasses]int32{none, none}, flight: newSlotList(),
		congestion: reliable.NewAIMD(), heard: e.now,
	}
	for i := range s.lanes {
		s.lanes[i] = lane{credit: wire.MessageWindow, granted: wire.MessageWindow}
	}
	for c := range s.queue {
		s.queue[c], s.again[c] = newSlotList(), newSlotList()
	}
	for s.localID == 0 || e.byID[s.localID] != nil {
		s.localID = e.cfg.Rand()
	}
	e.byID[s.localID], e.byRank[rank] = s, s
	e.opened = append(e.opened, s.localID)
	return s
}

// forget removes a dead session that a newer one replaces.
func (e *Engine) forget(s *Session) {
	delete(e.byID, s.localID)
	if at := &e.recent[s.localID%recentSessions]; *at == s {
		*at = nil
	}
	if e.byRank[s.rank] == s {
		delete(e.byRank, s.rank)
	}
	e.closed = append(e.closed, s.localID)
}

// creditsFor is how many bundles of each class a peer may have in flight: an
// equal share of what the device can hold for reading. Half of it is kept back,
// because peers go on with their old share until they hear of a smaller one. A
// silent peer sends nothing, and takes no share.
func (e *Engine) creditsFor() uint32 {
	share := e.cfg.RxFrames / (4 * max(2, len(e.active)-e.silent))
	return uint32(min(max(share, leastCredits), reliable.Span/2))
}

const leastCredits = 4

func (e *Engine) sendHandshake(kind wire.Kind, s *Session, echo uint64) {
	h := wire.Hello{
		Job: e.cfg.Job, Incarnation: e.cfg.Incarnation, Peer: s.peer, Session: s.localID,
		Rank: uint32(e.cfg.Rank), Target: uint32(s.rank),
		MaxPayload: uint32(e.cfg.Slab.MaxPayload), Credits: e.creditsFor(), Echo: echo,
	}
	var body [wire.HelloLen]byte
	h.Encode(body[:])
	to := uint64(0)
	if kind == wire.KindHelloAck {
		to = echo
	}
	e.sendControl(kind, to, s.path, body[:])
}

// sendControl sends a frame that is not acknowledged. If no slot is free it is
// dropped: all control frames are repeated when they matter.
func (e *Engine) sendControl(kind wire.Kind, session uint64, path PathID, body []byte) {
	if e.freeSlots == 0 {
		return
	}
	i := e.allocSlot()
	b := e.cfg.Slab.Payload(i)[:wire.HeaderLen+len(body)]
	copy(b[wire.HeaderLen:], body)
	h := wire.Header{Kind: kind, Session: session, Credits: e.creditsFor()}
	h.Encode(b)
	e.outputOnce(i, len(b), path)
}

func (e *Engine) outputOnce(i int32, n int, path PathID) {
	e.slots[i].state = slotDone
	e.slots[i].inDevice = true
	e.out = append(e.out, Out{Slot: i, Len: int32(n), Path: path})
}

func (e *Engine) receiveHello(path PathID, body []byte) {
	var h wire.Hello
	rank := 0
	ok := h.Decode(body) && h.Job == e.cfg.Job && h.Target == uint32(e.cfg.Rank) && h.Rank < uint32(e.cfg.Size)
	if ok {
		rank = int(h.Rank)
		ok = rank != e.cfg.Rank
	}
	if !ok || path == NoPath {
		e.Stats.Handshakes++
		return
	}
	if h.Peer != 0 && h.Peer != e.cfg.Incarnation {
		e.Stats.Handshakes++ // it wants an earlier life of this rank
		e.sendControl(wire.KindReset, h.Session, path, nil)
		return
	}
	s := e.byRank[rank]
	switch {
	case s == nil:
		s = e.newSession(rank, path)
	case s.peer != 0 && h.Incarnation < s.peer:
		e.Stats.Handshakes++ // late frame of an earlier life of the peer
		return
	case s.peer != 0 && h.Incarnation > s.peer:
		e.fail(s, errRestarted)
		e.forget(s)
		s = e.newSession(rank, path)
	case s.state == dead:
		e.sendControl(wire.KindReset, h.Session, path, nil)
		return
	case s.remoteID != 0 && s.remoteID != h.Session:
		e.Stats.Handshakes++
		return
	case s.path == NoPath:
		s.path = path
	}
	e.establish(s, &h)
	e.sendHandshake(wire.KindHelloAck, s, h.Session)
}

func (e *Engine) receiveHelloAck(s *Session, body []byte) {
	var h wire.Hello
	if !h.Decode(body) || h.Job != e.cfg.Job || h.Echo != s.localID || int(h.Rank) != s.rank ||
		s.peer != 0 && h.Incarnation != s.peer || s.remoteID != 0 && s.remoteID != h.Session {
		e.Stats.Handshakes++
		return
	}
	e.establish(s, &h)
}

func (e *Engine) establish(s *Session, h *wire.Hello) {
	s.heard = e.now
	s.expired = 0
	if s.state != dialing {
		return
	}
	s.state = open
	s.remoteID, s.peer = h.Session, h.Incarnation
	s.credits = int32(min(h.Credits, reliable.Span/2))
	s.reach.limit = min(int(h.MaxPayload), e.cfg.Slab.MaxPayload)
	e.seekReach(s)
	s.waiting, s.pingAt = 0, 0
	e.markDirty(s)
}

// fail ends a session: every call that waits for the peer gets the
// process-failed class, and the peer's locks are released.
func (e *Engine) fail(s *Session, why error) {
	if s.state == dead {
		return
	}
	s.state = dead
	s.err = &mpierr.Error{Op: "session", Class: mpierr.ProcFailed, Rank: s.rank, Err: why}
	e.Stats.PeersFailed++
	if s.bye && why != errRestarted {
		e.gone.add(s.rank) // it had done its part
	} else {
		e.gone.die(s.err)
	}
	e.freeAll(s)
	e.failOps(s)
	for _, a := range s.access {
		a.fail(s.err)
	}
	e.endMessages(s, s.err)
	e.parked.drop(s)
	e.dropLocks(s)
	e.dropTypes(s)
	s.marks, s.posting = nil, nil
	s.reach, s.joining = reach{}, nil
	s.waiting, s.resendAt, s.againAt, s.ackAt, s.pingAt, s.ackNow = 0, 0, 0, 0, 0, false
}

// giveUp is fail for a peer that is silent, or as good as that. It may be that only its
// own frames are lost: it is told, so that it does not take as long to notice.
func (e *Engine) giveUp(s *Session, why error) {
	e.fail(s, why)
	e.answerDead(s)
}

func (e *Engine) freeAll(s *Session) {
	for c := range s.queue {
		if s.open[c] != none {
			e.freeSlot(s.open[c])
			s.open[c] = none
		}
		e.held[c] -= s.held[c]
		e.freeList(&s.queue[c])
		e.freeList(&s.again[c])
	}
	e.freeList(&s.flight)
	s.inFlight, s.held = [numClasses]int32{}, [numClasses]int32{}
}

func (e *Engine) freeList(l *slotList) {
	for l.head != none {
		i := l.head
		e.remove(l, i)
		e.freeSlot(i)
	}
}

// idle reports whether nothing is outstanding in either direction.
func (s *Session) idle() bool {
	if s.state == dead {
		return true
	}
	return s.state == open && s.held == [numClasses]int32{} && s.ackAt == 0 && !s.ackNow && s.reach.dueAt == 0 &&
		!s.owes()
}

// owes reports whether the peer has something to bring, be it only a sign of life.
func (s *Session) owes() bool {
	return s.flight.n > 0 || s.pending > 0 || s.watch > 0 || s.swept || len(s.deferring) > 0 || s.parked != [numRows]int32{} || s.blocks || s.reached || s.unapplied()
}

// unapplied reports whether a request bundle has been closed or begun and is not
// known to have taken effect. The peer may hold it, received and parked.
func (s *Session) unapplied() bool { return s.acked[request] != s.nextSeq[request] }

// pingAfter is how long a peer that owes an answer may be silent before it is
// asked for one. It is shorter where the answer may be an acknowledgement that
// was lost, which nothing but a question brings again.
func (e *Engine) pingAfter(s *Session) int64 {
	if s.unapplied() && s.pending == 0 {
		return min(reliable.MaxTimeout, e.cfg.DeadAfter/4)
	}
	return e.cfg.DeadAfter / 4
}

// timers does what is due for one session and reports its next deadline.
func (e *Engine) timers(s *Session) {
	if s.state == dead {
		return
	}
	if s.overdue {
		e.giveUp(s, errUnheard)
		return
	}
	if s.ackAt != 0 && e.now >= s.ackAt {
		s.ackNow = true
		e.service(s)
	}
	if s.reach.dueAt != 0 && e.now >= s.reach.dueAt {
		e.service(s)
	}
	if s.againAt != 0 && e.now >= s.againAt {
		s.againAt = 0
		e.service(s)
	}
	if s.resendAt != 0 && e.now >= s.resendAt {
		e.timeout(s)
	}
	e.keepAlive(s)
	if s.state == dead {
		return
	}
	for _, t := range [...]int64{s.ackAt, s.resendAt, s.againAt, s.pingAt, s.reach.dueAt} {
		if t != 0 {
			e.wakeBy(t)
		}
	}
}

// keepAlive asks a peer that owes an answer for a sign of life, and gives it up
// after the limit. Several timeouts must have passed too, so that a pause of
// this process is not taken for the silence of all others.
func (e *Engine) keepAlive(s *Session) {
	if s.path == NoPath { // whoever looks for the way says so when there is none
		return
	}
	s.blocks = s.blocks && len(e.waits) > 0
	if s.state != dialing && !s.owes() {
		s.waiting, s.pingAt = 0, 0
		return
	}
	if s.waiting == 0 {
		s.waiting = e.now
		s.expired = 0
		s.pingAt = e.now + e.pingAfter(s)
	}
	if e.now < s.pingAt {
		return
	}
	if s.expired >= 3 && e.now-max(s.waiting, s.heard) >= e.cfg.DeadAfter {
		e.giveUp(s, errSilent)
		return
	}
	if s.state == dialing {
		s.expired++
		e.sendHandshake(wire.KindHello, s, 0)
		s.rtt.Expired()
		s.pingAt = e.now + s.rtt.Timeout()
		return
	}
	s.pingAt = e.now + e.pingAfter(s)
	s.reached = false
	if s.flight.n == 0 && s.open[request] == none && s.queue[request].n == 0 {
		e.ping(s)
		e.service(s)
	}
}
