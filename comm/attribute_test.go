package comm_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/userspace"
)

func TestKeyval(t *testing.T) {
	_, jobs := join(t, 1, userspace.Limits{})
	c := jobs[0].World()
	fail := errors.New("it will not go")
	var gone []int
	number := comm.NewKeyval(nil, func(of *comm.Comm, n int) error {
		if of != c {
			t.Error("the callback got another communicator")
		}
		if n < 0 {
			return fail
		}
		gone = append(gone, n)
		return nil
	})
	plain := comm.NewKeyval[error](nil, nil)
	if _, ok := number.Get(c); ok {
		t.Error("a new communicator has a value")
	}
	if err := errors.Join(number.Set(c, 1), number.Set(c, 2), plain.Set(c, nil)); err != nil {
		t.Error(err)
	}
	if n, ok := number.Get(c); n != 2 || !ok {
		t.Errorf("got %d, %v", n, ok)
	}
	if err, ok := plain.Get(c); err != nil || !ok {
		t.Errorf("got %v, %v", err, ok)
	}
	if err := errors.Join(number.Delete(c), number.Delete(c), number.Set(c, -1)); err != nil {
		t.Error(err)
	}
	var told []error
	c.SetErrhandler(func(_ *comm.Comm, err error) { told = append(told, err) })
	for what, err := range map[string]error{"set": number.Set(c, 5), "delete": number.Delete(c)} {
		if !errors.Is(err, mpierr.Other) || !errors.Is(err, fail) {
			t.Errorf("%s: got %v, want the callback's error", what, err)
		}
	}
	if len(told) != 2 {
		t.Errorf("the handler was told %v", told)
	}
	if want := []int{1, 2}; !slices.Equal(gone, want) {
		t.Errorf("deleted %v, want %v", gone, want)
	}
}

func TestNames(t *testing.T) {
	_, jobs := join(t, 1, userspace.Limits{})
	c := jobs[0].World()
	if c.Name() != "MPI_COMM_WORLD" {
		t.Errorf("the world is called %q", c.Name())
	}
	if c.SetName("all"); c.Name() != "all" {
		t.Errorf("the world is called %q", c.Name())
	}
}

// TestDupFails has the callbacks of a duplicate fail at one rank: no rank gets one, and
// what the others have copied is deleted.
func TestDupFails(t *testing.T) {
	ctx, jobs := join(t, 3, userspace.Limits{})
	if err := errors.Join(each(jobs, func(j *comm.Job) error {
		w, bad, deleted := j.World(), j.Rank() == 1, 0
		k := comm.NewKeyval(func(_ *comm.Comm, n int) (int, bool, error) {
			if bad {
				return 0, false, errors.New("it will not be copied")
			}
			return n + 1, true, nil
		}, func(*comm.Comm, int) error {
			deleted++
			return nil
		})
		if err := k.Set(w, 1); err != nil {
			return err
		}
		d, err := w.Dup(ctx)
		var e *mpierr.Error
		if d != nil || !errors.As(err, &e) || e.Class != mpierr.Other || e.Rank != 1 && !bad {
			return fmt.Errorf("rank %d: %v, %w", j.Rank(), d, err)
		}
		if deleted != 1 && !bad {
			return fmt.Errorf("rank %d: %d copies deleted, want 1", j.Rank(), deleted)
		}
		bad = false
		if d, err = w.Dup(ctx); err != nil {
			return err
		}
		if n, ok := k.Get(d); n != 2 || !ok {
			return fmt.Errorf("the copy is %d, %v", n, ok)
		}
		return errors.Join(d.Barrier(ctx), d.Free(), w.Barrier(ctx))
	})...); err != nil {
		t.Fatal(err)
	}
}
