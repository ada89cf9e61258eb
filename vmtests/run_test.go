package vmtests

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/testenv"
)

func init() {
	programs["exit 7"] = func(s *self) error { return end(s, func() { os.Exit(7) }) }
	programs["killed"] = func(s *self) error { return end(s, func() { unix.Kill(os.Getpid(), unix.SIGKILL) }) }
	programs["panics"] = func(s *self) error { return end(s, func() { panic("on purpose") }) }
}

// end makes rank 1 end in some way while the others wait for it.
func end(s *self, how func()) error {
	if err := s.world.Barrier(s.ctx); err != nil {
		return err
	}
	if s.rank == 1 {
		how()
	}
	return s.world.Barrier(s.ctx)
}

// xdprma starts the launcher with this test binary as the ranks' program.
func xdprma(t *testing.T, program string, args ...string) *rank {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return launch(t, []string{envProgram + "=" + program}, slices.Concat(args, []string{"--", exe})...)
}

// launch starts the launcher with the given arguments and more environment.
func launch(t *testing.T, env []string, args ...string) *rank {
	t.Helper()
	testenv.NeedsRoot(t)
	cmd := exec.Command(programPath(t, "../cmd/xdprma"), slices.Concat([]string{"run"}, args)...)
	cmd.Env = append(os.Environ(), env...)
	r := newRank(-1, cmd)
	if err := r.start((*exec.Cmd).Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.signal(unix.SIGTERM) // it has to clean up
		select {
		case <-r.done:
		case <-time.After(testenv.Limit):
			r.kill()
			<-r.done
		}
		if t.Failed() {
			t.Logf("xdprma run, %v:\n%s", cmd.ProcessState, r.output())
		}
	})
	return r
}

// leftovers lists what a launcher has in place.
func leftovers(r *rank) []string { return netlab.LeaksOf(r.cmd.Process.Pid) }

// over waits until a launcher has ended, with that exit status and nothing left.
func over(t *testing.T, r *rank, status int) {
	t.Helper()
	select {
	case <-r.done:
	case <-time.After(testenv.Limit):
		t.Fatal("xdprma run does not end")
	}
	if got := r.cmd.ProcessState.ExitCode(); got != status {
		t.Errorf("exit status %d, want %d", got, status)
	}
	if left := leftovers(r); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestRunPassesOutputAndStatusOn(t *testing.T) {
	type run struct {
		program string
		args    []string
		status  int
		says    string
	}
	for _, tt := range testenv.Cases([]run{
		{"exchange", []string{"-n", "3", "--transports", "udp,xdp-generic,auto"}, 0, "[2] joined xdp-generic\n"},
		{"exit 7", []string{"-n", "3"}, 7, "rank 1 exited with status 7"},
		{"killed", []string{"-n", "3"}, 128 + 9, "rank 1 was killed by SIGKILL"},
		{"panics", []string{"-n", "2"}, 2, "[1] panic: on purpose"},
		{"sum", []string{"-n", "2", "--timeout", "1s"}, 124, "the job has run for 1s"},
	},
		run{"exchange", []string{"-n", "4"}, 0, "[3] joined xdp-generic\n"},
		run{"exchange", []string{"-n", "1"}, 0, "[0] joined xdp-generic\n"},
		run{"exchange", []string{"-n", "2", "--transport", "xdp-generic", "--mtu", "9000"}, 0, "[1] joined xdp-generic\n"},
		run{"exchange", []string{"-n", "2", "--transport", "udp"}, 0, "[1] joined udp\n"},
		run{"exchange", []string{"-n", "3", "--queues", "2"}, 0, "[2] joined xdp-generic\n"},
		run{"exchange", []string{"-n", "3", "--transport", "xdp-native"}, 0, "[2] joined xdp-native\n"},
	) {
		t.Run(tt.program+" "+strings.Join(tt.args, " "), func(t *testing.T) {
			t.Parallel()
			r := xdprma(t, tt.program, tt.args...)
			over(t, r, tt.status)
			if !strings.Contains(r.output(), tt.says) {
				t.Errorf("no %q in the output", tt.says)
			}
		})
	}
}

// When the launcher is killed, its ranks end with it, and the next run removes
// its network.
func TestKilledLauncher(t *testing.T) {
	r := xdprma(t, "sum", "-n", "3")
	pids := map[int]bool{}
	testenv.Await(t, "three ranks", func() bool { return strings.Count(r.output(), "] running\n") == 3 })
	for line := range strings.Lines(r.output()) {
		var n, pid int
		if _, err := fmt.Sscanf(line, "[%d] pid %d", &n, &pid); err == nil {
			pids[pid] = true
		}
	}
	if len(pids) != 3 {
		t.Fatalf("the ranks are processes %v", pids)
	}
	r.kill()
	<-r.done
	for pid := range pids {
		testenv.Await(t, fmt.Sprintf("the end of process %d", pid), func() bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) })
	}
	if len(leftovers(r)) == 0 {
		t.Log("some other run has already removed the killed launcher's network")
	}
	over(t, xdprma(t, "exchange", "-n", "2"), 0)
	if left := leftovers(r); len(left) > 0 {
		t.Errorf("after the next run there is still %q", left)
	}
}
