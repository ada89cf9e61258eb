package vmtests

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/device/agent"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/stats"
	"github.com/xdprma/xdprma/userspace"
)

// The environment variables that a test sets for the programs it starts, besides the library's own contract.
const (
	envProgram   = "VMTESTS_PROGRAM"
	envDeadAfter = "VMTESTS_DEAD_AFTER"
)

// mostSteps bounds a wait that begins anew whenever a rank prints something.
const mostSteps = 4

// spec describes a job.
type spec struct {
	program    string
	ranks      int      // default: all of the lab
	host       int      // that rank 0 is on; the others follow
	transports []string // one a rank; a single one is for all
	v6         bool
	deadAfter  time.Duration // 0: the library's default
	key        *secure.Key   // the job's; nil: it has none
	level      secure.Level  // of the frames of a job with a key
	overTCP    bool          // the rendezvous is at the address of rank 0's host, for all to reach
	agent      string        // the socket of one that is there; empty: the job has one of its own, if it shares interfaces
	env        []string
	change     func(rank int, c *bootstrap.Config, cmd *exec.Cmd) // before a rank starts
}

// job is a set of ranks that run in a lab.
type job struct {
	t      *testing.T
	lab    *netlab.Lab
	spec   spec
	server *bootstrap.Server
	agent  *agent.Server // nil: no rank shares an interface
	base   bootstrap.Config
	ranks  []*rank
}

// start starts a job. Whatever of it still runs when the test ends is killed.
func start(t *testing.T, lab *netlab.Lab, s spec) *job {
	t.Helper()
	if s.ranks == 0 {
		s.ranks = lab.Ranks()
	}
	const inOneBuffer = 3498 // an MTU
	if lab.MTU() > inOneBuffer && strings.Contains(strings.Join(s.transports, ","), "xdp") {
		testenv.NeedsFeature(t, testenv.MultiBuffer)
	}
	j := &job{t: t, lab: lab, spec: s}
	j.base = bootstrap.Config{Config: userspace.Config{Port: bootstrap.DefaultPort}, Job: bootstrap.NewJob(), Size: s.ranks}
	if s.key != nil {
		j.base.Key, j.base.KeyFile, j.base.Security = s.key, keyFile(t, s.key), bootstrap.Security(s.level.String())
	}
	var err error
	if j.server, err = bootstrap.Serve(j.listen(), &j.base); err != nil {
		t.Fatal(err)
	}
	j.base.Rendezvous = j.server.Addr()
	if j.base.Agent = cmp.Or(s.agent, userspace.NoAgent); s.agent == "" && slices.Contains(s.transports, string(userspace.Shared)) {
		j.shareInterfaces()
	}
	t.Cleanup(j.cleanUp)
	for r := range s.ranks {
		j.ranks = append(j.ranks, j.startRank(r))
	}
	return j
}

// shareInterfaces has an agent serve the job's ranks.
func (j *job) shareInterfaces() {
	j.t.Helper()
	j.base.Agent = filepath.Join(j.lab.Dir(), fmt.Sprintf("agent-%x", j.base.Job))
	var err error
	if j.agent, err = agent.Serve(agent.Config{Path: j.base.Agent}); err != nil {
		j.t.Fatal(err)
	}
	j.t.Cleanup(func() {
		if err := j.agent.Close(); err != nil {
			j.t.Error(err)
		}
	})
}

// listen returns where the job's rendezvous is served.
func (j *job) listen() (l net.Listener) {
	j.t.Helper()
	at, host := "unix:"+filepath.Join(j.lab.Dir(), fmt.Sprintf("rendezvous-%x", j.base.Job)), j.spec.host
	if j.spec.overTCP {
		at = "tcp:" + netip.AddrPortFrom(j.lab.Addr(host), 0).String()
	}
	err := j.lab.Do(host, func() (err error) {
		l, err = bootstrap.Listen(at)
		return err
	})
	if err != nil {
		j.t.Fatal(err)
	}
	return l
}

// keyFile writes a key to a file.
func keyFile(t *testing.T, k *secure.Key) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "job.key")
	if err := os.WriteFile(path, []byte(k.Text()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// startRank starts a process for a rank, which may be a second one.
func (j *job) startRank(n int) *rank {
	j.t.Helper()
	c, host := j.base, j.spec.host+n
	c.Rank, c.Interface, c.Address = n, j.lab.Interface(host), j.lab.Addr(host)
	c.Port += uint16(j.lab.Sharer(host))
	if j.spec.v6 {
		c.Address = j.lab.Addr6(host)
	}
	transports := j.spec.transports
	c.Transport = userspace.Transport(transports[n%len(transports)])
	exe, err := os.Executable()
	if err != nil {
		j.t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), envProgram+"="+j.spec.program, envDeadAfter+"="+j.spec.deadAfter.String(), "GOTRACEBACK=all")
	cmd.Env = append(cmd.Env, j.spec.env...)
	if j.spec.change != nil {
		j.spec.change(n, &c, cmd)
	}
	cmd.Env = append(cmd.Env, c.Environ()...)
	r := newRank(n, cmd)
	if err := r.start(func(cmd *exec.Cmd) error { return j.lab.Start(host, cmd) }); err != nil {
		j.t.Fatal(err)
	}
	return r
}

func (j *job) cleanUp() {
	for _, r := range j.ranks {
		r.kill()
		<-r.done
	}
	if err := j.server.Close(); err != nil {
		j.t.Error(err)
	}
	if j.t.Failed() {
		for _, r := range j.ranks {
			j.t.Logf("rank %d, %v:\n%s", r.n, r.cmd.ProcessState, r.output())
		}
	}
}

// finish waits until all ranks have ended, and fails the test unless all
// succeeded in time.
func (j *job) finish() {
	j.t.Helper()
	for _, r := range j.ranks {
		j.ended(r)
		if !r.cmd.ProcessState.Success() {
			j.t.Errorf("rank %d: %v", r.n, r.cmd.ProcessState)
		}
	}
	if j.t.Failed() {
		j.t.FailNow()
	}
}

// ended waits until a rank has ended.
func (j *job) ended(r *rank) {
	j.t.Helper()
	end := time.After(mostSteps * testenv.Limit)
	for {
		select {
		case <-r.done:
			return
		case <-end:
			j.hangs("rank %d goes on after %v", r.n, mostSteps*testenv.Limit)
		case <-r.news(): // it goes on
		case <-time.After(testenv.Limit):
			j.hangs("rank %d has neither ended nor said anything for %v", r.n, testenv.Limit)
		}
	}
}

// hangs fails the test and has the ranks print what their goroutines do.
func (j *job) hangs(format string, args ...any) {
	j.t.Helper()
	for _, r := range j.ranks {
		r.signal(unix.SIGCONT)
		r.signal(unix.SIGQUIT)
	}
	for _, r := range j.ranks {
		select {
		case <-r.done:
		case <-time.After(10 * time.Second): // it is killed with the job
		}
	}
	j.t.Fatalf(format, args...)
}

// await waits until a rank prints a line that starts with word, and returns the
// rest of that line. Lines are awaited in the order in which they come.
func (j *job) await(r *rank, word string) string {
	j.t.Helper()
	end := time.After(mostSteps * testenv.Limit)
	for {
		line, more, ok := r.next(word)
		if ok {
			return line
		}
		select {
		case <-more:
		case <-r.done:
			if line, _, ok := r.next(word); ok {
				return line
			}
			j.t.Fatalf("rank %d ended without saying %q", r.n, word)
		case <-end:
			j.hangs("rank %d has not said %q after %v", r.n, word, mostSteps*testenv.Limit)
		case <-time.After(testenv.Limit):
			j.hangs("rank %d has said nothing for %v, and not %q", r.n, testenv.Limit, word)
		}
	}
}

// counters is what a rank prints before it leaves.
type counters struct {
	Mode string
	stats.Stats
	Heap     uint64        // bytes that are in use
	Taken    uint64        // bytes that the heap has taken, which it never gives back
	Calls    int           // that pulse has timed
	P50, P99 time.Duration // of these
}

// counters returns what rank r counted.
func (j *job) counters(r *rank) counters {
	j.t.Helper()
	var c counters
	if err := json.Unmarshal([]byte(j.await(r, "counters ")), &c); err != nil {
		j.t.Fatal(err)
	}
	return c
}

// rank is the process of one rank. It collects what the process prints.
type rank struct {
	n    int
	cmd  *exec.Cmd
	in   *os.File
	done chan struct{} // closed when the process has been reaped

	mu     sync.Mutex
	text   strings.Builder
	read   int           // how far next has looked
	more   chan struct{} // closed when there is more text
	killed bool          // or reaped: the process id is no longer ours
}

func newRank(n int, cmd *exec.Cmd) *rank {
	r := &rank{n: n, cmd: cmd, done: make(chan struct{}), more: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = r, r
	cmd.WaitDelay = testenv.Limit
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, unix.SIGKILL
	return r
}

// start starts the process; a goroutine of its own reaps it.
func (r *rank) start(how func(*exec.Cmd) error) error {
	in, out, err := os.Pipe()
	if err != nil {
		return err
	}
	r.cmd.Stdin, r.in = in, out
	started := make(chan error)
	go func() {
		// Pdeathsig comes when the thread that started the process ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := how(r.cmd)
		in.Close()
		started <- err
		if err != nil {
			r.in.Close()
			return
		}
		r.reap()
	}()
	return <-started
}

func (r *rank) reap() {
	for {
		err := unix.Waitid(unix.P_PID, r.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	r.mu.Lock()
	_ = unix.Kill(-r.cmd.Process.Pid, unix.SIGKILL) // what it may have left in its group
	r.killed = true
	r.mu.Unlock()
	_ = r.cmd.Wait() // the state says how it ended
	r.in.Close()
	close(r.done)
}

// Write collects output.
func (r *rank) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text.Write(b)
	close(r.more)
	r.more = make(chan struct{})
	return len(b), nil
}

// news returns a channel that is closed when the process prints more.
func (r *rank) news() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.more
}

func (r *rank) output() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// next looks for a complete line that starts with word, after the last one found.
func (r *rank) next(word string) (rest string, more <-chan struct{}, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := r.text.String()
	for at := r.read; ; {
		line, _, complete := strings.Cut(text[at:], "\n")
		if !complete {
			return "", r.more, false
		}
		at += len(line) + 1
		if rest, found := strings.CutPrefix(line, word); found {
			r.read = at
			return rest, nil, true
		}
	}
}

// rewind makes next start from the first line again.
func (r *rank) rewind() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read = 0
}

// tell writes a line to the process's standard input.
func (r *rank) tell(line string) { fmt.Fprintln(r.in, line) }

func (r *rank) signal(s unix.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.killed {
		_ = unix.Kill(-r.cmd.Process.Pid, s)
	}
}

func (r *rank) kill() { r.signal(unix.SIGKILL) }
