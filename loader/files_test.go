package loader

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// envFewFiles says that the test runs in a process of its own.
const envFewFiles = "XDPRMA_TEST_FEW_FILES"

// TestFewFiles attaches with every number of open files that is too small, and with enough.
// Whatever fails says that it is for want of files. The limit is that of a process which
// the test starts.
func TestFewFiles(t *testing.T) {
	testenv.NeedsRoot(t)
	if os.Getenv(envFewFiles) == "" {
		self, err := os.Executable()
		must(t, err)
		child := exec.CommandContext(t.Context(), self, "-test.run=^TestFewFiles$", "-test.v")
		child.Env = append(os.Environ(), envFewFiles+"=1")
		out, err := child.CombinedOutput()
		if t.Logf("%s", out); err != nil || !bytes.Contains(out, []byte("--- PASS")) {
			t.Error(err)
		}
		return
	}
	l := newLab(t, shape{})
	free, err := unix.Dup(0) // the lowest number that is free
	must(t, err)
	must(t, unix.Close(free))
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	refused := 0
	for limit := uint64(free); ; limit++ {
		if limit > uint64(free)+100 {
			t.Fatal("no number of open files is enough")
		}
		must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: was.Max}))
		var p *Program
		l.inB(t, func() { p, err = Attach(Options{Interface: "b", Address: at, Port: port, Slots: 4}) })
		if err != nil {
			refused++
			if !errors.Is(err, unix.EMFILE) || strings.Contains(err.Error(), "too old") ||
				!strings.Contains(err.Error(), fmt.Sprintf("raise the limit, ulimit -n, now %d", limit)) {
				t.Errorf("limit %d: %v", limit, err)
			}
			continue
		}
		tier, err := p.Tier()
		must(t, err)
		must(t, p.Close())
		must(t, tier.Release())
		break
	}
	if refused == 0 {
		t.Error("the program could be attached with no file to open")
	}
}
