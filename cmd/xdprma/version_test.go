package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// TestBuildNamesTheCommit has make build compile a small program in place of this command, in a
// repository of its own, though GOFLAGS says to leave the commit out.
func TestBuildNamesTheCommit(t *testing.T) {
	testenv.NeedsCommand(t, "git", "git")
	testenv.NeedsCommand(t, "make", "make")
	dir := t.TempDir()
	run := func(program string, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit)
		defer cancel()
		c := exec.CommandContext(ctx, program, args...)
		c.Dir = dir
		c.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", program, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	write("Makefile", string(makefile))
	still, err := os.ReadFile("../../internal/lab/progress/still.sh") // which has make build speak
	if err != nil {
		t.Fatal(err)
	}
	write("internal/lab/progress/still.sh", string(still))
	write(".gitignore", "/bin/\n")
	write("go.mod", "module example.org/small\n\ngo 1.26\n")
	write("cmd/xdprma/main.go", "package main\n\nimport \"runtime/debug\"\n\nfunc main() {\n\tinfo, _ := debug.ReadBuildInfo()\n\tprintln(info.Main.Version)\n}\n")
	built := func() string {
		t.Helper()
		run("make", "build")
		return run(filepath.Join(dir, "bin", "xdprma"))
	}
	if got := built(); got != "(devel)" {
		t.Errorf("without a repository the version is %q", got)
	}
	run("git", "init", "-q")
	run("git", "add", ".")
	run("git", "-c", "user.name=test", "-c", "user.email=test@example.org", "commit", "-qm", "first")
	commit := run("git", "rev-parse", "--short=12", "HEAD")
	if got := built(); !strings.HasSuffix(got, commit) {
		t.Errorf("the version is %q, and the commit %q", got, commit)
	}
	write("Makefile", string(makefile)+"\n")
	if got := built(); !strings.HasSuffix(got, commit+"+dirty") {
		t.Errorf("with a change the version is %q, and the commit %q", got, commit)
	}
}
