package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// defaultSSH asks for nothing, and notices within some seconds that a host does not answer.
const defaultSSH = "ssh -T -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=5 -o ServerAliveCountMax=3"

// failedSSH is the status of ssh where it has itself failed.
const failedSSH = 255

// maxConnecting is how many connections to a host are opened at once; sshd drops some of more
// than ten (MaxStartups).
const maxConnecting = 8

// How long a rank takes to begin on its host before xdprma run says that it has not, and before it
// gives the rank up. The second leaves a minute beyond defaultSSH's limit for connecting.
const (
	beginWarning = 5 * time.Second
	beginLimit   = 75 * time.Second
)

// unread is why a rank may not begin where ssh has connected.
const unread = "a start-up file of the shell there, such as ~/.bashrc, may read or keep the standard input, by which the rank comes; " +
	"have it do nothing in a shell that is not interactive"

// remote is a rank on another host, by a process of ssh on this one.
type remote struct {
	ssh     []string // the command, to which the host is added
	host    string
	script  string   // see supervisor
	mark    string   // what begins the supervisor's own words
	input   *os.File // what the rank reads; nil: nothing
	door    *door
	warning time.Duration // see beginWarning
	limit   time.Duration // see beginLimit
	logf    func(format string, args ...any)
	orders  chan string   // lines for the supervisor
	givenUp chan struct{} // closed when the rank is to end before it has begun

	mu      sync.Mutex
	begun   bool
	closed  bool   // orders is
	ends    int    // outputs that have ended
	end     string // what the supervisor said of the rank's end; empty: nothing yet
	problem string // why the rank has been ended from here
	status  int    // of the rank, where there is a problem; 0: that of ssh
	said    tail   // of what ssh said before the supervisor
	feeder  *os.Process
}

// door is what the connections to one host share.
type door struct {
	connecting chan struct{} // has a member for each that has not begun
	told       sync.Once     // that one has not begun for some time
}

func newDoor() *door { return &door{connecting: make(chan struct{}, maxConnecting)} }

// sshTo returns a process of ssh on which command runs at the host.
func (r *remote) sshTo(command string) *exec.Cmd {
	args := slices.Concat(r.ssh, []string{r.host, command})
	return &exec.Cmd{Path: args[0], Args: args, Env: os.Environ()}
}

// connect starts the process of ssh. It blocks while many others connect to the host, unless the
// rank is given up. Where the rank has not begun in time, kill ends the process.
func (r *remote) connect(cmd *exec.Cmd, kill func()) error {
	select {
	case r.door.connecting <- struct{}{}:
	case <-r.givenUp:
		r.mu.Lock()
		defer r.mu.Unlock()
		return &exitError{r.status, errors.New("it " + r.problem)}
	}
	in, orders, err := os.Pipe()
	if err == nil {
		cmd.Stdin = in
		err = cmd.Start()
		in.Close()
	}
	if err != nil {
		orders.Close() // of none is no harm
		<-r.door.connecting
		return fmt.Errorf("connect to host %s: %w", r.host, err)
	}
	go func() {
		defer orders.Close()
		for line := range r.orders { // a write fails when ssh has ended
			if _, err := io.WriteString(orders, line+"\n"); err != nil {
				return
			}
		}
	}()
	r.orders <- r.script
	time.AfterFunc(r.warning, r.tellLate)
	time.AfterFunc(r.limit, func() { r.giveUp(kill) })
	return nil
}

// tellLate says that the rank has not begun, if that is so, once for all ranks of the host.
func (r *remote) tellLate() {
	if !r.hasBegun() {
		r.door.told.Do(func() {
			r.logf("host %s has not begun a rank for %v, and is given up after %v: ssh still connects, or %s", r.host, r.warning, r.limit, unread)
		})
	}
}

// giveUp ends the connection if the rank has not begun.
func (r *remote) giveUp(kill func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.begun && !r.closed && r.problem == "" {
		r.problem, r.status = fmt.Sprintf("did not begin on host %s within %v: %s", r.host, r.limit, unread), failedSSH
		kill()
	}
}

// hasBegun reports whether the rank has begun on its host, or never will.
func (r *remote) hasBegun() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.begun || r.closed
}

// order passes a signal on, and reports false if the rank has not begun.
func (r *remote) order(s unix.Signal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return true
	}
	if !r.begun {
		if r.problem == "" {
			r.problem, r.status = "was ended by "+unix.SignalName(s)+" before it began on host "+r.host, statusSignal+int(s)
			close(r.givenUp)
		}
		return false
	}
	select {
	case r.orders <- strings.TrimPrefix(unix.SignalName(s), "SIG"):
	default: // many wait already
	}
	return true
}

// hear takes the supervisor's words in an output. kill ends the connection.
func (r *remote) hear(word string, kill func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kind, rest, _ := strings.Cut(word, " ")
	switch {
	case kind == "begin" && !r.begun:
		r.begun = true
		<-r.door.connecting
		if r.input != nil {
			go r.feed(rest, kill)
		}
	case kind == "end":
		r.end = rest
		if r.ends++; r.ends == 2 {
			// Something that the rank has left behind may hold the outputs, and so ssh.
			time.AfterFunc(grace, kill)
		}
	}
}

// mistrust ends the connection, by kill, to a host that says what no supervisor does.
func (r *remote) mistrust(kill func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.problem == "" {
		r.problem, r.status = fmt.Sprintf("is given up: host %s says more than %d bytes in place of a word of its supervisor", r.host, maxWord), statusFailed
	}
	kill()
}

// feed carries the rank's standard input, by a connection of its own, until that ends.
func (r *remote) feed(folder string, kill func()) {
	runtime.LockOSThread() // see process.run
	defer runtime.UnlockOSThread()
	cmd := r.sshTo(sshCommand)
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	var said tail
	cmd.Stderr = &said
	in, w, err := os.Pipe()
	if err == nil {
		cmd.Stdin = in
		err = cmd.Start()
		in.Close()
	}
	if err == nil {
		r.mu.Lock()
		r.feeder = cmd.Process
		over := r.end != ""
		r.mu.Unlock()
		if over {
			r.endFeeder()
		}
		go func() {
			defer w.Close()
			if _, err := io.WriteString(w, feederScript(folder)+"\n"); err == nil {
				io.Copy(w, r.input)
			}
		}()
		err = cmd.Wait()
	}
	if err == nil || cmd.ProcessState != nil && cmd.ProcessState.ExitCode() != failedSSH { // the rank need not read all
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end == "" {
		r.problem = fmt.Sprintf("lost its standard input on host %s: %s", r.host, lastLine(string(said), err.Error()))
		kill()
	}
}

// remember keeps the end of what ssh says before the supervisor begins.
func (r *remote) remember(text []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.begun {
		r.said.Write(text)
	}
}

// tail keeps the end of what is written.
type tail []byte

func (t *tail) Write(p []byte) (int, error) {
	const most = 4 << 10
	text := append(*t, p...)
	*t = append(text[:0], text[max(0, len(text)-most):]...)
	return len(p), nil
}

func (r *remote) endFeeder() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.feeder != nil {
		_ = r.feeder.Kill()
	}
}

// over tidies up behind the process of ssh, and returns how the rank ended.
func (r *remote) over(ssh outcome) outcome {
	r.mu.Lock()
	if !r.begun {
		<-r.door.connecting
	}
	close(r.orders)
	r.closed = true
	begun, end, problem, said := r.begun, r.end, r.problem, string(r.said)
	r.mu.Unlock()
	r.endFeeder()
	failed := cmp.Or(r.status, ssh.status, statusFailed)
	status, cause, _ := strings.Cut(end, " ")
	n, err := strconv.Atoi(status)
	switch {
	case end != "" && err == nil && cause != "":
		return outcome{status: n, reason: fmt.Sprintf("could not be started on host %s: %s", r.host, cause)}
	case end != "" && err == nil:
		return outcome{status: n, reason: ofShell(n) + " on host " + r.host}
	case problem != "":
		return outcome{status: failed, reason: problem}
	case !begun:
		return outcome{status: failed, reason: fmt.Sprintf("could not be started on host %s: %s", r.host, lastLine(said, "ssh "+ssh.reason))}
	}
	return outcome{status: failed, reason: fmt.Sprintf("is lost: the connection to host %s ended (ssh %s)", r.host, ssh.reason)}
}

// ofShell says in words what a shell's status means.
func ofShell(status int) string {
	if name := unix.SignalName(unix.Signal(status - statusSignal)); status > statusSignal && name != "" {
		return "was killed by " + name
	}
	return fmt.Sprintf("exited with status %d", status)
}

// lastLine returns the last line of text that is not empty, without its full stop, or else.
func lastLine(text, otherwise string) string {
	lines := strings.FieldsFunc(text, func(c rune) bool { return c == '\n' || c == '\r' })
	if len(lines) == 0 {
		return otherwise
	}
	return strings.TrimSuffix(lines[len(lines)-1], ".")
}

// markReader passes output on, and takes the supervisor's words out of it: what stands between
// a mark and the end of the line.
type markReader struct {
	to      sink
	mark    []byte
	heard   func(word string)
	tooLong func()            // hears of a word that no supervisor says
	passed  func(text []byte) // sees what is passed on; may be nil
	pending []byte            // may be a part of a mark or of its line
	over    bool              // after a word that was too long nothing counts
}

// maxWord is how long a supervisor's word may be, in bytes. It may name a program or a folder.
const maxWord = 16 << 10

// Write takes p, and never fails.
func (m *markReader) Write(p []byte) (int, error) {
	n := len(p)
	if m.over {
		return n, nil
	}
	m.pending = append(m.pending, p...)
	for {
		at := bytes.Index(m.pending, m.mark)
		if at < 0 {
			at = len(m.pending) - begunMark(m.pending, m.mark)
			m.pass(at)
			return n, nil
		}
		m.pass(at)
		end := bytes.IndexByte(m.pending, '\n')
		if end < 0 && len(m.pending) > len(m.mark)+maxWord {
			m.over, m.pending = true, nil
			m.tooLong()
			return n, nil
		}
		if end < 0 {
			return n, nil
		}
		m.heard(string(m.pending[len(m.mark):end]))
		m.pending = append(m.pending[:0], m.pending[end+1:]...)
	}
}

func (m *markReader) pass(n int) {
	if n == 0 {
		return
	}
	if m.passed != nil {
		m.passed(m.pending[:n])
	}
	m.to.Write(m.pending[:n])
	m.pending = append(m.pending[:0], m.pending[n:]...)
}

// Flush passes on what has turned out to be no mark.
func (m *markReader) Flush() {
	m.pass(len(m.pending))
	m.to.Flush()
}

// begunMark returns how many bytes at the end of text are the beginning of a mark.
func begunMark(text, mark []byte) int {
	for n := min(len(text), len(mark)-1); n > 0; n-- {
		if bytes.HasSuffix(text, mark[:n]) {
			return n
		}
	}
	return 0
}
