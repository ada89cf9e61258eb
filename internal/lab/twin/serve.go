package twin

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/elements"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/internal/words"
	"github.com/xdprma/xdprma/window"
)

var le = binary.LittleEndian

// Verdict says what becomes of a frame.
type Verdict uint8

// The verdicts.
const (
	Answer Verdict = iota // the frame is the answer now
	Drop                  // it is not to be answered
	ToUser                // it goes to user space by the socket
	Hand                  // it is an answer, and handed to user space as one that came as it was sent
)

// Reason says why. The program counts each by its name.
type Reason uint8

// The reasons, in the order of the counters in bpf/counter.h. In brackets, what Serve says
// with them.
const (
	None        Reason = iota // executed [Answer]
	Repeated                  // the exchange was done before [Answer]
	BadForm                   // the frame contradicts the protocol [Drop]
	BadChecksum               // it was damaged on the way [Drop]
	BadCode                   // it was damaged, or is not of its session's peer [Drop]
	Stale                     // the exchange is an earlier one, or not the next [Drop]
	Busy                      // the exchange is under way [Drop]
	User                      // the frame is for user space [ToUser]
	NoSlot                    // its session has no slot [ToUser]
	Path                      // it came from elsewhere, or with IPv4 options [ToUser]; only the program looks
	NoWindow                  // no such window is exposed [ToUser]
	NoAccess                  // the origin may not do that with the window [ToUser]
	Bounds                    // outside of the window, or not in one page of memory [ToUser]
	Operation                 // a record that the tier does not execute [ToUser]
	Locked                    // the window's lock is not free [ToUser]
	Interrupted               // others changed an element all the time [ToUser]
	Awaited                   // executed, and the owner waits for the lock, or for the notification [ToUser]
	NoRoom                    // an answer for which the ring has no room [ToUser]; only the program has a ring
	Handed                    // an answer [Hand]
	NumReasons
)

var reasonNames = [NumReasons]string{
	"executed", "repeated", "bad_form", "bad_checksum", "bad_code", "stale", "busy", "user", "no_slot", "path",
	"no_window", "no_access", "bounds", "operation", "locked", "interrupted", "awaited", "no_room", "handed",
}

func (r Reason) String() string { return reasonNames[r] }

// Serve executes or repeats the express request in frame, a UDP payload whose header
// names the session of slot i, and reports what became of it. With Answer, frame[:n] is
// the payload of the answer; otherwise frame is as it was. It is express_serve and
// express_answer of bpf/serve.h, and express_hand of bpf/hand.h for a frame that answers.
func (p *Program) Serve(i int, frame []byte) (n int, v Verdict, why Reason) {
	h, body, why := p.read(i, frame)
	switch {
	case why == NoSlot:
		return 0, ToUser, why
	case why != None:
		return 0, Drop, why
	case h.Flags == wire.FlagResponse:
		return 0, Hand, Handed
	case h.Flags == wire.FlagUser:
		return 0, ToUser, User
	}
	s := p.Place(i)
	begun, done := express.WordOf(h.Exchange, express.StateInterrupted), express.WordOf(h.Exchange, express.StateDone)
	w := atomic.LoadUint64(&s.Word)
	switch {
	case w == done && outcomeOf(s).Awaited:
		return 0, ToUser, Awaited
	case w == done:
		return p.answer(i, frame, &h, Repeated)
	case w == begun, w == express.WordOf(h.Exchange-1, express.StateDone):
	case w>>2 == h.Exchange:
		return 0, Drop, Busy
	default:
		return 0, Drop, Stale
	}
	r := plan{goesOn: w == begun}
	switch why := p.check(&r, atomic.LoadUint32(&s.Rank), body, h.Records); why {
	case None:
	case BadForm:
		return 0, Drop, why
	default:
		return 0, ToUser, why
	}
	if !atomic.CompareAndSwapUint64(&s.Word, w, express.WordOf(h.Exchange, express.StateProgram)) {
		return 0, Drop, Busy
	}
	from := 0
	if r.goesOn {
		if from = int(outcomeOf(s).Done); !r.mayGoOn(s, from) {
			atomic.SwapUint64(&s.Word, begun)
			return 0, Drop, BadForm
		}
	} else {
		if first := &r.steps[0]; first.Code == wire.CodeLock {
			if !take(first) {
				atomic.StoreUint64(&s.Word, w)
				return 0, ToUser, Locked
			}
			atomic.StoreUint64(&s.Locked, uint64(first.Window)+1)
			from = 1
		}
		atomic.StoreUint64(&s.Outcome, express.Outcome{Done: uint8(from)}.Pack())
	}
	switch why := p.run(s, &r, from); {
	case why != Interrupted:
		atomic.SwapUint64(&s.Word, done)
		if why == Awaited {
			return 0, ToUser, Awaited
		}
		return p.answer(i, frame, &h, None)
	case outcomeOf(s).Done == 0: // nothing was begun
		atomic.SwapUint64(&s.Word, w)
	default:
		atomic.SwapUint64(&s.Word, begun)
	}
	return 0, ToUser, Interrupted
}

// read reads a frame, and says why it is no request or answer that came as the peer of slot i has sent it.
func (p *Program) read(i int, frame []byte) (h express.Header, body []byte, why Reason) {
	h, body, fault := express.Read(frame)
	switch {
	case fault != wire.OK:
		return h, nil, BadForm
	case uint(i) >= uint(p.Len()) || atomic.LoadUint64(&p.Place(i).Session) != h.Session:
		return h, nil, NoSlot
	}
	key := p.RequestKey(i)
	if h.Flags == wire.FlagResponse {
		key = p.AnsweredKey(i)
	}
	switch express.Verify(frame, key) {
	case wire.OK:
		return h, body, None
	case wire.BadChecksum:
		return h, nil, BadChecksum
	case wire.BadCode:
		return h, nil, BadCode
	}
	return h, nil, BadForm
}

func outcomeOf(s *express.Place) express.Outcome {
	return express.UnpackOutcome(atomic.LoadUint64(&s.Outcome))
}

// mayGoOn reports whether a request may go on with an interrupted exchange of which so many
// records are done. One that has the exchange's number and other records may not: it would
// keep a lock for good, or give up one that another session holds.
func (r *plan) mayGoOn(s *express.Place, done int) bool {
	held, first := uint64(0), &r.steps[0]
	if first.Code == wire.CodeLock {
		held = uint64(first.Window) + 1
	}
	return done > 0 && done < r.n && atomic.LoadUint64(&s.Locked) == held
}

// take takes the lock that s asks for, if it is free.
func take(s *step) bool {
	kind := window.LockShared
	if s.Flags == wire.FlagExclusive {
		kind = window.LockExclusive
	}
	return !s.lock.Retired() && s.lock.Take(process, kind)
}

// run executes the records of a claimed exchange from the one at done on. A record whose
// window is gone is refused, which the slot's outcome tells.
func (p *Program) run(s *express.Place, r *plan, done int) (why Reason) {
	var result [express.MaxResults]byte
	at := 0
	for k := range r.steps[:r.n] {
		t := &r.steps[k]
		if k >= done {
			if p.interrupt != nil && t.lock == nil && !t.gone && p.interrupt() {
				return Interrupted
			}
			o := outcomeOf(s)
			switch {
			case t.gone:
				o.Fate |= 1 << k
			case t.Code == wire.CodeUnlock:
				_, tell := t.lock.Give(process)
				o.Awaited = o.Awaited || tell
			default:
				clear(result[:express.Padded(t.result)])
				t.execute(result[:t.result])
				if t.counts != nil && t.counts.Count(t.Token) {
					o.Awaited = true
				}
				for i := 0; i < t.result; i += 8 {
					atomic.StoreUint64(&s.Results[(at+i)/8], le.Uint64(result[i:]))
				}
			}
			if t.Code == wire.CodeUnlock {
				atomic.StoreUint64(&s.Locked, 0)
			}
			o.Done = uint8(k + 1)
			atomic.StoreUint64(&s.Outcome, o.Pack())
		}
		at += express.Padded(t.result)
	}
	o := outcomeOf(s)
	o.Length = uint32(r.results)
	atomic.StoreUint64(&s.Outcome, o.Pack())
	if o.Awaited {
		return Awaited
	}
	return None
}

// execute executes a record that is not of a lock.
func (s *step) execute(result []byte) {
	op, basic, data := datatype.Op(s.Op), datatype.Basic(s.Basic), s.Data
	switch s.Code {
	case wire.CodePut:
		words.CopyIn(s.mem, data)
	case wire.CodeGet:
		words.CopyOut(result, s.mem)
	case wire.CodeAccumulate:
		elements.Accumulate(op, basic, s.mem, data)
	case wire.CodeGetAccumulate:
		elements.GetAccumulate(op, basic, s.mem, data[wire.PartLen:], result)
	case wire.CodeCompareSwap:
		elements.CompareAndSwap(basic, s.mem, data[:len(data)/2], data[len(data)/2:], result)
	}
}

// answer makes frame the answer to the request h in it, whose exchange is done. A frame
// that is shorter than the first of its exchange contradicts it.
func (p *Program) answer(i int, frame []byte, h *express.Header, why Reason) (int, Verdict, Reason) {
	if wire.HeaderLen+int(outcomeOf(p.Place(i)).Length) > len(frame) {
		return 0, Drop, BadForm
	}
	n := p.Answer(i, frame, h, false)
	if n == 0 {
		return 0, Drop, Busy
	}
	return n, Answer, why
}
