package sim

import (
	"fmt"
	"math"
	"strings"

	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// faultKind is what goes wrong for a while, beside frames that are lost, late, repeated
// or damaged by chance. A fault has victims, which are some of the ranks.
type faultKind uint8

const (
	partition    faultKind = iota // frames between victims and others vanish
	oneWay                        // frames of victims to others vanish
	longFrames                    // long frames between victims and others vanish, also some that every path must carry
	narrow                        // those vanish that a path need not carry
	noAcks                        // frames of victims do not say what has arrived
	stop                          // victims do not run, and their devices fill up
	silentDevice                  // the victims' devices send nothing, and keep the slots
	keptSlots                     // the victims' devices send, and keep the slots
	late                          // victims are not there yet
	absent                        // victims never join the job
	crash                         // the victim dies
	restart                       // the victim dies, and starts again
	mute                          // the answers of victims' programs vanish
	giveUp                        // calls of the witnesses are given up and made again
	numKinds
)

// kinds says how each kind of fault is drawn.
var kinds = [numKinds]struct {
	name   string
	weight int
	long   bool // may last long enough for ranks to be given up
	good   bool // may last for good
	kills  bool // ranks are gone however long it lasts
}{
	partition:    {name: "partition", weight: 4, long: true, good: true},
	oneWay:       {name: "loss of all frames in one direction", weight: 3, long: true, good: true},
	longFrames:   {name: "loss of long frames", weight: 3, long: true, good: true},
	narrow:       {name: "a narrow path", weight: 3, good: true},
	noAcks:       {name: "no acknowledgements", weight: 3, long: true, good: true},
	stop:         {name: "stopped", weight: 4, long: true},
	silentDevice: {name: "device sends nothing", weight: 2, long: true},
	keptSlots:    {name: "device keeps its slots", weight: 2, long: true},
	late:         {name: "joins late", weight: 2, long: true},
	absent:       {name: "never joins", weight: 1, kills: true},
	crash:        {name: "crash", weight: 2, kills: true},
	restart:      {name: "crash and restart", weight: 4, kills: true},
	mute:         {name: "program answers in vain"}, // see newTier
	giveUp:       {name: "calls given up", weight: 3},
}

const (
	// forGood is the end of a fault that has none.
	forGood int64 = math.MaxInt64
	// shortFault is the longest fault for which nobody may be declared dead. A peer may
	// have been silent for a while before.
	shortFault = 3 * second
)

// fault is one fault of a run.
type fault struct {
	kind     faultKind
	victims  []bool // by rank
	from, to int64
	limit    int // of longFrames: the longest that get through
}

func (f *fault) on(now int64) bool { return now >= f.from && now < f.to }

// lasts reports whether ranks may be given up for it.
func (f *fault) lasts() bool {
	return f.kind != narrow && f.kind != mute && (kinds[f.kind].kills || f.to-f.from > shortFault)
}

// between reports whether it comes between its victims and the other ranks, so that it
// cannot be told whose fault it is.
func (f *fault) between() bool {
	return f.kind == partition || f.kind == oneWay || f.kind == longFrames || f.kind == narrow
}

// concerns reports whether it may come between two ranks.
func (f *fault) concerns(a, b int) bool {
	switch {
	case f.between():
		return f.victims[a] != f.victims[b]
	case f.kind == giveUp, f.kind == mute:
		return false
	}
	return f.victims[a] || f.victims[b]
}

func (f *fault) String() string {
	var ranks []string
	for r, is := range f.victims {
		if is {
			ranks = append(ranks, fmt.Sprint(r))
		}
	}
	s := fmt.Sprintf("%s (rank %s, from %d µs on", kinds[f.kind].name, strings.Join(ranks, " and "), (f.from-second)/microsecond)
	switch {
	case f.kind == longFrames || f.kind == narrow:
		s += fmt.Sprintf(", over %d bytes", f.limit)
	case f.kind == restart:
		return s + fmt.Sprintf(", again after %d ms)", (f.to-f.from)/millisecond)
	}
	switch {
	case kinds[f.kind].kills, f.kind == giveUp:
	case f.to == forGood:
		s += ", for good"
	default:
		s += fmt.Sprintf(", for %d ms", (f.to-f.from)/millisecond)
	}
	return s + ")"
}

// newFaults draws the faults of a run.
func (w *World) newFaults(p *plan) {
	n := []int{0, 0, 0, 1, 1, 1, 1, 1, 2, 2}[w.rng.IntN(10)]
	for len(p.faults) < n {
		f := fault{kind: w.newKind(), from: w.now + w.span(0, 15*millisecond)}
		k := &kinds[f.kind]
		if k.kills && (w.cfg.Program != nil || len(p.faults) > 0) {
			continue // generated programs are those of ranks that do not fail
		}
		f.victims = w.newVictims(p.ranks, f.kind)
		f.to = f.from + w.span(millisecond, shortFault/int64(n))
		if f.kind != giveUp && w.chance(0.5) {
			f.to = f.from + w.span(millisecond, 100*millisecond)
		}
		switch {
		case f.kind == narrow && w.chance(0.7):
			f.to = forGood
		case w.cfg.Program != nil || !k.long || w.chance(0.5):
		case k.good && w.chance(0.5):
			f.to = forGood
		default:
			f.to = f.from + w.span(shortFault, 4*deadAfter)
		}
		w.detail(&f)
		p.faults = append(p.faults, f)
	}
	if w.cfg.Together && w.chance(0.3) {
		from := w.now + w.span(0, 15*millisecond)
		p.faults = append(p.faults, fault{kind: giveUp, victims: w.newVictims(p.ranks, giveUp), from: from, to: from + w.span(millisecond, 100*millisecond)})
	}
}

func (w *World) newKind() faultKind {
	all := 0
	for _, k := range kinds {
		all += k.weight
	}
	n := w.rng.IntN(all)
	for i, k := range kinds {
		if n -= k.weight; n < 0 {
			return faultKind(i)
		}
	}
	panic("unreachable")
}

// newVictims draws at least one rank, and not all.
func (w *World) newVictims(ranks int, kind faultKind) []bool {
	v := make([]bool, ranks)
	n := 1
	if kind != crash && kind != restart && w.chance(0.4) {
		n = w.between(1, max(1, ranks-1))
	}
	for _, r := range w.rng.Perm(ranks)[:n] {
		v[r] = true
	}
	return v
}

// detail draws what only some kinds have.
func (w *World) detail(f *fault) {
	switch f.kind {
	case longFrames:
		f.limit = w.between(wire.HeaderLen+wire.HelloLen, wire.MinPayload-1)
	case narrow:
		f.limit = w.between(wire.MinPayload, 1499)
		if w.chance(0.3) {
			f.from = w.now
		}
	case late:
		f.from = w.now
	case absent:
		f.from, f.to = w.now, forGood
	case crash, restart:
		if w.chance(0.2) {
			f.from = w.now + w.span(0, 300*microsecond) // before it has joined
		}
		f.to = f.from + w.span(millisecond, 500*millisecond)
		if w.chance(0.3) {
			f.to = f.from + w.span(deadAfter/2, 2*deadAfter)
		}
		if f.kind == crash {
			f.to = forGood
		}
	}
}

// scheduleFaults has things happen that nobody else brings about.
func (w *World) scheduleFaults() {
	for i := range w.plan.faults {
		f := &w.plan.faults[i]
		for r, is := range f.victims {
			if !is {
				continue
			}
			switch f.kind {
			case stop:
				w.queue.push(f.from, func() { w.stop(w.nodes[r], false) })
				w.queue.push(f.to, func() { w.resume(w.nodes[r]) })
			case late:
				w.stop(w.nodes[r], true)
				w.queue.push(f.to, func() { w.resume(w.nodes[r]) })
			case absent:
				w.crash(w.nodes[r])
			case crash:
				w.queue.push(f.from, func() { w.crash(w.nodes[r]) })
			case restart:
				w.queue.push(f.from, func() { w.crash(w.nodes[r]) })
				w.queue.push(f.to, func() { w.start(r, 2) })
			}
		}
	}
}

// hit notes that a fault of a kind has had an effect.
func (w *World) hit(k faultKind) { w.met[k]++ }

// during returns a fault of a kind that a rank is the victim of, or nil.
func (w *World) during(k faultKind, rank int) *fault {
	for i := range w.plan.faults {
		if f := &w.plan.faults[i]; f.kind == k && f.on(w.now) && f.victims[rank] {
			return f
		}
	}
	return nil
}

// through lets the faults of the network at a frame. The result is nil if it vanishes.
func (w *World) through(from, to int, payload []byte) []byte {
	for i := range w.plan.faults {
		f := &w.plan.faults[i]
		if !f.on(w.now) || !f.concerns(from, to) {
			continue
		}
		switch {
		case f.kind == partition, f.kind == oneWay && f.victims[from], (f.kind == longFrames || f.kind == narrow) && len(payload) > f.limit:
			w.hit(f.kind)
			return nil
		case f.kind == noAcks && f.victims[from]:
			payload = w.silenced(payload)
		}
	}
	return payload
}

// silenced returns a frame that says nothing of what has arrived.
func (w *World) silenced(b []byte) []byte {
	var h wire.Header
	if h.Decode(b) != wire.OK || h.AckLargest == 0 && h.AckRequests <= 1 && h.AckResponses <= 1 {
		return b
	}
	w.hit(noAcks)
	h.AckLargest, h.AckBits, h.AckRequests, h.AckResponses = 0, 0, 0, 0
	h.Encode(b)
	return b
}

// mayFail returns since when a session between two lives may be given up by the first.
func (w *World) mayFail(a, b *life) (since int64, ok bool) {
	if !b.alive {
		since, ok = b.diedAt, true
	}
	for i := range w.plan.faults {
		f := &w.plan.faults[i]
		switch again := f.to + replayedUntil; {
		case f.kind == restart && !b.alive && f.victims[b.rank] && w.now > again:
			since = max(since, again) // until then, hellos of the old life looked like signs of life
		case b.alive && f.kind != restart && f.kind != crash && f.lasts() && w.now > f.from && f.concerns(a.rank, b.rank):
			since, ok = max(since, f.from), true
		}
	}
	for i := range w.plan.faults {
		switch f := &w.plan.faults[i]; {
		case !ok || !f.concerns(a.rank, b.rank):
		case f.kind == stop && f.victims[a.rank] && w.now >= f.to:
			since = max(since, f.to) // it could not look before
		case f.kind == silentDevice || f.kind == keptSlots:
			since = max(since, min(f.to, w.now)) // without slots a rank cannot ask, or goes on a while
		case f.kind == longFrames:
			// A rank that waits for a lock of the target hears from it, and sends no long frames
			// until it holds the lock. So one holder after the other may be given up, each
			// after a limit of its own.
			since = max(since, b.lockMoved)
		}
	}
	return since, ok
}

// failsWithin is how long a call on a rank may last that cannot be reached.
func (w *World) failsWithin(a, b int) int64 {
	for i := range w.plan.faults {
		switch f := &w.plan.faults[i]; f.kind {
		case oneWay, longFrames, noAcks, late:
			if f.concerns(a, b) {
				return heardBound
			}
		}
	}
	return deadBound
}

// calm reports whether no fault comes between two ranks, nor will for some time.
func (w *World) calm(a, b int, span int64) bool {
	for i := range w.plan.faults {
		if f := &w.plan.faults[i]; f.concerns(a, b) && w.now+span >= f.from && (f.to == forGood || w.now < f.to+second) {
			return false
		}
	}
	return true
}

// undisturbed reports whether no fault, and no interruption of an exchange, has come between
// two ranks since the given time,
// or so shortly before that its traces may still be there.
func (w *World) undisturbed(a, b int, since int64) bool {
	for i := range w.plan.faults {
		f := &w.plan.faults[i]
		if f.concerns(a, b) && w.now >= f.from && (f.to == forGood || since < f.to+second) {
			return false
		}
	}
	return !w.interrupted(a, b, since) && !w.interrupted(b, a, since)
}
