package perf

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// bind keeps the calling goroutine on a processor of its own until release is
// called: the n-th of those that the process may use, of at least count. With
// fewer it does nothing. Two processes that wait for each other by spinning take
// turns on one processor otherwise, because the scheduler, to which both seem
// busy, has no reason to move them apart. Other threads of the process stay free.
func bind(n, count int) (release func(), err error) {
	runtime.LockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("find the thread's processors: %w", err)
	}
	if all.Count() < count {
		runtime.UnlockOSThread()
		return func() {}, nil
	}
	at := 0
	for seen := 0; ; at++ {
		if all.IsSet(at) {
			if seen == n {
				break
			}
			seen++
		}
	}
	one.Set(at)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("keep to processor %d: %w", at, err)
	}
	return func() {
		if unix.SchedSetaffinity(0, &all) == nil {
			runtime.UnlockOSThread()
		} // else the thread ends with its goroutine
	}, nil
}
