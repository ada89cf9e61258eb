package pmi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// envOffer has the test's program be a rank that offers this version.
const envOffer = "XDPRMA_TEST_PMI_OFFER"

func TestMain(m *testing.M) {
	if offer, err := strconv.Atoi(os.Getenv(envOffer)); err == nil {
		if err := beRank(Version(offer)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// beRank exchanges words with the other ranks of an mpiexec.
func beRank(offer Version) error {
	var id Identity
	var fd int
	for name, to := range map[string]*int{"PMI_RANK": &id.Rank, "PMI_SIZE": &id.Size, "PMI_FD": &fd} {
		var err error
		if *to, err = strconv.Atoi(os.Getenv(name)); err != nil {
			return err
		}
	}
	c, err := Init(os.NewFile(uintptr(fd), "PMI"), offer, id)
	if err != nil {
		return err
	}
	if err := c.Put("k"+strconv.Itoa(id.Rank), "v="+strconv.Itoa(id.Rank)); err != nil {
		return err
	}
	if err := c.Fence(); err != nil {
		return err
	}
	next := (id.Rank + 1) % id.Size
	value, err := c.Get("k" + strconv.Itoa(next))
	if err != nil {
		return err
	}
	if nothing, err := c.Get("nobody"); !errors.Is(err, ErrNoKey) {
		return fmt.Errorf("a key that nobody has put: %q, %v", nothing, err)
	}
	if err := c.Finalize(); err != nil {
		return err
	}
	fmt.Printf("rank %d of %d by version %d: %s\n", id.Rank, id.Size, c.Version(), value)
	return nil
}

// hydra runs MPICH's launcher, which offers one version to the ranks that it starts.
func hydra(t *testing.T, offer string, args ...string) (out []byte, err error) {
	t.Helper()
	testenv.NeedsCommand(t, "mpiexec.hydra", "mpich")
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit)
	defer cancel()
	mpiexec := exec.CommandContext(ctx, "mpiexec.hydra", args...)
	mpiexec.Env = append(os.Environ(), envOffer+"="+offer)
	mpiexec.WaitDelay = testenv.Limit
	return mpiexec.CombinedOutput()
}

// TestHydra speaks both versions with the launcher of MPICH.
func TestHydra(t *testing.T) {
	for _, offer := range []string{"1", "2"} {
		out, err := hydra(t, offer, "-n", "3", os.Args[0])
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		slices.Sort(lines)
		var want []string
		for rank := range 3 {
			want = append(want, fmt.Sprintf("rank %d of 3 by version %s: v=%d", rank, offer, (rank+1)%3))
		}
		if err != nil || !slices.Equal(lines, want) {
			t.Errorf("version %s: %v, %q", offer, err, lines)
		}
	}
}

// TestHydraServesEachRankOnce has the launcher start a script that runs the program twice.
func TestHydraServesEachRankOnce(t *testing.T) {
	for _, offer := range []string{"1", "2"} {
		out, err := hydra(t, offer, "-n", "2", "sh", "-c", `"$0" && ! "$0"`, os.Args[0])
		for _, want := range []string{"by version " + offer, "an earlier process of this rank has used it up"} {
			if n := strings.Count(string(out), want); err != nil || n != 2 {
				t.Errorf("version %s: %v, %q is told %d times, want twice:\n%s", offer, err, want, n, out)
			}
		}
	}
}
