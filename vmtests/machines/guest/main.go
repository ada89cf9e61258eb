//go:build linux

// Guest is the first process of a virtual machine. It has another carry out the steps that it finds
// in a file and write what came of them to a serial line, and then turns the machine off.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/vmtests/machines/plan"
)

// worker is the argument of the second process, which carries out the steps.
const worker = "work"

func main() {
	job := reap
	switch {
	case len(os.Args) == 2 && os.Args[1] == worker:
		job = work
	case os.Getpid() != 1:
		fmt.Fprintln(os.Stderr, "guest: it turns the machine off; only a virtual machine of make vm starts it")
		os.Exit(2)
	}
	if err := job(); err != nil {
		fmt.Println("guest:", err)
	}
	if os.Getpid() != 1 {
		return
	}
	unix.Sync()
	fmt.Println("guest: cannot turn the machine off:", unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF))
}

// reap starts the worker, and until it ends takes note of the end of all processes whose parents
// have ended: tests wait for that.
func reap() error {
	if err := mountAll(); err != nil {
		return err
	}
	p, err := os.StartProcess("/proc/self/exe", []string{"guest", worker}, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	for err == nil {
		var pid int
		if pid, err = unix.Wait4(-1, nil, 0, nil); pid == p.Pid {
			return nil
		}
		if err == unix.EINTR {
			err = nil
		}
	}
	return err
}

func work() error {
	to := os.Getenv(plan.Report)
	if err := errors.Join(os.Unsetenv(plan.Report), os.Setenv("PATH", "/usr/bin:/usr/sbin"), os.Setenv("HOME", "/tmp")); err != nil {
		return err
	}
	report, err := os.OpenFile(to, os.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	// The machine must not turn off before the line has sent all (tcdrain).
	defer func() { _ = unix.IoctlSetInt(int(report.Fd()), unix.TCSBRK, 1) }()
	out := json.NewEncoder(report)
	begin := time.Now()
	if err := loadModules(); err != nil {
		return out.Encode(plan.Result{Step: "boot", Failed: err.Error()})
	}
	if err := out.Encode(plan.Result{Step: "boot", Took: time.Since(begin), Output: release()}); err != nil {
		return err
	}
	var steps []plan.Step
	job, err := os.ReadFile(plan.Job)
	if err == nil {
		err = json.Unmarshal(job, &steps)
	}
	if err != nil {
		return err
	}
	for _, s := range steps {
		fmt.Println("guest: step", s.Name)
		if err := out.Encode(run(s)); err != nil {
			return err
		}
	}
	return nil
}

// release is the version of the running kernel.
func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

func mountAll() error {
	for _, m := range []struct{ kind, at string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/run"}, {"tmpfs", "/tmp"},
		{"tmpfs", "/dev/shm"}, {"bpf", "/sys/fs/bpf"}, {"cgroup2", "/sys/fs/cgroup"},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	return os.Chmod("/tmp", 0o1777)
}

// loadModules loads the kernel's modules in their order. The kernel itself unpacks one that is
// compressed.
func loadModules() error {
	files, err := filepath.Glob(plan.Modules + "/*")
	if err != nil {
		return err
	}
	for _, name := range files {
		const compressed = 4 // MODULE_INIT_COMPRESSED_FILE
		flags := compressed
		if strings.HasSuffix(name, ".ko") {
			flags = 0
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", flags)
		f.Close()
		if err != nil {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	return nil
}
