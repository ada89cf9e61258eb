package program

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"github.com/xdprma/xdprma/window"
)

// Ranks returns a number of ranks, 2 to 6, for a seed.
func Ranks(seed uint64) int { return 2 + int(seed%5) }

// Generate returns the program of a number of ranks, at most 6, that a seed stands for:
// always the same one, as long as this package does not change.
func Generate(seed uint64, ranks int) *Program {
	g := &generator{p: &Program{Seed: seed, Ranks: ranks}, pending: map[place][]access{}}
	g.maker = maker{rand.New(rand.NewPCG(seed, 0x9106)), 1}
	g.p.Scripts = make([][]Step, g.p.Ranks)
	g.requests = make([][]int, g.p.Ranks)
	for range g.between(1, 3) {
		g.window()
	}
	for win := range g.p.Windows {
		for r, mem := range g.mem[win] {
			if len(mem) > 0 {
				g.store(r, win, 0, len(mem))
			}
		}
	}
	g.all(Step{Code: Barrier})
	for range g.between(2, 5) {
		g.phase(g.IntN(len(g.p.Windows)), nil)
		if g.chance(0.5) {
			g.conversation()
		}
		for r := range g.p.Ranks {
			g.await(r, 1)
		}
	}
	for win := range g.p.Windows {
		for r := range g.p.Ranks {
			g.waitNotified(r, win)
			g.check(r, win)
		}
	}
	g.all(Step{Code: Barrier})
	return g.p
}

// generator makes a program, and carries it out on its model meanwhile.
type generator struct {
	maker
	p        *Program
	mem      [][][]byte // of the windows and ranks
	requests [][]int    // steps of each rank whose requests it has not waited for
	pending  map[place][]access
	regions  []region // of the round that is being made
	swaps    uint64   // values for compare and swap that were used
	tags     int      // of messages that were used

	notified [][][NumCounters]uint64 // by window, rank and counter: the notifications that were issued
}

// place is where an origin accesses.
type place struct{ rank, win, target int }

func (g *generator) window() {
	w := Window{Flavor: []window.Flavor{window.FlavorCreate, window.FlavorAllocate, window.FlavorDynamic}[g.IntN(3)]}
	var mem [][]byte
	for range g.p.Ranks {
		size := g.between(64, []int{400, 4000, 12000, 24000}[g.IntN(4)])
		switch {
		case g.chance(0.12):
			size = 0
		case g.chance(0.03):
			size = 150_000
		case g.chance(0.7):
			size &^= 15
		}
		w.Sizes = append(w.Sizes, size)
		unit := []int{1, 1, 2, 4, 8, 8, 16, 24, 5}[g.IntN(9)]
		var cuts []int
		if w.Flavor == window.FlavorDynamic {
			unit = 1
			for at := 0; at < size; {
				at = min(size, at+g.between(1, size))
				cuts = append(cuts, at)
			}
		}
		w.Units, w.Cuts = append(w.Units, unit), append(w.Cuts, cuts)
		mem = append(mem, make([]byte, size))
	}
	g.p.Windows = append(g.p.Windows, w)
	g.mem, g.notified = append(g.mem, mem), append(g.notified, make([][NumCounters]uint64, g.p.Ranks))
}

func (g *generator) emit(rank int, s Step) { g.p.Scripts[rank] = append(g.p.Scripts[rank], s) }

func (g *generator) all(s Step) {
	for r := range g.p.Ranks {
		g.emit(r, s)
	}
}

// random returns n random bytes.
func (g *generator) random(n int) []byte {
	b := make([]byte, (n+7)&^7) // of whole words
	for at := 0; at < n; at += 8 {
		binary.LittleEndian.PutUint64(b[at:], g.Uint64())
	}
	return b[:n:n]
}

// store has a rank store in its own window.
func (g *generator) store(rank, win, offset, n int) {
	s := Step{Code: Store, Win: win, Offset: offset, Memory: g.random(n)}
	copy(g.mem[win][rank][offset:], s.Memory)
	g.emit(rank, s)
}

// check has a rank compare its own window with the model, and store in it anew.
// Nobody else may access it meanwhile.
func (g *generator) check(rank, win int) {
	mem := g.mem[win][rank]
	s := Step{Code: Check, Win: win, Memory: bytes.Clone(mem)}
	for i := range g.regions {
		if q := &g.regions[i]; q.role == sharedWords && q.target == rank && g.p.Shared[q.shared].Kind == Swapped && g.p.Shared[q.shared].Win == win {
			s.Shared = append(s.Shared, q.shared)
		}
	}
	g.emit(rank, s)
	for _, i := range s.Shared {
		g.store(rank, win, g.p.Shared[i].Offset, 8)
	}
	if len(mem) > 0 && g.chance(0.3) {
		at := g.IntN(len(mem))
		g.store(rank, win, at, g.between(1, min(64, len(mem)-at)))
	}
}

// phase is a few rounds of epochs of one kind on a window. All ranks take part,
// and nothing of it is under way when it ends. inner, if not nil, is called once
// while epochs are open, at the same point of all ranks' scripts; it may
// synchronise other windows.
func (g *generator) phase(win int, inner func()) {
	kind := g.IntN(4)
	if inner == nil && kind != 3 && len(g.p.Windows) > 1 && g.chance(0.4) {
		other := (win + g.between(1, len(g.p.Windows)-1)) % len(g.p.Windows)
		inner = func() {
			mine := g.regions
			g.phase(other, func() {})
			g.regions = mine
		}
	}
	if inner == nil && g.chance(0.3) {
		inner = g.conversation
	} else if inner == nil {
		inner = func() {}
	}
	switch kind {
	case 0:
		g.fences(win, inner)
	case 1:
		g.postStart(win, inner)
	case 2:
		g.sharedLocks(win, inner)
	case 3:
		g.locks(win)
	}
	g.regions = nil
}

// everyone is the ranks that may access each target.
func (g *generator) everyone(int) []int {
	all := make([]int, g.p.Ranks)
	for r := range all {
		all[r] = r
	}
	return all
}

// operations has a rank issue some calls in an epoch that gives access to targets.
func (g *generator) operations(rank, win int, targets []int, passive bool) {
	if g.chance(0.2) {
		g.burst(rank, win, targets, passive)
	}
	for range g.IntN([]int{2, 5, 12}[g.IntN(3)]) {
		g.operation(rank, win, targets, passive)
		if passive && g.chance(0.1) {
			g.flush(rank, win, targets[g.IntN(len(targets))])
		}
		if passive && g.chance(0.3) {
			g.await(rank, 0.5)
		}
		if g.chance(0.05) {
			g.emit(rank, Step{Code: Sync, Win: win})
		}
	}
}

// checked has all ranks check a window that nobody accesses, and lets nobody
// access it before they have.
func (g *generator) checked(win int) {
	sync := g.chance(0.5)
	for r := range g.p.Ranks {
		if sync {
			g.emit(r, Step{Code: Sync, Win: win})
		}
		g.check(r, win)
		if sync {
			g.emit(r, Step{Code: Sync, Win: win})
		}
	}
	g.all(Step{Code: Barrier})
}

func (g *generator) fences(win int, inner func()) {
	fence := func(assert window.Assert) {
		g.all(Step{Code: Fence, Win: win, Assert: assert})
		g.completed(win)
	}
	maybe := func(a window.Assert) window.Assert {
		if g.chance(0.5) {
			return a
		}
		return 0
	}
	fence(maybe(window.ModeNoPrecede))
	rounds := g.between(1, 3)
	for i := range rounds {
		last := i == rounds-1
		looks := last || g.chance(0.5)
		g.layout(win, g.everyone, looks, false)
		for r := range g.p.Ranks {
			g.operations(r, win, g.everyone(0), false)
		}
		if i == 0 {
			inner()
		}
		switch {
		case last:
			fence(maybe(window.ModeNoSucceed) | maybe(window.ModeNoStore))
			g.checked(win)
		case looks:
			fence(maybe(window.ModeNoStore) | maybe(window.ModeNoPut))
			for r := range g.p.Ranks {
				g.check(r, win)
			}
			fence(maybe(window.ModeNoPrecede))
		default:
			fence(maybe(window.ModeNoStore))
		}
	}
}

func (g *generator) postStart(win int, inner func()) {
	rounds := g.between(1, 3)
	for i := range rounds {
		looks := i == rounds-1 || g.chance(0.5)
		targets, origins := make([][]int, g.p.Ranks), make([][]int, g.p.Ranks)
		density := g.Float64()
		for r := range g.p.Ranks {
			for _, t := range g.Perm(g.p.Ranks) {
				if g.chance(density) {
					targets[r], origins[t] = append(targets[r], t), append(origins[t], r)
				}
			}
		}
		g.layout(win, func(t int) []int { return origins[t] }, looks, false)
		assert, early := window.Assert(0), g.chance(0.3) // early: start comes before post
		if !early && g.chance(0.2) {
			assert = window.ModeNoCheck
		}
		var posts, starts []bool
		for r := range g.p.Ranks {
			posts = append(posts, len(origins[r]) > 0 || g.chance(0.5))
			starts = append(starts, len(targets[r]) > 0 || g.chance(0.5))
		}
		post := func(r int) {
			if posts[r] {
				g.emit(r, Step{Code: Post, Win: win, Group: origins[r], Assert: assert})
			}
		}
		for r := range g.p.Ranks {
			if !early {
				post(r)
			}
			if assert != 0 {
				g.emit(r, Step{Code: Barrier})
			}
		}
		for r := range g.p.Ranks {
			if starts[r] {
				g.emit(r, Step{Code: Start, Win: win, Group: targets[r], Assert: assert})
				if len(targets[r]) > 0 {
					g.operations(r, win, targets[r], false)
				}
			}
			if early {
				post(r)
			}
		}
		if i == 0 {
			inner()
		}
		for r := range g.p.Ranks {
			if starts[r] {
				g.emit(r, Step{Code: Complete, Win: win})
			}
		}
		for r := range g.p.Ranks {
			if posts[r] {
				g.emit(r, Step{Code: Wait, Win: win, Testing: g.chance(0.3)})
			}
			if looks {
				g.check(r, win)
			}
		}
		g.completed(win)
	}
	g.all(Step{Code: Barrier})
}

// sharedLocks has ranks hold shared locks, of all targets or of some, for as long
// as the phase lasts.
func (g *generator) sharedLocks(win int, inner func()) {
	targets := make([][]int, g.p.Ranks)
	every := make([]bool, g.p.Ranks)
	for r := range g.p.Ranks {
		if every[r] = g.chance(0.5); every[r] {
			targets[r] = g.everyone(0)
			g.emit(r, Step{Code: LockAll, Win: win, Assert: g.nocheck()})
			continue
		}
		for _, t := range g.Perm(g.p.Ranks)[:g.between(1, g.p.Ranks)] {
			targets[r] = append(targets[r], t)
			g.emit(r, Step{Code: Lock, Win: win, Target: t, Assert: g.nocheck()})
		}
	}
	rounds := g.between(1, 3)
	for i := range rounds {
		last := i == rounds-1
		looks := last || g.chance(0.5)
		g.layout(win, func(t int) (origins []int) {
			for r := range g.p.Ranks {
				if slices.Contains(targets[r], t) {
					origins = append(origins, r)
				}
			}
			return origins
		}, looks, false)
		for r := range g.p.Ranks {
			g.operations(r, win, targets[r], true)
		}
		if i == 0 {
			inner()
		}
		told := !last && g.chance(0.4)
		for r := range g.p.Ranks {
			switch {
			case told:
				for _, t := range targets[r] {
					g.emit(r, Step{Code: Notify, Win: win, Target: t, Counter: OfAll})
					g.notified[win][t][OfAll]++
				}
			case last && every[r]:
				g.emit(r, Step{Code: UnlockAll, Win: win})
			case last:
				for _, i := range g.Perm(len(targets[r])) {
					g.emit(r, Step{Code: Unlock, Win: win, Target: targets[r][i]})
				}
			case g.chance(0.5):
				g.emit(r, Step{Code: Flush, Win: win, Target: Every})
			default:
				for _, t := range targets[r] {
					g.emit(r, Step{Code: Flush, Win: win, Target: t})
				}
			}
		}
		if told { // the targets know, and the origins do not
			for r := range g.p.Ranks {
				g.waitNotified(r, win)
				g.check(r, win)
			}
			g.all(Step{Code: Barrier})
			continue
		}
		g.completed(win)
		g.all(Step{Code: Barrier})
		if looks {
			g.checked(win)
		}
	}
}

// waitNotified has a rank wait for all notifications that were issued to it.
func (g *generator) waitNotified(rank, win int) {
	for counter, n := range g.notified[win][rank] {
		if n > 0 {
			g.emit(rank, Step{Code: WaitNotified, Win: win, Counter: counter, Number: n})
		}
	}
}

// nocheck returns the assertion of a lock that nobody's lock conflicts with.
func (g *generator) nocheck() window.Assert {
	if g.chance(0.25) {
		return window.ModeNoCheck
	}
	return 0
}

// locks has ranks take one lock after the other, exclusive or shared, or all at once; or
// several, in an order that is the same for all ranks.
func (g *generator) locks(win int) {
	g.layout(win, g.everyone, true, true)
	var order []int
	if g.chance(0.4) {
		order = g.Perm(g.p.Ranks)
	}
	for r := range g.p.Ranks {
		if order != nil {
			for range g.between(1, 3) {
				g.severalLocks(r, win, order)
			}
			continue
		}
		if g.chance(0.3) {
			g.emit(r, Step{Code: LockAll, Win: win})
			for range g.between(1, 4) {
				g.operations(r, win, g.everyone(0), true)
				g.guarded(r, win, g.IntN(g.p.Ranks), false)
			}
			g.emit(r, Step{Code: UnlockAll, Win: win})
			continue
		}
		for range g.between(0, 5) {
			g.severalLocks(r, win, []int{g.IntN(g.p.Ranks)})
		}
	}
	g.completed(win)
	g.all(Step{Code: Barrier})
	g.checked(win)
}

// severalLocks has a rank hold the locks of some targets at once, which it takes in the
// given order.
func (g *generator) severalLocks(rank, win int, order []int) {
	type lock struct {
		target    int
		exclusive bool
	}
	var held []lock
	for _, target := range order {
		if len(order) > 1 && g.chance(0.3) {
			continue
		}
		l := lock{target, g.chance(0.6)}
		g.emit(rank, Step{Code: Lock, Win: win, Target: target, Exclusive: l.exclusive})
		if g.chance(0.7) {
			g.guarded(rank, win, target, l.exclusive)
		}
		held = append(held, l)
	}
	for _, i := range g.Perm(len(held)) {
		target, exclusive := held[i].target, held[i].exclusive
		g.operations(rank, win, []int{target}, true)
		if g.chance(0.2) {
			g.burst(rank, win, []int{target}, true)
		}
		if g.chance(0.3) {
			g.guarded(rank, win, target, exclusive)
		}
		g.emit(rank, Step{Code: Unlock, Win: win, Target: target})
		delete(g.pending, place{rank, win, target})
		g.await(rank, 0.5)
	}
}
