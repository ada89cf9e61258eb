package vmtests

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/afxdp"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
)

// The privileges that a process gives up before it starts a rank's program.
const (
	envDropCaps = "VMTESTS_DROP_CAPABILITIES" // numbers, separated by commas
	envMemLock  = "VMTESTS_MEMLOCK"           // bytes
)

// envOddThread has a rank start with a thread that has fewer capabilities than the others.
const envOddThread = "VMTESTS_ODD_THREAD"

// addOddThread makes that thread, which stays.
func addOddThread() error {
	made := make(chan error)
	go func() {
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		err := unix.Capget(&header, &data[0])
		data[0].Effective &^= 1 << unix.CAP_CHOWN
		made <- errors.Join(err, unix.Capset(&header, &data[0]))
		select {}
	}()
	return <-made
}

// giveUp makes the process start itself again without what the environment says
// it must not have. A process of root gets on exec all capabilities that its
// bounding set has.
func giveUp() error {
	caps, limit := os.Getenv(envDropCaps), os.Getenv(envMemLock)
	if caps == "" && limit == "" {
		return nil
	}
	runtime.LockOSThread() // the capabilities of the thread that execs are those that count
	os.Unsetenv(envDropCaps)
	os.Unsetenv(envMemLock)
	for c := range strings.SplitSeq(caps, ",") {
		n, err := strconv.Atoi(c)
		if err == nil {
			err = unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(n), 0, 0, 0)
		}
		if err != nil {
			return fmt.Errorf("drop capability %q: %w", c, err)
		}
	}
	if n, err := strconv.ParseUint(limit, 10, 64); err == nil {
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return err
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(exe, os.Args, os.Environ())
}

func without(caps ...int) []string {
	var numbers []string
	for _, c := range caps {
		numbers = append(numbers, strconv.Itoa(c))
	}
	return []string{envDropCaps + "=" + strings.Join(numbers, ",")}
}

// obstacle is something that keeps rank 0 from a transport.
type obstacle struct {
	name   string
	make   func(t *testing.T, lab *netlab.Lab)
	env    []string
	change func(rank int, c *bootstrap.Config, cmd *exec.Cmd)
	says   []string // what the error must contain
	auto   string   // what the ladder ends with; empty: auto fails too
}

func obstacles() []obstacle {
	return []obstacle{
		{name: "no CAP_BPF", env: without(unix.CAP_BPF, unix.CAP_SYS_ADMIN), says: []string{"CAP_BPF", "root"}, auto: "udp"},
		{name: "no CAP_NET_ADMIN", env: without(unix.CAP_NET_ADMIN, unix.CAP_SYS_ADMIN), says: []string{"CAP_NET_ADMIN", "root"}, auto: "udp"},
		{name: "no CAP_NET_RAW", env: without(unix.CAP_NET_RAW), says: []string{"CAP_NET_RAW"}, auto: "udp"},
		{name: "foreign program", make: foreignProgram, says: []string{"foreign"}, auto: "udp"},
		{name: "taken port", make: takePort, says: []string{fmt.Sprint(bootstrap.DefaultPort), "in use"}, auto: "udp"},
		{name: "taken queue", make: takeQueue, says: []string{"queue 0", "waiting for a queue"}, auto: "udp"},
		{name: "memory lock", env: append(without(unix.CAP_IPC_LOCK), envMemLock+"=65536"),
			says: []string{"RLIMIT_MEMLOCK", "CAP_IPC_LOCK"}, auto: "udp"},
		{name: "small MTU", make: smallMTU, says: []string{"MTU", "1000"}},
		{name: "no such interface", change: func(_ int, c *bootstrap.Config, _ *exec.Cmd) { c.Interface = "nowhere0" },
			says: []string{"nowhere0", "ip link"}},
		{name: "interface is down", make: setDown, says: []string{"down", "ip link set"}, auto: "udp"},
	}
}

func foreignProgram(t *testing.T, lab *netlab.Lab) {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "foreign", Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}}) // XDP_PASS
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	onLink(t, lab, func(l netlink.Link) error {
		attached, err := link.AttachXDP(link.XDPOptions{Program: program, Interface: l.Attrs().Index, Flags: link.XDPDriverMode})
		if err == nil {
			t.Cleanup(func() { attached.Close() })
		}
		return err
	})
}

// onLink calls f with rank 0's interface, in its namespace.
func onLink(t *testing.T, lab *netlab.Lab, f func(netlink.Link) error) {
	t.Helper()
	err := lab.Do(0, func() error {
		l, err := netlink.LinkByName(lab.Interface(0))
		if err != nil {
			return err
		}
		return f(l)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func takePort(t *testing.T, lab *netlab.Lab) { udpFrom(t, lab, 0, bootstrap.DefaultPort) }

func takeQueue(t *testing.T, lab *netlab.Lab) {
	onLink(t, lab, func(l netlink.Link) error {
		s, err := afxdp.Open(t.Context(), afxdp.Config{IfIndex: l.Attrs().Index, Interface: l.Attrs().Name})
		if err == nil {
			t.Cleanup(func() { s.Close() })
		}
		return err
	})
}

func smallMTU(t *testing.T, lab *netlab.Lab) {
	onLink(t, lab, func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1000) })
}

func setDown(t *testing.T, lab *netlab.Lab) { onLink(t, lab, netlink.LinkSetDown) }

func init() { programs["join"] = func(*self) error { return nil } }

// An obstacle to XDP gives an error that says what to do; with the transport auto, a
// warning and the next transport.
func TestObstaclesToXDPAreExplained(t *testing.T) {
	for _, o := range obstacles() {
		for _, transport := range testenv.Cases([]string{"auto"}, "xdp", "xdp-native", "xdp-generic") {
			t.Run(o.name+"/"+transport, func(t *testing.T) {
				t.Parallel()
				lab := labtest.New(t, netlab.Config{Ranks: 2})
				if o.make != nil {
					o.make(t, lab)
				}
				j := start(t, lab, spec{program: "join", ranks: 1, transports: []string{transport}, env: o.env, change: o.change})
				r := j.ranks[0]
				j.ended(r)
				out := r.output()
				t.Log(out)
				for _, word := range o.says {
					if !strings.Contains(out, word) {
						t.Errorf("the rank does not say %q", word)
					}
				}
				if n := strings.Count(out, "waiting for a queue"); n > 1 {
					t.Errorf("the rank waited %d times for the same queue", n)
				}
				if transport != "auto" || o.auto == "" {
					if r.cmd.ProcessState.ExitCode() != 3 {
						t.Errorf("joined: %v", r.cmd.ProcessState)
					}
					return
				}
				if !r.cmd.ProcessState.Success() || !strings.Contains(out, "joined "+o.auto) {
					t.Errorf("has not joined over %s: %v", o.auto, r.cmd.ProcessState)
				}
				for _, word := range []string{"WARN", "xdp-generic, xdp-native", "using=" + o.auto} {
					if !strings.Contains(out, word) {
						t.Errorf("the warnings do not say %q", word)
					}
				}
			})
		}
	}
}

// Ranks whose interfaces have different MTUs use frames that suit both.
func TestUnequalMTU(t *testing.T) {
	for _, transport := range testenv.Cases([]string{"xdp-native"}, "xdp-generic", "udp") {
		t.Run(transport, func(t *testing.T) {
			lab := labtest.New(t, netlab.Config{Ranks: 2, MTU: 9000})
			onLink(t, lab, func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1500) })
			start(t, lab, spec{program: "exchange", transports: []string{transport}}).finish()
		})
	}
}
