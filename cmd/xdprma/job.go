package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/launch/bootstrap"
)

const (
	lastWords = time.Second     // until ranks get SIGTERM when one has failed: another may know why, and be about to say so
	grace     = 3 * time.Second // from then until SIGKILL
)

// process is one rank of a job.
type process struct {
	rank   int
	cmd    *exec.Cmd
	start  func(*exec.Cmd) error
	stdout *stream
	stderr *stream
	far    *remote // nil: the rank is on this machine, and is the process itself
	guard  *guard

	mu    sync.Mutex
	begun bool        // the process is being made, or has been
	alive bool        // it exists and has not been reaped, so its group id is its own
	early unix.Signal // came before that
}

// begin says that the process is being made: a signal that comes from now on waits for it.
func (p *process) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun = true
}

// hasBegun reports whether a signal can be passed on to the rank, on whatever host. The process of a rank on
// this machine may say something before its start is over.
func (p *process) hasBegun() bool {
	if p.far != nil {
		return p.far.hasBegun()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.begun
}

// signal sends s to the rank and its descendants, unless it has ended.
func (p *process) signal(s unix.Signal) {
	if p.far != nil && p.far.order(s) {
		if s == unix.SIGKILL {
			time.AfterFunc(grace, p.kill) // where the connection hangs
		}
		return
	}
	if p.far != nil {
		s = unix.SIGKILL // the end of the connection is enough
	}
	p.signalGroup(s)
}

// kill ends the process and its group on this machine.
func (p *process) kill() { p.signalGroup(unix.SIGKILL) }

func (p *process) signalGroup(s unix.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.alive {
		unix.Kill(-p.cmd.Process.Pid, s)
	} else {
		p.early = s
	}
}

// born says that the process exists, and sends what came before.
func (p *process) born() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alive = true
	if p.early != 0 {
		unix.Kill(-p.cmd.Process.Pid, p.early)
	}
}

// run starts the process, tells on started how that went, and returns when the
// process has ended and its output has been passed on.
func (p *process) run(started chan<- error) *outcome {
	// The kernel sends Pdeathsig when the thread that started the process ends,
	// so that thread must stay as long as the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p.cmd.Stdout, p.cmd.Stderr = p.stdout.w, p.stderr.w
	leader := -1 // has a descriptor of the process
	p.cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL, PidFD: &leader}
	kills := memoryKills()
	over := p.guard.starting(p.cmd.Env)
	err := p.start(p.cmd)
	p.stdout.started()
	p.stderr.started()
	finish := func() {
		p.stdout.finish()
		p.stderr.finish()
	}
	if err != nil {
		over()
		finish()
		started <- err
		return nil
	}
	p.guard.group(p.cmd.Process.Pid, leader)
	over()
	p.born()
	started <- nil
	p.awaitEnd()
	at := time.Now()
	p.kill() // what the process left running in its group
	p.guard.forget(p.cmd.Process.Pid)
	p.mu.Lock()
	p.alive = false
	p.mu.Unlock()
	p.cmd.Wait()
	finish()
	o := outcomeOf(p.cmd.ProcessState)
	if p.far == nil && o.status == statusSignal+int(unix.SIGKILL) && memoryKills() > kills {
		o.reason += lackOfMemory
	}
	o.at = at
	if p.far != nil {
		o = p.far.over(o)
		o.at = at
	}
	return &o
}

// outcome is how a rank ended.
type outcome struct {
	status int    // for the job
	reason string // goes on after the rank
	at     time.Time
}

func outcomeOf(state *os.ProcessState) outcome {
	wait := state.Sys().(syscall.WaitStatus)
	if wait.Signaled() {
		return outcome{status: statusSignal + int(wait.Signal()), reason: "was killed by " + unix.SignalName(wait.Signal())}
	}
	return outcome{status: wait.ExitStatus(), reason: fmt.Sprintf("exited with status %d", wait.ExitStatus())}
}

// awaitEnd blocks until the process has ended, and does not reap it: until then
// its id, and so its group's, belong to it.
func (p *process) awaitEnd() {
	for {
		err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// ended is the end of one process; its outcome is nil if it never started.
type ended struct {
	rank int
	*outcome
}

// job is a set of processes that live and die together, unless it keeps going.
type job struct {
	processes  []*process
	console    *console
	timeout    time.Duration // 0: none
	keepGoing  bool          // a rank that fails does not end the others
	rendezvous *bootstrap.Server
	statuses   bool // the outcomes are printed in the end

	exits      chan ended
	status     int
	failing    bool             // a rank has failed, for which the job ends soon
	culprit    *process         // the rank that has failed first, if it had yet to end when the job was ended for it
	wordsOver  <-chan time.Time // then it does
	failures   int              // ranks that have failed, while the others go on
	ending     bool
	graceOver  <-chan time.Time
	interrupts int
	messages   sync.WaitGroup
	outcomes   map[int]outcome // of the ranks that have ended
}

// caught are the signals that the job sees; SIGPIPE only so that it does not end
// this process before it has cleaned up.
var caught = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE}

// catchSignals starts collecting signals; they are delivered to the job later.
func catchSignals() (signals chan os.Signal, stop func()) {
	signals = make(chan os.Signal, 16)
	signal.Notify(signals, caught...)
	return signals, func() { signal.Stop(signals) }
}

// run starts all processes, one after the other, returns when all have ended, and returns the
// job's exit status.
func (j *job) run(signals <-chan os.Signal) int {
	j.exits = make(chan ended, len(j.processes))
	j.outcomes = make(map[int]outcome)
	var timeout <-chan time.Time
	if j.timeout > 0 {
		timeout = time.After(j.timeout)
	}
	begun, running := 0, 0
	var starting chan error // has how the start of the last that was begun went; nil: that is known
	for {
		if starting == nil && begun < len(j.processes) && !j.failing && !j.ending {
			p, started := j.processes[begun], make(chan error, 1)
			p.begin()
			go func() { j.exits <- ended{p.rank, p.run(started)} }()
			starting = started
			begun++
			running++
		}
		if starting == nil && running == 0 {
			break
		}
		select {
		case err := <-starting: // which may take long on another host
			if starting = nil; err != nil {
				j.end(startStatus(err), fmt.Sprintf("rank %d could not be started: %v", j.processes[begun-1].rank, err))
			}
		case e := <-j.exits:
			running--
			j.exited(e)
		case s := <-signals:
			j.forward(s.(unix.Signal))
		case <-timeout:
			j.end(statusTimeout, fmt.Sprintf("the job has run for %v", j.timeout))
		case <-j.wordsOver:
			j.endFailed()
		case err := <-j.console.broken:
			j.lost(err)
		case <-j.graceOver:
			j.signalAll(unix.SIGKILL)
		}
	}
	j.judge()
	for _, p := range j.processes[begun:] {
		for _, s := range []*stream{p.stdout, p.stderr} {
			s.started()
			s.finish()
		}
	}
	select {
	case err := <-j.console.broken: // by the last words of a rank
		j.lost(err)
	default:
	}
	j.messages.Wait()
	if j.statuses {
		j.printStatuses()
	}
	return j.status
}

// lost ends the job because its output is: it could run for long to no purpose.
func (j *job) lost(err error) {
	if errors.Is(err, unix.EPIPE) {
		j.end(statusSignal+int(unix.SIGPIPE), "nobody reads the output")
		return
	}
	j.end(statusFailed, fmt.Sprintf("output is lost: %v", err))
}

// printStatuses prints how each rank ended.
func (j *job) printStatuses() {
	for _, p := range j.processes {
		o, ok := j.outcomes[p.rank]
		if !ok {
			o.reason = "was not started"
		}
		j.console.logf("rank %d %s%s", p.rank, o.reason, j.saidBy(p.rank))
	}
}

// startStatus is the exit status for a program that could not be started.
func startStatus(err error) int {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.status
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		return statusNotFound
	}
	return statusNotRunnable
}

// exited has the job end soon if a rank failed, or says so and lets the others go on. These are told of
// every end, because a rank that has ended cannot answer them.
func (j *job) exited(e ended) {
	if e.outcome == nil {
		return
	}
	j.outcomes[e.rank] = *e.outcome
	switch {
	case j.ending:
		return
	case e.status != 0 && !j.keepGoing:
		if !j.failing {
			j.failing, j.wordsOver = true, time.After(lastWords)
		}
	case e.status != 0:
		j.failures++
		text := fmt.Sprintf("rank %d %s%s; the others go on", e.rank, e.reason, j.saidBy(e.rank))
		j.messages.Go(func() { j.console.logf("%s", text) })
	}
	j.rendezvous.Ended(e.rank, "it "+e.reason)
}

// end makes all ranks end; the first reason counts.
func (j *job) end(status int, reason string) {
	if j.ending {
		return
	}
	j.ending, j.status = true, status
	j.signalAll(unix.SIGTERM)
	j.rendezvous.Abort(reason)
	// Aside, because somebody who does not read the output must not delay the end.
	j.messages.Go(func() { j.console.logf("%s; ending the job", reason) })
	j.graceOver = time.After(grace)
}

// forward passes a signal on, or ends the job if some ranks have not been started: these could not
// obey it. The second SIGINT means that the first was not obeyed.
func (j *job) forward(s unix.Signal) {
	if s == unix.SIGPIPE {
		return
	}
	if s == unix.SIGINT {
		if j.interrupts++; j.interrupts > 1 {
			s = unix.SIGKILL
		}
	}
	if waiting := j.waiting(); waiting != "" && !j.ending {
		j.end(statusSignal+int(s), unix.SignalName(s)+" came before "+waiting)
		return
	}
	j.signalAll(s)
}

// waiting says which ranks have not begun, or nothing.
func (j *job) waiting() string {
	waiting := slices.DeleteFunc(slices.Clone(j.processes), (*process).hasBegun)
	if len(waiting) == 0 {
		return ""
	}
	first := fmt.Sprintf("rank %d", waiting[0].rank)
	where := ""
	if far := waiting[0].far; far != nil {
		where = " on host " + far.host
	}
	if len(waiting) == 1 {
		return first + " had begun" + where
	}
	return fmt.Sprintf("%d ranks had begun, of which %s%s is the first", len(waiting), first, where)
}

func (j *job) signalAll(s unix.Signal) {
	for _, p := range j.processes {
		p.signal(s)
	}
}
