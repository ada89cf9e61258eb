package sim

import (
	"encoding/binary"
	"math"

	"github.com/xdprma/xdprma/internal/lab/credentials"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// renewal is when keys of sessions are renewed.
type renewal struct {
	bits  uint8 // of a number, within an epoch; 0: 24
	after int64 // 0: 120 s
}

// renewed is how often epochs have begun.
type renewed struct {
	byNumber int // since the former was used up
	byTime   int
}

// newRenewal has most jobs renew their keys all the time. A receiver knows the key of the next epoch, and not
// of the one after, so an epoch has more frames than get lost in a row.
func (w *World) newRenewal(p *plan) (r renewal) {
	n := w.cfg.Seed / 12
	if !p.keyed || n%4 == 3 {
		return r
	}
	r.bits = uint8(5 + n/4%3)
	if len(p.faults) > 0 || p.joined.loss > 0 || p.joined.most > 0 && p.joined.closed != math.MaxInt64 {
		r.bits += 2 // much gets lost at once
	}
	if n%4 == 0 {
		r.after = int64(1+n%20) * millisecond
	}
	return r
}

// join gives a life its credentials, if the plan is a job with a key. Work that the engine has
// done elsewhere, and a search for a way, take a while and fail now and then.
func (l *life) join() {
	w := l.w
	if !w.plan.keyed {
		return
	}
	l.cfg.Credentials, l.cfg.Job = credentials.Of(l.rank, l.incarnation, w.plan.level), credentials.Secrets.Job
	l.cfg.Credentials.Bounds.EpochBits, l.cfg.Credentials.RenewAfter = w.plan.renewal.bits, w.plan.renewal.after
	l.cfg.Offload = func(work, done func()) bool {
		if w.chance(0.05) {
			return false
		}
		work()
		w.queue.push(w.now+w.span(0, 300*microsecond), func() {
			if l.alive {
				done()
				w.run(l)
			}
		})
		return true
	}
	l.cfg.Route = func(t *secure.Ticket, done func(engine.PathID)) {
		path := engine.PathID(t.Rank)
		if w.chance(0.05) {
			path = engine.NoPath
		}
		w.queue.push(w.now+w.span(0, 300*microsecond), func() {
			if l.alive {
				done(path)
				w.run(l)
			}
		})
	}
}

// dial returns the session with a life of another rank.
func (l *life) dial(to *life) *engine.Session {
	if l.w.plan.keyed {
		return l.e.DialBy(engine.PathID(to.rank), credentials.Ticket(to.rank, to.incarnation, l.w.plan.level))
	}
	return l.e.Dial(to.rank, engine.PathID(to.rank), to.incarnation)
}

// checkNumber fails the run if the number of a frame has been used before in its session:
// a key must not see it twice.
func (l *life) checkNumber(frame []byte) {
	if !l.w.plan.keyed || l.w.plan.level < secure.Sign || wire.IsHandshake(frame) || frame[5] == byte(wire.KindExpress) {
		return
	}
	session := binary.LittleEndian.Uint64(frame[8:])
	number := secure.Number(frame)
	if number < l.numbers[session] {
		l.w.failf("rank %d uses number %d of session %x after number %d", l.rank, number, session, l.numbers[session]-1)
	}
	if bits := l.w.plan.renewal.bits; bits != 0 && number>>bits != 0 && number&(1<<bits-1) == 0 {
		if number == l.numbers[session] {
			l.w.renewed.byNumber++
		} else {
			l.w.renewed.byTime++
		}
	}
	l.numbers[session] = number + 1
}
