package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/xdprma/xdprma/bpf/slot"
	"github.com/xdprma/xdprma/vmtests/machines/plan"
)

// build compiles what machines of a kind run, and returns an archive of it and of the project's files.
func build(cache, arch string) (string, error) {
	out := filepath.Join(cache, "programs")
	if err := os.MkdirAll(out, 0o755); err != nil {
		return "", err
	}
	compile := func(args ...string) error {
		cmd := exec.Command("go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch) // the machines have no C library
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, text)
		}
		return nil
	}
	if err := compile("build", "-ldflags=-w", "-o", out+"/", "./cmd/xdprma", "./examples/chapter", "./examples/wordcount", "./vmtests/machines/guest"); err != nil {
		return "", err
	}
	for _, s := range suites {
		if err := compile("test", "-c", "-vet=off", "-ldflags=-w", "-o", filepath.Join(out, s+".test"), "./"+s); err != nil {
			return "", err
		}
	}
	tracked, err := command("git", "ls-files")
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "programs.cpio")
	return path, write(path, func(a *archive) error {
		a.link("/init", commands+"/guest")
		a.tree(commands, out)
		a.data(commands+"/"+slotObject, 0o644, slot.Object())
		for name := range strings.FieldsSeq(tracked) {
			a.file(sources+"/"+name, name)
		}
		return nil
	})
}

// write makes an archive.
func write(path string, fill func(*archive) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	a := newArchive(f)
	if err := fill(a); err != nil {
		return err
	}
	return a.close()
}

// The users that tests run programs as.
const (
	users  = "root:x:0:0::/tmp:/bin/sh\ndaemon:x:1:1::/tmp:/bin/sh\nnobody:x:65534:65534::/tmp:/bin/sh\n"
	groups = "root:x:0:\ndaemon:x:1:\nnogroup:x:65534:\n"
)

// files makes what a machine begins with: archives that follow each other.
type files struct {
	cache, built, userland, perftest string
}

// of returns the archives of a machine: the project, and its own kernel modules, programs and steps.
func (f *files) of(m *machine) ([]string, error) {
	own := filepath.Join(f.cache, "machine.cpio")
	err := write(own, func(a *archive) error {
		job, err := json.Marshal(m.steps)
		if err != nil {
			return err
		}
		a.data(plan.Job, 0o644, job)
		for _, dir := range []string{"bin", "sbin", "lib", "lib64"} { // as Debian has them
			a.link(dir, "usr/"+dir)
		}
		a.tree("", f.userland)
		a.data("/etc/passwd", 0o644, []byte(users))
		a.data("/etc/group", 0o644, []byte(groups))
		if m.perftest {
			a.tree("", f.perftest)
		}
		modules := drivers
		if m.nic.driver != "" {
			modules = append([]string{m.nic.driver}, drivers...)
		}
		return m.kernel.load(a, plan.Modules, modules...)
	})
	return []string{f.built, own}, err
}
