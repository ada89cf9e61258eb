package vmtests

import (
	"encoding/binary"
	"slices"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/siphash"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// attack is a way to send frames that must have no effect.
type attack struct {
	name   string
	counts []string // the refusals of which there is one for each frame; nil: there need be none
	also   bool     // a few genuine frames may be counted there, too
	shot   func(n int) shot
}

// Where things are in a frame.
const (
	kindAt     = 5
	flagsAt    = 6
	sessionAt  = 8
	sequenceAt = 32 // of an express frame the number of the exchange
	jobAt      = wire.HeaderLen
	lifeAt     = jobAt + 8
)

// offPath are attacks by somebody who has seen one hello.
func (s *siege) offPath() []attack {
	le := binary.LittleEndian
	from := func(n int, f shot) shot { // from the attacker's address, or from that which the hello came from
		if n%2 == 0 {
			f.from = attacker
		}
		return f
	}
	return []attack{
		{"hello of a later life", []string{"bad_code", "fault code"}, false, func(n int) shot {
			f := from(n, s.any("hello"))
			le.PutUint64(f.payload[lifeAt:], 1<<63+uint64(n))
			return f
		}},
		{"hello with another ticket and code", []string{"bad_code", "fault code"}, false, func(n int) shot {
			f := from(n, s.any("hello"))
			for i := lifeAt; i < len(f.payload); i += 8 {
				le.PutUint64(f.payload[i:], s.random.Uint64())
			}
			return f
		}},
		{"hello as without a key", []string{"other_job", "fault frame"}, false, func(n int) shot {
			f := from(n, s.any("hello"))
			f.payload = hello(s.random, le.Uint64(f.payload[jobAt:]), uint32(1-f.to), uint32(f.to))
			return f
		}},
		{"hello again from another address", []string{"hello_limited", "handshakes"}, false, func(int) shot { return from(0, s.any("hello")) }},
		{"frame of no session", []string{"unknown_session", "unknown"}, false, func(n int) shot { return from(n, s.strange(wire.KindData)) }},
		{"reset of no session", []string{"unknown_session", "unknown"}, false, func(n int) shot { return from(n, s.strange(wire.KindReset)) }},
		{"express request of no session", []string{"unknown_session", "unknown", "fault flags", "fault frame"}, false, func(n int) shot { return from(n, s.strange(wire.KindExpress)) }},
		{"hello again", nil, true, func(int) shot { return s.any("hello") }}, // it is answered, or limited
	}
}

// strange returns a frame of a session that nobody has.
func (s *siege) strange(kind wire.Kind) shot {
	f := s.any("request")
	f.payload[kindAt] = byte(kind)
	binary.LittleEndian.PutUint64(f.payload[sessionAt:], s.random.Uint64())
	return f
}

// forged are frames by somebody who knows all but the keys.
func (s *siege) forged() []attack {
	tag, code := []string{"fault tag", "fault replay"}, []string{"express_bad_code", "fault code"}
	data := func(like string, change func(h *wire.Header), record *wire.Record) func(int) shot {
		return func(n int) shot {
			f := s.latest(like)
			var h wire.Header
			h.Parse(f.payload)
			trailer := f.payload[len(f.payload)-secure.TrailerLen:]
			change(&h)
			var body []byte
			if record != nil {
				body = put(record)
			}
			f.payload = frame(h, body) // with a checksum
			if n%3 > 0 {
				h.Put(f.payload)
				f.payload = append(f.payload, trailer...) // with that of another frame
			}
			if n%3 == 2 {
				renumber(f.payload, n)
			}
			return f
		}
	}
	next := func(h *wire.Header) { h.Packet, h.Sequence = h.Packet+1, h.Sequence+1 }
	million := binary.LittleEndian.AppendUint64(nil, 1_000_000)
	add := &wire.Record{Code: wire.CodeAccumulate, Basic: uint8(datatype.BasicInt64), Op: uint8(datatype.Sum), Window: s.window(), Data: million}
	return []attack{
		{"request in the place of the next", tag, false, data("request", next, add)},
		{"request for the UDP socket", tag, false, data("request", func(h *wire.Header) { next(h); h.Flags |= wire.FlagJoined }, add)},
		{"response in the place of the next", tag, false, data("response", next, &wire.Record{Code: wire.CodeResult, Token: 1, Data: million})},
		{"bye", tag, false, data("request", next, &wire.Record{Code: wire.CodeBye})},
		{"ack of everything", tag, false, data("request", func(h *wire.Header) {
			*h = wire.Header{Kind: wire.KindAck, Session: h.Session, Credits: h.Credits, AckBits: ^uint64(0),
				AckLargest: h.AckLargest + 100, AckRequests: h.AckRequests + 100, AckResponses: h.AckResponses + 100}
		}, nil)},
		{"reset", tag, false, data("request", func(h *wire.Header) { *h = wire.Header{Kind: wire.KindReset, Session: h.Session} }, nil)},
		{"express request that comes next", code, false, func(n int) shot {
			return s.exchange("express request", n, express.Header{Exchange: 1, Records: 1}, put(add))
		}},
		{"express answer", code, false, func(n int) shot {
			return s.exchange("express answer", n, express.Header{Exchange: uint64(n & 1), Flags: wire.FlagResponse}, million)
		}},
	}
}

// put returns a record as it stands in a frame.
func put(r *wire.Record) []byte {
	b := make([]byte, wire.RecordSize(len(r.Data)))
	copy(wire.PutRecord(b, r, len(r.Data)), r.Data)
	return b
}

// exchange returns an express frame of a session that one of a kind has passed in. Its header
// counts exchanges from the last one on.
func (s *siege) exchange(kind string, n int, h express.Header, body []byte) shot {
	if s.kept[kind] == nil { // no XDP program executes anything
		kind = "request"
	}
	f := s.latest(kind)
	h.Session, h.Try = binary.LittleEndian.Uint64(f.payload[sessionAt:]), 1
	h.Exchange += binary.LittleEndian.Uint64(f.payload[sequenceAt:])
	key := &siphash.Key{byte(n)}
	if n%3 == 0 {
		key = nil // with a checksum
	}
	f.payload = append(make([]byte, wire.HeaderLen), body...)
	express.Request(f.payload, h, key)
	return f
}

// renumber gives a signed frame a number that has not come yet, of this key or a later one.
func renumber(payload []byte, n int) {
	if len(payload) >= wire.HeaderLen+secure.TrailerLen {
		number := payload[len(payload)-8:]
		binary.LittleEndian.PutUint64(number, binary.LittleEndian.Uint64(number)+[]uint64{1 << 20, 1 << 24, 1 << 40}[n/3%3])
	}
}

// window returns the window that requests are for.
func (s *siege) window() uint32 {
	for _, kind := range []string{"express request", "request", "joined"} {
		for _, f := range s.kept[kind] {
			var r wire.Record
			if wire.NextRecord(f.payload[wire.HeaderLen:], &r) > 0 && r.Code == wire.CodeGetAccumulate {
				return r.Window
			}
		}
	}
	return 1 // nobody can read which
}

// changed are frames that have passed, sent again as they were or not quite so.
func (s *siege) changed() []attack {
	everything := everyRefusal()
	var attacks []attack
	for _, kind := range s.kinds() {
		counts, also := []string{"fault replay"}, false
		switch kind {
		case "hello":
			continue // see offPath
		case "hello-ack":
			counts = []string{"handshakes"}
		case "ticket": // as a rank sends where the handshake takes long
			counts = []string{"handshakes", "hello_limited"}
		case "express request":
			counts, also = []string{"express_stale", "express_repeated", "express_busy", "express left", "express answered"}, true
		case "express answer":
			counts, also = []string{"late answers"}, true
		}
		attacks = append(attacks,
			attack{kind + " again", counts, also, func(int) shot { return s.any(kind) }},
			attack{kind + " again from elsewhere", counts, also, func(int) shot { f := s.any(kind); f.from = attacker; return f }},
		)
	}
	bit := func(f shot, n int) shot {
		if n%2 == 0 && slices.Contains([]wire.Kind{wire.KindData, wire.KindAck, wire.KindReset}, wire.Kind(f.payload[kindAt])) {
			renumber(f.payload, n) // or it would be refused before its tag is looked at
		}
		at := s.random.IntN(8 * len(f.payload))
		f.payload[at/8] ^= 1 << (at % 8)
		return f
	}
	for _, kind := range s.kinds() {
		attacks = append(attacks,
			attack{kind + " with another bit", everything, true, func(n int) shot { return bit(s.any(kind), n) }},
			attack{kind + " cut", everything, true, func(int) shot { f := s.any(kind); f.payload = f.payload[:s.random.IntN(len(f.payload))]; return f }},
			attack{kind + " to its sender", everything, true, func(n int) shot {
				f := s.any(kind)
				f.from, f.to = []int{f.to, attacker}[n%2], f.from
				return f
			}},
		)
		if kind == "hello" {
			continue
		}
		attacks = append(attacks, attack{kind + " in the other direction", everything, true, func(int) shot {
			f := s.any(kind)
			f.from, f.to = f.to, f.from
			binary.LittleEndian.PutUint64(f.payload[sessionAt:], s.sessions[f.to])
			return f
		}})
	}
	return append(attacks,
		attack{"everything at once", everything, true, func(n int) shot {
			if n%2 == 0 {
				s.look()
			}
			return s.newest
		}})
}
