package engine

import (
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/link"
	"github.com/xdprma/xdprma/internal/message"
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/wire"
	"github.com/xdprma/xdprma/window"
)

// apply lets the records of b take effect, from where an earlier attempt stopped.
// It returns false if no transmit slot was free for an answer: then it must be
// called again, and goes on with the same record.
func (e *Engine) apply(b *link.Bundle) bool {
	s := sessionOf(b.Session)
	e.turn++
	var r wire.Record
	for b.At < len(b.Body) {
		n := wire.NextRecord(b.Body[b.At:], &r)
		if n == 0 {
			// The checksum was right, so the peer has a bug; it must not wait in vain.
			r = wire.Record{}
			if !e.sendRefusal(s, &r, mpierr.Intern) {
				return false
			}
			e.Stats.Faults[wire.BadRecord]++
			b.At = len(b.Body)
			break
		}
		if r.Code == wire.CodeLock && b.At == 0 && !b.Upper.Begun && b.Upper.Refuse == mpierr.Success {
			granted, class := e.acquire(s, &r)
			switch {
			case class != mpierr.Success:
				b.Upper.Refuse = class
			case granted:
				b.Upper = link.Memo{Begun: true, Key: r.Window, Token: r.Token}
				b.At += n
				continue
			default:
				b.Upper = link.Memo{Begun: true, Key: r.Window, Token: r.Token}
				b.At += n
				e.enqueue(b)
				return true
			}
		}
		if class := e.applyRecord(b, &r); class == stuck || class != mpierr.Success && !e.sendRefusal(s, &r, class) {
			return false
		}
		b.At += n
		b.Done = 0
	}
	if b.Upper.Begun {
		if !e.respond(s, &wire.Record{Code: wire.CodeGranted, Window: b.Upper.Key, Token: b.Upper.Token}) {
			return false
		}
		b.Upper.Begun = false
	}
	return true
}

// stuck is what applyRecord returns when there is no room for an answer.
const stuck mpierr.Class = -1

func (e *Engine) applyRecord(b *link.Bundle, r *wire.Record) mpierr.Class {
	s := sessionOf(b.Session)
	if b.Upper.Refuse != mpierr.Success {
		return b.Upper.Refuse
	}
	switch r.Code {
	case wire.CodePing:
		return mpierr.Success
	case wire.CodeBye:
		e.takeBye(s)
		return mpierr.Success
	case wire.CodePost:
		return e.takePost(s, r.Window)
	case wire.CodeComplete:
		return e.takeComplete(s, r.Window)
	case wire.CodeGiven:
		return e.takeGiven(r.Window)
	case wire.CodeMessage, wire.CodeOffer:
		return e.countOutsider(e.TakeMessage(&s.mail, r))
	case wire.CodeRest:
		return e.TakeRest(&s.mail, r)
	case wire.CodeRevoke:
		return e.countOutsider(e.TakeRevoke(b.Session, r))
	case wire.CodeGone:
		return e.TakeGone(r)
	case wire.CodeTaken:
		return e.TakeTaken(&s.mail, r.Window)
	case wire.CodeWithdrawn:
		return e.TakeWithdrawn(&s.mail, r.Window)
	case wire.CodeType:
		return e.takeType(s, r)
	case wire.CodeMark:
		e.completed(s.ID(), r.Window, r.Flags&wire.FlagReads != 0)
		return mpierr.Success
	}
	if r.Window >= message.Offers {
		return e.applyPull(b, r)
	}
	w, class := e.windowFor(s, r.Window)
	if w == nil {
		return class
	}
	if r.Flags&wire.FlagTyped != 0 {
		class = e.applyTyped(b, w, r)
		if w.Checker() != nil && class == mpierr.Success {
			e.observeTyped(s, w.Checker(), r)
		}
		return class
	}
	switch r.Code {
	case wire.CodePut:
		class = w.Put(r.Disp, r.Data)
	case wire.CodeAccumulate:
		class = w.Accumulate(datatype.Op(r.Op), datatype.Basic(r.Basic), r.Disp, r.Data)
	case wire.CodeGet:
		class = e.applyGet(b, w, r)
	case wire.CodeGetAccumulate:
		class = e.applyGetAccumulate(s, w, r)
	case wire.CodeCompareSwap:
		class = e.applyCompareSwap(s, w, r)
	case wire.CodeUnlock:
		return e.release(w.ID(), s.ID())
	case wire.CodeLock:
		return mpierr.RMASync // a lock record starts a bundle
	default:
		e.Stats.Faults[wire.BadRecord]++
		return mpierr.Intern
	}
	if w.Checker() != nil && class == mpierr.Success {
		e.observe(s, w.Checker(), r)
	}
	return class
}

// countOutsider counts a request of a rank that is not in the group of a context.
func (e *Engine) countOutsider(class mpierr.Class) mpierr.Class {
	if class == mpierr.Comm {
		e.Stats.Outsiders++
	}
	return class
}

// windowFor returns the window that a request of s means, or nil and why it is refused: no
// rank outside the window's group may do anything to it.
func (e *Engine) windowFor(s *Session, id uint32) (*window.Window, mpierr.Class) {
	w := e.cfg.Windows.Lookup(id)
	switch {
	case w == nil:
		return nil, mpierr.Win
	case !w.Admits(s.Rank()):
		e.Stats.Outsiders++
		return nil, mpierr.Group
	}
	return w, mpierr.Success
}

func (e *Engine) applyGet(b *link.Bundle, w *window.Window, r *wire.Record) mpierr.Class {
	if len(r.Data) != wire.PartLen {
		return mpierr.Intern
	}
	offset, want := wire.Part(r.Data)
	if want > wire.MaxPart {
		return mpierr.Size
	}
	mem, class := w.Slice(r.Disp, int(want))
	if class != mpierr.Success {
		return class
	}
	return e.answerGet(b, r.Token, offset, mem)
}

// answerGet answers a get with as many results as mem, what was asked for, needs, straight
// into transmit slots. The results fill that of the operation from offset on.
func (e *Engine) answerGet(b *link.Bundle, token, offset uint32, mem []byte) mpierr.Class {
	s := sessionOf(b.Session)
	for {
		n := len(mem) - int(b.Done)
		if left := s.Space(link.Response); n > left {
			if n = left; n < minFragment {
				s.CloseBundle(link.Response)
				n = min(len(mem)-int(b.Done), s.Space(link.Response))
			}
		}
		a := wire.Record{Code: wire.CodeResult, Token: token, Disp: uint64(offset) + uint64(b.Done)}
		i, data := s.Reserve(&a, n)
		if i == link.None {
			return stuck
		}
		datatype.CopyOut(data, mem[b.Done:int(b.Done)+n])
		e.Commit(i, n)
		b.Done += uint32(n)
		if int(b.Done) == len(mem) {
			return mpierr.Success
		}
	}
}

func (e *Engine) applyGetAccumulate(s *Session, w *window.Window, r *wire.Record) mpierr.Class {
	if len(r.Data) < wire.PartLen {
		return mpierr.Intern
	}
	offset, want := wire.Part(r.Data)
	if wire.HeaderLen+wire.RecordSize(int(min(want, 1<<30))) > s.Limit() {
		return mpierr.Size
	}
	a := wire.Record{Code: wire.CodeResult, Token: r.Token, Disp: uint64(offset)}
	i, result := s.Reserve(&a, int(want))
	if i == link.None {
		return stuck
	}
	class := w.GetAccumulate(datatype.Op(r.Op), datatype.Basic(r.Basic), r.Disp, r.Data[wire.PartLen:], result)
	if class == mpierr.Success {
		e.Commit(i, int(want))
	}
	return class
}

func (e *Engine) applyCompareSwap(s *Session, w *window.Window, r *wire.Record) mpierr.Class {
	n := len(r.Data) / 2
	if 2*n != len(r.Data) || n > 8 {
		return mpierr.Count
	}
	a := wire.Record{Code: wire.CodeResult, Token: r.Token}
	i, result := s.Reserve(&a, n)
	if i == link.None {
		return stuck
	}
	class := w.CompareAndSwap(datatype.Basic(r.Basic), r.Disp, r.Data[:n], r.Data[n:], result)
	if class == mpierr.Success {
		e.Commit(i, n)
	}
	return class
}

// respond sends an answer without data.
func (e *Engine) respond(s *Session, r *wire.Record) bool {
	i, _ := s.Reserve(r, 0)
	if i == link.None {
		return false
	}
	e.Commit(i, 0)
	return true
}

// sendRefusal tells the origin that the target did not do what r asked, and why.
func (e *Engine) sendRefusal(s *Session, r *wire.Record, class mpierr.Class) bool {
	f := wire.Refusal{Code: r.Code, Window: r.Window, Token: r.Token, Disp: r.Disp, Class: uint32(class)}
	if !answered(r.Code) {
		f.Token = 0
	}
	a := f.Record()
	i, data := s.Reserve(&a, wire.RefusalLen)
	if i == link.None {
		return false
	}
	f.Put(data)
	e.Commit(i, wire.RefusalLen)
	e.Stats.Refused++
	if f.Token == 0 {
		s.Told.Sent++
	}
	return true
}

// answered reports whether the origin of a request expects an answer to it.
func answered(c wire.Code) bool {
	switch c {
	case wire.CodeGet, wire.CodeGetAccumulate, wire.CodeCompareSwap, wire.CodeLock:
		return true
	}
	return false
}
