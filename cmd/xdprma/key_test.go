package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// TestKeyIsOneThatRanksTake makes keys in a pipe, in a file that it makes where the shell would make
// one for all, and in one that a careful shell has made.
func TestKeyIsOneThatRanksTake(t *testing.T) {
	c := command(t, "key")
	if s := c.run(t); s != 0 {
		t.Fatalf("status %d: %s", s, &c.stderr)
	}
	first, err := secure.ParseKey(c.stdout.String())
	if err != nil {
		t.Fatal(err)
	}
	keys := map[secure.Key]bool{first: true}
	for name, script := range map[string]string{
		"named":      `umask 0; "$0" key job.key`,
		"redirected": `umask 077; "$0" key > job.key`,
	} {
		dir := t.TempDir()
		c := &invocation{Cmd: exec.CommandContext(t.Context(), "sh", "-c", script, binary)}
		c.Dir, c.Cmd.Stdout, c.Cmd.Stderr, c.WaitDelay = dir, &c.stdout, &c.stderr, testenv.Limit
		if s := c.run(t); s != 0 || c.stdout.Len()+c.stderr.Len() > 0 {
			t.Fatalf("%s: status %d: %s%s", name, s, &c.stdout, &c.stderr)
		}
		path := filepath.Join(dir, "job.key")
		info, err := os.Stat(path)
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
		t.Setenv(bootstrap.EnvKeyFile, path)
		place, err := bootstrap.FromEnvironment()
		if err != nil || place.Key == nil || keys[*place.Key] {
			t.Fatalf("%s: %+v, %v", name, place, err)
		}
		keys[*place.Key] = true
	}
}

// TestKeyIsNotWrittenWhereOthersReadIt gives it a file that a shell has made for all, where another
// process may wait for the key with a descriptor.
func TestKeyIsNotWrittenWhereOthersReadIt(t *testing.T) {
	for _, mode := range []os.FileMode{0o644, 0o640, 0o604, 0o620} {
		path := filepath.Join(t.TempDir(), "job.key")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := f.Chmod(mode); err != nil {
			t.Fatal(err)
		}
		c := command(t, "key")
		c.Cmd.Stdout = f
		if s := c.run(t); s != statusFailed || !strings.Contains(c.stderr.String(), "`xdprma key FILE`") || !strings.Contains(c.stderr.String(), fmt.Sprintf("%#o", mode)) {
			t.Errorf("status %d with mode %#o: %s", s, mode, &c.stderr)
		}
		if text, err := os.ReadFile(path); err != nil || len(text) > 0 {
			t.Errorf("%q is in a file of mode %#o, %v", text, mode, err)
		}
	}
}

// TestKeyLeavesFilesAlone names something that is there already, by which others might read the key.
func TestKeyLeavesFilesAlone(t *testing.T) {
	dir := t.TempDir()
	there, link := filepath.Join(dir, "there"), filepath.Join(dir, "link")
	if err := os.WriteFile(there, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "nothing"), link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{there: "remove it first", link: "remove it first", filepath.Join(dir, "no", "folder"): "no such file"} {
		c := command(t, "key", path)
		if s := c.run(t); s != statusFailed || c.stdout.Len() > 0 || !strings.Contains(c.stderr.String(), path) || !strings.Contains(c.stderr.String(), want) {
			t.Errorf("status %d for %s: %s%s", s, path, &c.stdout, &c.stderr)
		}
	}
	if text, err := os.ReadFile(there); err != nil || string(text) != "old" {
		t.Errorf("%q, %v", text, err)
	}
	c := command(t, "key", "one", "two")
	if s := c.run(t); s != statusUsage || c.stdout.Len() > 0 || !strings.Contains(c.stderr.String(), "two") {
		t.Errorf("status %d for two files: %s%s", s, &c.stdout, &c.stderr)
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
