package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// arch is a kind of processor, on whose machines the project is tried.
type arch struct {
	name       string   // for Go and for Debian
	folder     string   // what is of it in the cache
	qemu       string   // QEMU's program
	oldest     string   // version of it that does
	from       string   // the package with it
	path       string   // the variable of the environment that names another
	board      []string // QEMU's options for the machine
	processor  string   // which one software emulates
	told       string   // what a kernel is told where software emulates its processors
	serial     string   // the kernel's name of a serial line, without its number
	onlyNewest bool     // of the suites its newest kernel alone is tried, and only with virtio_net
}

// steady has a kernel trust the counter of emulated processors. It is steady, but so slow that the kernel comes to
// doubt it, and from then on each look at the clock is a system call. And it has the kernel change no page tables at
// system calls, which takes an emulated processor longer than a put, and which processors of today do not need. All
// else that guards against spying stays, because the verifier asks more of programs then.
const steady = "tsc=reliable pti=off"

// arches are all kinds. QEMU's board virt has a second serial line from 9.1 on.
var arches = []*arch{
	{name: "amd64", qemu: "qemu-system-x86_64", oldest: "8.0", from: "qemu-system-x86", path: "QEMU", processor: "Haswell-v4", told: steady, serial: "ttyS"},
	{
		name: "arm64", folder: "arm64", qemu: "qemu-system-aarch64", oldest: "9.1", from: "qemu-system-arm", path: "QEMU_ARM64",
		board: []string{"-M", "virt"}, processor: "neoverse-n1", serial: "ttyAMA", onlyNewest: true,
	},
}

// userland is the suite that the programs in a machine are from, whatever its kernel.
const userland = "trixie"

// utilities are the packages of programs that all machines have.
var utilities = []string{"bash", "coreutils", "dash", "grep", "iproute2", "util-linux", "xdp-tools"}

// packages are Debian's for such processors.
func (a *arch) packages(cache, mirror string, suites []string) (*debian, error) {
	return openDebian(filepath.Join(cache, a.folder, "apt"), a.name, mirror, unique(append(slices.Clone(suites), userland)))
}

// kernels returns those that are tried, from old to new.
func (a *arch) kernels(cache, mirror string, suites []string) (all []*kernel, err error) {
	d, err := a.packages(cache, mirror, suites)
	if err != nil {
		return nil, err
	}
	tried := suites
	if a.onlyNewest {
		tried = suites[len(suites)-1:]
	}
	for _, s := range tried {
		k, err := fetchKernel(d, filepath.Join(cache, a.folder), s, a)
		if err != nil {
			return nil, err
		}
		all = append(all, k)
	}
	return all, nil
}

// setOf is the name of a folder with packages of the userland.
func setOf(packages []string) string { return userland + "+" + strings.Join(packages, "+") }

// host is what boots machines of one kind of processor.
type host struct {
	*emulator
	files *files
	how   string // it runs their processors
}

// newHost gets what machines of the kernel's kind need. Packages for this machine come from own.
func newHost(k *kernel, own *debian, o *options, cache, backports string, suites []string) (*host, error) {
	a, folder := k.arch, filepath.Join(cache, k.arch.folder)
	q, err := findQEMU(own, folder, backports, a)
	if err != nil {
		return nil, err
	}
	d, err := a.packages(cache, o.mirror, suites)
	if err != nil {
		return nil, err
	}
	fmt.Printf("building the tests and examples for %s\n", a.name)
	built, err := build(folder, a.name)
	if err != nil {
		return nil, err
	}
	f := &files{cache: folder, built: built, userland: filepath.Join(folder, setOf(utilities)), perftest: filepath.Join(folder, setOf(perftest))}
	err = d.fetch(f.userland, userland, "", utilities...)
	if !a.onlyNewest {
		err = errors.Join(err, d.fetch(f.perftest, userland, "", perftest...))
	}
	if err != nil {
		return nil, err
	}
	how := q.choose(k, f, filepath.Join(cache, "logs", fileName("probe "+a.name)+".log"))
	fmt.Printf("the processors of %s run by %s\n", a.name, how)
	return &host{q, f, how}, nil
}
