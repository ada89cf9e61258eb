package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

func thisBinary(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	testenv.ForAll(t, filepath.Dir(self))
	return self
}

// TestCloseDoesNotWaitForTheDead has rank 1 end while rank 2, which closes its node, still waits until rank 1
// has what rank 2 has sent.
func TestCloseDoesNotWaitForTheDead(t *testing.T) {
	c := command(t, "run", "-n", "3", "--transport", "udp", "--keep-going", "--env", envEnds+"=stopped", "--", thisBinary(t))
	if s := c.run(t); s != statusSignal+int(unix.SIGKILL) || !strings.Contains(c.stdout.String(), "[2] has lost 1 in Close\n") {
		t.Errorf("status %d: %s%s", s, &c.stdout, &c.stderr)
	}
}
