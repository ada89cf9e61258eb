package devicetest

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// leaves checks that Close leaves no goroutine and no descriptor.
func (n Network) leaves(t *testing.T) {
	closed := func() {
		a, b := n.Open(t)
		for range 2 {
			if err := errors.Join(a.Close(), b.Close()); err != nil {
				t.Error(err)
			}
		}
	}
	closed() // some of it is opened once in a process
	files, goroutines := testenv.OpenFiles(t), runtime.NumGoroutine()
	for range 3 {
		closed()
	}
	if now := testenv.OpenFiles(t); now != files {
		t.Errorf("%d open files, %d before", now, files)
	}
	testenv.Await(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= goroutines })
}

// loses checks that a device tells of its loss, and can be closed then.
func (n Network) loses(t *testing.T) {
	a, _ := n.open(t)
	if a.facts.Alive.Err() != nil {
		t.Fatalf("it is lost from the start: %v", context.Cause(a.facts.Alive))
	}
	n.Lose(t)
	testenv.Await(t, "the device to tell of its loss", func() bool { return a.facts.Alive.Err() != nil })
	if why := context.Cause(a.facts.Alive); why == nil || errors.Is(why, context.Canceled) {
		t.Errorf("the reason of the loss is %v", why)
	}
	a.Transmit()
	a.Wake()
	_ = testenv.Ends(t, "a sleep", testenv.Start(func() error { a.Sleep(1); return nil }))
}
