// Package stranger uses the library as somebody does who has never seen this repository: from
// a module of his own, with the library and its command out of a module proxy.
package stranger

import (
	"archive/zip"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

const (
	library  = "github.com/xdprma/xdprma"
	commands = library + "/cmd"
	version  = "v0.1.0" // which cmd/go.mod requires of the library
	root     = "../../.."
)

// compiled are the modules that are compiled into each program that imports the library.
var compiled = []string{
	"github.com/cespare/xxhash/v2", "github.com/cilium/ebpf", "github.com/klauspost/cpuid/v2", "github.com/vishvananda/netlink",
	"github.com/vishvananda/netns", "github.com/zeebo/xxh3", "golang.org/x/crypto", "golang.org/x/sys",
	"kernel.org/pub/linux/libs/security/libcap/psx",
}

// requirements are the modules in the library's go.mod, in order: those, and what its tests need.
var requirements = append(slices.Clip(compiled), "pgregory.net/rapid")

// apart are modules that only the commands need.
var apart = []string{commands, "github.com/HdrHistogram/hdrhistogram-go", "github.com/urfave/cli/v3"}

// A module is a folder outside of the repository, and what Go needs to work there.
type module struct {
	dir, bin string
	env      []string
}

// newModule makes an empty folder in which Go finds the library in a proxy made from the
// checkout, and all other modules where they are or would be got for the checkout.
func newModule(t *testing.T) *module {
	t.Helper()
	proxy, cache := t.TempDir(), t.TempDir()
	publish(t, proxy, library, root)
	publish(t, proxy, commands, filepath.Join(root, "cmd"))
	m := &module{dir: t.TempDir(), bin: t.TempDir()}
	m.env = append(os.Environ(), "PWD="+m.dir, "GOWORK=off", "GOBIN="+m.bin, "GOMODCACHE="+cache, "GOSUMDB=off",
		"GOFLAGS=-trimpath -modcacherw", // the cache of compiled packages is of use, and that of modules can be removed
		fmt.Sprintf("GOPROXY=file://%s,file://%s/cache/download,%s", proxy, goEnv(t, "GOMODCACHE"), goEnv(t, "GOPROXY")))
	return m
}

// goEnv returns a setting of the Go that runs the test.
func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatalf("go env %s: %v", name, err)
	}
	return strings.TrimSpace(string(out))
}

// run runs a command in the module's folder and returns what it printed.
func (m *module) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = m.dir, m.env
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // the launcher has to end its ranks
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// write makes a file in the module's folder.
func (m *module) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// publish puts the module in a folder of the checkout into a proxy, as go help goproxy says.
func publish(t *testing.T, proxy, path, from string) {
	t.Helper()
	to := filepath.Join(proxy, filepath.FromSlash(path), "@v")
	mod, err := os.ReadFile(filepath.Join(from, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"list": version + "\n", version + ".info": fmt.Sprintf(`{"Version":%q}`, version), version + ".mod": string(mod)} {
		if err := os.WriteFile(filepath.Join(to, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := pack(filepath.Join(to, version+".zip"), path+"@"+version+"/", from); err != nil {
		t.Fatalf("pack %s: %v", path, err)
	}
}

// pack writes the files of the module in a folder to a zip file, with a prefix to their names.
// Modules in folders below are none of its own.
func pack(file, prefix, from string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	w := zip.NewWriter(f)
	err = filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != from:
			_, err := os.Stat(filepath.Join(name, "go.mod"))
			if err == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" {
				return filepath.SkipDir
			}
			return nil
		case !d.Type().IsRegular() || d.Name() == ".git": // which is a file in a work tree
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		entry, err := w.Create(prefix + filepath.ToSlash(rel))
		if err != nil {
			return err
		}
		_, err = entry.Write(text)
		return err
	})
	if err != nil {
		return err
	}
	return w.Close()
}

// blocks returns what stands between ``` and ``` in README.md: the program first, then the commands that
// make it, then those that run it.
func blocks(t *testing.T) []string {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for i, part := range strings.Split(string(readme), "```") {
		if i%2 == 1 {
			found = append(found, part)
		}
	}
	if len(found) < 3 || !strings.HasPrefix(found[0], "go\n") {
		t.Fatal("README.md has not a program between ```go and ```, and commands in the two blocks after it")
	}
	return found
}

// follow runs the commands in a block of README.md, but for those that take privileges, and returns
// what each has printed.
func (m *module) follow(t *testing.T, block string) (printed []string) {
	t.Helper()
	for line := range strings.Lines(block) {
		command, _, _ := strings.Cut(line, "#")
		words := strings.Fields(command)
		if len(words) == 0 || words[0] == "sudo" {
			continue
		}
		if words[0] == "xdprma" {
			words[0] = filepath.Join(m.bin, words[0])
		}
		printed = append(printed, m.run(t, words[0], words[1:]...))
	}
	return printed
}

// required returns the modules that one module of the build list requires.
func (m *module) required(t *testing.T, of string) []string {
	t.Helper()
	var paths []string
	for line := range strings.Lines(m.run(t, "go", "mod", "graph")) {
		if from, to, _ := strings.Cut(strings.TrimSpace(line), " "); from == of {
			if path, _, _ := strings.Cut(to, "@"); path != "go" {
				paths = append(paths, path)
			}
		}
	}
	slices.Sort(paths)
	return paths
}

// newProgram makes a module of the README's program, with the commands that stand there.
func newProgram(t *testing.T) *module {
	t.Helper()
	m := newModule(t)
	text := blocks(t)
	m.write(t, "main.go", strings.TrimPrefix(text[0], "go\n"))
	m.follow(t, text[1])
	return m
}

func TestAProgramOutside(t *testing.T) {
	testenv.Only(t, testenv.Stranger)
	m := newProgram(t)
	t.Run("modules", func(t *testing.T) { m.hasFewModules(t) })
	t.Run("README", func(t *testing.T) { m.runsAsWritten(t) })
	t.Run("rmatest", func(t *testing.T) { m.testsItself(t) })
	t.Run("checkout", func(t *testing.T) { m.takesACheckout(t) })
}

// itsTest is a test of a program, whose ranks lose frames.
const itsTest = `package main

import (
	"testing"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

func TestCounter(t *testing.T) {
	network := rmatest.Network{Seed: 1, Loss: 0.05}
	rmatest.Run(t, 4, func(t *rmatest.T, node *rma.Node) {
		ctx := t.Context()
		win, err := rma.AllocateOf[int64](ctx, node.World(), 1)
		t.Must(err)
		t.Must(win.LockAll(ctx))
		for range 25 {
			t.Must(win.Update(1, 0, rma.At(0), rma.Sum))
		}
		t.Must(win.UnlockAll(ctx))
		t.Must(node.World().Barrier(ctx))
		counts := make([]int64, 1)
		t.Must(comm.Allreduce(ctx, node.World(), win.Memory(), counts, datatype.Sum))
		if counts[0] != 100 {
			t.Errorf("the counter is %d, want 100", counts[0])
		}
		t.Must(win.Free(ctx))
	}, &network)
}
`

// testsItself runs the program's test, without privileges, and under the race detector where
// there is a compiler for that.
func (m *module) testsItself(t *testing.T) {
	m.write(t, "main_test.go", itsTest)
	testenv.ForAll(t, m.dir)
	m.run(t, "go", "mod", "tidy")
	for _, detector := range []bool{false, true} {
		args := []string{"test", "-c", "-o", "prog.test"}
		if detector {
			if m.run(t, "go", "env", "CGO_ENABLED") != "1\n" {
				continue
			}
			args = append(args, "-race")
		}
		m.run(t, "go", append(args, ".")...)
		c := exec.CommandContext(t.Context(), filepath.Join(m.dir, "prog.test"), "-test.v", "-test.count=1")
		c.Dir, c.WaitDelay = "/", 10*time.Second
		if os.Geteuid() == 0 {
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestCounter") {
			t.Errorf("race detector %t: %v\n%s", detector, err, out)
		}
	}
}

// hasFewModules holds what the library requires to what an importer needs, so that he has
// nothing to do with that of the commands and tools. The rest of his build list comes from the
// requirements themselves.
func (m *module) hasFewModules(t *testing.T) {
	if got := m.required(t, library+"@"+version); !slices.Equal(got, requirements) {
		t.Errorf("the library requires %q, want %q", got, requirements)
	}
	want := slices.Sorted(slices.Values(append([]string{library}, compiled...)))
	if got := m.required(t, "prog"); !slices.Equal(got, want) {
		t.Errorf("a program that imports rma requires %q, want %q", got, want)
	}
	for line := range strings.Lines(m.run(t, "go", "list", "-m", "all")) {
		path, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if slices.Contains(apart, path) {
			t.Errorf("the build list of a program that imports rma has %s, which the commands alone need", path)
		}
	}
}

// takesACheckout builds the program with the library in the checkout, as the README's comment says.
func (m *module) takesACheckout(t *testing.T) {
	_, command, found := strings.Cut(blocks(t)[1], ": go mod edit ")
	command, _, _ = strings.Cut(command, "\n")
	checkout, err := filepath.Abs(root)
	if err != nil || !found {
		t.Fatalf("README.md has no go mod edit: %v", err)
	}
	m.run(t, "go", append([]string{"mod", "edit"}, strings.Fields(strings.ReplaceAll(command, "../xdprma", checkout))...)...)
	m.run(t, "go", "mod", "tidy")
	m.run(t, "go", "build", "-o", "prog", ".")
	if used := m.run(t, "go", "list", "-m", library); !strings.Contains(used, checkout) {
		t.Errorf("the program is built with %s", used)
	}
}

// runsAsWritten starts the program with the README's commands.
func (m *module) runsAsWritten(t *testing.T) {
	m.run(t, "go", "vet", "./...")
	printed := m.follow(t, blocks(t)[2])
	if out := m.run(t, filepath.Join(m.bin, "xdprma"), "--version"); !strings.Contains(out, version) {
		t.Errorf("xdprma --version printed %q, without %s", out, version)
	}
	out := printed[len(printed)-1]
	for _, want := range []string{"rank 0 of 2 found", "rank 1 of 2 found", "counter: 2"} {
		if !strings.Contains(out, want) {
			t.Errorf("the program printed no %q:\n%s", want, out)
		}
	}
}
