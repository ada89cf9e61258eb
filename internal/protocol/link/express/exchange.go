package express

import (
	"sync/atomic"

	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// The states of an exchange.
const (
	StateInterrupted uint64 = iota // some records are done; the program goes on at the next repeat
	StateProgram                   // the program is at it
	StateUser                      // user space is
	StateDone
)

// WordOf is what a slot says of an exchange in a state.
func WordOf(exchange, state uint64) uint64 { return exchange<<2 | state }

// Answer writes the answer to the request h of slot i into frame, and returns its length: 0
// if the exchange is not the last one, or not done. user says that user space answers, and not
// its program, which then need not tell it of the exchange any more.
func (t *Tables) Answer(i int, frame []byte, h *Header, user bool) (n int) {
	p := &t.places[i]
	done := WordOf(h.Exchange, StateDone)
	if atomic.LoadUint64(&p.Word) != done {
		return 0
	}
	outcome := atomic.LoadUint64(&p.Outcome)
	o := UnpackOutcome(outcome)
	n = wire.HeaderLen + int(o.Length)
	for at := wire.HeaderLen; at < n; at += 8 {
		le.PutUint64(frame[at:], atomic.LoadUint64(&p.Results[(at-wire.HeaderLen)/8]))
	}
	remote := atomic.LoadUint64(&p.PeerSession)
	if atomic.LoadUint64(&p.Word) != done {
		return 0 // the origin has the answer, and went on
	}
	if user && o.Awaited { // until this answer leaves, the origin cannot go on
		atomic.CompareAndSwapUint64(&p.Outcome, outcome, outcome&^awaitedBit)
	}
	Request(frame[:n], Header{Session: remote, Exchange: h.Exchange, Try: h.Try, Flags: wire.FlagResponse, Fate: o.Fate, User: user}, p.key(ofAnswers))
	return n
}

// Claim claims an exchange of slot i for user space to take its request as a bundle. It
// returns false if the exchange is not the next, or was begun: what is done of one that was
// interrupted would be done twice.
func (t *Tables) Claim(i int, exchange uint64) bool {
	return atomic.CompareAndSwapUint64(&t.places[i].Word, WordOf(exchange-1, StateDone), WordOf(exchange, StateUser))
}

// Unclaim gives a claim up, as if it had not been made.
func (t *Tables) Unclaim(i int, exchange uint64) {
	atomic.StoreUint64(&t.places[i].Word, WordOf(exchange-1, StateDone))
}

// PublishTaken ends a claimed exchange: its request was taken as a bundle.
func (t *Tables) PublishTaken(i int, exchange uint64) {
	p := &t.places[i]
	atomic.StoreUint64(&p.Outcome, Outcome{Fate: FateTaken}.Pack())
	atomic.SwapUint64(&p.Word, WordOf(exchange, StateDone))
}
