package engine

import (
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/wire"
)

// MaxMessage is the largest message in bytes: one fits the smallest frame.
const MaxMessage = 1024

// RevokeTag is the tag of a message that ends a context at its receiver: whoever
// waits for a message of it gives up. Its word names the rank that failed.
const RevokeTag = ^uint32(0)

// message is one that has arrived and that nobody has asked for yet.
type message struct {
	context, tag uint32
	from         int
	word         uint64
	data         []byte
}

// inbox holds messages in the order of their arrival. Messages of one sender
// arrive in the order sent.
type inbox struct {
	list  []*message
	free  []*message
	bytes int

	revoked     map[uint32]int // the failed rank, by context
	revocations []uint32       // those contexts, oldest first
}

// Send queues a message to s, or to this rank itself if s is nil; context and
// tag let the receiver ask for it, and word is the user's. It returns false if
// there is no room now. Messages to one rank arrive in the order sent.
func (e *Engine) Send(now int64, s *Session, context, tag uint32, word uint64, data []byte) bool {
	e.now = now
	if len(data) > MaxMessage {
		panic("engine: message longer than MaxMessage")
	}
	if s == nil {
		return e.deliver(e.cfg.Rank, context, tag, word, data) == mpierr.Success
	}
	if s.state == dead {
		return true // the receiver's failure shows where its answer is waited for
	}
	i := e.room(s, request, len(data))
	if i == none {
		return false
	}
	r := wire.Record{Code: wire.CodeMessage, Window: context, Token: tag, Disp: word}
	copy(e.appendRecord(i, &r, len(data)), data)
	e.slots[i].flags |= wire.FlagOrdered
	e.markDirty(s)
	return true
}

// SendRoom reports whether Send to s may succeed.
func (e *Engine) SendRoom(s *Session) bool {
	if s == nil {
		return e.inbox.bytes+MaxMessage+wire.RecordLen <= e.cfg.MaxUnread
	}
	return s.state == dead || s.open[request] != none || e.mayOpen(s, request)
}

// deliver puts a message into the inbox.
func (e *Engine) deliver(from int, context, tag uint32, word uint64, data []byte) mpierr.Class {
	if len(data) > MaxMessage {
		return mpierr.Size
	}
	in := &e.inbox
	if tag == RevokeTag {
		e.revoke(context, int(word))
		return mpierr.Success
	}
	if in.bytes+len(data)+wire.RecordLen > e.cfg.MaxUnread {
		return stuck
	}
	var m *message
	if n := len(in.free); n > 0 {
		m = in.free[n-1]
		in.free = in.free[:n-1]
	} else {
		m = &message{}
	}
	m.context, m.tag, m.from, m.word = context, tag, from, word
	m.data = append(m.data[:0], data...)
	in.list = append(in.list, m)
	in.bytes += len(data) + wire.RecordLen
	return mpierr.Success
}

// revoke ends a context, and has all others told. A peer cannot fill memory with
// contexts that do not exist: beyond a limit that no program reaches, revocations
// are ignored, and waiters find out by silence.
func (e *Engine) revoke(context uint32, failed int) {
	in := &e.inbox
	if in.revoked == nil {
		in.revoked = map[uint32]int{}
	}
	if _, ok := in.revoked[context]; ok || len(in.revoked) == 1<<16 {
		return
	}
	in.revoked[context] = failed
	in.revocations = append(in.revocations, context)
	e.breakMessages(context, failed)
	for rank := range e.cfg.Size { // not the map: the same calls give the same frames
		if s := e.byRank[rank]; s != nil && s.state == open {
			e.markDirty(s)
		}
	}
}

// tellRevoked passes on the revocations that s has not been sent.
func (e *Engine) tellRevoked(s *Session) {
	in := &e.inbox
	for s.told < len(in.revocations) {
		context := in.revocations[s.told]
		if !e.Send(e.now, s, context, RevokeTag, uint64(in.revoked[context]), nil) {
			return // there is more to send to s, so it will be served again
		}
		s.told++
	}
}

// Revoked reports whether a context was revoked, and because of which rank.
func (e *Engine) Revoked(context uint32) (failed int, ok bool) {
	failed, ok = e.inbox.revoked[context]
	return failed, ok
}

// Revoke ends a context at this rank, at all ranks that it has a session with or
// will have one with, and so, from one to the next, at all that wait for each other.
func (e *Engine) Revoke(now int64, context uint32, failed int) {
	e.now = now
	e.revoke(context, failed)
}

func (in *inbox) find(context, tag uint32, from int) int {
	for i, m := range in.list {
		if m.context == context && m.tag == tag && m.from == from {
			return i
		}
	}
	return -1
}

// Take returns the oldest message of a context with that tag from a rank: its
// word, and its data appended to buf. ok is false if there is none.
func (e *Engine) Take(context, tag uint32, from int, buf []byte) (word uint64, data []byte, ok bool) {
	in := &e.inbox
	i := in.find(context, tag, from)
	if i < 0 {
		return 0, buf, false
	}
	m := in.list[i]
	word, data = m.word, append(buf, m.data...)
	copy(in.list[i:], in.list[i+1:])
	in.list[len(in.list)-1] = nil
	in.list = in.list[:len(in.list)-1]
	in.bytes -= len(m.data) + wire.RecordLen
	in.free = append(in.free, m)
	e.wakeParked()
	return word, data, true
}

// A MessageWait is met when a message is there to Take, or its sender is dead or
// has left. The waiter watches the sender meanwhile.
type MessageWait struct {
	Engine       *Engine
	Context, Tag uint32
	From         int
}

// Met reports whether the wait is over.
func (w *MessageWait) Met() bool {
	in := &w.Engine.inbox
	if in.find(w.Context, w.Tag, w.From) >= 0 {
		return true
	}
	if _, ok := in.revoked[w.Context]; ok {
		return true
	}
	s := w.Engine.byRank[w.From]
	return s != nil && (s.state == dead || s.bye)
}

// Watch starts or ends (delta 1 or -1) a wait for something that only the peer
// can bring about, so that its death is noticed.
func (e *Engine) Watch(now int64, s *Session, delta int32) {
	e.now = now
	s.watch += delta
	if s.watch < 0 {
		panic("engine: a watch ended that never began")
	}
	if s.watch > 0 {
		e.await(s)
	}
}

// await sees to it that s, which now owes a sign of life, is asked for one.
func (e *Engine) await(s *Session) {
	if s.state == dead {
		return
	}
	e.markActive(s)
	if s.pingAt == 0 {
		s.waiting, s.expired = e.now, 0
		s.pingAt = e.now + e.pingAfter(s)
	}
	e.wakeBy(s.pingAt)
}

// Bye tells every living peer that this rank will issue nothing more.
func (e *Engine) Bye(now int64) {
	e.now = now
	for rank := range e.cfg.Size { // not the map: the same calls give the same frames
		s := e.byRank[rank]
		if s == nil || s.state != open {
			continue
		}
		s.leaving = true
		e.sayBye(s)
	}
}

// sayBye tells s that this rank leaves, as soon as there is room.
func (e *Engine) sayBye(s *Session) {
	if len(s.received) > 0 {
		e.tellSender(s) // who has left does not say so any more
	}
	i := e.room(s, request, 0)
	if i == none || len(s.received) > 0 {
		return // the acknowledgement that brings room has s served again
	}
	s.leaving = false
	e.markDirty(s)
	e.appendRecord(i, &wire.Record{Code: wire.CodeBye}, 0)
	e.slots[i].flags |= wire.FlagAckNow | wire.FlagFence
}

// takeBye takes in that s will issue nothing more.
func (e *Engine) takeBye(s *Session) {
	if s.bye {
		return
	}
	s.bye = true
	e.match.left++
	e.dropAllDeferred(s, leftError(s))
	e.endMessages(s, leftError(s))
}

// A ByeWait is met when no living peer is known that this rank still has
// something in flight to, other than peers that have left themselves.
type ByeWait struct{ Engine *Engine }

// Met reports whether the wait is over.
func (w *ByeWait) Met() bool {
	for _, s := range w.Engine.active {
		if s.state == open && !s.bye && (s.leaving || s.held[request]+s.held[response] > 0) {
			return false
		}
	}
	return true
}

// A LeftWait is met when every living peer has left, and nothing is in flight.
type LeftWait struct{ Engine *Engine }

// Met reports whether the wait is over.
func (w *LeftWait) Met() bool {
	for _, s := range w.Engine.byRank {
		if s.state == open && !s.bye {
			return false
		}
	}
	return true
}
