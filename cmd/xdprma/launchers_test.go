package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
)

// TestHelloUnderMpiexec starts the example of the README as users of MPICH start programs,
// with nothing set.
func TestHelloUnderMpiexec(t *testing.T) {
	testenv.NeedsCommand(t, "mpiexec.hydra", "mpich")
	hello := filepath.Join(t.TempDir(), "hello")
	if err := testenv.Build("../../examples/hello", hello); err != nil {
		t.Fatal(err)
	}
	mpiexec := underMpiexec(t, "-n", "4", hello)
	out, err := mpiexec.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var found, want []string
	for _, m := range regexp.MustCompile(`rank (\d) of 4 found (\d) \(`).FindAllStringSubmatch(string(out), -1) {
		found = append(found, "rank "+m[1], "before "+m[2])
	}
	for i := range 4 {
		want = append(want, "rank "+strconv.Itoa(i), "before "+strconv.Itoa(i))
	}
	slices.Sort(found)
	slices.Sort(want)
	if !slices.Equal(found, want) || !strings.Contains(string(out), "counter: 4\n") {
		t.Errorf("got\n%s", out)
	}
}

// underMpiexec returns a command that has mpiexec.hydra start ranks, with nothing set.
func underMpiexec(t *testing.T, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit)
	t.Cleanup(cancel)
	mpiexec := exec.CommandContext(ctx, "mpiexec.hydra", args...)
	mpiexec.WaitDelay = testenv.Limit
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "XDPRMA_") {
			mpiexec.Env = append(mpiexec.Env, e)
		}
	}
	return mpiexec
}

// TestMpiexecEndsAJobThatCannotJoin has one of three ranks ask for an interface that there is
// not. The others would wait for it.
func TestMpiexecEndsAJobThatCannotJoin(t *testing.T) {
	testenv.NeedsCommand(t, "mpiexec.hydra", "mpich")
	hello := filepath.Join(t.TempDir(), "hello")
	if err := testenv.Build("../../examples/hello", hello); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"0", "2"} {
		script := `test $PMI_RANK = ` + bad + ` && export XDPRMA_INTERFACE=xr-no-such; exec "$0"`
		out, err := underMpiexec(t, "-n", "3", "sh", "-c", script, hello).CombinedOutput()
		if want := "this rank cannot join the job, and so its launcher is asked to end the job rank=" + bad; err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v, want %q in\n%s", err, want, out)
		}
	}
}

// TestVariablesAreDocumented looks for each variable in the page on several hosts and in
// the command's help.
func TestVariablesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/several-hosts.md")
	if err != nil {
		t.Fatal(err)
	}
	help := strings.Fields(runCommand().Description)
	for _, v := range bootstrap.Contract {
		if row := "| `" + v.Name + "` | " + v.Meaning + " |\n"; !strings.Contains(string(page), row) {
			t.Errorf("docs/several-hosts.md lacks the row %q", row)
		}
		if !slices.Contains(help, v.Name) {
			t.Errorf("xdprma run --help lacks %s", v.Name)
		}
	}
}
