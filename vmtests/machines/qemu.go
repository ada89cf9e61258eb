package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/xdprma/xdprma/vmtests/machines/plan"
)

// emulator is QEMU, and how it runs the machine's processors.
type emulator struct {
	path    string
	env     []string
	options []string
	told    string // what kernels are told for that
}

// findQEMU returns the one that the environment names, or that of the backports to the machine's own Debian, which it fetches: of
// 7.2 it is known that it crashes under newer kernels, and that it has no igb.
func findQEMU(d *debian, cache, backports string, a *arch) (*emulator, error) {
	if own := os.Getenv(a.path); own != "" {
		return &emulator{path: own, options: a.board}, nil
	}
	dir := filepath.Join(cache, "qemu")
	if !exists(dir) {
		if err := d.fetch(dir, backports, "/var/lib/dpkg/status", a.from); err != nil {
			return nil, fmt.Errorf("%s is needed, %s or newer, and cannot be fetched: install it, and name its path as %s: %w", a.qemu, a.oldest, a.path, err)
		}
	}
	path := filepath.Join(dir, "usr/bin", a.qemu)
	if _, err := os.Stat(path); err != nil { // the machine has that very version
		path, err = exec.LookPath(a.qemu)
		return &emulator{path: path, options: a.board}, err
	}
	libraries := filepath.Join(dir, "usr/lib/x86_64-linux-gnu")
	older := filepath.Join(dir, "lib/x86_64-linux-gnu") // where packages of bookworm have them
	return &emulator{
		path: path,
		env:  []string{"LD_LIBRARY_PATH=" + libraries + ":" + older, "QEMU_MODULE_DIR=" + filepath.Join(libraries, "qemu")},
		options: append([]string{"-L", filepath.Join(dir, "usr/share/qemu"), "-L", filepath.Join(dir, "usr/share/seabios"),
			"-L", "/usr/share/qemu", "-L", "/usr/share/seabios"}, a.board...),
	}, nil
}

// The ways to run a machine's processors.
var (
	byKVM       = []string{"-accel", "kvm", "-cpu", "host"}
	bySoftware  = []string{"-accel", "tcg,thread=multi", "-cpu"}
	probingTime = 30 * time.Second
)

// choose has a machine boot by KVM, and takes software emulation if it does not.
func (q *emulator) choose(k *kernel, files *files, log string) string {
	slow := q.options
	if _, err := os.Stat("/dev/kvm"); err == nil && k.arch.name == runtime.GOARCH {
		q.options = slices.Concat(slow, byKVM)
		ctx, stop := context.WithTimeout(context.Background(), probingTime)
		defer stop()
		booted := false
		err := q.boot(ctx, &machine{name: "probe", kernel: k}, files, log, func(r plan.Result) { booted = r.Failed == "" })
		if err == nil && booted {
			return "KVM"
		}
		fmt.Printf("KVM does not work (may this user write to /dev/kvm?): no machine has booted within %v: %v\n", probingTime, err)
	}
	q.options = slices.Concat(slow, bySoftware, []string{k.arch.processor})
	if q.told = k.arch.told; q.told != "" {
		return "software emulation, " + q.told
	}
	return "software emulation"
}

// boot starts a machine and hands on its results as they come, until it turns itself off.
// The prints of its kernel and its programs go to log.
func (q *emulator) boot(ctx context.Context, m *machine, files *files, log string, result func(plan.Result)) error {
	archives, err := files.of(m)
	if err != nil {
		return err
	}
	initrd := strings.TrimSuffix(log, ".log") + ".initrd"
	defer os.Remove(initrd)
	if err := concatenate(initrd, archives); err != nil {
		return err
	}
	limit := m.limit()
	ctx, stop := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the machine goes on after %v", limit))
	defer stop()
	args := slices.Concat(q.options, []string{
		"-smp", "2", "-m", "3072", "-nodefaults", "-display", "none", "-no-reboot", "-kernel", m.kernel.image, "-initrd", initrd,
		"-append", fmt.Sprintf("console=%[1]s0 rdinit=/init panic=-1 loglevel=4 %[2]s=/dev/%[1]s1 %[3]s", m.kernel.arch.serial, plan.Report, q.told),
		"-serial", "file:" + log, "-serial", "stdio",
	}, m.nic.devices())
	cmd := exec.CommandContext(ctx, q.path, args...)
	cmd.Env = append(os.Environ(), q.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	reports := json.NewDecoder(out)
	for err == nil {
		var r plan.Result
		if err = reports.Decode(&r); err == nil {
			result(r)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	} else {
		stop() // nobody reads what else it writes
	}
	err = errors.Join(err, cmd.Wait())
	if late := context.Cause(ctx); late != nil && err != nil {
		err = fmt.Errorf("%w: %w", late, err)
	}
	if err != nil && problems.Len() > 0 {
		err = fmt.Errorf("%w\n%s", err, problems.String())
	}
	return err
}

func concatenate(path string, files []string) error {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	for _, name := range files {
		in, err := os.Open(name)
		if err != nil {
			return errors.Join(err, out.Close())
		}
		_, err = io.Copy(out, in)
		in.Close()
		if err != nil {
			return errors.Join(err, out.Close())
		}
		end, err := out.Seek(0, io.SeekCurrent)
		if err == nil {
			_, err = out.WriteString(padding(int(end)))
		}
		if err != nil {
			return errors.Join(err, out.Close())
		}
	}
	return out.Close()
}
