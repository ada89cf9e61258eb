package loader

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

const port = 4791

// childEnv makes the test binary attach to the interface it names, and wait.
const childEnv = "XDPRMA_LOADER_TEST_ATTACH"

func TestMain(m *testing.M) {
	if ifname := os.Getenv(childEnv); ifname != "" {
		p, err := Attach(Options{Interface: ifname, Address: at, Port: port, Slots: 4})
		if err == nil {
			err = installed(p)
		}
		if err != nil {
			os.Stdout.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Stdout.WriteString("attached\n")
		io.Copy(io.Discard, os.Stdin) // until the parent is gone or has killed us
		p.Close()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// attach attaches in namespace b and closes at the end of the test.
func (l *lab) attach(t *testing.T, o Options) *Program {
	t.Helper()
	if o.Interface == "" {
		o.Interface = "b"
	}
	o.Address, o.Port = at, port
	var p *Program
	l.inB(t, func() {
		var err error
		p, err = Attach(o)
		must(t, err)
	})
	t.Cleanup(func() { p.Close() })
	return p
}

// attached returns the program on interface b.
func (l *lab) attached(t *testing.T) *ProgramInfo {
	t.Helper()
	var f Features
	l.inB(t, func() {
		var err error
		f, err = Probe("b")
		must(t, err)
	})
	return f.Program
}

// ping sends an ICMP echo request from a and waits until b's kernel answers.
func (l *lab) ping(t *testing.T) {
	t.Helper()
	var c net.PacketConn
	l.in(t, l.a, func() {
		var err error
		c, err = net.ListenPacket("ip4:icmp", addrA.String())
		must(t, err)
	})
	defer c.Close()
	request := []byte{8, 0, 0, 0, 0x12, 0x34, 0, 1}
	binary.BigEndian.PutUint16(request[2:], ^uint16(0x0800+0x1234+1))
	_, err := c.WriteTo(request, &net.IPAddr{IP: addrB})
	must(t, err)
	must(t, c.SetReadDeadline(time.Now().Add(testenv.Limit)))
	var reply [64]byte
	n := 0
	for again := true; again; again = reply[0] == 3 { // b refuses a datagram that nobody there takes (destination unreachable)
		n, _, err = c.ReadFrom(reply[:])
		must(t, err)
	}
	if n != len(request) || reply[0] != 0 || !bytes.Equal(reply[4:n], request[4:]) {
		t.Fatalf("echo reply % x", reply[:n])
	}
}

// send sends a UDP payload from a to b.
func (l *lab) send(t *testing.T, port int, payload []byte) {
	t.Helper()
	l.in(t, l.a, func() {
		c, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: addrB, Port: port})
		must(t, err)
		defer c.Close()
		_, err = c.Write(payload)
		must(t, err)
	})
}

func TestAttach(t *testing.T) {
	for _, mode := range []Mode{Native, Generic} {
		t.Run(mode.String(), func(t *testing.T) {
			l := newLab(t, shape{})
			p := l.attach(t, Options{Mode: mode})
			if p.Mode() != mode {
				t.Errorf("mode %v, want %v", p.Mode(), mode)
			}
			if got := l.attached(t); got == nil || got.Name != programOfOurs || got.ID == 0 {
				t.Fatalf("attached: %v", got)
			}
			l.ping(t)
			hello := make([]byte, wire.HeaderLen)
			(&wire.Header{Kind: wire.KindHello}).Encode(hello)
			l.send(t, port, hello)
			l.send(t, port, hello[:40])
			var c map[string]uint64
			testenv.Await(t, "the counters", func() bool {
				var err error
				c, err = p.Counters()
				must(t, err)
				return c["no_socket"] == 1 && c["too_short"] == 1
			})
			if c["passed"] == 0 || len(c) != len(p.names) {
				t.Errorf("counters %v", c)
			}
			for range 2 {
				must(t, p.Close())
			}
			if got := l.attached(t); got != nil {
				t.Errorf("after Close: %v", got)
			}
			l.ping(t)
		})
	}
}

func TestAfterClose(t *testing.T) {
	l := newLab(t, shape{})
	p := l.attach(t, Options{})
	must(t, p.Close())
	_, err := p.Counters()
	_, again := p.Redirected()
	for _, err := range []error{err, again, p.SetSocket(0, 0), p.AllowSession(1, NoSlot)} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%v, want %v", err, net.ErrClosed)
		}
	}
	p.ForgetSession(1)
	p.ForgetSocket(0)
}

func TestSecondAttach(t *testing.T) {
	l := newLab(t, shape{})
	p := l.attach(t, Options{})
	id := l.attached(t).ID
	for _, mode := range []Mode{Native, Generic} {
		l.inB(t, func() {
			_, err := Attach(Options{Interface: "b", Address: at, Port: port, Mode: mode})
			var used *InUseError
			if !errors.As(err, &used) || used.Program.ID != id || used.Program.Name != programOfOurs {
				t.Errorf("%v: %v", mode, err)
			}
			if self := fmt.Sprintf("%d (", os.Getpid()); !strings.HasPrefix(used.Process, self) {
				t.Errorf("%v: it is of process %s, want %s", mode, used.Process, self)
			}
			if mpierr.ClassOf(err) != mpierr.Unsupported {
				t.Errorf("%v: class %v", mode, mpierr.ClassOf(err))
			}
		})
	}
	if got := l.attached(t); got == nil || got.ID != id {
		t.Errorf("the first program is gone: %v", got)
	}
	must(t, p.Close())
	l.attach(t, Options{})
}

// The program is said to be its process's while that lives, and goes with it, even if it is killed.
func TestProgramGoesWithItsKilledProcess(t *testing.T) {
	l := newLab(t, shape{})
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"=b", "XDPRMA_RANK=3")
	stdin, err := child.StdinPipe()
	must(t, err)
	defer stdin.Close()
	stdout, err := child.StdoutPipe()
	must(t, err)
	l.inB(t, func() { must(t, child.Start()) })
	reaped := false
	defer func() {
		if !reaped {
			child.Process.Kill()
			child.Wait()
		}
	}()
	lines := bufio.NewReader(stdout)
	var chunk ebpf.MapID
	line, _ := lines.ReadString('\n')
	if _, err := fmt.Sscanf(line, "chunk %d", &chunk); err != nil {
		t.Fatalf("child: %q, %v", line, err)
	}
	if line, err := lines.ReadString('\n'); line != "attached\n" {
		t.Fatalf("child: %q, %v", line, err)
	}
	info := l.attached(t)
	if info == nil || info.Name != programOfOurs {
		t.Fatalf("attached by the child: %v", info)
	}
	comm, err := os.ReadFile("/proc/self/comm") // the child is of the same program
	must(t, err)
	want := fmt.Sprintf("of process %d (%s, XDPRMA_RANK=3); an interface serves one rank over XDP", child.Process.Pid, bytes.TrimSpace(comm))
	if err := (Features{Interface: "b", Program: info}).Free(); !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("%v, want %s", err, want)
	}
	must(t, child.Process.Signal(unix.SIGKILL))
	child.Wait()
	reaped = true
	testenv.Await(t, "an interface without program", func() bool { return l.attached(t) == nil })
	testenv.Await(t, "the program's end", func() bool {
		p, err := ebpf.NewProgramFromID(ebpf.ProgramID(info.ID))
		if err == nil {
			p.Close()
		}
		return errors.Is(err, os.ErrNotExist)
	})
	testenv.Await(t, "the end of the memory that it reached", func() bool {
		m, err := ebpf.NewMapFromID(chunk)
		if err == nil {
			m.Close()
		}
		return errors.Is(err, os.ErrNotExist)
	})
}

// installed has a program reach a chunk, and prints the id of its map.
func installed(p *Program) error {
	tier, err := p.Tier()
	if err != nil {
		return err
	}
	c, err := tier.NewChunk(1)
	if err != nil {
		return err
	}
	m, err := ebpf.NewMapFromFD(c)
	if err != nil {
		return err
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		return err
	}
	id, _ := info.ID()
	fmt.Printf("chunk %d\n", id)
	return tier.Install(0, c)
}

// A veth with fewer receive queues than its peer has transmit queues has no native mode.
func TestTooFewQueuesForNative(t *testing.T) {
	l := newLab(t, shape{rxQueues: 1, peerTxQueues: 2})
	l.inB(t, func() {
		_, err := Attach(Options{Interface: "b", Address: at, Port: port, Mode: Native})
		if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "numrxqueues") {
			t.Errorf("native: %v", err)
		}
	})
	if got := l.attached(t); got != nil {
		t.Errorf("after the failure: %v", got)
	}
	l.attach(t, Options{Mode: Generic})
	l.ping(t)
}

// Frames as long as the MTU reach the program whole in both modes, whether it executes
// requests or not. Natively it takes several buffers whatever the MTU is, so the MTU at the
// far end of a veth may be larger, now or later. In generic mode it takes one: the kernel
// would not have it natively with such an MTU.
func TestLongFrames(t *testing.T) {
	for _, mode := range []Mode{Native, Generic} {
		for _, mtu := range []int{1500, 9000} {
			for _, slots := range []int{0, 4} {
				t.Run(fmt.Sprintf("%v, MTU %d, %d slots", mode, mtu, slots), func(t *testing.T) {
					l := newLab(t, shape{mtu: mtu})
					p := l.attach(t, Options{Mode: mode, Slots: slots})
					frame := make([]byte, mtu-28)
					(&wire.Header{Kind: wire.KindData, Session: 77}).Encode(frame)
					must(t, p.AllowSession(77, NoSlot))
					l.send(t, port, frame)
					testenv.Await(t, "the frame", func() bool {
						c, err := p.Counters()
						must(t, err)
						return c["no_socket"] == 1
					})
					l.in(t, l.a, func() {
						nic, err := netlink.LinkByName("a")
						must(t, err)
						must(t, netlink.LinkSetMTU(nic, 9000))
					})
					must(t, p.link.Close())
					p.mode = Native
					l.inB(t, func() {
						f, err := Probe("b")
						must(t, err)
						if err := p.attach(f, nil); (err == nil) != (mode == Native) {
							t.Errorf("natively, with an MTU of 9000 at the far end: %v", err)
						}
					})
				})
			}
		}
	}
}

func TestAbsentInterface(t *testing.T) {
	_, err := Attach(Options{Interface: "xr-absent", Address: at, Port: port})
	if mpierr.ClassOf(err) != mpierr.Arg || !strings.Contains(err.Error(), `no interface "xr-absent"`) {
		t.Errorf("%v", err)
	}
}

func TestSocketsAndSessions(t *testing.T) {
	l := newLab(t, shape{rxQueues: 2, peerTxQueues: 2})
	p := l.attach(t, Options{Queues: 2})
	socket := xdpSocket(t)
	other, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	must(t, err)
	defer unix.Close(other)
	for _, tt := range []struct {
		queue, fd int
		ok        bool
	}{{0, socket, true}, {1, socket, true}, {1, socket, true}, {2, socket, false}, {-1, socket, false}, {0, -1, false}, {0, other, false}} {
		if err := p.SetSocket(tt.queue, tt.fd); (err == nil) != tt.ok {
			t.Errorf("queue %d, fd %d: %v", tt.queue, tt.fd, err)
		}
	}

	frame := make([]byte, wire.HeaderLen)
	(&wire.Header{Kind: wire.KindData, Session: 77}).Encode(frame)
	rejected := func() uint64 {
		c, err := p.Counters()
		must(t, err)
		return c["unknown_session"]
	}
	for range 2 {
		must(t, p.AllowSession(77, NoSlot))
	}
	l.send(t, port, frame)
	testenv.Await(t, "a redirected frame", func() bool {
		c, err := p.Counters()
		must(t, err)
		return c["redirected"] == 1
	})
	for _, queue := range []int{0, 1, 1} {
		p.ForgetSocket(queue)
	}
	l.send(t, port, frame)
	testenv.Await(t, "a frame for the kernel", func() bool {
		c, err := p.Counters()
		must(t, err)
		return c["no_socket"] == 1
	})
	if n, err := p.Redirected(); n != 1 || err != nil {
		t.Errorf("%d frames redirected, want 1: %v", n, err)
	}
	for range 2 {
		p.ForgetSession(77)
	}
	l.send(t, port, frame)
	testenv.Await(t, "a rejected frame", func() bool { return rejected() == 1 })
	func() {
		defer func() {
			if recover() == nil {
				t.Error("AllowSession(0) did not panic")
			}
		}()
		_ = p.AllowSession(0, NoSlot)
	}()
}

// xdpSocket returns an AF_XDP socket with a receive ring, without which newer kernels
// take it into no map.
func xdpSocket(t *testing.T) int {
	t.Helper()
	socket, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW, 0)
	must(t, err)
	t.Cleanup(func() { unix.Close(socket) })
	must(t, unix.SetsockoptInt(socket, unix.SOL_XDP, unix.XDP_RX_RING, 64))
	return socket
}
