package rma

import (
	"context"
	"os"
	"slices"

	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/window"
)

// Dup returns a duplicate: another window on the same memory, of the same ranks, flavor, sizes
// and displacement units. Its epochs, locks and counters of notifications are its own, so that two goroutines or two
// libraries, each with a duplicate, synchronise without regard to each other. Calls on both find
// each other's data, and accumulates through both are atomic to each other. A lock of one does
// not exclude the holders of the other.
//
// The duplicate has the window's error handler, and no name and no attributes. It is freed by
// itself, before the window or after it: the memory goes with the last of them. A dynamic window
// and its duplicates have the same memory attached, whichever of them Attach or Detach is called
// on. In checking mode each looks for conflicts between its own operations only.
//
// The duplicate has the window's hints, with those of info over them: also such as SetInfo cannot
// change, except alloc_shared_noncontig and mpi_minimum_memory_alignment. So it can be one that is not
// locked, or checked, or that the XDP program does not reach although it reaches the window; the
// other way round is not possible, since that needs other memory. With Access a rank says
// what others may do with its memory by the duplicate. The window's rights stay as they are. A
// duplicate that the XDP program reaches has at least 64 KiB of memory in the kernel for its lock and counters.
//
// It is collective over the window, as a fence is, and allowed in any epoch. It blocks until all
// ranks have called it. Classes: ErrWin; ErrArg for an info value, or info that restricts others
// where the flavor is FlavorShared; ErrSize and ErrDisp if info says what is not so; ErrNoMem if
// ranks of a host cannot share the locks; ErrProcFailed. It fails at all ranks or at none, as
// Allocate does.
func (w *Win) Dup(ctx context.Context, info ...Info) (_ *Win, err error) {
	defer w.handle(&err)
	return w.dup(ctx, merge(info))
}

func (w *Win) dup(ctx context.Context, set Info) (*Win, error) {
	warnMisspelled(w.job, set)
	defer w.poller.Guard()
	w.poller.Lock()
	if err := w.usable("window dup"); err != nil {
		w.poller.UnlockQuiet()
		return nil, err
	}
	hints, fault := w.hints.With(set)
	hints.AllocSharedNoncontig, hints.MinAlignment = w.hints.AllocSharedNoncontig, w.hints.MinAlignment
	d := &Win{comm: w.comm, makers: w.inner, job: w.job, poller: w.poller, exposed: w.exposed, hints: hints, targets: make([]target, len(w.targets))}
	d.errhandler.Store(w.errhandler.Load())
	d.exposed.windows++ // so that it stays, even if w is freed meanwhile
	c := windows.Config{Flavor: w.own.Flavor(), Size: w.own.Size(), DispUnit: w.own.DispUnit(), Attached: w.own.Attached()}
	if d.fits(c.Size) {
		d.region = w.region.Share()
	}
	w.poller.UnlockQuiet()
	if fault == nil {
		fault = checkRules(w.comm, c.Flavor, &hints)
	}
	if err := d.duplicate(ctx, w, c, fault); err != nil {
		d.abandon()
		return nil, named("window dup", NoRank, err)
	}
	return d, nil
}

// duplicate makes the window as create does. Its memory is there: that of the window of.
func (w *Win) duplicate(ctx context.Context, of *Win, c windows.Config, fault error) error {
	proposals, err := w.propose(ctx, c.Size, c.DispUnit, fault)
	if err != nil {
		return err
	}
	if w.hints.Check {
		w.region.Close()
		w.region = nil
	}
	if c.Flavor == window.FlavorAllocate || c.Flavor == window.FlavorShared {
		if fault, err = w.duplicateHost(ctx, of.host, proposals); err != nil {
			return err
		}
		for r := range proposals {
			if proposals[r].size != of.targets[r].size { // its part of the host's memory is as it was
				fault = malformed(r)
			}
		}
	}
	if err := w.register(ctx, c, proposals, fault); err != nil {
		return err
	}
	if c.Flavor == window.FlavorDynamic {
		w.reachAll()
	}
	return nil
}

// duplicateHost gives the window the host of another one, with locks and counters of its own: in
// common memory if ranks act on the memory directly, in the kernel if XDP programs reach it. All ranks take part,
// because not all know which of them act directly. fault is of this rank.
func (w *Win) duplicateHost(ctx context.Context, of *host, proposals []proposal) (fault, err error) {
	me := w.comm.Rank()
	sync := &host{ranks: []int{me}, maker: me, alone: true}
	if of != nil && len(of.ranks) > 1 && of.allow(&w.hints, proposals) {
		sync = &host{ranks: of.ranks, maker: of.maker, backing: inFile, direct: true}
	}
	if of != nil && of.backing == inKernel && !w.hints.Check {
		if maker := sync.kernelMaker(proposals, len(sync.ranks) < len(proposals)); maker >= 0 {
			sync.maker, sync.backing = maker, inKernel
		}
	}
	bare := slices.Clone(proposals)
	for r := range bare {
		bare[r].size = 0
	}
	if fault, err = w.share(ctx, sync, sync.layout(bare, os.Getpagesize()), os.Getpagesize(), true); err != nil {
		return nil, err
	}
	if fault != nil {
		return newError("window dup", ErrNoMem, NoRank, "this rank cannot share locks with others of its host: %w", fault), nil
	}
	if of != nil {
		h := *of
		h.direct, h.sync = sync.direct, nil
		if sync.segment != nil {
			h.sync = sync
		}
		w.host = &h
		w.reachSync(ctx)
	}
	return nil, nil
}

// allow reports whether calls of a duplicate may act on the memory directly.
func (h *host) allow(hints *windows.Hints, proposals []proposal) bool {
	for _, p := range proposals {
		if p.frames {
			return false
		}
	}
	return h.direct && !hints.Check
}
