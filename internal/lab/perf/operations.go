package perf

import (
	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/rma"
)

// words are single elements for the calls that work on one.
type words struct{ one, compare, result int64 }

// smallest is the bytes of a word, and of an operation where a test has no size.
const smallest = 8

// flush completes what was issued to the peer.
func (r *rank) flush() error { return r.win.Flush(r.ctx, r.peer()) }

func putOnce(r *rank, p Point) pass {
	origin := buffer.Bytes(r.out[:p.Bytes])
	return func() error {
		if err := r.win.Put(origin, r.peer(), rma.At(0)); err != nil {
			return err
		}
		return r.flush()
	}
}

func getOnce(r *rank, p Point) pass {
	result := buffer.Bytes(r.in[:p.Bytes])
	return func() error {
		if err := r.win.Get(result, r.peer(), rma.At(0)); err != nil {
			return err
		}
		return r.flush()
	}
}

func accumulateOnce(r *rank, p Point) pass {
	origin := buffer.Of(make([]int64, p.Bytes/8))
	return func() error {
		if err := r.win.Accumulate(origin, r.peer(), rma.At(0), rma.Sum); err != nil {
			return err
		}
		return r.flush()
	}
}

func getAccumulateOnce(r *rank, p Point) pass {
	origin, result := buffer.Of(make([]int64, p.Bytes/8)), buffer.Of(make([]int64, p.Bytes/8))
	return func() error {
		if err := r.win.GetAccumulate(origin, result, r.peer(), rma.At(0), rma.Sum); err != nil {
			return err
		}
		return r.flush()
	}
}

func fetchAndOpOnce(r *rank, _ Point) pass {
	r.words.one = 1
	one, result := buffer.Value(&r.words.one), buffer.Value(&r.words.result)
	return func() error {
		if err := r.win.FetchAndOp(one, result, r.peer(), rma.At(0), rma.Sum); err != nil {
			return err
		}
		return r.flush()
	}
}

// compareAndSwapOnce succeeds or fails depending on what the window holds, which
// costs the same.
func compareAndSwapOnce(r *rank, _ Point) pass {
	origin, compare, result := buffer.Value(&r.words.one), buffer.Value(&r.words.compare), buffer.Value(&r.words.result)
	return func() error {
		if err := r.win.CompareAndSwap(origin, compare, result, r.peer(), rma.At(0)); err != nil {
			return err
		}
		return r.flush()
	}
}

func lockPutUnlock(r *rank, p Point) pass {
	origin := buffer.Bytes(r.out[:p.Bytes])
	return func() error {
		if err := r.win.Lock(r.ctx, rma.LockExclusive, r.peer(), 0); err != nil {
			return err
		}
		if err := r.win.Put(origin, r.peer(), rma.At(0)); err != nil {
			return err
		}
		return r.win.Unlock(r.ctx, r.peer())
	}
}

// The windows give each operation a place of its own, as the standard asks of
// concurrent gets.

func putWindow(r *rank, p Point) pass {
	origin := buffer.Bytes(r.out[:p.Bytes])
	return func() error {
		for i := range p.Window {
			if err := r.win.Put(origin, r.peer(), rma.At(int64(i*p.Bytes))); err != nil {
				return err
			}
		}
		return r.flush()
	}
}

func getWindow(r *rank, p Point) pass {
	return func() error {
		for i := range p.Window {
			at := i * p.Bytes
			if err := r.win.Get(buffer.Bytes(r.in[at:at+p.Bytes]), r.peer(), rma.At(int64(at))); err != nil {
				return err
			}
		}
		return r.flush()
	}
}

func fetchAndOpWindow(r *rank, p Point) pass {
	r.words.one = 1
	one, results := buffer.Value(&r.words.one), make([]int64, p.Window)
	return func() error {
		for i := range p.Window {
			if err := r.win.FetchAndOp(one, buffer.Value(&results[i]), r.peer(), rma.At(int64(i*8)), rma.Sum); err != nil {
				return err
			}
		}
		return r.flush()
	}
}
