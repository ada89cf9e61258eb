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
)

// hereAndThere has ranks be started on this machine, and as on another host by each shell that there is.
func hereAndThere(t *testing.T, f func(t *testing.T, run func(args ...string) *invocation)) {
	t.Run("here", func(t *testing.T) {
		f(t, func(args ...string) *invocation {
			return nobody(command(t, append([]string{"run", "--transport", "udp", "--prefix=false"}, args...)...))
		})
	})
	for _, shell := range []string{"sh", "bash"} {
		t.Run("there by "+shell, func(t *testing.T) {
			testenv.NeedsCommand(t, shell, shell)
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			testenv.ForAll(t, dir)
			if err := os.Symlink(path, filepath.Join(dir, "sh")); err != nil {
				t.Fatal(err)
			}
			f(t, func(args ...string) *invocation {
				c := nobody(command(t, append([]string{"run", "--hosts", "127.0.0.1", "--ssh", sshHere, "--prefix=false"}, args...)...))
				c.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
				return c
			})
		})
	}
}

// TestProgramsAreFoundAlike has programs of one name in several folders. Each says in which one.
func TestProgramsAreFoundAlike(t *testing.T) {
	base := t.TempDir()
	testenv.ForAll(t, base)
	for _, folder := range []string{"a", "b", "b/sub", "bin"} {
		if err := os.Mkdir(filepath.Join(base, folder), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, mode := range map[string]os.FileMode{"prog": 0o755, "text": 0o644} {
			if err := os.WriteFile(filepath.Join(base, folder, name), []byte("#!/bin/sh\necho "+folder+" $PWD\n"), mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Mkdir(filepath.Join(base, "closed"), 0); err != nil {
		t.Fatal(err)
	}
	a, b := base+"/a", base+"/b"
	const missing = "--wdir names another"
	hereAndThere(t, func(t *testing.T, run func(args ...string) *invocation) {
		for _, test := range []struct {
			args   []string
			status int
			said   string // all of the output, or a part of what is said of a failure
		}{
			{[]string{"--", "./prog"}, 0, "a " + a},
			{[]string{"--", "../b/prog"}, 0, "b " + a},
			{[]string{"--wdir", b, "--", "./prog"}, 0, "b " + b},
			{[]string{"--wdir", "../b", "--", "./prog"}, 0, "b " + b},
			{[]string{"--wdir", b, "--", "sub/prog"}, 0, "b/sub " + b},
			{[]string{"--wdir", b, "--", a + "/prog"}, 0, "a " + b},
			{[]string{"--wdir", b, "--env", "PATH=" + base + "/bin", "--", "prog"}, 0, "bin " + b},
			{[]string{"--env", "PATH=" + base + "/bin", "--env", "PATH=" + a, "--", "prog"}, 0, "a " + a},
			{[]string{"--wdir", b, "--env", "PATH=sub", "--", "prog"}, 0, "b/sub " + b},
			{[]string{"--wdir", b, "--env", "PATH=/none:", "--", "prog"}, 0, "b " + b},
			{[]string{"--wdir", b, "--env", "PATH=", "--", "prog"}, 0, "b " + b},
			{[]string{"--wdir", b, "--", "./none"}, statusNotFound, "no program ./none is found"},
			{[]string{"--wdir", b, "--", "./text"}, statusNotRunnable, "the program ./text cannot be run"},
			{[]string{"--", "../b/sub"}, statusNotRunnable, "the program ../b/sub cannot be run"},
			{[]string{"--", "prog"}, statusNotFound, "no program prog is found"},
			{[]string{"--env", "PATH=" + base, "--", "true"}, statusNotFound, "no program true is found"},
			{[]string{"--env", "PATH=" + b, "--", "text"}, statusNotFound, "no program text is found"},
			{[]string{"--wdir", "/none", "--", "true"}, statusNotRunnable, "cannot enter the folder /none; " + missing},
			{[]string{"--wdir", a + "/prog", "--", "true"}, statusNotRunnable, "cannot enter the folder " + a + "/prog; " + missing},
			{[]string{"--wdir", base + "/closed", "--", "true"}, statusNotRunnable, "cannot enter the folder " + base + "/closed; " + missing},
		} {
			c := run(test.args...)
			c.Dir = a
			s := c.run(t)
			if got := strings.TrimSpace(c.stdout.String()); s != test.status || s == 0 && got != test.said || s != 0 && !strings.Contains(c.stderr.String(), test.said) {
				t.Errorf("%q: status %d, want %d; %q %q, want %q", test.args, s, test.status, got, &c.stderr, test.said)
			}
		}
	})
}

// TestVariablesArriveAlike gives ranks variables that shells, or the scripts of a host, use themselves.
func TestVariablesArriveAlike(t *testing.T) {
	env, err := exec.LookPath("env")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"PATH", "IFS", "CDPATH", "TMPDIR", "PS1", "PS4", "ENV", "BASH_ENV", "HOME", "LANG", "OLDPWD", "MAIL", "POSIXLY_CORRECT", "s", "n"}
	for letter := 'a'; letter <= 'z'; letter++ {
		names = append(names, fmt.Sprintf("_%c", letter))
	}
	const value = "it's \"$HOME\" `id` \\n \\\n -e\t{key},A=b "
	hereAndThere(t, func(t *testing.T, run func(args ...string) *invocation) {
		for _, names := range append([][]string{names}, []string{"PATH"}, []string{"_c"}, []string{"_d"}) {
			args, want := []string{"--wdir", "/usr/lib", "--bind", "core"}, []string{"PWD=/usr/lib"}
			for i := range 20 { // together they are longer than one argument of a program may be
				long := fmt.Sprint("LONG", i, "=", strings.Repeat("x", 10_000), "\n") // no line is so long that it is cut
				args, want = append(args, "--env", long), append(want, long)
			}
			for _, name := range names {
				args, want = append(args, "--env", name+"="+value), append(want, name+"="+value)
			}
			c := run(append(args, "--", env, "-0")...)
			s := c.run(t)
			got := strings.Split(c.stdout.String(), "\x00")
			for _, w := range want {
				if !slices.Contains(got, w) {
					name, _, _ := strings.Cut(w, "=")
					t.Errorf("%s is %.100q", name, slices.DeleteFunc(slices.Clone(got), func(g string) bool { return !strings.HasPrefix(g, name+"=") }))
				}
			}
			if s != 0 || c.stderr.Len() > 0 {
				t.Errorf("%d variables: status %d: %.1000s", len(names), s, &c.stderr)
			}
		}
		c := run("--env", "XDPRMA_KEY_FILE=x", "--", "true")
		if s := c.run(t); s != statusUsage || !strings.Contains(c.stderr.String(), "XDPRMA_KEY_FILE is what xdprma run itself tells each rank") {
			t.Errorf("status %d: %s", s, &c.stderr)
		}
	})
}

// TestVariablesAreOnNoCommandLine looks at all processes while a rank runs that has a secret.
func TestVariablesAreOnNoCommandLine(t *testing.T) {
	hereAndThere(t, func(t *testing.T, run func(args ...string) *invocation) {
		c := run("--env", "SECRET", "--", "sh", "-c", `grep -c "$SECRET" /proc/self/environ; for p in /proc/[0-9]*; do
			tr '\0' '\n' <$p/cmdline 2>/dev/null | { IFS= read -r x; while IFS= read -r x; do case $x in *$SECRET*) echo seen in $p;; esac; done; }
		done`)
		c.Env = append(c.Environ(), "SECRET=the-secret-of-this-test")
		if s := c.run(t); s != 0 || c.stdout.String() != "1\n" {
			t.Errorf("status %d: %s%s", s, &c.stdout, &c.stderr)
		}
	})
}
