package bpf_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/bpf"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// The kernel's XDP verdicts.
const (
	xdpDrop     = 1
	xdpPass     = 2
	xdpRedirect = 4
)

const (
	passed         = bpf.ClassifierCounterCOUNTER_PASSED
	fragment       = bpf.ClassifierCounterCOUNTER_FRAGMENT
	redirected     = bpf.ClassifierCounterCOUNTER_REDIRECTED
	badLength      = bpf.ClassifierCounterCOUNTER_BAD_LENGTH
	tooShort       = bpf.ClassifierCounterCOUNTER_TOO_SHORT
	splitHeader    = bpf.ClassifierCounterCOUNTER_SPLIT_HEADER
	badMagic       = bpf.ClassifierCounterCOUNTER_BAD_MAGIC
	badVersion     = bpf.ClassifierCounterCOUNTER_BAD_VERSION
	unknownKind    = bpf.ClassifierCounterCOUNTER_UNKNOWN_KIND
	unknownSession = bpf.ClassifierCounterCOUNTER_UNKNOWN_SESSION
	otherJob       = bpf.ClassifierCounterCOUNTER_OTHER_JOB
	badHelloCode   = bpf.ClassifierCounterCOUNTER_BAD_CODE
	helloLimited   = bpf.ClassifierCounterCOUNTER_HELLO_LIMITED
	noSocket       = bpf.ClassifierCounterCOUNTER_NO_SOCKET
	joined         = bpf.ClassifierCounterCOUNTER_JOINED
	noSlot         = bpf.ClassifierCounterCOUNTER_EXPRESS_NO_SLOT
	badForm        = bpf.ClassifierCounterCOUNTER_EXPRESS_BAD_FORM
	badChecksum    = bpf.ClassifierCounterCOUNTER_EXPRESS_BAD_CHECKSUM
	otherPath      = bpf.ClassifierCounterCOUNTER_EXPRESS_PATH
	numCounters    = bpf.ClassifierCounterCOUNTERS
)

// verdictOf is what the program must return with each counter.
func verdictOf(c bpf.ClassifierCounter) uint32 {
	switch c {
	case passed, fragment, noSocket, joined:
		return xdpPass
	case redirected:
		return xdpRedirect
	}
	return xdpDrop
}

const (
	portBase = 4791
	numPorts = 2
	session  = 0x1122334455667788
	job      = 0x8877665544332211
)

// The addresses of the rank that the program belongs to, which has one at a time.
var own4, own6 = netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::a00:2")

// classifier is a loaded program with one known session and a socket on queue 0. The
// rank's address is own4 at first.
type classifier struct {
	bpf.ClassifierObjects
	last   [numCounters]uint64
	cfg    bpf.ClassifierConfig
	hellos bpf.ClassifierHelloConfig

	verdicts verdicts
}

func load(t testing.TB) *classifier {
	t.Helper()
	spec, err := bpf.LoadClassifier()
	if err != nil {
		t.Fatal(err)
	}
	return loadSpec(t, spec)
}

func loadSpec(t testing.TB, spec *ebpf.CollectionSpec) *classifier {
	t.Helper()
	testenv.NeedsRoot(t)
	c := &classifier{cfg: bpf.ClassifierConfig{Ports: bpf.ClassifierPorts{Base: portBase, Count: numPorts}}, hellos: bpf.ClassifierHelloConfig{Job: job}, verdicts: alone}
	if err := spec.LoadAndAssign(&c.ClassifierObjects, nil); err != nil {
		t.Fatalf("load: %+v", err)
	}
	t.Cleanup(func() { c.Close() })
	c.at(t, false)
	if err := c.Sessions.Put(uint64(session), uint32(0)); err != nil {
		t.Fatal(err)
	}
	socket, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW, 0)
	if err != nil {
		t.Fatalf("AF_XDP socket: %v", err)
	}
	t.Cleanup(func() { unix.Close(socket) })
	// Newer kernels take only sockets that can receive into the map.
	if err := unix.SetsockoptInt(socket, unix.SOL_XDP, unix.XDP_RX_RING, 64); err != nil {
		t.Fatalf("receive ring: %v", err)
	}
	if err := c.Xsks.Put(uint32(0), uint32(socket)); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *classifier) configure(t testing.TB) {
	t.Helper()
	if err := errors.Join(c.ConfigMap.Put(uint32(0), c.cfg), c.HelloMap.Put(uint32(0), c.hellos)); err != nil {
		t.Fatal(err)
	}
}

// limit sets the limit on handshakes.
func (c *classifier) limit(t testing.TB, interval, burst uint64) {
	t.Helper()
	c.hellos.HelloInterval, c.hellos.HelloBurst = interval, burst
	c.configure(t)
}

// at gives the rank its address of a family.
func (c *classifier) at(t testing.TB, v6 bool) {
	t.Helper()
	if c.ConfigMap == nil { // it has both
		return
	}
	a := own4
	c.cfg.Address.Protocol = unix.ETH_P_IP
	if v6 {
		a = own6
		c.cfg.Address.Protocol = unix.ETH_P_IPV6
	}
	var b [16]byte
	copy(b[:], a.AsSlice())
	c.cfg.Address.Words = [2]uint64{le.Uint64(b[:8]), le.Uint64(b[8:])}
	c.configure(t)
}

// run sends frame through the program and returns the counter that advanced,
// having checked that it is one, by one, and that the verdict agrees.
func (c *classifier) run(t *testing.T, frame []byte, context any) bpf.ClassifierCounter {
	t.Helper()
	if context != nil {
		testenv.NeedsFeature(t, testenv.SplitTestRun)
	}
	verdict, err := c.XdprmaClassify.Run(&ebpf.RunOptions{Data: frame, Context: context, Repeat: 1})
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	advanced := numCounters
	for i := range numCounters {
		var perCPU []uint64
		if err := c.Counters.Lookup(uint32(i), &perCPU); err != nil {
			t.Fatal(err)
		}
		var sum uint64
		for _, n := range perCPU {
			sum += n
		}
		switch {
		case sum == c.last[i]:
		case sum == c.last[i]+1 && advanced == numCounters:
			advanced = i
		default:
			t.Fatalf("counter %d went from %d to %d on one frame", i, c.last[i], sum)
		}
		c.last[i] = sum
	}
	if advanced == numCounters {
		t.Fatalf("verdict %d and no counter", verdict)
	}
	if want := verdictOf(advanced); verdict != want {
		t.Fatalf("verdict %d with counter %d, want %d", verdict, advanced, want)
	}
	return advanced
}

func TestClassify(t *testing.T) {
	c := load(t)
	data := message(wire.KindData, session)
	tests := []struct {
		name string
		p    packet
		want bpf.ClassifierCounter
	}{
		{"v4", packet{payload: data}, redirected},
		{"v6", packet{v6: true, payload: data}, redirected},
		{"second port", packet{port: portBase + 1, payload: data}, redirected},
		{"one VLAN tag", packet{vlans: []uint16{unix.ETH_P_8021Q}, payload: data}, redirected},
		{"two VLAN tags", packet{vlans: []uint16{unix.ETH_P_8021AD, unix.ETH_P_8021Q}, payload: data}, redirected},
		{"two VLAN tags, v6", packet{v6: true, vlans: []uint16{unix.ETH_P_8021AD, unix.ETH_P_8021Q}, payload: data}, redirected},
		{"three VLAN tags", packet{vlans: []uint16{unix.ETH_P_8021Q, unix.ETH_P_8021Q, unix.ETH_P_8021Q}, payload: data}, passed},
		{"a VLAN", packet{vlans: []uint16{unix.ETH_P_8021Q}, ids: [3]uint16{77}, payload: data}, passed},
		{"a VLAN, v6", packet{v6: true, vlans: []uint16{unix.ETH_P_8021Q}, ids: [3]uint16{1}, payload: data}, passed},
		{"a VLAN of a provider", packet{vlans: []uint16{unix.ETH_P_8021AD}, ids: [3]uint16{0xfff}, payload: data}, passed},
		{"a VLAN behind a priority", packet{vlans: []uint16{unix.ETH_P_8021AD, unix.ETH_P_8021Q}, ids: [3]uint16{0, 77}, payload: data}, passed},
		{"a priority in a VLAN", packet{vlans: []uint16{unix.ETH_P_8021Q, unix.ETH_P_8021Q}, ids: [3]uint16{0x800, 0}, payload: data}, passed},
		{"4 bytes of options", packet{options: 4, payload: data}, redirected},
		{"40 bytes of options", packet{options: 40, payload: data}, redirected},
		{"options and two tags", packet{options: 40, vlans: []uint16{unix.ETH_P_8021AD, unix.ETH_P_8021Q}, payload: data}, redirected},
		{"padded", packet{pad: 9, payload: data}, redirected},
		{"header alone", packet{payload: data[:wire.HeaderLen]}, redirected},
		{"hello", packet{payload: message(wire.KindHello, 0)}, redirected},
		{"hello of another job", packet{payload: helloOf(job + 1)}, otherJob},
		{"hello of job 0", packet{payload: helloOf(0)}, otherJob},
		{"hello without a body", packet{payload: message(wire.KindHello, 0)[:wire.HeaderLen]}, otherJob},
		{"hello a byte too short", packet{payload: message(wire.KindHello, 0)[:wire.HeaderLen+wire.HelloLen-1]}, otherJob},
		{"hello a byte too long", packet{payload: append(message(wire.KindHello, 0), 0)}, otherJob},
		{"hello-ack", packet{payload: message(wire.KindHelloAck, session)}, redirected},
		{"ack", packet{payload: message(wire.KindAck, session)}, redirected},
		{"reset", packet{payload: message(wire.KindReset, session)}, redirected},
		{"don't fragment", packet{fragment: 0x4000, payload: data}, redirected},
		{"first fragment", packet{fragment: 0x2000, payload: data}, fragment},
		{"later fragment", packet{fragment: 0x2001, payload: data}, fragment},
		{"last fragment", packet{fragment: 0x0001, payload: data}, fragment},
		{"fragment of another protocol", packet{fragment: 0x2000, proto: unix.IPPROTO_ICMP, payload: data}, passed},
		{"ICMP", packet{proto: unix.IPPROTO_ICMP, payload: data}, passed},
		{"TCP", packet{proto: unix.IPPROTO_TCP, payload: data}, passed},
		{"v6 routing header", packet{v6: true, proto: unix.IPPROTO_ROUTING, payload: data}, passed},
		{"v6 fragment header", packet{v6: true, proto: unix.IPPROTO_FRAGMENT, payload: data}, passed},
		{"port below", packet{port: portBase - 1, payload: data}, passed},
		{"port above", packet{port: portBase + numPorts, payload: data}, passed},
		{"UDP longer than IP", packet{udpLen: 1, pad: 8, payload: data}, badLength},
		{"UDP shorter than IP", packet{udpLen: -1, payload: data}, badLength},
		{"UDP shorter than its header", packet{udpLen: -len(data) - 1, ipLen: -len(data) - 1, payload: data}, badLength},
		{"UDP length 0", packet{udpLen: -len(data) - 8, payload: data}, badLength},
		{"both longer than the frame", packet{udpLen: 1, ipLen: 1, payload: data}, badLength},
		{"IP shorter than its header", packet{ipLen: -len(data) - 24, payload: data}, badLength},
		{"v6 jumbogram", packet{v6: true, ipLen: -len(data) - 8, payload: data}, badLength},
		{"no payload", packet{}, tooShort},
		{"one byte short of the header", packet{payload: data[:wire.HeaderLen-1], pad: 8}, tooShort},
		{"magic", packet{payload: changed(data, 3, 0)}, badMagic},
		{"version 0", packet{payload: changed(data, 4, 0)}, badVersion},
		{"version 1", packet{payload: changed(data, 4, 1)}, badVersion},
		{"kind 0", packet{payload: changed(data, 5, 0)}, unknownKind},
		{"kind 7", packet{payload: changed(data, 5, 7)}, unknownKind},
		{"kind 255", packet{payload: changed(data, 5, 255)}, unknownKind},
		{"unknown session", packet{payload: changed(data, 8, 0)}, unknownSession},
		{"data with session 0", packet{payload: message(wire.KindData, 0)}, unknownSession},
		{"hello with a known session", packet{payload: message(wire.KindHello, session)}, redirected},
		{"hello with an unknown session", packet{payload: message(wire.KindHello, 5)}, unknownSession},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			frame := tt.p.bytes()
			c.at(t, tt.p.v6)
			if got := c.run(t, frame, nil); got != tt.want {
				t.Errorf("counter %d, want %d", got, tt.want)
			}
			if got := oracle(frame, tt.p.v6); got != tt.want {
				t.Errorf("the oracle says %d, want %d", got, tt.want)
			}
		})
	}
}

// A frame cut anywhere passes while its port is unknown, and is dropped after.
func TestTruncated(t *testing.T) {
	c := load(t)
	for _, p := range []packet{
		{},
		{v6: true},
		{options: 12, vlans: []uint16{unix.ETH_P_8021AD, unix.ETH_P_8021Q}},
	} {
		c.at(t, p.v6)
		bare := len(p.bytes())
		p.payload = message(wire.KindData, session)
		whole := p.bytes()
		for n := 14; n <= len(whole); n++ { // the kernel's test run takes no less
			want := passed
			switch {
			case n == len(whole):
				want = redirected
			case n >= bare:
				want = badLength
			}
			if got := c.run(t, whole[:n:n], nil); got != want {
				t.Errorf("%d of %d bytes: counter %d, want %d", n, len(whole), got, want)
			}
		}
		for n := range wire.HeaderLen {
			p.payload = whole[bare : bare+n]
			if got := c.run(t, p.bytes(), nil); got != tooShort {
				t.Errorf("payload of %d bytes: counter %d, want %d", n, got, tooShort)
			}
		}
	}
}

// md is the program's context as the kernel's test run takes it.
type md struct{ Data, DataEnd, DataMeta, Ingress, Queue, Egress uint32 }

// Frames in several buffers are accepted if the first holds all headers.
func TestMultiBuffer(t *testing.T) {
	c := load(t)
	long := message(wire.KindData, session)
	frame := packet{payload: append(long, make([]byte, 8900)...)}.bytes()
	if got := c.run(t, frame, nil); got != redirected {
		t.Errorf("counter %d, want %d", got, redirected)
	}
	cut := packet{udpLen: 1, ipLen: 1, payload: append(long, make([]byte, 8900)...)}.bytes()
	if got := c.run(t, cut, nil); got != badLength {
		t.Errorf("length beyond the last buffer: counter %d, want %d", got, badLength)
	}
	const headers = 14 + 20 + 8
	for _, tt := range []struct {
		first uint32
		want  bpf.ClassifierCounter
	}{
		{headers - 1, passed}, {headers, splitHeader},
		{headers + wire.HeaderLen - 1, splitHeader}, {headers + wire.HeaderLen, redirected},
	} {
		if got := c.run(t, frame, &md{DataEnd: tt.first}); got != tt.want {
			t.Errorf("first buffer of %d bytes: counter %d, want %d", tt.first, got, tt.want)
		}
	}
}

// The limit lets a burst through and then the rate; other kinds do not suffer.
func TestHelloLimit(t *testing.T) {
	c := load(t)
	pinToCPU(t)
	const burst = 5
	const interval = 3600e9
	c.limit(t, interval, burst*interval)
	hello := packet{payload: message(wire.KindHello, 0)}.bytes()
	data := packet{payload: message(wire.KindData, session)}.bytes()
	for i := range 2 * burst {
		want := redirected
		if i >= burst {
			want = helloLimited
		}
		if got := c.run(t, hello, nil); got != want {
			t.Errorf("hello %d: counter %d, want %d", i, got, want)
		}
		if got := c.run(t, data, nil); got != redirected {
			t.Errorf("data after hello %d: counter %d, want %d", i, got, redirected)
		}
	}
	// A nanosecond's interval is over by the next frame; the debt is forgotten with it.
	if err := c.HelloUsed.Put(uint32(0), make([]uint64, ebpf.MustPossibleCPU())); err != nil {
		t.Fatal(err)
	}
	c.limit(t, 1, 1)
	for i := range 2 * burst {
		if got := c.run(t, hello, nil); got != redirected {
			t.Errorf("hello %d at a high rate: counter %d, want %d", i, got, redirected)
		}
	}
	c.limit(t, 1, 0)
	if got := c.run(t, hello, nil); got != helloLimited {
		t.Errorf("burst of 0: counter %d, want %d", got, helloLimited)
	}
}

// However many hellos of other jobs come in, as many of the job's own get through.
func TestHelloOfAnotherJobCostsNoToken(t *testing.T) {
	c := load(t)
	pinToCPU(t)
	const burst = 5
	const interval = 3600e9
	c.limit(t, interval, burst*interval)
	stranger, own := packet{payload: helloOf(job + 1)}.bytes(), packet{payload: helloOf(job)}.bytes()
	for i := range burst {
		for range 2 * burst {
			if got := c.run(t, stranger, nil); got != otherJob {
				t.Fatalf("hello of another job: counter %d, want %d", got, otherJob)
			}
		}
		if got := c.run(t, own, nil); got != redirected {
			t.Errorf("hello %d of the job: counter %d, want %d", i, got, redirected)
		}
	}
	if got := c.run(t, own, nil); got != helloLimited {
		t.Errorf("hello beyond the limit: counter %d, want %d", got, helloLimited)
	}
}

// A program that was told no job lets hellos of any through.
func TestHelloOfAnyJob(t *testing.T) {
	c := load(t)
	c.hellos.Job = 0
	c.limit(t, 1, 1)
	for _, payload := range [][]byte{helloOf(job), helloOf(5), message(wire.KindHello, 0)[:wire.HeaderLen]} {
		if got := c.run(t, packet{payload: payload}.bytes(), nil); got != redirected {
			t.Errorf("counter %d, want %d", got, redirected)
		}
	}
}

// pinToCPU keeps the test on one CPU, because the limit is kept for each.
func pinToCPU(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	var old, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		t.Fatal(err)
	}
	for cpu := range 1024 {
		if old.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.SchedSetaffinity(0, &old) })
}

// Random and damaged frames fare as an independent reading of them says.
func TestRandomFrames(t *testing.T) {
	c := load(t)
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	var seen [numCounters]int
	for range 6000 {
		v6 := rng.IntN(2) == 0
		if v6 != (c.cfg.Address.Protocol == unix.ETH_P_IPV6) {
			c.at(t, v6)
		}
		frame := randomFrame(rng, v6)
		got, want := c.run(t, frame, nil), oracle(frame, v6)
		if got != want {
			t.Fatalf("seed %#x: frame %x: counter %d, want %d", seed, frame, got, want)
		}
		seen[got]++
	}
	if seen[redirected] == 0 || seen[joined] == 0 || seen[badLength] == 0 || seen[passed] == 0 {
		t.Errorf("seed %#x: counters %v: the frames are too much alike", seed, seen)
	}
}

// randomFrame is a good frame, most often for a rank with an address of that family, with
// some bytes damaged, or noise.
func randomFrame(rng *rand.Rand, v6 bool) []byte {
	if rng.IntN(8) == 0 {
		b := make([]byte, 14+rng.IntN(200))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	tags := []uint16{unix.ETH_P_8021Q, unix.ETH_P_8021AD}
	p := packet{
		v6: v6 != (rng.IntN(8) == 0), options: 4 * rng.IntN(11), pad: rng.IntN(3),
		port:    portBase + uint16(rng.IntN(numPorts)),
		vlans:   tags[:rng.IntN(3)],
		ids:     [3]uint16{77 * uint16(rng.IntN(8)/7), uint16(rng.IntN(8)/7) << 11},
		payload: message(wire.Kind(rng.IntN(8)), session*uint64(rng.IntN(2))),
	}
	if rng.IntN(8) == 0 {
		p.payload[6] |= wire.FlagJoined
	}
	b := p.bytes()
	for range rng.IntN(3) {
		b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
	}
	if rng.IntN(8) == 0 {
		b = b[:14+rng.IntN(len(b)-14)]
	}
	return b
}

// oracle says what must become of a frame in one buffer at the rank with own4 or own6, by
// another way of reading it than the program's: it cuts slices and never computes offsets.
func oracle(b []byte, v6 bool) bpf.ClassifierCounter {
	be := binary.BigEndian
	proto, b := be.Uint16(b[12:]), b[14:]
	for range 2 {
		if (proto == unix.ETH_P_8021Q || proto == unix.ETH_P_8021AD) && len(b) >= 4 {
			if be.Uint16(b)<<4 != 0 {
				return passed
			}
			proto, b = be.Uint16(b[2:]), b[4:]
		}
	}
	var ipPayload int
	switch {
	case proto == unix.ETH_P_IP && !v6 && len(b) >= 20:
		header := int(b[0]&15) * 4
		if b[0]>>4 != 4 || header < 20 || b[9] != unix.IPPROTO_UDP || netip.AddrFrom4([4]byte(b[16:20])) != own4 {
			return passed
		}
		if be.Uint16(b[6:])&0x3fff != 0 {
			return fragment
		}
		ipPayload = int(be.Uint16(b[2:])) - header
		if len(b) < header {
			return passed
		}
		b = b[header:]
	case proto == unix.ETH_P_IPV6 && v6 && len(b) >= 40:
		if b[0]>>4 != 6 || b[6] != unix.IPPROTO_UDP || netip.AddrFrom16([16]byte(b[24:40])) != own6 {
			return passed
		}
		ipPayload, b = int(be.Uint16(b[4:])), b[40:]
	default:
		return passed
	}
	if len(b) < 8 {
		return passed
	}
	if port := int(be.Uint16(b[2:])); port < portBase || port >= portBase+numPorts {
		return passed
	}
	length := int(be.Uint16(b[4:]))
	if length < 8 || length != ipPayload || length > len(b) {
		return badLength
	}
	return oraclePayload(b[8:length])
}

func oraclePayload(b []byte) bpf.ClassifierCounter {
	le := binary.LittleEndian
	switch {
	case len(b) < wire.HeaderLen:
		return tooShort
	case string(b[:4]) != "XRMA":
		return badMagic
	case b[4] != wire.Version:
		return badVersion
	case b[5] < 1 || b[5] > 6:
		return unknownKind
	}
	id := le.Uint64(b[8:])
	if id == session {
		if wire.Kind(b[5]) == wire.KindData && b[6]&wire.FlagJoined != 0 {
			return joined
		}
		return redirected
	}
	if id != 0 || wire.Kind(b[5]) != wire.KindHello {
		return unknownSession
	}
	if len(b) != wire.HeaderLen+wire.HelloLen || le.Uint64(b[wire.HeaderLen:]) != job {
		return otherJob
	}
	return redirected
}

func ExampleLoadClassifier() {
	spec, err := bpf.LoadClassifier()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(spec.Programs[bpf.ClassifierProgXdprmaClassify].SectionName)
	// Output: xdp.frags
}
