package logs

import (
	"context"
	"strings"
	"testing"
)

// TestLog has one goroutine await what another logs.
func TestLog(t *testing.T) {
	var log Log
	logger := log.Logger()
	go func() {
		for i := range 100 {
			logger.Warn("a line", "number", i)
			logger.Debug("a line that nobody asked for")
		}
	}()
	log.Await(t.Context(), t, 10, "a line", "number=9")
	log.Await(t.Context(), t, 100, "a line")
	if n := log.Lines("a line", "level=WARN"); n != 100 || log.Lines("number=1 ") != 0 || log.Lines() != 100 || strings.Contains(log.String(), "nobody") {
		t.Errorf("%d lines:\n%s", n, &log)
	}
}

// fails is a test that may fail.
type fails struct {
	testing.TB
	text string
}

func (f *fails) Helper() {}

func (f *fails) Errorf(string, ...any) { f.text = "failed" }

// TestAwaitEnds awaits lines that do not come.
func TestAwaitEnds(t *testing.T) {
	var log Log
	log.Logger().Info("one line")
	ended, end := context.WithCancel(t.Context())
	end()
	f := &fails{TB: t}
	if log.Await(ended, f, 1, "one", "line"); f.text != "" {
		t.Error("what is there is not found")
	}
	if log.Await(ended, f, 2, "line"); f.text == "" {
		t.Error("what is not there is found")
	}
}
