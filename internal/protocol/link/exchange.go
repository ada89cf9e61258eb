package link

import (
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
	"github.com/xdprma/xdprma/internal/protocol/siphash"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// An exchange is a bundle of requests that its origin waits for, or is likely to, sent as an
// express frame. The target's XDP program executes it and answers. Where the program cannot, the
// frame reaches the target's link, which does it in the program's place or takes the bundle as
// any other. The origin repeats the frame until an answer comes. The target remembers the
// last exchange of each session, so nothing is done twice.
//
// An exchange begins when the peer has applied every bundle of requests before it, and none
// that is later has passed it. Until it ends no other bundle of requests is sent to that
// peer. So what travels in bundles and what travels in exchanges never overtake each other. A
// bundle that was executed has no sequence at the peer: later ones have lower numbers there
// than here.

const (
	// The try that first asks for user space, as each second one does from then on: the second
	// while no answer of the program has come, or else the third.
	userFromUnanswered = 2
	userFromAnswered   = 3

	// After so many lost answers of the program in a row, the origin leaves the tier. Where
	// an answer of the program has come before, it takes more of them: frames that are lost
	// by chance must not look like that.
	doubtUnanswered = 3
	doubtAnswered   = 10

	leastAway = 1000 * millisecond    // that the tier is left for the first time
	mostAway  = leastAway * (1 << 12) // more than an hour

	// With so many bundles in a row that each began when all before was applied, the origin is
	// taken for one that waits for each of its calls, see promptLone.
	loneBefore = 4
)

// exchanging is what an origin keeps about exchanges with a peer.
type exchanging struct {
	limit   int    // longest payload that the peer's tier serves; 0: it has none
	number  uint64 // of the last exchange begun
	skipped uint64 // exchanges that were executed
	bundle  int32  // slot of what is exchanged now, or None
	records int    // of it
	length  int    // of its frame
	results int    // bytes of its answer
	crowded int    // so many more bundles are to begin alone before one is likely to be waited for, see promptLone
	tries   uint64
	firstAt int64
	sentAt  int64
	dueAt   int64 // when it is repeated; 0: nothing is exchanged
	rtt     reliable.RTT

	answered  bool  // an answer of the program has come since the tier was last left
	doubts    int   // exchanges in a row whose answer by the program was lost
	away      int64 // for how long the tier was left last; 0: since then the program has answered
	awayUntil int64
	told      bool // that the tier was left
}

// tryExchange sends the first bundle of requests that is queued for s as an exchange, if
// it may.
func (l *Link) tryExchange(s *Session) {
	x := &s.exchange
	if s.queue[Request].n != 1 || s.inFlight[Request]+s.again[Request].n != 0 || s.open[Request] != None || l.Now < x.awayUntil {
		return
	}
	i := s.queue[Request].head
	p := &l.slots[i]
	if p.flags&wire.FlagAckNow == 0 && !p.prompt || p.seq != s.acked[Request] || s.sentSeq[Request] > p.seq || int(p.length) > x.limit {
		return
	}
	payload := l.cfg.Slab.Payload(i)
	n, results := l.cfg.Upper.Express(s, payload[wire.HeaderLen:p.length])
	length := express.PayloadLen(int(p.length)-wire.HeaderLen, results)
	if n == 0 || n > express.MaxRecords || length > x.limit {
		return
	}
	clear(payload[p.length:length]) // the target's program can shorten a frame, and no more
	l.remove(&s.queue[Request], i)
	x.number++
	x.bundle, x.records, x.length, x.results = i, n, length, results
	x.tries, x.firstAt = 0, l.Now
	if !x.rtt.Sampled() {
		x.rtt = s.rtt // or an answer that never comes would be waited for as on an unknown path
	}
	p.state = slotExchanged
	s.sentSeq[Request] = p.seq + 1
	s.promptSeq = max(s.promptSeq, p.seq)
	l.stats.Exchanges++
	l.sendExchange(s)
	x.dueAt = l.Now + x.rtt.Probe()
	l.WakeBy(x.dueAt)
	s.listen()
	s.markActive()
}

// promptLone lets the open bundle of requests be an exchange although nobody waits for it yet. A
// caller that loses its processor between a call and the wait for it finds that the background
// goroutine has sent the call. As a bundle it would wait for the target's process. But in a stream
// the calls behind it would wait for the exchange, so it is none where bundles lately began
// before others were applied.
func (s *Session) promptLone() {
	if i := s.open[Request]; i != None && s.exchange.crowded == 0 {
		s.link.Prompt(i)
	}
}

// sendExchange sends the frame of the exchange with s. Each second one goes round the peer's
// program, which may be unable to answer.
func (l *Link) sendExchange(s *Session) {
	x := &s.exchange
	p := &l.slots[x.bundle]
	x.tries++
	x.sentAt = l.Now
	h := express.Header{
		Session: s.remoteID, Exchange: x.number, Try: x.tries, Records: x.records,
		Ordered: p.flags&wire.FlagOrdered != 0,
	}
	if x.byUser(x.tries) {
		h.Flags = wire.FlagUser
	}
	var key *siphash.Key
	if s.codes != nil {
		key = (*siphash.Key)(&s.codes.Requests.Sent)
	}
	express.Request(l.cfg.Slab.Payload(x.bundle)[:x.length], h, key)
	p.inDevice = true
	l.out = append(l.out, Out{Slot: x.bundle, Len: int32(x.length), Path: s.path})
}

// byUser reports whether a try asks the peer's user space.
func (x *exchanging) byUser(try uint64) bool {
	from := uint64(userFromUnanswered)
	if x.answered {
		from = userFromAnswered
	}
	return try >= from && (try-from)%2 == 0
}

// AnswersLost reports whether the tier of the peer was left because answers of its program got
// lost, and the program has not answered since.
func (s *Session) AnswersLost() bool { return s.exchange.away != 0 }

// repeatExchange sends the frame of the exchange with s again, which is due. The first
// repetition is early, and says nothing yet of the peer.
func (l *Link) repeatExchange(s *Session) {
	x := &s.exchange
	defer func() { x.dueAt = l.Now + x.rtt.Timeout() }()
	if l.slots[x.bundle].inDevice {
		return
	}
	if x.tries > 1 {
		s.liveness.Expired()
		x.rtt.Expired()
	}
	// As with a bundle that does not arrive: the peer lives, and does not answer.
	if x.tries >= 4 && x.sentAt-x.firstAt >= l.cfg.DeadAfter && s.liveness.HeardAfter(x.firstAt) {
		s.overdue = l.slots[x.bundle].length
		l.WakeBy(l.Now)
		return
	}
	l.stats.Repeated++
	l.sendExchange(s)
}

// receiveAnswer takes in an express frame that answers. If the peer's program sent it, it
// is a sign of life of the kernel there and of nothing else.
func (l *Link) receiveAnswer(s *Session, h *express.Header, body []byte) {
	x := &s.exchange
	if x.bundle == None || h.Exchange != x.number {
		l.stats.LateAnswers++
		return
	}
	executed := h.Fate != express.FateTaken
	if h.Try == 0 || h.Try > x.tries || executed && len(body) != x.results || !executed && len(body) != 0 {
		l.stats.Faults[wire.BadFrame]++
		return
	}
	if h.Try == x.tries {
		x.rtt.Sample(l.Now - x.sentAt)
	}
	if h.User {
		s.liveness.Heard(l.Now)
	}
	if !executed {
		l.exchangeTaken(s)
		return
	}
	l.doubt(s, h)
	p := &l.slots[x.bundle]
	i := x.bundle
	x.bundle, x.dueAt = None, 0
	s.overdue = 0
	x.skipped++
	s.acked[Request] = p.seq + 1
	s.liveness.Moved()
	l.stats.Executed++
	l.cfg.Upper.Executed(s, l.cfg.Slab.Payload(i)[wire.HeaderLen:p.length], body, h.Fate)
	l.discard(s, i)
	if !s.owes() {
		s.liveness.Settle()
	}
	if s.queue[Request].n > 0 || l.cfg.Upper.Waits(s) {
		s.MarkDirty()
	}
}

// exchangeTaken ends an exchange that the peer has taken as a bundle: as any other, it is
// the peer's to apply from now on.
func (l *Link) exchangeTaken(s *Session) {
	x := &s.exchange
	if l.slots[x.bundle].flags&wire.FlagOrdered != 0 {
		s.order++
	}
	l.discard(s, x.bundle)
	x.bundle, x.dueAt = None, 0
	s.overdue = 0
	l.stats.Taken++
	s.MarkDirty()
}

// doubt takes in how the exchange was answered. It leaves the tier of a peer whose program
// executes exchanges and whose answers get lost: they would all wait for user space. It is
// left for longer each time, until the program answers. Where user space has answered a try that the
// program handed on, since somebody waits there, nothing is known of the program's answers.
func (l *Link) doubt(s *Session, h *express.Header) {
	x := &s.exchange
	if !h.User {
		x.answered, x.doubts, x.away = true, 0, 0
		return
	}
	if !x.byUser(h.Try) {
		return
	}
	if x.doubts++; x.doubts < doubtUnanswered || x.answered && x.doubts < doubtAnswered {
		return
	}
	x.away = min(max(2*x.away, leastAway), mostAway)
	x.answered, x.doubts, x.awayUntil = false, 0, l.Now+x.away
	l.stats.AnswersLost++
	if !x.told && l.cfg.AnswersLost != nil {
		x.told = true
		l.cfg.AnswersLost(s.rank)
	}
}
