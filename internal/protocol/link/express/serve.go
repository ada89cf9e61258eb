package express

import (
	"sync/atomic"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/window"
)

// By says who serves a request.
type By uint8

// The two that may serve one.
const (
	ByProgram By = 1
	ByUser    By = 2
)

// The states of an exchange; busy is the By that serves it.
const (
	stateInterrupted uint64 = 0 // begun, and free to be gone on with
	stateDone        uint64 = 3
)

func word(exchange, state uint64) uint64 { return exchange<<2 | state }

// Verdict says what becomes of a frame.
type Verdict uint8

// The verdicts.
const (
	Answer Verdict = iota // the frame is the answer now
	Drop                  // it is not to be answered
	ToUser                // the program passes it on; user space takes it as a bundle
)

// Reason says why. The program counts each by its name.
type Reason uint8

// The reasons. In brackets, what Serve says with them.
const (
	None        Reason = iota // executed [Answer]; or an answer itself [ToUser]
	Repeated                  // the exchange was done before [Answer]
	BadForm                   // the frame contradicts the protocol [Drop]
	BadChecksum               // it was damaged on the way [Drop]
	Stale                     // the exchange is an earlier one, or not the next [Drop]
	Busy                      // the exchange is under way [Drop]
	User                      // the frame is for user space [ToUser]
	NoSlot                    // its session has no slot [ToUser]
	Path                      // it came from elsewhere, or not over plain IPv4 [ToUser]; only the program looks
	NoWindow                  // no such window is exposed [ToUser]
	Outsider                  // the origin may not access the window [ToUser]
	Bounds                    // outside of the window, or not in one page of memory [ToUser]
	Operation                 // a record that the tier does not execute [ToUser]
	Locked                    // the window's lock is not free [ToUser]
	Interrupted               // others changed an element all the time; user space goes on [ToUser]
	Awaited                   // executed, and the owner of the lock is waiting for it [ToUser; Answer in user space]
	NumReasons
)

var reasonNames = [NumReasons]string{
	"executed", "repeated", "bad_form", "bad_checksum", "stale", "busy", "user", "no_slot", "path",
	"no_window", "outsider", "bounds", "operation", "locked", "interrupted", "awaited",
}

func (r Reason) String() string { return reasonNames[r] }

// Serve executes or repeats the express request in frame, a UDP payload whose header
// names the session of slot i, and reports what became of it. With Answer, frame[:n] is
// the payload of the answer; with ToUser frame is as it was. It is the twin of serve in
// bpf/express.h.
func (t *Tables) Serve(i int, frame []byte, by By) (n int, v Verdict, why Reason) {
	if len(frame) >= wire.HeaderLen && frame[6]&wire.FlagResponse != 0 {
		return 0, ToUser, None
	}
	h, body, fault := Decode(frame)
	switch {
	case fault == wire.BadChecksum:
		return 0, Drop, BadChecksum
	case fault != wire.OK:
		return 0, Drop, BadForm
	case uint(i) >= uint(len(t.slots)) || atomic.LoadUint64(&t.slots[i].Session) != h.Session:
		return 0, ToUser, NoSlot
	case h.Flags == wire.FlagUser && by == ByProgram:
		return 0, ToUser, User
	}
	s := &t.slots[i]
	begun := word(h.Exchange, stateInterrupted)
	w := atomic.LoadUint64(&s.Word)
	switch {
	case w == word(h.Exchange, stateDone):
		return s.answer(frame, &h, by, Repeated)
	case w == begun, w == word(h.Exchange-1, stateDone):
	case w>>2 == h.Exchange:
		return 0, Drop, Busy
	default:
		return 0, Drop, Stale
	}
	var p plan
	goesOn := w == begun && by == ByUser && s.progress() > 0
	switch why := t.check(&p, atomic.LoadUint32(&s.Rank), body, h.Records, goesOn); why {
	case None:
	case BadForm:
		return 0, Drop, why
	default:
		return 0, ToUser, why
	}
	if !atomic.CompareAndSwapUint64(&s.Word, w, word(h.Exchange, uint64(by))) {
		return 0, Drop, Busy
	}
	done := 0
	if w == begun {
		done = s.progress()
		if !p.goesOn(s, done) {
			atomic.SwapUint64(&s.Word, begun)
			return 0, Drop, BadForm
		}
	}
	if done == 0 {
		if first := &p.steps[0]; first.Code == wire.CodeLock {
			if !take(first) {
				atomic.StoreUint64(&s.Word, w)
				return 0, ToUser, Locked
			}
			atomic.StoreUint64(&s.Locked, uint64(first.Window)+1)
			done = 1
		}
		atomic.StoreUint64(&s.Outcome, outcome{progress: uint8(done)}.pack())
	}
	awaited, at := t.run(s, &p, done, by)
	if at < p.n {
		atomic.StoreUint64(&s.Outcome, outcome{progress: uint8(at)}.pack())
		atomic.SwapUint64(&s.Word, begun)
		return 0, ToUser, Interrupted
	}
	atomic.StoreUint64(&s.Outcome, outcome{uint32(p.results), p.fate, uint8(p.n), by}.pack())
	atomic.SwapUint64(&s.Word, word(h.Exchange, stateDone))
	switch {
	case !awaited:
		return s.answer(frame, &h, by, None)
	case by == ByProgram:
		return 0, ToUser, Awaited
	}
	return s.answer(frame, &h, by, Awaited)
}

// progress returns how many records of the exchange are done.
func (s *place) progress() int { return int(unpackOutcome(atomic.LoadUint64(&s.Outcome)).progress) }

// goesOn reports whether a request may go on with an exchange of which so many records are
// done. One that has the exchange's number and other records may not: it would keep a lock
// for good, or give up one that another session holds.
func (p *plan) goesOn(s *place, done int) bool {
	held, first := uint64(0), &p.steps[0]
	if first.Code == wire.CodeLock {
		held = uint64(first.Window) + 1
	}
	return done == 0 || done < p.n && atomic.LoadUint64(&s.Locked) == held
}

// take takes the lock that s asks for, if it is free.
func take(s *step) bool {
	kind := window.LockShared
	if s.Flags == wire.FlagExclusive {
		kind = window.LockExclusive
	}
	return !s.lock.Retired() && s.lock.Take(Program, kind)
}

// run executes the records of a claimed exchange from the one at done on, and returns how
// many are done: fewer than all if the program is interrupted. A record whose window is gone
// is refused, which the fate in p tells. awaited says that the lock was given up to requests
// that wait at its owner.
func (t *Tables) run(s *place, p *plan, done int, by By) (awaited bool, all int) {
	buffer := t.buffer.Swap(nil)
	if buffer == nil {
		buffer = new(results)
	}
	at := 0
	for k := range p.steps[:p.n] {
		r := &p.steps[k]
		if k >= done {
			if by == ByProgram && t.interrupt != nil && r.lock == nil && t.interrupt() {
				t.buffer.Store(buffer)
				return false, k
			}
			clear(buffer[max(0, Padded(r.result)-8):Padded(r.result)])
			switch {
			case r.gone:
				p.fate |= 1 << k
				clear(buffer[:r.result])
			case r.Code == wire.CodeUnlock:
				_, awaited = r.lock.Give(Program)
			default:
				r.execute(buffer[:r.result])
			}
			if r.Code == wire.CodeUnlock {
				atomic.StoreUint64(&s.Locked, 0)
			}
			for i := 0; i < r.result; i += 8 {
				atomic.StoreUint64(&s.Results[(at+i)/8], le.Uint64(buffer[i:]))
			}
			atomic.StoreUint64(&s.Outcome, outcome{progress: uint8(k + 1)}.pack())
		}
		at += Padded(r.result)
	}
	t.buffer.Store(buffer)
	return awaited, p.n
}

// execute executes a record that is not of a lock.
func (s *step) execute(result []byte) {
	op, basic, data := datatype.Op(s.Op), datatype.Basic(s.Basic), s.Data
	switch s.Code {
	case wire.CodePut:
		datatype.CopyIn(s.mem, data)
	case wire.CodeGet:
		datatype.CopyOut(result, s.mem)
	case wire.CodeAccumulate:
		datatype.Accumulate(op, basic, s.mem, data)
	case wire.CodeGetAccumulate:
		datatype.GetAccumulate(op, basic, s.mem, data[wire.PartLen:], result)
	case wire.CodeCompareSwap:
		datatype.CompareAndSwap(basic, s.mem, data[:len(data)/2], data[len(data)/2:], result)
	}
}

// answer makes frame the answer to the request h in it, whose exchange is done. A frame
// that is shorter than the first of its exchange contradicts it.
func (s *place) answer(frame []byte, h *Header, by By, why Reason) (int, Verdict, Reason) {
	o := unpackOutcome(atomic.LoadUint64(&s.Outcome))
	n := wire.HeaderLen + int(o.length)
	if n > len(frame) {
		return 0, Drop, BadForm
	}
	for i := wire.HeaderLen; i < n; i += 8 {
		le.PutUint64(frame[i:], atomic.LoadUint64(&s.Results[(i-wire.HeaderLen)/8]))
	}
	remote := atomic.LoadUint64(&s.PeerSession)
	if atomic.LoadUint64(&s.Word) != word(h.Exchange, stateDone) {
		return 0, Drop, Busy // the origin has the answer, and went on
	}
	Request(frame[:n], Header{
		Session: remote, Exchange: h.Exchange, Try: h.Try, Flags: wire.FlagResponse, Fate: o.fate,
		Before: why == Repeated && by == ByUser && h.Flags == wire.FlagUser && o.by == ByProgram,
	})
	return n, Answer, why
}

// Claim claims an exchange of slot i for user space to take its request as a bundle. It
// returns false if the exchange is not the next, or is under way. One of which a record is
// done is: all of it would take effect with the bundle, and that record twice.
func (t *Tables) Claim(i int, exchange uint64) bool {
	s, claimed := &t.slots[i], word(exchange, uint64(ByUser))
	if atomic.CompareAndSwapUint64(&s.Word, word(exchange-1, stateDone), claimed) {
		return true
	}
	begun := word(exchange, stateInterrupted)
	if !atomic.CompareAndSwapUint64(&s.Word, begun, claimed) {
		return false
	}
	if s.progress() > 0 {
		atomic.SwapUint64(&s.Word, begun)
		return false
	}
	return true
}

// Unclaim gives a claim up, as if it had not been made.
func (t *Tables) Unclaim(i int, exchange uint64) {
	atomic.CompareAndSwapUint64(&t.slots[i].Word, word(exchange, uint64(ByUser)), word(exchange-1, stateDone))
}

// PublishTaken ends a claimed exchange: its request was taken as a bundle.
func (t *Tables) PublishTaken(i int, exchange uint64) {
	s := &t.slots[i]
	atomic.StoreUint64(&s.Outcome, outcome{fate: FateTaken, by: ByUser}.pack())
	atomic.CompareAndSwapUint64(&s.Word, word(exchange, uint64(ByUser)), word(exchange, stateDone))
}

// Taken makes frame, the request of an exchange of slot i that PublishTaken ended, its
// answer of n bytes.
func (t *Tables) Taken(i int, frame []byte) (n int) {
	Request(frame[:wire.HeaderLen], Header{
		Session:  atomic.LoadUint64(&t.slots[i].PeerSession),
		Exchange: le.Uint64(frame[32:]), Try: le.Uint64(frame[24:]), Flags: wire.FlagResponse, Fate: FateTaken,
	})
	return wire.HeaderLen
}
