package vmtests

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/protocol/secure"
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
	sated    bool              // it keeps no more frames
	last     map[string]shot   // of each kind and direction
	sessions map[int]uint64    // that frames to each rank name
	calm     []counters        // of each rank, while nothing was sent to it
}

// shot is a frame that somebody sends.
type shot struct {
	from, to int // whose addresses it has
	payload  []byte
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

// refused returns what all ranks have refused.
func refused(told []counters) map[string]uint64 {
	sum := map[string]uint64{}
	for _, c := range told {
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

// fire sends the frames of an attack, and returns how many.
func (s *siege) fire(shot func(n int) shot) (sent uint64) {
	s.t.Helper()
	const burst = 64 // which finds room
	began := time.Now()
	for n := range frames() {
		s.send(shot(n))
		if n%burst == burst-1 {
			s.look()
		}
		if *attackRate > 0 {
			time.Sleep(time.Until(began.Add(time.Duration(n) * time.Second / time.Duration(*attackRate))))
		}
	}
	return uint64(frames())
}

// rest sees how the ranks fare while the attacker is as busy as ever, with his own host.
func (s *siege) rest() {
	s.t.Helper()
	s.j.now()
	s.fire(func(int) shot {
		f := s.any("request")
		f.from, f.to = s.lab.Ranks()-1, s.lab.Ranks()-1 // no rank of the job
		return f
	})
	s.calm = s.j.now()
	s.t.Logf("undisturbed: %v", fares(s.calm))
}

// fares says how ranks fare.
func fares(told []counters) (text []string) {
	for rank, c := range told {
		text = append(text, fmt.Sprintf("rank %d: %d calls, half in %v, 99 %% in %v, %d kB in use", rank, c.Calls, c.P50, c.P99, c.Heap>>10))
	}
	return text
}

// checkFares compares how ranks fare under attack with how they did before: they have no more
// memory, and calls take no longer, if this is measured.
func (s *siege) checkFares(name string, told []counters) {
	s.t.Helper()
	const slower, grown = 2, 4 << 20 // times; bytes
	s.t.Logf("%s: %v", name, fares(told))
	for rank, c := range told {
		if was := s.calm[rank]; was.Calls > 0 && (c.Heap > was.Heap+grown || *attackRate > 0 && c.P99 > slower*was.P99) {
			s.t.Errorf("%s: rank %d has %d bytes in use and 99 %% of its calls took %v, where it had %d and took %v", name, rank, c.Heap, c.P99, was.Heap, was.P99)
		}
	}
}

// run carries out an attack, and looks whether the ranks go on and have counted its frames.
func (s *siege) run(a attack) {
	s.t.Helper()
	if !strings.HasPrefix(a.name, *attackOnly) {
		return
	}
	before := refused(s.j.now())
	sent, told := s.fire(a.shot), s.j.now()
	s.checkFares(a.name, told)
	var grown map[string]uint64
	total := uint64(0)
	for asked := 0; asked < mostAsked && (asked == 0 || a.counts != nil && total+grown["dropped"] < sent); asked++ {
		if asked > 0 {
			told = s.j.now()
		}
		grown, total = map[string]uint64{}, 0
		for name, n := range refused(told) {
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
