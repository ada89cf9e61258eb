package rma

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/attribute"
	"github.com/xdprma/xdprma/internal/device/poller"
	"github.com/xdprma/xdprma/internal/device/tier"
	"github.com/xdprma/xdprma/internal/launch/job"
	"github.com/xdprma/xdprma/internal/protocol/calls/epochs"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/window"
)

// Names of the standard for windows; see package window.
type (
	LockType = window.LockType // of Win.Lock: LockExclusive or LockShared
	Flavor   = window.Flavor   // how a window was created
	Model    = window.Model    // a window's memory model
)

// Assert is a set of assertions of synchronisation calls (section 11.5.5). A call takes several:
//
//   - ModeNoCheck: there is no conflicting lock, or the matching call has been made
//   - ModeNoPrecede: the fence completes no operations of the caller
//   - ModeNoPut: the local window will not be updated until the next synchronisation
//   - ModeNoStore: the local window was not stored to since the last synchronisation
//   - ModeNoSucceed: the fence starts no operations of the caller
type Assert = window.Assert

// Info has hints and assertions by key (section 11.2.1). It is a map[string]string. The functions that
// return an Info write those of one key each; calls that take several go by all of them.
// docs/mpi-mapping.md lists the keys.
type Info = window.Info

// Rights are what a window's owner lets another rank do with its memory; see Access.
type Rights = window.Rights

// The rights; package window says which call needs which.
const (
	MayRead       = window.MayRead
	MayWrite      = window.MayWrite
	MayAccumulate = window.MayAccumulate
	MayLock       = window.MayLock
	MayNothing    = window.MayNothing
	MayAll        = window.MayAll
)

// Constants of the standard, with the values of the MPI 5.0 ABI.
const (
	LockExclusive  = window.LockExclusive
	LockShared     = window.LockShared
	ModeNoCheck    = window.ModeNoCheck
	ModeNoPrecede  = window.ModeNoPrecede
	ModeNoPut      = window.ModeNoPut
	ModeNoStore    = window.ModeNoStore
	ModeNoSucceed  = window.ModeNoSucceed
	FlavorCreate   = window.FlavorCreate
	FlavorAllocate = window.FlavorAllocate
	FlavorDynamic  = window.FlavorDynamic
	FlavorShared   = window.FlavorShared
	ModelUnified   = window.ModelUnified
)

// ProcNull is the rank of a process that does not exist: communication with it
// does nothing and succeeds (section 11.3).
const ProcNull = comm.ProcNull

// Win is a window object: the windows that the ranks of a communicator expose to
// each other (section 11.2).
type Win struct {
	comm       *comm.Comm
	job        *job.Job
	makers     *comm.Comm // its ranks as they make it: comm, or inner of the window that it duplicates
	inner      *comm.Comm // the same ranks, for the window's own messages
	poller     *poller.Poller
	exposed    *exposed // memory of this rank
	own        *windows.Window
	ending     *comm.Comm // the same ranks, for what must work when inner is broken
	errhandler atomic.Pointer[Errhandler]
	attributes attribute.Set
	quietFree  bool         // every rank has set no_locks: Free does not synchronise
	region     *tier.Region // of this rank's memory, if its XDP program reaches it; else nil
	syncRegion *tier.Region // of its lock and counters, likewise: region, but for a duplicate
	host       *host        // memory that ranks of this host have in common; nil without
	acting     atomic.Int32 // calls that act on memory at this moment, outside the engine's lock

	// The fields below are used with the engine's lock held.
	hints   windows.Hints
	targets []target
	ranks   []int          // of the job, by their rank in the window
	epochs  *epochs.Window // its epochs, and those that it exposes its memory for
}

// target is what an origin knows of one rank's window.
type target struct {
	size     uint64
	dispUnit int
	counters int             // of notifications
	mapped   *windows.Window // where this process maps the target's memory; nil: it does not
	loads    bool            // this process may load and store the target's memory
	reach    bool            // the target's XDP program reaches its memory
}

// Memory returns the memory that this rank exposes, nil once the window is
// freed. The process may load and store it as section 11.4 allows: with the
// unified model, after a synchronisation call. docs/memory-model.md says which call
// shows it what, and when sync/atomic does.
func (w *Win) Memory() []byte { return w.own.Bytes() }

// Comm returns the communicator that the window was created on.
func (w *Win) Comm() *comm.Comm { return w.comm }

// Group returns the group of the communicator that the window was created on
// (MPI_Win_get_group, section 11.2.6).
func (w *Win) Group() comm.Group { return w.comm.Group() }

// Flavor returns how the window was created (MPI_WIN_CREATE_FLAVOR).
func (w *Win) Flavor() Flavor { return w.own.Flavor() }

// Model returns the memory model, which is unified (MPI_WIN_MODEL).
func (w *Win) Model() Model { return w.own.Model() }

// Size returns the bytes that this rank exposes (MPI_WIN_SIZE).
func (w *Win) Size() int { return w.own.Size() }

// DispUnit returns this rank's displacement unit in bytes (MPI_WIN_DISP_UNIT).
func (w *Win) DispUnit() int { return w.own.DispUnit() }

// Free frees the window (MPI_Win_free, section 11.2.5). It is collective and
// blocks until all ranks have called it, unless all have created the window with
// the info key no_locks: then it does not wait. Attributes are deleted first, the
// youngest first. The memory of Allocate is gone afterwards, and memory attached is
// detached, unless a duplicate has it still (see Dup). Classes: ErrRMASync while an epoch is
// open, or a call of another goroutine goes on, WaitNotified among them; ErrWin the second time: then nothing has happened. ErrProcFailed, ErrClosed, or the end of ctx: the other
// ranks were not waited for, and the window is freed at this rank all the same;
// what still arrives for it is refused with ErrWin. ErrOther: an attribute's callback
// failed. The window is freed all the same, as it is after an error of what post and start
// epochs had left outstanding, and after ErrRMASync because a target of Start has not posted.
func (w *Win) Free(ctx context.Context) (err error) {
	defer w.handle(&err)
	if err := w.mayFree(); err != nil {
		return err
	}
	fault := callbackError("window free", w.attributes.Clear(w))
	if err := w.run(ctx, w.epochs.Free()); fault == nil {
		fault = err
	}
	_ = w.inner.Free() // what still comes for the window's collectives is dropped
	if err := w.dismantle(); fault == nil {
		fault = err
	}
	return fault
}

// mayFree returns nil if Free may free the window.
func (w *Win) mayFree() error {
	w.poller.Lock()
	defer w.poller.UnlockQuiet()
	err := w.usable("window free")
	switch {
	case err == nil:
		err = w.epochs.MayFree()
		if err == nil && w.acting.Load() > 0 {
			err = newError("window free", ErrRMASync, NoRank, "an operation is going on in another goroutine")
		}
	case !w.epochs.Freed():
		err = nil // the node was closed, which has ended all epochs: the memory can go
	}
	return err
}

// dismantle takes the window apart, of which nothing is used any more.
func (w *Win) dismantle() error {
	defer w.poller.Guard()
	e := w.poller.Lock()
	err := w.epochs.Usable("window free") // another goroutine may have taken it apart meanwhile
	if err == nil {
		w.epochs.Close(e.Operations)
		w.hide(e.Operations)
		for w.acting.Load() > 0 { // copies that came before; none begins any more
			w.poller.Unlock()
			time.Sleep(freePause)
			w.poller.Lock()
		}
		err = w.release(e.Evict)
	}
	w.poller.Unlock()
	return err
}

// hide takes the window, as far as it is there, from requests, from other ranks of the host
// and from the XDP program. It is called with the engine's lock held.
func (w *Win) hide(t epochs.Turn) {
	w.region.Retract()
	if w.own != nil {
		t.ForgetWindow(w.own.ID())
		w.job.Windows().Remove(w.own.ID())
	}
	w.host.retire(w.comm.Rank())
}

// release gives up the window's part in its memory. The window is hidden, and nobody is at the
// memory through it. It is called with the engine's lock held.
func (w *Win) release(evict func(mem []byte)) error {
	if w.own != nil {
		_ = w.own.Free()
	}
	w.region.Close()
	w.syncRegion.Close()
	err := w.host.close()
	if fault := w.exposed.leave(evict); err == nil {
		err = fault
	}
	return err
}

// freePause is how long Free waits for calls of other goroutines between looks.
const freePause = 10 * time.Microsecond
