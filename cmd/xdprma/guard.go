package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/launch/bootstrap"
)

const guardName = "guard"

// Words for the guard, each a message, that of a group with a descriptor of the process that leads it.
const (
	guardStart   = "start "   // and the rank's mark
	guardStarted = "started " // and the rank's mark
	guardGroup   = "group "   // and its id
	guardForget  = "forget "  // and the id of a group
	guardFile    = "file "    // and a path
)

// guard is a process that outlives this one, be it killed, and then kills the groups of its ranks and removes its
// files. The kernel by itself ends the ranks alone (Pdeathsig), and not their children. Nil is none.
type guard struct {
	cmd *exec.Cmd
	mu  sync.Mutex
	to  *os.File // its end is how the guard learns that this process has ended
}

// newGuard starts the guard, and does not wait for it to be ready.
func newGuard() (*guard, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	g := &guard{to: os.NewFile(uintptr(ends[0]), "guard")}
	its := os.NewFile(uintptr(ends[1]), "guard")
	defer its.Close()
	// It keeps neither this process's folder, nor its outputs, nor its session, whose terminal may hang up.
	g.cmd = &exec.Cmd{Path: "/proc/self/exe", Args: []string{"xdprma", guardName}, Stdin: its, Dir: "/",
		Env: []string{"GOMAXPROCS=1"}, SysProcAttr: &unix.SysProcAttr{Setsid: true}}
	if err := g.cmd.Start(); err != nil {
		return nil, errors.Join(err, g.to.Close())
	}
	return g, nil
}

// tell sends a message with a descriptor, if there is one. It fails if the guard has been killed; then there is none.
func (g *guard) tell(message string, fds ...int) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	for {
		err := unix.Sendmsg(int(g.to.Fd()), []byte(message), rights, nil, unix.MSG_NOSIGNAL)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// starting tells of a rank whose process is about to be started: that may work, and have children, before its group
// is known. The function that it returns tells that the start is over.
func (g *guard) starting(environ []string) (over func()) {
	m := mark(environ)
	if m == "" {
		return func() {}
	}
	g.tell(guardStart + m)
	return func() { g.tell(guardStarted + m) }
}

// mark is by what the guard finds a rank, and its children: the part of their environment that is theirs alone.
func mark(environ []string) string {
	var job, rank string
	for _, v := range environ { // a later one counts
		if strings.HasPrefix(v, bootstrap.EnvJob+"=") {
			job = v
		} else if strings.HasPrefix(v, bootstrap.EnvRank+"=") {
			rank = v
		}
	}
	if job == "" || rank == "" {
		return "" // ssh, which starts no other process that stays
	}
	return job + " " + rank
}

// group tells of a group whose leader has been started with a descriptor, which it takes.
func (g *guard) group(id, leader int) {
	if leader < 0 {
		return // the kernel has no such descriptors
	}
	g.tell(fmt.Sprint(guardGroup, id), leader)
	unix.Close(leader)
}

// forget tells of a group that has been killed. Its id may be another's after that.
func (g *guard) forget(id int) { g.tell(fmt.Sprint(guardForget, id)) }

// file tells of a file that goes with this process, and may not be there yet.
func (g *guard) file(path string) { g.tell(guardFile + path) }

// close ends the guard; this process has tidied up by itself.
func (g *guard) close() {
	if g == nil {
		return
	}
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait()
	_ = g.to.Close()
}

func guardCommand() *cli.Command {
	return &cli.Command{
		Name:   guardName,
		Hidden: true,
		Usage:  "the process that tidies up when xdprma run is killed",
		Action: func(context.Context, *cli.Command) error { return keepGuard(0) },
	}
}

// keepGuard hears what a launcher tells on a socket, and tidies up behind it when it has ended.
func keepGuard(from int) error {
	leaders := map[string]int{}   // descriptors, by the id of the group
	starting := map[string]bool{} // marks
	var files []string
	message, rights := make([]byte, 4<<10+len(guardFile)), make([]byte, unix.CmsgSpace(4))
	for {
		n, m, _, _, err := unix.Recvmsg(from, message, rights, unix.MSG_CMSG_CLOEXEC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%w; this command is for xdprma run alone", err)
		}
		if n == 0 {
			break
		}
		said := string(message[:n])
		if id, ok := strings.CutPrefix(said, guardGroup); ok {
			if fd, err := descriptor(rights[:m]); err == nil {
				leaders[id] = fd
			}
		} else if id, ok := strings.CutPrefix(said, guardForget); ok {
			if fd, ok := leaders[id]; ok {
				unix.Close(fd)
				delete(leaders, id)
			}
		} else if path, ok := strings.CutPrefix(said, guardFile); ok {
			files = append(files, path)
		} else if m, ok := strings.CutPrefix(said, guardStart); ok {
			starting[m] = true
		} else if m, ok := strings.CutPrefix(said, guardStarted); ok {
			delete(starting, m)
		}
	}
	for id, leader := range leaders {
		killGroup(id, leader)
	}
	for m := range starting {
		killMarked(m)
	}
	for _, f := range files {
		_ = os.Remove(f)
	}
	return nil
}

// killMarked kills the processes that have a mark in their environment, until there are none. The launcher's end of the
// socket closes when the process that is being started has its program, so all of them have their environment.
func killMarked(mark string) {
	const rounds = 1000 // of a millisecond: a process may be slow to end, or not to be killed
	marks := strings.Fields(mark)
	for range rounds {
		found := false
		entries, err := os.ReadDir("/proc")
		if err != nil {
			return
		}
		for _, e := range entries {
			if pid, err := strconv.Atoi(e.Name()); err == nil && pid != os.Getpid() && hasMarks(pid, marks) {
				found = true
				killIfMarked(pid, marks)
			}
		}
		if !found {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// killIfMarked looks again when the id stands for one process alone.
func killIfMarked(pid int, marks []string) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if hasMarks(pid, marks) {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

// hasMarks reports whether a process has all variables. A process that has ended has none.
func hasMarks(pid int, marks []string) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	environ := strings.Split(string(text), "\x00")
	for _, m := range marks {
		if !slices.Contains(environ, m) {
			return false
		}
	}
	return true
}

// descriptor returns the one that came with a message.
func descriptor(rights []byte) (int, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return -1, err
	}
	if len(messages) != 1 {
		return -1, unix.EBADF
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return -1, err
	}
	return fds[0], nil
}

// killGroup kills the group that a process leads, or has led: the descriptor stands for the group's id as long as the
// group has a member, and never for another group.
func killGroup(id string, leader int) {
	if err := unix.PidfdSendSignal(leader, unix.SIGKILL, nil, unix.PIDFD_SIGNAL_PROCESS_GROUP); !errors.Is(err, unix.EINVAL) {
		return
	}
	if pid, err := strconv.Atoi(id); err == nil { // before Linux 6.9
		killGroupByID(pid, leader)
	}
}

// killGroupByID does so where a descriptor does not stand for a group. The id is the group's own while the leader
// exists, and after that while the group does. Then no process can have the id.
func killGroupByID(id, leader int) {
	if unix.PidfdSendSignal(leader, 0, nil, 0) == nil || errors.Is(unix.Kill(id, 0), unix.ESRCH) {
		_ = unix.Kill(-id, unix.SIGKILL)
	}
}
