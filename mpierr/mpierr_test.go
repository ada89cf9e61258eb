package mpierr

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestNamedErrorKeepsClassAndRankOfItsCause(t *testing.T) {
	cause := errors.New("cause")
	for _, c := range []struct {
		rank int
		err  error
		want Error
	}{
		{3, &Error{"send", ProcFailed, 1, cause}, Error{"call", ProcFailed, 3, cause}},
		{NoRank, fmt.Errorf("outside: %w", &Error{"send", Rank, 1, cause}), Error{"call", Rank, 1, cause}},
		{2, context.Canceled, Error{"call", Timeout, 2, context.Canceled}},
		{NoRank, context.DeadlineExceeded, Error{"call", Timeout, NoRank, context.DeadlineExceeded}},
		{2, cause, Error{"call", Intern, 2, cause}},
	} {
		if got := Named("call", c.rank, c.err); *got != c.want {
			t.Errorf("%v at %d: got %v, want %v", c.err, c.rank, got, &c.want)
		}
	}
	if err := Named("wait", 0, fmt.Errorf("key: %w", context.Canceled)); !errors.Is(err, context.Canceled) || !errors.Is(err, Timeout) {
		t.Errorf("%v is not the end of a context", err)
	}
}

// TestEndOfContextIsNamed has contexts end in both ways.
func TestEndOfContextIsNamed(t *testing.T) {
	for _, cause := range []error{context.DeadlineExceeded, context.Canceled} {
		err := Named("barrier", NoRank, cause)
		if want := "barrier: timed out or cancelled: " + cause.Error(); err.Error() != want || !errors.Is(err, Timeout) || !errors.Is(err, cause) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestClassIsFoundInWrappedErrors(t *testing.T) {
	tag := &Error{Class: Tag}
	for _, c := range []struct {
		err  error
		want Class
	}{
		{nil, Success}, {tag, Tag}, {Rank, Rank}, {errors.New("other"), Intern}, {fmt.Errorf("outside: %w", tag), Tag},
		{errors.Join(errors.New("other"), tag, &Error{Class: Rank}), Tag}, {fmt.Errorf("%w", Op), Op},
	} {
		if got := ClassOf(c.err); got != c.want {
			t.Errorf("class of %v: got %v, want %v", c.err, got, c.want)
		}
	}
}
