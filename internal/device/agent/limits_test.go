package agent

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/mpierr"
)

// refused has a rank try to enter.
func (h *house) refused(t *testing.T, port uint16, want string) {
	t.Helper()
	e, err := h.enter(t, h.socket(t, unix.SOCK_DGRAM, h.at(port)))
	if err == nil {
		_ = e.Close()
	}
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a rank at port %d: %v, want an error with %q", port, err, want)
	}
}

func (h *house) enters(t *testing.T, port uint16) *Entry {
	t.Helper()
	e, err := h.enter(t, h.socket(t, unix.SOCK_DGRAM, h.at(port)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// A user has so many ranks in a network namespace; others of its namespaces count for themselves, and whoever leaves
// makes room.
func TestRanksAreLimited(t *testing.T) {
	h := newHouseOf(t, Config{Limits: Limits{Ranks: 2}})
	first := h.enters(t, 7000)
	h.enters(t, 7001)
	h.refused(t, 7002, "has 2 ranks")
	other := h.socketOf(t, 2, 7000)
	e, err := Enter(t.Context(), h.path, other, h.indexOf(t, 2), 4)
	if err != nil {
		t.Errorf("in another namespace: %v", err)
	} else {
		defer e.Close()
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	h.enters(t, 7003)
	h.refused(t, 7004, "has 2 ranks")
}

// socketOf makes the socket of a rank in its namespace.
func (h *house) socketOf(t *testing.T, rank int, port uint16) (fd int) {
	t.Helper()
	err := h.Do(rank, func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		h.sockets = append(h.sockets, fd)
		return unix.Bind(fd, &unix.SockaddrInet4{Port: int(port), Addr: h.Addr(rank).As4()})
	})
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func (h *house) indexOf(t *testing.T, rank int) (index int) {
	t.Helper()
	err := h.Do(rank, func() error {
		ifi, err := net.InterfaceByName(h.Interface(rank))
		if err == nil {
			index = ifi.Index
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// Memory counts until it is gone: a rank that has left may still have it.
func TestMemoryIsLimited(t *testing.T) {
	const limit = 8 << 20
	h := newHouseOf(t, Config{Limits: Limits{Memory: limit}})
	e := h.enters(t, 7000)
	file, err := e.Tier().NewChunk(5 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Tier().NewChunk(3 << 20); !errors.Is(err, mpierr.NoMem) || !strings.Contains(err.Error(), "do not fit") {
		t.Errorf("more than the limit: %v", err)
	}
	if _, err := e.Tier().NewChunk(1 << 30); !errors.Is(err, mpierr.NoMem) || !strings.Contains(err.Error(), "do not fit") {
		t.Errorf("much more than the limit: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	again := h.enters(t, 7001)
	if _, err := again.Tier().NewChunk(3 << 20); !errors.Is(err, mpierr.NoMem) {
		t.Errorf("beside the memory of a rank that has left: %v", err)
	}
	_ = unix.Close(file)
	testenv.Await(t, "the memory to be gone", func() bool {
		second, err := again.Tier().NewChunk(3 << 20)
		if err == nil {
			t.Cleanup(func() { _ = unix.Close(second) })
		}
		return err == nil
	})
	if _, err := Enter(t.Context(), h.path, h.socket(t, unix.SOCK_DGRAM, h.at(7002)), h.index, loader.MaxSlots); !errors.Is(err, mpierr.NoMem) {
		t.Errorf("a rank with too many slots: %v", err)
	}
	h.enters(t, 7003) // with few
}

// A user that goes from one network namespace to the next, which it may make, leaves memory behind in no more of them
// than it may be in at a time.
func TestMemoryLeftInNamespaces(t *testing.T) {
	h := newHouseOf(t, Config{Limits: Limits{Switches: 1}})
	e := h.enters(t, 7000)
	file, err := e.Tier().NewChunk(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(e.Close(), e.Tier().Release()); err != nil {
		t.Error(err)
	}
	fd, index := h.socketOf(t, 2, 7000), h.indexOf(t, 2)
	if _, err := Enter(t.Context(), h.path, fd, index, 4); !errors.Is(err, mpierr.NoMem) || !strings.Contains(err.Error(), "1 other network namespaces") {
		t.Errorf("beside the memory that it has left elsewhere: %v", err)
	}
	h.enters(t, 7001) // where the memory is
	_ = unix.Close(file)
}

// Accounts of ranks and memory that are gone are gone, too.
func TestAccountsEnd(t *testing.T) {
	h := newHouse(t)
	for port := range uint16(3) {
		e, err := h.enter(t, h.socket(t, unix.SOCK_DGRAM, h.at(7000+port)))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(e.Close(), e.Tier().Release()); err != nil {
			t.Error(err)
		}
	}
	a := h.Server.accounts
	testenv.Await(t, "nothing to be left", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		ranks, memory := 0, int64(0)
		for _, c := range a.each {
			c.prune()
			ranks, memory = ranks+c.ranks, memory+c.memory
		}
		return ranks == 0 && memory == 0
	})
	h.enters(t, 7010)
	last := h.enters(t, 7011)
	if err := last.Close(); err != nil {
		t.Error(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.each) != 1 {
		t.Errorf("%d accounts", len(a.each))
	}
}

// A user brings the switch to so many interfaces.
func TestSwitchesAreLimited(t *testing.T) {
	h := newHouseOf(t, Config{Limits: Limits{Switches: 1}})
	first := h.enters(t, 7000)
	fd, index := h.socketOf(t, 2, 7000), h.indexOf(t, 2)
	if _, err := Enter(t.Context(), h.path, fd, index, 4); err == nil || !strings.Contains(err.Error(), "interfaces") {
		t.Errorf("a second interface: %v", err)
	}
	if err := errors.Join(first.Close(), first.Tier().Release()); err != nil {
		t.Error(err)
	}
	testenv.Await(t, "room elsewhere", func() bool {
		e, err := Enter(t.Context(), h.path, fd, index, 4)
		if err == nil {
			t.Cleanup(func() { _ = e.Close() })
		}
		return err == nil
	})
}

// The server serves what its owner allows.
func TestPortsAndInterfacesThatMayEnter(t *testing.T) {
	h := newHouseOf(t, Config{Ports: [2]uint16{7000, 7001}})
	h.enters(t, 7000)
	h.enters(t, 7001)
	h.refused(t, 6999, "not within 7000 and 7001")
	h.refused(t, 7002, "not within 7000 and 7001")
	if err := h.Server.Close(); err != nil {
		t.Error(err)
	}
	h.serve(t, Config{Path: h.path, Interfaces: []string{"elsewhere", h.Interface(0)}})
	h.enters(t, 7003)
	if err := h.Server.Close(); err != nil {
		t.Error(err)
	}
	h.serve(t, Config{Path: h.path, Interfaces: []string{"elsewhere"}})
	h.refused(t, 7004, "none of those that the agent allows: elsewhere")
}

// A switch in the driver is there as long as the server.
func TestSwitchThatStays(t *testing.T) {
	h := &house{Lab: labtest.New(t, netlab.Config{Ranks: 2, RanksPerHost: 1, Share: true}), path: filepath.Join(t.TempDir(), "agent")}
	t.Cleanup(func() { closeFiles(h.sockets) })
	h.index = h.indexOf(t, 0)
	h.serve(t, Config{Path: h.path, Native: []string{h.Interface(0)}})
	defer h.Server.Close()
	for range 2 {
		if n := h.programs(t, loader.Native); n != 1 {
			t.Fatalf("%d programs", n)
		}
		e, err := h.enter(t, h.socket(t, unix.SOCK_DGRAM, h.at(7000)))
		if err != nil {
			t.Fatal(err)
		}
		if e.Mode() != loader.Native {
			t.Errorf("served by %v", e.Mode())
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		closeFiles(h.sockets)
		h.sockets = nil
	}
	if err := h.Server.Close(); err != nil {
		t.Error(err)
	}
	if n := h.programs(t, loader.Native); n != 0 {
		t.Errorf("%d programs are left", n)
	}
	h.do(t, func() error {
		if _, err := Serve(Config{Path: h.path, Native: []string{"none"}}); err == nil || !strings.Contains(err.Error(), "interface none") {
			t.Errorf("an interface that there is not: %v", err)
		}
		return nil
	})
}

// A server takes the place of one that was killed, and of no other.
func TestSocketOfAnotherServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent")
	dead, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := Serve(Config{Path: path, Mode: 0o640})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	if _, err := Serve(Config{Path: path}); err == nil || !strings.Contains(err.Error(), "another agent is there") {
		t.Errorf("a second server: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Serve(Config{Path: path}); err == nil {
		t.Error("a server has replaced a file")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Errorf("%q, %v", b, err)
	}
}

// A user who opens connections and does not enter keeps nobody out but itself, and that for a while.
func TestStrangersAreLimited(t *testing.T) {
	h := newHouse(t)
	inside := h.enters(t, 7000)
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	for range maxStrangers {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: h.path, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	h.refused(t, 7001, "agent is gone")
	if err := inside.Tier().Quiesce(); err != nil {
		t.Errorf("a rank that has entered: %v", err)
	}
	_ = open[0].Close()
	testenv.Await(t, "room for one", func() bool {
		e, err := h.enter(t, h.socket(t, unix.SOCK_DGRAM, h.at(0)))
		if err == nil {
			_ = e.Close()
		}
		return err != nil && strings.Contains(err.Error(), "a port by its number")
	})
}
