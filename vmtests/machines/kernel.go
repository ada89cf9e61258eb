package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// kernel is one of Debian's kernels, unpacked.
type kernel struct {
	arch           *arch
	suite, release string
	image          string
	modules        map[string]string // the files of its modules, by name
}

// fetchKernel returns the newest kernel of a suite.
func fetchKernel(d *debian, cache, suite string, a *arch) (*kernel, error) {
	names, err := d.newest(suite, "linux-image-"+a.name, regexp.MustCompile(`^linux-(image|binary|modules)-[0-9]`))
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cache, "kernels", names[0])
	if err := d.unpack(dir, names); err != nil {
		return nil, err
	}
	k := &kernel{arch: a, suite: suite, modules: map[string]string{}}
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		name := e.Name()
		if strings.HasPrefix(name, "vmlinuz") {
			k.image = path
		}
		if module, _, ok := strings.Cut(name, ".ko"); ok && e.Type().IsRegular() {
			k.modules[moduleName(module)] = path
		}
		if r, ok := strings.CutPrefix(filepath.Dir(path)+"/", dir); ok && filepath.Base(r) == "modules" {
			k.release = name
		}
		return err
	})
	if err == nil && (k.image == "" || k.release == "" || len(k.modules) == 0) {
		err = fmt.Errorf("%s: no kernel with modules is in %v: remove the folder, and try again", dir, names)
	}
	return k, err
}

// moduleName is a module's name as the kernel knows it: files have hyphens in places.
func moduleName(s string) string { return strings.ReplaceAll(s, "-", "_") }

// load adds modules to an archive in the order of their loading, with those that they depend on.
// A name that is no module of it is taken for built in.
func (k *kernel) load(a *archive, dir string, names ...string) error {
	var order []string
	var visit func(name string) error
	visit = func(name string) error {
		path, ok := k.modules[name]
		if !ok || slices.Contains(order, name) {
			return nil
		}
		below, err := dependencies(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, b := range below {
			if err := visit(b); err != nil {
				return err
			}
		}
		order = append(order, name)
		return nil
	}
	for _, name := range names {
		if err := visit(name); err != nil {
			return err
		}
	}
	for i, name := range order {
		path := k.modules[name]
		a.file(fmt.Sprintf("%s/%03d-%s", dir, i, filepath.Base(path)), path)
	}
	return nil
}

// dependencies returns the modules that a module says it needs.
func dependencies(path string) ([]string, error) {
	content, err := os.ReadFile(path)
	if err == nil && strings.HasSuffix(path, ".xz") {
		content, err = exec.Command("xz", "-dc", path).Output()
	}
	if err != nil {
		return nil, err
	}
	module, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	info, err := module.Section(".modinfo").Data()
	if err != nil {
		return nil, err
	}
	for entry := range strings.SplitSeq(string(info), "\x00") {
		if list, ok := strings.CutPrefix(entry, "depends="); ok && list != "" {
			return strings.Split(moduleName(list), ","), nil
		}
	}
	return nil, nil
}
