package main

import (
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// Values of --bind.
const (
	bindNone = "none"
	bindCore = "core"
)

// processors returns the processor of each rank of this machine; nil where they are not bound.
func (r *runner) processors() (of []int, err error) {
	if !r.bind {
		return nil, nil
	}
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return nil, fmt.Errorf("--bind core: read which processors may be used: %w", err)
	}
	for cpu := 0; cpu < 64*len(allowed) && len(of) < r.ranks; cpu++ {
		if allowed.IsSet(cpu) {
			of = append(of, cpu)
		}
	}
	if len(of) < r.ranks {
		return nil, &exitError{statusUsage, fmt.Errorf("--bind core: %d ranks are to have a processor each, and xdprma run may use %d", r.ranks, len(of))}
	}
	return of, nil
}

// startBound returns start for a process that is bound to a processor. A process begins with
// the affinity of the thread that starts it.
func startBound(processor int, start func(*exec.Cmd) error) func(*exec.Cmd) error {
	return func(cmd *exec.Cmd) error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var before, bound unix.CPUSet
		if err := unix.SchedGetaffinity(0, &before); err != nil {
			return fmt.Errorf("read which processors may be used: %w", err)
		}
		bound.Set(processor)
		if err := unix.SchedSetaffinity(0, &bound); err != nil {
			return fmt.Errorf("bind to processor %d: %w", processor, err)
		}
		defer unix.SchedSetaffinity(0, &before)
		return start(cmd)
	}
}
