package loader

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// sharedModes are where an executor may run on a veth.
var sharedModes = []Mode{Generic, Native, TCX}

// crowd is several ranks in namespace b of a lab, served by one executor, and their origins in a.
type crowd struct {
	*lab
	executor *Executor
	sw       *Switch
	ranks    []*crowded
}

// crowded is one of them.
type crowded struct {
	socket int
	port   int
	place  *Member
	*Shared
	asks   *asker
	memory []byte
}

const (
	crowdWindow  = 5
	crowdSession = 100 // of the first rank
)

// newCrowd makes n ranks, which enter at once.
func newCrowd(t *testing.T, mode Mode, n int) *crowd {
	t.Helper()
	c := &crowd{lab: newLab(t, shape{})}
	if mode == TCX {
		testenv.NeedsFeature(t, testenv.TCX)
	}
	var err error
	c.executor, err = NewExecutor(mode, n)
	must(t, err)
	t.Cleanup(func() { must(t, c.executor.Close()) })
	c.inB(t, func() { c.sw, err = c.executor.NewSwitch("b") })
	must(t, err)
	t.Cleanup(func() { must(t, c.sw.Close()) })
	if mode == Native { // the end that gets answers needs a program, too
		c.in(t, c.a, func() {
			passing, err := c.executor.NewSwitch("a")
			must(t, err)
			t.Cleanup(func() { must(t, passing.Close()) })
		})
	}
	var entries []Entry
	for i := range n {
		r := &crowded{port: port + i}
		c.inB(t, func() { r.socket = bound(t, r.port) })
		c.ranks = append(c.ranks, r)
		entries = append(entries, c.entry(i))
	}
	places, errs := c.executor.Enter(entries)
	must(t, errors.Join(errs...))
	t.Cleanup(func() { must(t, c.executor.Leave(places)) })
	for i, r := range c.ranks {
		r.place = places[i]
		c.open(t, i)
	}
	return c
}

func (c *crowd) entry(i int) Entry {
	return Entry{Switch: c.sw, Address: at, Port: uint16(c.ranks[i].port), Socket: c.ranks[i].socket, Slots: 4}
}

// bound returns a UDP socket at a port of addrB.
func bound(t *testing.T, at int) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	must(t, unix.Bind(fd, &unix.SockaddrInet4{Port: at, Addr: [4]byte(addrB)}))
	return fd
}

// open gives rank i its tables, a window and a session with its origin.
func (c *crowd) open(t *testing.T, i int) {
	t.Helper()
	r := c.ranks[i]
	var own []*ebpf.Map
	for _, m := range r.place.Maps() {
		one, err := m.Clone()
		must(t, err)
		own = append(own, one)
	}
	shared, err := NewShared(own, r.place.Chunks())
	must(t, err)
	r.Shared = shared
	t.Cleanup(func() { must(t, errors.Join(shared.Close(), shared.tier.Release())) })
	chunk, err := r.tier.NewChunk(1 << 16)
	must(t, err)
	defer unix.Close(chunk)
	memory, err := unix.Mmap(chunk, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	r.memory = memory
	t.Cleanup(func() { must(t, unix.Munmap(memory)) })
	must(t, r.tier.Install(0, chunk))
	r.asks = &asker{session: crowdSession + uint64(i), peerSession: 7, window: crowdWindow}
	c.in(t, c.a, func() {
		r.asks.conn, err = net.DialUDP("udp4", &net.UDPAddr{IP: addrA}, &net.UDPAddr{IP: addrB, Port: r.port})
		must(t, err)
	})
	conn := r.asks.conn
	t.Cleanup(func() { conn.Close() })
	from := r.asks.conn.LocalAddr().(*net.UDPAddr)
	tables := express.NewTables(r.tier.Slots(), r.tier.Windows())
	tables.OpenSlot(2, express.Slot{Session: r.asks.session, PeerSession: 7, Rank: 3,
		Peer:  express.Endpoint{IP: [16]byte{addrA[0], addrA[1], addrA[2], addrA[3]}, Port: uint16(from.Port)},
		Local: express.Endpoint{IP: [16]byte{addrB[0], addrB[1], addrB[2], addrB[3]}, Port: uint16(r.port)}})
	tables.Expose(express.Window{ID: crowdWindow, Size: 1 << 16, Rights: windows.NewMembers([]int{3}, nil, nil).Bits}, nil)
	must(t, r.AllowSession(r.asks.session, 2))
}

var increment = wire.Record{Code: wire.CodeGetAccumulate, Basic: uint8(datatype.BasicInt64), Op: uint8(datatype.Sum)}

// adds has rank i's origin add 1 to its first word, as often as it says.
func (r *crowded) adds(t *testing.T, times int) {
	t.Helper()
	before := binary.LittleEndian.Uint64(r.memory)
	for n := range uint64(times) {
		got := r.asks.ask(t, r.Counters, increment, part(8, 1, 0, 0, 0, 0, 0, 0, 0))
		if v := binary.LittleEndian.Uint64(got); v != before+n {
			t.Fatalf("fetched %d, want %d", v, before+n)
		}
	}
}

// isServed reports whether a request of the rank is answered soon.
func (r *crowded) isServed(t *testing.T) bool {
	t.Helper()
	_, ok := r.asks.within(t, 500*time.Millisecond, increment, part(8, 1, 0, 0, 0, 0, 0, 0, 0))
	return ok
}

func (r *crowded) counted(t *testing.T, name string) uint64 {
	t.Helper()
	counters, err := r.Counters()
	must(t, err)
	return counters[name]
}

// One program executes the requests to all ranks of an interface, of each in its own windows, and counts them
// by rank. Other frames come to their sockets.
func TestRanksShareAnExecutor(t *testing.T) {
	for _, mode := range sharedModes {
		t.Run(mode.String(), func(t *testing.T) {
			c := newCrowd(t, mode, 5)
			data := bytes.Repeat([]byte("one-sided"), 125)
			for i, r := range c.ranks {
				r.adds(t, 10*(i+1))
				r.asks.ask(t, r.Counters, wire.Record{Code: wire.CodePut, Disp: 16}, data)
				got := r.asks.ask(t, r.Counters, wire.Record{Code: wire.CodeGet, Disp: 16}, part(len(data)))
				if !bytes.Equal(got[:len(data)], data) || !bytes.Equal(r.memory[16:][:len(data)], data) {
					t.Errorf("rank %d: got %q", i, got)
				}
			}
			for i, r := range c.ranks {
				if n, v := r.counted(t, "express_executed"), binary.LittleEndian.Uint64(r.memory); n != r.asks.exchange || v != uint64(10*(i+1)) {
					t.Errorf("rank %d: %d of %d exchanges executed, the sum is %d", i, n, r.asks.exchange, v)
				}
				before := r.Doorbell().Load()
				_, err := r.asks.conn.Write([]byte("to the socket"))
				must(t, err)
				fds := []unix.PollFd{{Fd: int32(r.socket), Events: unix.POLLIN}}
				if n, err := unix.Poll(fds, 5000); n != 1 {
					t.Fatalf("rank %d: nothing comes to its socket: %v", i, err)
				}
				if n, rung := r.counted(t, "socket"), r.Doorbell().Load()-before; n != 1 || rung != 1 {
					t.Errorf("rank %d: %d frames to its socket counted, rung %d times", i, n, rung)
				}
			}
		})
	}
}

// A rank whose socket is closed is served no more, before anybody has said that it leaves,
// and others go on. Its place can be had at once, and so can that of one that leaves. It begins anew.
func TestOnlySocketsAreServed(t *testing.T) {
	for _, mode := range sharedModes {
		t.Run(mode.String(), func(t *testing.T) {
			c := newCrowd(t, mode, 3)
			for _, r := range c.ranks {
				r.adds(t, 3)
			}
			closed, left, stays := c.ranks[0], c.ranks[1], c.ranks[2]
			must(t, unix.Close(closed.socket))
			c.inB(t, func() { closed.socket = bound(t, port) }) // of another process, it may be
			if closed.isServed(t) {
				t.Error("a rank whose socket is closed is served")
			}
			must(t, c.executor.Leave([]*Member{left.place}))
			if left.isServed(t) {
				t.Error("a rank that has left is served")
			}
			stays.adds(t, 3)

			again, errs := c.executor.Enter([]Entry{c.entry(0)}) // before the dead one has left
			must(t, errors.Join(errs...))
			must(t, c.executor.Leave([]*Member{closed.place}))
			must(t, c.executor.Leave(again))
			must(t, errors.Join(closed.Close(), closed.tier.Release(), left.Close(), left.tier.Release()))
			places, errs := c.executor.Enter([]Entry{c.entry(0), c.entry(1)})
			must(t, errors.Join(errs...))
			closed.place, left.place = places[0], places[1]
			t.Cleanup(func() { must(t, c.executor.Leave(places)) })
			for i, r := range c.ranks[:2] {
				if c.open(t, i); r.counted(t, "express_executed") != 0 {
					t.Errorf("rank %d has the counters of another", i)
				}
				r.adds(t, 3)
			}
			stays.adds(t, 3)
		})
	}
}

// A rank whose socket has given up its port, or its place at the interface, is served no more, and who has them now
// may enter.
func TestSocketThatGivesUpItsPlace(t *testing.T) {
	for _, mode := range sharedModes {
		t.Run(mode.String(), func(t *testing.T) {
			c := newCrowd(t, mode, 3)
			moved, gone, stays := c.ranks[0], c.ranks[1], c.ranks[2]
			must(t, c.executor.Leave([]*Member{gone.place}))
			c.inB(t, func() { gone.socket = bound(t, 0) })
			name, err := unix.Getsockname(gone.socket)
			must(t, err)
			gone.port = name.(*unix.SockaddrInet4).Port
			must(t, errors.Join(gone.Close(), gone.tier.Release()))
			places, errs := c.executor.Enter([]Entry{c.entry(1)})
			must(t, errors.Join(errs...))
			gone.place = places[0]
			c.open(t, 1)
			gone.adds(t, 3)
			moved.adds(t, 3)

			must(t, disconnect(gone.socket))
			must(t, unix.SetsockoptInt(moved.socket, unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, 1))
			for i, r := range c.ranks[:2] {
				if r.isServed(t) {
					t.Errorf("rank %d is served at a place that others may have", i)
				}
			}
			must(t, unix.SetsockoptInt(moved.socket, unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, c.sw.Index()))
			moved.asks.exchange-- // once more
			moved.adds(t, 3)
			must(t, c.executor.Leave([]*Member{moved.place}))
			c.inB(t, func() { moved.socket, moved.port = bound(t, gone.port), gone.port })
			heirs, errs := c.executor.Enter([]Entry{c.entry(0)}) // the former one has not left
			must(t, errors.Join(errs...))
			must(t, errors.Join(moved.Close(), moved.tier.Release()))
			moved.place = heirs[0]
			c.open(t, 0)
			moved.adds(t, 3)
			stays.adds(t, 3)
			must(t, c.executor.Leave([]*Member{gone.place}))
			moved.adds(t, 3)
			must(t, c.executor.Leave(heirs))
		})
	}
}

// A rank that cannot enter is told why, and changes nothing for others.
func TestEntriesAreRefused(t *testing.T) {
	c := newCrowd(t, Generic, 2)
	first := c.ranks[0]
	must(t, c.executor.Leave([]*Member{c.ranks[1].place}))
	entry := c.entry(1)
	taken, few, stream := entry, entry, entry
	taken.Port, taken.Socket = port, first.socket
	few.Slots = 0
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err)
	defer unix.Close(fd)
	stream.Socket = fd
	for name, test := range map[string]struct {
		entry Entry
		class mpierr.Class
	}{
		"another rank's address and port": {taken, mpierr.Arg},
		"no slot":                         {few, mpierr.Arg},
		"no socket of UDP":                {stream, mpierr.Arg},
	} {
		places, errs := c.executor.Enter([]Entry{test.entry})
		if places[0] != nil || mpierr.ClassOf(errs[0]) != test.class {
			t.Errorf("%s: %v, %v", name, places[0], errs[0])
		}
	}
	first.adds(t, 3)
	places, errs := c.executor.Enter([]Entry{entry, c.entry(0)})
	if errs[0] != nil || mpierr.ClassOf(errs[1]) != mpierr.NoMem {
		t.Errorf("the second of two places was refused: %v; one more: %v", errs[0], errs[1])
	}
	c.ranks[1].place = places[0]
	first.adds(t, 3)
	if _, err := NewExecutor(Generic, -1); mpierr.ClassOf(err) != mpierr.Arg {
		t.Errorf("-1 ranks: %v", err)
	}
}

// Sixty-four ranks enter at once, and leave.
func TestManyEnterAtOnce(t *testing.T) {
	l := newLab(t, shape{})
	const ranks = 64
	e, err := NewExecutor(Generic, ranks)
	must(t, err)
	t.Cleanup(func() { must(t, e.Close()) })
	l.inB(t, func() {
		s, err := e.NewSwitch("b")
		must(t, err)
		t.Cleanup(func() { must(t, s.Close()) })
		for round := range 3 {
			var entries []Entry
			for i := range ranks {
				entries = append(entries, Entry{Switch: s, Address: at, Port: uint16(port + 100*round + i), Socket: bound(t, port+100*round+i), Slots: 16})
			}
			begin := time.Now()
			places, errs := e.Enter(entries)
			must(t, errors.Join(errs...))
			entered := time.Now()
			must(t, e.Leave(places))
			t.Logf("%d ranks entered in %v, and left in %v", ranks, entered.Sub(begin), time.Since(entered))
		}
	})
}

// A switch that somebody has taken from its interface is put there again, and its ranks are as they were. An XDP
// program that came in between stays.
func TestSwitchIsPutBack(t *testing.T) {
	for _, mode := range sharedModes {
		t.Run(mode.String(), func(t *testing.T) {
			c := newCrowd(t, mode, 2)
			for range 3 {
				for _, r := range c.ranks {
					r.adds(t, 3)
				}
				if !c.sw.IsAttached() {
					t.Error("the switch is said to be away")
				}
				must(t, c.sw.link.Detach())
				if c.sw.IsAttached() {
					t.Error("the switch is said to be there")
				}
				if c.ranks[0].isServed(t) {
					t.Error("a rank is served without a switch")
				}
				c.ranks[0].asks.exchange--
				if mode != TCX {
					c.inB(t, func() {
						other, err := Attach(Options{Interface: "b", Address: at, Port: port, Mode: mode})
						must(t, err)
						if err := c.sw.AttachAgain(); err == nil {
							t.Error("the switch has replaced another program")
						}
						must(t, other.Close())
					})
				}
				c.inB(t, func() { must(t, c.sw.AttachAgain()) })
			}
			for _, r := range c.ranks {
				r.adds(t, 3)
			}
		})
	}
}
