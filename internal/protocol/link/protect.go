package link

import (
	"encoding/binary"
	"fmt"

	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// protect writes the header h to the frame with a payload of n bytes in slot i, and what shows
// the peer that the frame is from here and whole. It returns the frame's length. At the level seal
// the rest of the frame is encrypted afterwards.
func (l *Link) protect(s *Session, i int32, n int, h *wire.Header) int {
	b := l.cfg.Slab.Payload(i)
	if s.guard == nil {
		if l.trailer > 0 {
			panic("link: a frame would leave without protection")
		}
		h.Encode(b[:n])
		return n
	}
	if l.Now >= s.renewing.at {
		l.renew(s)
	}
	h.Put(b)
	n += secure.TrailerLen
	l.slots[i].sealed = s.guard.Encrypts()
	if s.guard.Seal(b[:n]) {
		oldest := s.guard.Sealed()
		if l.slots[i].state == slotFlight {
			oldest-- // this bundle is in no list yet
		}
		l.forget(s, oldest)
	}
	return n
}

// unseal makes the records of bundle i, which is to be sent again, what they were before it was
// sent. The slot is the only place where they are. If they are no more, it drops the bundle,
// has the session given up by the next Tick, and returns false: callers are in the midst of calls on s.
func (l *Link) unseal(s *Session, i int32) bool {
	p := &l.slots[i]
	if !p.sealed {
		return true
	}
	frame := l.cfg.Slab.Payload(i)[:p.length+secure.TrailerLen]
	if s.guard.Unseal(frame) {
		p.sealed = false
		return true
	}
	s.fault = fmt.Errorf("a frame to it of %d bytes with the number %d was lost, and cannot be sent again, since it cannot be decrypted: this process has written over memory that frames are sent from, or xdprma has forgotten the key, which is a bug to be reported",
		len(frame), secure.Number(frame))
	l.discard(s, i)
	s.markActive()
	l.WakeBy(l.Now)
	return false
}

// forget has the guard of s, at the beginning of an epoch, forget the keys that no bundle which may
// be sent again is sealed with: one in a list, or of the number oldest, or a later one.
func (l *Link) forget(s *Session, oldest uint64) {
	if !s.guard.Encrypts() {
		return
	}
	for w := range s.ways {
		oldest = min(oldest, l.oldestSealed(&s.ways[w].flight))
	}
	for c := range s.again {
		oldest = min(oldest, l.oldestSealed(&s.again[c]))
	}
	s.guard.Forget(oldest)
}

// oldestSealed returns the lowest number that a bundle of a list is sealed with, or the largest number
// that there is.
func (l *Link) oldestSealed(list *slotList) (oldest uint64) {
	oldest = ^uint64(0)
	for i := list.head; i != None; i = l.slots[i].next {
		if p := &l.slots[i]; p.sealed {
			oldest = min(oldest, secure.Number(l.cfg.Slab.Payload(i)[:p.length+secure.TrailerLen]))
		}
	}
	return oldest
}

// believe returns the session that a frame belongs to, and the frame without what protects it,
// if it is from the peer and whole; else it counts why not, and returns no session. It looks at
// nothing of a frame but the session's id before that is known.
func (l *Link) believe(frame []byte, h *wire.Header, path PathID) (*Session, []byte) {
	if l.trailer > 0 {
		s, payload := l.authentic(frame)
		if s == nil {
			return nil, nil
		}
		if f := h.Parse(payload); f != wire.OK {
			l.stats.Faults[f]++
			return nil, nil
		}
		return s, payload
	}
	if f := h.Decode(frame); f != wire.OK {
		l.stats.Faults[f]++
		return nil, nil
	}
	if h.Kind == wire.KindHello {
		l.receiveHello(path, frame[wire.HeaderLen:])
		return nil, nil
	}
	s := l.sessionByID(h.Session)
	if len(l.waiting) > 0 {
		if a := l.waiting[h.Session]; a != nil {
			s = l.arise(a)
		}
	}
	if s == nil {
		l.stats.Unknown++
	}
	return s, frame
}

// authentic is believe of a frame with a trailer, whose header is still to be looked at.
func (l *Link) authentic(frame []byte) (*Session, []byte) {
	if f := wire.Form(frame); f != wire.OK {
		l.stats.Faults[f]++
		return nil, nil
	}
	id := binary.LittleEndian.Uint64(frame[sessionAt:])
	s := l.sessionByID(id)
	var a *answered
	var guard *secure.Guard
	if s != nil && s.guard != nil {
		guard = s.guard
	} else if a = l.waiting[id]; a != nil {
		guard = a.guard
	} else {
		l.stats.Unknown++
		return nil, nil
	}
	payload, verdict := guard.Open(frame, l.Now)
	switch {
	case verdict == secure.Replayed:
		l.stats.Faults[wire.Replayed]++
		return nil, nil
	case verdict != secure.Genuine:
		l.stats.Faults[wire.BadTag]++
		if verdict == secure.Worn {
			l.wornOut(s, a)
		}
		return nil, nil
	case a != nil:
		if s = l.arise(a); s == nil {
			l.stats.Unknown++
		}
	}
	if s != nil {
		l.kept(s)
	}
	return s, payload
}

// wornOut ends a session, or the wait for the first frame of one, since so many frames were forged in its name
// that the next could be taken for genuine.
func (l *Link) wornOut(s *Session, a *answered) {
	if a != nil {
		l.withdraw(a)
		return
	}
	s.GiveUp(errWorn)
}

// ForgetKeys wipes the keys of all sessions, when nothing will be sent or received any more.
func (l *Link) ForgetKeys() {
	for _, s := range l.byID {
		forgetKeys(s.guard, s.codes)
	}
	for _, a := range l.waiting {
		a.forget()
	}
}

// sessionAt is where a frame names its session.
const sessionAt = 8
