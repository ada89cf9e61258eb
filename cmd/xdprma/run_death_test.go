package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/rma"
)

// envMourner makes this test binary a rank of the job that the environment names.
const envMourner = "XDPRMA_TEST_MOURNER"

// envDies says which rank of two dies, if not rank 1.
const envDies = "XDPRMA_TEST_DIES"

// mourn is a rank: rank 1 sends a message and dies, and rank 0 waits for another one.
func mourn() error {
	dies := 1
	if os.Getenv(envDies) != "" {
		dies = 0
	}
	ctx := context.Background()
	node, err := rma.Join(ctx, rma.Config{Limits: rma.Limits{DeadAfter: time.Hour}})
	if err != nil {
		return err
	}
	defer node.Close()
	if node.Rank() == dies {
		if err := comm.Send(ctx, node.World(), []byte{1}, 1-dies, 0); err != nil {
			return err
		}
		if _, err := comm.Recv(ctx, node.World(), make([]byte, 1), 1-dies, 0); err != nil {
			return err
		}
		return unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	if os.Getenv(envMourner) == "met" {
		if _, err := comm.Recv(ctx, node.World(), make([]byte, 1), dies, 0); err != nil {
			return err
		}
		if err := comm.Send(ctx, node.World(), []byte{1}, dies, 0); err != nil {
			return err
		}
	}
	_, err = comm.Recv(ctx, node.World(), make([]byte, 1), dies, 0)
	if !errors.Is(err, rma.ErrProcFailed) {
		return fmt.Errorf("a receive from a rank that has died: %v", err)
	}
	fmt.Println(err)
	return nil
}

// TestRunTellsTheOthersOfADeath has rank 1 end before it joins, and after it has joined:
// rank 0, for which silence means nothing within an hour, is told.
func TestRunTellsTheOthersOfADeath(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, script, reason string
		status               int
	}{
		{"absent", `test $XDPRMA_RANK = 1 && exit 3; exec "$0"`, "exited with status 3", 3},
		{"absent in good order", `test $XDPRMA_RANK = 1 && exit 0; exec "$0"`, "exited with status 0", 0},
		{"met", `exec "$0"`, "was killed by SIGKILL", statusSignal + int(unix.SIGKILL)},
	} {
		c := command(t, "run", "-n", "2", "--keep-going", "--transport", "udp", "--", "sh", "-c", test.script, self)
		c.Env = append(os.Environ(), envMourner+"="+test.name)
		if s := c.run(t); s != test.status || !strings.Contains(c.stdout.String(), "[0] ") || !strings.Contains(c.stdout.String(), test.reason) {
			t.Errorf("%s: status %d, want %d; rank 0 said %q, want %q; %s", test.name, s, test.status, &c.stdout, test.reason, &c.stderr)
		}
	}
}

// TestDeathWithoutALauncherIsTold starts two ranks by hand, and has one of them die, of which
// rank 0 serves the rendezvous: the other is told, though silence means nothing within an hour.
func TestDeathWithoutALauncherIsTold(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, dies := range []int{0, 1} {
		at := "unix:" + filepath.Join(t.TempDir(), "rendezvous")
		statuses, said := byHand(t, self, 2, func(rank int) []string {
			env := []string{envMourner + "=met", bootstrap.EnvRendezvous + "=" + at, bootstrap.EnvJob + "=aa",
				bootstrap.EnvSize + "=2", fmt.Sprintf("%s=%d", bootstrap.EnvRank, rank)}
			if dies == 0 {
				env = append(env, envDies+"=0")
			}
			return env
		})
		for rank, status := range statuses {
			if (status != 0) != (rank == dies) {
				t.Errorf("rank %d of which %d dies: status %d", rank, dies, status)
			}
		}
		if said := said[1-dies]; !strings.Contains(said, fmt.Sprintf("(rank %d): process failed: its process has ended", dies)) {
			t.Errorf("rank %d dies, and the other says %q", dies, said)
		}
	}
}
