package device

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/afxdp"
	"github.com/xdprma/xdprma/internal/lab/logs"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/userspace"
)

// address returns rank's address of one family.
func address(l *netlab.Lab, rank int, v6 bool) netip.Addr {
	if v6 {
		return l.Addr6(rank)
	}
	return l.Addr(rank)
}

// openEnd opens a device for rank. Transport is one of those of Open.
func openEnd(t testing.TB, l *netlab.Lab, rank int, transport userspace.Transport, v6 bool) *end {
	t.Helper()
	var dev Device
	err := l.Do(rank, func() (err error) {
		dev, err = Open(t.Context(), Config{Config: userspace.Config{Transport: transport, Interface: l.Interface(rank), Address: address(l, rank, v6)}, Slots: 128})
		return err
	})
	return newEnd(t, dev, err)
}

func TestXDPExchange(t *testing.T) {
	for _, mtu := range []int{1500, 3498, 9000} {
		l := labtest.New(t, netlab.Config{Ranks: 2, MTU: mtu})
		for _, transports := range [][2]userspace.Transport{
			{userspace.XDPNative, userspace.XDPNative},
			{userspace.XDPNative, userspace.UDP},
			{userspace.UDP, userspace.XDPNative},
			{userspace.UDP, userspace.UDP},
			{userspace.XDPGeneric, userspace.XDPNative},
		} {
			for _, v6 := range []bool{false, true} {
				t.Run(fmt.Sprintf("MTU %d, %v, IPv6 %v", mtu, transports, v6), func(t *testing.T) {
					if mtu == 9000 && transports != [2]userspace.Transport{userspace.UDP, userspace.UDP} {
						testenv.NeedsFeature(t, testenv.MultiBuffer)
					}
					a, b := openEnd(t, l, 0, transports[0], v6), openEnd(t, l, 1, transports[1], v6)
					for i, e := range []*end{a, b} {
						if want := mtu - udpLen - ipLen(address(l, 0, v6)); transports[i] != userspace.UDP && e.dev.Facts().Slab.MaxPayload != want {
							t.Errorf("largest payload %d, want %d", e.dev.Facts().Slab.MaxPayload, want)
						}
						if e.dev.Facts().Mode.String() != string(transports[i]) {
							t.Errorf("mode %s, want %s", e.dev.Facts().Mode.String(), transports[i])
						}
					}
					exchange(t, a, b)
				})
			}
		}
	}
}

// Devices in one network namespace reach each other, and with interfaces of their
// own also those in others, each through its own.
func TestXDPOneNamespace(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 4, RanksPerHost: 2})
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("IPv6 %v", v6), func(t *testing.T) {
			a, b := openEnd(t, l, 0, userspace.XDPNative, v6), openEnd(t, l, 1, userspace.XDPNative, v6)
			c, d := openEnd(t, l, 2, userspace.XDPNative, v6), openEnd(t, l, 3, userspace.UDP, v6)
			exchange(t, a, b)
			exchange(t, c, d)
			for _, pair := range [][2]*end{{b, c}, {d, a}, {b, d}} {
				from, to := pair[0], pair[1]
				text := message(wire.KindData, 1000)
				from.send(from.path(to.dev.Facts().Local), text)
				sameMessages(t, to.receive(1), [][]byte{text})
			}
			for _, e := range []*end{b, c} {
				s, err := e.dev.(*XDP).sockets[0].Stats()
				if err != nil || s.RxFrames+s.TxFrames == 0 {
					t.Errorf("nothing went through the interface of %v: %+v, %v", e.dev.Facts().Local, s, err)
				}
			}
		})
	}
}

// A second device on an interface gives way to the first, and the two reach each
// other.
func TestXDPInterfaceTaken(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2})
	a := openEnd(t, l, 0, userspace.XDPNative, false)
	var log bytes.Buffer
	var dev Device
	err := l.Do(0, func() (err error) {
		dev, err = Open(t.Context(), Config{Config: userspace.Config{Interface: "xr0", Port: a.dev.Facts().Local.Port()}, Slots: 128, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		return err
	})
	b := newEnd(t, dev, err)
	if b.dev.Facts().Mode.String() != string(userspace.UDP) || !strings.Contains(log.String(), "using=udp") || strings.Count(log.String(), "level=WARN") != 1 ||
		!strings.Contains(log.String(), "an interface serves one rank over XDP") || !strings.Contains(log.String(), "is taken as well, so the system chooses another") {
		t.Errorf("mode %s: %s", b.dev.Facts().Mode.String(), &log)
	}
	exchange(t, a, b)
	// Strangers do not reach the socket behind which those of this machine are.
	c := openEnd(t, l, 1, userspace.UDP, false)
	c.send(c.path(a.dev.Facts().Local), []byte("neither ours nor of this machine, as it is far too long for that"))
	c.send(c.path(a.dev.Facts().Local), message(wire.KindData, 500))
	if got := a.receive(1); len(got) != 1 || len(got[0].Payload) != 500 {
		t.Errorf("received %v", got)
	}
}

// The payload of a slot is aligned for the copy into it, in every layout.
func TestXDPLayout(t *testing.T) {
	for _, ip := range []string{"10.0.0.1", "fd00::1"} {
		for _, mtu := range []int{1328, 1500, 1770, 1771, 3498, 3800, 3900, 9000, 60000, 65535} {
			c := Config{Config: userspace.Config{Address: netip.MustParseAddr(ip), Queues: 1}, MTU: mtu, Slots: 8, RxFrames: 64}
			slab, memory := layout(&c, chunkSize(mtu, loader.Features{}))
			if slab.Headroom%8 != 0 || slab.Stride%memory.ChunkSize != 0 || slab.Headroom < maxHeadersLen ||
				slab.Headroom+slab.MaxPayload > slab.Stride || slab.Stride*slab.Slots != memory.TxChunks*memory.ChunkSize {
				t.Errorf("MTU %d: %+v in %+v", mtu, slab, memory)
			}
			single := memory.ChunkSize - unix.XDP_PACKET_HEADROOM
			if !memory.MultiBuffer && linkLen+mtu > single || memory.RxChunks/c.RxFrames*single < linkLen+mtu {
				t.Errorf("MTU %d: received frames do not fit %+v", mtu, memory)
			}
		}
	}
}

// A chunk has room for a whole frame, also by a driver that counts its room in whole KiB.
func TestChunkSize(t *testing.T) {
	for _, test := range []struct {
		driver     string
		mtu, chunk int
	}{
		{"veth", 1500, smallChunk}, {"veth", 1770, smallChunk}, {"veth", 1771, largeChunk},
		{"igb", 1002, smallChunk}, {"igb", 1003, largeChunk}, {"igc", 1500, largeChunk}, {"ixgbe", 1500, largeChunk},
	} {
		if got := chunkSize(test.mtu, loader.Features{Driver: test.driver}); got != test.chunk {
			t.Errorf("%s at an MTU of %d has chunks of %d bytes, want %d", test.driver, test.mtu, got, test.chunk)
		}
	}
}

// Every queue sends out of the one slab, and receives.
func TestXDPQueues(t *testing.T) {
	const queues = 3
	l := labtest.New(t, netlab.Config{Ranks: 2, Queues: queues})
	a, b := openEnd(t, l, 0, userspace.XDPNative, false), openEnd(t, l, 1, userspace.XDPNative, false)
	exchange(t, a, b)
	x, y := a.dev.(*XDP), b.dev.(*XDP)
	if len(x.sockets) != queues || len(y.sockets) != queues {
		t.Fatalf("%d and %d queues", len(x.sockets), len(y.sockets))
	}
	for q := range queues {
		id := pathThrough(x, y, q)
		hello := message(wire.KindHello, 300)
		a.send(id, hello, message(wire.KindData, 1400))
		var got Frame
		for _, f := range b.receive(2) {
			if f.Path != NoPath {
				got = f
			}
		}
		if back := y.paths.get(got.Path); int(back.queue) != q {
			t.Errorf("a handshake on queue %d is answered through queue %d", q, back.queue)
		}
		answer := message(wire.KindData, 1400)
		b.send(got.Path, answer)
		sameMessages(t, a.receive(1), [][]byte{answer})
	}
	// Any slot leaves through any queue, and all of them can be in flight.
	for round := range 20 {
		var sent [][]byte
		for range 128 {
			sent = append(sent, message(wire.KindData, 500))
		}
		a.send(PathID(round%queues), sent...)
		sameMessages(t, b.receive(128), sent)
	}
}

func TestXDPAllocatesNothing(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2, MTU: 1500, Queues: 2})
	for _, v6 := range []bool{false, true} {
		a, b := openEnd(t, l, 0, userspace.XDPNative, v6), openEnd(t, l, 1, userspace.XDPNative, v6)
		testAllocations(t, a, b)
		a.close()
		b.close()
	}
}

func TestXDPWake(t *testing.T) {
	l := labtest.New(t, netlab.Config{})
	testWake(t, openEnd(t, l, 0, userspace.XDPNative, false))
}

// packetSocket sends whole frames on rank's interface.
type packetSocket struct {
	t  *testing.T
	fd int
	to unix.SockaddrLinklayer
}

func newPacketSocket(t *testing.T, l *netlab.Lab, rank int) *packetSocket {
	t.Helper()
	p := &packetSocket{t: t, fd: -1}
	err := l.Do(rank, func() (err error) {
		ifi, err := net.InterfaceByName(l.Interface(rank))
		if err != nil {
			return err
		}
		p.to.Ifindex = ifi.Index
		p.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(p.fd) })
	return p
}

func (p *packetSocket) send(frame []byte) {
	p.t.Helper()
	if err := unix.Sendto(p.fd, frame, 0, &p.to); err != nil {
		p.t.Fatal(err)
	}
}

// forge returns ends whose second is b, and whose first is somebody else.
func forge(b *XDP, from string) [2]endpoint {
	return [2]endpoint{testEndpoint(9, from), b.local}
}

func TestXDPFramesOfOthers(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2, MTU: 1500})
	for _, v6 := range []bool{false, true} {
		b := openEnd(t, l, 1, userspace.XDPNative, v6)
		x := b.dev.(*XDP)
		wire1 := newPacketSocket(t, l, 0)
		from, to := "10.77.0.9:7", "10.77.0.99"
		if v6 {
			from, to = "[fd77::9]:7", "fd77::99"
		}
		ends := forge(x, from)

		// Frames with a priority are accepted, and the way back is learned.
		hello, data := message(wire.KindHello, 200), message(wire.KindData, 1400)
		wire1.send(withTag(buildFrame(ends, hello), etherTypeVLAN, 0))
		wire1.send(withTag(buildFrame(ends, data), etherTypeVLAN, 0))
		wire1.send(buildFrame(ends, hello))
		got := b.receive(3)
		sameMessages(t, got, [][]byte{hello, data, hello})
		if got[0].Path != got[2].Path {
			t.Error("a sender with and without a priority has two paths")
		}
		back := x.paths.get(got[0].Path)
		if want := newPath(ends[1], ends[0], 0); *back != want {
			t.Errorf("learned %+v, want %+v", back, want)
		}

		// Frames with an impossible source reach the socket, and frames to another address
		// do not.
		other := ends
		other[1].addr = netip.AddrPortFrom(netip.MustParseAddr(to), ends[1].addr.Port())
		wire1.send(buildFrame(other, hello))
		unanswerable := ends
		unanswerable[0].addr = netip.AddrPortFrom(ends[0].addr.Addr(), 0)
		wire1.send(buildFrame(unanswerable, hello))
		if got := b.receive(1); got[0].Path != NoPath {
			t.Error("a path to port 0 was learned")
		}
		if s := b.stats(); s.RxMalformed != 0 || s.RxFrames != 4 {
			t.Errorf("%+v", s)
		}

		// Damaged ones do not.
		good := buildFrame(ends, data)
		wire1.send(good[:len(good)-1])
		short := buildFrame(ends, data[:wire.HeaderLen-1])
		wire1.send(short)
		unknown := bytes.Clone(good)
		unknown[int(back.len)+8]++
		wire1.send(unknown)
		wire1.send(good)
		b.receive(1)
		f := b.stats().Filter
		if f["bad_length"] != 1 || f["too_short"] != 1 || f["unknown_session"] != 1 {
			t.Errorf("%v", f)
		}
		b.dev.Facts().Filter.ForgetSession(testSession)
		wire1.send(good)
		if f := b.stats().Filter; f["unknown_session"] != 2 {
			t.Errorf("%v", f)
		}
		b.close()
	}
}

// A stream of nothing but frames that are refused does not use the memory up.
func TestXDPRefusedFramesAreReleased(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2})
	var dev Device
	err := l.Do(1, func() (err error) {
		dev, err = OpenXDP(t.Context(), Config{Config: userspace.Config{Interface: l.Interface(1)}, RxFrames: minRxFrames})
		return err
	})
	b := newEnd(t, dev, err)
	ends := forge(b.dev.(*XDP), "10.77.0.9:7")
	other := ends
	other[1].addr = netip.AddrPortFrom(netip.MustParseAddr("10.77.0.99"), ends[1].addr.Port())
	wire1 := newPacketSocket(t, l, 0)
	frames := make([]Frame, 8)
	for range 3 * minRxFrames {
		wire1.send(buildFrame(other, message(wire.KindData, 100)))
		for b.dev.Receive(frames) > 0 {
			t.Error("a frame for another address was delivered")
		}
	}
	good := message(wire.KindData, 100)
	wire1.send(buildFrame(ends, good))
	sameMessages(t, b.receive(1), [][]byte{good})
}

func TestXDPErrors(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2})
	a := openEnd(t, l, 0, userspace.XDPNative, false)
	open := func(rank int, c Config) error {
		return l.Do(rank, func() error {
			d, err := OpenXDP(t.Context(), c)
			if err == nil {
				_ = d.Close()
			}
			return err
		})
	}
	if err := open(1, Config{Config: userspace.Config{Interface: "xr1"}}); err != nil {
		t.Fatal(err)
	}
	taken := a.dev.Facts().Local.Port()
	before := testenv.OpenFiles(t)
	for _, c := range []struct {
		rank   int
		want   string
		config Config
	}{
		{0, "an interface serves one rank over XDP", Config{Config: userspace.Config{Interface: "xr0", Port: taken}}},
		{0, "already has XDP program", Config{Config: userspace.Config{Interface: "xr0"}}},
		{1, "no interface", Config{Config: userspace.Config{Interface: "xr7"}}},
		{1, "not an Ethernet interface", Config{Config: userspace.Config{Interface: "lo"}}},
		{1, "does not have the address", Config{Config: userspace.Config{Interface: "xr1", Address: netip.MustParseAddr("10.77.0.77")}}},
		{1, "queues", Config{Config: userspace.Config{Interface: "xr1", Queues: -1}}},
		{1, "queues", Config{Config: userspace.Config{Interface: "xr1", Queues: maxQueues + 1}}},
		{1, "receive frames", Config{Config: userspace.Config{Interface: "xr1"}, RxFrames: 1}},
		{1, "MTU", Config{Config: userspace.Config{Interface: "xr1"}, MTU: 1501}},
		{1, "transmit slots", Config{Config: userspace.Config{Interface: "xr1"}, Slots: maxSlots + 1}},
		{1, "sockets from outside", Config{Config: userspace.Config{Interface: "xr1", SocketFDs: []int{}}}},
	} {
		err := open(c.rank, c.config)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want %q: %v", c.want, err)
		}
		if class := mpierr.ClassOf(err); class != mpierr.Arg && class != mpierr.Unsupported {
			t.Errorf("%q has class %v", c.want, class)
		}
	}
	if after := testenv.OpenFiles(t); after != before {
		t.Errorf("%d open files after failures, %d before", after, before)
	}
	a.dev.(*XDP).patience = 2 * lookPause
	for addr, want := range map[string]string{
		"10.77.0.200:5": "does not answer on interface xr0",
		"192.0.2.1:5":   "no route",
		"10.77.0.255:5": "not to one machine",
		"224.0.0.1:5":   "not the address and port of one rank",
		"[fd77::2]:5":   "IPv4 does not reach IPv6",
		"10.77.0.2:0":   "not the address and port of one rank",
	} {
		if _, err := a.dev.Path(t.Context(), netip.MustParseAddrPort(addr)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("path to %s, want %q: %v", addr, want, err)
		}
	}
}

func TestXDPLeaksNoFiles(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2, Queues: 2})
	openEnd(t, l, 0, userspace.XDPNative, false).close() // what is opened once and for all
	before := testenv.OpenFiles(t)
	for range 3 {
		openEnd(t, l, 0, userspace.XDPNative, false).close()
	}
	if after := testenv.OpenFiles(t); after != before {
		t.Errorf("%d open files, %d before", after, before)
	}
}

// A process can be given the program and the sockets by another one.
func TestXDPFromOutside(t *testing.T) {
	const queues, port = 2, 4000
	l := labtest.New(t, netlab.Config{Ranks: 2, Queues: queues})
	var dev Device
	var keep *loader.Program
	err := l.Do(1, func() (err error) {
		if keep, err = loader.Attach(loader.Options{Interface: "xr1", Address: l.Addr(1), Port: port, Queues: queues}); err != nil {
			return err
		}
		program, err := loader.FromMaps(keep.Maps(), keep.Mode())
		if err != nil {
			return err
		}
		for _, other := range []Config{{Config: userspace.Config{Address: l.Addr(1), Port: port + 1}}, {Config: userspace.Config{Address: l.Addr6(1), Port: port}}} {
			other.Interface, other.Program = "xr1", program
			const want = "takes frames to 10.77.0.2:4000"
			if d, err := OpenXDP(t.Context(), other); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("a device at %v, port %d, for a program at another: %v, %v, want %q", other.Address, other.Port, d, err, want)
			}
		}
		var fds []int
		for range queues {
			fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			fds = append(fds, fd)
		}
		dev, err = OpenXDP(t.Context(), Config{Config: userspace.Config{Interface: "xr1", Port: port, Queues: queues, Program: program, SocketFDs: fds}, Slots: 128})
		return err
	})
	if keep != nil {
		defer keep.Close()
	}
	b := newEnd(t, dev, err)
	exchange(t, openEnd(t, l, 0, userspace.XDPNative, false), b)
}

func TestXDPDeviceGone(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2})
	var log logs.Log
	var dev Device
	err := l.Do(0, func() (err error) {
		dev, err = OpenXDP(t.Context(), Config{Config: userspace.Config{Interface: "xr0"}, Logger: log.Logger()})
		return err
	})
	a := newEnd(t, dev, err)
	b := openEnd(t, l, 1, userspace.XDPNative, false)
	path := a.path(b.dev.Facts().Local)
	if out, err := l.Command(0, "ip", "link", "delete", "xr0").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	a.dev.Sleep(1)
	a.dev.Enqueue([]Out{{Slot: 0, Len: 100, Path: path}})
	a.dev.Transmit()
	a.dev.Transmit()
	a.stats()
	a.close() // whoever noticed it first has told of it by then
	if n := log.Lines("the device is lost"); n != 1 {
		t.Errorf("told %d times: %v", n, &log)
	}
}

// TestOpenEndsWithItsContext waits for a queue that another socket keeps: no lesser
// transport is taken once the context has ended.
func TestOpenEndsWithItsContext(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2})
	err := l.Do(0, func() error {
		s, err := afxdp.Open(t.Context(), afxdp.Config{Interface: "xr0"})
		if err != nil {
			return err
		}
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		d, err := Open(ctx, Config{Config: userspace.Config{Interface: "xr0"}})
		if err == nil {
			_ = d.Close()
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a context that ends: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestOpenLadder(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2})
	var log bytes.Buffer
	open := func(c Config) (d Device, err error) {
		log.Reset()
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		err = l.Do(0, func() error {
			d, err = Open(t.Context(), c)
			return err
		})
		return d, err
	}
	first := newOpened(t, open, Config{Config: userspace.Config{Interface: "xr0"}}, "xdp-generic") // on veth
	if log.Len() > 0 {
		t.Errorf("complaints: %s", &log)
	}
	// The interface has a program now.
	newOpened(t, open, Config{Config: userspace.Config{Address: l.Addr6(0)}}, "udp")
	for _, want := range []string{`using=udp tried="xdp-generic, xdp-native"`, "already has XDP program"} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("not one %q in %s", want, &log)
		}
	}
	for _, transport := range []userspace.Transport{userspace.XDP, userspace.XDPNative, userspace.XDPGeneric} {
		if _, err := open(Config{Config: userspace.Config{Transport: transport, Interface: "xr0"}}); err == nil || !strings.Contains(err.Error(), "already has XDP program") {
			t.Errorf("%s: %v", transport, err)
		}
	}
	first.close()
	newOpened(t, open, Config{Config: userspace.Config{Transport: userspace.XDP, Interface: "xr0"}}, "xdp-generic").close()
	newOpened(t, open, Config{Config: userspace.Config{Transport: userspace.XDPNative, Interface: "xr0"}}, "xdp-native").close()
	newOpened(t, open, Config{Config: userspace.Config{Transport: userspace.XDPGeneric, Interface: "xr0"}}, "xdp-generic").close()
	newOpened(t, open, Config{Config: userspace.Config{Interface: "lo"}}, "udp").close()
	for want, c := range map[string]Config{
		"is not auto":               {Config: userspace.Config{Transport: "tcp", Interface: "xr0"}},
		"name an interface":         {},
		"interface xr9":             {Config: userspace.Config{Interface: "xr9"}},
		"no interface has":          {Config: userspace.Config{Address: netip.MustParseAddr("192.0.2.1")}},
		"does not have the address": {Config: userspace.Config{Interface: "xr0", Address: netip.MustParseAddr("192.0.2.1")}},
	} {
		if _, err := open(c); !errors.Is(err, mpierr.Arg) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}

func newOpened(t *testing.T, open func(Config) (Device, error), c Config, mode string) *end {
	t.Helper()
	c.Slots = 64
	dev, err := open(c)
	e := newEnd(t, dev, err)
	if e.dev.Facts().Mode.String() != mode {
		t.Errorf("%+v is opened as %s, want %s", c, e.dev.Facts().Mode.String(), mode)
	}
	return e
}

func TestNoTier(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2})
	for _, transport := range []userspace.Transport{userspace.XDPNative, userspace.UDP} {
		if e := openEnd(t, l, 0, transport, false); e.dev.Facts().Tier != nil {
			t.Errorf("%s: a tier without sessions", transport)
		}
	}
}
