package sim

import (
	"encoding/binary"

	"github.com/xdprma/xdprma/internal/lab/credentials"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// join gives a life its credentials, if the plan is a job with a key. Work that the engine has
// done elsewhere, and a search for a way, take a while and fail now and then.
func (l *life) join() {
	w := l.w
	if !w.plan.keyed {
		return
	}
	l.cfg.Credentials, l.cfg.Job = credentials.Of(l.rank, l.incarnation, w.plan.level), credentials.Secrets.Job
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
	l.numbers[session] = number + 1
}
