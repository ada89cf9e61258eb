package agent

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/mpierr"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// house is a network, and the server of a host of two ranks there.
type house struct {
	*netlab.Lab
	*Server
	path  string
	index int // of the ranks' interface

	sockets []int
}

func newHouse(t *testing.T) *house { return newHouseOf(t, Config{}) }

func newHouseOf(t *testing.T, c Config) *house {
	t.Helper()
	h := &house{Lab: labtest.New(t, netlab.Config{Ranks: 4, RanksPerHost: 2, Share: true}), path: filepath.Join(t.TempDir(), "agent")}
	c.Path = h.path
	h.serve(t, c)
	t.Cleanup(func() {
		if err := h.Server.Close(); err != nil {
			t.Error(err)
		}
	})
	h.do(t, func() error {
		ifi, err := net.InterfaceByName(h.Interface(0))
		if err == nil {
			h.index = ifi.Index
		}
		return err
	})
	t.Cleanup(func() { closeFiles(h.sockets) })
	return h
}

// serve starts the server, in the namespace of rank 0.
func (h *house) serve(t *testing.T, c Config) {
	t.Helper()
	h.do(t, func() (err error) {
		h.Server, err = Serve(c)
		return err
	})
}

func (h *house) do(t *testing.T, f func() error) {
	t.Helper()
	if err := h.Do(0, f); err != nil {
		t.Fatal(err)
	}
}

// socket makes a socket in the namespace of rank 0, and binds it.
func (h *house) socket(t *testing.T, kind int, to netip.AddrPort, options ...int) (fd int) {
	t.Helper()
	h.do(t, func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		h.sockets = append(h.sockets, fd)
		for _, o := range options {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, o, 1); err != nil {
				return err
			}
		}
		return unix.Bind(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	})
	return fd
}

func (h *house) at(port uint16) netip.AddrPort { return netip.AddrPortFrom(h.Addr(0), port) }

func (h *house) enter(t *testing.T, fd int) (*Entry, error) {
	t.Helper()
	return Enter(t.Context(), h.path, fd, h.index, 4)
}

// The server lets in who has a port of an address of the interface for itself, as long as the socket is open, and
// says why it refuses others.
func TestSocketsThatMayEnter(t *testing.T) {
	h := newHouse(t)
	good := h.socket(t, unix.SOCK_DGRAM, h.at(7000))
	first, err := h.enter(t, good)
	if err != nil {
		t.Fatal(err)
	}
	unix1, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(unix1)
	any4 := netip.AddrPortFrom(netip.IPv4Unspecified(), 7003)
	for _, test := range []struct {
		name string
		fd   int
		want string
	}{
		{"a port that the system has chosen", h.socket(t, unix.SOCK_DGRAM, h.at(0)), "a port by its number"},
		{"no address", h.socket(t, unix.SOCK_DGRAM, any4), "bind it to an address"},
		{"the loopback address", h.socket(t, unix.SOCK_DGRAM, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), 7004)), "bind it to an address"},
		{"an address that it shares", h.socket(t, unix.SOCK_DGRAM, h.at(7005), unix.SO_REUSEPORT), "shares its port"},
		{"a port that it shares", h.socket(t, unix.SOCK_DGRAM, h.at(7006), unix.SO_REUSEADDR), "shares its port"},
		{"TCP", h.socket(t, unix.SOCK_STREAM, h.at(7007)), "make a UDP socket"},
		{"one of another interface", h.socket(t, unix.SOCK_DGRAM, h.at(7009), unix.SO_BINDTOIFINDEX), "bound to interface 1"},
		{"no socket of IP", unix1, "make a UDP socket"},
		{"no socket", int(h.null(t)), "its socket"},
		{"one that has entered", good, "another rank has its socket"},
	} {
		if e, err := h.enter(t, test.fd); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", test.name, err)
			if err == nil {
				_ = e.Close()
			}
		}
	}
	if _, err := Enter(t.Context(), h.path, h.socket(t, unix.SOCK_DGRAM, h.at(7008)), 1, 4); err == nil || !strings.Contains(err.Error(), "does not have the address") {
		t.Errorf("another interface: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	again, err := h.enter(t, good)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// null is a file that is no socket.
func (h *house) null(t *testing.T) int {
	t.Helper()
	fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// Requests that make no sense are refused, harm nobody, and do not end the connection.
func TestRequestsOutOfPlace(t *testing.T) {
	h := newHouse(t)
	l, err := dial(t.Context(), h.path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	fd := h.socket(t, unix.SOCK_DGRAM, h.at(7000))
	refused := func(name, want string, r request, files ...int) {
		t.Helper()
		if _, got, err := l.ask(r, files...); err == nil || !strings.Contains(err.Error(), want) || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	refused("memory before it has entered", "enters first", request{Kind: memory, Value: 1})
	refused("to enter without a socket", "0 descriptors", request{Kind: enter, Interface: uint32(h.index), Slots: 4})
	refused("to return with a socket for a map", "the maps of a rank that returns", request{Kind: enter, Interface: uint32(h.index), Slots: 4}, fd, fd)
	refused("to enter with no slot", "0 slots", request{Kind: enter, Interface: uint32(h.index)}, fd)
	refused("an interface that is not there", "interface 9999", request{Kind: enter, Interface: 9999, Slots: 4}, fd)
	_, files, err := l.ask(request{Kind: enter, Interface: uint32(h.index), Slots: 4}, fd)
	if err != nil {
		t.Fatal(err)
	}
	closeFiles(files)
	refused("to enter again", "enters first, and once", request{Kind: enter, Interface: uint32(h.index), Slots: 4}, fd)
	refused("an unknown kind", "of kind 77", request{Kind: 77})
	refused("to install nothing", "0 descriptors", request{Kind: install})
	refused("to install a socket", "", request{Kind: install}, fd)
	refused("to install beyond the end", "is not within", request{Kind: install, Value: 1 << 20}, fd)
	refused("to remove beyond the end", "is not within", request{Kind: remove, Value: 1 << 20})
	refused("too much", "is too much", request{Kind: memory, Value: 1 << 40})
	if err := l.ends(request{Kind: quiesce}); err != nil {
		t.Error(err)
	}
	if err := send(l.conn, put(request{ABI: abi + 1, Kind: quiesce}), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := parseReply((<-l.replies).bytes); err == nil || !strings.Contains(err.Error(), "from one build") {
		t.Errorf("of another version: %v", err)
	}
}

// Ranks learn that the server is gone, at once. Whatever it would have done for them when they leave is done.
func TestServerGoes(t *testing.T) {
	h := newHouse(t)
	var entries []*Entry
	for port := range uint16(3) {
		e, err := h.enter(t, h.socket(t, unix.SOCK_DGRAM, h.at(7000+port)))
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		entries = append(entries, e)
	}
	file, err := entries[0].Tier().NewChunk(1)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(file)
	if err := entries[0].Tier().Install(0, file); err != nil {
		t.Fatal(err)
	}
	closed := testenv.Start(h.Server.Close)
	for _, e := range entries {
		select {
		case <-e.Lost():
		case <-time.After(testenv.Limit):
			t.Fatal("a rank does not learn that the server is gone")
		}
	}
	if n := h.programs(t, entries[0].Mode()); n != 0 {
		t.Error("ranks are told that they are served no more, and the switch is there")
	}
	if err := testenv.Ends(t, "closing the server", closed); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		tier := e.Tier()
		if err := errors.Join(tier.Remove(0), tier.Quiesce()); err != nil {
			t.Error(err)
		}
		if _, err := tier.NewChunk(1); !errors.Is(err, errLost) {
			t.Errorf("memory of a server that is gone: %v", err)
		}
	}
	if _, err := Enter(context.Background(), h.path, h.socket(t, unix.SOCK_DGRAM, h.at(7010)), h.index, 4); err == nil {
		t.Error("a rank has entered where there is no server")
	}
}

// A rank returns to the next server with its tables and its memory, also with what it has changed meanwhile.
func TestRankReturns(t *testing.T) {
	h := newHouse(t)
	e := h.enters(t, 7000)
	install := func(i int) {
		t.Helper()
		file, err := e.Tier().NewChunk(1)
		if err == nil {
			err = e.Tier().Install(i, file)
			_ = unix.Close(file)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		install(i)
	}
	before := testenv.OpenFiles(t)
	for range 3 {
		if err := h.Server.Close(); err != nil {
			t.Fatal(err)
		}
		<-e.Lost()
		if err := e.Return(t.Context()); err == nil || !errors.Is(err, unix.ENOENT) {
			t.Errorf("to no server: %v", err)
		}
		if err := e.Tier().Remove(1); err != nil {
			t.Error(err)
		}
		if err := errors.Join(e.Tier().Remove(2), e.Tier().Quiesce()); err != nil {
			t.Error(err)
		}
		h.serve(t, Config{Path: h.path})
		if err := e.Return(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-e.Lost():
			t.Fatal("the rank is lost at once")
		default:
		}
		if n := h.chunks(t); n != 1 {
			t.Errorf("%d chunks are there, want the first alone", n)
		}
		install(1)
		install(2)
		if n := h.chunks(t); n != 3 {
			t.Errorf("%d chunks are there, want all", n)
		}
		if n := h.programs(t, e.Mode()); n != 1 {
			t.Errorf("%d programs", n)
		}
	}
	if after := testenv.OpenFiles(t); after > before {
		t.Errorf("%d files are open, and %d were", after, before)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if n := h.programs(t, e.Mode()); n != 0 {
		t.Error("the switch stays")
	}
}

// A server takes the maps of a rank with as many slots, in their order, and no others.
func TestMapsOfARankThatReturns(t *testing.T) {
	h := newHouse(t)
	e := h.enters(t, 7000)
	var own []int
	for _, m := range e.Maps() {
		own = append(own, m.FD())
	}
	before := testenv.OpenFiles(t)
	for _, test := range []struct {
		name, want string
		slots      uint32
		files      []int
	}{
		{"one map too few", "5 maps are not the 6", 4, own[:5]},
		{"one map too many", "7 maps are not the 6", 4, append(slices.Clone(own), own[0])},
		{"more slots than they are for", "with 5 slots", 5, own},
		{"fewer slots than they are for", "with 3 slots", 3, own},
		{"another order", "is not the map", 4, append([]int{own[1], own[0]}, own[2:]...)},
		{"a map that is none", "the maps of a rank that returns", 4, append([]int{h.null(t)}, own[1:]...)},
	} {
		l, err := dial(t.Context(), h.path)
		if err != nil {
			t.Fatal(err)
		}
		fd := h.socket(t, unix.SOCK_DGRAM, h.at(7001))
		_, _, err = l.ask(request{Kind: enter, Interface: uint32(h.index), Slots: test.slots}, append([]int{fd}, test.files...)...)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want an error with %q", test.name, err, test.want)
		}
		if err := l.close(); err != nil {
			t.Error(err)
		}
		closeFiles(h.sockets[1:])
		h.sockets = h.sockets[:1]
	}
	testenv.Await(t, "the descriptors to be closed", func() bool { return testenv.OpenFiles(t) <= before+1 }) // that of null
	if err := e.Tier().Quiesce(); err != nil {
		t.Errorf("the rank that is served: %v", err)
	}
}

// chunks returns how many chunks count for the only owner, beside the tables of its only rank.
func (h *house) chunks(t *testing.T) (n int) {
	t.Helper()
	a := h.Server.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.each) != 1 {
		t.Fatalf("%d owners", len(a.each))
	}
	const tables = 6
	for _, c := range a.each {
		n = len(c.maps) - tables
	}
	return n
}

// The switch is on the interface as long as a rank there is served.
func TestLastRankTakesTheSwitchAway(t *testing.T) {
	h := newHouse(t)
	for range 3 {
		first, err := h.enter(t, h.socket(t, unix.SOCK_DGRAM, h.at(7000)))
		if err != nil {
			t.Fatal(err)
		}
		second, err := h.enter(t, h.socket(t, unix.SOCK_DGRAM, h.at(7001)))
		if err != nil {
			t.Fatal(err)
		}
		if n := h.programs(t, first.Mode()); n != 1 {
			t.Errorf("%d programs are on the interface", n)
		}
		if err := first.Close(); err != nil {
			t.Error(err)
		}
		if err := second.Close(); err != nil {
			t.Error(err)
		}
		if h.programs(t, first.Mode()) > 0 {
			t.Fatal("the switch stays")
		}
		closeFiles(h.sockets)
		h.sockets = nil
	}
}

// programs returns how many programs the ranks' interface has.
func (h *house) programs(t *testing.T, mode loader.Mode) (n int) {
	t.Helper()
	h.do(t, func() error {
		if mode != loader.TCX {
			f, err := loader.Probe(h.Interface(0))
			if f.Program != nil {
				n = 1
			}
			return err
		}
		r, err := link.QueryPrograms(link.QueryOptions{Target: h.index, Attach: ebpf.AttachTCXIngress})
		if err == nil {
			n = len(r.Programs)
		}
		return err
	})
	return n
}

// Descriptors that come with a packet that is no request are closed, also with an empty one.
func TestStrayDescriptorsAreClosed(t *testing.T) {
	h := newHouse(t)
	fd := h.null(t)
	connect := func(b []byte) {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: h.path, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, _, err := c.WriteMsgUnix(b, unix.UnixRights(fd, fd, fd), nil); err != nil {
			t.Fatal(err)
		}
		_ = c.CloseWrite()
		_, _, _ = receive(c) // a refusal, or the end
	}
	connect([]byte("x"))
	before := testenv.OpenFiles(t)
	for range 20 {
		connect(nil)
		connect([]byte("x"))
	}
	testenv.Await(t, "the descriptors to be closed", func() bool { return testenv.OpenFiles(t) <= before })
}

// A rank does not wait longer for a server than it wants to.
func TestEnterEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "silent")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if _, err := Enter(ctx, path, 0, 1, 4); err == nil || time.Since(begin) > patience/2 {
		t.Errorf("after %v: %v", time.Since(begin), err)
	}
}

// Whoever asks learns of the ranks that have entered, by their owners, addresses and what was executed, and whether a
// socket may enter, which changes nothing.
func TestStatus(t *testing.T) {
	h := newHouseOf(t, Config{Ports: [2]uint16{7000, 7010}, Limits: Limits{Ranks: 2}})
	if list, err := Status(t.Context(), h.path); err != nil || len(list) > 0 {
		t.Errorf("of nobody: %v, %v", list, err)
	}
	probe := func(port uint16) (loader.Mode, error) {
		t.Helper()
		return Probe(t.Context(), h.path, h.socket(t, unix.SOCK_DGRAM, h.at(port)), h.index)
	}
	mode, err := probe(7001)
	if err != nil {
		t.Fatal(err)
	}
	if n := h.programs(t, mode); n != 0 {
		t.Errorf("a question has left %d programs", n)
	}
	if _, err := probe(8000); err == nil || !strings.Contains(err.Error(), "not within 7000 and 7010") {
		t.Errorf("a port that is not allowed: %v", err)
	}
	second, first := h.enters(t, 7003), h.enters(t, 7002)
	if mode != first.Mode() {
		t.Errorf("a rank is told of %v and served by %v", mode, first.Mode())
	}
	if _, err := probe(7004); err == nil || !strings.Contains(err.Error(), "has 2 ranks") {
		t.Errorf("a rank more than may enter: %v", err)
	}
	list, err := Status(t.Context(), h.path)
	if err != nil || len(list) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	for i, g := range list {
		want := Served{User: uint32(os.Getuid()), Namespace: list[0].Namespace, Memory: list[0].Memory, Interface: h.Interface(0),
			Address: h.at(7002 + uint16(i)).String(), Mode: first.Mode().String()}
		if g != want || g.Namespace == 0 || g.Memory < 1<<18 {
			t.Errorf("%+v, want %+v", g, want)
		}
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if list, err := Status(t.Context(), h.path); err != nil || len(list) != 1 {
		t.Errorf("once one has left: %v, %v", list, err)
	}
}

// Whoever finds no agent learns what to do.
func TestAgentThatIsNotThere(t *testing.T) {
	dir := t.TempDir()
	dead, file := filepath.Join(dir, "dead"), filepath.Join(dir, "file")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: dead, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(l.Close(), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "none"), dead, file} {
		_, err := Status(t.Context(), path)
		if !errors.Is(err, mpierr.Unsupported) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "root starts one") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
