package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxLine is how much of an unfinished line waits for the rest, in bytes. A longer line is passed on as it comes.
	maxLine = 64 << 10
	// maxKept is how much of such a line comes out whole, in bytes: so long the others wait.
	maxKept = 4 << 20
	// maxPause is how long they wait for more of it.
	maxPause = time.Second
	// promptDelay is how long an unfinished line waits for its end. It may be a question.
	promptDelay = 100 * time.Millisecond
)

// console is where the output of all ranks meets, one writer at a time.
type console struct {
	out, err *output
	turn     chan struct{} // has a member while somebody writes; the others get it in the order in which they came
	broken   chan error    // has why a write failed
}

// output is one of the two of a console.
type output struct {
	io.Writer
	at *surface
}

// surface is where an output shows. It is one for both where they are the same file.
type surface struct {
	open *lineWriter // its line is the last, and has no end; nil: there is none, or others go on behind it
}

func newConsole(out, err io.Writer) *console {
	c := &console{out: &output{out, &surface{}}, err: &output{err, &surface{}}, turn: make(chan struct{}, 1), broken: make(chan error, 1)}
	if sameFile(out, err) {
		c.err.at = c.out.at
	}
	return c
}

func sameFile(a, b io.Writer) bool {
	f, ok := a.(*os.File)
	g, ok1 := b.(*os.File)
	if !ok || !ok1 {
		return a == b
	}
	is, err := f.Stat()
	other, err1 := g.Stat()
	return err == nil && err1 == nil && os.SameFile(is, other)
}

// logf prints a message of xdprma's own to the error stream.
func (c *console) logf(format string, args ...any) {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	c.write(c.err, fmt.Appendf(c.err.at.breakLine(nil), "xdprma: "+format+"\n", args...))
}

// write is for who has the turn.
func (c *console) write(dst *output, text []byte) {
	if _, err := dst.Write(text); err != nil {
		c.lost(err)
	}
}

// lost says that output is lost; the first reason counts.
func (c *console) lost(err error) {
	select {
	case c.broken <- err:
	default:
	}
}

// breakLine returns batch with what has to stand before the output of another one than the writer of the open line.
// Without prefixes that is nothing: the bytes stay the ranks'.
func (s *surface) breakLine(batch []byte) []byte {
	if s.open != nil && s.open.prefix != "" {
		batch = append(batch, '\n')
	}
	s.open = nil
	return batch
}

// lineWriter passes lines on to a console, each behind a prefix, which may be empty. Lines of different writers are
// not mixed, as far as they end in time: a line waits for its end, and others go first. After promptDelay
// it is shown without, unless another one is shown so; its rest goes on behind it if nothing else
// has come in between, or else is a line of its own. A line longer than maxLine is passed on as it comes, and the others
// wait for its end, up to maxKept and maxPause.
type lineWriter struct {
	console *console
	dst     *output
	prefix  string

	mu      sync.Mutex
	pending []byte      // of an unfinished line
	passed  int         // bytes of that line that have been passed on
	keeps   bool        // it has the console's turn, until the line ends
	timer   *time.Timer // calls late
	due     time.Time   // when it is to do so; zero: not at all
	batch   []byte      // scratch
}

// Write takes p; it never fails, so that a rank is not blocked when nobody reads
// its output any more.
func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ready := 0
	if at := bytes.LastIndexByte(p, '\n'); at >= 0 {
		ready = len(w.pending) + at + 1
	}
	w.pending = append(w.pending, p...)
	if len(w.pending)-ready > maxLine || w.keeps && ready == 0 {
		ready = len(w.pending)
	}
	if ready > 0 {
		w.take()
		w.pass(ready)
		if w.keeps = w.dst.at.open == w && w.passed <= maxKept; !w.keeps {
			w.give()
		}
	}
	switch {
	case w.keeps && ready > 0:
		w.arm(maxPause)
	case len(w.pending) > 0 && (ready > 0 || w.due.IsZero()):
		w.arm(promptDelay)
	}
	return len(p), nil
}

// take waits for the turn, unless w has it.
func (w *lineWriter) take() {
	if !w.keeps {
		w.console.turn <- struct{}{}
	}
}

func (w *lineWriter) give() {
	w.keeps = false
	<-w.console.turn
}

// arm has late called after d, and not when it was to be called before.
func (w *lineWriter) arm(d time.Duration) {
	w.due = time.Now().Add(d)
	if w.timer == nil {
		w.timer = time.AfterFunc(d, w.late)
		return
	}
	w.timer.Reset(d)
}

// late shows what has waited long enough for its end, or lets the others go first. It may be called too early:
// more may come while it waits for w.
func (w *lineWriter) late() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.due.IsZero() || time.Now().Before(w.due) {
		return
	}
	w.due = time.Time{}
	if len(w.pending) == 0 && !w.keeps {
		return
	}
	w.take()
	defer w.give()
	if open := w.dst.at.open; open == nil || open == w {
		w.pass(len(w.pending))
	} else {
		w.arm(promptDelay)
	}
}

// pass writes the first n bytes of what is pending. It is for who has the turn.
func (w *lineWriter) pass(n int) {
	if n == 0 {
		return
	}
	at := w.dst.at
	w.batch = w.batch[:0]
	if at.open != w {
		w.batch = at.breakLine(w.batch)
	}
	for line := range bytes.Lines(w.pending[:n]) {
		if at.open != w {
			w.batch = append(w.batch, w.prefix...)
		}
		w.batch = append(w.batch, line...)
		at.open, w.passed = w, w.passed+len(line)
		if line[len(line)-1] == '\n' {
			at.open, w.passed = nil, 0
		}
	}
	w.pending = append(w.pending[:0], w.pending[n:]...)
	w.console.write(w.dst, w.batch)
}

// Flush passes on an unfinished last line. It ends the line, if it has a prefix.
func (w *lineWriter) Flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.take()
	defer w.give()
	if w.prefix != "" && (len(w.pending) > 0 || w.dst.at.open == w) {
		w.pending = append(w.pending, '\n')
	}
	w.pass(len(w.pending))
	if w.dst.at.open == w {
		w.dst.at.open = nil
	}
}

// sink takes what a process writes. Flush says that nothing more comes.
type sink interface {
	io.Writer
	Flush()
}

// stream copies what a process writes to a pipe.
type stream struct {
	r, w *os.File // w is the process's end
	to   sink
	done sync.WaitGroup
}

func newStream(to sink) (*stream, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s := &stream{r: r, w: w, to: to}
	s.done.Go(s.copy)
	return s, nil
}

// started gives up the process's end, once the process has it or will never have it.
func (s *stream) started() { s.w.Close() }

// finish returns when everything that the process, which has ended, wrote has
// been passed on. It does not wait for others that hold the pipe.
func (s *stream) finish() {
	s.r.SetReadDeadline(time.Now())
	s.done.Wait()
	s.r.Close()
}

func (s *stream) copy() {
	defer s.to.Flush()
	buf := make([]byte, 32<<10)
	for {
		n, err := s.r.Read(buf)
		s.to.Write(buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			s.drain(buf)
			return
		}
		if err != nil {
			return
		}
	}
}

// drain takes what is in the pipe, up to the most that a pipe holds by default
// limits, and does not wait for more.
func (s *stream) drain(buf []byte) {
	const most = 1 << 20
	s.r.SetReadDeadline(time.Time{})
	raw, err := s.r.SyscallConn()
	if err != nil {
		return
	}
	for total := 0; total < most; {
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			n, err = unix.Read(int(fd), buf)
			return true
		})
		if err != nil || n <= 0 {
			return
		}
		s.to.Write(buf[:n])
		total += n
	}
}

// logFile has one output of a rank.
type logFile struct {
	file    *os.File
	console *console
}

// Write takes p, and never fails: what the file does not take is lost, and the job is told so.
func (l *logFile) Write(p []byte) (int, error) {
	if _, err := l.file.Write(p); err != nil {
		l.console.lost(err)
	}
	return len(p), nil
}

// Flush closes the file.
func (l *logFile) Flush() {
	if err := l.file.Close(); err != nil {
		l.console.lost(err)
	}
}
