package rma

import (
	"context"
	"encoding/binary"
	"net"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/engine"
	"github.com/xdprma/xdprma/userspace"
	"github.com/xdprma/xdprma/window"
)

// Names of the standard for windows; see package window.
type (
	LockType = window.LockType // of Win.Lock
	Assert   = window.Assert   // assertions of synchronisation calls
	Flavor   = window.Flavor   // how a window was created
	Model    = window.Model    // a window's memory model
	Info     = window.Info     // hints and assertions by key
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
const ProcNull = -2

// Win is a window object: the windows that the ranks of a communicator expose to
// each other (section 11.2).
type Win struct {
	comm   *comm.Comm
	poller *userspace.Poller
	own    *window.Window
	hints  window.Hints

	// The fields below are used with the engine's lock held.
	epoch   *window.Epoch
	targets []target
	touched []int // targets with an access
	freed   bool
}

// target is what an origin knows of one rank's window.
type target struct {
	size      uint64
	dispUnit  int
	access    *engine.Access // nil until first used
	used      bool           // accessed in this epoch
	lazy      bool           // LockAll's lock has been asked for
	releasing bool           // an unlock has begun, and not yet been waited for
	asked     bool           // it has asked the target
}

// Allocate creates a window on memory that the library allocates, outside the
// Go heap (MPI_Win_allocate, section 11.2.2). It is collective over c: every rank
// calls it, with a size and a displacement unit of its own, in bytes; size may be
// 0. The memory is zeroed; Memory returns it. info may be nil. It blocks until
// all ranks have called it. Classes: ErrSize, ErrDisp, ErrNoMem, ErrArg for an
// info value, ErrProcFailed. If it fails at one rank, it fails at all.
func Allocate(ctx context.Context, c *comm.Comm, size, dispUnit int, info Info) (*Win, error) {
	var mem window.Memory
	var err error
	switch {
	case size < 0:
		err = newError("window allocate", ErrSize, NoRank, "size %d is negative", size)
	default:
		mem, err = window.MapAnonymous(size)
	}
	return create(ctx, c, window.FlavorAllocate, mem, size, dispUnit, info, err)
}

// Create creates a window on memory of the caller (MPI_Win_create, section
// 11.2.1), which the library keeps alive until Free. Otherwise it is as Allocate.
// Memory that accumulates use must be aligned to their elements.
func Create(ctx context.Context, c *comm.Comm, mem []byte, dispUnit int, info Info) (*Win, error) {
	return create(ctx, c, window.FlavorCreate, window.Slice(mem), len(mem), dispUnit, info, nil)
}

// proposal is what the ranks tell each other about a window to be.
type proposal struct {
	size     uint64
	dispUnit uint32
	id       uint32
	failed   Class
}

const proposalLen = 20

func (p *proposal) marshal() []byte {
	b := make([]byte, proposalLen)
	binary.LittleEndian.PutUint64(b[0:], p.size)
	binary.LittleEndian.PutUint32(b[8:], p.dispUnit)
	binary.LittleEndian.PutUint32(b[12:], p.id)
	binary.LittleEndian.PutUint32(b[16:], uint32(p.failed))
	return b
}

func (p *proposal) unmarshal(b []byte) {
	p.size = binary.LittleEndian.Uint64(b[0:])
	p.dispUnit = binary.LittleEndian.Uint32(b[8:])
	p.id = binary.LittleEndian.Uint32(b[12:])
	p.failed = Class(binary.LittleEndian.Uint32(b[16:]))
}

func create(ctx context.Context, c *comm.Comm, flavor window.Flavor, mem window.Memory, size, dispUnit int, info Info, fault error) (*Win, error) {
	hints, err := window.ParseInfo(info)
	if fault == nil {
		fault = err
	}
	if fault == nil && (dispUnit <= 0 || dispUnit > 1<<30) {
		fault = newError("window create", ErrDisp, NoRank, "displacement unit %d is not between 1 and 2^30", dispUnit)
	}
	w := &Win{comm: c, poller: c.Job().Poller(), hints: hints, targets: make([]target, c.Size())}
	id, err := w.propose(ctx, size, dispUnit, fault)
	if err == nil {
		err = w.register(ctx, window.Config{
			ID: id, Flavor: flavor, Memory: mem, Size: size, DispUnit: dispUnit, GroupSize: c.Size(),
		})
	}
	if err != nil {
		if mem != nil {
			_ = mem.Close()
		}
		return nil, err
	}
	return w, nil
}

// propose exchanges what the ranks expose and settles the window's id.
func (w *Win) propose(ctx context.Context, size, dispUnit int, fault error) (id uint32, err error) {
	job := w.comm.Job()
	mine := proposal{size: uint64(max(size, 0)), dispUnit: uint32(max(dispUnit, 0)), id: job.WindowID(), failed: ClassOf(fault)}
	blocks, err := w.comm.AllGather(ctx, mine.marshal())
	if err != nil {
		return 0, named("window create", NoRank, err)
	}
	for r, b := range blocks {
		var theirs proposal
		theirs.unmarshal(b)
		if fault == nil {
			fault = failedAt(r, theirs.failed)
		}
		id = max(id, theirs.id)
		w.targets[r] = target{size: theirs.size, dispUnit: int(theirs.dispUnit)}
	}
	job.TakeWindowID(id)
	return id, fault
}

// failedAt returns the error of a rank that has reported a class, nil for 0.
func failedAt(rank int, class Class) error {
	if class == 0 {
		return nil
	}
	if !class.Known() {
		class = ErrIntern
	}
	return newError("window create", class, rank, "the call failed at this rank")
}

// register makes the window known to requests at every rank, or at none, before
// anyone returns.
func (w *Win) register(ctx context.Context, c window.Config) error {
	w.epoch = window.NewEpoch(w.comm.Size(), w.hints.NoLocks)
	windows := w.comm.Job().Windows()
	fault := w.checkSame()
	if fault == nil {
		w.own, fault = window.New(c)
	}
	added := false
	if fault == nil {
		w.poller.Lock()
		fault = windows.Add(w.own)
		added = fault == nil
		w.poller.Unlock()
	}
	blocks, err := w.comm.AllGather(ctx, binary.LittleEndian.AppendUint32(nil, uint32(ClassOf(fault))))
	if err != nil {
		fault = named("window create", NoRank, err)
	}
	for r, b := range blocks {
		if fault == nil {
			fault = failedAt(r, Class(binary.LittleEndian.Uint32(b)))
		}
	}
	if fault != nil && added {
		e, _ := w.poller.Lock()
		e.ForgetWindow(c.ID)
		windows.Remove(c.ID)
		_ = w.own.Free() // before anyone could use it, or with the failure that is reported
		w.poller.Unlock()
	}
	return fault
}

// checkSame holds the application to its assertions.
func (w *Win) checkSame() error {
	for r, t := range w.targets {
		if w.hints.SameSize && t.size != w.targets[0].size {
			return newError("window create", ErrSize, r, "same_size is set, and the size differs from that of rank 0")
		}
		if w.hints.SameDispUnit && t.dispUnit != w.targets[0].dispUnit {
			return newError("window create", ErrDisp, r, "same_disp_unit is set, and the unit differs from that of rank 0")
		}
	}
	return nil
}

// Memory returns the memory that this rank exposes, nil once the window is
// freed. The process may load and store it as section 11.4 allows: with the
// unified model, after a synchronisation call.
func (w *Win) Memory() []byte { return w.own.Bytes() }

// Comm returns the communicator that the window was created on.
func (w *Win) Comm() *comm.Comm { return w.comm }

// Flavor returns how the window was created (MPI_WIN_CREATE_FLAVOR).
func (w *Win) Flavor() Flavor { return w.own.Flavor() }

// Model returns the memory model, which is unified (MPI_WIN_MODEL).
func (w *Win) Model() Model { return w.own.Model() }

// Size returns the bytes that this rank exposes (MPI_WIN_SIZE).
func (w *Win) Size() int { return w.own.Size() }

// DispUnit returns this rank's displacement unit in bytes (MPI_WIN_DISP_UNIT).
func (w *Win) DispUnit() int { return w.own.DispUnit() }

// Info returns the hints in use (MPI_Win_get_info, section 11.2.7).
func (w *Win) Info() Info { return w.hints.Info() }

// Free frees the window (MPI_Win_free, section 11.2.5). It is collective and
// blocks until all ranks have called it. The memory of Allocate is gone
// afterwards. Classes: ErrRMASync while an epoch is open, ErrWin the second time.
func (w *Win) Free(ctx context.Context) error {
	e, _ := w.poller.Lock()
	err := w.usable("window free")
	if err == nil {
		err = w.epoch.Free()
	}
	w.poller.Unlock()
	if err != nil {
		return err
	}
	if err := w.comm.Barrier(ctx); err != nil {
		return named("window free", NoRank, err)
	}
	w.poller.Lock()
	w.freed = true
	for _, t := range w.touched {
		e.CloseAccess(w.targets[t].access)
	}
	e.ForgetWindow(w.own.ID())
	w.comm.Job().Windows().Remove(w.own.ID())
	err = w.own.Free()
	w.poller.Unlock()
	return err
}

// usable returns nil unless the window has been freed or the node closed. It is
// called with the engine's lock held.
func (w *Win) usable(op string) error {
	switch {
	case w.freed:
		return newError(op, ErrWin, NoRank, "the window has been freed")
	case w.poller.Closed():
		return newError(op, ErrClosed, NoRank, "the node: %w", net.ErrClosed)
	}
	return nil
}
