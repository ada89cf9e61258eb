package device

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/logs"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/siphash"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/userspace"
)

const (
	loopback4 = "127.0.0.1:0"
	loopback6 = "[::1]:0"
)

func newUDP(t testing.TB, addr string) *end {
	t.Helper()
	dev, err := OpenUDP(Config{Config: userspace.Config{Address: netip.MustParseAddrPort(addr).Addr()}, Slots: 128})
	if errors.Is(err, unix.EADDRNOTAVAIL) || err != nil && strings.Contains(err.Error(), "no interface has") {
		testenv.Lacks(t, "this machine has no "+addr)
	}
	return newEnd(t, dev, err)
}

func TestUDPExchange(t *testing.T) {
	for _, addr := range []string{loopback4, loopback6} {
		t.Run(addr, func(t *testing.T) {
			a, b := newUDP(t, addr), newUDP(t, addr)
			if a.dev.Facts().Slab.MaxPayload != 8952 || a.dev.Facts().Mode.String() != "udp" {
				t.Errorf("largest payload %d, mode %s", a.dev.Facts().Slab.MaxPayload, a.dev.Facts().Mode.String())
			}
			exchange(t, a, b)
		})
	}
}

// More frames than a batch, a socket's buffer and the slots hold.
func TestUDPMany(t *testing.T) {
	a, b := newUDP(t, loopback4), newUDP(t, loopback4)
	path := a.path(b.dev.Facts().Local)
	const rounds, each = 50, 128
	for range rounds {
		var sent [][]byte
		for range each {
			sent = append(sent, message(wire.KindData, 1000))
		}
		a.send(path, sent...)
		sameMessages(t, b.receive(each), sent)
	}
}

func TestUDPEnqueueTakesWhatFits(t *testing.T) {
	a, b := newUDP(t, loopback4), newUDP(t, loopback4)
	path := a.path(b.dev.Facts().Local)
	outs := make([]Out, 128+5)
	for i := range outs {
		outs[i] = Out{Slot: int32(i % 128), Len: wire.HeaderLen, Path: path}
	}
	if n := a.dev.Enqueue(outs); n != 128 {
		t.Errorf("%d frames taken by 128 slots", n)
	}
	if n := a.dev.Enqueue(outs[:1]); n != 0 {
		t.Error("a frame taken by a full queue")
	}
	if n := a.dev.Reap(make([]int32, 5)); n != 0 {
		t.Errorf("%d slots reaped before they were sent", n)
	}
	a.dev.Transmit()
	if n := a.dev.Reap(make([]int32, 200)); n != 128 {
		t.Errorf("%d slots reaped", n)
	}
}

// A socket that has no room keeps the frames, and Sleep ends when it has.
func TestUDPFullBuffer(t *testing.T) {
	a, b := newUDP(t, loopback4), newUDP(t, loopback4)
	path := a.path(b.dev.Facts().Local)
	udp := a.dev.(*UDP)
	udp.tx.full.Store(true) // as if the socket had been full
	udp.Sleep(testenv.Limit)
	udp.tx.full.Store(false)
	if s := a.stats(); s.Sleeps != 1 {
		t.Errorf("%d sleeps", s.Sleeps)
	}
	// A frame longer than the loopback's MTU allows is given up and counted.
	udp.facts.Slab.MaxPayload = 1 << 20
	udp.facts.Slab.Mem = make([]byte, 1<<20)
	udp.facts.Slab.Slots = 1
	a.dev.Enqueue([]Out{{Slot: 0, Len: 70000, Path: path}})
	a.dev.Transmit()
	if s := a.stats(); s.TxErrors != 1 || s.TxDropped != 1 || s.TxFrames != 0 {
		t.Errorf("%+v", s)
	}
	if n := a.dev.Reap(make([]int32, 5)); n != 1 {
		t.Errorf("%d slots reaped", n)
	}
}

// Frames that another goroutine is about to send are no reason to stay awake: the
// core is needed for that goroutine.
func TestUDPSleepsWhileAnotherSends(t *testing.T) {
	a := newUDP(t, loopback4)
	udp := a.dev.(*UDP)
	udp.tx.waiting.Add(1)
	udp.tx.busy.Store(true)
	udp.Transmit()
	const pause = 20 * time.Millisecond
	begin := time.Now()
	udp.Sleep(pause)
	if slept := time.Since(begin); slept < pause {
		t.Errorf("slept for %v of %v", slept, pause)
	}
	udp.tx.busy.Store(false)
	udp.tx.waiting.Add(-1)
}

// Frames that the kernel refuses are told of with the peer's address and the cause, ever
// more rarely.
func TestUDPTellsOfRefusedFrames(t *testing.T) {
	var log logs.Log
	dev, err := OpenUDP(Config{Config: userspace.Config{Address: netip.MustParseAddrPort(loopback4).Addr()}, Slots: 1, Logger: log.Logger()})
	a := newEnd(t, dev, err)
	b := newUDP(t, loopback4)
	path := a.path(b.dev.Facts().Local)
	dev.facts.Slab.MaxPayload = 1 << 20
	dev.facts.Slab.Mem = make([]byte, 1<<20)
	const frames = 100
	before := log.Lines()
	for range frames {
		a.dev.Enqueue([]Out{{Slot: 0, Len: 70000, Path: path}})
		a.dev.Transmit()
		a.dev.Reap(make([]int32, 1))
	}
	if s := a.stats(); s.TxDropped != frames {
		t.Errorf("%d frames dropped", s.TxDropped)
	}
	lines := log.Lines() - before
	if lines != 7 || log.Lines(b.dev.Facts().Local.String()) != lines || log.Lines("message too long") != lines {
		t.Errorf("%d lines: %v", lines, &log)
	}
}

func TestSocketAddresses(t *testing.T) {
	for _, text := range []string{"10.1.2.3:4", "[fd00::1]:65535", "[fe80::1%3]:7"} {
		addr := netip.MustParseAddrPort(text)
		sa, err := encode(addr)
		if err != nil || sa.addr() != addr {
			t.Errorf("%v became %v, %v", addr, sa.addr(), err)
		}
	}
}

// A frame to a port that nobody has must not keep later frames from going.
func TestUDPPortUnreachable(t *testing.T) {
	a, b, gone := newUDP(t, loopback4), newUDP(t, loopback4), newUDP(t, loopback4)
	toB, toGone := a.path(b.dev.Facts().Local), a.path(gone.dev.Facts().Local)
	gone.close()
	for range 10 {
		m := message(wire.KindData, 100)
		a.send(toGone, m)
		a.send(toB, m)
		sameMessages(t, b.receive(1), [][]byte{m})
	}
}

func TestUDPTooLongIsCounted(t *testing.T) {
	a := newUDP(t, loopback4)
	dev, err := OpenUDP(Config{Config: userspace.Config{Address: netip.MustParseAddrPort(loopback4).Addr()}, MTU: 1328})
	b := newEnd(t, dev, err)
	path := a.path(b.dev.Facts().Local)
	ok := message(wire.KindData, 1300)
	a.send(path, message(wire.KindData, 1301), ok)
	sameMessages(t, b.receive(1), [][]byte{ok})
	if s := b.stats(); s.RxMalformed != 1 {
		t.Errorf("%+v", s)
	}
}

// Payloads stay what they are until Release, however many arrive meanwhile. A device has
// fewer buffers where each may have to hold several frames.
func TestUDPPayloadsLastUntilRelease(t *testing.T) {
	for buffers, receiving := range map[int]bool{batch: false, coalesced: true} {
		a, b := newUDP(t, loopback4), newUDP(t, loopback4)
		offload(t, b, false, receiving)
		path := a.path(b.dev.Facts().Local)
		var sent [][]byte
		for range buffers + 20 {
			sent = append(sent, message(wire.KindData, 100))
		}
		a.send(path, sent...)
		frames := make([]Frame, 10)
		var got []Frame
		for n := b.dev.Receive(frames); n > 0; n = b.dev.Receive(frames) {
			got = append(got, frames[:n]...)
		}
		if len(got) != buffers {
			t.Fatalf("%d messages before Release", len(got))
		}
		sameMessages(t, got, sent)
		b.dev.Release()
		if rest := b.receive(20); len(rest) != 20 {
			t.Errorf("%d messages after Release", len(rest))
		}
	}
}

func TestUDPConcurrentTransmit(t *testing.T) {
	a, b := newUDP(t, loopback4), newUDP(t, loopback4)
	path := a.path(b.dev.Facts().Local)
	const senders, each = 4, 75 // what an unprivileged socket buffer holds in all
	var lock sync.Mutex         // the engine's
	var wait sync.WaitGroup
	received := 0
	for range senders {
		wait.Go(func() {
			for sent := 0; sent < each; {
				lock.Lock()
				var slots [8]int32
				a.free = append(a.free, slots[:a.dev.Reap(slots[:])]...)
				if len(a.free) > 0 {
					m := message(wire.KindData, 100)
					copy(a.dev.Facts().Slab.Payload(a.free[0]), m)
					sent += a.dev.Enqueue([]Out{{Slot: a.free[0], Len: int32(len(m)), Path: path}})
					a.free = a.free[1:]
				}
				lock.Unlock()
				a.dev.Transmit()
			}
		})
	}
	received = len(b.receive(senders * each))
	wait.Wait()
	if received != senders*each {
		t.Errorf("%d messages", received)
	}
}

// A Wake before or during Sleep ends it; without one it lasts.
func TestUDPWake(t *testing.T) {
	a := newUDP(t, loopback4)
	testWake(t, a)
}

func testWake(t *testing.T, a *end) {
	t.Helper()
	a.dev.Wake()
	a.dev.Wake()
	a.dev.Sleep(time.Hour)
	before := a.stats().Wakeups
	slept := make(chan struct{})
	go func() {
		a.dev.Sleep(time.Hour)
		close(slept)
	}()
	for a.stats().Wakeups == before {
		select {
		case <-slept: // the wake came just before
			return
		default:
			a.dev.Wake()
		}
	}
	<-slept
	a.dev.Sleep(time.Millisecond) // nothing is left that would make it fail
}

func TestUDPAllocatesNothing(t *testing.T) {
	for _, addr := range []string{loopback4, loopback6} {
		testAllocations(t, newUDP(t, addr), newUDP(t, addr))
	}
}

// testAllocations sends messages from a to b, handshakes of a known sender
// among them, and checks that no step allocates.
func testAllocations(t *testing.T, a, b *end) {
	t.Helper()
	path := a.path(b.dev.Facts().Local)
	data, hello := message(wire.KindData, 500), message(wire.KindHello, 500)
	copy(a.dev.Facts().Slab.Payload(0), data)
	copy(a.dev.Facts().Slab.Payload(1), hello)
	a.send(path, hello)
	b.receive(1)
	outs := []Out{{Slot: 0, Len: 500, Path: path}, {Slot: 1, Len: 500, Path: path}}
	frames, slots := make([]Frame, 8), make([]int32, 8)
	copy(a.dev.Facts().Slab.Payload(0), data)
	copy(a.dev.Facts().Slab.Payload(1), hello)
	n := testing.AllocsPerRun(100, func() {
		if a.dev.Enqueue(outs) != 2 {
			t.Error("not enqueued")
		}
		a.dev.Transmit()
		for received := 0; received < 2; {
			received += b.dev.Receive(frames)
			b.dev.Release()
			b.dev.Wake()
			b.dev.Sleep(time.Millisecond)
		}
		for reaped := 0; reaped < 2; {
			reaped += a.dev.Reap(slots)
			a.dev.Transmit()
		}
	})
	if n != 0 {
		t.Errorf("%s: %v allocations", a.dev.Facts().Mode.String(), n)
	}
}

func TestUDPErrors(t *testing.T) {
	a := newUDP(t, loopback4)
	for name, c := range map[string]Config{
		"another process has UDP port": {Config: userspace.Config{Address: a.dev.Facts().Local.Addr(), Port: a.dev.Facts().Local.Port()}},
		"no interface has the address": {Config: userspace.Config{Address: netip.MustParseAddr("203.0.113.1")}},
		"not an address that peers":    {Config: userspace.Config{Address: netip.MustParseAddr("0.0.0.0")}},
		"invalid IP":                   {},
		"transmit slots":               {Config: userspace.Config{Address: netip.MustParseAddrPort(loopback4).Addr()}, Slots: -1},
		"an MTU of 1048576":            {Config: userspace.Config{Address: netip.MustParseAddrPort(loopback4).Addr()}, MTU: 1 << 20},
	} {
		_, err := OpenUDP(c)
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("want %q: %v", name, err)
		}
		if class := mpierr.ClassOf(err); class != mpierr.Arg && class != mpierr.Unsupported {
			t.Errorf("%q has class %v", name, class)
		}
	}
	for _, addr := range []string{"[::1]:5", "127.0.0.1:0", "0.0.0.0:5"} {
		if _, err := a.dev.Path(t.Context(), netip.MustParseAddrPort(addr)); !errors.Is(err, mpierr.Arg) {
			t.Errorf("path to %s: %v", addr, err)
		}
	}
}

// The senders of forged handshakes are remembered up to a limit, beyond which
// the process can still resolve addresses.
func TestUDPLearnsBoundedly(t *testing.T) {
	a, b := newUDP(t, loopback4), newUDP(t, loopback4)
	udp := b.dev.(*UDP)
	for i := range maxLearned {
		var sa sockaddr
		sa[20], sa[21], sa[22] = 1, byte(i>>8), byte(i)
		udp.paths.intern(&sa, maxLearned)
	}
	a.send(a.path(b.dev.Facts().Local), message(wire.KindHello, 100))
	if got := b.receive(1); got[0].Path != NoPath || b.stats().RxDropped != 1 {
		t.Errorf("path %d, %+v", got[0].Path, b.stats())
	}
	back := b.path(a.dev.Facts().Local)
	a.send(a.path(b.dev.Facts().Local), message(wire.KindHello, 100))
	if got := b.receive(1); got[0].Path != back {
		t.Errorf("path %d, want %d", got[0].Path, back)
	}
}

// Handshakes of another job leave no trace in the table of paths.
func TestUDPLearnsFromItsJob(t *testing.T) {
	a, b := newUDP(t, loopback4), newUDP(t, loopback4)
	udp := b.dev.(*UDP)
	udp.job = 7
	hello := func(job uint64) []byte {
		m := message(wire.KindHello, wire.HeaderLen+wire.HelloLen)
		h := wire.Hello{Job: job, Incarnation: 1, Session: 1, MaxPayload: wire.MinPayload, Credits: 1}
		h.Encode(m[wire.HeaderLen:])
		return m
	}
	to := a.path(b.dev.Facts().Local)
	a.send(to, hello(8))
	a.send(to, message(wire.KindHello, 100))
	for _, f := range b.receive(2) {
		if f.Path != NoPath {
			t.Errorf("a path was learned from a stranger")
		}
	}
	if udp.paths.paths.Load() != nil {
		t.Error("a stranger is in the table")
	}
	a.send(to, hello(7))
	if got := b.receive(1); got[0].Path == NoPath {
		t.Error("no path was learned from a rank of the job")
	}
}

// keyedHello returns a hello with a code.
func keyedHello(job uint64, key *siphash.Key) []byte {
	m := message(wire.KindHello, wire.GreetingLen)
	binary.LittleEndian.PutUint64(m[80:], job)
	wire.SignHandshake(m, key)
	return m
}

// With a key, no path is learned: who has captured a handshake can send it from anywhere.
func TestUDPLearnsNothingWithAKey(t *testing.T) {
	a, b := newUDP(t, loopback4), newUDP(t, loopback4)
	udp, key := b.dev.(*UDP), siphash.Key{1}
	udp.job, udp.keyed = 7, true
	a.send(a.path(b.dev.Facts().Local), keyedHello(7, &key))
	if f := b.receive(1); f[0].Path != NoPath || udp.paths.paths.Load() != nil {
		t.Error("a path was learned")
	}
}

func TestUDPLeaksNoFiles(t *testing.T) {
	taken := newUDP(t, loopback4)
	before := testenv.OpenFiles(t)
	for range 10 {
		d, err := OpenUDP(Config{Config: userspace.Config{Address: netip.MustParseAddrPort(loopback4).Addr()}})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if _, err := OpenUDP(Config{Config: userspace.Config{Address: taken.dev.Facts().Local.Addr(), Port: taken.dev.Facts().Local.Port()}}); err == nil {
			t.Error("a taken port was opened")
		}
	}
	if after := testenv.OpenFiles(t); after != before {
		t.Errorf("%d open files, %d before", after, before)
	}
}
