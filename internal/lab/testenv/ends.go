package testenv

import (
	"testing"
	"time"
)

// Start runs f in a goroutine, whose end Ends waits for.
func Start(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// Ends waits for what Start has begun, and returns its error. what names it where it does not end.
func Ends(t testing.TB, what string, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(Limit):
		t.Fatalf("%s does not end", what)
		return nil
	}
}
