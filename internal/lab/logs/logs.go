// Package logs holds what programs log in tests, which read it while it is written.
package logs

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// Log is the text of a log. Several goroutines may write and read it. The zero value is an empty log.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{} // closed with the next line; nil: nobody waits for it
}

// Logger returns a logger that writes to l, from the level info on.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// Write appends text. It never fails.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
	return l.text.Write(b)
}

// String returns all that has been written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Lines returns how many lines have all the parts.
func (l *Log) Lines(parts ...string) (n int) {
	for line := range strings.Lines(l.String()) {
		if hasAll(line, parts) {
			n++
		}
	}
	return n
}

func hasAll(line string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(line, part) {
			return false
		}
	}
	return true
}

// Await blocks until n lines have all the parts. If ctx ends before, it fails the test and returns.
func (l *Log) Await(ctx context.Context, t testing.TB, n int, parts ...string) {
	t.Helper()
	for {
		more := l.next()
		if l.Lines(parts...) >= n {
			return
		}
		select {
		case <-more:
		case <-ctx.Done():
			t.Errorf("the log has not %d lines with %q:\n%s", n, parts, l)
			return
		}
	}
}

// next returns a channel that is closed with the next line.
func (l *Log) next() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more == nil {
		l.more = make(chan struct{})
	}
	return l.more
}
