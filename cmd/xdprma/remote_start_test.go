package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

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
		{"interrupt", []string{"--hosts", "a,b"}, unix.SIGINT, 2, 130, "rank 0 was ended by SIGINT before it began on host a"},
		{"end", []string{"--hosts", "a"}, unix.SIGTERM, 1, 143, "rank 0 was ended by SIGTERM before it began on host a"},
		{"interrupt before all", []string{"--hosts", "a:20,b"}, unix.SIGINT, maxConnecting, 130, "SIGINT came before all ranks had been started"},
		{"interrupt before the last", []string{"--hosts", "a:9"}, unix.SIGINT, maxConnecting, 130, "was ended by SIGINT before it began on host a"},
		{"end before all", []string{"--hosts", "a:20", "--keep-going"}, unix.SIGTERM, maxConnecting, 143, "SIGTERM came before all"},
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
