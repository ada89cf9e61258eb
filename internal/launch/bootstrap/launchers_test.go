package bootstrap

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// TestRunThatAllUsersSeeIsWarnedOf has ranks whose launcher has or has not torchrun's id of the run in
// its command line, from which others of the host would make the job's.
func TestRunThatAllUsersSeeIsWarnedOf(t *testing.T) {
	const child = "XDPRMA_TEST_PRINT_WARNINGS"
	if os.Getenv(child) != "" {
		c, err := FromEnvironment()
		fmt.Printf("child: %q, %v\n", c.Warnings, err)
		testenv.HasRun(t)
	}
	const run = "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0"
	for _, test := range []struct {
		name   string
		shown  string
		env    []string
		warned bool
	}{
		{"shown", "--rdzv_id=" + run, nil, true},
		{"not shown", "--standalone", nil, false},
		{"with an id of the job", "--rdzv_id=" + run, []string{EnvJob + "=5"}, false},
		{"with a key", "--rdzv_id=" + run, []string{EnvKeyFile + "=" + keyFile(t, secure.NewKey().Text(), 0o600)}, false},
		{"another rank", "--rdzv_id=" + run, []string{"RANK=1"}, false},
		{"alone", "--rdzv_id=" + run, []string{"WORLD_SIZE=1"}, false},
	} {
		c := exec.CommandContext(t.Context(), "sh", "-c", `"$1" -test.run='^TestRunThatAllUsersSeeIsWarnedOf$' -test.v; exit $?`, test.shown, os.Args[0])
		c.Env = append([]string{child + "=1", "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=localhost", "MASTER_PORT=29500", envTorchRun + "=" + run}, test.env...)
		c.WaitDelay = testenv.Limit
		out, err := c.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "child: ") || !strings.Contains(string(out), "<nil>") {
			t.Fatalf("%s: %v\n%s", test.name, err, out)
		}
		if got := strings.Contains(string(out), "--rdzv-id"); got != test.warned {
			t.Errorf("%s: warned %t:\n%s", test.name, got, out)
		}
	}
}
