package link

import (
	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

func (l *Link) sendHandshake(kind wire.Kind, s *Session, echo uint64) {
	h := wire.Hello{
		Job: l.cfg.Job, Incarnation: l.cfg.Incarnation, Peer: s.peer, Session: s.localID,
		Rank: uint32(l.cfg.Rank), Target: uint32(s.rank),
		MaxPayload: uint32(l.cfg.Slab.MaxPayload), Credits: l.credits, Echo: echo,
		Express: tier(s.place()), Joined: uint32(l.cfg.JoinedRoom / max(1, l.cfg.RxFrames/2)),
	}
	var body [wire.HelloLen]byte
	h.Encode(body[:])
	to := uint64(0)
	if kind == wire.KindHelloAck {
		to = echo
	}
	l.sendControl(kind, to, s.path, body[:])
}

// sendControl sends a frame that is not acknowledged. If no slot is free it is
// dropped: all control frames are repeated when they matter.
func (l *Link) sendControl(kind wire.Kind, session uint64, path PathID, body []byte) {
	if l.freeSlots == 0 {
		return
	}
	i := l.allocSlot()
	b := l.cfg.Slab.Payload(i)[:wire.HeaderLen+len(body)]
	copy(b[wire.HeaderLen:], body)
	h := wire.Header{Kind: kind, Session: session, Credits: l.credits}
	h.Encode(b)
	l.outputOnce(i, len(b), path)
}

func (l *Link) outputOnce(i int32, n int, path PathID) {
	l.slots[i].state = slotDone
	l.slots[i].inDevice = true
	l.out = append(l.out, Out{Slot: i, Len: int32(n), Path: path})
}

// Verdict is what is known of a hello's claims.
type Verdict uint8

// The verdicts.
const (
	Unknown   Verdict = iota // what the rank has published is not known yet; Learned follows
	Confirmed                // the rank has published what the hello claims
	Refuted                  // it has published something else
)

// claim is a hello that waits for a verdict.
type claim struct {
	path  PathID
	hello wire.Hello
}

func (l *Link) receiveHello(path PathID, body []byte) {
	var h wire.Hello
	ok := h.Decode(body) && h.Job == l.cfg.Job && h.Target == uint32(l.cfg.Rank) && h.Rank < uint32(l.cfg.Size)
	if !ok || h.Rank == h.Target || path == NoPath {
		l.stats.Handshakes++
		return
	}
	l.judge(&claim{path, h})
}

// Learned has the link judge again the last hello of a rank for which it got no verdict.
func (l *Link) Learned(rank int) {
	if c, waits := l.claims[rank]; waits {
		delete(l.claims, rank)
		l.judge(&c)
	}
}

// judge takes in a hello if it is true. Anybody who has seen a frame of the job can write one,
// so that nothing of it counts before.
func (l *Link) judge(c *claim) {
	verdict := Confirmed
	if l.cfg.Published != nil {
		verdict = l.cfg.Published(int(c.hello.Rank), c.hello.Incarnation, c.path)
	}
	switch verdict {
	case Confirmed:
		l.takeHello(c.path, &c.hello)
	case Unknown:
		l.stats.Unverified++
		l.claims[int(c.hello.Rank)] = *c
	default:
		l.stats.Handshakes++
		l.stats.Refuted++
	}
}

// takeHello takes in a hello whose claims are true.
func (l *Link) takeHello(path PathID, h *wire.Hello) {
	rank := int(h.Rank)
	if h.Peer != 0 && h.Peer != l.cfg.Incarnation {
		l.stats.Handshakes++ // it wants an earlier life of this rank
		l.sendControl(wire.KindReset, h.Session, path, nil)
		return
	}
	s := l.byRank[rank]
	switch {
	case s == nil:
		s = l.newSession(rank, path)
	case s.peer != 0 && h.Incarnation < s.peer:
		l.stats.Handshakes++ // late frame of an earlier life of the peer
		return
	case s.peer != 0 && h.Incarnation > s.peer:
		s.Fail(ErrRestarted)
		l.makeWay(s)
		s = l.newSession(rank, path)
	case s.state == dead:
		l.sendControl(wire.KindReset, h.Session, path, nil)
		return
	case s.remoteID != 0 && s.remoteID != h.Session:
		l.stats.Handshakes++
		return
	case s.path == NoPath:
		s.path = path
	}
	terms := h.Terms()
	l.establish(s, h.Incarnation, &terms)
	l.sendHandshake(wire.KindHelloAck, s, h.Session)
}

func (l *Link) receiveHelloAck(s *Session, body []byte) {
	var h wire.Hello
	if !h.Decode(body) || h.Job != l.cfg.Job || h.Echo != s.localID || int(h.Rank) != s.rank ||
		s.peer != 0 && h.Incarnation != s.peer || s.remoteID != 0 && s.remoteID != h.Session {
		l.stats.Handshakes++
		return
	}
	terms := h.Terms()
	l.establish(s, h.Incarnation, &terms)
}

// establish opens a session with a life of the peer, by the terms of its handshake.
func (l *Link) establish(s *Session, life uint64, h *wire.Terms) {
	s.liveness.Heard(l.Now)
	if s.state != dialing {
		return
	}
	s.state, s.rtt = open, l.rtt.Guess()
	l.endTurn(s)
	s.greeting.over()
	s.remoteID, s.peer, s.greeting = h.Session, life, nil
	s.credits = int32(min(h.Credits, reliable.Span/2))
	s.length.limit = min(int(h.MaxPayload), l.cfg.Slab.MaxPayload) - l.trailer
	s.renewing.at = l.Now + l.renewAfter()
	l.renewLater(s)
	s.exchange.Open(int(h.Express))
	l.openRuns(s, h)
	l.openPlace(s)
	s.liveness.Settle()
	s.MarkDirty()
}
