package faults

import (
	"encoding/binary"
	"maps"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/bpf"
	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// The relay stands in namespace "middle" between hosts a and b.
type wire struct {
	base, a, b, middle netns.NsHandle
}

const (
	portBase  = 4791
	fencePort = 5000 // beyond the relay's ports
)

var addrA, addrB = net.IPv4(10, 9, 0, 1).To4(), net.IPv4(10, 9, 0, 2).To4()

// newWire locks the test to its thread. The namespaces have no name and vanish
// with their last file descriptor and socket.
func newWire(t *testing.T) *wire {
	t.Helper()
	testenv.NeedsRoot(t)
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	w := &wire{}
	var err error
	if w.base, err = netns.Get(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.base.Close() })
	for _, ns := range []*netns.NsHandle{&w.a, &w.b, &w.middle} {
		*ns, err = netns.New()
		if e := netns.Set(w.base); e != nil {
			t.Fatal(e)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ns.Close() })
	}
	w.host(t, w.a, "a", addrA)
	w.host(t, w.b, "b", addrB)
	return w
}

// in runs f in a namespace.
func (w *wire) in(t *testing.T, ns netns.NsHandle, f func()) {
	t.Helper()
	if err := netns.Set(ns); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := netns.Set(w.base); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}

// host joins a host to the relay with a veth pair and gives it an address.
func (w *wire) host(t *testing.T, ns netns.NsHandle, name string, ip net.IP) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w.in(t, w.middle, func() {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = "to-"+name, 9000
		check(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: name, PeerMTU: 9000, PeerNamespace: netlink.NsFd(ns)}))
		l, err := netlink.LinkByName(attrs.Name)
		check(err)
		check(netlink.LinkSetUp(l))
	})
	w.in(t, ns, func() {
		l, err := netlink.LinkByName(name)
		check(err)
		check(netlink.AddrAdd(l, &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(24, 32)}}))
		check(netlink.LinkSetUp(l))
	})
}

// receiveXDP attaches a program that passes every frame: a veth accepts native
// redirects only while its other end has a program.
func (w *wire) receiveXDP(t *testing.T, ns netns.NsHandle, name string) {
	t.Helper()
	var objects bpf.ClassifierObjects
	if err := bpf.LoadClassifierObjects(&objects, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { objects.Close() })
	w.in(t, ns, func() {
		i, err := net.InterfaceByName(name)
		if err != nil {
			t.Fatal(err)
		}
		l, err := link.AttachXDP(link.XDPOptions{
			Program: objects.XdprmaClassify, Interface: i.Index, Flags: link.XDPDriverMode})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	})
}

func (w *wire) relay(t *testing.T, o Options) *Relay {
	t.Helper()
	var r *Relay
	w.in(t, w.middle, func() {
		var err error
		if r, err = Attach(o); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { r.Close() })
	return r
}

func (w *wire) listen(t *testing.T, ns netns.NsHandle, addr *net.UDPAddr) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	w.in(t, ns, func() {
		var err error
		if c, err = net.ListenUDP("udp4", addr); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// Scheduled faults happen, in both modes: scheduled duplicates arrive twice.
func TestRelay(t *testing.T) {
	schedule := []Fault{
		{Action: Pass},
		{Action: Drop},
		{Action: Corrupt, Mask: 0x81, Offset: 20},
		{Action: Duplicate},
		{Action: Corrupt, Mask: 0xff, Offset: 65535}, // beyond the payload
	}
	for _, tt := range []struct {
		name    string
		generic bool
		size    int
	}{
		{"native", false, 80}, {"native, 1400 bytes", false, 1400},
		{"native, 8000 bytes", false, 8000},
		{"generic", true, 80}, {"generic, 8000 bytes", true, 8000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWire(t)
			if !tt.generic {
				w.receiveXDP(t, w.a, "a")
				w.receiveXDP(t, w.b, "b")
			}
			o := Options{From: "to-a", To: "to-b", PortBase: portBase, Ports: 1, Generic: tt.generic}
			r := w.relay(t, o)
			o.From, o.To = o.To, o.From
			w.relay(t, o)
			if err := r.SetSchedule(schedule); err != nil {
				t.Fatal(err)
			}
			const rounds = 10
			copies := 2
			if tt.size > 3000 { // in several buffers
				copies = 1
			}
			got := w.exchange(t, rounds*len(schedule), tt.size)
			for i, f := range schedule {
				for n := i; n < rounds*len(schedule); n += len(schedule) {
					want := map[Action]int{Pass: 1, Drop: 0, Corrupt: 1, Duplicate: copies}[f.Action]
					var mask byte
					if f.Action == Corrupt && int(f.Offset) < tt.size {
						mask = f.Mask
					}
					if len(got[n]) != want {
						t.Errorf("frame %d (%v) arrived %d times, want %d", n, f.Action, len(got[n]), want)
					}
					for _, b := range got[n] {
						if b != mask {
							t.Errorf("frame %d (%v) arrived with bits %#x flipped, want %#x", n, f.Action, b, mask)
						}
					}
				}
			}
			taken, err := r.Taken()
			want := map[Action]uint64{Pass: rounds, Drop: rounds, Corrupt: 2 * rounds, Duplicate: rounds}
			if copies == 1 {
				want[Pass], want[Duplicate] = 2*rounds, 0
			}
			if err != nil || !maps.Equal(taken, want) {
				t.Errorf("taken %v, %v, want %v", taken, err, want)
			}
		})
	}
}

// exchange sends n frames from a to b and returns, for each, byte 20 of every
// copy that arrived. A frame to another port, sent after each, marks the end
// of what can still arrive: one queue keeps the order.
func (w *wire) exchange(t *testing.T, n, size int) [][]byte {
	t.Helper()
	from := w.listen(t, w.a, &net.UDPAddr{})
	to := w.listen(t, w.b, &net.UDPAddr{IP: addrB, Port: portBase})
	fence := w.listen(t, w.b, &net.UDPAddr{IP: addrB, Port: fencePort})
	withoutChecksum(t, from)

	got := make([][]byte, n)
	buf, frame := make([]byte, 65536), make([]byte, size)
	for i := range n {
		binary.LittleEndian.PutUint32(frame, uint32(i))
		for _, c := range []*net.UDPConn{to, fence} {
			if _, err := from.WriteTo(frame, c.LocalAddr()); err != nil {
				t.Fatal(err)
			}
		}
		fence.SetReadDeadline(time.Now().Add(testenv.Limit))
		if _, err := fence.Read(buf); err != nil {
			t.Fatalf("the mark after frame %d: %v", i, err)
		}
		for {
			b, ok := readNow(t, to, buf)
			if !ok {
				break
			}
			seq := int(binary.LittleEndian.Uint32(b))
			if len(b) != size || seq != i {
				t.Fatalf("frame %d of %d bytes arrived after frame %d", seq, len(b), i)
			}
			got[seq] = append(got[seq], b[20])
		}
	}
	return got
}

// readNow reads a datagram that has already arrived.
func readNow(t *testing.T, c *net.UDPConn, buf []byte) ([]byte, bool) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	n := -1
	raw.Read(func(fd uintptr) bool {
		n, err = unix.Read(int(fd), buf)
		return true
	})
	if err == unix.EAGAIN {
		return nil, false
	}
	if err != nil {
		t.Fatal(err)
	}
	return buf[:n], true
}

// withoutChecksum makes c send UDP without checksums, so that damaged frames arrive.
func withoutChecksum(t *testing.T, c syscall.Conn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_NO_CHECK, 1) })
	if err != nil {
		t.Fatal(err)
	}
}

func TestScheduleLimits(t *testing.T) {
	w := newWire(t)
	o := Options{From: "to-a", To: "to-b", PortBase: portBase, Ports: 1}
	r := w.relay(t, o)
	if err := r.SetSchedule(make([]Fault, 4096)); err != nil {
		t.Error(err)
	}
	if err := r.SetSchedule(make([]Fault, 4097)); err == nil {
		t.Error("a schedule beyond the limit was accepted")
	}
	if err := r.SetSchedule([]Fault{{Action: actions}}); err == nil {
		t.Error("an unknown action was accepted")
	}
	for i := range 2 {
		if err := r.Close(); err != nil {
			t.Errorf("close %d: %v", i, err)
		}
	}
	w.in(t, w.middle, func() {
		o.PortBase, o.Ports = 65535, 2
		if _, err := Attach(o); err == nil {
			t.Error("ports beyond 65535 were accepted")
		}
		o.From, o.Ports = "absent", 1
		if _, err := Attach(o); err == nil {
			t.Error("an absent interface was accepted")
		}
	})
}
