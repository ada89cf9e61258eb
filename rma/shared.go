package rma

import (
	"context"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/window"
)

// AllocateShared creates a window on memory that all ranks of c can load and store
// (MPI_Win_allocate_shared, section 11.2.3). They must share a host, as those of a
// communicator that SplitHost returns do. The windows of ranks 0, 1, 2 and so on
// follow each other without gap, unless all set the info key alloc_shared_noncontig:
// then each starts at a page, or further aligned as for Allocate, and Info says so at
// each rank. SharedQuery returns the memory of each rank. It is memory that XDP programs
// reach only where accesses are to go by frames. Otherwise it is as Allocate. Classes: those
// of Allocate, also ErrArg if the info restricts others (see Access), and ErrRMAShared if the
// ranks cannot share memory.
func AllocateShared(ctx context.Context, c *comm.Comm, size, dispUnit int, info ...Info) (*Win, error) {
	return create(ctx, c, window.FlavorShared, nil, size, dispUnit, info, nil)
}

// Shared is a rank's window as memory of this process.
type Shared struct {
	// Memory is nil where the window has no bytes, or this process does not map it.
	// Where the windows of AllocateShared follow each other, its capacity reaches to
	// the end of the last one, and Memory[:cap(Memory)] is all from this rank's on.
	Memory   []byte
	DispUnit int // in bytes
}

// SharedQuery returns the memory of a rank's window as this process can load and store
// it (MPI_Win_shared_query, section 11.2.3). ProcNull stands for the lowest rank whose
// window has bytes. All ranks can reach a window of AllocateShared. The ranks of the
// owner's host can reach a window of Allocate, unless accesses are to go by frames, as where
// a rank restricts others (see Access), or are checked. A rank can always reach its own window, also one of Create. Where the
// process cannot reach the memory, the slice is nil. A program that loads and stores
// beside others uses sync/atomic, or synchronises as section 11.5 says. The memory is
// gone after Free. It does not block. Classes: ErrRank, ErrWin; ErrRMAFlavor for a
// dynamic window.
func (w *Win) SharedQuery(rank int) (_ Shared, err error) {
	defer w.handle(&err)
	return w.shared(rank)
}

func (w *Win) shared(rank int) (Shared, error) {
	w.poller.Lock()
	defer w.poller.UnlockQuiet()
	if err := w.usable("shared_query"); err != nil {
		return Shared{}, err
	}
	if w.own.Flavor() == window.FlavorDynamic {
		return Shared{}, newError("shared_query", ErrRMAFlavor, rank, "a dynamic window can have memory at many places")
	}
	if rank != ProcNull && uint(rank) >= uint(len(w.targets)) {
		return Shared{}, newError("shared_query", ErrRank, rank, "the window has ranks 0 to %d", len(w.targets)-1)
	}
	if rank == ProcNull {
		rank = 0
		for r, t := range w.targets {
			if t.size > 0 {
				rank = r
				break
			}
		}
	}
	return Shared{Memory: w.load(rank), DispUnit: w.targets[rank].dispUnit}, nil
}

// load returns the memory of a rank's window as this process maps it.
func (w *Win) load(rank int) []byte {
	t := &w.targets[rank]
	switch {
	case t.size == 0:
		return nil
	case rank == w.comm.Rank():
		if w.own.Flavor() != window.FlavorShared {
			return w.own.Bytes()
		}
	case w.own.Flavor() != window.FlavorShared && t.mapped == nil:
		return nil
	}
	return w.host.part(rank, int(t.size))
}
