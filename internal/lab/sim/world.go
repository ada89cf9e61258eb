// Package sim runs many ranks of the protocol engine in one goroutine, over a
// network that loses, repeats, delays, reorders and damages frames, splits and heals,
// or fails in one direction or for long frames alone, with ranks that stop, crash, start
// again or never join, and devices that stall. Everything follows from one
// seed: the same seed gives the same run, frame by frame. Random programs work
// on the ranks' windows, and oracles compare what they see, and what the windows
// hold, with models.
package sim

import (
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"

	"github.com/xdprma/xdprma/internal/lab/program"
	"github.com/xdprma/xdprma/internal/lab/twin"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

const (
	microsecond int64 = 1000
	millisecond       = 1000 * microsecond
	second            = 1000 * millisecond

	deadAfter = 5 * second
	// deadBound is how long a call on a rank that cannot be reached may last.
	deadBound = deadAfter*3/2 + second
	// heardBound is the same where something still comes from that rank, or comes again
	// for a while: two limits may follow one another.
	heardBound = 2*deadAfter + 2*second
	// doneBound is how long programs may run on after the last fault. They may meet
	// several dead ranks, one after the other.
	doneBound = 90 * second
)

// Config says what to run.
type Config struct {
	Seed  uint64
	Trace io.Writer // told what happens, if not nil

	// Program, if not nil, is carried out instead of the tasks that follow from the
	// seed, by ranks that do not fail. Seed decides what the network does.
	Program *program.Program

	// Together has the ranks do nothing but collectives, which may be given up.
	Together bool

	// Tamper, if not nil, sees every frame and returns what the network carries
	// instead: nil for nothing. It exists to prove that the oracles notice.
	Tamper func(from, to int, payload []byte) [][]byte

	shape     func(p *plan, now int64) // changes the plan, for tests of one scenario
	unordered bool                     // the targets are not told of order that windows promise, to prove that the oracles notice
	undropped bool                     // calls that are given up are left as they are, to prove that the oracles notice
	deaf      bool                     // nobody who counts knows that somebody sleeps until then, likewise
}

// Result tells what a run did.
type Result struct {
	Err      error  // what an oracle found, or nil
	Hash     uint64 // of everything that happened, in order
	Frames   int    // delivered
	Direct   int    // calls that acted on shared memory
	Scenario string
	Elapsed  int64        // simulated nanoseconds
	Stats    engine.Stats // of all ranks; only the counters below are summed
	MostSent int          // how often one bundle was sent, at most

	reasons [twin.NumReasons]int // why programs served frames or not
	partly  int                  // answers that refuse a part of their request
	met     [numKinds]int        // effects of faults of each kind
	givenUp int                  // communication calls
	halfWay int                  // those of them that were seen to have changed a part of their memory
	renewed renewed
}

func (r *Result) add(s *engine.Stats) {
	t := &r.Stats
	t.Resent += s.Resent
	t.Joined += s.Joined
	t.Exchanges += s.Exchanges
	t.Repeated += s.Repeated
	t.Executed += s.Executed
	t.Taken += s.Taken
	t.AnswersLost += s.AnswersLost
	t.ExpressAnswered += s.ExpressAnswered
	t.Parked += s.Parked
	t.ParkingFull += s.ParkingFull
	t.SlotsExhausted += s.SlotsExhausted
	t.PeersFailed += s.PeersFailed
	t.OutOfSpan += s.OutOfSpan
	t.BadAcks += s.BadAcks
	t.BadAnswers += s.BadAnswers
	t.Types += s.Types
	t.TypesRefused += s.TypesRefused
}

// World is one run.
type World struct {
	cfg     Config
	rng     *rand.Rand
	now     int64
	queue   eventQueue
	net     network
	nodes   []*life // the current life of each rank
	lives   []*life
	hash    uint64
	frames  int
	direct  int
	plan    plan
	met     [numKinds]int
	reasons [twin.NumReasons]int // of programs
	partly  int                  // answers that refuse a part of their request
	most    int                  // times that a bundle was sent
	givenUp int                  // communication calls
	halfWay int                  // those that had an effect in part
	renewed renewed

	assembly      assembly
	interruptions map[[2]int]interruption // of exchanges, by origin and target
}

// failure is what the oracles panic with.
type failure struct{ error }

func (w *World) failf(format string, args ...any) {
	panic(failure{fmt.Errorf("at %d µs: "+format, append([]any{w.now / microsecond}, args...)...)})
}

func (w *World) tracef(format string, args ...any) {
	if w.cfg.Trace != nil {
		fmt.Fprintf(w.cfg.Trace, "%10d µs  "+format+"\n", append([]any{w.now / microsecond}, args...)...)
	}
}

func (w *World) record(values ...uint64) {
	for _, v := range values {
		w.hash = (w.hash ^ v) * 0x100000001b3
		w.hash ^= w.hash >> 29
	}
}

// chance is true with probability p.
func (w *World) chance(p float64) bool { return p > 0 && w.rng.Float64() < p }

// between returns a number from low to high, both included.
func (w *World) between(low, high int) int { return low + w.rng.IntN(high-low+1) }

func (w *World) span(low, high int64) int64 { return low + w.rng.Int64N(high-low+1) }

// Run carries out the run that cfg.Seed stands for.
func Run(cfg Config) (result Result) {
	w := &World{cfg: cfg, interruptions: map[[2]int]interruption{}, rng: rand.New(rand.NewPCG(cfg.Seed, 0x5eed)), now: second}
	w.assembly = assembly{entered: map[entry]map[int]bool{}, groups: map[uint32][]int{}, blamed: map[int]bool{}, left: map[int]bool{}}
	w.plan = w.newPlan()
	defer func() {
		for _, l := range w.lives {
			l.stopTasks()
			result.add(&l.e.Stats)
		}
		result.Hash, result.Frames, result.Direct, result.Scenario, result.Elapsed = w.hash, w.frames, w.direct, w.plan.String(), w.now-second
		result.MostSent, result.met, result.reasons = w.most, w.met, w.reasons
		result.partly, result.givenUp, result.halfWay, result.renewed = w.partly, w.givenUp, w.halfWay, w.renewed
		switch r := recover().(type) {
		case nil:
		case failure:
			result.Err = fmt.Errorf("%w\n%s", r.error, w.describe())
		default:
			result.Err = fmt.Errorf("panic at %d µs: %v\n%s", w.now/microsecond, r, debug.Stack())
		}
	}()
	w.tracef("seed %d: %s", cfg.Seed, w.plan)
	for rank := range w.plan.ranks {
		w.nodes = append(w.nodes, nil)
		w.start(rank, 1)
	}
	w.scheduleFaults()
	w.runUntil(w.plan.faultsEnd+doneBound, w.done)
	if !w.done() {
		w.failf("programs still run %d s after the last fault: %s", doneBound/second, w.unfinished())
	}
	w.net.calm = true
	for _, l := range w.alive() {
		l.hush()
	}
	w.settle()
	if cfg.Program == nil {
		w.checkModels()
		w.checkPassing()
	} else {
		w.judge()
	}
	for _, l := range w.lives {
		s := &l.e.Stats
		unsound := s.OutOfSpan + s.BadAcks
		if !cfg.Together && len(l.passing) < 2 { // where what is offered may be withdrawn while it is asked for
			unsound += s.Refused
		}
		if !cfg.Together && !w.leavesBehind() && !l.answersLate { // calls end with their window, or are given up
			unsound += s.BadAnswers
		}
		if unsound > 0 {
			w.failf("rank %d saw what no sound peer sends: %+v", l.rank, *s)
		}
	}
	for _, l := range w.alive() {
		l.e.Bye("")
		w.run(l)
	}
	w.settle()
	return result
}

func (w *World) alive() (lives []*life) {
	for _, l := range w.nodes {
		if l.alive {
			lives = append(lives, l)
		}
	}
	return lives
}

// done reports whether all faults have happened and all programs have ended.
func (w *World) done() bool {
	if w.now < w.plan.faultsEnd {
		return false
	}
	for _, l := range w.alive() {
		for _, t := range l.tasks {
			if !t.done && !t.daemon {
				return false
			}
		}
	}
	return true
}

func (w *World) unfinished() (s string) {
	for _, l := range w.alive() {
		for _, t := range l.tasks {
			if !t.done {
				s += fmt.Sprintf("\n  rank %d task %d: %s", l.rank, t.index, t.doing)
			}
		}
	}
	return s
}

func (w *World) describe() (s string) {
	for _, l := range w.lives {
		s += fmt.Sprintf("rank %d life %d alive %v: %+v\n  %+v\n", l.rank, l.incarnation, l.alive, l.e.Usage(), l.e.Stats)
	}
	return s
}

// runUntil handles events until done or the time limit.
func (w *World) runUntil(limit int64, done func() bool) {
	for n := 0; !done(); n++ {
		ev, ok := w.queue.pop(limit)
		if !ok {
			w.advance(limit)
			return
		}
		if n > 3_000_000 {
			w.failf("too many events: something spins")
		}
		w.advance(ev.at)
		ev.do()
		if n%32 == 0 {
			w.checkBounds()
		}
	}
}

// advance lets time pass until t, for all ranks.
func (w *World) advance(t int64) {
	w.now = max(w.now, t)
	for _, l := range w.lives {
		l.e.Now = w.now
	}
}

// settle lets everything come to rest: nothing may be held or pending then. Keys of
// sessions are renewed meanwhile, once.
func (w *World) settle() {
	w.runUntil(w.now+300*second, func() bool { return false })
	for _, l := range w.alive() {
		u := l.e.Usage()
		u.Sessions, u.TypeBytes = 0, 0
		if w.cfg.Together && l.incarnation > 1 {
			u.Unexpected = 0 // what its earlier life would have received
		}
		if want := (engine.Usage{Slots: u.Slots, FreeSlots: u.Slots}); u != want {
			w.failf("rank %d holds something at rest: %+v; what still runs:%s", l.rank, u, w.unfinished())
		}
		if l.e.Deadline() != engine.Never {
			w.failf("rank %d has a deadline at rest, in %d µs", l.rank, (l.e.Deadline()-w.now)/microsecond)
		}
	}
}

// checkBounds sees that every rank stays within its limits.
func (w *World) checkBounds() {
	for _, l := range w.alive() {
		u := l.e.Usage()
		locks := w.plan.ranks * (1 + max(numWindows, len(l.generated)))
		if u.FreeSlots < 0 || u.Operations > l.cfg.MaxOps || u.Parked > l.cfg.Parked+locks || u.LockWaits > locks || u.Unexpected > l.cfg.MaxUnexpected+len(w.nodes)*2*wire.MessageWindow {
			w.failf("rank %d exceeds its limits: %+v", l.rank, u)
		}
	}
}
