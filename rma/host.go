package rma

import (
	"context"
	"errors"
	"math/bits"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/inside"
	"github.com/xdprma/xdprma/internal/launch/hostmem"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/window"
)

// host is memory that the ranks of this rank's host have in common for a window: a
// lock for each, then the counters of each, and the windows of each. A rank can have such memory by itself, which
// its XDP program reaches. The locks and counters of a duplicate are in a host of their own.
type host struct {
	ranks   []int               // of the communicator, in order
	maker   int                 // the one of them that makes the memory
	starts  []int               // of their windows, in segment
	counts  []int               // of their counters
	locks   []*windows.LockWord // none where the owner alone uses them
	segment *hostmem.Segment    // nil if it could not be mapped
	sync    *host               // that has the locks and counters: itself, but for a duplicate; nil: none has
	end     int                 // of the last window
	backing backing             // of the segment: what it is to be, and then what it is
	alone   bool                // no other rank is to map it
	direct  bool                // calls may act on it
	dense   bool                // each window starts where the one before ends
}

// backing is what memory is made of.
type backing uint8

const (
	inProcess backing = iota // memory of this process alone, and no segment
	inFile                   // a file that ranks of the host map
	inKernel                 // memory of the kernel, which XDP programs of the host reach, too
)

// planHost says which ranks of the host of rank me have memory in common for their windows,
// and of what it is to be made. shares reports whether ranks of any host have some: then all
// ranks take part in making it.
func planHost(flavor window.Flavor, hints *windows.Hints, me int, proposals []proposal) (h *host, shares bool, err error) {
	h = &host{direct: !hints.Check, dense: flavor == window.FlavorShared && !hints.AllocSharedNoncontig}
	count := map[uint64]int{}
	most := 0
	for r, p := range proposals {
		h.direct = h.direct && !p.frames
		count[p.host]++
		most = max(most, count[p.host])
		if p.host == proposals[me].host {
			h.ranks = append(h.ranks, r)
		}
	}
	far := len(h.ranks) < len(proposals)
	if flavor == window.FlavorShared && far {
		return nil, false, newError("allocate shared", ErrRMAShared, NoRank,
			"%d of the %d ranks are on this host: divide the communicator with SplitHost", len(h.ranks), len(proposals))
	}
	if shares = flavor == window.FlavorShared || h.direct && most > 1; !shares {
		h.ranks = []int{me}
	}
	h.maker = h.ranks[0]
	h.alone = flavor == window.FlavorAllocate && len(h.ranks) == 1
	if !h.alone {
		h.backing = inFile
	}
	if !hints.Check {
		if maker := h.kernelMaker(proposals, far); maker >= 0 {
			h.maker, h.backing = maker, inKernel
		}
	}
	return h, shares, nil
}

// allocate makes the memory of a window that the library allocates: memory that the
// ranks of a host share, where there are several, or memory of this rank alone. fault is
// what is wrong at this rank, err what all ranks see, and
// apart why the memory is of this rank alone, where ranks were to share it.
func (w *Win) allocate(ctx context.Context, flavor window.Flavor, proposals []proposal) (apart, fault, err error) {
	me := w.comm.Rank()
	h, shares, err := planHost(flavor, &w.hints, me, proposals)
	if err != nil {
		return nil, nil, err
	}
	size, align := int(proposals[me].size), max(w.hints.MinAlignment, os.Getpagesize())
	if len(h.ranks) < len(proposals) || !h.direct {
		w.tellTooLarge(proposals)
	}
	if w.hints.MinAlignment = align; h.dense {
		w.hints.MinAlignment = 0
	}
	for _, r := range h.ranks {
		align = max(align, int(proposals[r].align))
	}
	if h.backing != inProcess || shares {
		if apart, err = w.share(ctx, h, h.layout(proposals, align), align, shares); err != nil {
			return nil, nil, err
		}
		if flavor == window.FlavorShared && apart != nil {
			class := ErrRMAShared
			if errors.Is(apart, unix.ENOMEM) || ClassOf(apart) == ErrNoMem {
				class = ErrNoMem
			}
			return nil, newError("allocate shared", class, NoRank, "%w", apart), nil
		}
	}
	if h.segment == nil {
		mapping, fault := windows.MapAnonymous(size, align)
		if fault == nil {
			*w.exposed = exposed{bytes: mapping.Bytes(), mapped: mapping.Bytes(), unmap: mapping.Close, windows: 1}
		}
		return apart, fault, nil
	}
	h.sync = h
	w.host = h
	*w.exposed = exposed{bytes: h.part(me, size), mapped: h.segment.Bytes(), unmap: h.segment.Close, windows: 1}
	w.reachable(ctx, size)
	return nil, nil, nil
}

// layout says where the locks and windows lie, and returns the bytes that they
// take; -1 if they are too many.
func (h *host) layout(proposals []proposal, align int) int {
	round := func(n uint64) uint64 { return (n + uint64(align) - 1) &^ (uint64(align) - 1) }
	at := uint64(lockAt(len(h.ranks)))
	for _, r := range h.ranks {
		h.counts = append(h.counts, int(at))
		at += uint64(proposals[r].counters) * windows.CounterLen
	}
	at = round(at)
	for _, r := range h.ranks {
		if !h.dense {
			at = round(at)
		}
		h.starts = append(h.starts, int(at))
		next, over := bits.Add64(at, proposals[r].size, 0)
		if over != 0 || next > 1<<62 {
			return -1
		}
		at = next
	}
	h.end = int(at)
	return h.end
}

// lockAt returns where in the segment the lock of its rank i is. The first place is the
// segment's head.
func lockAt(i int) int { return (i + 1) * windows.LockWordLen }

// openSegment is hostmem.Open, but for tests.
var openSegment = hostmem.Open

// share maps the host's segment, which its maker makes. Together: there is a host
// whose ranks share one, and all ranks take part. The result fault is of this rank.
func (w *Win) share(ctx context.Context, h *host, size, align int, together bool) (fault, err error) {
	var place hostmem.Place
	if w.comm.Rank() == h.maker && h.backing != inProcess {
		if h.segment, fault = w.makeSegment(ctx, h, size, align); h.segment != nil {
			place = h.segment.Place()
		}
	}
	if together {
		blocks, err := inside.Gather(ctx, w.makers, w.making(), place.Marshal())
		if err != nil {
			if h.segment != nil {
				_ = h.segment.Close()
			}
			return nil, err
		}
		if w.comm.Rank() != h.maker {
			if len(blocks[h.maker]) != hostmem.PlaceLen {
				return malformed(h.maker), nil
			}
			if place.Unmarshal(blocks[h.maker]); place.Size == 0 {
				return newError("window create", ErrNoMem, h.maker, "this rank could not make the memory"), nil
			}
			h.segment, fault = openSegment(place)
		}
	}
	if fault != nil || h.segment == nil {
		return fault, nil
	}
	if h.backing = inFile; place.Kernel {
		h.backing = inKernel
	}
	for i := range h.ranks {
		h.locks = append(h.locks, windows.LockWordIn(h.segment.Bytes()[lockAt(i):lockAt(i+1)]))
	}
	return nil, nil
}

// index returns the place of a rank among those of the host, -1 if it is elsewhere.
func (h *host) index(rank int) int {
	if h == nil {
		return -1
	}
	return slices.Index(h.ranks, rank)
}

// part returns the window of a rank of the host. Its capacity has the windows that
// follow without a gap.
func (h *host) part(rank, size int) []byte {
	at := h.starts[h.index(rank)]
	end := at + size
	if h.dense {
		end = h.end
	}
	return h.segment.Bytes()[at : at+size : end]
}

// counters returns those of a rank's window, nil if there are none or they are not here.
func (w *Win) counters(rank int, proposals []proposal) *windows.Counters {
	n := int(proposals[rank].counters)
	switch h := w.host; {
	case n == 0:
		return nil
	case h != nil && h.sync != nil:
		at := h.sync.counts[h.sync.index(rank)]
		return windows.CountersIn(h.sync.segment.Bytes()[at:][:n*windows.CounterLen])
	}
	return windows.NewCounters(n)
}

// retire tells the host that a rank's window is no more, though its memory is there.
func (h *host) retire(rank int) {
	if h == nil || h.sync == nil {
		return
	}
	if i := h.sync.index(rank); i >= 0 && len(h.sync.locks) > 0 {
		h.sync.locks[i].Retire()
	}
}

// lockOf returns the lock of a rank's window as its host's processes and its XDP program
// use it, nil if they do not.
func (h *host) lockOf(w *Win, rank int) *windows.Host {
	if h == nil || h.sync == nil {
		return nil
	}
	s := h.sync
	i := s.index(rank)
	if i < 0 || len(s.locks) == 0 || s.backing == inFile && !h.direct {
		return nil
	}
	l := &windows.Host{Lock: s.locks[i], Ranks: []int{w.comm.WorldRank(rank), windows.InKernel}}
	for _, r := range s.ranks {
		if r != rank {
			l.Ranks = append(l.Ranks, w.comm.WorldRank(r))
		}
	}
	return l
}

// mapHost finds the windows that calls may act on at once: this rank's own, and
// those of its host. It is called when all ranks have mapped what they can.
func (w *Win) mapHost(reports []report, proposals []proposal) error {
	me := w.comm.Rank()
	if h := w.host; h != nil {
		h.seal()
		for _, r := range h.ranks {
			t := &w.targets[r]
			t.loads = t.size > 0 && w.own.Flavor() == window.FlavorShared
			if r == me || !h.direct || !reports[r].mapped {
				continue
			}
			view, err := windows.New(windows.Config{
				ID: w.own.ID(), Flavor: w.own.Flavor(), Memory: windows.Slice(h.part(r, int(t.size))), Size: int(t.size),
				DispUnit: t.dispUnit, GroupSize: w.comm.Size(), Host: h.lockOf(w, r), Counters: w.counters(r, proposals),
			})
			if err != nil {
				return err
			}
			t.mapped, t.loads = view, t.size > 0
		}
	}
	w.targets[me].loads = true
	if w.own.Checker() == nil && w.own.Flavor() != window.FlavorDynamic {
		w.targets[me].mapped = w.own
	}
	return nil
}

// seal ends the time in which others can map the memory. It may wait for one that is at it.
func (h *host) seal() {
	if h == nil {
		return
	}
	h.segment.Seal()
	if h.sync != nil {
		h.sync.segment.Seal()
	}
}

// close unmaps what the window has for itself: the locks and counters of a duplicate.
func (h *host) close() error {
	if h == nil || h.sync == nil || h.sync == h {
		return nil
	}
	return h.sync.segment.Close()
}
