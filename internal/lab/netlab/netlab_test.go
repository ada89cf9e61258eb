package netlab

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// victim is the variable that makes this test binary build a lab and wait to be killed.
const victim = "XDPRMA_NETLAB_VICTIM"

func TestMain(m *testing.M) {
	if os.Getenv(victim) != "" {
		beVictim()
	}
	code := m.Run()
	if leaks := Leaks(); len(leaks) > 0 {
		fmt.Fprintln(os.Stderr, "left behind:", leaks)
		code = 1
	}
	os.Exit(code)
}

func beVictim() {
	if _, err := New(Config{Ranks: 3}); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready")
	os.Stdin.Read(make([]byte, 1)) // until killed, or until the test is gone
	os.Exit(0)
}

func newLab(t *testing.T, c Config) *Lab {
	t.Helper()
	testenv.NeedsRoot(t)
	l, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// echo opens a UDP socket in rank's namespace that sends back what it gets.
func echo(t *testing.T, l *Lab, rank int, addr netip.Addr) netip.AddrPort {
	t.Helper()
	c := listen(t, l, rank, addr)
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			c.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	return c.LocalAddr().(*net.UDPAddr).AddrPort()
}

func listen(t *testing.T, l *Lab, rank int, addr netip.Addr) (c *net.UDPConn) {
	t.Helper()
	err := l.Do(rank, func() (err error) {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestRanksReachEachOther(t *testing.T) {
	for _, c := range []Config{{}, {Ranks: 1}, {Ranks: 2, MTU: 9000, Queues: 4}, {Ranks: 4, MTU: 9000, Queues: 2}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			l := newLab(t, c)
			payload := make([]byte, l.MTU()-48) // one IPv6 packet
			for _, addrOf := range []func(int) netip.Addr{l.Addr, l.Addr6} {
				servers := make([]netip.AddrPort, l.Ranks())
				for rank := range servers {
					servers[rank] = echo(t, l, rank, addrOf(rank))
				}
				for from := range l.Ranks() {
					c := listen(t, l, from, addrOf(from))
					for to, server := range servers {
						c.SetDeadline(time.Now().Add(testenv.Limit))
						if _, err := c.WriteToUDPAddrPort(payload, server); err != nil {
							t.Fatalf("%d to %d: %v", from, to, err)
						}
						if n, err := c.Read(make([]byte, 1<<16)); err != nil || n != len(payload) {
							t.Fatalf("%d to %d: %d bytes came back, %v", from, to, n, err)
						}
					}
				}
			}
		})
	}
}

func TestInterfacesAreAsConfigured(t *testing.T) {
	for _, ranks := range []int{1, 2, 3} {
		l := newLab(t, Config{Ranks: ranks, MTU: 4000, Queues: 3})
		for rank := range ranks {
			link, err := l.nodes[rank].handle.LinkByName(l.Interface(rank))
			if err != nil {
				t.Fatal(err)
			}
			a := link.Attrs()
			if a.MTU != 4000 || a.NumTxQueues != 3 || a.NumRxQueues != 3 || a.HardwareAddr.String() != l.MAC(rank).String() {
				t.Errorf("rank %d of %d: MTU %d, queues %d and %d, address %v", rank, ranks, a.MTU, a.NumTxQueues, a.NumRxQueues, a.HardwareAddr)
			}
			addrs, err := l.nodes[rank].handle.AddrList(link, netlink.FAMILY_ALL)
			if err != nil || len(addrs) > 2 {
				t.Errorf("rank %d has addresses of its own: %v, %v", rank, addrs, err)
			}
		}
	}
}

func TestDoReturnsToOwnNamespace(t *testing.T) {
	l := newLab(t, Config{Ranks: 2})
	own, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	inside := func() (id string) {
		ns, err := netns.Get()
		if err != nil {
			t.Fatal(err)
		}
		defer ns.Close()
		return ns.UniqueId()
	}
	var ids []string
	for rank := range 2 {
		l.Do(rank, func() error {
			ids = append(ids, inside())
			return nil
		})
	}
	if ids[0] == ids[1] || ids[0] == own.UniqueId() || inside() != own.UniqueId() {
		t.Errorf("namespaces %v, own %v, now %v", ids, own.UniqueId(), inside())
	}
}

func TestProcessesRunInTheirNamespaces(t *testing.T) {
	l := newLab(t, Config{Ranks: 2})
	var out strings.Builder
	cmd := exec.Command("cat", "/proc/self/net/dev")
	cmd.Stdout = &out
	if err := l.Start(1, cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "xr1:") {
		t.Errorf("%v: %s", err, &out)
	}
	ls, err := l.Command(0, "ls", "/sys/class/net").CombinedOutput()
	if err != nil || !slices.Contains(strings.Fields(string(ls)), "xr0") {
		t.Errorf("%v: %s", err, ls)
	}
}

func TestConfigIsValidated(t *testing.T) {
	for _, c := range []Config{{Ranks: -1}, {Ranks: MaxRanks + 1}, {MTU: 100}, {MTU: MaxMTU + 1}, {Queues: MaxQueues + 1}} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), "must be") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestAddressesFollowTheRank(t *testing.T) {
	l := &Lab{config: Config{Ranks: 1000}}
	for rank, want := range map[int]string{0: "10.77.0.1 fd77::1", 254: "10.77.0.255 fd77::ff", 999: "10.77.3.232 fd77::3e8"} {
		if got := fmt.Sprint(l.Addr(rank), " ", l.Addr6(rank)); got != want {
			t.Errorf("rank %d: %s, want %s", rank, got, want)
		}
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	first, second := newLab(t, Config{Ranks: 3}), newLab(t, Config{Ranks: 1})
	if got := len(Leaks()); got != 6 { // five namespaces and the record
		t.Errorf("two open labs: %v", Leaks())
	}
	dir := first.Dir()
	first.Close()
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("the second lab's record is gone: %v", err)
	}
	second.Close()
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if leaks := Leaks(); len(leaks) > 0 {
		t.Errorf("left behind: %v", leaks)
	}
}

func TestFailedNewLeavesNothing(t *testing.T) {
	testenv.NeedsRoot(t)
	name := fmt.Sprintf("xr-%d-1", os.Getpid()) // in the way of rank 1
	path := filepath.Join(namespaceDir, name)
	if err := os.MkdirAll(namespaceDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := New(Config{Ranks: 3})
	os.Remove(path)
	if err == nil {
		t.Error("no error")
	}
	if leaks := Leaks(); len(leaks) > 0 {
		t.Errorf("left behind: %v", leaks)
	}
}

func TestLeftoversOfKilledRunsAreRemoved(t *testing.T) {
	testenv.NeedsRoot(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victim+"=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if line != "ready\n" {
		t.Errorf("the victim says %q, %v", line, err)
	}
	ours := func() []string {
		names, err := named()
		if err != nil {
			t.Fatal(err)
		}
		var ours []string
		for name, pid := range names {
			if pid == cmd.Process.Pid {
				ours = append(ours, name)
			}
		}
		return ours
	}
	if _, err := CleanStale(); err != nil {
		t.Error(err)
	}
	if got := ours(); len(got) != 4 {
		t.Errorf("of a living process there is %v", got)
	}
	cmd.Process.Kill()
	cmd.Wait()
	removed, err := CleanStale()
	if err != nil {
		t.Error(err)
	}
	for r := range 3 { // another process may be cleaning at the same time, so look at what is left
		name := fmt.Sprintf("xr-%d-%d", cmd.Process.Pid, r)
		if slices.Contains(ours(), name) {
			t.Errorf("%s is still there; removed were %v", name, removed)
		}
	}
	if _, err := os.Stat(recordDir(cmd.Process.Pid)); err == nil {
		t.Error("the record is still there")
	}
}

// A pid that another process has been given since does not protect leftovers.
func TestStaleSeesReusedPid(t *testing.T) {
	testenv.NeedsRoot(t)
	sleeper := exec.Command("cat")
	stdin, err := sleeper.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer sleeper.Wait()
	defer stdin.Close()
	pid := sleeper.Process.Pid
	if stale(pid) {
		t.Error("a living process without a record is taken for dead")
	}
	start, err := startTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(recordDir(pid))
	for recorded, want := range map[string]bool{start: false, start + "0": true} {
		if err := unheldRecord(pid, recorded, pidSpace()); err != nil {
			t.Fatal(err)
		}
		if got := stale(pid); got != want {
			t.Errorf("recorded %s, started %s: stale is %v", recorded, start, got)
		}
	}
}

// A process in another PID namespace is not taken for dead: its pid is another process's here, or nobody's.
func TestOtherPidSpacesAreLeftAlone(t *testing.T) {
	testenv.NeedsRoot(t)
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	pid := ended.Process.Pid
	defer os.RemoveAll(recordDir(pid))
	for _, space := range []string{pidSpace(), "pid:[1]"} {
		holder, err := writeRecord(recordDir(pid), "1", space)
		if err != nil {
			t.Fatal(err)
		}
		if stale(pid) {
			t.Errorf("the record of a living process in %s, seen from %s, is stale", space, pidSpace())
		}
		if _, err := writeRecord(recordDir(pid), "1", pidSpace()); err == nil {
			t.Errorf("the record of a living process in %s is overwritten", space)
		}
		holder.Close() // as it is when the process ends
		if !stale(pid) {
			t.Errorf("the record of a process in %s that has ended, seen from %s, is not stale", space, pidSpace())
		}
	}
	if err := unheldRecord(pid, "1", pidSpace()); err != nil {
		t.Errorf("the record of a process that has ended stays: %v", err)
	}
}

// unheldRecord writes a record of which no process says that it lives.
func unheldRecord(pid int, start, space string) error {
	holder, err := writeRecord(recordDir(pid), start, space)
	if err == nil {
		err = holder.Close()
	}
	return err
}

// A process has nothing of one whose pid begins like its own.
func TestLeaksAreOfOneProcess(t *testing.T) {
	testenv.NeedsRoot(t)
	newLab(t, Config{Ranks: 1})
	own := LeaksOf(os.Getpid())
	if len(own) != 2 {
		t.Errorf("this process has %q", own)
	}
	for _, thing := range LeaksOf(os.Getpid() / 10) { // which may have a lab, too
		if slices.Contains(own, thing) {
			t.Errorf("process %d has %s", os.Getpid()/10, thing)
		}
	}
}

func TestOnlyOwnNamesAreTakenForLeftovers(t *testing.T) {
	for name, want := range map[string]bool{
		"xr-12-0": true, "xr-12-999": true, "xr-12-br": true, "xr-12-2.0": true, "xr-12-2.br": true,
		"xr-12": false, "xr-12-": false, "xr-x-0": false, "xr-zz-a": false, "my-xr-12-0": false, "xr-12-0/x": false,
	} {
		if got := namePattern.MatchString(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
