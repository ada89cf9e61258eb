package vmtests

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// Tests of ranks that may make the system calls of docs/confinement.md, and no others.

// The groups of calls that ranks over each transport make, when they share no memory.
var callsOver = map[string][]string{
	"udp":         {"go", "frames"},
	"xdp-native":  {"go", "frames", "xdp", "express"},
	"xdp-generic": {"go", "frames", "xdp", "express"},
	"shared":      {"go", "frames", "shared", "express"},
}

// envTrespass has the trespass program make a call that no rank makes.
const envTrespass = "VMTESTS_TRESPASS"

// trespasses are the numbers of such calls, and arguments with which they fail, and harm nothing,
// where no filter stops them.
var trespasses = map[string][]uintptr{
	"execve":     {unix.SYS_EXECVE}, // of no path
	"fork":       {unix.SYS_CLONE, unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_FS | uintptr(unix.SIGCHLD)},
	"mount":      {unix.SYS_MOUNT}, // at no path
	"ptrace":     {unix.SYS_PTRACE, unix.PTRACE_ATTACH, uintptr(os.Getpid())},
	"unshare":    {unix.SYS_UNSHARE, unix.CLONE_NEWUSER}, // a process of several threads may not
	"bpf":        {unix.SYS_BPF, unix.BPF_PROG_LOAD},
	"AF_PACKET":  {unix.SYS_SOCKET, unix.AF_PACKET},
	"x32's read": {1<<30 | unix.SYS_READ},
}

// trespass makes a call that returns only where no filter traps it.
func trespass(number uintptr, arguments ...uintptr) error {
	all := [3]uintptr{}
	copy(all[:], arguments)
	_, _, errno := unix.Syscall(number, all[0], all[1], all[2])
	return errno
}

// aboutToTrespass is what the program says last.
const aboutToTrespass = "about to trespass"

func init() {
	programs["trespass"] = func(*self) error {
		if builtWithCgo() {
			if err := trespass(unix.SYS_CLONE3); !errors.Is(err, unix.ENOSYS) {
				return fmt.Errorf("clone3 under a filter: %w, want %w", err, unix.ENOSYS)
			}
		}
		fmt.Println(aboutToTrespass)
		call := trespasses[os.Getenv(envTrespass)]
		return fmt.Errorf("the call returned: %w", trespass(call[0], call[1:]...))
	}
}

// confined returns the variable that has ranks make the calls of some groups alone, without
// one call, if that is not empty.
func confined(t *testing.T, without string, groups ...string) string {
	t.Helper()
	if builtWithCgo() {
		groups = append(slices.Clone(groups), "cgo")
	}
	return confinedTo(t, without, groups...)
}

// confinedTo is confined for a program that may be built otherwise than this one.
func confinedTo(t *testing.T, without string, groups ...string) string {
	t.Helper()
	documented, err := documentedCalls()
	if err != nil {
		t.Fatal(err)
	}
	var calls []string
	for _, group := range groups {
		if len(documented[group]) == 0 {
			t.Fatalf("docs/confinement.md has no calls of the group %q", group)
		}
		calls = append(calls, documented[group]...)
	}
	all := len(calls)
	if calls = slices.DeleteFunc(calls, func(c string) bool { return c == without }); without != "" && len(calls) == all {
		t.Fatalf("%q is not among the calls of %q", without, groups)
	}
	return envConfined + "=" + strings.Join(calls, " ")
}

// A name in docs/confinement.md that these tests do not know is an error, and so is a name that
// they know and the page does not have.
func TestConfinementIsOfKnownCalls(t *testing.T) {
	documented, err := documentedCalls()
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for group, calls := range documented {
		if _, err := filterOf(calls); err != nil {
			t.Errorf("group %s: %v", group, err)
		}
		for _, call := range calls {
			name, argument, _ := partsOf(call)
			has[name], has[argument] = true, true
		}
	}
	for name := range systemCalls {
		if !has[name] {
			t.Errorf("docs/confinement.md does not name %s", name)
		}
	}
	for name := range firstArguments {
		if !has[name] {
			t.Errorf("docs/confinement.md does not name %s", name)
		}
	}
	for _, bad := range [][]string{{"execve"}, {"bpf(BPF_PROG_LOAD)"}, {"bpf", "bpf(BPF_MAP_CREATE)"}, {"clone3=EPERM"}, {"clone3", "clone3=ENOSYS"}} {
		if _, err := filterOf(bad); err == nil {
			t.Errorf("there is a filter of %q", bad)
		}
	}
}

// onNamedHost has ranks 0 and 1 share memory, though they have different network namespaces.
func onNamedHost(n int, c *bootstrap.Config, _ *exec.Cmd) {
	if n < 2 {
		c.Host = "named"
	}
}

// Ranks make no calls but the documented ones, whatever they do in good order.
func TestConfinedRanks(t *testing.T) {
	key := secure.NewKey()
	socket, host0 := filepath.Join(t.TempDir(), "rendezvous"), netip.Addr{}
	for _, c := range []struct {
		name    string
		ground  ground
		program string
		more    []string // groups
		spec    spec
	}{
		{"udp", onUDP, "exchange", nil, spec{}},
		{"native", onXDP, "exchange", nil, spec{}},
		{"generic", ground{"", "xdp-generic", 1}, "exclusive", nil, spec{}},
		{"shared", ground{"", "shared", 1}, "exchange", nil, spec{}},
		{"one host", onMemory, "exchange", []string{"host"}, spec{}},
		{"pairs", onBoth, "goroutines", []string{"host"}, spec{}},
		{"IPv6", onXDP, "goroutines", nil, spec{v6: true}},
		{"seal over TCP", onXDP, "exchange", nil, spec{key: &key, level: secure.Seal, overTCP: true}},
		{"sign over UDP", onUDP, "goroutines", nil, spec{key: &key, level: secure.Sign, overTCP: true}},
		{"a rank that has left", onUDP, "abandoned", nil, spec{}},
		{"one host, several networks", onXDP, "exchange", []string{"host"}, spec{change: onNamedHost}},
		{"rank 0 serves", onUDP, "goroutines", []string{"serve"}, spec{change: func(_ int, c *bootstrap.Config, _ *exec.Cmd) {
			c.Rendezvous, c.Serve = "unix:"+socket, true
		}}},
		{"rank 0 serves TCP", onXDP, "goroutines", []string{"serve"}, spec{key: &key, change: func(n int, c *bootstrap.Config, _ *exec.Cmd) {
			if n == 0 {
				host0 = c.Address
			}
			c.Rendezvous, c.Serve = "tcp:"+netip.AddrPortFrom(host0, 7000).String(), true
		}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.spec.program = c.program
			c.spec.env = []string{confined(t, "", append(slices.Clone(callsOver[c.ground.transport]), c.more...)...)}
			c.ground.job(t, 3, c.spec).finish()
		})
	}
}

// Without XDP programs that execute requests, a rank over XDP needs fewer calls.
func TestConfinedRanksWithoutExpress(t *testing.T) {
	env := []string{"XDPRMA_EXPRESS=off", confined(t, "", "go", "frames", "xdp")}
	onXDP.job(t, 2, spec{program: "exchange", env: env}).finish()
}

// A program that is built without cgo does not need the C library's calls.
func TestConfinedRanksWithoutCgo(t *testing.T) {
	testenv.NeedsRoot(t)
	program := withoutCgo(t)
	instead := func(_ int, _ *bootstrap.Config, cmd *exec.Cmd) { cmd.Path, cmd.Args = program, []string{program} }
	for _, g := range []ground{onUDP, onXDP} {
		t.Run(g.name, func(t *testing.T) {
			env := []string{confinedTo(t, "", callsOver[g.transport]...)}
			g.job(t, 3, spec{program: "goroutines", env: env, change: instead}).finish()
		})
	}
}

// withoutCgo returns the path of these tests' program as built without cgo, which may be this one.
func withoutCgo(t *testing.T) string {
	if ownWithoutCgo() {
		return os.Args[0]
	}
	program := filepath.Join(t.TempDir(), "vmtests")
	buildWithoutCgo(t, "test", "-c", "-ldflags=-w", "-o", program, ".")
	return program
}

// ownWithoutCgo reports whether this program, and with it others of the tests, is built without cgo.
func ownWithoutCgo() bool {
	own, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(own.Settings, debug.BuildSetting{Key: "CGO_ENABLED", Value: "0"})
}

// buildWithoutCgo has the go command carry out args.
func buildWithoutCgo(t *testing.T, args ...string) {
	t.Helper()
	build := exec.Command("go", args...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go %v without cgo: %v\n%s", args, err, out)
	}
}

// The death of a peer takes no other calls.
func TestConfinedRanksNoticeDeath(t *testing.T) {
	for _, g := range testenv.OneOf(onUDP, onXDP, onMemory) {
		t.Run(g.name, func(t *testing.T) { // not beside the others: emulated processors do not serve twelve ranks in time
			env := []string{confined(t, "", append(slices.Clone(callsOver[g.transport]), "host")...)}
			j := g.job(t, 4, spec{program: "bereaved", deadAfter: deadAfter, env: env})
			for _, r := range j.ranks {
				j.await(r, "ready")
			}
			j.ranks[victim].kill()
			<-j.ranks[victim].done
			j.ranks = j.ranks[:victim]
			for _, step := range [][2]string{{"noticed", "go on"}, {"done", "leave"}} {
				for _, r := range j.ranks {
					j.await(r, step[0])
				}
				for _, r := range j.ranks {
					r.tell(step[1])
				}
			}
			j.finish()
		})
	}
}

// A confined rank is stopped and goes on, warns of its link, and ends by a signal.
func TestConfinedRanksTakeSignals(t *testing.T) {
	for _, transport := range []string{"udp", "xdp-native"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			lab := labtest.New(t, netlab.Config{Ranks: 2})
			j := start(t, lab, spec{program: "sum", transports: []string{transport}, deadAfter: testenv.Limit,
				env: []string{confined(t, "", callsOver[transport]...)}})
			for _, r := range j.ranks {
				j.await(r, "running")
			}
			j.ranks[1].signal(unix.SIGSTOP)
			time.Sleep(50 * time.Millisecond) // rank 0 works at it
			j.ranks[1].signal(unix.SIGCONT)
			onLink(t, lab, netlink.LinkSetDown)
			testenv.Await(t, "a warning", func() bool { return strings.Contains(j.ranks[0].output(), "the link of the interface is down") })
			onLink(t, lab, netlink.LinkSetUp)
			for _, r := range j.ranks {
				r.tell("stop")
			}
			j.finish()

			j = start(t, lab, spec{program: "sum", transports: []string{transport}, deadAfter: testenv.Limit,
				env: []string{confined(t, "", callsOver[transport]...)}})
			for _, r := range j.ranks {
				j.await(r, "running")
			}
			for _, r := range j.ranks {
				r.signal(unix.SIGTERM)
				<-r.done
				if got := r.cmd.ProcessState.Sys().(syscall.WaitStatus); !got.Signaled() || got.Signal() != unix.SIGTERM {
					t.Errorf("rank %d: %v", r.n, r.cmd.ProcessState)
				}
			}
		})
	}
}

// A call that is not in the list ends the rank: one of the library, if the list lacked it, and
// one that a rank has no business to make. The stack shows that it was this call.
func TestConfinementStopsRanks(t *testing.T) {
	type breach struct {
		name, program, without, trespass string
		caller                           string // the function that makes the call
		ground                           ground
		ranks                            int
	}
	breaches := []breach{
		{"frames without sendto", "goroutines", "sendto", "", "device.sendMessages", onUDP, 2},
		{"maps without bpf", "goroutines", "bpf(BPF_MAP_CREATE)", "", "sys.MapCreate", onXDP, 3},
		{"memory without pidfd_open", "goroutines", "pidfd_open", "", "unix.PidfdOpen", onXDP, 3},
	}
	for name := range trespasses {
		breaches = append(breaches, breach{name, "trespass", "", name, "vmtests.trespass", onUDP, 2})
	}
	for _, b := range breaches {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()                                                          // the most of it is waiting
			groups := append(slices.Clone(callsOver[b.ground.transport]), "host") // which has sockets
			env := []string{confined(t, b.without, groups...), envTrespass + "=" + b.trespass}
			if b.trespass == "bpf" {
				env[0] += " bpf(BPF_MAP_CREATE)"
			}
			j := b.ground.job(t, b.ranks, spec{program: b.program, deadAfter: deadAfter, env: env, change: onNamedHost})
			died := false
			for _, r := range j.ranks {
				j.ended(r)
				before, stack := trap(r.output())
				if stack == "" || r.cmd.ProcessState.Success() {
					continue
				}
				died = true
				if !strings.Contains(stack, b.caller+"(") {
					t.Errorf("rank %d was not trapped in %s:\n%s", r.n, b.caller, stack)
				}
				if b.trespass != "" && !strings.Contains(before, aboutToTrespass) {
					t.Errorf("rank %d was trapped before its trespass", r.n)
				}
			}
			if !died {
				t.Error("no rank has died of it")
			}
		})
	}
}

// trap returns what a rank said before a trap ended it, and the stack of the goroutine that made
// the call: empty if there was no trap.
func trap(output string) (before, stack string) {
	before, after, _ := strings.Cut(output, "SIGSYS: bad system call")
	_, stack, _ = strings.Cut(after, "\ngoroutine ")
	stack, _, _ = strings.Cut(stack, "\n\n")
	return before, stack
}
