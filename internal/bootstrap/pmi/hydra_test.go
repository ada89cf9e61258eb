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

	"github.com/xdprma/xdprma/internal/testenv"
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

// TestHydra speaks both versions with the launcher of MPICH.
func TestHydra(t *testing.T) {
	testenv.NeedsProgram(t, "mpiexec.hydra", "mpich")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, offer := range []string{"1", "2"} {
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit)
		mpiexec := exec.CommandContext(ctx, "mpiexec.hydra", "-n", "3", self)
		mpiexec.Env = append(os.Environ(), envOffer+"="+offer)
		mpiexec.WaitDelay = testenv.Limit
		out, err := mpiexec.CombinedOutput()
		cancel()
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
	testenv.NeedsProgram(t, "mpiexec.hydra", "mpich")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, offer := range []string{"1", "2"} {
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit)
		mpiexec := exec.CommandContext(ctx, "mpiexec.hydra", "-n", "2", "sh", "-c", `"$0" && ! "$0"`, self)
		mpiexec.Env = append(os.Environ(), envOffer+"="+offer)
		mpiexec.WaitDelay = testenv.Limit
		out, err := mpiexec.CombinedOutput()
		cancel()
		for _, want := range []string{"by version " + offer, "an earlier process of this rank has used it up"} {
			if n := strings.Count(string(out), want); err != nil || n != 2 {
				t.Errorf("version %s: %v, %q is told %d times, want twice:\n%s", offer, err, want, n, out)
			}
		}
	}
}
