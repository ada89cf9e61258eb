package rma

import (
	"context"
	"math"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/window"
)

// CreateDynamic creates a window without memory (MPI_Win_create_dynamic, section
// 11.2.4): Attach exposes memory in it, and displacements are addresses of the
// target's memory, which the target finds out with Address and tells the others.
// Memory, Size and DispUnit are nil, 0 and 1. It is collective over c and blocks
// until all ranks have called it. Classes: ErrArg for an info value, ErrProcFailed.
func CreateDynamic(ctx context.Context, c *comm.Comm, info ...Info) (*Win, error) {
	w, err := create(ctx, c, window.FlavorDynamic, nil, 0, 1, info, nil)
	if err != nil {
		return nil, err
	}
	w.reachAll()
	return w, nil
}

// reachAll lets calls name any address of the targets of a dynamic window.
func (w *Win) reachAll() {
	for r := range w.targets {
		w.targets[r].size = math.MaxUint64 // what is attached is known to the target alone
	}
}

// Attach exposes mem to the other ranks of a dynamic window (MPI_Win_attach,
// section 11.2.4). It is local and does not block. The library keeps mem alive
// until Detach, or until the window and its duplicates are freed, which have the same
// attached (see Dup). One access may reach over several regions if each starts
// where the one before ends and all were cut from one slice. The same memory may
// be attached to other windows, and be that of other windows. Accumulates need
// elements at aligned addresses. Classes: ErrWin; ErrRMAFlavor if the window is
// not dynamic; ErrRMAAttach if part of mem is attached to this window already, or
// 65536 regions are.
func (w *Win) Attach(mem []byte) (err error) {
	defer w.handle(&err)
	w.poller.Lock()
	defer w.poller.UnlockQuiet()
	if err := w.usable("attach"); err != nil {
		return err
	}
	return w.own.Attach(mem)
}

// Detach ends the exposure of the region that was attached from the first byte of
// mem on (MPI_Win_detach, section 11.2.4). It is local and waits for nothing: what
// arrives later is refused with ErrRange, which its origin is told when it
// completes the operation. Classes: ErrWin; ErrRMAFlavor; ErrBase if no region that
// starts there is attached.
func (w *Win) Detach(mem []byte) (err error) {
	defer w.handle(&err)
	w.poller.Lock()
	defer w.poller.UnlockQuiet()
	if err := w.usable("detach"); err != nil {
		return err
	}
	return w.own.Detach(mem)
}

// Address returns the address of b's first element, the displacement under which
// others reach it in a dynamic window once it is attached (MPI_Get_address). It
// stays the same while the memory is attached; of memory that nothing keeps alive
// it means nothing.
func Address(b buffer.Buffer) int64 { return int64(windows.Address(b.Memory())) }

// AddAddress returns the address that lies disp bytes after base (MPI_Aint_add).
// Addresses are unsigned, and the sum wraps as theirs does.
func AddAddress(base, disp int64) int64 { return int64(uint64(base) + uint64(disp)) }

// SubAddress returns how many bytes address a lies after b (MPI_Aint_diff).
func SubAddress(a, b int64) int64 { return int64(uint64(a) - uint64(b)) }
