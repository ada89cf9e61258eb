package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
)

// TestKilledRunLeavesNoChildren has the launcher killed, and looks for what its ranks have started and for the
// job's key.
func TestKilledRunLeavesNoChildren(t *testing.T) {
	const script = `trap '' TERM; sleep 1000 & echo $$ $! $XDPRMA_KEY_FILE >"$0/new.$XDPRMA_RANK"; mv "$0/new.$XDPRMA_RANK" "$0/rank.$XDPRMA_RANK"; exec sleep 1000`
	modes(t, func(t *testing.T, command func(...string) *invocation) {
		for _, test := range []struct {
			ranks int
			args  []string
		}{{1, nil}, {2, []string{"--log-dir"}}, {testenv.Ranks(16), nil}} {
			dir := t.TempDir()
			testenv.ForAll(t, dir)
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			if test.args != nil {
				test.args = append(test.args, filepath.Join(dir, "log"))
			}
			c := command(slices.Concat([]string{"run", "-n", strconv.Itoa(test.ranks)}, test.args, []string{"--", "sh", "-c", script, dir})...)
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			var told []string
			testenv.Await(t, "the ranks", func() bool {
				told, _ = filepath.Glob(filepath.Join(dir, "rank.*"))
				return len(told) == test.ranks
			})
			var pids, files []string
			for _, f := range told {
				text, err := os.ReadFile(f)
				words := strings.Fields(string(text))
				if err != nil || len(words) != 3 {
					t.Fatalf("%q, %v", text, err)
				}
				pids, files = append(pids, words[:2]...), append(files, words[2])
			}
			c.Process.Kill()
			c.Wait()
			awaitDeath(t, pids...)
			testenv.Await(t, "the end of the key", func() bool {
				_, err := os.Stat(files[0])
				return os.IsNotExist(err)
			})
		}
	})
}

// leader starts a process that leads a group with a child, and returns the descriptor that stands for it.
func leader(t *testing.T, environ ...string) (cmd *exec.Cmd, fd int, child string) {
	t.Helper()
	fd = -1
	cmd = exec.CommandContext(t.Context(), "sh", "-c", "sleep 1000 & echo $!; exec sleep 1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL, PidFD: &fd}
	cmd.Env = append(os.Environ(), environ...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		killGroup(strconv.Itoa(cmd.Process.Pid), own)
		unix.Close(own)
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return cmd, fd, strings.TrimSpace(line)
}

// TestGuardKillsTheGroupsItKnows tells a guard of one group whose leader has ended, one whose leader lives, and one that
// it is to forget.
func TestGuardKillsTheGroupsItKnows(t *testing.T) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ends[1])
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	g := &guard{to: os.NewFile(uintptr(ends[0]), "guard")}
	var groups [3]*exec.Cmd
	var children [3]string
	for i := range groups {
		var fd int
		groups[i], fd, children[i] = leader(t)
		g.group(groups[i].Process.Pid, fd)
	}
	g.file(file)
	g.file(file + " that has gone")
	groups[0].Process.Kill()
	groups[0].Wait()
	g.forget(groups[2].Process.Pid)
	g.to.Close()
	if err := keepGuard(ends[1]); err != nil {
		t.Fatal(err)
	}
	awaitDeath(t, children[0], children[1], strconv.Itoa(groups[1].Process.Pid))
	if !alive(children[2]) || !alive(strconv.Itoa(groups[2].Process.Pid)) {
		t.Error("a group that was to be forgotten is dead")
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// TestGuardKillsWhatIsBeingStarted has the launcher end while it starts rank 1, whose process is at work. Ranks that it
// does not start, and those of another job, are left alone.
func TestGuardKillsWhatIsBeingStarted(t *testing.T) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ends[1])
	g := &guard{to: os.NewFile(uintptr(ends[0]), "guard")}
	id := rand.Uint64()
	environ := func(job uint64, rank int) []string {
		return []string{fmt.Sprintf("%s=%x", bootstrap.EnvJob, job), fmt.Sprintf("%s=%d", bootstrap.EnvRank, rank)}
	}
	first, _, orphan := leader(t, environ(id, 1)...)
	first.Process.Kill() // as Pdeathsig would
	first.Wait()
	_, _, alone := leader(t, environ(id, 1)...)
	_, _, started := leader(t, environ(id, 2)...)
	_, _, later := leader(t, environ(id, 11)...)
	_, _, other := leader(t, environ(id+1, 1)...)
	g.starting(environ(id, 1))
	g.starting(environ(id, 2))()
	g.to.Close()
	if err := keepGuard(ends[1]); err != nil {
		t.Fatal(err)
	}
	awaitDeath(t, orphan, alone)
	for _, child := range []string{started, later, other} {
		if !alive(child) {
			t.Errorf("of the children %s, %s, %s of others %s is dead", started, later, other, child)
		}
	}
}

// TestGuardLearnsOfARankBeforeItWorks has the rank's program look at what the guard has been told by then.
func TestGuardLearnsOfARankBeforeItWorks(t *testing.T) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ends[1])
	g := &guard{to: os.NewFile(uintptr(ends[0]), "guard")}
	defer g.to.Close()
	heard := func() (all []string) {
		b := make([]byte, 4<<10)
		for {
			n, _, _, _, err := unix.Recvmsg(ends[1], b, nil, unix.MSG_DONTWAIT)
			if err != nil {
				return all
			}
			word, _, _ := strings.Cut(string(b[:n]), " ")
			all = append(all, word)
		}
	}
	for _, fails := range []bool{false, true} {
		var before []string
		c := &exec.Cmd{Path: "/bin/true", Env: []string{bootstrap.EnvJob + "=1", bootstrap.EnvRank + "=0"}}
		p := &process{cmd: c, guard: g, start: func(c *exec.Cmd) error {
			before = heard()
			if fails {
				return fs.ErrNotExist
			}
			return c.Start()
		}}
		for _, s := range []**stream{&p.stdout, &p.stderr} {
			if *s, err = newStream(&collected{}); err != nil {
				t.Fatal(err)
			}
		}
		p.run(make(chan error, 1))
		want := []string{"group", "started", "forget"}
		if fails {
			want = want[1:2]
		}
		if after := heard(); !slices.Equal(before, []string{"start"}) || !slices.Equal(after, want) {
			t.Errorf("fails %t: the guard is told %q before the start, and %q after it; want start, and %q", fails, before, after, want)
		}
	}
}

// TestGroupIsKilledByItsID does without descriptors that stand for groups.
func TestGroupIsKilledByItsID(t *testing.T) {
	for _, ends := range []bool{false, true} {
		cmd, fd, child := leader(t)
		if ends {
			cmd.Process.Kill()
			cmd.Wait()
		}
		killGroupByID(cmd.Process.Pid, fd)
		awaitDeath(t, child)
		unix.Close(fd)
	}
	// A process has the id of a group whose leader has gone: the group is another's.
	gone, fd, _ := leader(t)
	unix.Kill(-gone.Process.Pid, unix.SIGKILL)
	gone.Wait()
	defer unix.Close(fd)
	other, its, child := leader(t)
	unix.Close(its)
	killGroupByID(other.Process.Pid, fd)
	if !alive(child) || !alive(strconv.Itoa(other.Process.Pid)) {
		t.Error("the group of another is dead")
	}
}

// TestGuardEndsWithItsLauncher awaits its end and that of the output, of which it has none.
func TestGuardEndsWithItsLauncher(t *testing.T) {
	c := command(t, guardName)
	c.Stdin = strings.NewReader("group 1")
	if s := c.run(t); s != statusFailed || !strings.Contains(c.stderr.String(), "for xdprma run alone") {
		t.Errorf("status %d: %s", s, &c.stderr)
	}
	c = nobody(command(t, "run", "--transport", "udp", "--", "sh", "-c", "echo $$; exec sleep 1000"))
	lines, rest := startAndAwait(t, c, 1)
	var its string // the child of the launcher that is no rank
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", c.Process.Pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread may have ended
		for _, pid := range strings.Fields(string(text)) {
			if lines[0] != "[0] "+pid {
				its = pid
			}
		}
	}
	if !alive(its) {
		t.Errorf("the launcher has no guard beside %q", lines)
	}
	c.Process.Kill()
	io.Copy(io.Discard, rest)
	c.Wait()
	awaitDeath(t, its)
}

// TestKilledMeasurementLeavesNoKey kills a measurement: the key of its ranks goes.
func TestKilledMeasurementLeavesNoKey(t *testing.T) {
	c, _ := besideBusy(t)
	key := ""
	testenv.Await(t, "a rank with a key", func() bool {
		for _, pid := range c.children(t) {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // it may have ended
			for _, e := range strings.Split(string(text), "\x00") {
				if path, ok := strings.CutPrefix(e, bootstrap.EnvKeyFile+"="); ok {
					key = path
				}
			}
		}
		return key != ""
	})
	c.Process.Kill()
	c.Wait()
	testenv.Await(t, "the end of the key", func() bool {
		_, err := os.Stat(key)
		return errors.Is(err, fs.ErrNotExist)
	})
}
