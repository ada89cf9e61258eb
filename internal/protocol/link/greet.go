package link

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"fmt"

	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/siphash"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// Where the job has a key, a session opens by a handshake that proves to each end who the
// other is (hello.go is for jobs without one):
//
//   - The rank that dials sends a hello. It sends the same one again until it is answered.
//   - Whoever gets it looks at the code first, then at what it says in clear, and then has
//     the ticket verified and the handshake computed. It sends its answer, and keeps what
//     follows beside whatever session with that rank there is: see answered.
//   - The one that dialed opens the session with the answer, and sends a frame.
//   - The first frame under the new keys opens the session at the other end, and ends an
//     earlier life of its sender. Before, nothing has changed there that anybody notices.
//
// So a hello that comes again, from whomever, is answered again at the ticket's address, to which
// Config.Route finds the way, and that is all. If both have made hellos, the one of higher rank answers, and
// forgets its own.

// Credentials are what a rank is known by, in a job with a key.
type Credentials struct {
	Level   secure.Level
	Secrets secure.Secrets // of the job
	Static  *ecdh.PrivateKey
	Ticket  []byte                  // that the rendezvous has signed for Static
	Signer  ed25519.PublicKey       // of the rendezvous
	Fresh   func() *ecdh.PrivateKey // returns a random key; called in what Offload computes
	AES     bool                    // the processor has instructions for AES-GCM

	Bounds     secure.Bounds // of the keys of sessions
	RenewAfter int64         // for how long a direction of a session has one key, in nanoseconds; 0: 120 s
}

// trailer returns how many bytes of each frame protect it.
func (c *Config) trailer() int {
	if c.Credentials != nil && c.Credentials.Level >= secure.Sign {
		return secure.TrailerLen
	}
	return 0
}

// code returns the key of the codes of greetings.
func (id *Credentials) code() *siphash.Key { return (*siphash.Key)(&id.Secrets.Hello) }

// ends returns what this rank brings to a handshake that begins with a hello.
func (id *Credentials) ends(hello []byte, peer *ecdh.PublicKey) secure.Ends {
	return secure.Ends{Prologue: wire.Prologue(hello), PSK: &id.Secrets.PSK, Static: id.Static, Peer: peer}
}

// greeting is a session's own hello.
type greeting struct {
	peer      *ecdh.PublicKey
	hello     []byte // nil: not made yet
	sentAt    int64  // the last time
	since     int64  // when it was first due
	toldAt    int64  // when the peer was last told that its hello or answer has come
	initiator *secure.Initiator
	busy      bool   // something of it is computed
	crossed   uint64 // the code of a hello of the peer that goes without an answer
}

// answered is a hello of a peer that this rank has answered. The session opens with the first
// frame that comes for it.
type answered struct {
	rank      int
	life      uint64
	path      PathID
	localID   uint64
	place     int32 // of the session that it becomes, if there is none that has one
	taken     bool  // a session has localID and place
	reassured bool  // the way to tell its sender so is looked for
	toldAt    int64 // when its sender was last told or answered
	code      uint64
	answer    []byte
	terms     wire.Terms
	guard     *secure.Guard // nil at the level None
	codes     *secure.ExpressKeys
}

// DialBy is Dial in a job with a key, by the ticket of the rank, which the rendezvous has given
// out.
func (l *Link) DialBy(path PathID, ticket *secure.Ticket) *Session {
	rank := int(ticket.Rank)
	if a := l.answers[rank]; a != nil && a.life > ticket.Incarnation {
		return l.Dial(rank, a.path, a.life) // it has started again since then, and may have opened the session
	} else if a != nil && a.life < ticket.Incarnation {
		l.withdraw(a)
	}
	s := l.Dial(rank, path, ticket.Incarnation)
	if s.state == dialing && s.peer == ticket.Incarnation && s.greeting == nil {
		peer, err := ecdh.X25519().NewPublicKey(ticket.Static[:])
		if err != nil {
			s.Fail(err)
			return s
		}
		s.greeting = &greeting{peer: peer}
	}
	return s
}

// offload has work computed out of the calls of the link, and done called as one of them.
func (l *Link) offload(work, done func()) bool {
	if l.cfg.Offload != nil {
		return l.cfg.Offload(work, done)
	}
	work()
	done()
	return true
}

// greet sends the session's hello, or has it made first.
func (l *Link) greet(s *Session) {
	g := s.greeting
	if g == nil {
		return
	}
	if g.since == 0 {
		g.since = l.Now
	}
	switch {
	case l.yielded(s):
		return
	case g.hello != nil:
		g.sentAt = l.Now
		l.sendWhole(g.hello, s.path)
		return
	case g.busy:
		return
	case s.liveness.Expirations() < callHellos && l.answering[s.rank] != nil || s.liveness.Expirations() == 0 && l.answers[s.rank] != nil:
		return // the peer's hello was first, and is as good
	}
	id := l.cfg.Credentials
	hello := make([]byte, wire.GreetingLen)
	head := wire.Greeting{Kind: wire.KindHello, Ticket: id.Ticket, TargetLife: s.peer, Target: uint32(s.rank)}
	head.Put(hello, id.code())
	terms := l.terms(s.localID, s.place())
	var initiator *secure.Initiator
	g.busy = true
	var err error
	started := l.offload(func() {
		if initiator, head.Noise, err = secure.Initiate(nil, id.ends(hello, g.peer), id.Fresh(), terms.Bytes()); err == nil {
			head.Put(hello, id.code())
		}
	}, func() {
		switch g.busy = false; {
		case s.state != dialing || s.greeting != g || l.yielded(s):
			if initiator != nil {
				initiator.Wipe()
			}
			return
		case initiator == nil:
			s.Fail(fmt.Errorf("a handshake with it cannot begin: its ticket's key: %w", err))
			return
		}
		g.hello, g.initiator, g.sentAt = hello, initiator, l.Now
		l.sendWhole(hello, s.path)
		if s.liveness.Expirations() > 0 { // the peer has heard nothing before
			s.liveness.Owe(l.Now, s.rtt.Timeout())
			s.liveness.Expired()
			l.WakeBy(s.liveness.AskAt())
		}
	})
	g.busy = g.busy && started
}

// terms returns what this rank tells a peer.
func (l *Link) terms(id uint64, place int32) wire.Terms {
	return wire.Terms{
		Session: id, MaxPayload: uint32(l.cfg.Slab.MaxPayload), AES: l.cfg.Credentials.AES, Credits: l.credits,
		Express: tier(place), Joined: uint32(l.cfg.JoinedRoom / max(1, l.cfg.RxFrames/2)),
	}
}

// yielded reports whether s, whose hello crossed one of the peer, leaves it to the peer's.
func (l *Link) yielded(s *Session) bool {
	a := l.answers[s.rank]
	return a != nil && a.localID == s.localID && l.cfg.Rank > s.rank
}

// sendWhole sends a frame that is there as a whole.
func (l *Link) sendWhole(frame []byte, path PathID) {
	if l.freeSlots == 0 {
		return
	}
	i := l.allocSlot()
	n := copy(l.cfg.Slab.Payload(i), frame)
	l.outputOnce(i, n, path)
}

// receiveGreeting takes in a handshake frame of a job with a key.
func (l *Link) receiveGreeting(path PathID, payload []byte) {
	var g wire.Greeting
	if f := g.Get(payload, l.cfg.Credentials.code()); f != wire.OK {
		l.stats.Faults[f]++
		return
	}
	t, ok := secure.ParseTicket(g.Ticket)
	if !ok || t.Job != l.cfg.Job || g.Target != uint32(l.cfg.Rank) || t.Rank >= uint32(l.cfg.Size) || t.Rank == g.Target ||
		t.Level != l.cfg.Credentials.Level {
		l.stats.Handshakes++
		return
	}
	switch g.Kind {
	case wire.KindHello:
		l.takeGreeting(path, payload, &g, &t)
	case wire.KindHelloAck:
		l.takeAnswer(payload, &g, &t)
	case wire.KindTicket:
		l.takeTicket(&g, &t)
	}
}

// takeGreeting takes in a hello whose code is right: it is of a member, who may have sent it long ago.
func (l *Link) takeGreeting(path PathID, hello []byte, g *wire.Greeting, t *secure.Ticket) {
	rank := int(t.Rank)
	if g.TargetLife != l.cfg.Incarnation { // it wants an earlier life of this rank, and cannot know the present one's key
		l.stats.Handshakes++
		l.sendTicket(path, g, t)
		return
	}
	if a := l.answers[rank]; a != nil && a.life == t.Incarnation {
		switch {
		case a.code != g.Code:
			l.stats.Handshakes++ // one session for each pair of incarnations
		case l.again(&a.toldAt):
			l.sendWhole(a.answer, a.path)
		}
		return
	}
	s := l.byRank[rank]
	if s != nil && s.peer == t.Incarnation {
		switch s.state {
		case open: // its sender may lack the first frame of this session, or the hello is an old one
			l.stats.Handshakes++
			s.acks.now = true
			s.MarkDirty()
			return
		case dead:
			l.stats.Handshakes++
			l.answerDead(s)
			return
		}
	}
	if !l.welcome(rank, t.Incarnation) {
		l.stats.Handshakes++
		if s != nil && s.state == dialing && s.peer == t.Incarnation && s.greeting != nil {
			switch own := s.greeting; {
			case own.crossed != g.Code:
			case own.hello != nil && !own.busy && l.again(&own.toldAt): // which its sender lacks, or it would answer
				l.sendWhole(own.hello, s.path)
			default:
				l.reassure(path, t)
			}
			s.greeting.crossed = g.Code
		}
		return
	}
	l.answer(path, hello, g, t)
}

// welcome reports whether a hello of a rank in one of its lives, which is not answered yet, may
// open a session.
func (l *Link) welcome(rank int, life uint64) bool {
	if a := l.answers[rank]; a != nil && a.life >= life {
		return false
	}
	s := l.byRank[rank]
	switch {
	case s == nil:
		return true
	case s.peer > life || s.state == dead && s.peer == 0:
		return false
	case s.peer < life:
		return true
	case s.state != dialing:
		return false
	}
	return l.cfg.Rank > rank || s.greeting == nil || s.greeting.hello == nil && !s.greeting.busy // both dial
}

// answer has a hello verified and answered. There is one at a time of each life of a rank.
func (l *Link) answer(path PathID, hello []byte, g *wire.Greeting, t *secure.Ticket) {
	rank, id := int(t.Rank), l.cfg.Credentials
	if l.isAnswering(rank, t.Incarnation) {
		if l.answering[rank].code == g.Code {
			l.reassure(path, t)
		}
		return // it comes again
	}
	a := &answered{rank: rank, life: t.Incarnation, code: g.Code}
	if s := l.dialing(rank, a.life); s != nil {
		a.localID, a.place, a.taken = s.localID, s.place(), true
	} else {
		a.localID, a.place = l.newID(), l.served.take()
	}
	hello = append([]byte(nil), hello...)
	noise := hello[len(hello)-8-wire.NoiseLen : len(hello)-8]
	ticket := hello[wire.HeaderLen : wire.HeaderLen+secure.TicketLen]
	terms := l.terms(a.localID, a.place)
	sound := false
	end := func(path PathID) {
		l.answeredLife(rank, a.life)
		s := l.dialing(rank, a.life)
		if path == NoPath || !l.welcome(rank, a.life) || a.taken != (s != nil) || s != nil && s.localID != a.localID { // if things have changed, the hello comes again
			if !a.taken {
				l.served.giveBack(a.place)
			}
			a.forget()
			return
		}
		if before := l.answers[rank]; before != nil {
			l.withdraw(before)
		}
		a.path = path
		l.answers[rank], l.waiting[a.localID] = a, a
		if !a.taken {
			l.opened = append(l.opened, Opened{a.localID, a.place})
		}
		a.toldAt = l.Now
		l.sendWhole(a.answer, a.path)
		if s != nil {
			s.liveness.Restart(l.Now) // the peer has heard nothing before
		}
	}
	l.answering[rank] = a
	started := l.offload(func() {
		if !secure.VerifyTicket(ticket, id.Signer) {
			return
		}
		peer, err := ecdh.X25519().NewPublicKey(t.Static[:])
		if err != nil {
			return
		}
		r, theirs, err := secure.Respond(id.ends(hello, peer), noise)
		if err != nil || !a.terms.Read(theirs) {
			return
		}
		message, chains, err := r.Answer(nil, id.Fresh(), terms.Bytes())
		if err != nil {
			return
		}
		ack := wire.Greeting{Kind: wire.KindHelloAck, Session: a.terms.Session, Ticket: id.Ticket, TargetLife: a.life, Target: t.Rank, Noise: message}
		a.answer = make([]byte, wire.GreetingLen)
		ack.Put(a.answer, id.code())
		a.guard, a.codes = id.guard(&chains, &a.terms)
		chains.Wipe()
		sound = true
	}, func() {
		if !sound {
			l.stats.Handshakes++
			l.stats.Refuted++
			end(NoPath)
			return
		}
		l.route(t, path, end)
	})
	if !started {
		end(NoPath)
	}
}

// isAnswering reports whether something is computed for a life of a rank, or a later one.
func (l *Link) isAnswering(rank int, life uint64) bool {
	a := l.answering[rank]
	return a != nil && a.life >= life
}

// answeredLife takes in that nothing is computed for a life of a rank any more. A later life does not
// wait for that: the way to where an earlier one was may take seconds not to be found.
func (l *Link) answeredLife(rank int, life uint64) {
	if a := l.answering[rank]; a != nil && a.life == life {
		delete(l.answering, rank)
	}
}

// route has f called with the way to the address in a ticket, NoPath if there is none. Where the
// link is not told how to find it, it is the way that a frame came by.
func (l *Link) route(t *secure.Ticket, came PathID, f func(PathID)) {
	if l.cfg.Route != nil {
		l.cfg.Route(t, f)
	} else {
		f(came)
	}
}

// dialing returns the session that a hello of a rank in one of its lives meets while it is being
// opened from here, or nil.
func (l *Link) dialing(rank int, life uint64) *Session {
	if s := l.byRank[rank]; s != nil && s.state == dialing && (s.peer == 0 || s.peer == life) {
		return s
	}
	return nil
}

// guard returns what protects the frames of a session whose peer has the given terms.
func (id *Credentials) guard(c *secure.Chains, theirs *wire.Terms) (*secure.Guard, *secure.ExpressKeys) {
	if id.Level < secure.Sign {
		return nil, nil
	}
	suite := secure.Suite{Level: id.Level, Cipher: secure.AES, Header: wire.HeaderLen, Bounds: id.Bounds}
	if !id.AES || !theirs.AES {
		suite.Cipher = secure.ChaCha
	}
	keys := c.Express()
	return secure.NewGuard(c, suite), &keys
}

// forget wipes the keys of a session that is not to be.
func (a *answered) forget() { forgetKeys(a.guard, a.codes) }

// forgetKeys wipes the keys of a session.
func forgetKeys(g *secure.Guard, k *secure.ExpressKeys) {
	if g != nil {
		g.Close()
		k.Wipe()
	}
}

// over wipes the secrets of a handshake that has ended. If something of it is computed now, whoever takes in
// the result does so.
func (g *greeting) over() {
	if g != nil && g.initiator != nil && !g.busy {
		g.initiator.Wipe()
	}
}

// withdraw ends the wait for the first frame after a hello.
func (l *Link) withdraw(a *answered) {
	delete(l.answers, a.rank)
	delete(l.waiting, a.localID)
	a.forget()
	if l.byID[a.localID] != nil {
		return // a session has id and place
	}
	l.served.giveBack(a.place)
	l.closed = append(l.closed, a.localID)
}

// arise opens the session of a hello that was answered: a frame under its keys has come. It
// returns nil if there is no place for it any more.
func (l *Link) arise(a *answered) *Session {
	s := l.byRank[a.rank]
	switch {
	case s == nil:
		s = l.newSession(a.rank, a.path)
	case s.state == dialing && s.localID == a.localID:
	case s.peer < a.life:
		s.Fail(ErrRestarted)
		l.makeWay(s)
		s = l.newSession(a.rank, a.path)
	default:
		l.withdraw(a)
		return nil
	}
	delete(l.answers, a.rank)
	delete(l.waiting, a.localID)
	s.path, s.guard, s.codes = a.path, a.guard, a.codes
	l.establish(s, a.life, &a.terms)
	return s
}

// takeAnswer takes in the answer to the hello of a session.
func (l *Link) takeAnswer(payload []byte, g *wire.Greeting, t *secure.Ticket) {
	s := l.sessionByID(g.Session)
	if s == nil || s.greeting == nil || s.greeting.initiator == nil || int(t.Rank) != s.rank || t.Incarnation != s.peer || g.TargetLife != l.cfg.Incarnation {
		l.stats.Handshakes++
		return
	}
	own := s.greeting
	if s.state != dialing {
		return // it has come before
	}
	l.lives(s)
	if own.busy || l.yielded(s) {
		l.reassure(NoPath, t)
		return
	}
	noise := append([]byte(nil), g.Noise...)
	var terms wire.Terms
	var guard *secure.Guard
	var codes *secure.ExpressKeys
	sound := false
	own.busy = true
	started := l.offload(func() {
		theirs, c, err := own.initiator.Finish(noise)
		if sound = err == nil && terms.Read(theirs); sound {
			guard, codes = l.cfg.Credentials.guard(&c, &terms)
		}
		c.Wipe()
	}, func() {
		own.busy = false
		switch {
		case !sound:
			l.stats.Handshakes++
		case s.state == dialing && s.greeting == own && !l.yielded(s):
			if a := l.answers[s.rank]; a != nil && a.localID == s.localID { // the peer went by this rank's hello
				l.withdraw(a)
			}
			s.guard, s.codes = guard, codes
			l.establish(s, s.peer, &terms)
			if s.open[Request] == None && s.queue[Request].n == 0 {
				l.ping(s) // the peer opens the session with the first frame
			}
			return
		}
		forgetKeys(guard, codes)
		if s.greeting != own || s.state != dialing {
			own.over()
		}
	})
	own.busy = own.busy && started
}

// sendTicket tells the sender of a hello for an earlier life of this rank who is here now. There is
// one at a time, as with answers.
func (l *Link) sendTicket(path PathID, hello *wire.Greeting, to *secure.Ticket) {
	rank, signer := int(to.Rank), l.cfg.Credentials.Signer
	if l.isAnswering(rank, to.Incarnation) {
		return
	}
	ticket, sound := append([]byte(nil), hello.Ticket...), false
	end := func(path PathID) {
		if l.answeredLife(rank, to.Incarnation); path == NoPath {
			return
		}
		l.sendWhole(l.ownTicket(to), path)
	}
	l.answering[rank] = &answered{rank: rank, life: to.Incarnation}
	started := l.offload(func() { sound = secure.VerifyTicket(ticket, signer) }, func() {
		if sound {
			l.route(to, path, end)
		} else {
			end(NoPath)
		}
	})
	if !started {
		end(NoPath)
	}
}

// takeTicket takes in that a rank that this one dials has started again, or that it lives and is at work.
func (l *Link) takeTicket(g *wire.Greeting, t *secure.Ticket) {
	s := l.byRank[int(t.Rank)]
	if s == nil || s.state != dialing || s.greeting == nil || t.Incarnation < s.peer || g.TargetLife != l.cfg.Incarnation {
		l.stats.Handshakes++
		return
	}
	if t.Incarnation == s.peer {
		l.lives(s)
		byItself := s.greeting.sentAt + min(max(reliable.SlowTimeout, l.cfg.DeadAfter/8), 2*reliable.SlowTimeout) // comes the answer
		s.liveness.Ask(max(s.liveness.AskAt(), byItself))
		return
	}
	if s.greeting.busy {
		l.stats.Handshakes++
		return
	}
	own, ticket, sound := s.greeting, append([]byte(nil), g.Ticket...), false
	own.busy = true
	started := l.offload(func() { sound = secure.VerifyTicket(ticket, l.cfg.Credentials.Signer) }, func() {
		own.busy = false
		switch {
		case !sound:
			l.stats.Handshakes++
		case s.state == dialing && s.greeting == own:
			s.Fail(ErrRestarted)
		}
	})
	own.busy = own.busy && started
}
