package windows

import (
	"slices"

	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

// MaxAttached is the number of regions that may be attached to one window.
const MaxAttached = 1 << 16

// region is memory that is attached to a dynamic window. The slice keeps it alive.
type region struct {
	start uint64 // address of the first byte
	mem   []byte // not empty
}

// Attached is the memory that is attached to a dynamic window, and to its duplicates.
type Attached struct{ regions []region } // by address

func (r *region) end() uint64 { return r.start + uint64(len(r.mem)) }

// Attach exposes mem in a dynamic window (section 11.2.4): displacements are
// addresses, see Address. mem stays reachable until Detach or Free. Attaching no
// bytes does nothing. Classes: Win; RMAFlavor; RMAAttach if part of mem is
// attached already, or MaxAttached regions are.
func (w *Window) Attach(mem []byte) error {
	if err := w.attachable("attach"); err != nil || len(mem) == 0 {
		return err
	}
	r := region{Address(mem), mem}
	i, _ := w.attached.from(r.start)
	overlap := i < len(w.attached.regions) && w.attached.regions[i].start < r.end() || i > 0 && w.attached.regions[i-1].end() > r.start
	switch {
	case overlap:
		return mpierr.New("attach", mpierr.RMAAttach, mpierr.NoRank,
			"part of the %d bytes at %#x is attached to this window: detach it first", len(mem), r.start)
	case len(w.attached.regions) == MaxAttached:
		return mpierr.New("attach", mpierr.RMAAttach, mpierr.NoRank, "%d regions are attached: detach one, or attach larger ones", MaxAttached)
	}
	w.attached.regions = slices.Insert(w.attached.regions, i, r)
	return nil
}

// Detach ends what Attach began, for the region that starts where mem does.
// Classes: Win; RMAFlavor; Base if no attached region starts there.
func (w *Window) Detach(mem []byte) error {
	if err := w.attachable("detach"); err != nil {
		return err
	}
	start := Address(mem)
	i, found := w.attached.from(start)
	switch {
	case found:
		w.attached.regions = slices.Delete(w.attached.regions, i, i+1)
	case len(mem) > 0:
		return mpierr.New("detach", mpierr.Base, mpierr.NoRank, "no region that starts at %#x is attached to this window", start)
	}
	return nil
}

func (w *Window) attachable(op string) error {
	switch {
	case w.freed.Load():
		return mpierr.New(op, mpierr.Win, mpierr.NoRank, "the window has been freed")
	case w.flavor != window.FlavorDynamic:
		return mpierr.New(op, mpierr.RMAFlavor, mpierr.NoRank, "the window is of flavour %s: only a dynamic one has memory attached", w.flavor)
	}
	return nil
}

// from returns the place of the first region that starts at address or
// later, and whether it starts there.
func (a *Attached) from(address uint64) (int, bool) {
	return slices.BinarySearchFunc(a.regions, address, func(r region, at uint64) int {
		switch {
		case r.start < at:
			return -1
		case r.start > at:
			return 1
		}
		return 0
	})
}

// inAttached returns n bytes of attached memory from an address on. They may go
// beyond one region if the next starts where it ends and both were cut from one
// slice: memory that only happens to be adjacent is no one object of Go.
func (w *Window) inAttached(address uint64, n int) ([]byte, mpierr.Class) {
	if w.freed.Load() {
		return nil, mpierr.Win
	}
	i, found := w.attached.from(address)
	if !found {
		i--
	}
	if i < 0 || n < 0 || address > w.attached.regions[i].end() {
		return nil, mpierr.RMARange
	}
	r := &w.attached.regions[i]
	offset := address - r.start
	if uint64(n) > uint64(cap(r.mem))-offset {
		return nil, mpierr.RMARange
	}
	end := address + uint64(n)
	for at := r.end(); at < end; at = w.attached.regions[i].end() {
		if i++; i == len(w.attached.regions) || w.attached.regions[i].start != at {
			return nil, mpierr.RMARange
		}
	}
	return r.mem[offset : offset+uint64(n)], mpierr.Success
}
