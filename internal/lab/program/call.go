package program

import (
	"slices"

	"github.com/xdprma/xdprma/datatype"
)

// role says who may do what to a region.
type role uint8

const (
	idle        role = iota
	owned            // one origin does all kinds of things
	readonly         // all origins read
	combined         // all origins accumulate with one commutative operator
	sharedWords      // words that are judged
)

// region is bytes of a target's window, for as long as a round lasts.
type region struct {
	role      role
	target    int
	low, high int
	owner     int
	basic     datatype.Basic
	op        datatype.Op
	shared    int
	changes   [][]int // shared: of each rank, to each word
}

// layout divides the windows of a round among the origins of each target. swaps:
// the owners check before the next round. guards: locks will be exclusive.
func (g *generator) layout(win int, origins func(target int) []int, swaps, guards bool) {
	g.regions = nil
	for t, size := range g.p.Windows[win].Sizes {
		from := origins(t)
		if size < 16 || len(from) == 0 {
			continue
		}
		parts := g.between(1, len(from)+3)
		if size > 64<<10 && g.chance(0.5) {
			parts = 1
		}
		cuts := []int{0, size}
		for range parts - 1 {
			cuts = append(cuts, g.IntN(size)&^15)
		}
		slices.Sort(cuts)
		for i := range len(cuts) - 1 {
			if q := (region{target: t, low: cuts[i], high: cuts[i+1], shared: -1}); q.high > q.low {
				g.assign(win, &q, from, swaps, guards)
				g.regions = append(g.regions, q)
			}
		}
	}
}

func (g *generator) assign(win int, q *region, from []int, swaps, guards bool) {
	q.role, q.owner = owned, from[g.IntN(len(from))]
	switch n := g.IntN(20); {
	case n < 1:
		q.role = readonly
	case n < 4:
		q.role = combined
		q.basic = datatype.Basic(g.between(1, 8))
		ops := []datatype.Op{datatype.Sum, datatype.Prod, datatype.Min, datatype.Max, datatype.LAnd, datatype.LOr, datatype.LXor,
			datatype.BAnd, datatype.BOr, datatype.BXor}
		q.op = ops[g.IntN(len(ops))]
	case n < 7:
		g.share(win, q, SharedKind(g.IntN(2)))
	case n < 9 && swaps:
		g.share(win, q, Swapped)
	case n < 14 && guards:
		g.share(win, q, Guarded)
	}
}

// share makes words at the start of a region shared, if it has room for one.
func (g *generator) share(win int, q *region, kind SharedKind) {
	unit := multiple(8, g.p.Windows[win].Units[q.target])
	at := (q.low + unit - 1) / unit * unit
	room := (q.high - at) / 8
	if room < 1 {
		return
	}
	n := g.between(1, min(room, []int{1, 4, 500}[g.IntN(3)]))
	if kind == Swapped {
		n = 1
	}
	s := Shared{Kind: kind, Win: win, Target: q.target, Offset: at}
	for i := range n {
		s.Init = append(s.Init, le.Uint64(g.mem[win][q.target][at+8*i:]))
	}
	q.role, q.shared = sharedWords, len(g.p.Shared)
	for range g.p.Ranks {
		q.changes = append(q.changes, make([]int, n))
	}
	g.p.Shared = append(g.p.Shared, s)
}

func multiple(a, b int) int {
	for m := a; ; m += a {
		if m%b == 0 {
			return m
		}
	}
}

// access is bytes of a target that an origin has accessed and not completed.
type access struct {
	step      int
	low       int
	touched   []bool // from low on
	reads     bool
	combining datatype.Basic // of the accumulates; 0 for others
}

func (g *generator) accessOf(c *Call, step int) access {
	at := c.Where()
	low, high := at.bounds()
	a := access{step: step, low: c.Disp + low, touched: make([]bool, high-low), reads: c.Code == Get || c.Op == datatype.NoOp}
	if c.Code != Put && c.Code != Get {
		a.combining = at.elements[0].basic
	}
	at.each(func(off int, b datatype.Basic) {
		for i := range b.Size() {
			a.touched[off-low+i] = true
		}
	})
	return a
}

func (a *access) conflicts(b *access) bool {
	if a.reads && b.reads || a.combining != 0 && a.combining == b.combining {
		return false
	}
	for i := max(a.low, b.low); i < min(a.low+len(a.touched), b.low+len(b.touched)); i++ {
		if a.touched[i-a.low] && b.touched[i-b.low] {
			return true
		}
	}
	return false
}

// completed notes that everything on a window has completed.
func (g *generator) completed(win int) {
	for k := range g.pending {
		if k.win == win {
			delete(g.pending, k)
		}
	}
}

// flush has a rank complete what it has issued to a target.
func (g *generator) flush(rank, win, target int) {
	s := Step{Code: Flush, Win: win, Target: target, Local: g.chance(0.3)}
	if g.chance(0.3) {
		s.Target = Every
	}
	g.emit(rank, s)
	for t := range g.p.Ranks {
		k := place{rank, win, t}
		if s.Target != Every && s.Target != t {
			continue
		}
		g.pending[k] = slices.DeleteFunc(g.pending[k], func(a access) bool { return !s.Local || a.reads })
	}
}

// await has a rank wait for some of its requests.
func (g *generator) await(rank int, p float64) {
	var some, rest []int
	for _, i := range g.requests[rank] {
		if g.chance(p) || p == 1 {
			some = append(some, i)
		} else {
			rest = append(rest, i)
		}
	}
	if len(some) == 0 {
		return
	}
	g.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	g.requests[rank] = rest
	g.emit(rank, Step{Code: Await, Group: some})
	for _, i := range some {
		c := g.p.Scripts[rank][i].Call
		if c == nil { // a message
			continue
		}
		k := place{rank, c.Win, c.Target}
		g.pending[k] = slices.DeleteFunc(g.pending[k], func(a access) bool { return a.step == i && a.reads })
	}
}

// issue adds a call to a rank's script, after what has to be completed before it,
// and lets it take effect. It reports whether that was possible.
func (g *generator) issue(rank int, c *Call, passive bool) bool {
	k := place{rank, c.Win, c.Target}
	if c.Target != Null && c.Where().Count > 0 {
		a := g.accessOf(c, 0)
		conflicts := func() bool {
			return slices.ContainsFunc(g.pending[k], func(b access) bool { return a.conflicts(&b) })
		}
		for conflicts() {
			if !passive {
				return false
			}
			g.flush(rank, c.Win, c.Target)
		}
		a.step = len(g.p.Scripts[rank])
		g.pending[k] = append(g.pending[k], a)
	}
	c.Requested = passive && g.chance(0.3)
	if c.Requested {
		g.requests[rank] = append(g.requests[rank], len(g.p.Scripts[rank]))
	}
	if c.Target != Null && c.Where().Size() > 0 && g.chance(0.1) {
		c.Notifies = true
		g.notified[c.Win][c.Target][OfCalls]++
	}
	if c.Shared < 0 {
		var mem []byte
		if c.Target != Null {
			mem = g.mem[c.Win][c.Target]
		}
		c.apply(mem)
	}
	g.emit(rank, Step{Code: Transfer, Win: c.Win, Target: c.Target, Call: c})
	return true
}

// operation has a rank issue a call to one of several targets.
func (g *generator) operation(rank, win int, targets []int, passive bool) {
	c := &Call{Win: win, Target: targets[g.IntN(len(targets))], Shared: -1, From: -1}
	switch n := g.IntN(100); {
	case n < 3:
		c.Target = Null
		g.fill(c, nil)
		g.issue(rank, c, passive)
		return
	case n < 6: // nothing, anywhere
		g.fill(c, nil)
		g.issue(rank, c, passive)
		return
	}
	var usable []*region
	for i := range g.regions {
		q := &g.regions[i]
		if !slices.Contains(targets, q.target) || q.role == idle || q.role == owned && q.owner != rank ||
			q.role == sharedWords && g.p.Shared[q.shared].Kind == Guarded {
			continue
		}
		usable = append(usable, q)
	}
	if len(usable) == 0 {
		return
	}
	q := usable[g.IntN(len(usable))]
	c.Target = q.target
	switch {
	case q.role == sharedWords:
		g.change(rank, c, q, passive)
	default:
		for range 5 {
			if g.fill(c, q) && g.issue(rank, c, passive) {
				return
			}
		}
	}
}

// burst has a rank issue many accumulates to a region of its own, which take effect
// in the order issued, with nothing between them: more than there is room to send.
func (g *generator) burst(rank, win int, targets []int, passive bool) {
	var mine []*region
	for i := range g.regions {
		if q := &g.regions[i]; q.role == owned && q.owner == rank && slices.Contains(targets, q.target) {
			mine = append(mine, q)
		}
	}
	if len(mine) == 0 {
		return
	}
	q := mine[g.IntN(len(mine))]
	b := basics[g.IntN(len(basics))]
	longest := []int{10, 300, 3000}[g.IntN(3)]
	for range g.between(3, 50) {
		c := &Call{Code: Accumulate, Win: win, Target: q.target, Shared: -1, From: -1}
		if g.chance(0.2) {
			c.Code = []CallCode{GetAccumulate, FetchAndOp}[g.IntN(2)]
		}
		for c.Op.Check(b) != 0 || c.Code == Accumulate && c.Op == datatype.NoOp {
			c.Op = datatype.Op(g.between(1, 14))
		}
		elements := min(g.between(1, longest), (q.high-q.low)/b.Size())
		if c.Code == FetchAndOp {
			elements = min(1, elements)
		}
		if elements == 0 {
			return
		}
		if g.sides(c, b, elements); g.aim(c, b, q) {
			g.issue(rank, c, passive)
		}
	}
}

// basics are the predefined datatypes.
var basics = func() (all []datatype.Basic) {
	for b := datatype.Basic(1); b < 32; b++ {
		if b.Valid() {
			all = append(all, b)
		}
	}
	return all
}()

// fill makes a call on a region of any kind but shared, or one of no elements if q
// is nil. It reports whether one was found that fits.
func (g *generator) fill(c *Call, q *region) bool {
	*c = Call{Win: c.Win, Target: c.Target, Shared: -1, From: -1}
	b := basics[g.IntN(len(basics))]
	n := g.IntN(100)
	switch {
	case q != nil && q.role == readonly && n < 70 || n < 25:
		c.Code = Get
	case n < 55:
		c.Code = Put
	case n < 72:
		c.Code = Accumulate
	case n < 86:
		c.Code = GetAccumulate
	case n < 93:
		c.Code = FetchAndOp
	default:
		c.Code = CompareAndSwap
		b = datatype.Basic(g.between(1, 8))
	}
	for c.Code >= Accumulate && c.Code <= FetchAndOp && (c.Op.Check(b) != 0 || c.Code == Accumulate && c.Op == datatype.NoOp) {
		c.Op = datatype.Op(g.between(1, 14))
	}
	if q != nil && q.role == combined {
		c.Code, b, c.Op = Accumulate, q.basic, q.op
	}
	if q != nil && q.role == readonly && c.Code != Get {
		c.Code, c.Op = []CallCode{GetAccumulate, FetchAndOp}[g.IntN(2)], datatype.NoOp
	}
	elements := 0
	switch {
	case c.Target == Null:
		elements = g.between(0, 5)
	case q != nil:
		most := (q.high - q.low) / b.Size()
		elements = min(g.between(1, []int{4, 100, 3000}[g.IntN(3)]), most)
		if q.high-q.low > 64<<10 && g.chance(0.2) {
			elements = g.between(most*3/4, most) // longer than what is done in one turn
		}
		if elements == 0 {
			return false
		}
	}
	if c.Code == FetchAndOp || c.Code == CompareAndSwap {
		if elements == 0 {
			c.Code, c.Op = Put, 0
		}
		elements = min(elements, 1)
	}
	g.sides(c, b, elements)
	if q == nil {
		return true
	}
	return g.aim(c, b, q)
}

// sides chooses the datatypes of a call on elements of b.
func (g *generator) sides(c *Call, b datatype.Basic, elements int) {
	m := maker{g.Rand, []int{1, 2, 8, 16}[g.IntN(4)]}
	single := c.Code == FetchAndOp || c.Code == CompareAndSwap
	transfers := c.Code == Put || c.Code == Get
	if !transfers {
		m.grain = 16
	}
	side := func() Side { return Side{Layout: plain(b), Count: elements} }
	if !single {
		side = g.shapes(m, b, elements, transfers)
	}
	if c.Reads() {
		c.Origin = g.local(side())
		c.Data = g.random(c.Origin.Len)
	}
	if c.Fetches() {
		c.Result = g.local(side())
	}
	if g.chance(0.6) || c.Code == GetAccumulate && c.Reads() { // or else the target would have the origin's
		c.At = side()
		longer := c.Code == Put || c.Code == Accumulate
		if _, uniform := c.At.Type.UniformBasic(); longer && uniform && !single && elements > 0 && g.chance(0.1) {
			if c.At.Count++; c.At.overlaps() {
				c.At.Count--
			}
		}
	}
	if c.Code == CompareAndSwap {
		c.Compare = g.random(b.Size())
	}
}

// shapes returns what chooses datatypes for one or several sides of the same elements of
// b, or, if mixes, of elements of several kinds.
func (g *generator) shapes(m maker, b datatype.Basic, elements int, mixes bool) func() Side {
	if g.chance(0.4) {
		return func() Side { return Side{Layout: plain(b), Count: elements} }
	}
	if mixes && elements > 0 && g.chance(0.3) {
		var fields []field
		for range g.between(1, 4) {
			fields = append(fields, field{basics[g.IntN(len(basics))], g.between(1, 1+elements/4)})
		}
		count := g.between(1, 3)
		return func() Side { return Side{Layout: m.mixed(fields), Count: count} }
	}
	return func() Side {
		if g.chance(0.3) {
			return Side{Layout: plain(b), Count: elements}
		}
		return m.side(elements, b)
	}
}

// local gives a side memory of its own.
func (g *generator) local(s Side) Side {
	low, high := s.bounds()
	s.Base = -low + g.IntN(3)*g.IntN(20)
	s.Len = max(0, s.Base+high) + g.IntN(3)*g.IntN(20)
	return s
}

// aim finds a place for a call in a region, and reports whether there is one.
func (g *generator) aim(c *Call, b datatype.Basic, q *region) bool {
	low, high := c.Where().bounds()
	unit := g.p.Windows[c.Win].Units[q.target]
	if c.Code != Put && c.Code != Get {
		unit = multiple(b.Size(), unit)
	}
	first := max(0, (q.low-low+unit-1)/unit)
	last := (q.high - high)
	if last < 0 || first*unit > last {
		return false
	}
	c.Disp = unit * g.between(first, last/unit)
	if c.Code == CompareAndSwap && g.chance(0.7) {
		copy(c.Compare, g.mem[c.Win][q.target][c.Disp:])
	}
	return true
}

// fieldBits is the width of a rank's field in shared words.
const fieldBits = 10

// change makes a call on shared words.
func (g *generator) change(rank int, c *Call, q *region, passive bool) {
	s := &g.p.Shared[q.shared]
	c.Shared = q.shared
	if s.Kind == Swapped {
		g.swaps++
		c.Code, c.Disp = CompareAndSwap, s.Offset
		c.Origin, c.Result = g.words(1), g.words(1)
		c.Data = le.AppendUint64(nil, 3<<62|uint64(rank)<<32|g.swaps)
		g.issue(rank, c, passive)
		return
	}
	n := 1
	c.Code = []CallCode{Accumulate, GetAccumulate, FetchAndOp}[g.IntN(3)]
	if c.Code != FetchAndOp {
		n = g.between(1, len(s.Init))
	}
	c.Word = g.IntN(len(s.Init) - n + 1)
	if (s.Offset+8*c.Word)%g.p.Windows[c.Win].Units[c.Target] != 0 {
		c.Word = 0
	}
	c.Disp = s.Offset + 8*c.Word
	changes := q.changes[rank][c.Word : c.Word+n]
	c.Op = datatype.Sum
	if s.Kind == Flipped {
		c.Op = datatype.BXor
	}
	if c.Code != Accumulate {
		c.Result = g.words(n)
	}
	if c.Code != Accumulate && g.chance(0.2) || slices.Max(changes) >= 1<<fieldBits-1 {
		if c.Code == Accumulate {
			return
		}
		c.Op = datatype.NoOp
		g.issue(rank, c, passive)
		return
	}
	c.Origin = g.words(n)
	for i, k := range changes {
		c.Data = le.AppendUint64(c.Data, operand(s.Kind, rank, k))
		changes[i]++
	}
	if g.issue(rank, c, passive) {
		combine(c.Op, &c.Origin, g.mem[c.Win][c.Target], c.Disp, c.Data)
	}
}

// operand is what a rank adds to a shared word that it has changed k times before.
func operand(kind SharedKind, rank, k int) uint64 {
	v := uint64(1)
	if kind == Flipped {
		v = uint64(k ^ (k + 1))
	}
	return v << (rank * fieldBits)
}

func (g *generator) words(n int) Side {
	return Side{Layout: plain(datatype.BasicUint64), Count: n, Len: 8 * n}
}

// guarded has a rank that holds the lock of a target read the words guarded by it, and
// if the lock is exclusive, count, and write them back.
func (g *generator) guarded(rank, win, target int, exclusive bool) {
	for i := range g.regions {
		q := &g.regions[i]
		if q.role != sharedWords || q.target != target || g.p.Shared[q.shared].Kind != Guarded {
			continue
		}
		s := &g.p.Shared[q.shared]
		if q.changes[rank][0] == 1<<fieldBits-1 {
			continue
		}
		n := len(s.Init)
		read := &Call{Code: Get, Win: win, Target: target, Disp: s.Offset, Result: g.words(n), Shared: q.shared, From: -1}
		g.issue(rank, read, true)
		if !exclusive {
			continue
		}
		from := len(g.p.Scripts[rank]) - 1
		local := g.chance(0.5)
		g.emit(rank, Step{Code: Flush, Win: win, Target: target, Local: local})
		k := place{rank, win, target}
		g.pending[k] = slices.DeleteFunc(g.pending[k], func(a access) bool { return !local || a.reads })
		write := &Call{Code: Put, Win: win, Target: target, Disp: s.Offset, Origin: g.words(n), Shared: q.shared, From: from}
		for range n {
			write.Data = le.AppendUint64(write.Data, operand(Guarded, rank, 0))
		}
		for i := range q.changes[rank] {
			q.changes[rank][i]++
		}
		if g.issue(rank, write, true) {
			combine(datatype.Sum, &write.Origin, g.mem[win][target], s.Offset, write.Data)
		}
	}
}
