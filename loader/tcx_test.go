package loader

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// Verdicts of tc programs.
const (
	tcNext = -1
	tcOK   = 0
	tcShot = 2
)

// other is a tc program of somebody else, which counts frames.
type other struct {
	program *ebpf.Program
	frames  *ebpf.Map
}

func newOther(t *testing.T, attach ebpf.AttachType, verdict int32) *other {
	t.Helper()
	frames, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	must(t, err)
	t.Cleanup(func() { frames.Close() })
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, AttachType: attach, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMapValue(asm.R1, frames.FD(), 0), asm.Mov.Imm(asm.R2, 1), asm.StoreXAdd(asm.R1, asm.R2, asm.DWord),
		asm.Mov.Imm(asm.R0, verdict), asm.Return(),
	}})
	must(t, err)
	t.Cleanup(func() { p.Close() })
	return &other{p, frames}
}

func (o *other) seen(t *testing.T) (n uint64) {
	t.Helper()
	must(t, o.frames.Lookup(uint32(0), &n))
	return n
}

// on attaches the program to b until the test ends.
func (o *other) on(t *testing.T, c *crowd, attach ebpf.AttachType, anchor link.Anchor) (detach func()) {
	t.Helper()
	var l link.Link
	c.inB(t, func() {
		var err error
		l, err = link.AttachTCX(link.TCXOptions{Interface: c.sw.Index(), Program: o.program, Attach: attach, Anchor: anchor})
		must(t, err)
	})
	t.Cleanup(func() { l.Close() })
	return func() { must(t, l.Close()) }
}

// The switch stands beside tc programs of others: one before it and one behind see the frames that are not its
// own. Frames that one before it ends the chain for never reach the switch, but the rank's socket. Answers obey egress programs.
func TestSwitchBesideOthersAtTC(t *testing.T) {
	c := newCrowd(t, TCX, 1)
	r := c.ranks[0]
	before, behind := newOther(t, ebpf.AttachTCXIngress, tcNext), newOther(t, ebpf.AttachTCXIngress, tcNext)
	before.on(t, c, ebpf.AttachTCXIngress, link.Head())
	behind.on(t, c, ebpf.AttachTCXIngress, link.Tail())
	r.adds(t, 10)
	if n := before.seen(t); n < 10 {
		t.Errorf("a program before the switch has seen %d frames of 10", n)
	}
	was := behind.seen(t)
	r.adds(t, 10)
	if n := behind.seen(t); n >= was+10 {
		t.Errorf("a program behind the switch has seen %d frames of which requests are executed", n-was)
	}
	was = behind.seen(t)
	c.send(t, r, []byte("to the socket"))
	if n := behind.seen(t); n <= was {
		t.Error("a program behind the switch has not seen a frame for the socket")
	}

	ends := newOther(t, ebpf.AttachTCXIngress, tcOK)
	detach := ends.on(t, c, ebpf.AttachTCXIngress, link.Head())
	executed := r.counted(t, "express_executed")
	c.send(t, r, c.request(r))
	if n := r.counted(t, "express_executed"); n != executed {
		t.Error("a request is executed that a program before has ended the chain for")
	}
	detach()
	r.asks.exchange-- // it is still to come
	r.adds(t, 10)

	out := newOther(t, ebpf.AttachTCXEgress, tcShot)
	detach = out.on(t, c, ebpf.AttachTCXEgress, link.Head())
	if r.isServed(t) || out.seen(t) == 0 {
		t.Errorf("an answer leaves, past an egress program that has seen %d", out.seen(t))
	}
	detach()
}

// request is one that adds to a rank's first word, as the next of its origin.
func (c *crowd) request(r *crowded) []byte {
	r.asks.exchange++
	data := part(8, 1, 0, 0, 0, 0, 0, 0, 0)
	record := increment
	record.Window = crowdWindow
	b := make([]byte, express.PayloadLen(wire.RecordSize(len(data)), 8))
	copy(wire.PutRecord(b[wire.HeaderLen:], &record, len(data)), data)
	express.Request(b, express.Header{Session: r.asks.session, Exchange: r.asks.exchange, Try: 1, Records: 1}, nil)
	return b
}

// send sends a datagram from the rank's origin, and waits until it is in the rank's socket.
func (c *crowd) send(t *testing.T, r *crowded, payload []byte) {
	t.Helper()
	_, err := r.asks.conn.Write(payload)
	must(t, err)
	if got := r.received(t); len(got) != len(payload) {
		t.Errorf("%d bytes come to the socket, of %d", len(got), len(payload))
	}
}

// received waits for a datagram in the rank's socket.
func (r *crowded) received(t *testing.T) []byte {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(r.socket), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, int(testenv.Limit/time.Millisecond)); n != 1 {
		t.Fatalf("nothing comes to the socket: %v", err)
	}
	b := make([]byte, 1<<16)
	n, err := unix.Read(r.socket, b)
	must(t, err)
	return b[:n]
}

// raw sends a frame of the rank's origin that change has changed, from a packet socket.
func (c *crowd) raw(t *testing.T, r *crowded, change func(frame []byte) []byte) {
	t.Helper()
	var b []byte
	c.in(t, c.a, func() {
		a, err := netlink.LinkByName("a")
		must(t, err)
		payload := c.request(r)
		b = append(b, c.macOfB(t)...)
		b = append(b, a.Attrs().HardwareAddr...)
		b = binary.BigEndian.AppendUint16(b, unix.ETH_P_IP)
		ip := make([]byte, 20)
		ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_UDP
		binary.BigEndian.PutUint16(ip[2:], uint16(28+len(payload)))
		copy(ip[12:], addrA)
		copy(ip[16:], addrB)
		sum := uint32(0)
		for i := 0; i < 20; i += 2 {
			sum += uint32(binary.BigEndian.Uint16(ip[i:]))
		}
		binary.BigEndian.PutUint16(ip[10:], ^uint16(sum>>16+sum&0xffff))
		b = append(b, ip...)
		from, to := r.asks.conn.LocalAddr().(*net.UDPAddr), r.asks.conn.RemoteAddr().(*net.UDPAddr)
		for _, v := range []int{from.Port, to.Port, 8 + len(payload), 0} {
			b = binary.BigEndian.AppendUint16(b, uint16(v))
		}
		b = change(append(b, payload...))
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		defer unix.Close(fd)
		must(t, unix.Sendto(fd, b, 0, &unix.SockaddrLinklayer{Ifindex: a.Attrs().Index, Protocol: 0x0008}))
	})
}

func (c *crowd) macOfB(t *testing.T) (mac net.HardwareAddr) {
	t.Helper()
	done := make(chan error)
	go func() {
		done <- onThread(func() error {
			if err := unix.Setns(int(c.b), unix.CLONE_NEWNET); err != nil {
				return err
			}
			b, err := netlink.LinkByName("b")
			if err == nil {
				mac = b.Attrs().HardwareAddr
			}
			return err
		})
	}()
	must(t, <-done)
	return mac
}

// Frames that are not plain ones to this host are left to the kernel: those with a tag of a VLAN, or of a priority alone
// that the kernel keeps beside the frame, those to other hosts' MAC addresses, to a group, and several in one. None of them
// changes memory.
func TestFramesThatAreNotPlain(t *testing.T) {
	for _, mode := range []Mode{TCX, Generic} {
		t.Run(mode.String(), func(t *testing.T) {
			c := newCrowd(t, mode, 1)
			r := c.ranks[0]
			r.adds(t, 1)
			tag := func(id byte) func(b []byte) []byte {
				return func(b []byte) []byte {
					return append(append(append([]byte(nil), b[:12]...), 0x81, 0, 0xe0, id), b[12:]...)
				}
			}
			mac := func(first byte) func(b []byte) []byte {
				return func(b []byte) []byte {
					b[0], b[5] = first, b[5]^1
					return b
				}
			}
			for _, test := range []struct {
				name     string
				change   func(b []byte) []byte
				executed bool
			}{
				{"plain", func(b []byte) []byte { return b }, true},
				{"of a VLAN", tag(7), false},
				{"of a priority", tag(0), mode == Generic},   // whose tag is in the frame yet
				{"to another host", mac(2), mode == Generic}, // before the kernel has looked at the address
				{"to a group", mac(3), false},
			} {
				before, executed := binary.LittleEndian.Uint64(r.memory), r.counted(t, "express_executed")
				exchange := r.asks.exchange
				c.raw(t, r, test.change)
				if test.executed {
					testenv.Await(t, test.name+": the request to be executed", func() bool { return r.counted(t, "express_executed") > executed })
				} else {
					time.Sleep(20 * time.Millisecond) // it is there long before, and would have been executed
				}
				if n := r.counted(t, "express_executed") - executed; (n == 1) != test.executed {
					t.Errorf("%s: executed %d times", test.name, n)
				}
				if got := binary.LittleEndian.Uint64(r.memory) - before; (got == 1) != test.executed {
					t.Errorf("%s: memory has changed by %d", test.name, got)
				}
				if !test.executed {
					r.asks.exchange = exchange
				}
			}
			r.adds(t, 1)
		})
	}
}

// A request whose payload the kernel has only in parts beside the headers is executed like any other.
func TestRequestsInParts(t *testing.T) {
	for _, mode := range []Mode{TCX, Generic} {
		t.Run(mode.String(), func(t *testing.T) {
			c := newCrowd(t, mode, 1)
			r := c.ranks[0]
			r.adds(t, 1) // the way is known
			raw, err := r.asks.conn.SyscallConn()
			must(t, err)
			for _, first := range []int{1, 8, wire.HeaderLen, wire.HeaderLen + 8} {
				before, executed := binary.LittleEndian.Uint64(r.memory), r.counted(t, "express_executed")
				b := c.request(r)
				must(t, raw.Control(func(fd uintptr) {
					must(t, unix.Sendto(int(fd), b[:first], unix.MSG_MORE, nil))
					must(t, unix.Sendto(int(fd), b[first:], 0, nil))
				}))
				testenv.Await(t, "the request to be executed", func() bool { return r.counted(t, "express_executed") > executed })
				if got := binary.LittleEndian.Uint64(r.memory) - before; got != 1 {
					t.Errorf("%d bytes, and the rest: memory has changed by %d", first, got)
				}
			}
		})
	}
}

// Several requests that the kernel carries as one come to the socket one by one at tc, and none is lost.
func TestRequestsInOneFrame(t *testing.T) {
	c := newCrowd(t, TCX, 1)
	r := c.ranks[0]
	r.adds(t, 1)
	one := c.request(r)
	raw, err := r.asks.conn.SyscallConn()
	must(t, err)
	executed := r.counted(t, "express_executed")
	must(t, raw.Control(func(fd uintptr) {
		must(t, unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, len(one)))
		must(t, unix.Sendto(int(fd), bytes.Repeat(one, 3), 0, nil))
		must(t, unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, 0))
	}))
	for range 3 {
		if got := r.received(t); !bytes.Equal(got, one) {
			t.Errorf("%d bytes come to the socket, of %d", len(got), len(one))
		}
	}
	if n := r.counted(t, "express_executed"); n != executed {
		t.Errorf("%d requests are executed, of several in one frame", n-executed)
	}
	r.asks.exchange-- // it is still to come
	r.adds(t, 1)
}
