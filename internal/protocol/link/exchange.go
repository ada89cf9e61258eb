package link

import (
	"github.com/xdprma/xdprma/internal/protocol/link/express"
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

// With so many bundles in a row that each began when all before was applied, the origin is
// taken for one that waits for each of its calls.
const loneBefore = 4

// pace is how bundles of requests to a peer follow each other.
type pace struct {
	crowded int // so many more are to begin alone before one is likely to be waited for
}

// begins takes in that a bundle begins, and whether the peer has applied all before it.
func (p *pace) begins(alone bool) {
	if !alone {
		p.crowded = loneBefore
	} else if p.crowded > 0 {
		p.crowded--
	}
}

// tryExchange sends a closed bundle of requests to s as an exchange, if it may. All before it were applied
// then, so no other one runs, and none is queued before it. If it is queued itself, the caller takes it out.
func (l *Link) tryExchange(s *Session, i int32) bool {
	x := &s.exchange
	p := &l.slots[i]
	if p.flags&wire.FlagAckNow == 0 && !p.prompt || s.state != open || p.seq != s.acked[Request] || s.sentSeq[Request] > p.seq ||
		s.inFlight[Request]+s.again[Request].n != 0 || s.open[Request] != None || !x.Admits(l.Now, int(p.length)) {
		return false
	}
	payload := l.cfg.Slab.Payload(i)
	n, results := l.cfg.Upper.Express(s, payload[wire.HeaderLen:p.length])
	length := express.PayloadLen(int(p.length)-wire.HeaderLen, results)
	if n == 0 || n > express.MaxRecords || !x.Admits(l.Now, length) {
		return false
	}
	clear(payload[p.length:length]) // the target's program can shorten a frame, and no more
	x.Begin(l.Now, express.Exchanged{Slot: i, Records: n, Length: length, Results: results, Ordered: p.flags&wire.FlagOrdered != 0}, &s.rtt)
	p.state = slotExchanged
	s.sentSeq[Request] = p.seq + 1
	s.promptSeq = max(s.promptSeq, p.seq)
	l.stats.Exchanges++
	l.sendExchange(s)
	l.WakeBy(x.DueAt())
	s.listen()
	s.markActive()
	return true
}

// promptLone lets the open bundle of requests be an exchange although nobody waits for it yet. A
// caller that loses its processor between a call and the wait for it finds that the background
// goroutine has sent the call. As a bundle it would wait for the target's process. But in a stream
// the calls behind it would wait for the exchange, so it is none where bundles lately began
// before others were applied.
func (s *Session) promptLone() {
	if i := s.open[Request]; i != None && s.pace.crowded == 0 {
		s.link.Prompt(i)
	}
}

// sendExchange sends the next frame of the exchange with s.
func (l *Link) sendExchange(s *Session) {
	h := s.exchange.Try(l.Now, s.remoteID)
	var key *siphash.Key
	if s.codes != nil {
		key = (*siphash.Key)(&s.codes.Requests.Sent)
	}
	what := s.exchange.Current()
	express.Request(l.cfg.Slab.Payload(what.Slot)[:what.Length], h, key)
	l.slots[what.Slot].inDevice = true
	l.out = append(l.out, Out{Slot: what.Slot, Len: int32(what.Length), Path: s.path})
}

// AnswersLost reports whether the tier of the peer was left because answers of its program got
// lost, and the program has not answered since.
func (s *Session) AnswersLost() bool { return s.exchange.AnswersLost() }

// repeatExchange sends the frame of the exchange with s again, which is due.
func (l *Link) repeatExchange(s *Session) {
	x := &s.exchange
	defer func() { x.Wait(l.Now) }()
	p := &l.slots[x.Current().Slot]
	if p.inDevice {
		return
	}
	if x.Expired() {
		s.liveness.Expired()
	}
	// As with a bundle that does not arrive: the peer lives, and does not answer.
	if x.InVain(l.cfg.DeadAfter) && s.liveness.HeardAfter(x.Since()) {
		s.overdue = p.length
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
	verdict := x.Judge(l.Now, h, len(body))
	switch verdict {
	case express.Late:
		l.stats.LateAnswers++
		return
	case express.Odd:
		l.stats.Faults[wire.BadFrame]++
		return
	}
	if h.User {
		s.liveness.Heard(l.Now)
	}
	if verdict == express.Taken {
		l.exchangeTaken(s)
		return
	}
	l.doubt(s, h)
	i := x.Current().Slot
	p := &l.slots[i]
	x.Execute()
	s.overdue = 0
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
	i := s.exchange.Current().Slot
	if l.slots[i].flags&wire.FlagOrdered != 0 {
		s.order++
	}
	l.discard(s, i)
	s.exchange.End()
	s.overdue = 0
	l.stats.Taken++
	s.MarkDirty()
}

// doubt takes in how the exchange with s was executed.
func (l *Link) doubt(s *Session, h *express.Header) {
	leaves, first := s.exchange.Doubt(l.Now, h)
	if leaves {
		l.stats.AnswersLost++
	}
	if first && l.cfg.AnswersLost != nil {
		l.cfg.AnswersLost(s.rank)
	}
}
