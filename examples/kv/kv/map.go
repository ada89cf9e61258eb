// Package kv is a hash map whose slots are spread over the ranks of a job: an example of a small
// package on top of one-sided communication. Any rank reads and writes any key while the rank
// that has it computes.
package kv

import (
	"context"
	"errors"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/rma"
)

// Map maps keys, numbers other than 0, to numbers. Each call on a key is atomic, and those of all
// ranks and goroutines on a key have one order. A key is there from the first Put or Add on, with
// the value 0 until that has taken effect. Keys are not removed.
//
// A slot is two words, the key and the value. An empty one, with key 0, is claimed for a key by
// compare-and-swap, and has it for good. So a key is in the first slot that has it, from the one
// on that its hash leads to, and not there if an empty slot comes first.
type Map struct {
	win   rma.WinOf[uint64]
	slots uint64 // at each rank
	all   uint64 // at all ranks
}

// ErrFull is the error of Put and Add where no slot is left for a new key.
var ErrFull = errors.New("the map is full")

// ErrKey is the error of calls that are given the key 0.
var ErrKey = errors.New("0 is not a key")

// New makes a map with a number of slots at each rank. It is collective.
func New(ctx context.Context, c *comm.Comm, slots int) (*Map, error) {
	win, err := rma.AllocateOf[uint64](ctx, c, 2*slots)
	if err != nil {
		return nil, err
	}
	m := &Map{win: win, slots: uint64(slots), all: uint64(slots * c.Size())}
	return m, win.LockAll(ctx) // one epoch for all calls
}

// Close ends the map. It is collective.
func (m *Map) Close(ctx context.Context) error {
	if err := m.win.UnlockAll(ctx); err != nil {
		return err
	}
	return m.win.Free(ctx)
}

// Get returns the value of a key, and whether the key is there. It takes two round trips, and
// more where keys collide.
func (m *Map) Get(ctx context.Context, key uint64) (value uint64, ok bool, err error) {
	rank, at, err := m.find(ctx, key, false)
	if rank < 0 || err != nil {
		return 0, false, err
	}
	value, err = m.win.Load(ctx, rank, rma.At(at+1))
	return value, err == nil, err
}

// Put sets the value of a key. It is there when Put returns.
func (m *Map) Put(ctx context.Context, key, value uint64) error {
	rank, at, err := m.find(ctx, key, true)
	if err != nil {
		return err
	}
	return m.win.Store(ctx, value, rank, rma.At(at+1))
}

// Add adds to the value of a key, 0 where it was not there, and returns the value before.
func (m *Map) Add(ctx context.Context, key, n uint64) (before uint64, err error) {
	rank, at, err := m.find(ctx, key, true)
	if err != nil {
		return 0, err
	}
	return m.win.Fetch(ctx, n, rank, rma.At(at+1), rma.Sum)
}

// Range calls visit with all keys and their values, until it returns false. It reads rank by rank:
// keys that come meanwhile may be missing, and values are those of different moments.
func (m *Map) Range(ctx context.Context, visit func(key, value uint64) bool) error {
	words := make([]uint64, 2*m.slots)
	for rank := range m.win.Comm().Size() {
		// An atomic read: others may write.
		if err := m.win.GetAccumulate(nil, words, rank, rma.At(0), rma.NoOp); err != nil {
			return err
		}
		if err := m.win.Flush(ctx, rank); err != nil {
			return err
		}
		for i := 0; i < len(words); i += 2 {
			if words[i] != 0 && !visit(words[i], words[i+1]) {
				return nil
			}
		}
	}
	return nil
}

// find returns the rank and the displacement of the slot of a key. If the key is not there, it
// claims a slot, or returns rank -1.
func (m *Map) find(ctx context.Context, key uint64, claim bool) (rank int, at uint64, err error) {
	if key == 0 {
		return -1, 0, ErrKey
	}
	hash := key * 0x9e3779b97f4a7c15
	var found uint64
	for i := range m.all {
		slot := ((hash^hash>>32)%m.all + i) % m.all
		rank, at = int(slot/m.slots), 2*(slot%m.slots)
		if claim {
			// One round trip finds the key, or claims an empty slot for it.
			found, _, err = m.win.CompareAndSwap(ctx, 0, key, rank, rma.At(at))
		} else {
			found, err = m.win.Load(ctx, rank, rma.At(at))
		}
		switch {
		case err != nil:
			return -1, 0, err
		case found == key, found == 0 && claim:
			return rank, at, nil
		case found == 0:
			return -1, 0, nil
		}
	}
	if claim {
		return -1, 0, ErrFull
	}
	return -1, 0, nil
}
