package bootstrap

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// keyFile makes a file with a mode.
func keyFile(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "job.key")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestKeyFilesAreReadOrToldWhatIsWrong(t *testing.T) {
	key := secure.NewKey()
	text := key.Text() + "\n"
	link := func(path string) string {
		name := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(path, name); err != nil {
			t.Fatal(err)
		}
		return name
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		path string
		want string // in the error; empty: none
	}{
		"its owner's":           {keyFile(t, text, 0o600), ""},
		"read by its group":     {keyFile(t, text, 0o440), ""},
		"of a Secret":           {link(link(keyFile(t, text, 0o440))), ""},
		"as long as may be":     {keyFile(t, text+strings.Repeat("\n", maxKeyFile-len(text)), 0o600), ""},
		"of a careless Secret":  {link(link(keyFile(t, text, 0o644))), "its mode is 0644): use chmod 0600, and in a Secret volume of Kubernetes `defaultMode: 0440`"},
		"read by others":        {keyFile(t, text, 0o604), "may read it"},
		"written by its group":  {keyFile(t, text, 0o660), "may write it (its mode is 0660)"},
		"written by others":     {keyFile(t, text, 0o602), "may write it"},
		"too long":              {keyFile(t, text+strings.Repeat("\n", maxKeyFile), 0o600), "more than 4096 bytes"},
		"no key":                {keyFile(t, "secret", 0o600), "64 hexadecimal digits"},
		"empty":                 {keyFile(t, "", 0o600), "xdprma key"},
		"a folder":              {t.TempDir(), "not a regular file"},
		"a pipe":                {pipe, "not a regular file"},
		"not there":             {filepath.Join(t.TempDir(), "none"), "no such file"},
		"a link to what is not": {link("/nonexistent/key"), "no such file"},
	} {
		c, err := fromVariables(lookupIn(map[string]string{EnvKeyFile: test.path}))
		switch {
		case test.want == "" && (err != nil || c.Key == nil || *c.Key != key || c.KeyFile != test.path || c.Warnings != nil):
			t.Errorf("%s: %+v, %v", name, c, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), EnvKeyFile)):
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// TestKeyFileOfAnotherUser has users read files of others, and of root.
func TestKeyFileOfAnotherUser(t *testing.T) {
	testenv.NeedsRoot(t)
	key := secure.NewKey()
	folder, err := os.MkdirTemp("", "xdprma-key-test-") // that every user can enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	const somebody = 4711
	file := func(name string, user, group int, mode os.FileMode) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(key.Text()), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, user, group); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	theirs, rootsShared, rootsOwn := file("theirs", somebody, 0, 0o600), file("shared", 0, os.Getegid(), 0o440), file("own", 0, 0, 0o400)
	if _, err := readKeyFile(theirs); err == nil || !strings.Contains(err.Error(), "belongs to user 4711") {
		t.Errorf("root read another user's: %v", err)
	}
	asNobody(t, func() {
		if k, err := readKeyFile(rootsShared); err != nil || *k != key {
			t.Errorf("root's, by its group: %v", err)
		}
		if _, err := readKeyFile(rootsOwn); err == nil || !strings.Contains(err.Error(), "fsGroup") {
			t.Errorf("root's own: %v", err)
		}
	})
}

// TestKeyInTheEnvironmentIsTakenOut reads the environment twice: a process may join twice.
func TestKeyInTheEnvironmentIsTakenOut(t *testing.T) {
	key := secure.NewKey()
	t.Setenv(EnvKey, key.Text())
	t.Cleanup(func() { said.key = "" })
	for range 2 {
		c, err := FromEnvironment()
		if err != nil || c.Key == nil || *c.Key != key || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], EnvKeyFile) {
			t.Errorf("%+v, %v", c, err)
		}
		if s, set := os.LookupEnv(EnvKey); set {
			t.Errorf("it still says %q", s)
		}
		m, err := Open(testContext(t), c, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(m.Notices, c.Warnings) {
			t.Errorf("the operator is told %q", m.Notices)
		}
		m.Close()
	}
	for _, env := range []map[string]string{{EnvKey: key.Text()[1:]}, {EnvKey: key.Text(), EnvKeyFile: keyFile(t, key.Text(), 0o600)}} {
		_, err := fromVariables(lookupIn(env))
		if err == nil || !strings.Contains(err.Error(), EnvKey) || strings.Contains(err.Error(), key.Text()[1:]) {
			t.Errorf("%v", err)
		}
	}
}

// TestJobWithoutAKeyIsWarned joins at addresses that other hosts reach, and at others.
func TestJobWithoutAKeyIsWarned(t *testing.T) {
	key := secure.NewKey()
	for _, test := range []struct {
		name   string
		c      Config
		warned bool
	}{
		{"between hosts", Config{Size: 2, Rendezvous: "0.0.0.0:0", environment: true}, true},
		{"a rank that another one serves", Config{Rank: 1, Size: 2, Rendezvous: "0.0.0.0:0", environment: true}, false},
		{"with a key", Config{Size: 2, Rendezvous: "0.0.0.0:0", environment: true, Key: &key}, false},
		{"within a host", Config{Size: 2, Rendezvous: "127.0.0.1:0", environment: true}, false},
		{"at a unix socket", Config{Size: 2, Rendezvous: "unix:" + filepath.Join(t.TempDir(), "s"), environment: true}, false},
		{"alone", Config{Size: 1, Rendezvous: "0.0.0.0:0", environment: true}, false},
		{"by a program", Config{Size: 2, Rendezvous: "0.0.0.0:0"}, false},
	} {
		test.c.Job, test.c.Serve = testJob, true
		m, err := Open(testContext(t), test.c, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Contains(m.Notices, unauthenticated); got != test.warned {
			t.Errorf("%s: warned %t: %q", test.name, got, m.Notices)
		}
		m.Close()
	}
}
