package engine_test

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// frame is one frame between two ranks, on its way.
type frame struct {
	from, to int
	payload  []byte
	trailer  int // bytes at the end that are the number and the tag
}

// header decodes the frame's header.
func (f *frame) header() (h wire.Header) {
	read := h.Decode
	if f.trailer > 0 {
		read = h.Parse
	}
	if fault := read(f.unsigned()); fault != wire.OK {
		panic("an engine has sent a malformed frame: " + fault.String())
	}
	return h
}

// String describes a frame in words: what it asks, then what it says has arrived.
func (f *frame) String() string {
	s := fmt.Sprintf("%d->%d  ", f.from, f.to)
	if f.express() {
		return s + exchange(f.payload)
	}
	if f.greeting() {
		return s + greeting(f.payload)
	}
	h, body := f.header(), f.unsigned()[wire.HeaderLen:]
	if f.trailer > 0 {
		s += fmt.Sprintf("number %d, ", secure.Number(f.payload))
	}
	switch h.Kind {
	case wire.KindHello, wire.KindHelloAck:
		return s + handshake(h.Kind, body)
	case wire.KindReset:
		return s + "reset"
	case wire.KindAck:
		return s + "ack" + acknowledgement(&h)
	}
	if h.Sequence == 0 {
		return s + fmt.Sprintf("packet %d, %s", h.Packet, loose(f.unsigned())) + acknowledgement(&h)
	}
	class := "request"
	if h.Flags&wire.FlagResponse != 0 {
		class = "response"
	}
	s += fmt.Sprintf("packet %d, %s %d", h.Packet, class, h.Sequence)
	if h.Flags&wire.FlagOrdered != 0 {
		s += fmt.Sprintf(", ordered %d", h.Order)
	}
	if h.Flags&wire.FlagAfterAll != 0 {
		s += ", after all"
	}
	if h.Flags&wire.FlagAckNow != 0 {
		s += ", ack now"
	}
	return s + ": " + records(body) + acknowledgement(&h)
}

// loose describes a frame without a sequence of its own.
func loose(payload []byte) string {
	var w wire.PieceOf
	if !w.Decode(payload[wire.HeaderLen:]) {
		panic("an engine has sent a malformed piece")
	}
	if w.Sequence == 0 {
		return fmt.Sprintf("probe of %d bytes", len(payload))
	}
	n := len(payload) - wire.HeaderLen - wire.PieceLen
	return fmt.Sprintf("piece of bundle %d: bytes %d to %d of %d", w.Sequence, w.Offset, int(w.Offset)+n, w.Total)
}

func handshake(kind wire.Kind, body []byte) string {
	var h wire.Hello
	if !h.Decode(body) {
		panic("an engine has sent a malformed handshake")
	}
	if kind == wire.KindHelloAck {
		return fmt.Sprintf("hello-ack of rank %d, incarnation %d, credits %d", h.Rank, h.Incarnation, h.Credits)
	}
	s := fmt.Sprintf("hello of rank %d, incarnation %d, credits %d", h.Rank, h.Incarnation, h.Credits)
	if h.Peer != 0 {
		s += fmt.Sprintf(", to incarnation %d", h.Peer)
	}
	return s
}

// acknowledgement says what the sender of a frame has received and applied.
func acknowledgement(h *wire.Header) string {
	var parts []string
	if h.AckLargest > 0 {
		missing := ""
		for n := max(1, int64(h.AckLargest)-64); n < int64(h.AckLargest); n++ {
			if !reliable.Has(h.AckLargest, h.AckBits, uint64(n)) {
				missing += fmt.Sprintf(" not %d", n)
			}
		}
		parts = append(parts, fmt.Sprintf("received up to %d%s", h.AckLargest, missing))
	}
	if h.AckRequests > 1 {
		parts = append(parts, fmt.Sprintf("applied requests up to %d", h.AckRequests-1))
	}
	if h.AckResponses > 1 {
		parts = append(parts, fmt.Sprintf("responses up to %d", h.AckResponses-1))
	}
	if len(parts) == 0 {
		return ""
	}
	return "  [" + strings.Join(parts, ", ") + "]"
}

func records(body []byte) string {
	var list []string
	for len(body) > 0 {
		var r wire.Record
		n := wire.NextRecord(body, &r)
		if n == 0 {
			panic("an engine has sent a malformed record")
		}
		list = append(list, record(&r))
		body = body[n:]
	}
	return strings.Join(list, "; ")
}

func record(r *wire.Record) string {
	operation := ""
	if r.Token != 0 {
		operation = fmt.Sprintf(", operation %x", r.Token)
	}
	if r.Notifies() {
		operation = fmt.Sprintf(", counts at counter %d", r.Token)
	}
	at := fmt.Sprintf("%s window %d at %d", r.Code, r.Window, r.Disp)
	switch r.Code {
	case wire.CodePut, wire.CodeAccumulate:
		return at + " " + value(r.Data) + operation
	case wire.CodeNotify:
		if r.Flags&wire.FlagIfDone != 0 {
			operation += " if that was done"
		}
	case wire.CodeGet:
		_, n := wire.Part(r.Data)
		return at + fmt.Sprintf(", %d bytes", n) + operation
	case wire.CodeGetAccumulate:
		return at + " " + value(r.Data[wire.PartLen:]) + operation
	case wire.CodeLock:
		kind := "shared"
		if r.Flags&wire.FlagExclusive != 0 {
			kind = "exclusive"
		}
		return fmt.Sprintf("%s lock of window %d%s", kind, r.Window, operation)
	case wire.CodeResult:
		return fmt.Sprintf("result %s%s", value(r.Data), operation)
	case wire.CodeMessage:
		return fmt.Sprintf("message, tag %d, %s", r.Token, value(r.Data))
	case wire.CodePing, wire.CodeBye:
		return r.Code.String()
	case wire.CodeGone:
		return fmt.Sprintf("rank %d has lost rank %d", r.Token, r.Window)
	}
	return fmt.Sprintf("%s window %d%s", r.Code, r.Window, operation)
}

// value shows bytes as a number if they are one element, and as text if they are few.
func value(b []byte) string {
	if len(b) > 40 {
		return fmt.Sprintf("%d bytes", len(b))
	}
	if len(b) == 8 && (b[7] == 0 || b[7] == 0xff) {
		return fmt.Sprint(int64(binary.LittleEndian.Uint64(b)))
	}
	return fmt.Sprintf("%q", b)
}
