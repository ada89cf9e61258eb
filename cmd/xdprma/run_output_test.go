package main

import (
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// TestRunPassesOutputOnUnchanged has a rank write what no line writer likes: without prefixes all of it comes out.
func TestRunPassesOutputOnUnchanged(t *testing.T) {
	modes(t, func(t *testing.T, command func(...string) *invocation) {
		long := strings.Repeat("x", 400000)
		c := command("run", "--prefix=false", "--", "sh", "-c", `head -c 400000 /dev/zero | tr '\0' x; printf '\n\n\0\r\nlast'`)
		if s := c.run(t); s != 0 || c.stdout.String() != long+"\n\n\x00\r\nlast" {
			t.Errorf("status %d, %d bytes, %d lines: %s", s, c.stdout.Len(), strings.Count(c.stdout.String(), "\n"), &c.stderr)
		}
	})
}

// TestRunKeepsLongLinesWhole has ranks write lines longer than what is kept of one, at the same time.
func TestRunKeepsLongLinesWhole(t *testing.T) {
	for _, prefix := range []string{"[%] ", ""} {
		c := nobody(command(t, "run", "-n", "3", "--transport", "udp", "--prefix="+map[bool]string{true: "true", false: "false"}[prefix != ""], "--", "sh", "-c",
			`for i in 1 2 3; do head -c 400000 /dev/zero | tr '\0' $XDPRMA_RANK; echo; done`))
		s := c.run(t)
		var want []string
		for _, rank := range []string{"0", "1", "2"} {
			want = append(want, slices.Repeat([]string{strings.Replace(prefix, "%", rank, 1) + strings.Repeat(rank, 400000)}, 3)...)
		}
		if got := sortedLines(&c.stdout); s != 0 || !slices.Equal(got, want) {
			t.Errorf("prefix %q: status %d, %d lines: %s", prefix, s, len(got), &c.stderr)
		}
	}
}

// TestRunShowsAPrompt answers a question that stands in a line without an end.
func TestRunShowsAPrompt(t *testing.T) {
	modes(t, func(t *testing.T, command func(...string) *invocation) {
		for _, prefix := range []string{"[0] ", ""} {
			args := []string{"run", "-n", "2", "--", "sh", "-c", `test $XDPRMA_RANK = 1 || { printf "name? "; read x; echo "it is $x"; }`}
			if prefix == "" {
				args = slices.Insert(args, 1, "--prefix=false")
			}
			c := command(args...)
			in, err := c.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			c.Cmd.Stdout = nil
			out, err := c.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			asked := make([]byte, len(prefix+"name? "))
			if _, err := io.ReadFull(out, asked); err != nil {
				t.Fatal(err)
			}
			io.WriteString(in, "x\n")
			rest, _ := io.ReadAll(out)
			if s := c.finish(t); s != 0 || string(asked) != prefix+"name? " || string(rest) != "it is x\n" {
				t.Errorf("status %d: %q, %q, %s", s, asked, rest, &c.stderr)
			}
		}
	})
}

// TestRunFailsWhereOutputIsLost has the output and the log go to what is full.
func TestRunFailsWhereOutputIsLost(t *testing.T) {
	const flood = `head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2; exec sleep 1000`
	ends := func(t *testing.T, c *invocation) {
		t.Helper()
		if s := c.run(t); s != statusFailed || strings.Count(c.stderr.String(), "no space left on device") != 1 {
			t.Errorf("status %d: %s", s, &c.stderr)
		}
	}
	modes(t, func(t *testing.T, command func(...string) *invocation) {
		for _, script := range []string{"echo last", "echo more; exec sleep 1000"} {
			full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer full.Close()
			c := command("run", "-n", "2", "--", "sh", "-c", script)
			c.Cmd.Stdout = full
			ends(t, c)
		}
	})
	t.Run("log", func(t *testing.T) {
		testenv.NeedsRoot(t)
		dir := t.TempDir()
		if err := unix.Mount("xdprma-test", dir, "tmpfs", 0, "size=64k"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
		ends(t, command(t, "run", "-n", "2", "--log-dir", dir, "--", "sh", "-c", flood))
		ends(t, command(t, "run", "-n", "2", "--log-dir", dir, "--", "sh", "-c", strings.Replace(flood, "; exec sleep 1000", "", 1)))
	})
}
