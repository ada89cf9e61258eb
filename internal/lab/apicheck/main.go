// Command apicheck compares the exported names of the public packages with those of the last
// version, which is the nearest version tag before HEAD, and prints what is different. It
// fails if a change is incompatible and users are not told: before v1.0 the section
// Unreleased of CHANGELOG.md needs an entry that begins with "- Incompatible, PACKAGE: " for
// each such package. From v1.0 on it fails for any incompatible change. Where there is no
// version tag it says so and succeeds.
//
//	go run ./internal/lab/apicheck path/of/apidiff
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// exempt are the folders whose packages may change with any version: examples, tests, and
// what serves the library alone. docs/stability.md names the latter.
var exempt = []string{"bpf", "examples", "vmtests"}

func isExempt(pkg string) bool {
	return slices.ContainsFunc(exempt, func(dir string) bool { return pkg == dir || strings.HasPrefix(pkg, dir+"/") })
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: apicheck path/of/apidiff")
		os.Exit(2)
	}
	apidiff, err := filepath.Abs(os.Args[1]) // it runs in other folders
	if err == nil {
		err = check(os.Stdout, ".", apidiff)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "apicheck:", err)
		os.Exit(1)
	}
}

// check compares the files of the checkout dir with its last version.
func check(w io.Writer, dir, apidiff string) error {
	tag, err := lastVersion(w, dir)
	if err != nil || tag == "" {
		return err
	}
	temp, err := os.MkdirTemp("", "xdprma-api-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	old := filepath.Join(temp, "old")
	if err := os.Mkdir(old, 0o755); err != nil {
		return err
	}
	archive := filepath.Join(temp, "old.tar")
	if _, err := run(dir, "git", "archive", "--output", archive, tag); err != nil {
		return err
	}
	if _, err := run(old, "tar", "-xf", archive); err != nil {
		return err
	}
	module, err := run(dir, "go", "list", "-m")
	if err != nil {
		return err
	}
	oldAPI, newAPI := filepath.Join(temp, "old.api"), filepath.Join(temp, "new.api")
	if _, err := run(old, apidiff, "-m", "-w", oldAPI, module); err != nil {
		return fmt.Errorf("%s: %w", tag, err)
	}
	if _, err := run(dir, apidiff, "-m", "-w", newAPI, module); err != nil {
		return err
	}
	report, err := run(dir, apidiff, "-m", oldAPI, newAPI)
	if err != nil {
		return err
	}
	changelog, err := os.ReadFile(filepath.Join(dir, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	return judge(w, tag, module, report, string(changelog))
}

// lastVersion returns the nearest version tag before HEAD; "" after saying that there is none.
func lastVersion(w io.Writer, dir string) (string, error) {
	const versions = "v[0-9]*"
	if _, err := os.Stat(filepath.Join(dir, ".git")); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(w, "nothing to compare the API with: this is no checkout of a git repository")
		return "", nil
	}
	tags, err := run(dir, "git", "tag", "--list", "--merged", "HEAD", versions)
	if err != nil {
		return "", err
	}
	if tags != "" {
		return run(dir, "git", "describe", "--tags", "--abbrev=0", "--match", versions)
	}
	fmt.Fprintln(w, "nothing to compare the API with: no version tag is an ancestor of HEAD")
	shallow, err := run(dir, "git", "rev-parse", "--is-shallow-repository")
	if shallow == "true" {
		fmt.Fprintln(w, "this checkout is shallow: `git fetch --unshallow --tags` gets older commits and their tags")
	}
	return "", err
}

// judge prints what apidiff reports of public packages, and returns an error if one has an
// incompatible change that may not be, or that the changelog does not announce.
func judge(w io.Writer, tag, module, report, changelog string) error {
	subject := regexp.MustCompile(`^- (?:\./|package ` + regexp.QuoteMeta(module) + `/)([^.: ]+)[.:]`)
	told := announced(changelog)
	incompatible, any := false, false
	var untold []string
	fmt.Fprintf(w, "compared with %s:\n", tag)
	for line := range strings.Lines(report) {
		line = strings.TrimSpace(line)
		switch line {
		case "":
			continue
		case "Incompatible changes:", "Compatible changes:":
			incompatible = line == "Incompatible changes:"
			continue
		}
		m := subject.FindStringSubmatch(line)
		if m == nil {
			return fmt.Errorf("apidiff's line %q names no package of %s", line, module)
		}
		pkg := m[1]
		if isExempt(pkg) {
			continue
		}
		any = true
		if !incompatible {
			fmt.Fprintln(w, line)
			continue
		}
		fmt.Fprintln(w, line, "(incompatible)")
		stable := !strings.HasPrefix(tag, "v0.")
		if (stable || !slices.Contains(told, pkg)) && !slices.Contains(untold, pkg) {
			untold = append(untold, pkg)
		}
	}
	switch {
	case !any:
		fmt.Fprintln(w, "no change")
		return nil
	case len(untold) == 0:
		return nil
	case !strings.HasPrefix(tag, "v0."):
		return fmt.Errorf("incompatible changes of %s since %s: keep the old names and mark them deprecated (docs/stability.md)", strings.Join(untold, ", "), tag)
	}
	var entries strings.Builder
	for _, pkg := range untold {
		fmt.Fprintf(&entries, "\n- Incompatible, %s: what changed, and what to write instead", pkg)
	}
	return fmt.Errorf("incompatible changes since %s that CHANGELOG.md does not announce; add to its section Unreleased:%s", tag, &entries)
}

// announced returns the packages of which the changelog's section Unreleased tells
// incompatible changes.
func announced(changelog string) (packages []string) {
	const heading = "## [Unreleased]"
	entry := regexp.MustCompile(`^- Incompatible, ([^:]+): `)
	inside := false
	for line := range strings.Lines(changelog) {
		if strings.HasPrefix(line, "## ") {
			inside = strings.TrimSpace(line) == heading
		}
		if m := entry.FindStringSubmatch(line); inside && m != nil {
			packages = append(packages, m[1])
		}
	}
	return packages
}

// run returns what a command prints. It sees the module of dir alone, whatever workspace
// dir is in.
func run(dir, name string, args ...string) (string, error) {
	c := exec.Command(name, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GOWORK=off")
	var out, problem bytes.Buffer
	c.Stdout, c.Stderr = &out, &problem
	if err := c.Run(); err != nil {
		return "", errors.Join(fmt.Errorf("%s: %w", c, err), errors.New(strings.TrimSpace(problem.String())))
	}
	return strings.TrimSpace(out.String()), nil
}
