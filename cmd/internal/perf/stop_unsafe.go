package perf

import (
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigevent is the kernel's struct sigevent, for a signal to the whole process.
type sigevent struct {
	value          uint64
	signal, notify int32 // notify 0: send the signal
	_              [48]byte
}

// stopSelf stops this process for a time, and returns when it has been continued. The
// kernel continues it, by a timer that is set before: so no other process has to live.
// The timer repeats, for the case that it expires before the process stops. stopped
// is called before, with the bounds of the time on the machine's clock.
func stopSelf(d time.Duration, stopped func(from, to int64)) error {
	event := sigevent{signal: int32(unix.SIGCONT)}
	var timer int32
	_, _, errno := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&timer)))
	if errno != 0 {
		return fmt.Errorf("make a timer that continues this process: %w", errno)
	}
	defer unix.Syscall(unix.SYS_TIMER_DELETE, uintptr(timer), 0, 0)
	runtime.LockOSThread() // the thread that stops itself does not go on before it is continued
	defer runtime.UnlockOSThread()
	from := machineTime()
	to := from + d.Nanoseconds()
	stopped(from, to)
	at := unix.ItimerSpec{Interval: unix.NsecToTimespec(d.Nanoseconds()), Value: unix.NsecToTimespec(to)}
	_, _, errno = unix.Syscall6(unix.SYS_TIMER_SETTIME, uintptr(timer), unix.TIMER_ABSTIME, uintptr(unsafe.Pointer(&at)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("set a timer that continues this process after %v: %w", d, errno)
	}
	if err := unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP); err != nil {
		return fmt.Errorf("stop this process: %w", err)
	}
	return nil
}

// machineTime is the machine's clock in ns, alike in all its processes.
func machineTime() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(fmt.Sprintf("perf: clock_gettime: %v", err)) // it fails for bad arguments only
	}
	return now.Nano()
}
