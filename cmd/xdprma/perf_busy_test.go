package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// Processes compute beside what is measured, and each result says so.
func TestPerfBusy(t *testing.T) {
	modes(t, func(t *testing.T, command func(...string) *invocation) {
		c := command("perf", "put-latency", "--busy", "2", "--bytes", "8", "--json", "--iterations", "20", "--rounds", "1")
		if s := c.run(t); s != 0 {
			t.Fatalf("status %d: %s", s, &c.stderr)
		}
		if n := strings.Count(c.stdout.String(), `"busy":2`); n != 1 {
			t.Errorf("%d results say that 2 processes computed: %s", n, &c.stdout)
		}
	})
}

// A process that computes ends with a measurement that is killed.
func TestPerfBusyEnds(t *testing.T) {
	c, computes := besideBusy(t)
	if err := unix.Kill(c.Process.Pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testenv.Await(t, "the end of the process that computes", func() bool { return argument(computes, 1) != perfBusyName })
	if s := c.finish(t); s == 0 {
		t.Errorf("a measurement that was killed has status 0: %s", &c.stdout)
	}
}

// One that has not computed to the end fails the measurement.
func TestPerfBusyMustCompute(t *testing.T) {
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL, unix.SIGSTOP, unix.SIGCONT} {
		c, computes := besideBusy(t)
		sent := signal
		if signal == unix.SIGCONT { // after a stop
			sent = unix.SIGSTOP
		}
		if err := unix.Kill(computes, sent); err != nil {
			t.Fatal(err)
		}
		testenv.Await(t, "its end or stop", func() bool { return stopped(computes) || gone(computes) })
		if signal == unix.SIGCONT {
			if err := unix.Kill(computes, signal); err != nil {
				t.Fatal(err)
			}
			testenv.Await(t, "that it goes on", func() bool { return !stopped(computes) })
		}
		if err := c.Process.Signal(unix.SIGINT); err != nil {
			t.Fatal(err)
		}
		if s := c.finish(t); s == 0 || !strings.Contains(c.stderr.String(), "was to compute beside the measurement") {
			t.Errorf("%v: status %d: %s", signal, s, &c.stderr)
		}
		if argument(computes, 1) == perfBusyName {
			t.Errorf("%v: process %d is left", signal, computes)
		}
	}
}

// besideBusy starts a measurement, and returns the process that computes beside it.
func besideBusy(t *testing.T) (c *invocation, computes int) {
	t.Helper()
	c = nobody(command(t, "perf", "put-latency", "--transport", "udp", "--busy", "1", "--duration", "60s", "--rounds", "1"))
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	testenv.Await(t, "a process that computes", func() bool {
		for _, pid := range c.children(t) {
			if argument(pid, 1) == perfBusyName && computed(t, pid) {
				computes = pid
			}
		}
		return computes > 0
	})
	return c, computes
}

// A job's measurement that is refused overwrites no file.
func TestPerfInJobRefusesBusy(t *testing.T) {
	save := filepath.Join(t.TempDir(), "results")
	if err := os.WriteFile(save, []byte("earlier"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := command(t, "run", "-n", "2", "--transport", "udp", "--", binary, "perf", "put-latency", "--busy", "1", "--save", save)
	if s := c.run(t); s == 0 || !strings.Contains(c.stderr.String(), "--busy does not work inside a job") {
		t.Errorf("status %d: %s", s, &c.stderr)
	}
	if b, err := os.ReadFile(save); string(b) != "earlier" {
		t.Errorf("the file of earlier results holds %q, %v", b, err)
	}
}

// computed reports whether a process has computed for 50 ms.
func computed(t *testing.T, pid int) bool {
	t.Helper()
	fields := statFields(pid)
	if len(fields) <= 11 {
		return false
	}
	ticks, err := strconv.Atoi(fields[11]) // of 10 ms, in user mode
	if err != nil {
		t.Fatal(err)
	}
	return ticks >= 5
}
