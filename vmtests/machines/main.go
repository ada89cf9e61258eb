// Machines boots Debian's kernels in virtual machines with the NICs that QEMU emulates, runs the
// project's tests and examples there, and writes into a page what works where. It needs a network,
// for kernels and QEMU, which it keeps in a folder; it installs nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/xdprma/xdprma/vmtests/machines/plan"
)

func main() {
	var o options
	flag.StringVar(&o.cache, "cache", "vmtests/machines/cache", "keep packages, kernels and logs in this `folder`")
	flag.StringVar(&o.mirror, "mirror", "", "get packages from this mirror of Debian; default: the one of this machine's apt")
	flag.StringVar(&o.only, "only", "", "boot only machines whose name matches this `pattern`; of the others the page has what was found before")
	flag.StringVar(&o.suites, "suites", "bookworm,trixie,trixie-backports", "try the newest kernels of these suites, from old to new")
	flag.StringVar(&o.page, "page", "docs/kernels.md", "write what works where into this `file`")
	flag.StringVar(&o.steps, "steps", "", "carry out only steps whose name matches this `pattern`, and leave the page as it is")
	flag.StringVar(&o.tests, "run", "", "run only tests whose name matches this `pattern`, and leave the page as it is")
	flag.BoolVar(&o.full, "full", false, "run the tests that -short leaves out, too")
	flag.Parse()
	runtime.LockOSThread() // QEMU ends with the thread that starts it
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "machines:", err)
		os.Exit(1)
	}
}

type options struct {
	cache, mirror, only, steps, tests, suites, page string
	full                                            bool
}

func run(ctx context.Context, o *options) error {
	begin := time.Now()
	only, err1 := regexp.Compile(o.only)
	steps, err2 := regexp.Compile(o.steps)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	for tool, of := range map[string]string{"go": "go", "xz": "xz-utils", "git": "git"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("the program %s is needed: install the package %s", tool, of)
		}
	}
	cache, err := filepath.Abs(o.cache)
	if err != nil {
		return err
	}
	logs := filepath.Join(cache, "logs")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return err
	}
	// With a go.mod the folder is no part of the library's module, and of no archive of that.
	if err := os.WriteFile(filepath.Join(cache, "go.mod"), []byte("module cache\n"), 0o644); err != nil {
		return err
	}
	codename, err := ownCodename()
	if err != nil {
		return err
	}
	wanted, backports := strings.Split(o.suites, ","), codename+"-backports"
	// Packages for this machine come from lists of their own: of two suites apt takes the newer
	// libraries, which need a newer libc than the machine has.
	own, err := openDebian(filepath.Join(cache, "apt-own"), runtime.GOARCH, o.mirror, []string{codename, backports})
	if err != nil {
		return err
	}
	var kernels []*kernel
	for _, a := range arches {
		of, err := a.kernels(cache, o.mirror, wanted)
		if err != nil {
			return err
		}
		kernels = append(kernels, of...)
	}
	version, err := command("git", "describe", "--always", "--dirty")
	if err != nil {
		return err
	}

	hosts := map[*arch]*host{}
	booted, failed := 0, 0
	var report []*outcome
	for _, m := range matrix(kernels, o.full, o.tests) {
		m.steps = slices.DeleteFunc(m.steps, func(s plan.Step) bool { return !steps.MatchString(s.Name) })
		if len(m.steps) == 0 || !only.MatchString(m.name) {
			old, err := kept(logs, m)
			if err != nil {
				return err
			}
			report = append(report, old)
			continue
		}
		h := hosts[m.kernel.arch]
		if h == nil {
			if h, err = newHost(m.kernel, own, o, cache, backports, wanted); err != nil {
				return err
			}
			hosts[m.kernel.arch] = h
		}
		log := filepath.Join(logs, fileName(m.name)+".log")
		fmt.Printf("%s (%s)\n", m.name, log)
		found, begin := &outcome{machine: m, Date: time.Now().UTC().Format(time.DateOnly) + " " + strings.TrimSpace(version), How: h.how}, time.Now()
		err := h.boot(ctx, m, h.files, log, func(r plan.Result) {
			found.Results = append(found.Results, r)
			fmt.Println("  " + line(r))
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			fmt.Println("  QEMU:", err)
		}
		found.Took = time.Since(begin)
		found.complete(err)
		booted, failed = booted+1, failed+found.failures()
		report = append(report, found)
		if o.steps+o.tests == "" {
			if err := found.keep(logs); err != nil {
				return err
			}
		}
	}
	if booted == 0 {
		return fmt.Errorf("no machine has a name like %q and steps like %q", o.only, o.steps)
	}
	fmt.Printf("%d machines in %v\n", booted, time.Since(begin).Round(time.Second))
	if o.steps+o.tests == "" {
		if err := writePage(o.page, report); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d steps failed; the logs are in %s", failed, logs)
	}
	return nil
}

// ownCodename is the name of this machine's Debian.
func ownCodename() (string, error) {
	about, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", err
	}
	_, rest, ok := strings.Cut(string(about), "\nVERSION_CODENAME=")
	if !ok || !strings.Contains("\n"+string(about), "\nID=debian\n") {
		return "", errors.New("/etc/os-release names no version of Debian: this needs a machine with Debian")
	}
	name, _, _ := strings.Cut(rest, "\n")
	return strings.Trim(name, `"`), nil
}

func unique(names []string) (once []string) {
	seen := map[string]bool{}
	for _, n := range names {
		if !seen[n] {
			once = append(once, n)
		}
		seen[n] = true
	}
	return once
}
