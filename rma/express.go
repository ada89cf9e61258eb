package rma

import (
	"context"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/launch/hostmem"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// The XDP program of a target executes small requests itself where it reaches the
// window's memory. That is memory in the kernel, which Allocate and AllocateShared make
// where ranks use frames: one piece for the ranks of a host, whose programs all reach it. Dup makes
// such a piece for the locks and counters of a duplicate.

// inClear reports whether requests for the window may travel as XDP programs execute them. These
// cannot decrypt.
func (w *Win) inClear() bool { return w.hints.InClear || w.job.Security() < secure.Seal }

// fits reports whether this rank's window may be in memory of the kernel.
func (w *Win) fits(size int) bool {
	if !w.inClear() {
		return false
	}
	limit := w.hints.Express
	if limit == 0 {
		limit = w.job.ExpressWindow()
	}
	return size <= limit && w.hints.MinAlignment <= os.Getpagesize()
}

// tellTooLarge says once that a window is beyond the limit that nobody has set for it in particular. The
// first of the ranks of which that is true says it for all.
// Where it is not to be in reach anyway, nothing is said.
func (w *Win) tellTooLarge(proposals []proposal) {
	limit, tier := w.job.ExpressWindow(), w.poller.Facts().Tier
	first := slices.IndexFunc(proposals, func(p proposal) bool { return p.size > uint64(limit) })
	if tier != nil && first == w.comm.Rank() && w.hints.Express == 0 && !w.hints.Check && w.inClear() {
		tier.TooLarge(int(proposals[first].size), limit)
	}
}

// kernelMaker returns the first rank of this host that has a program, if the memory of the host
// is to be of the kernel: somebody uses frames, and all windows fit. It returns -1 if not.
// far says that there are ranks on other hosts.
func (h *host) kernelMaker(proposals []proposal, far bool) int {
	var size uint64
	maker := -1
	for _, r := range h.ranks {
		p := &proposals[r]
		if !p.fits {
			return -1
		}
		size = max(size, p.size)
		if p.tier && maker < 0 {
			maker = r
		}
	}
	if !far && h.direct || size == 0 {
		return -1
	}
	return maker
}

// makeSegment allocates in the kernel if that is wanted and possible, else in a file shared by
// the host's ranks. It returns nil if no other rank needs it.
func (w *Win) makeSegment(ctx context.Context, h *host, size, align int) (*hostmem.Segment, error) {
	if h.backing == inKernel {
		tier := w.poller.Facts().Tier
		file, err := tier.Allocate(ctx, size)
		if err == nil {
			var s *hostmem.Segment
			if s, err = hostmem.Adopt(file, align); err == nil {
				return s, nil
			}
		}
		w.unreached(ctx, err)
	}
	if h.alone {
		return nil, nil
	}
	if size < 0 {
		most := uint64(0)
		for _, r := range h.ranks {
			most = max(most, w.targets[r].size)
		}
		return nil, fmt.Errorf("the windows of %d ranks of a host, the largest with %d bytes, are larger together than any memory: %w", len(h.ranks), most, unix.ENOMEM)
	}
	return hostmem.New(size, align)
}

// reachable has this rank's XDP program reach the host's memory, if it is of the kernel.
func (w *Win) reachable(ctx context.Context, size int) {
	tier := w.poller.Facts().Tier
	if h := w.host; tier == nil || size == 0 || h.backing != inKernel || h.starts[h.index(w.comm.Rank())]%8 != 0 {
		return
	}
	var err error
	if w.region, err = tier.Reach(ctx, w.host.segment.File()); err != nil {
		w.unreached(ctx, err)
	}
	w.syncRegion = w.region
}

// reachSync has this rank's XDP program reach the locks and counters of a duplicate, if it reaches the
// memory and they are in the kernel, too.
func (w *Win) reachSync(ctx context.Context) {
	if s := w.host.sync; w.region == nil || s == nil || s.backing != inKernel {
		return
	}
	tier, err := w.poller.Facts().Tier, error(nil)
	if w.syncRegion, err = tier.Reach(ctx, w.host.sync.segment.File()); err != nil {
		w.unreached(ctx, err)
	}
}

// unreached notes that the XDP program does not reach the window, unless ctx has ended: then there is
// to be no window.
func (w *Win) unreached(ctx context.Context, reason error) {
	if ctx.Err() == nil {
		w.poller.Facts().Tier.Unreached(reason)
	}
}

// reserve takes a place for the window with which the XDP program finds it. Without one its memory is
// as any other. It may wait for a freed window to give up its place.
func (w *Win) reserve(ctx context.Context, id uint32) {
	if w.region == nil {
		return
	}
	if err := w.region.Reserve(ctx, id); err != nil {
		w.unreached(ctx, err)
		w.region.Close()
		w.syncRegion.Close()
		w.region, w.syncRegion = nil, nil
	}
}

// expose has the XDP program execute requests for the window to be. It is called with the
// engine's lock held.
func (w *Win) expose(c *windows.Config) {
	if w.region == nil {
		return
	}
	h, me := w.host, w.comm.Rank()
	reached := express.Window{
		ID: c.ID, Base: uint64(h.starts[h.index(me)]), Size: uint64(len(c.Memory.Bytes())), Rights: c.Members.Bits,
	}
	if w.syncRegion != nil {
		i := h.sync.index(me)
		reached.Locks, reached.LockAt = true, uint64(lockAt(i))
		reached.Counters, reached.CountersAt = c.Counters.Len(), uint64(h.sync.counts[i])
	}
	w.region.Expose(reached, w.syncRegion)
}

// Unattended reports whether small calls at a target can do without its process: the window
// is in memory that this process maps, or in memory where the target's XDP program executes
// them. It is false for a rank outside the window's. Once answers of the program get
// lost, as Stats.AnswersLost counts, it is false until one has come again. In mapped memory no lock, call,
// flush or unlock waits for a target that computes or is stopped. The program serves these:
//
//   - a lock, calls and the unlock, without a flush between;
//   - under a lock that the target has granted, calls and the flush after them.
//
// These wait for the target's process: the first call and flush under a lock, because the lock
// travels with them (a Flush right after Lock or LockAll has it granted before); the unlock of
// a lock that was granted; fences, post and start; and a lock that another rank has. In one
// go, from one wait to the next, the program executes up to 8 records of about a kilobyte in
// all, on integers and bytes; docs/wire.md says which.
//
// Now and then one waits all the same: the background goroutine sends what nobody waits for
// yet, after some 200 µs and sooner if it has other work. The process then serves a lock whose unlock had
// not been issued, with all that follows up to it, and calls of a stream: those made while
// others were on their way, and the next few. The process also serves calls between
// ranks of one network namespace that use frames, which no program sees, and calls that the target
// gives this rank no right to, which it refuses.
func (w *Win) Unattended(target int) bool {
	e := w.poller.Lock()
	defer w.poller.UnlockQuiet()
	if uint(target) >= uint(len(w.targets)) || w.epochs.Freed() {
		return false
	}
	if t := &w.targets[target]; t.mapped != nil || !t.reach {
		return t.mapped != nil
	}
	s := e.Session(w.comm.WorldRank(target))
	return s == nil || !s.AnswersLost()
}
