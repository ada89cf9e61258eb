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

// maxLine is how much of an unfinished line is kept; a longer line is cut into
// lines of this length.
const maxLine = 64 << 10

// console is where the output of all ranks meets. Writes to it are whole lines,
// one writer at a time.
type console struct {
	mu       sync.Mutex
	out, err io.Writer
	once     sync.Once
	broken   chan struct{} // closed when a write has failed
}

func newConsole(out, err io.Writer) *console {
	return &console{out: out, err: err, broken: make(chan struct{})}
}

// logf prints a message of xdprma's own to the error stream.
func (c *console) logf(format string, args ...any) {
	c.write(c.err, fmt.Appendf(nil, "xdprma: "+format+"\n", args...))
}

func (c *console) write(dst io.Writer, lines []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := dst.Write(lines); err != nil {
		c.once.Do(func() { close(c.broken) })
	}
}

// lineWriter passes whole lines on to a console, each behind a prefix. It is
// for one goroutine.
type lineWriter struct {
	console *console
	dst     io.Writer
	prefix  string
	partial []byte // an unfinished line
	batch   []byte // scratch
}

// Write takes p; it never fails, so that a rank is not blocked when nobody reads
// its output any more.
func (w *lineWriter) Write(p []byte) (int, error) {
	n := len(p)
	w.batch = w.batch[:0]
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		room := maxLine - len(w.partial)
		switch {
		case end >= 0 && end <= room:
			w.addLine(p[:end])
			p = p[end+1:]
		case len(p) > room:
			w.addLine(p[:room])
			p = p[room:]
		default:
			w.partial = append(w.partial, p...)
			p = nil
		}
	}
	if len(w.batch) > 0 {
		w.console.write(w.dst, w.batch)
	}
	return n, nil
}

func (w *lineWriter) addLine(rest []byte) {
	w.batch = append(w.batch, w.prefix...)
	w.batch = append(w.batch, w.partial...)
	w.batch = append(w.batch, rest...)
	w.batch = append(w.batch, '\n')
	w.partial = w.partial[:0]
}

// Flush ends an unfinished last line.
func (w *lineWriter) Flush() {
	if len(w.partial) > 0 {
		w.Write([]byte{'\n'})
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
	failed  bool
}

// Write takes p; it never fails, and says so once where the file takes no more.
func (l *logFile) Write(p []byte) (int, error) {
	if !l.failed {
		if _, err := l.file.Write(p); err != nil {
			l.failed = true
			l.console.logf("warning: output is lost: %v", err)
		}
	}
	return len(p), nil
}

// Flush closes the file.
func (l *logFile) Flush() { l.file.Close() }
