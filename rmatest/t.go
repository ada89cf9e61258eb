package rmatest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/xdprma/xdprma/rma"
)

// T is the test as one rank sees it. It is a testing.TB whose messages name the rank. Fatal,
// FailNow and Skip end the rank, whose goroutine calls them, and then the others. Functions
// given to Cleanup are called when the rank's function has returned, before its node is
// closed. All other methods are the test's own.
type T struct {
	testing.TB
	job      *trial
	rank     int
	ctx      context.Context
	skipping *skipping
	cleaning sync.Mutex
	cleanups []func()
}

// skipping is why a test is skipped.
type skipping struct{ reason string }

var errSkip = errors.New("a rank has skipped the test")

// Context returns the context of the rank. It ends when another rank has failed, when Network.Kill
// has killed this one, and when the time is over.
func (t *T) Context() context.Context { return t.ctx }

// Must fails the rank, as Fatal does, unless err is nil.
func (t *T) Must(err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

// Log logs as Println formats.
func (t *T) Log(args ...any) {
	t.Helper()
	t.say(t.TB.Log, fmt.Sprintln(args...))
}

// Logf logs as Printf formats.
func (t *T) Logf(format string, args ...any) {
	t.Helper()
	t.say(t.TB.Log, fmt.Sprintf(format, args...))
}

// Error is Log, and Fail.
func (t *T) Error(args ...any) {
	t.Helper()
	t.say(t.TB.Error, fmt.Sprintln(args...))
}

// Errorf is Logf, and Fail.
func (t *T) Errorf(format string, args ...any) {
	t.Helper()
	t.say(t.TB.Error, fmt.Sprintf(format, args...))
}

// Fail has the test fail, and the ranks go on.
func (t *T) Fail() {
	if t.job.heard(t.rank) {
		t.TB.Fail()
	}
}

// Fatal is Log, and FailNow.
func (t *T) Fatal(args ...any) {
	t.Helper()
	t.fatal(fmt.Sprintln(args...))
}

// Fatalf is Logf, and FailNow.
func (t *T) Fatalf(format string, args ...any) {
	t.Helper()
	t.fatal(fmt.Sprintf(format, args...))
}

// FailNow has the test fail, and ends the ranks.
func (t *T) FailNow() {
	if t.job.fail(t.rank, errTold) {
		t.TB.Fail()
	}
	runtime.Goexit()
}

// Skip is Log, and SkipNow.
func (t *T) Skip(args ...any) { t.leave(fmt.Sprintln(args...)) }

// Skipf is Logf, and SkipNow.
func (t *T) Skipf(format string, args ...any) { t.leave(fmt.Sprintf(format, args...)) }

// SkipNow ends the ranks, and has the test be skipped.
func (t *T) SkipNow() { t.leave("") }

// Cleanup has f called when the rank's function has returned, the last one first.
func (t *T) Cleanup(f func()) {
	t.cleaning.Lock()
	defer t.cleaning.Unlock()
	t.cleanups = append(t.cleanups, f)
}

func (t *T) say(by func(...any), text string) {
	t.Helper()
	if t.job.heard(t.rank) {
		by(fmt.Sprintf("rank %d: %s", t.rank, strings.TrimSuffix(text, "\n")))
	}
}

// fatal tells of a failure only if it is the first, which the others may follow from.
func (t *T) fatal(text string) {
	t.Helper()
	if t.job.fail(t.rank, errTold) {
		t.say(t.TB.Error, text)
	}
	runtime.Goexit()
}

func (t *T) leave(text string) {
	if t.job.fail(t.rank, errSkip) {
		t.skipping.reason = fmt.Sprintf("rank %d: %s", t.rank, strings.TrimSuffix(text, "\n"))
	}
	runtime.Goexit()
}

// unwind calls the functions of Cleanup, which may add others, and of which each is called
// whatever the ones before have done.
func (t *T) unwind() {
	t.cleaning.Lock()
	n := len(t.cleanups)
	if n == 0 {
		t.cleaning.Unlock()
		return
	}
	last := t.cleanups[n-1]
	t.cleanups = t.cleanups[:n-1]
	t.cleaning.Unlock()
	defer t.unwind()
	last()
}

// log writes the lines of a rank's logger to the test's log.
type log struct{ t *T }

func (l *log) Write(line []byte) (int, error) {
	l.t.Log(string(line))
	return len(line), nil
}

// logs is a handler that leaves out conflicting accesses, which Run reports itself.
type logs struct{ slog.Handler }

// Handle implements slog.Handler.
func (l *logs) Handle(ctx context.Context, r slog.Record) error {
	conflict := false
	r.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		conflict = ok && errors.Is(err, rma.ErrRMAConflict)
		return !conflict
	})
	if conflict {
		return nil
	}
	return l.Handler.Handle(ctx, r)
}
