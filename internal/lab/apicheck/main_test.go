package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

const root = "../../.."

// repository is a module with a version tag and files that have changed since.
func repository(t *testing.T, tag string, before, after map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"go.mod":       "module example.org/lib\n\ngo 1.26.0\n",
		"go.work":      "use ./gone\n", // a workspace is none of its business
		"CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n\n## [0.1.0]\n\n- Incompatible, rma: that was then.\n",
	})
	write(t, dir, before)
	git(t, dir, "init", "--quiet")
	git(t, dir, "add", ".")
	git(t, dir, "commit", "--quiet", "-m", "before")
	if tag != "" {
		git(t, dir, "tag", tag)
	}
	git(t, dir, "commit", "--quiet", "--allow-empty", "-m", "after")
	write(t, dir, after)
	return dir
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	args = append([]string{"-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"}, args...)
	if _, err := run(dir, "git", args...); err != nil {
		t.Fatal(err)
	}
}

func TestCheck(t *testing.T) {
	testenv.NeedsCommand(t, "git", "git")
	apidiff, err := run(root, "go", "-C", "tools", "tool", "-n", "apidiff")
	if err != nil {
		t.Fatal(err)
	}
	const (
		wide     = "package rma\n\nfunc At(int64) {}\n\nfunc Of(int) {}\n"
		narrow   = "package rma\n\nfunc At(int32) {}\n\nfunc Of(int) {}\n"
		more     = wide + "\nfunc More() {}\n"
		internal = "package engine\n\nfunc Step() {}\n"
		exempted = "package bpf\n\nfunc Put() {}\n"
	)
	before := map[string]string{"rma/rma.go": wide, "comm/sub/sub.go": "package sub\n", "internal/engine/engine.go": internal, "bpf/bpf.go": exempted}
	log := func(unreleased string) string {
		return "# Changelog\n\n## [Unreleased]\n\n### Changed\n\n" + unreleased + "\n\n## [0.1.0]\n"
	}
	for _, test := range []struct {
		name, tag string
		after     map[string]string
		says      []string // parts of the output, in order
		fault     string   // part of the error; empty: none
	}{
		{"no tag", "", map[string]string{"rma/rma.go": narrow}, []string{"no version tag"}, ""},
		{"another tag", "cmd/tool/v0.1.0", map[string]string{"rma/rma.go": narrow}, []string{"no version tag"}, ""},
		{"nothing", "v0.1.0", nil, []string{"compared with v0.1.0:\nno change\n"}, ""},
		{"compatible", "v0.1.0", map[string]string{"rma/rma.go": more}, []string{"- ./rma.More: added\n"}, ""},
		{"not told", "v0.1.0", map[string]string{"rma/rma.go": narrow},
			[]string{"- ./rma.At: changed from func(int64) to func(int32) (incompatible)"}, "\n- Incompatible, rma: "},
		{"told", "v0.1.0", map[string]string{"rma/rma.go": narrow, "CHANGELOG.md": log("- Incompatible, rma: At takes an int32.")},
			[]string{"(incompatible)"}, ""},
		{"told of another", "v0.1.0", map[string]string{"rma/rma.go": narrow, "CHANGELOG.md": log("- Incompatible, comm: At takes an int32.")},
			nil, "\n- Incompatible, rma: "},
		{"a package has another name", "v0.1.0", map[string]string{"comm/sub/sub.go": "package sub\n\nfunc F() {}\n", "rma/rma.go": "package other\n"},
			[]string{"./rma.At: removed (incompatible)", "./comm/sub.F: added\n"}, "\n- Incompatible, rma: "},
		{"internal, and a part of the library", "v0.1.0",
			map[string]string{"internal/engine/engine.go": "package engine\n", "bpf/bpf.go": "package bpf\n"}, []string{"no change"}, ""},
		{"after v1", "v1.2.0", map[string]string{"rma/rma.go": narrow, "CHANGELOG.md": log("- Incompatible, rma: At takes an int32.")},
			nil, "incompatible changes of rma since v1.2.0"},
		{"does not compile", "v0.1.0", map[string]string{"rma/rma.go": "package rma\n\nvar x int = \"\"\n"}, nil, "rma.go"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out strings.Builder
			err := check(&out, repository(t, test.tag, before, test.after), apidiff)
			switch {
			case err == nil && test.fault != "":
				t.Errorf("no error, want one with %q", test.fault)
			case err != nil && (test.fault == "" || !strings.Contains(err.Error(), test.fault)):
				t.Errorf("error %v, want one with %q", err, test.fault)
			}
			rest := out.String()
			for _, part := range test.says {
				var found bool
				if _, rest, found = strings.Cut(rest, part); !found {
					t.Errorf("printed\n%s\nwithout %q in its place", &out, part)
				}
			}
		})
	}
}

// A shallow checkout has no tags, and says how to get them.
func TestShallow(t *testing.T) {
	testenv.NeedsCommand(t, "git", "git")
	from := repository(t, "v0.1.0", map[string]string{"rma/rma.go": "package rma\n"}, nil)
	dir := filepath.Join(t.TempDir(), "shallow")
	git(t, from, "clone", "--quiet", "--depth", "1", "file://"+from, dir)
	var out strings.Builder
	if err := check(&out, dir, "unused"); err != nil || !strings.Contains(out.String(), "git fetch --unshallow --tags") {
		t.Errorf("%v, printed\n%s", err, &out)
	}
}

// A source tree without a history is no fault.
func TestNoRepository(t *testing.T) {
	var out strings.Builder
	if err := check(&out, t.TempDir(), "unused"); err != nil || !strings.Contains(out.String(), "no checkout") {
		t.Errorf("%v, printed\n%s", err, &out)
	}
}

// Each package that others can import is a promise or is not, and docs/stability.md says which.
func TestPackagesAreClassified(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/stability.md")
	if err != nil {
		t.Fatal(err)
	}
	list := exec.Command("go", "list", "-f", `{{if and .GoFiles (ne .Name "main")}}{{.ImportPath}}{{end}}`, "./...")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	promised, others, found := strings.Cut(string(page), "\nThese packages ")
	if !found {
		t.Fatal(`docs/stability.md has no paragraph that begins with "These packages"`)
	}
	others, _, _ = strings.Cut(others, "\n\n")
	for name := range strings.FieldsSeq(string(out)) {
		_, pkg, _ := strings.Cut(name, "github.com/xdprma/xdprma/")
		if strings.Contains("/"+pkg+"/", "/internal/") {
			continue
		}
		row, part := strings.Contains(promised, "\n| `"+pkg+"` |"), strings.Contains(others, "`"+strings.SplitN(pkg, "/", 2)[0]+"`")
		if row == isExempt(pkg) || part != isExempt(pkg) {
			t.Errorf("docs/stability.md: package %s is in the table: %v, and among those that may change at any time: %v; here it is exempt: %v", pkg, row, part, isExempt(pkg))
		}
	}
}
