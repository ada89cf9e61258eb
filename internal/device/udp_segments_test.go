package device

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/logs"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/userspace"
)

// offload makes a device send several frames as one message, or not, and receive
// several as one, or not.
func offload(t testing.TB, e *end, sending, receiving bool) {
	t.Helper()
	u, on := e.dev.(*UDP), 0
	e.joins = sending
	if receiving {
		on = 1
	}
	if err := unix.SetsockoptInt(u.fd, unix.SOL_UDP, unix.UDP_GRO, on); err != nil {
		t.Fatal(err)
	}
	u.rx.init(u.facts.Slab.MaxPayload, receiving)
}

// join has frames share messages as the link would have them, if e joins frames.
func (e *end) join(outs []Out) {
	if !e.joins {
		return
	}
	frames, bytes := 1, 0
	for i := range outs[:len(outs)-1] {
		o, next := &outs[i], outs[i+1]
		bytes += int(o.Len)
		first := outs[i+1-frames].Len
		if o.Len != first || next.Len > first || frames == maxSegments || bytes+int(next.Len) > 1<<16-1-ipv6Len-udpLen {
			frames, bytes = 1, 0
			continue
		}
		o.More = true
		frames++
	}
}

// offloads calls f for devices of both kinds at each end.
func offloads(t *testing.T, f func(t *testing.T, sending, receiving bool)) {
	for _, sending := range []bool{false, true} {
		for _, receiving := range []bool{false, true} {
			t.Run(fmt.Sprintf("joined at the sender %v, at the receiver %v", sending, receiving), func(t *testing.T) {
				f(t, sending, receiving)
			})
		}
	}
}

// sameOrder checks that messages have the payloads that were sent, in order.
func sameOrder(t *testing.T, got []Frame, want [][]byte) {
	t.Helper()
	for i, w := range want {
		if !bytes.Equal(got[i].Payload, w) {
			t.Fatalf("message %d of %d has %d bytes, not the %d that were sent", i, len(want), len(got[i].Payload), len(w))
		}
	}
}

// exchangeRuns sends frames of many runs of lengths from a to b, and checks what arrives
// and what both ends count.
func exchangeRuns(t *testing.T, a, b *end) {
	t.Helper()
	to := a.path(b.dev.Facts().Local)
	full := min(a.dev.Facts().Slab.MaxPayload, b.dev.Facts().Slab.MaxPayload)
	for _, lengths := range [][]int{
		{full},
		{wire.HeaderLen, wire.HeaderLen, wire.HeaderLen},
		{full, full},
		{full, full, wire.HeaderLen},
		{full, full, full - 1, full, full - 1, full - 1, 100},
		{100, full, full, 101, 101, 100, 100, full},
		repeat(100, full),
		append(repeat(63, full), 100),
		append(repeat(64, 501), 500, 501),
		append(repeat(65, 997), 996),
		repeat(300, wire.HeaderLen+37),
	} {
		for begin := 0; begin < len(lengths); begin += 100 { // within the slots, and a small socket buffer
			var sent [][]byte
			sum := 0
			for _, n := range lengths[begin:min(begin+100, len(lengths))] {
				sent, sum = append(sent, message(wire.KindData, n)), sum+n
			}
			before, received := a.stats(), b.stats()
			for rest := sent; len(rest) > 0; {
				n := min(len(rest), max(1, 100_000/full))
				a.send(to, rest[:n]...)
				sameOrder(t, b.receive(n), rest[:n])
				rest = rest[n:]
			}
			s, r := a.stats(), b.stats()
			if s.TxFrames-before.TxFrames != uint64(len(sent)) || s.TxBytes-before.TxBytes != uint64(sum) || s.TxErrors+s.TxDropped > 0 {
				t.Errorf("%d frames of %d bytes in all: before %+v, after %+v", len(sent), sum, before, s)
			}
			if r.RxFrames-received.RxFrames != uint64(len(sent)) || r.RxBytes-received.RxBytes != uint64(sum) || r.RxDropped+r.RxMalformed > 0 {
				t.Errorf("%d frames of %d bytes in all: before %+v, after %+v", len(sent), sum, received, r)
			}
		}
	}
}

func repeat(n, length int) (lengths []int) {
	for range n {
		lengths = append(lengths, length)
	}
	return lengths
}

func TestUDPRunsOfFrames(t *testing.T) {
	for _, addr := range []string{loopback4, loopback6} {
		for _, payload := range []int{1300, 8952} {
			offloads(t, func(t *testing.T, sending, receiving bool) {
				open := func() *end {
					dev, err := OpenUDP(Config{Config: userspace.Config{Address: netip.MustParseAddrPort(addr).Addr()}, Slots: 128, MTU: payload + udpLen + ipLen(netip.MustParseAddrPort(addr).Addr())})
					return newEnd(t, dev, err)
				}
				a, b := open(), open()
				offload(t, a, sending, false)
				offload(t, b, false, receiving)
				exchangeRuns(t, a, b)
			})
		}
	}
}

func TestUDPRunsOfFramesInNamespaces(t *testing.T) {
	for _, ranks := range []int{2, 3} { // with three, over a bridge
		l := labtest.New(t, netlab.Config{Ranks: ranks, MTU: 1500})
		for _, v6 := range []bool{false, true} {
			offloads(t, func(t *testing.T, sending, receiving bool) {
				a, b := openEnd(t, l, 0, userspace.UDP, v6), openEnd(t, l, 1, userspace.UDP, v6)
				offload(t, a, sending, false)
				offload(t, b, false, receiving)
				exchangeRuns(t, a, b)
			})
		}
	}
}

// An AF_XDP socket never gets several frames as one: the driver has them cut, and in
// generic mode the kernel's socket gets them.
func TestXDPReceivesRunsOfFramesFromUDP(t *testing.T) {
	for _, transport := range []userspace.Transport{userspace.XDPNative, userspace.XDPGeneric} {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, IPv6 %v", transport, v6), func(t *testing.T) {
				l := labtest.New(t, netlab.Config{Ranks: 2, MTU: 1500})
				a, b := openEnd(t, l, 0, userspace.UDP, v6), openEnd(t, l, 1, transport, v6)
				offload(t, a, true, true)
				full := a.dev.Facts().Slab.MaxPayload
				for _, n := range []int{100, full} {
					var sent [][]byte
					for range 40 {
						sent = append(sent, message(wire.KindData, n))
					}
					a.send(a.path(b.dev.Facts().Local), sent...)
					sameMessages(t, b.receive(len(sent)), sent)
				}
				if s := b.stats(); s.RxDropped+s.RxMalformed > 0 || (s.Filter["joined"] > 0) != (transport == userspace.XDPGeneric) {
					t.Errorf("%+v", s)
				}
			})
		}
	}
}

// Frames to several peers take turns without sharing a message.
func TestUDPRunsToSeveralPeers(t *testing.T) {
	a, b, c := newUDP(t, loopback4), newUDP(t, loopback4), newUDP(t, loopback4)
	paths := [2]PathID{a.path(b.dev.Facts().Local), a.path(c.dev.Facts().Local)}
	var sent [2][][]byte
	var outs []Out
	for i, to := range []int{0, 0, 1, 0, 1, 1, 1, 0} {
		m := message(wire.KindData, 8000)
		copy(a.dev.Facts().Slab.Payload(int32(i)), m)
		sent[to] = append(sent[to], m)
		outs = append(outs, Out{Slot: int32(i), Len: 8000, Path: paths[to]})
	}
	for i := range outs[:len(outs)-1] {
		outs[i].More = true
	}
	if n := a.dev.Enqueue(outs); n != len(outs) {
		t.Fatalf("%d frames taken", n)
	}
	a.dev.Transmit()
	sameOrder(t, b.receive(len(sent[0])), sent[0])
	sameOrder(t, c.receive(len(sent[1])), sent[1])
}

// Frames that came as one message stay valid until Release, and the rest of the message
// ends a Sleep, although the socket is empty.
func TestUDPKeepsTheRestOfAMessage(t *testing.T) {
	a, b := newUDP(t, loopback4), newUDP(t, loopback4)
	offload(t, a, true, false)
	offload(t, b, false, true)
	var sent [][]byte
	for range 60 {
		sent = append(sent, message(wire.KindData, 500))
	}
	a.send(a.path(b.dev.Facts().Local), sent...)
	b.dev.Sleep(testenv.Limit)
	frames := make([]Frame, 7)
	for len(sent) > 0 {
		b.dev.Sleep(time.Hour)
		var got []Frame
		for range 2 {
			got = append(got, frames[:b.dev.Receive(frames)]...)
		}
		if len(got) != min(14, len(sent)) {
			t.Fatalf("%d messages of %d", len(got), len(sent))
		}
		sameOrder(t, got, sent[:len(got)])
		sent = sent[len(got):]
		b.dev.Release()
	}
	if n := b.dev.Receive(frames); n != 0 {
		t.Errorf("%d messages too many", n)
	}
}

// forger is a socket that sends what no device would.
type forger struct {
	t  *testing.T
	fd int
	to unix.Sockaddr
}

func newForger(t *testing.T, to netip.AddrPort) *forger {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	raw, err := rawAddress(to)
	if err != nil {
		t.Fatal(err)
	}
	return &forger{t: t, fd: fd, to: raw}
}

// send sends b as datagrams of size bytes.
func (f *forger) send(b []byte, size int) {
	f.t.Helper()
	if err := unix.SetsockoptInt(f.fd, unix.SOL_UDP, unix.UDP_SEGMENT, size); err != nil {
		f.t.Fatal(err)
	}
	if err := unix.Sendto(f.fd, b, 0, f.to); err != nil {
		f.t.Fatalf("%d bytes in datagrams of %d: %v", len(b), size, err)
	}
}

// Whatever joined datagrams a stranger sends is cut where the stranger had it cut, and
// what is too long for a frame is counted, however much of it comes at once.
func TestUDPForgedRuns(t *testing.T) {
	for _, receiving := range []bool{false, true} {
		dev, err := OpenUDP(Config{Config: userspace.Config{Address: netip.MustParseAddrPort(loopback4).Addr()}, Slots: 8, MTU: 1328})
		b := newEnd(t, dev, err)
		offload(t, b, false, receiving)
		f := newForger(t, b.dev.Facts().Local)
		content := message(wire.KindData, 64000)
		for _, forged := range []struct{ length, size int }{
			{0, 0}, {0, 100}, {1, 0}, {1, 1}, {63, 1}, {1000, 37}, {1300, 1300}, {1301, 1300}, {64 * 999, 1000}, {64, 64000},
		} {
			f.send(content[:forged.length], forged.size)
			var want [][]byte
			for rest := content[:forged.length]; len(want) == 0 || len(rest) > 0; {
				n := len(rest)
				if forged.size > 0 {
					n = min(n, forged.size)
				}
				want, rest = append(want, rest[:n]), rest[n:]
			}
			sameOrder(t, b.receive(len(want)), want)
		}
		malformed := uint64(0)
		for range coalesced + 3 {
			f.send(content[:1301*4], 1301)
			f.send(content[:2000], 0)
			malformed += 5
		}
		// One after the other that is too long, and good frames between.
		f.send(content[:1301+1300], 1301)
		malformed++
		good := message(wire.KindData, 1300)
		f.send(good, 0)
		sameOrder(t, b.receive(2), [][]byte{content[1301 : 1301+1300], good})
		if s := b.stats(); s.RxMalformed != malformed || s.RxDropped != 0 {
			t.Errorf("%d malformed frames are counted as %+v", malformed, s)
		}
	}
}

// The kernel cuts no messages for a socket that computes no checksums, as over an
// interface that cannot. Joined frames are lost then, and others are not.
func TestUDPWithoutSegmentation(t *testing.T) {
	var log logs.Log
	dev, err := OpenUDP(Config{Config: userspace.Config{Address: netip.MustParseAddrPort(loopback4).Addr()}, Slots: 128, MTU: 1328, Logger: log.Logger()})
	a, b := newEnd(t, dev, err), newUDP(t, loopback4)
	if err := unix.SetsockoptInt(dev.fd, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1); err != nil {
		t.Fatal(err)
	}
	to := a.path(b.dev.Facts().Local)
	sent := messages(60, 1000)
	a.joins = true
	a.send(to, sent...)
	a.joins = false
	a.send(to, sent[:3]...)
	sameOrder(t, b.receive(3), sent[:3])
	if s := a.stats(); s.TxFrames != 3 || s.TxErrors != 1 || s.TxDropped != 60 {
		t.Errorf("%+v", s)
	}
	if log.Lines("one by one") != 1 {
		t.Errorf("%v", &log)
	}
}

// Frames that the interface's MTU no longer fits are dropped and counted, and shorter
// frames go on as before.
func TestUDPRunsAfterTheMTUShrank(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2, MTU: 1500})
	for _, v6 := range []bool{false, true} {
		a, b := openEnd(t, l, 0, userspace.UDP, v6), openEnd(t, l, 1, userspace.UDP, v6)
		a.joins = true
		to := a.path(b.dev.Facts().Local)
		setMTU(t, l, 0, 1400)
		long, short := messages(10, a.dev.Facts().Slab.MaxPayload), messages(20, 1300)
		a.send(to, long...)
		a.send(to, short...)
		sameOrder(t, b.receive(len(short)), short)
		if s := a.stats(); s.TxDropped != uint64(len(long)) || s.TxFrames != uint64(len(short)) || s.TxErrors != 1 {
			t.Errorf("%+v", s)
		}
		setMTU(t, l, 0, 1500)
		a.send(to, long...)
		sameOrder(t, b.receive(len(long)), long)
		if s := a.stats(); s.TxDropped != uint64(len(long)) {
			t.Errorf("%+v", s)
		}
	}
}

// Frames that a full socket keeps for long count as dropped, since they may go another way.
// The kernel keeps them here while it looks for a neighbour who is not there.
func TestUDPFullForLong(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2, MTU: 1500})
	a := openEnd(t, l, 0, userspace.UDP, false)
	if err := unix.SetsockoptInt(a.dev.(*UDP).fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 8192); err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr(1).Next().Next()
	a.send(a.path(netip.AddrPortFrom(nobody, 7)), messages(60, 1400)...)
	if s := a.stats(); s.TxDropped == 0 || s.TxDropped+s.TxFrames != 60 {
		t.Errorf("%+v", s)
	}
}

// messages returns n messages of a length.
func messages(n, length int) (sent [][]byte) {
	for range n {
		sent = append(sent, message(wire.KindData, length))
	}
	return sent
}

// setMTU changes the MTU of rank's interface.
func setMTU(t *testing.T, l *netlab.Lab, rank, mtu int) {
	t.Helper()
	err := l.Do(rank, func() error {
		link, err := netlink.LinkByName(l.Interface(rank))
		if err != nil {
			return err
		}
		return netlink.LinkSetMTU(link, mtu)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestUDPRunsAllocateNothing(t *testing.T) {
	offloads(t, func(t *testing.T, sending, receiving bool) {
		a, b := newUDP(t, loopback4), newUDP(t, loopback4)
		offload(t, a, sending, false)
		offload(t, b, false, receiving)
		to := a.path(b.dev.Facts().Local)
		var outs []Out
		for i := range int32(12) {
			copy(a.dev.Facts().Slab.Payload(i), message(wire.KindData, 5000))
			outs = append(outs, Out{Slot: i, Len: 5000, Path: to})
		}
		a.join(outs)
		frames, slots := make([]Frame, 16), make([]int32, 16)
		n := testing.AllocsPerRun(20, func() {
			a.dev.Enqueue(outs)
			for reaped, received := 0, 0; reaped < len(outs) || received < len(outs); {
				a.dev.Transmit()
				reaped += a.dev.Reap(slots)
				received += b.dev.Receive(frames)
				b.dev.Release()
			}
		})
		if n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}
