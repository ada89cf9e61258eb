package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
)

// sshHere stands in for ssh, and runs the command on this machine.
const sshHere = `sh -c 'exec sh -c "$1"'`

// TestHostsVariables has the host's environment export what the scripts use: the rank has no variable
// of theirs, and its own as they were.
func TestHostsVariables(t *testing.T) {
	own := []string{"HOME=/", "d=1", "n=1", "s=1", "w=1"}
	c := command(t, "run", "--hosts", "127.0.0.1", "--ssh", sshHere, "--bind", "core", "--env", "A=a\nb", "--env", "w=2", "--", "env")
	c.Env = append(slices.Clone(own), "PATH="+os.Getenv("PATH"))
	for letter := 'a'; letter <= 'z'; letter++ {
		c.Env = append(c.Env, fmt.Sprintf("_%c=leaked", letter))
	}
	s := c.run(t)
	var got []string
	for _, line := range sortedLines(&c.stdout) {
		if line = strings.TrimPrefix(line, "[0] "); !regexp.MustCompile("^(XDPRMA_[A-Z_]+|PATH|OLDPWD|PWD|SHLVL|_)=").MatchString(line) {
			got = append(got, line)
		}
	}
	got = slices.DeleteFunc(got, func(line string) bool { // a letter that no script uses is the host's own
		return line[0] == '_' && !strings.Contains(sshCommand, " "+line[:2])
	})
	if want := []string{"A=a", "HOME=/", "b", "d=1", "n=1", "s=1", "w=2"}; s != 0 || !slices.Equal(got, want) {
		t.Errorf("status %d: %q, want %q: %s", s, got, want, &c.stderr)
	}
}

// TestFarRanksLeaveNothing has ranks of a host end before what they started: nothing of that is
// there any more when xdprma run ends, nor of what carries signals and input.
func TestFarRanksLeaveNothing(t *testing.T) {
	c := command(t, "run", "--hosts", "127.0.0.1", "--ssh", sshHere, "--", "sh", "-c", "trap '' TERM; sleep 1000 & echo $! $XDPRMA_KEY_FILE")
	in, err := c.StdinPipe() // stays open
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	lines, rest := startAndAwait(t, c, 1)
	io.Copy(io.Discard, rest)
	if s := c.finish(t); s != 0 {
		t.Errorf("status %d: %s", s, &c.stderr)
	}
	words := strings.Fields(lines[0])
	awaitDeath(t, words[1])
	folder := filepath.Dir(words[2])
	folderGone(t, words[2])
	testenv.Await(t, "the end of those that use "+folder, func() bool { return len(holders(t, folder)) == 0 })
}

// TestRunEndsWhileRanksAreBeingStarted has hosts that neither let ssh in nor refuse it: a signal and
// the timeout end the job all the same, also where more ranks wait than connections are opened at once.
func TestRunEndsWhileRanksAreBeingStarted(t *testing.T) {
	for _, test := range []struct {
		name   string
		args   []string
		signal unix.Signal // 0: none
		begun  int         // processes of ssh
		status int
		said   string
	}{
		{"interrupt", []string{"--hosts", "a,b"}, unix.SIGINT, 2, 130, "SIGINT came before 2 ranks had begun, of which rank 0 on host a is the first; ending the job"},
		{"end", []string{"--hosts", "a"}, unix.SIGTERM, 1, 143, "SIGTERM came before rank 0 had begun on host a; ending the job"},
		{"interrupt before all", []string{"--hosts", "a:20,b"}, unix.SIGINT, maxConnecting, 130, "SIGINT came before 21 ranks had begun, of which rank 0 on host a is the first"},
		{"interrupt before the last", []string{"--hosts", "a:9"}, unix.SIGINT, maxConnecting, 130, "SIGINT came before 9 ranks had begun, of which rank 0 on host a is the first"},
		{"end before all", []string{"--hosts", "a:20", "--keep-going"}, unix.SIGTERM, maxConnecting, 143, "SIGTERM came before 20 ranks had begun, of which rank 0 on host a is the first"},
		{"timeout", []string{"--hosts", "a", "--timeout", "1s"}, 0, 1, statusTimeout, "the job has run for 1s"},
		{"timeout before all", []string{"--hosts", "a:20", "--timeout", "1s"}, 0, maxConnecting, statusTimeout, "the job has run for 1s"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir() // has a file for each process of ssh
			begun := func() []string {
				files, _ := filepath.Glob(filepath.Join(dir, "*"))
				return files
			}
			ssh := fmt.Sprintf(`sh -c 'sleep 1000 & echo $! >%s/$$; wait'`, dir)
			c := command(t, append(append([]string{"run", "--address", "127.0.0.1", "--ssh", ssh, "--statuses"}, test.args...), "--", "true")...)
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			if test.signal != 0 {
				testenv.Await(t, "the processes of ssh", func() bool { return len(begun()) == test.begun })
				c.Process.Signal(test.signal)
			}
			if s := c.finish(t); s != test.status || !strings.Contains(c.stderr.String(), test.said) {
				t.Errorf("status %d, want %d: %s, want %q", s, test.status, &c.stderr, test.said)
			}
			for _, file := range begun() {
				child, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				awaitDeath(t, filepath.Base(file))
				if child := strings.TrimSpace(string(child)); child != "" {
					awaitDeath(t, child)
				}
			}
		})
	}
}

// TestHostileHostsAreGivenUp has a host say more than any supervisor does, with the mark that the script shows.
func TestHostileHostsAreGivenUp(t *testing.T) {
	const find = `IFS= read -r line; mark=xdprma:${line#*\"xdprma:}; mark=${mark%%\$*}; `
	const flood = `head -c 3000000 /dev/zero`
	for _, test := range []struct {
		name, script string
		status       int
		want         string
	}{
		{"a word", `printf %s "$mark"; ` + flood + `; exit 7`, statusFailed, "rank 0 is given up: host a says more than 16384 bytes in place of a word of its supervisor"},
		{"a word among the errors", `exec >&2; printf %s "$mark"; ` + flood + `; exit 7`, statusFailed, "rank 0 is given up: host a says more than"},
		{"complaints", `exec >/dev/null; ` + flood + ` >&2; echo >&2; echo no >&2; exit 7`, 7, "rank 0 could not be started on host a: no"},
	} {
		c := command(t, "run", "--hosts", "a", "--address", "127.0.0.1", "--ssh", "sh -c "+quote(find+test.script), "--", "true")
		if s := c.run(t); s != test.status || !strings.Contains(c.stderr.String(), test.want) {
			t.Errorf("%s: status %d: %.300q", test.name, s, c.stderr.String()[max(0, c.stderr.Len()-300):])
		}
	}
}

// TestHostThatDoesNotBeginIsGivenUp has two connections to a host that stay, as behind a shell that
// swallows the script: that is said once, and both ranks are given up.
func TestHostThatDoesNotBeginIsGivenUp(t *testing.T) {
	var out strings.Builder
	console := newConsole(&out, &out)
	d := newDoor()
	l, err := bootstrap.Listen("tcp:127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, err := bootstrap.Serve(l, &bootstrap.Config{Job: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	j := &job{console: console, keepGoing: true, rendezvous: server}
	for rank := range 2 {
		f := &remote{ssh: []string{"/bin/sh", "-c", "read x; exec sleep 1000"}, host: "n1", mark: "mark:", door: d,
			warning: 20 * time.Millisecond, limit: 500 * time.Millisecond, logf: console.logf, orders: make(chan string, 64), givenUp: make(chan struct{})}
		p := &process{rank: rank, cmd: f.sshTo(sshCommand), far: f}
		p.start = func(cmd *exec.Cmd) error { return f.connect(cmd, p.kill) }
		if p.stdout, p.stderr, err = (&runner{console: console}).streams(rank, p); err != nil {
			t.Fatal(err)
		}
		j.processes = append(j.processes, p)
	}
	status := j.run(nil)
	said := out.String()
	if status != failedSSH || strings.Count(said, "host n1 has not begun a rank for 20ms") != 1 || strings.Count(said, "did not begin on host n1 within 500ms: a start-up file") != 3 || strings.Count(said, "; the others go on") != 2 {
		t.Errorf("status %d: %s", status, said)
	}
}

// A rank that begins is neither warned of nor given up.
func TestHostThatBeginsIsLeftAlone(t *testing.T) {
	f := &remote{host: "n1", door: newDoor(), logf: func(format string, args ...any) { t.Errorf(format, args...) }}
	kill := func() { t.Error("it was killed") }
	f.door.connecting <- struct{}{}
	f.hear("begin /folder", kill)
	f.tellLate()
	f.giveUp(kill)
	if f.problem != "" {
		t.Error(f.problem)
	}
}
