package netlab

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// recordRoot holds a directory for each process that has labs.
const recordRoot = "/run/xdprma"

func recordDir(pid int) string { return filepath.Join(recordRoot, strconv.Itoa(pid)) }

// labs counts the labs of this process, which holds a lock on its record while there are any.
var labs struct {
	sync.Mutex
	open, made int
	lock       *os.File
}

// claim records this process, if it has no lab yet, and returns what the names
// of a new lab's namespaces start with.
func claim() (string, error) {
	labs.Lock()
	defer labs.Unlock()
	pid := os.Getpid()
	if labs.open == 0 {
		start, err := startTime(pid)
		if err != nil {
			return "", err
		}
		if labs.lock, err = writeRecord(recordDir(pid), start, pidSpace()); err != nil {
			return "", err
		}
		labs.made = 0
	}
	labs.open++
	labs.made++
	if labs.made == 1 {
		return fmt.Sprintf("xr-%d-", pid), nil
	}
	return fmt.Sprintf("xr-%d-%d.", pid, labs.made), nil
}

// pidSpace names the PID namespace of this process.
func pidSpace() string {
	name, _ := os.Readlink("/proc/self/ns/pid") // nothing where /proc does not tell
	return name
}

// elsewhere reports whether a record is that of a process in another PID namespace, such as a container's
// that has this /run. Its pid says nothing here of whether it lives.
func elsewhere(dir string) bool {
	space, err := os.ReadFile(filepath.Join(dir, "space"))
	return err == nil && string(space) != pidSpace()
}

// lock locks a record until the file is closed, or this process ends.
func lock(dir string, how int) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Flock(int(f.Fd()), how)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
	}
	return f, nil
}

// held reports whether a living process has a record, in whatever PID namespace. Many may ask at once.
func held(dir string) bool {
	f, err := lock(dir, unix.LOCK_SH|unix.LOCK_NB)
	if err == nil {
		f.Close()
	}
	return errors.Is(err, unix.EWOULDBLOCK)
}

// writeRecord writes a record, and returns the file that holds it.
func writeRecord(dir, start, space string) (*os.File, error) {
	if held(dir) {
		return nil, fmt.Errorf("%s is the record of a process in another PID namespace, which has the same number and lives: give each container a /run of its own", dir)
	}
	// An earlier process with this pid left it.
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(recordRoot, 0o755); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	holder, err := lock(dir, unix.LOCK_EX) // it waits for who asks
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(dir, "space"), []byte(space), 0o600),
			os.WriteFile(filepath.Join(dir, "start"), []byte(start), 0o600))
	}
	return holder, err
}

// release takes the record away with the process's last lab.
func release() error {
	labs.Lock()
	defer labs.Unlock()
	if labs.open--; labs.open > 0 {
		return nil
	}
	return errors.Join(os.RemoveAll(recordDir(os.Getpid())), labs.lock.Close())
}

// startTime returns when a process started, in clock ticks since boot, as
// decimal digits; the error wraps fs.ErrNotExist if there is no such process.
func startTime(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, unix.ESRCH) {
		err = fmt.Errorf("process %d: %w", pid, fs.ErrNotExist)
	}
	if err != nil {
		return "", err
	}
	// The second field is a name in parentheses that may contain anything; the
	// third is the process's state and the 22nd its start.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return "", fmt.Errorf("/proc/%d/stat has %d fields too few", pid, 20-len(fields))
	}
	if state := fields[0][0]; state == 'Z' || state == 'X' {
		return "", fmt.Errorf("process %d is a zombie: %w", pid, fs.ErrNotExist)
	}
	return string(fields[19]), nil
}

// stale reports whether the process that had this pid when it made a lab is dead.
func stale(pid int) bool {
	dir := recordDir(pid)
	switch {
	case pid == os.Getpid() || held(dir):
		return false
	case elsewhere(dir):
		return true
	}
	start, err := startTime(pid)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	recorded, err := os.ReadFile(filepath.Join(dir, "start"))
	return err == nil && len(recorded) > 0 && string(recorded) != start
}

var namePattern = regexp.MustCompile(`^xr-([0-9]{1,10})-[0-9.]*(?:[0-9]|br)$`)

// named returns the names in /run/netns that are ours in form, with their pids.
func named() (map[string]int, error) {
	entries, err := os.ReadDir(namespaceDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	names := make(map[string]int)
	for _, e := range entries {
		if m := namePattern.FindStringSubmatch(e.Name()); m != nil {
			if pid, err := strconv.Atoi(m[1]); err == nil {
				names[e.Name()] = pid
			}
		}
	}
	return names, nil
}

// CleanStale removes the namespaces, links and records of processes that died
// without closing their labs, and returns the names of the namespaces. It leaves those of
// living processes alone.
func CleanStale() ([]string, error) {
	names, err := named()
	if err != nil {
		return nil, err
	}
	var removed []string
	var errs []error
	for name, pid := range names {
		if !stale(pid) {
			continue
		}
		if err := removeStale(name); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, name)
	}
	records, err := os.ReadDir(recordRoot)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, r := range records {
		if pid, err := strconv.Atoi(r.Name()); err == nil && stale(pid) {
			errs = append(errs, os.RemoveAll(recordDir(pid)))
		}
	}
	return removed, errors.Join(errs...)
}

// removeStale removes a namespace with its links.
func removeStale(name string) error {
	n := &node{name: name, ns: netns.None()}
	path := filepath.Join(namespaceDir, name)
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err == nil && fs.Type == unix.NSFS_MAGIC {
		if ns, err := netns.GetFromPath(path); err == nil {
			n.ns = ns
			if h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE); err == nil {
				n.handle = h
			}
		}
	}
	return n.remove()
}

// Leaks returns what labs of this process have in place: the names of their
// namespaces, which hold all their links, and the record's path. A test's
// TestMain asserts that there is nothing in the end.
func Leaks() []string { return LeaksOf(os.Getpid()) }

// LeaksOf returns what labs of a process have in place, or had when it ended.
func LeaksOf(of int) []string {
	names, err := named()
	if err != nil {
		return []string{err.Error()}
	}
	var leaks []string
	for name, pid := range names {
		if pid == of {
			leaks = append(leaks, name)
		}
	}
	if _, err := os.Stat(recordDir(of)); err == nil {
		leaks = append(leaks, recordDir(of))
	}
	return leaks
}
