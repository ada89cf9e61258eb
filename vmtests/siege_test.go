package vmtests

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/siphash"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// siege is somebody on the path of a job.
type siege struct {
	t        *testing.T
	j        *job
	lab      *netlab.Lab
	random   *rand.Rand
	tap      int               // of the rank whose frames are read
	ports    map[int]int       // a socket at each rank's port of the bridge, by rank
	kept     map[string][]shot // by kind, some of the frames that have passed
	newest   shot              // that has passed
	passed   int
	sated    bool            // it keeps no more frames
	last     map[string]shot // of each kind and direction
	sessions map[int]uint64  // that frames to each rank name
}

// shot is a frame that somebody sends.
type shot struct {
	from, to int // whose addresses it has
	payload  []byte
}

// attack is a way to send frames that must have no effect.
type attack struct {
	name   string
	counts []string // the refusals of which there is one for each frame; nil: there need be none
	also   bool     // a few genuine frames may be counted there, too
	shot   func(n int) shot
}

const (
	mostKept  = 256 // frames of a kind
	mostRead  = 512 // frames at a time
	mostAsked = 100 // times for counters: what goes through the kernel's UDP may be late
)

// besiege stands on the path of a rank of a lab.
func besiege(t *testing.T, lab *netlab.Lab, at int) *siege {
	s := &siege{t: t, lab: lab, random: rand.New(rand.NewPCG(7, 8)), ports: map[int]int{},
		kept: map[string][]shot{}, last: map[string]shot{}, sessions: map[int]uint64{}}
	for rank := range lab.Ranks() {
		s.ports[rank] = tap(t, lab, rank)
		if rank != at { // it reads nothing
			must(t, unix.SetsockoptInt(s.ports[rank], unix.SOL_SOCKET, unix.SO_RCVBUF, 1))
		}
	}
	s.tap = s.ports[at]
	must(t, unix.SetsockoptInt(s.tap, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20))
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// kindOf says what a frame is for.
func kindOf(payload []byte) string {
	answers := payload[flagsAt]&wire.FlagResponse != 0
	switch wire.Kind(payload[kindAt]) {
	case wire.KindHello:
		return "hello"
	case wire.KindHelloAck:
		return "hello-ack"
	case wire.KindTicket:
		return "ticket"
	case wire.KindAck:
		return "ack"
	case wire.KindReset:
		return "reset"
	case wire.KindExpress:
		if answers {
			return "express answer"
		}
		return "express request"
	}
	switch {
	case payload[flagsAt]&wire.FlagJoined != 0:
		return "joined"
	case answers:
		return "response"
	}
	return "request"
}

// look reads what has passed, but no more than some frames: ranks may send faster than this reads.
func (s *siege) look() {
	const ipAt, udpAt, payloadAt = 14, 34, 42 // IPv4 without options
	b := make([]byte, 1<<16)
	for range mostRead {
		n, _, err := unix.Recvfrom(s.tap, b, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return
		}
		must(s.t, err)
		if n < payloadAt+wire.HeaderLen || b[12] != 8 || b[ipAt+9] != unix.IPPROTO_UDP {
			continue
		}
		from, to := int(b[ipAt+15])-1, int(b[ipAt+19])-1
		rest := slices.Clone(b[payloadAt:min(n, udpAt+int(binary.BigEndian.Uint16(b[udpAt+4:])))])
		for len(rest) >= wire.HeaderLen && binary.LittleEndian.Uint32(rest) == wire.Magic {
			end := len(rest)
			if kindOf(rest) == "joined" { // with frames of the same session, which the kernel takes apart later
				for i := wire.HeaderLen; ; i++ {
					next := bytes.Index(rest[i:], rest[:6])
					if i += next; next < 0 || i+16 > len(rest) {
						break
					}
					if [8]byte(rest[i+8:]) == [8]byte(rest[8:]) {
						end = i
						break
					}
				}
			}
			s.note(shot{from, to, rest[:end:end]})
			rest = rest[end:]
		}
	}
}

func (s *siege) note(f shot) {
	s.newest = f
	s.passed++
	if s.sated {
		return
	}
	kind := kindOf(f.payload)
	if kept := s.kept[kind]; len(kept) < mostKept {
		s.kept[kind] = append(kept, f)
	} else {
		kept[s.random.IntN(mostKept)] = f
	}
	s.last[fmt.Sprint(kind, f.to)] = f
	if kind == "request" {
		s.sessions[f.to] = binary.LittleEndian.Uint64(f.payload[sessionAt:])
	}
}

// await looks until frames of these kinds have passed.
func (s *siege) await(kinds ...string) {
	s.t.Helper()
	for _, kind := range kinds {
		testenv.Await(s.t, "a frame: "+kind, func() bool {
			s.look()
			return len(s.kept[kind]) > 0
		})
	}
}

// kinds returns of which kinds frames have passed.
func (s *siege) kinds() []string { return slices.Sorted(maps.Keys(s.kept)) }

// any returns a copy of a frame that has passed.
func (s *siege) any(kinds ...string) shot {
	if len(kinds) == 0 {
		kinds = s.kinds()
	}
	kept := s.kept[kinds[s.random.IntN(len(kinds))]]
	f := kept[s.random.IntN(len(kept))]
	f.payload = slices.Clone(f.payload)
	return f
}

// latest returns a copy of the last frame of a kind that has passed, to one rank or another.
func (s *siege) latest(kind string) shot {
	f, ok := s.last[fmt.Sprint(kind, s.random.IntN(2))]
	if !ok {
		return s.any(kind)
	}
	f.payload = slices.Clone(f.payload)
	return f
}

// send sends a frame over the last link to its target.
func (s *siege) send(f shot) {
	s.t.Helper()
	const headers = 42
	b := make([]byte, headers, headers+len(f.payload))
	copy(b, s.lab.MAC(f.to))
	copy(b[6:], s.lab.MAC(f.from))
	binary.BigEndian.PutUint16(b[12:], unix.ETH_P_IP)
	ip, udp := b[14:34], b[34:]
	ip[0], ip[6], ip[8], ip[9] = 0x45, 0x40, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(ip[2:], uint16(28+len(f.payload)))
	from, to := s.lab.Addr(f.from).As4(), s.lab.Addr(f.to).As4()
	copy(ip[12:], from[:])
	copy(ip[16:], to[:])
	binary.BigEndian.PutUint16(ip[10:], internetChecksum(ip))
	binary.BigEndian.PutUint16(udp, bootstrap.DefaultPort)
	binary.BigEndian.PutUint16(udp[2:], bootstrap.DefaultPort)
	binary.BigEndian.PutUint16(udp[4:], uint16(8+len(f.payload)))
	b = append(b, f.payload...)
	for {
		_, err := unix.Write(s.ports[f.to], b)
		if err == nil {
			return
		}
		if !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			s.t.Fatal(err)
		}
		time.Sleep(50 * time.Microsecond) // the link is full
	}
}

// refusals are the counters of frames that a rank takes no notice of, by name, with
// "dropped" for those that it has never seen.
func refusals(c counters) map[string]uint64 {
	m := map[string]uint64{"dropped": c.Device.RxDropped, "unknown": c.Unknown, "handshakes": c.Handshakes,
		"late answers": c.LateAnswers, "express left": c.ExpressDropped, "express answered": c.ExpressAnswered}
	for name, n := range c.Faults {
		m["fault "+name] = n
	}
	for _, name := range []string{"bad_length", "too_short", "split_header", "bad_magic", "bad_version", "unknown_kind", "unknown_session", "other_job", "bad_code", "hello_limited",
		"express_bad_form", "express_bad_checksum", "express_bad_code", "express_stale", "express_busy", "express_repeated"} {
		m[name] = c.Device.Filter[name]
	}
	return m
}

// everyRefusal returns the names of all refusals.
func everyRefusal() (names []string) {
	for name := range refusals(counters{}) {
		if name != "dropped" {
			names = append(names, name)
		}
	}
	for f := wire.Short; f < wire.NumFaults; f++ {
		names = append(names, "fault "+f.String())
	}
	return names
}

// count returns what all ranks have refused until now.
func (s *siege) count() map[string]uint64 {
	s.t.Helper()
	sum := map[string]uint64{}
	for _, c := range s.j.now() {
		for name, n := range refusals(c) {
			sum[name] += n
		}
	}
	return sum
}

// frames returns how many frames an attack has.
func frames() int {
	if *attackFrames > 0 {
		return *attackFrames
	}
	return int(testenv.Seeds(2000, 500))
}

// run carries out an attack, and looks whether the ranks go on and have counted its frames.
func (s *siege) run(a attack) {
	s.t.Helper()
	const burst = 64 // which finds room
	before, sent := s.count(), uint64(frames())
	for n := range frames() {
		s.send(a.shot(n))
		if n%burst == burst-1 {
			s.look()
		}
	}
	var grown map[string]uint64
	total := uint64(0)
	for asked := 0; asked < mostAsked && (asked == 0 || a.counts != nil && total+grown["dropped"] < sent); asked++ {
		grown, total = map[string]uint64{}, 0
		for name, n := range s.count() {
			if n -= before[name]; n > 0 {
				grown[name] = n
			}
		}
		for _, name := range a.counts {
			total += grown[name]
		}
	}
	s.t.Logf("%s: %d frames: %v", a.name, sent, grown)
	if a.counts != nil && total+grown["dropped"] < sent || !a.also && total > sent {
		s.t.Errorf("%s: %d frames were sent, and %d refused: %v", a.name, sent, total, grown)
	}
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
		{"hello again", nil, true, func(int) shot { return s.any("hello") }}, // it is answered, or limited
	}
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

// spy looks for records in the frames that have passed. By chance a sealed one might look like a record.
func (s *siege) spy(sealed bool) {
	s.t.Helper()
	seen, readable := 0, 0
	for _, kind := range []string{"request", "response", "joined"} {
		for _, f := range s.kept[kind] {
			var r wire.Record
			seen++
			if len(f.payload) > wire.HeaderLen+secure.TrailerLen && wire.NextRecord(f.payload[wire.HeaderLen:len(f.payload)-secure.TrailerLen], &r) > 0 {
				readable++
			}
		}
	}
	s.t.Logf("%d of %d frames can be read", readable, seen)
	if sealed && readable > 1 || !sealed && readable == 0 {
		s.t.Errorf("%d of %d frames can be read, and sealed are they: %t", readable, seen, sealed)
	}
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
			if before := s.passed; n%2 == 0 {
				testenv.Await(s.t, "a frame", func() bool { s.look(); return s.passed > before })
			}
			return s.newest
		}})
}
