package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/userspace"
)

// binary is the xdprma under test.
var binary string

func TestMain(m *testing.M) {
	if os.Getenv(envMourner) != "" {
		if err := mourn(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(envEnds) != "" {
		endOrMourn()
		return
	}
	if os.Getenv(envMany) != "" {
		if err := putToAll(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "xdprma-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		os.Chmod(dir, 0o755) // for the tests that run it as another user
		binary = filepath.Join(dir, "xdprma")
		if err := testenv.Build(".", binary); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// invocation is a started xdprma.
type invocation struct {
	*exec.Cmd
	stdout, stderr bytes.Buffer
}

// command prepares xdprma; it is killed if it outlives the test.
func command(t *testing.T, args ...string) *invocation {
	t.Helper()
	c := &invocation{Cmd: exec.CommandContext(t.Context(), binary, args...)}
	c.Cmd.Stdout, c.Cmd.Stderr = &c.stdout, &c.stderr
	c.Dir = "/"
	c.WaitDelay = testenv.Limit
	return c
}

// nobody makes c run without privileges.
func nobody(c *invocation) *invocation {
	if os.Geteuid() == 0 {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	return c
}

// finish waits for c and returns its exit status. It checks that c left no
// namespace and no record.
func (c *invocation) finish(t *testing.T) int {
	t.Helper()
	err := c.Wait()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatalf("%v\n%s%s", err, &c.stdout, &c.stderr)
	}
	if left := c.leftovers(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	return c.ProcessState.ExitCode()
}

func (c *invocation) leftovers() []string { return netlab.LeaksOf(c.Process.Pid) }

func (c *invocation) run(t *testing.T) int {
	t.Helper()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c.finish(t)
}

func sortedLines(b *bytes.Buffer) []string {
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	slices.Sort(lines)
	return lines
}

func TestRunEnvironment(t *testing.T) {
	testenv.NeedsRoot(t)
	c := command(t, "run", "-n", "3", "--queues", "2", "--mtu", "4000", "--transports", "udp,xdp,auto", "--", "sh", "-c",
		`echo $XDPRMA_RANK/$XDPRMA_SIZE $XDPRMA_TRANSPORT $XDPRMA_INTERFACE $XDPRMA_ADDRESS $XDPRMA_PORT $XDPRMA_RENDEZVOUS_SERVE
		 test -S "${XDPRMA_RENDEZVOUS#unix:}" && test ${#XDPRMA_JOB} = 16 && echo rendezvous
		 grep -q "$XDPRMA_INTERFACE:" /proc/self/net/dev && echo interface`)
	c.Env = append(os.Environ(), "XDPRMA_RANK=77", "XDPRMA_ADDRESS=1.2.3.4") // of an outer job
	if s := c.run(t); s != 0 {
		t.Fatalf("status %d: %s", s, &c.stderr)
	}
	want := []string{
		"[0] 0/3 udp xr0 10.77.0.1 7770 0", "[0] interface", "[0] rendezvous",
		"[1] 1/3 xdp xr1 10.77.0.2 7770 0", "[1] interface", "[1] rendezvous",
		"[2] 2/3 auto xr2 10.77.0.3 7770 0", "[2] interface", "[2] rendezvous",
	}
	if got := sortedLines(&c.stdout); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if c.stderr.Len() > 0 {
		t.Errorf("stderr: %s", &c.stderr)
	}
}

// The settings in the launcher's environment hold for all ranks, unless an option says
// otherwise. They do not hold when a rank of a job is itself the launcher.
func TestRunTakesSettingsFromItsEnvironment(t *testing.T) {
	const script = `echo $XDPRMA_RANK $XDPRMA_TRANSPORT $XDPRMA_PORT ${XDPRMA_QUEUES:-all} ${XDPRMA_FRAMES:-0} ${XDPRMA_EXPRESS:-on}`
	set := []string{"XDPRMA_TRANSPORT=udp", "XDPRMA_PORT=23456", "XDPRMA_QUEUES=3", "XDPRMA_FRAMES=1", "XDPRMA_EXPRESS=off"}
	for _, test := range []struct {
		name    string
		env     []string
		args    []string
		root    bool
		want    []string
		status  int
		problem string
	}{
		{name: "loopback", env: set, want: []string{"[0] 0 udp 23456 3 1 off", "[1] 1 udp 23457 3 1 off"}},
		{name: "namespaces", env: set, root: true, want: []string{"[0] 0 udp 23456 3 1 off", "[1] 1 udp 23456 3 1 off"}},
		{name: "options", env: set, args: []string{"--transport", "xdp", "--frames=false"}, root: true,
			want: []string{"[0] 0 xdp 23456 3 0 off", "[1] 1 xdp 23456 3 0 off"}},
		{name: "any port", env: []string{"XDPRMA_TRANSPORT=udp", "XDPRMA_PORT=0"}, want: []string{"[0] 0 udp 0 all 0 on", "[1] 1 udp 0 all 0 on"}},
		{name: "within a job", env: append([]string{"XDPRMA_RENDEZVOUS=unix:/x"}, set...), root: true,
			want: []string{"[0] 0 auto 7770 all 0 on", "[1] 1 auto 7770 all 0 on"}},
		{name: "no transport", env: []string{"XDPRMA_TRANSPORT=rdma"}, status: statusUsage, problem: "XDPRMA_TRANSPORT"},
		{name: "no port", env: []string{"XDPRMA_PORT=http"}, status: statusUsage, problem: `XDPRMA_PORT="http" is not a number from 0 to 65535`},
		{name: "no switch", env: []string{"XDPRMA_EXPRESS=1"}, status: statusUsage, problem: `XDPRMA_EXPRESS="1" is not on or off`},
		{name: "ports beyond the last", env: []string{"XDPRMA_TRANSPORT=udp", "XDPRMA_PORT=65535"}, status: statusFailed, problem: "65536"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := command(t, append(append([]string{"run", "-n", "2"}, test.args...), "--", "sh", "-c", script)...)
			if test.root {
				testenv.NeedsRoot(t)
			} else {
				c = nobody(c)
			}
			c.Env = append(os.Environ(), test.env...)
			if s := c.run(t); s != test.status || !strings.Contains(c.stderr.String(), test.problem) {
				t.Fatalf("status %d: %s", s, &c.stderr)
			}
			if got := sortedLines(&c.stdout); test.want != nil && !slices.Equal(got, test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

// In a user namespace, where the capabilities are there and do not count, ranks run over
// the loopback interface, and info says so.
func TestRunWithinUserNamespace(t *testing.T) {
	testenv.NeedsRoot(t)
	for _, args := range [][]string{{"run", "-n", "2", "--", "sh", "-c", "echo $XDPRMA_TRANSPORT $XDPRMA_ADDRESS"}, {"info", "lo"}} {
		c := command(t, args...)
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{Size: 1}}, GidMappings: []syscall.SysProcIDMap{{Size: 1}}}
		if s := c.run(t); s != 0 {
			t.Fatalf("%v: status %d: %s", args, s, &c.stderr)
		}
		want := []string{"[0] udp 127.0.0.1\n", "[1] udp 127.0.0.1\n"}
		if args[0] == "info" {
			want = []string{"ranks share the loopback interface: "}
		}
		for _, w := range want {
			if !strings.Contains(c.stdout.String(), w) {
				t.Errorf("%v: no %q in %s%s", args, w, &c.stdout, &c.stderr)
			}
		}
	}
}

func TestVersionIsTold(t *testing.T) {
	c := command(t, "--version")
	if s := c.run(t); s != 0 || !strings.HasPrefix(c.stdout.String(), "xdprma version ") || !strings.Contains(c.stdout.String(), runtime.Version()) {
		t.Errorf("status %d: %s%s", s, &c.stdout, &c.stderr)
	}
}

func TestRunWithoutPrivileges(t *testing.T) {
	script := `echo $XDPRMA_RANK $XDPRMA_TRANSPORT ${XDPRMA_INTERFACE:-none} $XDPRMA_ADDRESS ${XDPRMA_RENDEZVOUS%:*}; echo port $XDPRMA_PORT >&2`
	for _, transport := range []string{"udp", "auto"} {
		t.Run(transport, func(t *testing.T) {
			c := nobody(command(t, "run", "-n", "2", "--queues", "3", "--transport", transport, "--", "sh", "-c", script))
			if s := c.run(t); s != 0 {
				t.Fatalf("status %d: %s", s, &c.stderr)
			}
			want := []string{"[0] 0 udp none 127.0.0.1 tcp:127.0.0.1", "[1] 1 udp none 127.0.0.1 tcp:127.0.0.1"}
			if got := sortedLines(&c.stdout); !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
			var ports []int
			warned := false
			for _, line := range sortedLines(&c.stderr) {
				var rank, port int
				if _, err := fmt.Sscanf(line, "[%d] port %d", &rank, &port); err == nil {
					ports = append(ports, port)
				} else {
					warned = strings.Contains(line, "CAP_NET_ADMIN")
				}
			}
			if len(ports) != 2 || ports[0] == ports[1] {
				t.Errorf("ports %v", ports)
			}
			if warned != (transport == "auto") {
				t.Errorf("stderr: %s", &c.stderr)
			}
		})
	}
	for _, transport := range []string{"xdp", "xdp-native", "xdp-generic"} {
		c := nobody(command(t, "run", "--transport", transport, "--", "true"))
		if s := c.run(t); s != statusFailed || !strings.Contains(c.stderr.String(), "run as root") {
			t.Errorf("%s: status %d: %s", transport, s, &c.stderr)
		}
	}
}

// TestRunRanksPerHost puts two ranks at a time where one would be, with one interface or two.
func TestRunRanksPerHost(t *testing.T) {
	for name, more := range map[string][]string{"one interface": nil, "two interfaces": {"--own-interfaces"}} {
		t.Run(name, func(t *testing.T) { runRanksPerHost(t, more) })
	}
}

// Ranks share an interface unless they ask for what one rank of it can have.
func TestRunShares(t *testing.T) {
	for _, test := range []struct {
		perHost    int
		own        bool
		transports []userspace.Transport
		want       bool
	}{
		{1, false, []userspace.Transport{userspace.Auto}, false},
		{1, false, []userspace.Transport{userspace.Auto, userspace.Shared}, true},
		{2, false, []userspace.Transport{userspace.Auto, userspace.UDP}, true},
		{2, true, []userspace.Transport{userspace.Auto}, false},
		{2, false, []userspace.Transport{userspace.Auto, userspace.XDPGeneric}, false},
	} {
		r := runner{perHost: test.perHost, ownInterfaces: test.own, transports: test.transports}
		if r.shares() != test.want {
			t.Errorf("%+v: %t", test, r.shares())
		}
	}
}

// The ports of the ranks of a host go on from the one that is named, and end with the last that there is.
func TestRunPortsEnd(t *testing.T) {
	for port, fails := range map[uint16]bool{0: false, 65532: false, 65533: true} {
		r := runner{ranks: 8, perHost: 4, mtu: 1500, queues: 1, args: []string{"true"}, all: bootstrap.Config{Config: userspace.Config{Port: port}}}
		if err := r.parse("auto", ""); (err != nil) != fails {
			t.Errorf("port %d: %v", port, err)
		}
	}
}

func runRanksPerHost(t *testing.T, more []string) {
	modes(t, func(t *testing.T, command func(args ...string) *invocation) {
		args := slices.Concat([]string{"run", "-n", "5", "--ranks-per-host", "2", "--frames"}, more, []string{"--", "sh", "-c",
			`echo $XDPRMA_RANK $(readlink /proc/self/ns/net)$XDPRMA_HOST $XDPRMA_FRAMES ${XDPRMA_INTERFACE:-xr} ${XDPRMA_PORT}`})
		c := command(args...)
		if s := c.run(t); s != 0 {
			t.Fatalf("status %d: %s", s, &c.stderr)
		}
		var hosts []string
		for i, line := range sortedLines(&c.stdout) {
			var prefix, host, ifname string
			var rank, frames, port int
			if _, err := fmt.Sscan(line, &prefix, &rank, &host, &frames, &ifname, &port); err != nil || rank != i || frames != 1 {
				t.Errorf("rank %d: %s (%v)", i, line, err)
			}
			want, at := fmt.Sprintf("xr%d", i), bootstrap.DefaultPort
			if more == nil {
				want, at = fmt.Sprintf("xr%d", i-i%2), at+i%2
			}
			if ifname != "xr" && (ifname != want || port != at) {
				t.Errorf("rank %d has interface %s and port %d, want %s and %d", i, ifname, port, want, at)
			}
			hosts = append(hosts, host)
		}
		if len(hosts) != 5 || hosts[0] != hosts[1] || hosts[2] != hosts[3] || hosts[0] == hosts[2] || hosts[2] == hosts[4] {
			t.Errorf("hosts %q", hosts)
		}
	})
}

func TestRunUDPInNamespaces(t *testing.T) {
	testenv.NeedsRoot(t)
	c := command(t, "run", "-n", "2", "--transport", "udp", "--", "sh", "-c", "echo $XDPRMA_INTERFACE")
	if s := c.run(t); s != 0 || !slices.Equal(sortedLines(&c.stdout), []string{"[0] xr0", "[1] xr1"}) {
		t.Errorf("status %d: %s%s", s, &c.stdout, &c.stderr)
	}
}

// modes runs f with and without namespaces.
func modes(t *testing.T, f func(t *testing.T, command func(args ...string) *invocation)) {
	t.Run("namespaces", func(t *testing.T) {
		testenv.NeedsRoot(t)
		f(t, func(args ...string) *invocation { return command(t, args...) })
	})
	t.Run("loopback", func(t *testing.T) {
		f(t, func(args ...string) *invocation {
			return nobody(command(t, slices.Insert(args, 1, "--transport", "udp")...))
		})
	})
}

func TestRunStatus(t *testing.T) {
	modes(t, func(t *testing.T, command func(...string) *invocation) {
		for _, test := range []struct {
			name   string
			args   []string
			want   int
			stderr string
		}{
			{"success", []string{"-n", "2", "--", "true"}, 0, ""},
			{"status of the rank", []string{"-n", "2", "--", "sh", "-c", "exit $((XDPRMA_RANK * 7))"}, 7, "rank 1 exited with status 7"},
			{"killed", []string{"sh", "-c", "kill -9 $$"}, 137, "rank 0 was killed by SIGKILL"},
			{"one failing ends the others", []string{"-n", "3", "--", "sh", "-c", "test $XDPRMA_RANK = 1 && exit 3; exec sleep 1000"}, 3, "rank 1"},
			{"timeout", []string{"-n", "2", "--timeout", "200ms", "--", "sleep", "1000"}, statusTimeout, "the job has run for 200ms"},
			{"not found", []string{"no-such-program"}, statusNotFound, "no-such-program"},
			{"not executable", []string{"/etc/passwd"}, statusNotRunnable, "/etc/passwd"},
			{"no program", nil, statusUsage, "no program"},
			{"timeout without a unit", []string{"--timeout", "5", "true"}, statusUsage, "such as 90s"},
			{"ranks in words", []string{"-n", "two", "true"}, statusUsage, `"two" for flag -n: write a whole number`},
			{"truth in words", []string{"--frames=perhaps", "true"}, statusUsage, `"perhaps" for flag -frames: write true or false`},
			{"no ranks", []string{"-n", "0", "true"}, statusUsage, "-n is 0"},
			{"mtu", []string{"--mtu", "5", "true"}, statusUsage, "--mtu is 5"},
			{"queues", []string{"--queues", "0", "true"}, statusUsage, "--queues is 0"},
			{"transport", []string{"--transport", "rdma", "true"}, statusUsage, "rdma"},
			{"transports", []string{"-n", "2", "--transports", "udp", "true"}, statusUsage, "1 transports for 2 ranks"},
			{"unknown flag", []string{"--frob", "true"}, statusUsage, "-frob: --help lists the flags"},
			{"the program's own flags", []string{"sh", "-c", "exit $1", "sh", "-n"}, 2, ""},
		} {
			t.Run(test.name, func(t *testing.T) {
				c := command(append([]string{"run"}, test.args...)...)
				if s := c.run(t); s != test.want || !strings.Contains(c.stderr.String(), test.stderr) {
					t.Errorf("status %d, want %d; stderr %q, want %q", s, test.want, &c.stderr, test.stderr)
				}
			})
		}
	})
}

func TestRunOutput(t *testing.T) {
	modes(t, func(t *testing.T, command func(...string) *invocation) {
		c := command("run", "-n", "2", "--", "sh", "-c",
			`i=0; while [ $i -lt 500 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done; printf last; printf last >&2`)
		if s := c.run(t); s != 0 {
			t.Fatalf("status %d", s)
		}
		for name, b := range map[string]*bytes.Buffer{"out": &c.stdout, "err": &c.stderr} {
			next := []int{0, 0}
			for line := range strings.Lines(b.String()) {
				var rank, i int
				if line == "[0] last\n" || line == "[1] last\n" {
					continue
				}
				if n, _ := fmt.Sscanf(line, "[%d] "+name+" %d\n", &rank, &i); n != 2 || i != next[rank] {
					t.Fatalf("%s: line %q, next are %v", name, line, next)
				}
				next[rank]++
			}
			if next[0] != 500 || next[1] != 500 || strings.Count(b.String(), "] last\n") != 2 {
				t.Errorf("%s: got %v lines", name, next)
			}
		}
	})
}

// Nothing of a rank's output is lost to a slow reader, even after the rank's end.
func TestRunSlowReader(t *testing.T) {
	c := nobody(command(t, "run", "--transport", "udp", "--", "sh", "-c", "head -c 300000 /dev/zero | tr '\\0' '\\n'"))
	c.Cmd.Stdout = nil
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	n, few := 0, make([]byte, 128) // the reader is slow
	for err == nil {
		var k int
		k, err = out.Read(few)
		n += k
	}
	if s := c.finish(t); s != 0 || err != io.EOF || n != 300000*len("[0] \n") {
		t.Errorf("status %d, %d bytes, %v", s, n, err)
	}
}

func TestRunEndsWhenNobodyReads(t *testing.T) {
	modes(t, func(t *testing.T, command func(...string) *invocation) {
		c := command("run", "-n", "2", "--", "sh", "-c", "while echo y; do :; done")
		c.Cmd.Stdout = nil
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		out.Read(make([]byte, 10))
		out.Close()
		if s := c.finish(t); s != statusSignal+int(unix.SIGPIPE) {
			t.Errorf("status %d: %s", s, &c.stderr)
		}
	})
}

func TestRunStandardInput(t *testing.T) {
	modes(t, func(t *testing.T, command func(...string) *invocation) {
		c := command("run", "-n", "2", "--", "cat")
		c.Stdin = strings.NewReader("hello\n")
		if s := c.run(t); s != 0 || c.stdout.String() != "[0] hello\n" {
			t.Errorf("status %d: %q", s, &c.stdout)
		}
	})
}

// startAndAwait starts c and reads its output until each of n lines has come.
func startAndAwait(t *testing.T, c *invocation, n int) (lines []string, rest *bufio.Reader) {
	t.Helper()
	c.Cmd.Stdout = nil
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	rest = bufio.NewReader(out)
	for range n {
		line, err := rest.ReadString('\n')
		if err != nil {
			t.Fatalf("%v after %q: %s", err, lines, &c.stderr)
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines, rest
}

func TestRunForwardsSignals(t *testing.T) {
	modes(t, func(t *testing.T, command func(...string) *invocation) {
		for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT} {
			name := strings.TrimPrefix(unix.SignalName(sig), "SIG")
			c := command("run", "-n", "2", "--", "sh", "-c",
				"trap 'echo got "+name+"; kill $!; exit 0' "+name+"; sleep 1000 & echo ready; wait")
			_, rest := startAndAwait(t, c, 2)
			c.Process.Signal(sig)
			out, _ := io.ReadAll(rest)
			if s := c.finish(t); s != 0 || strings.Count(string(out), "got "+name) != 2 {
				t.Errorf("%s: status %d, %q", name, s, out)
			}
		}
	})
}

func TestRunSecondInterruptKills(t *testing.T) {
	modes(t, func(t *testing.T, command func(...string) *invocation) {
		c := command("run", "-n", "2", "--", "sh", "-c", "trap 'echo no' INT TERM; echo ready; while :; do sleep 0.05; done")
		_, rest := startAndAwait(t, c, 2)
		c.Process.Signal(unix.SIGINT)
		for range 2 { // both ranks refuse
			rest.ReadString('\n')
		}
		c.Process.Signal(unix.SIGINT)
		io.Copy(io.Discard, rest)
		if s := c.finish(t); s != statusSignal+int(unix.SIGKILL) {
			t.Errorf("status %d", s)
		}
	})
}

// TestRunKeepsGoing has one rank fail, and the other, which is told of it, go on.
func TestRunKeepsGoing(t *testing.T) {
	modes(t, func(t *testing.T, command func(...string) *invocation) {
		c := command("run", "-n", "2", "--keep-going", "--", "sh", "-c", "test $XDPRMA_RANK = 1 && exit 3; read line; echo $line; exit 4")
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		c.Cmd.Stderr = nil
		messages, err := c.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		said, err := bufio.NewReader(messages).ReadString('\n')
		if err != nil || !strings.Contains(said, "rank 1 exited with status 3; the others go on") {
			t.Errorf("%q, %v", said, err)
		}
		io.WriteString(in, "still there\n")
		if s := c.finish(t); s != 3 || c.stdout.String() != "[0] still there\n" {
			t.Errorf("status %d: %q", s, &c.stdout)
		}
	})
}

// alive reports whether process pid exists and is not a zombie.
func alive(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

func awaitDeath(t *testing.T, pids ...string) {
	t.Helper()
	testenv.Await(t, fmt.Sprintf("the end of processes %v", pids), func() bool { return !slices.ContainsFunc(pids, alive) })
}

func TestRunEndsGrandchildren(t *testing.T) {
	modes(t, func(t *testing.T, command func(...string) *invocation) {
		c := command("run", "--", "sh", "-c", "sleep 1000 & echo $!")
		lines, rest := startAndAwait(t, c, 1)
		io.Copy(io.Discard, rest)
		if s := c.finish(t); s != 0 {
			t.Errorf("status %d", s)
		}
		awaitDeath(t, strings.TrimPrefix(lines[0], "[0] "))
	})
}

func TestKilledRunIsCleanedUp(t *testing.T) {
	testenv.NeedsRoot(t)
	c := command(t, "run", "-n", "3", "--", "sh", "-c", "echo $$; exec sleep 1000")
	lines, _ := startAndAwait(t, c, 3)
	var pids []string
	for _, line := range lines {
		_, pid, _ := strings.Cut(line, " ")
		pids = append(pids, pid)
	}
	c.Process.Kill()
	c.Wait()
	awaitDeath(t, pids...)
	if s := command(t, "run", "--", "true").run(t); s != 0 {
		t.Errorf("next run: status %d", s)
	}
	if left := c.leftovers(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
