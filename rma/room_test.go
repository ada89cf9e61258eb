package rma_test

import (
	"context"
	"errors"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/rma"
)

// TestWithinBoundsTheWaitForRoom issues calls to a rank that is stopped, within a context
// that has ended, until there is no room: each kind of call fails then, in place of waiting,
// and what was issued completes when the rank goes on.
func TestWithinBoundsTheWaitForRoom(t *testing.T) {
	once(t)
	j := newJob(t, 2, rma.Limits{TxFrames: 64})
	wins := j.windows(1<<16, 8)
	w, data := wins[0], make([]byte, 1<<16)
	none, cancel := context.WithCancel(j.ctx)
	cancel()
	at := rma.At(0).Within(none)
	j.must(w.Lock(j.ctx, rma.LockShared, 1, 0), w.Put(buffer.Bytes(data[:8]), 1, at), w.Flush(j.ctx, 1))
	release := j.nodes[1].Hold()
	for name, call := range map[string]func() error{
		"put":        func() error { return w.Put(buffer.Bytes(data), 1, at) },
		"get":        func() error { return w.Get(buffer.Bytes(make([]byte, 1<<16)), 1, at) },
		"accumulate": func() error { return w.Accumulate(buffer.Bytes(data), 1, at, rma.BOr) },
		"get_accumulate": func() error {
			return w.GetAccumulate(buffer.Bytes(data), buffer.Bytes(make([]byte, 1<<16)), 1, at, rma.BOr)
		},
		"rput": func() error { _, err := w.Rput(buffer.Bytes(data), 1, at); return err },
	} {
		var err error
		for err == nil {
			err = call()
		}
		var e *rma.Error
		if !errors.As(err, &e) || e.Op != name || e.Class != rma.ErrTimeout || !errors.Is(err, context.Canceled) {
			t.Errorf("%s without room: %v", name, err)
		}
	}
	release()
	one := []byte{1}
	j.must(w.Flush(j.ctx, 1), w.Put(buffer.Bytes(one), 1, rma.At(0)), w.Unlock(j.ctx, 1))
	if wins[1].Memory()[0] != 1 {
		t.Error("a put after those that were given up has not arrived")
	}
	freeAll(j, wins)
}
