package vmtests

import (
	"bytes"
	"fmt"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
)

// startAgent starts `xdprma agent`, and returns its socket.
func startAgent(t *testing.T, args ...string) string {
	t.Helper()
	testenv.NeedsRoot(t)
	socket := filepath.Join(t.TempDir(), "agent")
	testenv.ForAll(t, filepath.Dir(socket))
	startAgentAt(t, socket, args...)
	return socket
}

// startAgentAt starts it at a socket, and returns what kills it. Else it ends with the test.
func startAgentAt(t *testing.T, socket string, args ...string) (kill func()) {
	t.Helper()
	cmd := exec.Command(programPath(t, "../cmd/xdprma"), append([]string{"agent", "--socket", socket}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	var says bytes.Buffer
	cmd.Stderr = &says
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := testenv.Start(cmd.Wait)
	killed := false
	t.Cleanup(func() {
		if killed {
			return
		}
		_ = cmd.Process.Signal(unix.SIGTERM)
		if err := testenv.Ends(t, "the agent", ended); err != nil {
			t.Errorf("the agent: %v: %s", err, &says)
		}
	})
	testenv.Await(t, "the agent to listen", func() bool {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		return unix.Connect(fd, &unix.SockaddrUnix{Name: socket}) == nil
	})
	return func() {
		t.Helper()
		killed = true
		_ = cmd.Process.Kill()
		<-ended
	}
}

// asUser has ranks run as a user without privileges, program.
func asUser(t *testing.T, program, name string) func(int, *bootstrap.Config, *exec.Cmd) {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return func(_ int, _ *bootstrap.Config, cmd *exec.Cmd) {
		cmd.Path, cmd.Args, cmd.Dir = program, []string{program}, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
}

// The ranks of two users without privileges are served by an agent's program while their processes are stopped. They
// find the agent by themselves.
func TestAgentServesUsers(t *testing.T) {
	lab := labtest.New(t, netlab.Config{Ranks: 2 * sharers, RanksPerHost: sharers, Share: true})
	socket, program := startAgent(t), programForAll(t)
	var jobs []*job
	for i, name := range others {
		as := asUser(t, program, name)
		jobs = append(jobs, start(t, lab, spec{program: "crowded", transports: []string{"shared", "auto"}, overTCP: true, agent: socket,
			change: func(rank int, c *bootstrap.Config, cmd *exec.Cmd) {
				as(rank, c, cmd)
				c.Port += uint16(sharers * i)
			}}))
	}
	for _, j := range jobs {
		areServed(t, j)
	}
}

// They have no privilege, also for a moment, and where the agent serves others alone they use UDP, and say why.
func TestAgentRefusesUsers(t *testing.T) {
	lab := labtest.New(t, netlab.Config{Ranks: 2, Share: true, RanksPerHost: 1})
	program := programForAll(t)
	for _, test := range []struct{ option, value, want string }{
		{"--mode", "0600", "permission denied"},
		{"--ports", "9", "not within 9 and 9"},
		{"--interface", "none", "none of those that the agent allows"},
		{"--memory", "1", "do not fit"},
	} {
		t.Run(test.option, func(t *testing.T) {
			s := spec{program: "privileges", transports: []string{"auto"}, overTCP: true, agent: startAgent(t, test.option, test.value), change: asUser(t, program, others[0])}
			if test.option == "--memory" { // two ranks of one user need more
				lab := labtest.New(t, netlab.Config{Ranks: 2, Share: true, RanksPerHost: 2})
				j := start(t, lab, s)
				j.finish()
				if all := j.ranks[0].output() + j.ranks[1].output(); strings.Count(all, test.want) != 1 {
					t.Errorf("with --memory 1: %s", all)
				}
				return
			}
			j := start(t, lab, s)
			j.finish()
			for _, r := range j.ranks {
				if mode := strings.TrimSpace(j.await(r, "joined ")); mode != "udp" {
					t.Errorf("rank %d has joined over %s", r.n, mode)
				}
				if !strings.Contains(r.output(), test.want) {
					t.Errorf("rank %d says nothing of %q: %s", r.n, test.want, r.output())
				}
			}
		})
	}
}

// Ranks go on while their agent is killed, and return to the next one. They lose nothing, and make no calls but the
// documented ones.
func TestRanksReturnToTheirAgent(t *testing.T) {
	testenv.NeedsRoot(t)
	lab := labtest.New(t, netlab.Config{Ranks: 4, RanksPerHost: 2, Share: true})
	socket := filepath.Join(t.TempDir(), "agent")
	testenv.ForAll(t, filepath.Dir(socket))
	kill := startAgentAt(t, socket)
	j := start(t, lab, spec{program: "orphaned", transports: []string{"shared"}, overTCP: true, agent: socket,
		change: asUser(t, programForAll(t), others[0]), env: []string{confined(t, "", callsOver["shared"]...)}})
	executed := make([]int, len(j.ranks))
	is := func(r *rank, what, want string) {
		t.Helper()
		var mode string
		before := executed[r.n]
		if _, err := fmt.Sscan(j.await(r, what), &mode, &executed[r.n]); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(mode, want) {
			t.Errorf("rank %d has mode %s, want %s", r.n, mode, want)
		}
		if what == "mode " && executed[r.n] == before {
			t.Errorf("no request to rank %d was executed since it has returned", r.n)
		}
	}
	for _, r := range j.ranks {
		is(r, "now ", "shared-")
	}
	for range 2 {
		kill()
		for _, r := range j.ranks {
			is(r, "now ", "udp")
		}
		kill = startAgentAt(t, socket)
		for _, r := range j.ranks {
			is(r, "now ", "shared-")
		}
	}
	time.Sleep(200 * time.Millisecond) // they are at it
	for _, r := range j.ranks {
		r.tell("stop")
	}
	for _, r := range j.ranks {
		is(r, "mode ", "shared-")
	}
	j.finish()
	for _, r := range j.ranks {
		if c := j.counters(r); c.PeersFailed != 0 {
			t.Errorf("rank %d: %+v", r.n, c.Link)
		}
	}
}
