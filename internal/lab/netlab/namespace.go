package netlab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// namespaceDir is where iproute2 keeps named network namespaces.
const namespaceDir = "/run/netns"

// Do calls f on a thread that is in rank's namespace. Files and sockets that f opens
// belong to that namespace, on whatever thread they are used later; goroutines that f starts
// run outside it. f must not call runtime.UnlockOSThread more often than
// runtime.LockOSThread.
func (l *Lab) Do(rank int, f func() error) error {
	return within(l.nodes[rank].ns, f)
}

// Start starts cmd in rank's namespace. A caller that sets Pdeathsig should lock
// its goroutine to its thread until the process has ended, because that signal
// comes when the starting thread ends.
//
// The process sees the caller's mounts: its /sys/class/net shows the caller's
// interfaces, not its own.
func (l *Lab) Start(rank int, cmd *exec.Cmd) error { return l.Do(rank, cmd.Start) }

// Command is exec.Command for a process in rank's namespace, which it enters
// through `ip netns exec`: for tools such as ping and tcpdump that want a /sys
// of their namespace. Other programs are started with Start.
func (l *Lab) Command(rank int, name string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", l.Namespace(rank), name}, args...)...)
}

// within calls f on this goroutine's thread while that is in ns.
func within(ns netns.NsHandle, f func() error) error {
	return onOwnThread(func() error {
		if err := netns.Set(ns); err != nil {
			return fmt.Errorf("enter a network namespace: %w", err)
		}
		return f()
	})
}

// onOwnThread calls f, which may change the network namespace of the thread it
// runs on, and changes back.
func onOwnThread(f func() error) error {
	runtime.LockOSThread()
	own, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("find the thread's network namespace: %w", err)
	}
	defer own.Close()
	defer func() {
		// The thread must not go on to run other goroutines in a wrong namespace.
		if err := netns.Set(own); err != nil {
			panic(fmt.Sprintf("netlab: cannot return to the thread's own network namespace: %v", err))
		}
		runtime.UnlockOSThread()
	}()
	return f()
}

// reenter enters the network namespace that the thread is in.
func reenter() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := netns.Get()
	if err != nil {
		return err
	}
	defer own.Close()
	return netns.Set(own)
}

// newNamespace makes a network namespace of that name and calls setup on a
// thread within it.
func newNamespace(name string, setup func() error) (netns.NsHandle, error) {
	path := filepath.Join(namespaceDir, name)
	if err := os.MkdirAll(namespaceDir, 0o755); err != nil {
		return netns.None(), err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return netns.None(), fmt.Errorf("name a network namespace: %w", err)
	}
	f.Close()

	err = onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		if err := setup(); err != nil {
			return fmt.Errorf("set up a network namespace: %w", err)
		}
		if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount a network namespace at %s: %w", path, err)
		}
		return nil
	})
	if err != nil {
		return netns.None(), errors.Join(err, removeNamespace(name))
	}
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return netns.None(), errors.Join(err, removeNamespace(name))
	}
	return ns, nil
}

// removeNamespace takes the name off a namespace, which the kernel then removes
// as soon as nothing is in it. A name that is gone already is no error.
func removeNamespace(name string) error {
	path := filepath.Join(namespaceDir, name)
	err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // EINVAL: not mounted
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
