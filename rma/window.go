package rma

import (
	"context"
	"encoding/binary"
	"math"
	"net"
	"sync/atomic"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/attribute"
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
const ProcNull = comm.ProcNull

// Win is a window object: the windows that the ranks of a communicator expose to
// each other (section 11.2).
type Win struct {
	comm       *comm.Comm
	inner      *comm.Comm // the same ranks, for the window\'s own messages
	poller     *userspace.Poller
	own        *window.Window
	errhandler atomic.Pointer[Errhandler]
	attributes attribute.Set
	quietFree  bool         // every rank has set no_locks: Free does not synchronise
	host       *host        // memory that ranks of this host have in common; nil without
	acting     atomic.Int32 // calls that act on memory at this moment, outside the engine's lock

	// The fields below are used with the engine's lock held.
	hints    window.Hints
	name     string
	epoch    *window.Epoch
	targets  []target
	touched  []int // targets with an access
	freed    bool
	started  []int               // the group of Start
	posted   []*engine.Access    // to the group of Post
	exposure engine.ExposureWait // of Wait and Test
}

// target is what an origin knows of one rank's window.
type target struct {
	size      uint64
	dispUnit  int
	direct    *window.Window // where this process maps the target's memory; nil: it does not
	access    *engine.Access // nil until first used
	used      bool           // accessed in this epoch
	lazy      bool           // LockAll's lock has been asked for
	releasing bool           // an unlock has begun, and not yet been waited for
	asked     bool           // it has asked the target
}

// Allocate creates a window on memory that the library allocates, outside the
// Go heap (MPI_Win_allocate, section 11.2.2). It is collective over c: every rank
// calls it, with a size and a displacement unit of its own, in bytes; size may be
// 0, and the unit at most 2^31-1. The memory is zeroed and aligned to a page, or further by the info key
// mpi_minimum_memory_alignment; Memory returns it. info may be nil. It blocks until
// all ranks have called it. Classes: ErrSize, ErrDisp, ErrNoMem, ErrArg for an
// info value, ErrProcFailed. If it fails at one rank, it fails at all.
func Allocate(ctx context.Context, c *comm.Comm, size, dispUnit int, info Info) (*Win, error) {
	return create(ctx, c, window.FlavorAllocate, nil, size, dispUnit, info)
}

// Create creates a window on memory of the caller (MPI_Win_create, section
// 11.2.1), which the library keeps alive until Free. Otherwise it is as Allocate.
// Memory that accumulates use must be aligned to their elements.
func Create(ctx context.Context, c *comm.Comm, mem []byte, dispUnit int, info Info) (*Win, error) {
	return create(ctx, c, window.FlavorCreate, window.Slice(mem), len(mem), dispUnit, info)
}

// proposal is what the ranks tell each other about a window to be.
type proposal struct {
	size     uint64
	host     uint64 // what ranks of one host have in common
	dispUnit uint32
	id       uint32
	align    uint32 // of memory that is allocated
	failed   Class
	noLocks  bool
	check    bool
	frames   bool // accesses are to go by frames
	apart    bool // memory need not be contiguous
}

const proposalLen = 33

func (p *proposal) marshal() []byte {
	b := make([]byte, proposalLen)
	le := binary.LittleEndian
	le.PutUint64(b[0:], p.size)
	le.PutUint64(b[8:], p.host)
	le.PutUint32(b[16:], p.dispUnit)
	le.PutUint32(b[20:], p.id)
	le.PutUint32(b[24:], p.align)
	le.PutUint32(b[28:], uint32(p.failed))
	for i, set := range []bool{p.noLocks, p.check, p.frames, p.apart} {
		if set {
			b[32] |= 1 << i
		}
	}
	return b
}

func (p *proposal) unmarshal(b []byte) {
	le := binary.LittleEndian
	p.size, p.host = le.Uint64(b[0:]), le.Uint64(b[8:])
	p.dispUnit, p.id, p.align = le.Uint32(b[16:]), le.Uint32(b[20:]), le.Uint32(b[24:])
	p.failed = Class(le.Uint32(b[28:]))
	p.noLocks, p.check, p.frames, p.apart = b[32]&1 != 0, b[32]&2 != 0, b[32]&4 != 0, b[32]&8 != 0
}

// create creates a window on mem, or for the flavours that allocate on memory that
// it makes.
func create(ctx context.Context, c *comm.Comm, flavor window.Flavor, mem window.Memory, size, dispUnit int, info Info) (_ *Win, err error) {
	defer func() { c.CallErrhandler(err) }()
	hints, fault := window.ParseInfo(info)
	switch {
	case fault != nil:
	case size < 0:
		fault = newError("window create", ErrSize, NoRank, "size %d is negative", size)
	case dispUnit <= 0 || dispUnit > math.MaxInt32:
		fault = newError("window create", ErrDisp, NoRank, "displacement unit %d is not between 1 and 2^31-1", dispUnit)
	}
	w := &Win{comm: c, poller: c.Job().Poller(), hints: hints, targets: make([]target, c.Size())}
	proposals, err := w.propose(ctx, size, dispUnit, fault)
	if err != nil {
		return nil, err
	}
	if flavor == window.FlavorCreate {
		w.hints.MinAlignment = 0 // the user's memory is as it is
	}
	if flavor == window.FlavorAllocate || flavor == window.FlavorShared {
		if mem, fault, err = w.allocate(ctx, flavor, proposals); err != nil {
			return nil, named("window create", NoRank, err)
		}
	}
	id := w.settle(proposals)
	err = w.register(ctx, window.Config{
		ID: id, Flavor: flavor, Memory: mem, Size: size, DispUnit: dispUnit, GroupSize: c.Size(), Checker: w.checker(id),
		Host: w.host.lockOf(w, c.Rank()),
	}, fault)
	if err != nil {
		if mem != nil {
			_ = mem.Close()
		}
		w.host.close()
		return nil, err
	}
	return w, nil
}

// propose exchanges what the ranks expose. It fails if anyone cannot go on.
func (w *Win) propose(ctx context.Context, size, dispUnit int, fault error) ([]proposal, error) {
	job := w.comm.Job()
	id := job.HostID()
	mine := proposal{
		size: uint64(max(size, 0)), host: binary.LittleEndian.Uint64(id[:]), dispUnit: uint32(max(dispUnit, 0)), id: job.WindowID(),
		align: uint32(w.hints.MinAlignment), failed: ClassOf(fault), noLocks: w.hints.NoLocks, check: w.hints.Check || job.Checks(),
		frames: job.Frames(), apart: w.hints.AllocSharedNoncontig,
	}
	blocks, err := w.comm.AllGather(comm.Inner(ctx), mine.marshal())
	if err != nil {
		return nil, named("window create", NoRank, err)
	}
	w.quietFree, w.hints.AllocSharedNoncontig = true, true
	proposals := make([]proposal, len(blocks))
	for r, b := range blocks {
		p := &proposals[r]
		p.unmarshal(b)
		if fault == nil {
			fault = failedAt("window create", r, p.failed)
		}
		w.quietFree = w.quietFree && p.noLocks
		w.hints.AllocSharedNoncontig = w.hints.AllocSharedNoncontig && p.apart
		w.hints.Check = w.hints.Check || p.check
		w.targets[r] = target{size: p.size, dispUnit: int(p.dispUnit)}
	}
	return proposals, fault
}

// settle takes the id that is free at all ranks.
func (w *Win) settle(proposals []proposal) (id uint32) {
	for _, p := range proposals {
		id = max(id, p.id)
	}
	w.comm.Job().TakeWindowID(id)
	return id
}

// failedAt returns the error of a rank that has reported a class, nil for 0.
func failedAt(op string, rank int, class Class) error {
	if class == 0 {
		return nil
	}
	if !class.Known() {
		class = ErrIntern
	}
	return newError(op, class, rank, "the call failed at this rank")
}

// register makes the window known to requests at every rank, or at none, before
// anyone returns.
func (w *Win) register(ctx context.Context, c window.Config, fault error) error {
	w.inner = w.comm.ForWindow(c.ID)
	w.epoch = window.NewEpoch(w.comm.Rank(), w.comm.Size(), w.hints.NoLocks)
	windows := w.comm.Job().Windows()
	if fault == nil {
		fault = w.checkSame()
	}
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
	report := binary.LittleEndian.AppendUint32(nil, uint32(ClassOf(fault)))
	blocks, err := w.comm.AllGather(comm.Inner(ctx), append(report, w.host.mapped()))
	if err != nil {
		fault = named("window create", NoRank, err)
	}
	for r, b := range blocks {
		if fault == nil {
			fault = failedAt("window create", r, Class(binary.LittleEndian.Uint32(b)))
		}
	}
	if fault == nil {
		fault = w.reachHost(blocks)
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
// detached. Classes: ErrRMASync while an epoch is open, ErrWin the second time:
// then nothing has happened. ErrProcFailed, ErrClosed, or the end of ctx: the other
// ranks were not waited for, and the window is freed at this rank all the same;
// what still arrives for it is refused with ErrWin. ErrOther if the callback of an
// attribute failed: the window is freed.
func (w *Win) Free(ctx context.Context) (err error) {
	defer w.handle(&err)
	w.poller.Lock()
	err = w.usable("window free")
	switch {
	case err == nil:
		err = w.epoch.Free()
		if err == nil && w.acting.Load() > 0 {
			err = newError("window free", ErrRMASync, NoRank, "an operation is going on in another goroutine")
		}
	case !w.freed:
		err = nil // the node was closed, which has ended all epochs: the memory can go
	}
	w.poller.Unlock()
	if err != nil {
		return err
	}
	fault := callbackError("window free", w.attributes.Clear(w))
	if !w.quietFree {
		if err := w.inner.Barrier(ctx); err != nil {
			fault = named("window free", NoRank, err)
		}
	}
	e, _ := w.poller.Lock()
	defer w.poller.Unlock()
	if w.freed {
		return errFreed("window free") // by another goroutine, meanwhile
	}
	w.freed = true
	for _, t := range w.touched {
		e.CloseAccess(w.targets[t].access)
	}
	e.ForgetWindow(w.own.ID())
	w.comm.Job().Windows().Remove(w.own.ID())
	if w.acting.Load() > 0 { // the memory is not taken from under a call
		return newError("window free", ErrRMASync, NoRank, "an operation is going on in another goroutine: the memory stays")
	}
	if err := w.own.Free(); fault == nil {
		fault = err
	}
	if err := w.host.close(); fault == nil {
		fault = err
	}
	return fault
}

// usable returns nil unless the window has been freed or the node closed. It is
// called with the engine's lock held.
func (w *Win) usable(op string) error {
	switch {
	case w.poller.Closed():
		return newError(op, ErrClosed, NoRank, "the node: %w", net.ErrClosed)
	case w.freed:
		return errFreed(op)
	}
	return nil
}
