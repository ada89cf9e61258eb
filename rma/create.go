package rma

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/inside"
	"github.com/xdprma/xdprma/internal/protocol/calls/epochs"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/window"
)

// Allocate creates a window on memory that the library allocates, outside the Go heap
// (MPI_Win_allocate, section 11.2.2). It is collective over c: every rank calls it, with a
// size and a displacement unit of its own, in bytes; size may be 0, and the unit at most
// 2^31-1. The memory is zeroed and aligned to a page, or further by the info key
// mpi_minimum_memory_alignment; Memory returns it. Of several infos a later one counts; see
// NoLocks and its like. It blocks until all
// ranks have called it. Classes: ErrSize, ErrDisp, ErrNoMem, ErrArg for an info value,
// ErrProcFailed. If it fails at one rank, it fails at all, but where a rank dies or gives up
// at the last moment: then those that have the window learn so from its collectives, Free
// among them.
func Allocate(ctx context.Context, c *comm.Comm, size, dispUnit int, info ...Info) (*Win, error) {
	return create(ctx, c, window.FlavorAllocate, nil, size, dispUnit, info, nil)
}

// Create creates a window on memory of the caller (MPI_Win_create, section
// 11.2.1), which the library keeps alive until Free. Otherwise it is as Allocate.
// Memory that accumulates use must be aligned to their elements.
func Create(ctx context.Context, c *comm.Comm, mem []byte, dispUnit int, info ...Info) (*Win, error) {
	return create(ctx, c, window.FlavorCreate, mem, len(mem), dispUnit, info, nil)
}

// proposal is what the ranks tell each other about a window to be.
type proposal struct {
	size     uint64
	host     uint64 // what ranks of one host have in common
	life     uint64 // the rank's incarnation
	dispUnit uint32
	id       uint32 // of the window, if the rank is its first
	counters uint32 // of notifications
	align    uint32 // of memory that is allocated
	failed   Class
	noLocks  bool
	check    bool
	frames   bool // accesses are to go by frames, since the rank says so, or memory that others map cannot be guarded
	apart    bool // memory need not be contiguous
	fits     bool // in memory that XDP programs reach
	tier     bool // the rank has such a program
}

const proposalLen = 45

func (p *proposal) marshal() []byte {
	b := make([]byte, proposalLen)
	le := binary.LittleEndian
	le.PutUint64(b[0:], p.size)
	le.PutUint64(b[8:], p.host)
	le.PutUint32(b[16:], p.dispUnit)
	le.PutUint32(b[20:], p.id)
	le.PutUint32(b[24:], p.align)
	le.PutUint32(b[28:], uint32(p.failed))
	for i, set := range []bool{p.noLocks, p.check, p.frames, p.apart, p.fits, p.tier} {
		if set {
			b[32] |= 1 << i
		}
	}
	le.PutUint64(b[33:], p.life)
	le.PutUint32(b[41:], p.counters)
	return b
}

func (p *proposal) unmarshal(b []byte) bool {
	if len(b) != proposalLen {
		return false
	}
	le := binary.LittleEndian
	p.size, p.host = le.Uint64(b[0:]), le.Uint64(b[8:])
	p.dispUnit, p.id, p.align = le.Uint32(b[16:]), le.Uint32(b[20:]), le.Uint32(b[24:])
	p.failed = Class(le.Uint32(b[28:]))
	for i, set := range []*bool{&p.noLocks, &p.check, &p.frames, &p.apart, &p.fits, &p.tier} {
		*set = b[32]>>i&1 != 0
	}
	p.life, p.counters = le.Uint64(b[33:]), le.Uint32(b[41:])
	return true
}

// create creates a window on mem, or for the flavours that allocate on memory that
// it makes. With a fault, it fails at all ranks.
func create(ctx context.Context, c *comm.Comm, flavor window.Flavor, mem []byte, size, dispUnit int, info []Info, fault error) (_ *Win, err error) {
	defer func() { c.CallErrhandler(err) }()
	hints, wrong := windows.ParseInfo(merge(info))
	switch {
	case fault != nil:
	case wrong != nil:
		fault = wrong
	case size < 0:
		fault = newError("window create", ErrSize, NoRank, "size %d is negative", size)
	case checkRules(c, flavor, &hints) != nil:
		fault = checkRules(c, flavor, &hints)
	case dispUnit <= 0 || dispUnit > math.MaxInt32:
		fault = newError("window create", ErrDisp, NoRank, "displacement unit %d is not between 1 and 2^31-1", dispUnit)
	}
	warnMisspelled(inside.Job(c), merge(info))
	w := &Win{comm: c, makers: c, job: inside.Job(c), poller: inside.Job(c).Poller(), exposed: &exposed{bytes: mem, windows: 1}, hints: hints, targets: make([]target, c.Size())}
	proposals, err := w.propose(ctx, size, dispUnit, fault)
	if err != nil {
		return nil, err
	}
	if flavor == window.FlavorCreate {
		w.hints.MinAlignment = 0 // the user's memory is as it is
	}
	var apart error // why ranks of this host do not share memory
	if flavor == window.FlavorAllocate || flavor == window.FlavorShared {
		if apart, fault, err = w.allocate(ctx, flavor, proposals); err != nil {
			return nil, named("window create", NoRank, err)
		}
	}
	if err = w.register(ctx, windows.Config{Flavor: flavor, Size: size, DispUnit: dispUnit}, proposals, fault); err != nil {
		w.abandon()
		return nil, err
	}
	if apart != nil { // and the window is there all the same
		w.job.Logger().Warn("ranks of this host cannot share memory; they use frames", "error", apart)
	}
	return w, nil
}

// checkRules says why this rank cannot restrict others as hints say.
func checkRules(c *comm.Comm, flavor window.Flavor, hints *windows.Hints) error {
	if err := hints.Rules.Check(c.Size()); err != nil {
		return err
	}
	if flavor == window.FlavorShared && hints.Rules.Restrict(c.Size(), c.Rank()) {
		return newError("allocate shared", ErrArg, NoRank, "%w", windows.Unguarded())
	}
	return nil
}

// abandon gives up what there is of a window that could not be made.
func (w *Win) abandon() {
	w.host.seal()
	defer w.poller.Guard()
	e := w.poller.Lock()
	w.hide(e.Operations)
	_ = w.release(e.Evict)
	w.poller.Unlock()
}

// members returns the window's ranks as ranks of the job, in the lives that made it, with the
// rights to this rank's memory.
func (w *Win) members(proposals []proposal) windows.Members {
	group, lives, rights := make([]int, len(proposals)), make([]uint64, len(proposals)), make([]window.Rights, len(proposals))
	for r := range proposals {
		group[r], lives[r], rights[r] = w.comm.WorldRank(r), proposals[r].life, w.hints.Rules.Of(r)
	}
	rights[w.comm.Rank()] = window.MayAll
	w.ranks = group
	return windows.NewMembers(group, lives, rights)
}

// propose exchanges what the ranks expose. It fails if anyone cannot go on.
func (w *Win) propose(ctx context.Context, size, dispUnit int, fault error) ([]proposal, error) {
	id := w.job.HostID()
	mine := proposal{
		size: uint64(max(size, 0)), host: binary.LittleEndian.Uint64(id[:]), life: w.job.Incarnation(), dispUnit: uint32(max(dispUnit, 0)),
		align: uint32(w.hints.MinAlignment), counters: uint32(w.hints.Counters), failed: ClassOf(fault), noLocks: w.hints.NoLocks, check: w.hints.Check || w.job.Checks(),
		frames: w.job.Frames() || w.hints.Rules.Restrict(w.comm.Size(), w.comm.Rank()), apart: w.hints.AllocSharedNoncontig, fits: w.fits(size), tier: w.poller.Facts().Tier != nil,
	}
	if w.comm.Rank() == 0 {
		mine.id = w.job.WindowIDs.Next()
	}
	blocks, err := inside.Gather(ctx, w.makers, w.making(), mine.marshal())
	if err != nil {
		return nil, named("window create", NoRank, err)
	}
	w.quietFree, w.hints.AllocSharedNoncontig = true, true
	proposals := make([]proposal, len(blocks))
	for r, b := range blocks {
		p := &proposals[r]
		if !p.unmarshal(b) {
			return nil, malformed(r)
		}
		if fault == nil {
			fault = failedAt("window create", r, p.failed)
		}
		w.quietFree = w.quietFree && p.noLocks
		w.hints.AllocSharedNoncontig = w.hints.AllocSharedNoncontig && p.apart
		w.hints.Check = w.hints.Check || p.check
		w.targets[r] = target{size: p.size, dispUnit: int(p.dispUnit), counters: int(p.counters)}
	}
	return proposals, fault
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

// malformed is the error of a rank whose message is not of this protocol.
func malformed(rank int) error {
	return newError("window create", ErrIntern, rank, "what this rank says of its window cannot be read: the ranks must run the same version")
}

// report is what the ranks tell each other about a window that they have made.
type report struct {
	failed Class
	mapped bool // the rank maps its host's memory
	reach  bool // the rank's XDP program reaches its memory
}

const reportLen = 5

func (r *report) marshal() []byte {
	b := make([]byte, reportLen)
	binary.LittleEndian.PutUint32(b, uint32(r.failed))
	for i, set := range []bool{r.mapped, r.reach} {
		if set {
			b[4] |= 1 << i
		}
	}
	return b
}

func (r *report) unmarshal(b []byte) bool {
	if len(b) != reportLen {
		return false
	}
	r.failed, r.mapped, r.reach = Class(binary.LittleEndian.Uint32(b)), b[4]&1 != 0, b[4]&2 != 0
	return true
}

// register makes the window known to requests at every rank, or at none, before
// anyone returns. Its id is of the first rank.
func (w *Win) register(ctx context.Context, c windows.Config, proposals []proposal, fault error) error {
	if fault == nil {
		fault = w.checkSame()
	}
	me := w.comm.Rank()
	c.ID, c.Memory, c.GroupSize = proposals[0].id, windows.Slice(w.exposed.bytes), w.comm.Size()
	c.Members, c.Host, c.Counters = w.members(proposals), w.host.lockOf(w, me), w.counters(me, proposals)
	reports, err := w.add(ctx, c, fault)
	known := err != nil && reports != nil // to all
	for r := range reports {
		if err == nil {
			err = failedAt("window create", r, reports[r].failed)
			known = err != nil
		}
	}
	if err == nil {
		err = w.mapHost(reports, proposals)
		for r := range reports {
			w.targets[r].reach = reports[r].reach && w.inClear()
		}
	}
	if err == nil {
		w.epochs = epochs.New(epochs.Config{
			Rank: me, Size: w.comm.Size(), Own: w.own, NoLocks: w.hints.NoLocks, Check: w.hints.Check, Quiet: w.quietFree,
			Loads: func(target int) bool { return w.targets[target].loads }, Open: w.connect,
		})
	}
	if err != nil && !known && w.inner != nil { // others may have the window, and wait for this rank
		inside.Break(w.inner, w.comm, err)
		inside.Break(w.ending, w.comm, err)
	}
	return err
}

// making is the call that makes the window.
func (w *Win) making() string {
	if w.makers == w.comm {
		return "window create"
	}
	return "window dup"
}

// add makes the window and tells the other ranks how that went.
func (w *Win) add(ctx context.Context, c windows.Config, fault error) ([]report, error) {
	w.inner, w.ending = forWindow(w.comm, c.ID)
	if fault == nil && w.inner == nil {
		fault = newError("window create", ErrNoMem, 0, "the ids of windows that this rank is the first of are used up")
	}
	c.Checker = w.checker(c.ID)
	if fault == nil {
		w.reserve(ctx, c.ID)
	}
	defer w.poller.Guard()
	t := w.turn()
	if fault == nil {
		w.expose(&c)
		w.own, fault = windows.New(c)
	}
	if fault == nil {
		fault = w.job.Windows().Add(w.own)
	}
	if fault != nil {
		w.own = nil
		w.hide(t)
	}
	w.poller.Unlock()
	mine := report{failed: ClassOf(fault), mapped: w.host != nil, reach: w.region != nil}
	blocks, err := inside.Gather(ctx, w.makers, w.making(), mine.marshal())
	if err != nil {
		return nil, named("window create", NoRank, err)
	}
	reports := make([]report, len(blocks))
	for r, b := range blocks {
		if !reports[r].unmarshal(b) {
			return nil, malformed(r)
		}
	}
	return reports, fault
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
