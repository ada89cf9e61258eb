package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"

	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"
)

const perfBusyName = "perf-busy"

// maxBusy is the most processes that compute beside a measurement.
const maxBusy = 64

// perfBusyCommand computes until its standard input ends, which it does with whoever started it.
func perfBusyCommand() *cli.Command {
	return &cli.Command{
		Name:   perfBusyName,
		Hidden: true,
		Usage:  "a process that computes beside xdprma perf",
		Action: func(context.Context, *cli.Command) error {
			runtime.GOMAXPROCS(2) // one for who waits for the end, which the loop may not let in
			go func() {
				for n := 0; ; n++ {
				}
			}()
			_, err := io.Copy(io.Discard, os.Stdin)
			return err
		},
	}
}

// The codes of a child that is stopped and of one that has been continued, in sigaction(2).
const cldStopped, cldContinued = 5, 6

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

// end ends them. It is an error if one has ended before, or was stopped.
func (b busyProcesses) end() error {
	var errs []error
	for _, cmd := range b {
		var news unix.Siginfo
		const options = unix.WEXITED | unix.WSTOPPED | unix.WCONTINUED | unix.WNOHANG | unix.WNOWAIT
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, &news, options, nil)
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // how it ends by that does not matter
		pid, state := cmd.Process.Pid, cmd.ProcessState
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("does process %d compute: %w", pid, err))
		case news.Signo == 0:
		case news.Code == cldStopped || news.Code == cldContinued:
			errs = append(errs, fmt.Errorf("process %d was to compute beside the measurement, and was stopped meanwhile", pid))
		default:
			errs = append(errs, fmt.Errorf("process %d was to compute beside the measurement, and has ended: %v", pid, state))
		}
	}
	return errors.Join(errs...)
}
