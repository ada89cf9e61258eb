package express

import (
	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

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

	leastAway int64 = 1_000_000_000         // nanoseconds that the tier is left for the first time
	mostAway        = leastAway * (1 << 12) // more than an hour

	vainTries = 4 // so many, before the lack of an answer says anything of the peer
)

// Origin is what an origin keeps about its exchanges with one peer, of which one runs at a time.
// Times are in nanoseconds, on a clock that has passed zero. The zero value belongs to a peer that
// serves none.
type Origin struct {
	limit   int    // longest payload that the peer's tier serves; 0: it has none
	number  uint64 // of the last exchange begun
	skipped uint64 // exchanges that were executed
	running bool
	what    Exchanged
	tries   uint64
	firstAt int64
	sentAt  int64
	dueAt   int64 // when it is repeated; 0: nothing is exchanged
	rtt     reliable.RTT

	answered  bool  // an answer of the program has come since the tier was last left
	doubts    int   // exchanges in a row whose answer by the program was lost
	away      int64 // for how long the tier was left last; 0: since then the program has answered
	awayUntil int64
	left      bool // the tier was left before
}

// Exchanged is a bundle of requests that is exchanged.
type Exchanged struct {
	Slot    int32 // of the bundle; the origin's affair
	Records int   // of it
	Length  int   // bytes of its frame's payload
	Results int   // bytes of its answer
	Ordered bool  // it would be ordered if it were a bundle
}

// Open takes in how long the payloads are at most that the peer serves: 0 if it serves none.
func (x *Origin) Open(limit int) { x.limit = min(limit, MaxPayload) }

// Served reports whether the peer serves exchanges.
func (x *Origin) Served() bool { return x.limit > 0 }

// Admits reports whether a payload of so many bytes may be exchanged now.
func (x *Origin) Admits(now int64, length int) bool { return now >= x.awayUntil && length <= x.limit }

// Begin begins an exchange, of which Try makes the first frame. path is what bundles know of the
// round trip.
func (x *Origin) Begin(now int64, what Exchanged, path *reliable.RTT) {
	x.number++
	x.running, x.what = true, what
	x.tries, x.firstAt = 0, now
	if !x.rtt.Sampled() {
		x.rtt = *path // or an answer that never comes would be waited for as on an unknown path
	}
	x.dueAt = now + x.rtt.Probe()
}

// Running reports whether an exchange runs.
func (x *Origin) Running() bool { return x.running }

// Current returns what is exchanged.
func (x *Origin) Current() *Exchanged { return &x.what }

// Skipped returns how many exchanges were executed: those bundles have no sequence at the peer.
func (x *Origin) Skipped() uint64 { return x.skipped }

// Try returns the header of the next frame of the exchange, which leaves now, in a session. Each
// second one goes round the peer's program, which may be unable to answer.
func (x *Origin) Try(now int64, session uint64) Header {
	x.tries++
	x.sentAt = now
	h := Header{Session: session, Exchange: x.number, Try: x.tries, Records: x.what.Records, Ordered: x.what.Ordered}
	if x.byUser(x.tries) {
		h.Flags = wire.FlagUser
	}
	return h
}

// byUser reports whether a try asks the peer's user space.
func (x *Origin) byUser(try uint64) bool {
	from := uint64(userFromUnanswered)
	if x.answered {
		from = userFromAnswered
	}
	return try >= from && (try-from)%2 == 0
}

// DueAt returns when the exchange is repeated, 0 if none runs.
func (x *Origin) DueAt() int64 { return x.dueAt }

// Expired takes in that no answer has come in time. It returns false for the first time, which is
// early, and says nothing of the peer.
func (x *Origin) Expired() bool {
	if x.tries <= 1 {
		return false
	}
	x.rtt.Expired()
	return true
}

// Wait has the exchange repeated a timeout from now.
func (x *Origin) Wait(now int64) { x.dueAt = now + x.rtt.Timeout() }

// InVain reports whether the exchange was tried several times, and for the limit.
func (x *Origin) InVain(limit int64) bool {
	return x.tries >= vainTries && x.sentAt-x.firstAt >= limit
}

// Since returns when the exchange began.
func (x *Origin) Since() int64 { return x.firstAt }

// Excuse has some time in which this process could do nothing not count.
func (x *Origin) Excuse(late, now int64) { reliable.Excuse(&x.firstAt, late, now) }

// Verdict is the judgement of an answer.
type Verdict uint8

// The verdicts.
const (
	Late     Verdict = iota // of no exchange that runs
	Odd                     // it cannot be the answer to what was asked
	Taken                   // the peer took the request as a bundle
	Executed                // it executed the request; the results are in the answer
)

// Judge says what to make of an answer with so many bytes behind its header. After Taken call
// End, and after Executed Doubt and Execute.
func (x *Origin) Judge(now int64, h *Header, length int) Verdict {
	if !x.running || h.Exchange != x.number {
		return Late
	}
	verdict, expected := Executed, x.what.Results
	if h.Fate == FateTaken {
		verdict, expected = Taken, 0
	}
	if h.Try == 0 || h.Try > x.tries || length != expected {
		return Odd
	}
	if h.Try == x.tries {
		x.rtt.Sample(now - x.sentAt)
	}
	return verdict
}

// Acknowledged takes in that the peer acknowledges what is exchanged as a bundle, which it has
// taken. Call End then.
func (x *Origin) Acknowledged(now int64) {
	if x.tries == 1 {
		x.rtt.Sample(now - x.sentAt)
	}
}

// End ends the exchange.
func (x *Origin) End() { x.running, x.dueAt = false, 0 }

// Execute ends the exchange, which was executed.
func (x *Origin) Execute() {
	x.End()
	x.skipped++
}

// Doubt takes in how the exchange was executed, and reports whether the origin leaves the tier
// for a time, and for the first time: the peer's program executes exchanges, and its answers get
// lost, so they would all wait for user space. It is left for longer each time, until the program
// answers. Where user space has answered a try that the program handed on, since somebody waits
// there, nothing is known of the program's answers.
func (x *Origin) Doubt(now int64, h *Header) (leaves, first bool) {
	if !h.User {
		x.answered, x.doubts, x.away = true, 0, 0
		return false, false
	}
	if !x.byUser(h.Try) {
		return false, false
	}
	if x.doubts++; x.doubts < doubtUnanswered || x.answered && x.doubts < doubtAnswered {
		return false, false
	}
	x.away = min(max(2*x.away, leastAway), mostAway)
	x.answered, x.doubts, x.awayUntil = false, 0, now+x.away
	first, x.left = !x.left, true
	return true, first
}

// AnswersLost reports whether the tier was left because answers of the peer's program got lost,
// and the program has not answered since.
func (x *Origin) AnswersLost() bool { return x.away != 0 }
