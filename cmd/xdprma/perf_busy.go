package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"
)

const perfBusyName = "perf-busy"

// maxBusy is the most processes that compute beside a measurement.
const maxBusy = 256

// perfBusyCommand computes until its standard input ends, which it does with whoever started it.
func perfBusyCommand() *cli.Command {
	return &cli.Command{
		Name:   perfBusyName,
		Hidden: true,
		Usage:  "a process that computes beside xdprma perf",
		Action: func(context.Context, *cli.Command) error {
			runtime.GOMAXPROCS(1)
			go func() {
				for n := 0; ; n++ {
				}
			}()
			_, err := io.Copy(io.Discard, os.Stdin)
			return err
		},
	}
}

// busyProcesses are those that compute beside a measurement, on whichever processors the kernel
// gives them.
type busyProcesses []*exec.Cmd

// startBusy starts n processes that compute.
func startBusy(n int) (started busyProcesses, err error) {
	self, err := os.Executable()
	for i := 0; i < n && err == nil; i++ {
		cmd := exec.Command(self, perfBusyName)
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true} // a terminal's signals are for this process
		if _, err = cmd.StdinPipe(); err != nil {          // this process ends it by ending
			break
		}
		if err = cmd.Start(); err == nil {
			started = append(started, cmd)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a process that computes: %w", err), started.end())
	}
	return started, nil
}

// end ends them. It is an error if one has not computed until now.
func (b busyProcesses) end() error {
	var errs []error
	for _, cmd := range b {
		_ = cmd.Process.Kill() // what matters is how it has ended
		_ = cmd.Wait()
		if state := cmd.ProcessState; state.Sys().(syscall.WaitStatus).Signal() != unix.SIGKILL {
			errs = append(errs, fmt.Errorf("process %d was to compute beside the measurement, and has ended: %v", cmd.Process.Pid, state))
		}
	}
	return errors.Join(errs...)
}
