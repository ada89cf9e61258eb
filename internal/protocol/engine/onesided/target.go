package onesided

import (
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/internal/words"
	"github.com/xdprma/xdprma/mpierr"
)

// Target has the requests of peers take effect on the windows of this rank.
type Target struct {
	*base
	locks     *Locks
	origin    *Origin
	walks     walks // scratch
	typeBytes int   // of the datatypes that peers have defined here, as encoded
}

// targetSide is what a target keeps about a peer.
type targetSide struct {
	posting   []*Access   // those whose posts the peer is to be told of
	peerTypes *takenTypes // datatypes that the peer has defined here, or nil
	hasLeft   bool        // the peer has left in good order, and holds no lock any more
}

// end takes in that s has left in good order.
func (x *Target) end(s *Peer) { s.hasLeft = true }

// fail forgets what s, which is dead, was to be told and has defined.
func (x *Target) fail(s *Peer) {
	if s.peerTypes != nil {
		x.typeBytes -= s.peerTypes.bytes
	}
	s.peerTypes, s.posting = nil, nil
}

// Apply lets the records of b, which s has sent, take effect, from where an earlier
// attempt stopped. It returns false if no transmit slot was free for an answer, or a datatype has
// to wait: then it must be called again, and goes on with the same record.
func (x *Target) Apply(s *Peer, b *link.Bundle) bool {
	x.turn++
	if b.Upper.Begun && s.hasLeft { // its lock was granted, and given up when the peer left
		return true
	}
	var r wire.Record
	for b.At < len(b.Body) {
		n := wire.NextRecord(b.Body[b.At:], &r)
		if n == 0 {
			// The checksum was right, so the peer has a bug; it must not wait in vain.
			r = wire.Record{}
			if !x.sendRefusal(s, &r, mpierr.Intern) {
				return false
			}
			x.cfg.Frames.Faults[wire.BadRecord]++
			b.At = len(b.Body)
			break
		}
		if r.Code == wire.CodeLock && b.At == 0 && !b.Upper.Begun && b.Upper.Refuse == mpierr.Success && !s.hasLeft {
			granted, class := x.locks.acquire(s, &r)
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
				x.locks.enqueue(b)
				return true
			}
		}
		class := x.applyRecord(s, b, &r)
		if class == stuck || class != mpierr.Success && !x.sendRefusal(s, &r, class) {
			return false
		}
		b.Upper.Denied = class != mpierr.Success
		b.At += n
		b.Done = 0
	}
	if b.Upper.Begun {
		if !x.respond(s, &wire.Record{Code: wire.CodeGranted, Window: b.Upper.Key, Token: b.Upper.Token}) {
			return false
		}
		b.Upper.Begun = false
	}
	return true
}

// stuck is what applyRecord returns when there is no room for an answer, or a datatype has to wait.
const stuck mpierr.Class = -1

func (x *Target) applyRecord(s *Peer, b *link.Bundle, r *wire.Record) mpierr.Class {
	if b.Upper.Refuse != mpierr.Success {
		return b.Upper.Refuse
	}
	switch r.Code.Row().TakenBy {
	case wire.ByWindow:
	case wire.ByTarget:
		return x.takeNote(s, r)
	case wire.ByMessages, wire.ByMembership:
		return x.cfg.Others.Request(b.Session, *r)
	default:
		return x.malformed()
	}
	if s.hasLeft {
		return mpierr.ProcFailed // others may hold its locks now
	}
	w, class := x.windowFor(s, r)
	if w == nil {
		if class == mpierr.Win && r.Code == wire.CodeGet && r.Flags&wire.FlagTyped == 0 {
			return x.applyFetch(b, r)
		}
		return class
	}
	if r.Notifies() && int(r.Token) >= w.Counters().Len() {
		return mpierr.Arg
	}
	if r.Code == wire.CodeNotify {
		x.takeNotify(s, b, w, r)
		return mpierr.Success
	}
	if class = x.applyTo(s, b, w, r); class == mpierr.Success && r.Notifies() {
		x.count(s, w, r.Token)
	}
	return class
}

// takeNote takes in a request that asks for no right to a window.
func (x *Target) takeNote(s *Peer, r *wire.Record) mpierr.Class {
	switch r.Code {
	case wire.CodePing:
		return mpierr.Success
	case wire.CodeInquiry:
		return x.takeInquiry(s, r)
	case wire.CodePost:
		return x.takePost(s, r)
	case wire.CodeComplete:
		return x.takeComplete(s, r.Window)
	case wire.CodeGiven:
		return x.locks.takeGiven(r.Window)
	case wire.CodeType:
		return x.takeType(s, r)
	case wire.CodeMark:
		x.completed(s.ID(), r.Window, r.Flags&wire.FlagReads != 0)
		return mpierr.Success
	}
	return x.malformed()
}

// malformed counts a record that no peer sends, and returns why it is refused.
func (x *Target) malformed() mpierr.Class {
	x.cfg.Frames.Faults[wire.BadRecord]++
	return mpierr.Intern
}

// applyTo has a request that communicates take effect on a window, or the end of a lock.
func (x *Target) applyTo(s *Peer, b *link.Bundle, w *windows.Window, r *wire.Record) (class mpierr.Class) {
	if r.Flags&wire.FlagTyped != 0 {
		class = x.applyTyped(s, b, w, r)
		if w.Checker() != nil && class == mpierr.Success {
			x.observeTyped(s, w.Checker(), r)
		}
		return class
	}
	switch r.Code {
	case wire.CodePut:
		class = w.Put(r.Disp, r.Data)
	case wire.CodeAccumulate:
		class = w.Accumulate(datatype.Op(r.Op), datatype.Basic(r.Basic), r.Disp, r.Data)
	case wire.CodeGet:
		class = x.applyGet(b, w, r)
	case wire.CodeGetAccumulate:
		class = x.applyGetAccumulate(s, w, r)
	case wire.CodeCompareSwap:
		class = x.applyCompareSwap(s, w, r)
	case wire.CodeUnlock:
		return x.locks.release(w.ID(), s.ID())
	case wire.CodeLock:
		return mpierr.RMASync // a lock record starts a bundle
	default:
		return x.malformed()
	}
	if w.Checker() != nil && class == mpierr.Success {
		x.observe(s, w.Checker(), r)
	}
	return class
}

func (x *Target) applyGet(b *link.Bundle, w *windows.Window, r *wire.Record) mpierr.Class {
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
	return x.answerGet(b, r.Token, offset, mem)
}

// applyFetch answers a get of a part of what this rank offers to the peer. Nothing else can
// be done to an offer, and nothing by others.
func (x *Target) applyFetch(b *link.Bundle, r *wire.Record) mpierr.Class {
	data, ok := x.cfg.Others.Offered(b.Session, r.Window)
	if !ok {
		return mpierr.Win
	}
	if len(r.Data) != wire.PartLen {
		return mpierr.Intern
	}
	offset, want := wire.Part(r.Data)
	if want > wire.MaxPart {
		return mpierr.Size
	}
	if n := uint64(len(data)); r.Disp > n || uint64(want) > n-r.Disp {
		return mpierr.RMARange
	}
	return x.answerGet(b, r.Token, offset, data[r.Disp:][:want])
}

// answerGet answers a get with as many results as mem, what was asked for, needs, straight
// into transmit slots. The results fill that of the operation from offset on.
func (x *Target) answerGet(b *link.Bundle, token, offset uint32, mem []byte) mpierr.Class {
	s := b.Session
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
		words.CopyOut(data, mem[b.Done:int(b.Done)+n])
		x.link.Commit(i, n)
		b.Done += uint32(n)
		if int(b.Done) == len(mem) {
			return mpierr.Success
		}
	}
}

func (x *Target) applyGetAccumulate(s *Peer, w *windows.Window, r *wire.Record) mpierr.Class {
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
		x.link.Commit(i, int(want))
	}
	return class
}

func (x *Target) applyCompareSwap(s *Peer, w *windows.Window, r *wire.Record) mpierr.Class {
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
		x.link.Commit(i, n)
	}
	return class
}

// respond sends an answer without data.
func (x *base) respond(s *Peer, r *wire.Record) bool {
	i, _ := s.Reserve(r, 0)
	if i == link.None {
		return false
	}
	x.link.Commit(i, 0)
	return true
}

// sendRefusal tells the origin that the target did not do what r asked, and why.
func (x *Target) sendRefusal(s *Peer, r *wire.Record, class mpierr.Class) bool {
	f := refusalOf(r, class)
	a := f.Record()
	i, data := s.Reserve(&a, wire.RefusalLen)
	if i == link.None {
		return false
	}
	f.Put(data)
	x.link.Commit(i, wire.RefusalLen)
	x.totals.Refused++
	x.countRefusal(class)
	if f.Token == 0 {
		s.Told.Sent++
	}
	return true
}

// takeInquiry answers whether a request of s for the lock of a window waits; without a
// token, that everything before has been answered.
func (x *Target) takeInquiry(s *Peer, r *wire.Record) mpierr.Class {
	if r.Token != 0 && !x.locks.waits(s, r.Window) {
		return mpierr.Success // it has been granted or refused, which s hears first, or was never asked for
	}
	if !x.respond(s, &wire.Record{Code: wire.CodeWaits, Window: r.Window, Token: r.Token, Disp: r.Disp}) {
		return stuck
	}
	return mpierr.Success
}

// answered reports whether the origin of a request keeps an operation that awaits its answer.
func answered(c wire.Code) bool {
	a := c.Row().Answer
	return a == wire.CodeResult || a == wire.CodeGranted
}
