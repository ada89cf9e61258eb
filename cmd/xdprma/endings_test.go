package main

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
)

// ending is what is printed when rank 1 of three ends in a way, and the others need it.
type ending struct {
	way    string // of ends
	inDocs string // the same in the page
	own    string // the words that rank 1 prints
	how    string // how it ends, as xdprma run says: "rank 1 ", this, maybe a host, and said
	said   string
	others string // why the others fail, where xdprma run tells them
	status int
}

var endings = []ending{
	{"exit", "calls `os.Exit(7)`", damage, "exited with status 7", "", "its process has ended: it exited with status 7", 7},
	{"log.Fatal", "calls `log.Fatal(err)`", damage, "exited with status 1", "", "its process has ended: it exited with status 1", 1},
	{"panic", "a panic", "panic: " + damage, "exited with status 2", "", "its process has ended: it exited with status 2", 2},
	{"panic deferred", "a panic, `defer node.Close()`", "panic: " + damage, "exited with status 2", ": its program has failed: panic: " + damage,
		"its program has failed: panic: " + damage, 2},
	{"return", "it returns, and does not close", damage, "exited with status 0", " without having left the job; after that rank ",
		"its process has ended: it exited with status 0", 1},
	{"close, then log.Fatal", "`node.Close()`, then `log.Fatal(err)`", damage, "exited with status 1", "", "it has left the job", 1},
	{"CloseWith", "calls `log.Fatal(node.CloseWith(err))`", damage, "exited with status 1", ": its program has failed: " + damage, "its program has failed: " + damage, 1},
	{"CloseWith, then return", "`node.CloseWith(err)`, and it returns", damage, "exited with status 0", ": its program has failed: " + damage + "; after that rank ",
		"its program has failed: " + damage, 1},
	{"Abort", "calls `node.Abort(3, err)`", damage, "exited with status 3", ": it has aborted the job: " + damage, "it has aborted the job: " + damage, 3},
	{"ErrorsAreFatal", "an error under `ErrorsAreFatal`", "the communicator has 3 ranks", "exited with status 1",
		": its program has failed: send (rank 77): invalid rank: the communicator has 3 ranks", "its program has failed: send (rank 77): invalid rank: the communicator has 3 ranks", 1},
	{"SIGTERM", "SIGTERM", "", "was killed by SIGTERM", "", "its process has ended: it was killed by SIGTERM", 143},
	{"SIGSEGV", "SIGSEGV from outside", "SIGSEGV: segmentation violation", "exited with status 2", "", "its process has ended: it exited with status 2", 2},
	{"SIGKILL", "SIGKILL", "", "was killed by SIGKILL", "", "its process has ended: it was killed by SIGKILL", 137},
}

// signal reports whether a signal that Go's runtime does not take ends the rank.
func (e *ending) signal() bool { return e.status > statusSignal }

// told returns an error unless the output of the job has what the culprit has to say, and each other rank blames it,
// for the given reason. A rank that hears first from another that the communicator is broken knows no reason.
func (e *ending) told(out string, culprit int, reason string) error {
	if !strings.Contains(out, e.own) {
		return fmt.Errorf("the culprit's own words %q are lost", e.own)
	}
	for rank := range 3 {
		if rank == culprit {
			continue
		}
		blames := false
		for line := range strings.Lines(out) {
			blames = blames || strings.Contains(line, fmt.Sprintf("rank %d: ", rank)) && strings.Contains(line, fmt.Sprintf("(rank %d): process failed: ", culprit)) &&
				(strings.Contains(line, reason) || strings.Contains(line, "the communicator is broken"))
		}
		if !blames {
			return fmt.Errorf("rank %d does not say that rank %d has failed: %s", rank, culprit, reason)
		}
	}
	return nil
}

func thisBinary(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	testenv.ForAll(t, filepath.Dir(self))
	return self
}

// TestEndings has rank 1 end in each way under each launcher of this project's.
func TestEndings(t *testing.T) {
	self := thisBinary(t)
	for _, how := range []struct {
		name, host string
		rows       []ending
		args       []string
	}{
		{name: "udp", rows: endings, args: []string{"--transport", "udp"}},
		{name: "namespaces", rows: testenv.OneOf(endings...)},
		{name: "of one host", rows: testenv.OneOf(endings...), args: []string{"--ranks-per-host", "3", "--transport", "udp"}},
		{name: "going on", rows: testenv.OneOf(endings...), args: []string{"--transport", "udp", "--keep-going"}},
		{name: "hosts", host: " on host 127.0.0.1", rows: testenv.OneOf(endings...), args: []string{"--transport", "udp", "--hosts", "127.0.0.1:3", "--ssh", sshHere}},
	} {
		t.Run(how.name, func(t *testing.T) {
			if how.name == "namespaces" {
				testenv.NeedsRoot(t)
			}
			for _, e := range how.rows {
				t.Run(e.way, func(t *testing.T) {
					t.Parallel()
					// The race detector would hold up each end for a second.
					c := command(t, append(append([]string{"run", "-n", "3", "--env", "GORACE=atexit_sleep_ms=0", "--env", envEnds + "=" + e.way}, how.args...), "--", self)...)
					s := c.run(t)
					if err := e.told(c.stdout.String()+c.stderr.String(), 1, e.others); err != nil {
						t.Error(err)
					}
					// Its own end comes first, and so does what sums up.
					verdict := "xdprma: rank 1 " + e.how + how.host + e.said
					if how.name == "going on" {
						verdict = "xdprma: first, rank 1 " + e.how + e.said
					}
					if s != e.status || !strings.Contains(c.stderr.String(), verdict) {
						t.Errorf("status %d, want %d and %q", s, e.status, verdict)
					}
					if t.Failed() {
						t.Logf("%s%s", &c.stdout, &c.stderr)
					}
				})
			}
		})
	}
}

// TestEndingsOfOthers has a rank end in each way where this project has no part in the launch: mpiexec.hydra, the
// variables of torchrun, and those that a user sets by hand.
func TestEndingsOfOthers(t *testing.T) {
	self := thisBinary(t)
	for _, culprit := range []int{0, 1} {
		reason := "its process has ended: it closed its connection to the rendezvous, and had not left the job"
		if culprit == 0 {
			reason = "its process has ended: the rendezvous, which rank 0 served, closed the connection"
		}
		for name, env := range map[string]func(rank int, at netip.AddrPort) []string{
			"by hand": func(rank int, at netip.AddrPort) []string {
				return []string{fmt.Sprintf("%s=%v", bootstrap.EnvRendezvous, at), bootstrap.EnvJob + "=aa", bootstrap.EnvSize + "=3", fmt.Sprintf("%s=%d", bootstrap.EnvRank, rank)}
			},
			"torchrun": func(rank int, at netip.AddrPort) []string {
				return []string{fmt.Sprint("MASTER_ADDR=", at.Addr()), fmt.Sprint("MASTER_PORT=", at.Port()-1), bootstrap.EnvJob + "=aa", "WORLD_SIZE=3", fmt.Sprint("RANK=", rank)}
			},
			"mpiexec.hydra": nil,
		} {
			t.Run(fmt.Sprintf("%s, rank %d", name, culprit), func(t *testing.T) {
				if env == nil {
					testenv.NeedsCommand(t, "mpiexec.hydra", "mpich")
				}
				for _, e := range testenv.OneOf(endings...) {
					t.Run(e.way, func(t *testing.T) {
						t.Parallel()
						if strings.HasPrefix(e.others, "its process has ended") {
							e.others = reason
						}
						ends := []string{envEnds + "=" + e.way, fmt.Sprintf("%s=%d", envCulprit, culprit)}
						if env == nil {
							c := underMpiexec(t, "-n", "3", self)
							c.Env = append(c.Env, ends...)
							out, err := c.CombinedOutput()
							told := e.told(string(out), culprit, e.others)
							if e.signal() { // hydra ends the others at once
								told = nil
							}
							if err == nil || told != nil {
								t.Errorf("status %v; %v\n%s", err, told, out)
							}
							return
						}
						at := ownRendezvous()
						statuses, said := byHand(t, self, 3, func(rank int) []string { return append(env(rank, at), ends...) })
						out, want := strings.Join(said, ""), e.status
						switch {
						case strings.HasSuffix(e.how, "status 0"):
							want = 0
						case e.signal():
							want = -1
						}
						if err := e.told(out, culprit, e.others); err != nil || statuses[culprit] != want {
							t.Errorf("statuses %d; %v\n%s", statuses, err, out)
						}
					})
				}
			})
		}
	}
}

var rendezvousPorts atomic.Uint32

// ownRendezvous returns an address of this machine that no other job uses meanwhile: its address is this
// process's own, and its port no other job's of this process. The port below is free, too.
func ownRendezvous() netip.AddrPort {
	pid := os.Getpid() // of 22 bits
	ip := netip.AddrFrom4([4]byte{127, byte(64 + pid>>16), byte(pid >> 8), byte(pid)})
	return netip.AddrPortFrom(ip, uint16(10001+2*rendezvousPorts.Add(1)))
}

// byHand runs ranks without a launcher, and returns their exit statuses, -1 of those that a signal killed, and what they print.
func byHand(t *testing.T, program string, size int, env func(rank int) []string) (statuses []int, said []string) {
	t.Helper()
	ranks, out := make([]*exec.Cmd, size), make([]bytes.Buffer, size)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit)
	defer cancel()
	for rank := range ranks {
		c := exec.CommandContext(ctx, program)
		c.Cancel = func() error { return c.Process.Signal(unix.SIGQUIT) } // a rank that hangs says where
		c.Env = append(bootstrap.Inherited(os.Environ()), env(rank)...)
		c.Stdout, c.Stderr, c.WaitDelay = &out[rank], &out[rank], testenv.Limit
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		ranks[rank] = c
	}
	for rank, c := range ranks {
		_ = c.Wait()
		statuses, said = append(statuses, c.ProcessState.ExitCode()), append(said, out[rank].String())
	}
	return statuses, said
}

// TestCutLinkIsBlamed takes down the interface of rank 1. Each side finds the other silent: whichever is first is blamed.
func TestCutLinkIsBlamed(t *testing.T) {
	testenv.NeedsRoot(t)
	c := command(t, "run", "-n", "3", "--transport", "udp", "--env", envEnds+"=cut link", "--", thisBinary(t))
	if s := c.run(t); s != 1 || !strings.Contains(c.stderr.String(), ": process failed: not heard of within the limit: the last frame from ") {
		t.Errorf("status %d: %s%s", s, &c.stdout, &c.stderr)
	}
}

// TestHangIsEnded has rank 1 never end, until the time is over, others have failed, or somebody interrupts the job.
func TestHangIsEnded(t *testing.T) {
	self := thisBinary(t)
	c := command(t, "run", "-n", "3", "--transport", "udp", "--timeout", "1s", "--env", envEnds+"=hang", "--", self)
	if s := c.run(t); s != statusTimeout || !strings.Contains(c.stderr.String(), "xdprma: the job has run for 1s; ending the job") {
		t.Errorf("status %d: %s%s", s, &c.stdout, &c.stderr)
	}
	c = command(t, "run", "-n", "3", "--transport", "udp", "--env", envEnds+"=CloseWith, then hang", "--", self)
	if s := c.run(t); s != statusSignal+int(unix.SIGTERM) || !strings.Contains(c.stderr.String(), "xdprma: rank 1 has not ended: its program has failed: "+damage+"; ending the job") {
		t.Errorf("status %d: %s%s", s, &c.stdout, &c.stderr)
	}
	c = command(t, "run", "-n", "3", "--transport", "udp", "--env", envEnds+"=hang", "--", self)
	_, rest := startAndAwait(t, c, 1)
	c.Process.Signal(unix.SIGINT)
	_, _ = rest.ReadString('\n')
	if s := c.finish(t); s != statusSignal+int(unix.SIGINT) || !strings.Contains(c.stderr.String(), "was killed by SIGINT; ending the job") {
		t.Errorf("status %d: %s", s, &c.stderr)
	}
}

// TestLackOfMemoryIsNamed has the kernel end rank 1, in a group that may have little memory.
func TestLackOfMemoryIsNamed(t *testing.T) {
	testenv.NeedsRoot(t)
	group := smallGroup(t)
	c := command(t, "run", "-n", "3", "--transport", "udp", "--env", envEnds+"=out of memory", "--env", envGroup+"="+group, "--", thisBinary(t))
	want := "xdprma: rank 1 was killed by SIGKILL" + lackOfMemory + "; ending the job"
	if s := c.run(t); s != statusSignal+int(unix.SIGKILL) || !strings.Contains(c.stderr.String(), want) {
		t.Errorf("status %d, want %q: %s%s", s, want, &c.stdout, &c.stderr)
	}
}

// smallGroup makes a memory cgroup for processes that have 64 MiB together.
func smallGroup(t *testing.T) string {
	t.Helper()
	for base, limit := range map[string]string{"/sys/fs/cgroup/memory": "memory.limit_in_bytes", "/sys/fs/cgroup": "memory.max"} {
		group := filepath.Join(base, fmt.Sprint("xdprma-test-", os.Getpid()))
		if os.Mkdir(group, 0o755) != nil {
			continue
		}
		// A folder that is none of the kernel's has no such file.
		if _, err := os.Stat(filepath.Join(group, limit)); err == nil && os.WriteFile(filepath.Join(group, limit), []byte("67108864"), 0) == nil {
			t.Cleanup(func() { testenv.Await(t, "the end of the group", func() bool { return os.Remove(group) == nil }) })
			return group
		}
		os.Remove(group)
	}
	testenv.Lacks(t, "this test needs a memory cgroup")
	return ""
}

// TestCloseDoesNotWaitForTheDead has rank 1 end while rank 2, which closes its node, still waits until rank 1
// has what rank 2 has sent.
func TestCloseDoesNotWaitForTheDead(t *testing.T) {
	c := command(t, "run", "-n", "3", "--transport", "udp", "--keep-going", "--env", envEnds+"=stopped", "--", thisBinary(t))
	if s := c.run(t); s != statusSignal+int(unix.SIGKILL) || !strings.Contains(c.stdout.String(), "[2] has lost 1 in Close\n") {
		t.Errorf("status %d: %s%s", s, &c.stdout, &c.stderr)
	}
}

// TestEndingsAreDocumented looks for each way to end in the page.
func TestEndingsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer(damage, "WHY", "; after that rank ", "; after that rank 0 …", "send (rank 77): invalid rank: the communicator has 3 ranks", "WHY").Replace
	for _, e := range endings {
		row := fmt.Sprintf("| %s | `rank 1 %s%s` | %d | `%s` |\n", e.inDocs, e.how, fill(e.said), e.status, fill(e.others))
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/troubleshooting.md lacks the row\n%s", row)
		}
	}
}
