package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// debian is Debian's packages, as the machine's apt finds and checks them. Its lists and what it
// fetches are in a folder of their own: nothing of the machine changes.
type debian struct {
	dir     string
	options []string
}

const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// openDebian reads the lists of the suites, unless it did so within a day. The packages are for machines
// with processors of the kind arch.
func openDebian(dir, arch, mirror string, suites []string) (*debian, error) {
	for _, c := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		if _, err := exec.LookPath(c); err != nil {
			return nil, fmt.Errorf("kernels come from Debian's packages, and this machine has no %s: run this on a machine with Debian", c)
		}
	}
	if mirror == "" {
		var err error
		if mirror, err = ownMirror(); err != nil {
			return nil, err
		}
	}
	var sources strings.Builder
	for _, s := range suites {
		fmt.Fprintf(&sources, "deb [signed-by=%s] %s %s main\n", keyring, mirror, s)
	}
	d := &debian{dir: dir}
	list, lists, nothing := filepath.Join(dir, "sources.list"), filepath.Join(dir, "lists"), filepath.Join(dir, "status")
	d.options = []string{
		"-oDir::Etc::sourcelist=" + list, "-oDir::Etc::sourceparts=-", "-oDir::Etc::preferencesparts=-", "-oDir::State::Lists=" + lists,
		"-oDir::Cache=" + dir, "-oAPT::Sandbox::User=root", "-oAcquire::Languages=none",
		"-oAPT::Architecture=" + arch, "-oAPT::Architectures=" + arch,
	}
	for _, sub := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	was, _ := os.ReadFile(list)
	if about, err := os.Stat(nothing); err == nil && string(was) == sources.String() && time.Since(about.ModTime()) < 24*time.Hour {
		return d, nil
	}
	if err := os.WriteFile(list, []byte(sources.String()), 0o644); err != nil {
		return nil, err
	}
	fmt.Printf("reading the lists of %s for %s at %s\n", strings.Join(suites, ", "), arch, mirror)
	if _, err := d.tool("apt-get", "-oAPT::Update::Error-Mode=any", "update"); err != nil {
		return nil, fmt.Errorf("packages cannot be fetched: look at the network, or name a mirror of Debian as MIRROR: %w", err)
	}
	return d, os.WriteFile(nothing, nil, 0o644) // the status of a machine on which nothing is installed
}

// ownMirror returns where the machine gets Debian's packages from.
func ownMirror() (string, error) {
	out, err := command("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian", "Label: Debian")
	if err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(out, "\n")
	if first == "" {
		return "", errors.New("this machine's apt knows no mirror of Debian: run apt-get update, or name one as MIRROR")
	}
	return first, nil
}

func (d *debian) tool(name string, args ...string) (string, error) {
	return command(name, slices.Concat(d.options, args)...)
}

// fetch fetches packages of a suite, and what else they need, into a folder that it makes, with all
// that is in them. has names the file of the packages that are there already; with none, all are
// fetched.
func (d *debian) fetch(into, suite, has string, packages ...string) error {
	if exists(into) {
		return nil
	}
	state := "-oDir::State::status=" + has
	if has == "" {
		state = "-oDir::State::status=" + filepath.Join(d.dir, "status")
	}
	out, err := d.tool("apt-get", slices.Concat([]string{state, "-t", suite, "-y", "--no-install-recommends", "--print-uris", "install"}, packages)...)
	if err != nil {
		return err
	}
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^'[^']*' (\S+?)_(\S+?)_\S+\.deb `).FindAllStringSubmatch(out, -1) {
		names = append(names, m[1]+"="+strings.ReplaceAll(m[2], "%3a", ":"))
	}
	return d.unpack(into, names)
}

// newest returns the packages that a package depends on in a suite, directly or not, and that
// match the pattern.
func (d *debian) newest(suite, name string, pattern *regexp.Regexp) (found []string, err error) {
	out, err := d.tool("apt-cache", "-t", suite, "--no-recommends", "--no-suggests", "--no-breaks", "--no-conflicts", "--no-replaces", "--no-enhances", "--recurse", "depends", name)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(out) {
		if p := strings.TrimSpace(line); pattern.MatchString(p) && !slices.Contains(found, p) {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s of %s depends on nothing like %v", name, suite, pattern)
	}
	return found, nil
}

// unpack fetches packages and unpacks them into a folder, which is there only when all is in it.
func (d *debian) unpack(into string, packages []string) error {
	if exists(into) {
		return nil
	}
	half := into + ".half"
	if err := errors.Join(os.RemoveAll(half), os.MkdirAll(half+"/debs", 0o755)); err != nil {
		return err
	}
	fmt.Printf("fetching %s\n", strings.Join(packages, ", "))
	get := exec.Command("apt-get", slices.Concat(d.options, []string{"download"}, packages)...)
	get.Dir = half + "/debs"
	if out, err := get.CombinedOutput(); err != nil {
		return fmt.Errorf("fetch %v: %w\n%s", packages, err, out)
	}
	debs, err := filepath.Glob(half + "/debs/*.deb")
	if err != nil {
		return err
	}
	for _, deb := range debs {
		if _, err := command("dpkg-deb", "-x", deb, half); err != nil {
			return err
		}
	}
	return errors.Join(os.RemoveAll(half+"/debs"), os.Rename(half, into))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// command runs a program and returns what it prints.
func command(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, problems.String())
	}
	return string(out), nil
}
