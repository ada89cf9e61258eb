package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// TestKeyIsOneThatRanksTake makes keys in a file that others could read before, and in a pipe.
func TestKeyIsOneThatRanksTake(t *testing.T) {
	c := command(t, "key")
	if s := c.run(t); s != 0 {
		t.Fatalf("status %d: %s", s, &c.stderr)
	}
	first, err := secure.ParseKey(c.stdout.String())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "job.key")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Chmod(0o666); err != nil {
		t.Fatal(err)
	}
	c = command(t, "key")
	c.Cmd.Stdout = f
	if s := c.run(t); s != 0 {
		t.Fatalf("status %d: %s", s, &c.stderr)
	}
	t.Setenv(bootstrap.EnvKeyFile, path)
	place, err := bootstrap.FromEnvironment()
	if err != nil || place.Key == nil || *place.Key == first {
		t.Errorf("%+v, %v", place, err)
	}
	c = command(t, "key", "job.key")
	if s := c.run(t); s != statusUsage || c.stdout.Len() > 0 || !strings.Contains(c.stderr.String(), "job.key") {
		t.Errorf("status %d with an argument: %s%s", s, &c.stdout, &c.stderr)
	}
}

// TestRunMakesAKeyForItsJob looks at what ranks are told, in namespaces and without. Keys of
// the user are not the job's.
func TestRunMakesAKeyForItsJob(t *testing.T) {
	const script = `echo $(stat -c %a $XDPRMA_KEY_FILE) $(wc -c < $XDPRMA_KEY_FILE) $XDPRMA_SECURITY ${XDPRMA_KEY:-none}; echo file $XDPRMA_KEY_FILE`
	users := []string{"XDPRMA_KEY=" + secure.NewKey().Text(), "XDPRMA_KEY_FILE=/nonexistent/key"}
	for _, test := range []struct {
		name    string
		env     []string
		args    []string
		level   string
		problem string
	}{
		{name: "nothing said", level: "none"},
		{name: "keys of the user", env: users, level: "none"},
		{name: "an option", env: []string{"XDPRMA_SECURITY=none"}, args: []string{"--security", "sign"}, level: "sign"},
		{name: "the environment", env: []string{"XDPRMA_SECURITY=sign"}, level: "sign"},
		{name: "left to the rendezvous", env: []string{"XDPRMA_SECURITY=auto"}, level: "none"},
		{name: "an unknown level", args: []string{"--security", "hide"}, problem: `--security: the level of security "hide" is not none, sign or seal`},
		{name: "an unknown level in the environment", env: []string{"XDPRMA_SECURITY=hide"}, problem: `XDPRMA_SECURITY="hide" is not auto, none, sign or seal`},
	} {
		for _, root := range []bool{false, true} {
			t.Run(fmt.Sprint(test.name, ", as root ", root), func(t *testing.T) {
				c := command(t, append(append([]string{"run", "-n", "2", "--transport", "udp"}, test.args...), "--", "sh", "-c", script)...)
				c.Env = append(os.Environ(), test.env...)
				if root {
					testenv.NeedsRoot(t)
				} else {
					nobody(c)
				}
				s := c.run(t)
				if test.problem != "" {
					if s != statusUsage || !strings.Contains(c.stderr.String(), test.problem) {
						t.Errorf("status %d: %s", s, &c.stderr)
					}
					return
				}
				if s != 0 || c.stderr.Len() > 0 {
					t.Errorf("status %d: %s", s, &c.stderr)
				}
				said := "600 65 " + test.level + " none"
				lines := sortedLines(&c.stdout)
				if len(lines) != 4 || lines[0] != "[0] "+said || lines[2] != "[1] "+said {
					t.Fatalf("%q", lines)
				}
				path := strings.TrimPrefix(lines[1], "[0] file ")
				if lines[3] != "[1] file "+path {
					t.Errorf("the ranks have keys of their own: %q", lines)
				}
				if _, err := os.Stat(path); !os.IsNotExist(err) {
					t.Errorf("%s is left behind: %v", path, err)
				}
			})
		}
	}
}

// TestRanksJoinWithTheKeyOfTheirRun runs a program at either level. Without a warning: all is on
// one host.
func TestRanksJoinWithTheKeyOfTheirRun(t *testing.T) {
	hello := filepath.Join(t.TempDir(), "hello")
	if err := testenv.Build("../../examples/hello", hello); err != nil {
		t.Fatal(err)
	}
	for _, level := range []string{"none", "sign"} {
		c := command(t, "run", "-n", "2", "--transport", "udp", "--security", level, "--", hello)
		if s := c.run(t); s != 0 || c.stderr.Len() > 0 || !slices.Contains(sortedLines(&c.stdout), "[0] counter: 2") {
			t.Errorf("%s: status %d\n%s%s", level, s, &c.stdout, &c.stderr)
		}
	}
}
