package rma_test

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/userspace"
)

// envFewFiles says that the test runs in a process of its own.
const envFewFiles = "XDPRMA_TEST_FEW_FILES"

// TestWindowWithoutFiles makes windows where the process may open no file, so that no XDP
// program reaches them. It is told once, and counted. The limit is that of a process which
// the test starts.
func TestWindowWithoutFiles(t *testing.T) {
	once(t)
	testenv.NeedsRoot(t)
	if os.Getenv(envFewFiles) == "" {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		child := exec.CommandContext(t.Context(), self, "-test.run=^TestWindowWithoutFiles$", "-test.v")
		child.Env = append(os.Environ(), envFewFiles+"=1")
		if out, err := child.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS")) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	var log bytes.Buffer
	j := newJobIn(t, newLab(t, 2), userspace.XDPNative, rma.Config{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	freeAll(j, j.windows(8, 8))
	if log.Len() > 0 {
		t.Error(log.String())
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		wins := j.windows(8, 8)
		if wins[0].Unattended(1) {
			t.Error("a window is in reach")
		}
		freeAll(j, wins)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	for rank, n := range j.nodes {
		if device := n.Stats().Device; device.Unreached != 3 {
			t.Errorf("rank %d counts %d windows that are not reached, of 3", rank, device.Unreached)
		}
	}
	told := log.String()
	if warnings := strings.Count(told, "level=WARN"); warnings != 2 || strings.Count(told, "raise the limit, ulimit -n, now 3") != 2 {
		t.Errorf("%d warnings of two ranks: %s", warnings, told)
	}
}
