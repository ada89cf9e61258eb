package onesided

import (
	"encoding/binary"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

const (
	maxOps       = 1 << 16
	minFragment  = 256      // smaller pieces of a transfer are not worth a record
	maxResult    = 1 << 31  // bytes of one operation's result: records count them with 32 bits
	issueBudget  = 32       // bundles filled by one call of Issue; see Session.Batch for long puts
	longTransfer = 16 << 10 // bytes of a put whose last bundle takes nothing else
)

// Origin makes requests of this rank's calls, and takes in what targets answer.
type Origin struct {
	*base
	locks *Locks

	own   []*Access // to this rank's own windows
	asked []*Access // whose locks were asked for; perhaps granted since

	opShare       link.Share
	ops           []op
	pending       int32 // of ops
	freeOp        int32
	fetches       []*fetch
	directScratch *Direct // scratch

	deferredPool []*deferred
	typedPool    []*Typed
	scatterPool  []*scatter
}

// originSide is what an origin keeps about a peer.
type originSide struct {
	left      *mpierr.Error      // of what needs the peer, if it has left in good order
	access    map[uint32]*Access // this rank's accesses at the peer, by window
	recent    *Access            // the one of them that was looked for last, in front of it; or nil
	lockOpen  *Access            // whose lock record started the open bundle of requests, while that is sealed
	marks     []*Access          // those whose completions the peer is to be told of, in checking mode
	deferring []*Access          // those that keep calls back
	newest    int32              // of the operations that await an answer of the peer, or none
	inquiry   inquiry
	types     *givenTypes // datatypes defined at the peer, or nil

	// refusalsSeen is how many requests that no answer was due for the peer has refused,
	// as far as this rank has heard: a flush waits until it has heard of all of them.
	refusalsSeen uint32
}

// end ends what waits for s, which has left in good order.
func (x *Origin) end(s *Peer, left *mpierr.Error) {
	s.left = left
	x.dropAllDeferred(s, left)
}

// fail ends every call that waits for s, which is dead.
func (x *Origin) fail(s *Peer) {
	x.failOps(s)
	for _, a := range s.access {
		a.fail(s.Failure())
	}
	s.types, s.marks = nil, nil
}

// lockBundle returns whose lock record started the open bundle of requests, or nil.
func (s *Peer) lockBundle() *Access {
	if s.Sealed() {
		return s.lockOpen
	}
	return nil
}

// Waits reports whether a call waits for s that Ready would send.
func (s *Peer) Waits() bool { return len(s.deferring) > 0 }

// Order says after which calls of this rank at the target a call takes effect: all those before
// it of which the order is told too.
type Order uint8

const (
	OrderAccumulates Order = iota // it is told of accumulates, compare and swap among them
	OrderNone                     // of none
	OrderAll                      // of puts and gets, too
)

// Call is one communication call on its way out. The caller keeps it until Issue
// reports that it is complete.
type Call struct {
	Access  *Access
	Code    wire.Code      // CodePut, CodeGet, CodeAccumulate, CodeGetAccumulate or CodeCompareSwap
	Basic   datatype.Basic // of the accumulate calls
	Op      datatype.Op    // of the accumulate calls
	Order   Order          // after which calls it takes effect
	Disp    uint64         // bytes from the start of the target's window
	Origin  []byte         // what is put, or combined; compare and swap: the new value
	Compare []byte         // compare and swap: the value to compare with
	Result  []byte         // where the answer goes; it must not move or be used until then
	Typed   *Typed         // set where derived datatypes are used, in place of Origin and Result
	Request *Request       // followed where not nil
	Notify  Counter        // of the target's window, which counts up once the call has acted there

	at    int    // bytes issued
	base  int    // where the result of the current operation starts
	token uint32 // of the operation; 0 before there is one
	first uint64 // bundle of the first request, if a counter counts up; 0 before there is one
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
func (x *Origin) Issue(c *Call) (bool, error) {
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
func (x *Origin) issueNow(c *Call) (bool, error) {
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
	case c.Code == wire.CodeNotify || c.Notify != 0 && c.at > 0 && c.at == c.size():
		return x.notify(c), nil
	case c.Code == wire.CodePing:
		return x.sendRouse(a), nil
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
	if left := c.size() - c.at; left > wire.MinPayload && !c.Code.Fetches() {
		budget = s.Batch(left, issueBudget)
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
		c.begun()
		if c.token == 0 || c.at < c.end() {
			continue
		}
		x.ops[c.token&(maxOps-1)].sent = true
		if c.at < c.size() {
			c.base, c.token = c.at, 0 // what is left is another operation's
			return false, nil
		}
	}
	if c.at < c.size() || c.Notify != 0 && c.Code.Fetches() && !x.notify(c) {
		return false, nil
	}
	if c.Code == wire.CodePut && c.at >= longTransfer {
		s.CloseBundle(link.Request) // what follows, small as it may be, shall not travel with the end of this
	}
	return true, nil
}

// abandon ends a call that was begun and cannot go on.
func (x *Origin) abandon(c *Call) {
	if c.Access.session == nil {
		return
	}
	if i := x.find(c.Access.session, c.token); i != link.None {
		x.finish(i, c.Access.session.Failure())
	}
}

// Drop ends a call of which Issue has sent only a part. The part that was sent takes
// effect, and its answers go nowhere.
func (x *Origin) Drop(c *Call) {
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
func (x *Origin) requestRoom(a *Access, n int) int32 {
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
func (x *Origin) fragment(s *Peer, left, extra, element int) int {
	n := s.Space(link.Request) - extra
	if left <= n { // whole elements, as all that is left always is
		return left
	}
	if n < minFragment && s.Begun(link.Request) != link.None {
		n = (s.MaxPayload()-wire.HeaderLen-wire.RecordLen)&^7 - extra // of a new bundle
	}
	return min(n-n%element, left)
}

func (x *Origin) add(a *Access, i int32, r *wire.Record, dataLen int, flags uint8) []byte {
	data, seq := x.link.Add(i, r, dataLen, flags)
	a.lastSeq = seq
	return data
}

// orderFlag returns the flag of the bundles that c travels in.
func (c *Call) orderFlag() uint8 {
	if c.Order == OrderAll || c.Order == OrderAccumulates && c.Code.Accumulates() {
		return wire.FlagOrdered
	}
	return 0
}

func (x *Origin) issueData(s *Peer, c *Call) bool {
	r := wire.Record{Code: c.Code, Window: c.Access.window, Disp: c.Disp + uint64(c.at), Flags: c.checkFlags()}
	element := 8
	if c.Code == wire.CodeAccumulate {
		r.Basic, r.Op = uint8(c.Basic), uint8(c.Op)
		element = c.Basic.Size()
	}
	n := x.fragment(s, len(c.Origin)-c.at, 0, element)
	i := x.requestRoom(c.Access, n)
	if i == link.None {
		return false
	}
	flags := c.orderFlag()
	if c.at+n == len(c.Origin) {
		flags |= x.notifyWith(c, &r, i)
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

func (x *Origin) issueGet(c *Call) bool {
	i := x.requestRoom(c.Access, c.roomFor(wire.PartLen))
	if i == link.None {
		return false
	}
	n := askable(c.Access.session.MaxPayload(), c.end()-c.at)
	r := wire.Record{Code: wire.CodeGet, Window: c.Access.window, Token: c.token, Disp: c.Disp + uint64(c.at), Flags: c.checkFlags()}
	wire.PutPart(x.add(c.Access, i, &r, wire.PartLen, c.orderFlag()), uint32(c.at-c.base), uint32(n))
	c.at += n
	return true
}

func (x *Origin) issueGetAccumulate(s *Peer, c *Call) bool {
	n := x.fragment(s, c.end()-c.at, wire.PartLen, c.Basic.Size())
	operand := n
	if c.Op == datatype.NoOp {
		operand = 0
	}
	i := x.requestRoom(c.Access, c.roomFor(wire.PartLen+operand))
	if i == link.None {
		return false
	}
	r := wire.Record{
		Code: wire.CodeGetAccumulate, Basic: uint8(c.Basic), Op: uint8(c.Op), Flags: c.checkFlags(),
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

func (x *Origin) issueCompareSwap(c *Call) bool {
	n := len(c.Result)
	i := x.requestRoom(c.Access, c.roomFor(2*n))
	if i == link.None {
		return false
	}
	r := wire.Record{Code: wire.CodeCompareSwap, Basic: uint8(c.Basic), Flags: c.checkFlags(), Window: c.Access.window, Token: c.token, Disp: c.Disp}
	data := x.add(c.Access, i, &r, 2*n, c.orderFlag())
	copy(data, c.Compare)
	copy(data[n:], c.Origin)
	c.at = n
	return true
}

// giveBack carries out what Leave asked for, now that the lock is held or was refused.
func (x *Origin) giveBack(a *Access) bool {
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
	x, a := w.origin, (*Access)(w)
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
func (x *Origin) Answers(s *Peer, body []byte) {
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

func (x *Origin) answer(s *Peer, r *wire.Record) {
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
