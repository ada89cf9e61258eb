package onesided

import (
	"encoding/binary"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

const (
	maxOps       = 1 << 16
	minFragment  = 256      // smaller pieces of a transfer are not worth a record
	maxResult    = 1 << 31  // bytes of one operation's result: records count them with 32 bits
	issueBudget  = 32       // bundles filled by one call of Issue; see Session.Batch for long puts
	longTransfer = 16 << 10 // bytes of a put whose last bundle takes nothing else
)

// op is an operation that awaits an answer from its target.
type op struct {
	next    int32 // the one before it at its target, or none; or the next in the free list
	prev    int32 // the one after it at its target, unless it is the newest
	gen     uint16
	used    bool
	sent    bool // all of it has been requested
	seen    bool // it waits for long
	asked   bool // the last inquiry was about it, and it has no answer yet
	access  *Access
	result  []byte
	left    int // bytes of result still to come
	request *Request
	scatter *scatter // where a result with gaps goes, in place of result; nil for others
}

// Request follows one operation, for the request-based calls.
type Request struct {
	left   int32
	err    *mpierr.Error
	fetch  *fetch  // that it is part of, or nil
	behind *Access // whose lock was asked for when it was issued, or nil
}

// Met reports whether the operation has completed at the origin.
func (r *Request) Met() bool { return r.left == 0 }

// Err returns why the operation failed, or nil.
func (r *Request) Err() error {
	if r.err == nil {
		return nil
	}
	return r.err
}

// newOp returns a free place in the table of operations, or none.
func (x *Operations) newOp(a *Access, result []byte) int32 {
	if !x.opRoom(a.session) {
		return link.None
	}
	i := x.freeOp
	if i == link.None {
		n := len(x.ops)
		// The table doubles up to its limit, so that a rank that has little
		// outstanding has a small table.
		grown := make([]op, min(max(64, 2*n), x.cfg.MaxOps))
		copy(grown, x.ops)
		x.ops = grown
		for j := len(grown) - 1; j >= n; j-- {
			grown[j].gen = 1
			grown[j].next = x.freeOp
			x.freeOp = int32(j)
		}
		i = x.freeOp
	}
	o := &x.ops[i]
	x.freeOp = o.next
	o.used, o.access, o.result, o.left, o.request = true, a, result, len(result), nil
	x.enlist(i)
	a.pending++
	a.session.Owe(1)
	x.pending++
	return i
}

// enlist puts operation i before the others at its target.
func (x *Operations) enlist(i int32) {
	o, s := &x.ops[i], x.ops[i].access.session
	if o.next = s.newest; o.next != link.None {
		x.ops[o.next].prev = i
	}
	s.newest = i
}

// delist takes operation i out from among the others at its target.
func (x *Operations) delist(i int32) {
	o := &x.ops[i]
	if s := o.access.session; s.newest == i {
		s.newest = o.next
	} else {
		x.ops[o.prev].next = o.next
	}
	if o.next != link.None {
		x.ops[o.next].prev = o.prev
	}
}

func (x *Operations) token(i int32) uint32 { return uint32(x.ops[i].gen)<<16 | uint32(i) }

// find returns the operation that a token of s names, or none.
func (x *Operations) find(s *Peer, token uint32) int32 {
	i := int32(token & (maxOps - 1))
	if int(i) >= len(x.ops) {
		return link.None
	}
	o := &x.ops[i]
	if !o.used || o.gen != uint16(token>>16) || o.access.session != s {
		return link.None
	}
	return i
}

func (x *Operations) finish(i int32, err *mpierr.Error) {
	o := &x.ops[i]
	a := o.access
	x.delist(i)
	a.pending--
	a.session.Owe(-1)
	x.pending--
	r := o.request
	if r == nil && err != nil {
		a.fail(err)
	}
	if err != nil && a.lock == locking && o.asksLock() {
		a.lock = unlocked // the target is dead
	}
	if o.scatter != nil {
		x.freeScatter(o.scatter)
	}
	gen := o.gen + 1
	if gen == 0 {
		gen = 1
	}
	*o = op{gen: gen, next: x.freeOp}
	x.freeOp = i
	if r != nil {
		x.part(r, err)
	}
}

// part ends a part of what r follows, which tells the error.
func (x *Operations) part(r *Request, err *mpierr.Error) {
	r.left--
	if err != nil && r.err == nil {
		r.err = err
	}
	if r.left == 0 && r.fetch != nil {
		x.fetched(r.fetch)
	}
}

// failOps ends all operations that await an answer from s, or were kept back.
func (x *Operations) failOps(s *Peer) {
	x.dropAllDeferred(s, s.Failure())
	for s.newest != link.None {
		x.finish(s.newest, s.Failure())
	}
	s.lockOpen = nil
}

// endOps ends the operations for which over returns true.
func (x *Operations) endOps(err *mpierr.Error, over func(*op) bool) {
	for i := range x.ops {
		if o := &x.ops[i]; o.used && over(o) {
			x.finish(int32(i), err)
		}
	}
}

// asksLock reports whether o is a request for a lock, which has no result.
func (o *op) asksLock() bool { return o.result == nil && o.scatter == nil }

// Call is one communication call on its way out. The caller keeps it until Issue
// reports that it is complete.
type Call struct {
	Access  *Access
	Code    wire.Code      // CodePut, CodeGet, CodeAccumulate, CodeGetAccumulate or CodeCompareSwap
	Basic   datatype.Basic // of the accumulate calls
	Op      datatype.Op    // of the accumulate calls
	Relaxed bool           // an accumulate that need not be ordered
	Disp    uint64         // bytes from the start of the target's window
	Origin  []byte         // what is put, or combined; compare and swap: the new value
	Compare []byte         // compare and swap: the value to compare with
	Result  []byte         // where the answer goes; it must not move or be used until then
	Typed   *Typed         // set where derived datatypes are used, in place of Origin and Result
	Request *Request       // followed where not nil

	at    int    // bytes issued
	base  int    // where the result of the current operation starts
	token uint32 // of the operation; 0 before there is one
}

// size returns the bytes that the call touches at the target.
func (c *Call) size() int {
	if c.Result != nil {
		return len(c.Result)
	}
	return len(c.Origin)
}

// end returns where the result of the current operation ends.
func (c *Call) end() int { return min(len(c.Result), c.base+maxResult) }

// Issue sends as much of c as there is room for and reports whether all of it
// has been sent: then the origin data may be changed. Otherwise it is to be
// called again; RoomWait tells when. A call that may not act yet, because the lock
// has not been granted or the target has not posted, is copied and acts later. The
// error concerns the target as a whole; what goes wrong with one operation is told
// by TakeError after a flush.
func (x *Operations) Issue(c *Call) (bool, error) {
	if a := c.Access; a.lock > locked || a.starts != a.posts || !a.queue.Empty() {
		if err := a.Err(); err != nil {
			x.abandon(c)
			return true, err
		}
		if a.lock == refused {
			x.abandon(c)
			return true, a.refusal
		}
		if c.Request != nil {
			c.Request.behind = a
		}
		if done, stop := x.gate(c); stop {
			return done, nil
		}
	}
	return x.issueNow(c)
}

// issueNow is Issue for a call that may act now.
func (x *Operations) issueNow(c *Call) (bool, error) {
	a := c.Access
	if a.ownWindow != nil {
		return x.issueLocal(c)
	}
	s := a.session
	switch {
	case s.Dead():
		x.abandon(c)
		return true, s.Failure()
	case s.left != nil:
		x.abandon(c)
		return true, s.left
	case c.Typed != nil:
		return x.issueTyped(s, c)
	case c.Code == wire.CodeComplete:
		return x.tellComplete(a), nil
	case c.Code == wire.CodeUnlock:
		return x.giveBack(a), nil
	}
	switch {
	case c.size() == 0:
		return true, nil // nothing to ask for, and no answer would end it
	case !c.Code.Fetches():
	case c.token == 0:
		i := x.newOp(a, c.Result[c.base:c.end()])
		if i == link.None {
			return false, nil
		}
		c.token = x.token(i)
		if c.Request != nil {
			c.Request.left++
			x.ops[i].request = c.Request
		}
	case x.find(s, c.token) == link.None:
		return true, nil // a part was refused, which ended the whole
	}
	budget := issueBudget
	if !c.Code.Fetches() {
		budget = s.Batch(c.size()-c.at, issueBudget)
	}
	for range budget {
		if c.at == c.size() {
			break
		}
		sent := false
		switch c.Code {
		case wire.CodePut, wire.CodeAccumulate:
			sent = x.issueData(s, c)
		case wire.CodeGet:
			sent = x.issueGet(c)
		case wire.CodeGetAccumulate:
			sent = x.issueGetAccumulate(s, c)
		case wire.CodeCompareSwap:
			sent = x.issueCompareSwap(c)
		default:
			panic("onesided: a call with an unknown code")
		}
		if !sent {
			return false, nil
		}
		if c.token == 0 || c.at < c.end() {
			continue
		}
		x.ops[c.token&(maxOps-1)].sent = true
		if c.at < c.size() {
			c.base, c.token = c.at, 0 // what is left is another operation's
			return false, nil
		}
	}
	if c.at < c.size() {
		return false, nil
	}
	if c.Code == wire.CodePut && c.at >= longTransfer {
		s.CloseBundle(link.Request) // what follows, small as it may be, shall not travel with the end of this
	}
	return true, nil
}

// abandon ends a call that was begun and cannot go on.
func (x *Operations) abandon(c *Call) {
	if c.Access.session == nil {
		return
	}
	if i := x.find(c.Access.session, c.token); i != link.None {
		x.finish(i, c.Access.session.Failure())
	}
}

// Drop ends a call of which Issue has sent only a part. The part that was sent takes
// effect, and its answers go nowhere.
func (x *Operations) Drop(c *Call) {
	if c.Typed != nil {
		x.done(c)
	}
	if s := c.Access.session; s != nil {
		if i := x.find(s, c.token); i != link.None {
			x.finish(i, nil)
		}
	}
}

// requestRoom is room for a request of access a: inside its lock's bundle if
// that is still open, and in no other lock's bundle.
func (x *Operations) requestRoom(a *Access, n int) int32 {
	s := a.session
	if s.lockBundle() != a {
		return s.Room(link.Request, n)
	}
	if i := s.Begun(link.Request); s.Fits(link.Request, n) {
		return i
	}
	s.CloseBundle(link.Request)
	return link.None // until the lock is known to be held
}

// fragment returns how many of the left bytes go into the next record, which
// carries extra bytes besides: whole elements of the given size, and no crumbs.
func (x *Operations) fragment(s *Peer, left, extra, element int) int {
	n := s.Space(link.Request) - extra
	if left <= n { // whole elements, as all that is left always is
		return left
	}
	if n < minFragment && s.Begun(link.Request) != link.None {
		n = (s.MaxPayload()-wire.HeaderLen-wire.RecordLen)&^7 - extra // of a new bundle
	}
	return min(n-n%element, left)
}

func (x *Operations) add(a *Access, i int32, r *wire.Record, dataLen int, flags uint8) []byte {
	data, seq := x.link.Add(i, r, dataLen, flags)
	a.lastSeq = seq
	return data
}

func (c *Call) orderFlag() uint8 {
	if c.Relaxed {
		return 0
	}
	return wire.FlagOrdered
}

func (x *Operations) issueData(s *Peer, c *Call) bool {
	r := wire.Record{Code: c.Code, Window: c.Access.window, Disp: c.Disp + uint64(c.at)}
	element, flags := 8, uint8(0)
	if c.Code == wire.CodeAccumulate {
		r.Basic, r.Op = uint8(c.Basic), uint8(c.Op)
		element, flags = c.Basic.Size(), c.orderFlag()
	}
	n := x.fragment(s, len(c.Origin)-c.at, 0, element)
	i := x.requestRoom(c.Access, n)
	if i == link.None {
		return false
	}
	copy(x.add(c.Access, i, &r, n, flags), c.Origin[c.at:])
	c.at += n
	return true
}

// askable returns how many of the left bytes one record asks for, of a peer whose bundles
// have such a payload. They fill whole bundles, but for the last: frames of one length are
// what the target can send as one message.
func askable(payload, left int) int {
	most := (payload - wire.HeaderLen - wire.RecordLen) &^ 7
	if left <= wire.MaxPart || most > wire.MaxPart {
		return min(left, wire.MaxPart)
	}
	return wire.MaxPart - wire.MaxPart%most
}

func (x *Operations) issueGet(c *Call) bool {
	i := x.requestRoom(c.Access, wire.PartLen)
	if i == link.None {
		return false
	}
	n := askable(c.Access.session.MaxPayload(), c.end()-c.at)
	r := wire.Record{Code: wire.CodeGet, Window: c.Access.window, Token: c.token, Disp: c.Disp + uint64(c.at), Flags: c.followed()}
	wire.PutPart(x.add(c.Access, i, &r, wire.PartLen, 0), uint32(c.at-c.base), uint32(n))
	c.at += n
	return true
}

func (x *Operations) issueGetAccumulate(s *Peer, c *Call) bool {
	n := x.fragment(s, c.end()-c.at, wire.PartLen, c.Basic.Size())
	operand := n
	if c.Op == datatype.NoOp {
		operand = 0
	}
	i := x.requestRoom(c.Access, wire.PartLen+operand)
	if i == link.None {
		return false
	}
	r := wire.Record{
		Code: wire.CodeGetAccumulate, Basic: uint8(c.Basic), Op: uint8(c.Op), Flags: c.followed(),
		Window: c.Access.window, Token: c.token, Disp: c.Disp + uint64(c.at),
	}
	data := x.add(c.Access, i, &r, wire.PartLen+operand, c.orderFlag())
	wire.PutPart(data, uint32(c.at-c.base), uint32(n))
	if operand > 0 {
		copy(data[wire.PartLen:], c.Origin[c.at:c.at+n])
	}
	c.at += n
	return true
}

func (x *Operations) issueCompareSwap(c *Call) bool {
	n := len(c.Result)
	i := x.requestRoom(c.Access, 2*n)
	if i == link.None {
		return false
	}
	r := wire.Record{Code: wire.CodeCompareSwap, Basic: uint8(c.Basic), Window: c.Access.window, Token: c.token, Disp: c.Disp}
	data := x.add(c.Access, i, &r, 2*n, c.orderFlag())
	copy(data, c.Compare)
	copy(data[n:], c.Origin)
	c.at = n
	return true
}

// giveBack carries out what Leave asked for, now that the lock is held or was refused.
func (x *Operations) giveBack(a *Access) bool {
	if l := &a.shared; l.byWord {
		_, l.tell = l.word.Give(l.index)
		a.lock, l.byWord = unlocked, false
	}
	if a.shared.tell && !x.giveWord(a) || a.lock == locked && !x.sendUnlock(a) {
		return false
	}
	a.unwanted = false
	return true
}

// A RoomWait is met when issuing on the access may succeed.
type RoomWait Access

// Met reports whether the wait is over.
func (w *RoomWait) Met() bool {
	x, a := w.ops, (*Access)(w)
	s := a.session
	if s == nil || s.Dead() || s.left != nil || a.keepsBack() && !a.unwanted {
		return true
	}
	if !a.queue.Empty() {
		return false
	}
	if !x.opRoom(s) {
		return false
	}
	return s.Begun(link.Request) != link.None || s.MayOpen(link.Request, 1)
}

// Answers takes in a bundle of responses of s.
func (x *Operations) Answers(s *Peer, body []byte) {
	var r wire.Record
	for at := 0; at < len(body); {
		n := wire.NextRecord(body[at:], &r)
		if n == 0 {
			x.cfg.Frames.Faults[wire.BadRecord]++
			return
		}
		at += n
		x.answer(s, &r)
	}
}

func (x *Operations) answer(s *Peer, r *wire.Record) {
	switch r.Code {
	case wire.CodeRefused:
		x.takeRefusal(s, r)
		return
	case wire.CodeWaits:
		if !x.takeWaits(s, r) {
			x.totals.BadAnswers++
		}
		return
	}
	i := x.find(s, r.Token)
	switch {
	case i != link.None:
	case x.cfg.Others.Response(s.Session, *r):
		return
	default:
		x.totals.BadAnswers++
		return
	}
	o := &x.ops[i]
	switch {
	case r.Code == wire.CodeResult && len(r.Data) > 0 && r.Disp <= uint64(len(o.result)) && len(r.Data) <= min(o.left, len(o.result)-int(r.Disp)):
		copyResult(o.result[r.Disp:], r.Data)
		o.left -= len(r.Data)
		if o.left == 0 {
			x.finish(i, nil)
		}
	case r.Code == wire.CodeResult && o.scatter != nil && len(r.Data) > 0 && r.Disp <= uint64(o.scatter.size) && len(r.Data) <= min(o.left, o.scatter.size-int(r.Disp)):
		o.scatter.unpack(r.Data, o.scatter.from+int(r.Disp))
		o.left -= len(r.Data)
		if o.left == 0 {
			x.finish(i, nil)
		}
	case r.Code == wire.CodeGranted && o.access.lock == locking && o.asksLock():
		o.access.lock = locked
		if !o.access.queue.Empty() || o.access.mark != markNone {
			s.MarkDirty()
		}
		x.finish(i, nil)
	default:
		x.totals.BadAnswers++
	}
}

// copyResult writes 8-byte results, the most common, without a call.
func copyResult(dst, src []byte) {
	if len(src) == 8 && len(dst) >= 8 {
		binary.LittleEndian.PutUint64(dst, binary.LittleEndian.Uint64(src))
		return
	}
	copy(dst, src)
}
