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
	"slices"
	"strings"
	"time"

	"github.com/xdprma/xdprma/vmtests/machines/plan"
)

func main() {
	var o options
	flag.StringVar(&o.cache, "cache", "vmtests/machines/cache", "keep packages, kernels and logs in this `folder`")
	flag.StringVar(&o.mirror, "mirror", "", "get packages from this mirror of Debian; default: the one of this machine's apt")
	flag.StringVar(&o.only, "only", "", "boot only machines whose name matches this `pattern`, and leave the page as it is")
	flag.StringVar(&o.suites, "suites", "bookworm,trixie,trixie-backports", "try the newest kernels of these suites, from old to new")
	flag.StringVar(&o.page, "page", "docs/kernels.md", "write what works where into this `file`")
	flag.StringVar(&o.steps, "steps", "", "carry out only steps whose name matches this `pattern`, and leave the page as it is")
	flag.StringVar(&o.tests, "run", "", "run only tests whose name matches this `pattern`, and leave the page as it is")
	flag.BoolVar(&o.full, "full", false, "run the tests that -short leaves out, too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
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
	codename, err := ownCodename()
	if err != nil {
		return err
	}
	wanted, backports := strings.Split(o.suites, ","), codename+"-backports"
	d, err := openDebian(filepath.Join(cache, "apt"), o.mirror, unique(append([]string{codename, backports}, wanted...)))
	if err != nil {
		return err
	}
	q, err := findQEMU(d, cache, backports)
	if err != nil {
		return err
	}
	var kernels []*kernel
	for _, s := range wanted {
		k, err := fetchKernel(d, cache, s)
		if err != nil {
			return err
		}
		kernels = append(kernels, k)
	}
	fmt.Println("building the tests and examples")
	built, err := build(cache)
	if err != nil {
		return err
	}

	userland := filepath.Join(cache, "userland")
	if err := d.fetch(userland, "trixie", "", "coreutils", "dash", "iproute2"); err != nil {
		return err
	}
	files := &files{cache: cache, built: built, userland: userland}
	var report []outcome
	how := ""
	for _, m := range matrix(kernels, o.full, o.tests) {
		m.steps = slices.DeleteFunc(m.steps, func(s plan.Step) bool { return !steps.MatchString(s.Name) })
		if len(m.steps) == 0 || !only.MatchString(m.name) {
			continue
		}
		initrd, err := files.of(m)
		if err != nil {
			return err
		}
		if how == "" {
			empty := *m
			empty.steps = nil
			probe, err := files.of(&empty)
			if err != nil {
				return err
			}
			how = q.choose(&empty, probe, filepath.Join(logs, "probe.log"))
			fmt.Println("machines run by", how)
			if initrd, err = files.of(m); err != nil {
				return err
			}
		}
		log := filepath.Join(logs, strings.NewReplacer(" ", "-", ",", "").Replace(m.name)+".log")
		fmt.Printf("%s (%s)\n", m.name, log)
		found := outcome{machine: m, begin: time.Now()}
		err = q.boot(ctx, m, initrd, log, func(r plan.Result) {
			found.results = append(found.results, r)
			fmt.Println("  " + found.line(r))
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			fmt.Println("  QEMU:", err)
		}
		found.took = time.Since(found.begin)
		found.complete(m, err)
		report = append(report, found)
	}
	if len(report) == 0 {
		return fmt.Errorf("no machine has a name like %q", o.only)
	}
	fmt.Printf("%d machines in %v\n", len(report), time.Since(begin).Round(time.Second))
	if o.only+o.steps+o.tests == "" {
		if err := writePage(o.page, report, how, time.Since(begin)); err != nil {
			return err
		}
	}
	failed := 0
	for _, f := range report {
		failed += f.failures()
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
	if !ok {
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
