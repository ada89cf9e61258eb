package poller

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const microsecond = 1000

// A pair is an origin that asks its target again and again, and waits for each answer. Both poll as
// their patience says, and sleep then.
type pair struct {
	wake, path     int64    // how long it takes to wake up, whatever patience says, and how long there and back
	origin, target patience //
	took           int64    // the last operation
	polled         [2]int64 // in vain or not, during the last operation, by origin and target
	asleep         [2]bool  // who was, when its frame came
}

// await returns when somebody who has been quiet takes the frame that came after so long.
func (p *patience) await(came, wake int64) (taken, polled int64, slept bool) {
	spin := p.spin()
	if came <= spin {
		p.note(came, false, false)
		return came, came, false
	}
	p.note(came+wake, true, false)
	return came + wake, spin, true
}

// ask carries out an operation, a pause after the last one.
func (p *pair) ask(pause int64) {
	quiet := pause + p.path // of the target, since its last answer
	if p.asleep[0] {
		quiet += p.wake
	}
	var taken, came int64
	taken, p.polled[1], p.asleep[1] = p.target.await(quiet, p.wake)
	came = p.path + taken - quiet
	p.took, p.polled[0], p.asleep[0] = p.origin.await(came, p.wake)
}

func newPair(wake, path, most int64) *pair {
	p := newPatience(time.Duration(min(2*wake, most)), time.Duration(most), time.Duration(most), time.Duration(wake))
	return &pair{wake: wake, path: path, origin: p, target: p, asleep: [2]bool{true, true}}
}

// Two ranks that both sleep find each other awake where the budget allows it.
func TestPairWakesUp(t *testing.T) {
	for _, c := range []struct {
		what                   string
		wake, path, most, took int64
	}{
		{"near", 13, 8, 200, 8},
		{"as far as waking", 13, 13, 200, 13},
		{"farther than waking", 13, 90, 200, 90},
		{"waking is dear", 250, 40, 500, 40},
	} {
		t.Run(c.what, func(t *testing.T) {
			p := newPair(c.wake*microsecond, c.path*microsecond, c.most*microsecond)
			for range 30 {
				p.ask(0)
			}
			if p.took != c.took*microsecond || p.asleep != [2]bool{} {
				t.Errorf("an operation takes %d ns, asleep %v; %d µs are possible", p.took, p.asleep, c.took)
			}
		})
	}
}

// Where waking is dearer than is known of the machine, so that each sees the other come late, trials show that
// the two are close: whether both begin at the same time or one has done something else before.
func TestPairFindsOutThatItIsClose(t *testing.T) {
	const known, wake, path = 200 * microsecond, 1000 * microsecond, 470 * microsecond
	for _, ahead := range []int{0, 7, 30, 1000} {
		p := newPair(wake, path, 0)
		p.origin = newPatience(2*known, 5*known, 20*known, known)
		p.target = p.origin
		for range ahead {
			p.target.note(20*wake, true, false)
		}
		ops := 0
		for ; p.took != path; ops++ {
			if p.ask(0); ops == 10_000 {
				t.Fatalf("target %d waits ahead: an operation takes %d µs after %d", ahead, p.took/microsecond, ops)
			}
		}
		t.Logf("target %d waits ahead: %d operations", ahead, ops)
		for range 10_000 {
			if p.ask(0); p.took != path {
				t.Fatalf("then one takes %d µs", p.took/microsecond)
			}
		}
	}
}

// Trials cost little where the peer is far away.
func TestTrialsAreRare(t *testing.T) {
	const known = 100 * microsecond
	for _, path := range []int64{600 * microsecond, 1900 * microsecond, 5000 * microsecond} {
		p := newPair(known, path, 0)
		p.origin = newPatience(2*known, 5*known, 20*known, known)
		p.target = p.origin
		p.target.next = 1 << 30 // is never awake
		const ops = 20_000
		polled := int64(0)
		for i := range int64(ops) {
			p.path = path - path/10 + i*7919%100*path/500
			p.ask(0)
			polled += p.polled[0]
		}
		if mean := polled / ops; mean > p.origin.least+p.origin.least/20 {
			t.Errorf("%d µs away: an operation polls for %d µs, at least for %d", path/microsecond, mean/microsecond, p.origin.least/microsecond)
		}
	}
}

// Nor do they cost much where it is quiet for now longer, now shorter. Each pattern stands in parts of longest.
func TestTrialsAreRareWhateverComes(t *testing.T) {
	const known = 50 * microsecond
	rng := rand.New(rand.NewPCG(1, 2))
	repeat := func(pattern ...float64) func(int) float64 {
		return func(i int) float64 { return pattern[i%len(pattern)] }
	}
	mixed := slices.Concat(slices.Repeat([]float64{0.95}, 36), make([]float64, 4))
	for what, quiet := range map[string]func(int) float64{
		"sooner now and then": repeat(0.95, 0.95, 0.95, 0.95, 0.5),
		"sooner more rarely":  repeat(0.95, 0.95, 0.95, 0.95, 0.95, 0.95, 0.95, 0.95, 0.5),
		"near now and then":   repeat(mixed...),
		"any":                 func(int) float64 { return 0.3 + 0.7*rng.Float64() },
		"exponential":         func(int) float64 { return rng.ExpFloat64() },
		"just in time":        repeat(0.95 / 4),
	} {
		p := newPatience(2*known, 5*known, 20*known, known)
		var polled, least float64
		const times = 200_000
		for i := range times {
			q := int64(quiet(i) * 20 * known)
			polled += float64(min(q, p.spin()))
			without := p
			without.trial = 0
			least += float64(min(q, without.spin()))
			p.note(q, q > p.spin(), false)
		}
		if more := (polled - least) / least; more > 0.1 {
			t.Errorf("%s: trials have it poll for %.0f %% longer", what, 100*more)
		}
	}
}

// Whatever the path is like, an operation takes no longer than if both always slept, and each side polls
// no longer than it may: where the peer is too far away for polling, no longer than at least.
func TestPollingIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wake := rapid.Int64Range(1, 500*microsecond).Draw(t, "wake")
		most := rapid.Int64Range(microsecond, 1000*microsecond).Draw(t, "most")
		p := newPair(wake, rapid.Int64Range(1, 10_000*microsecond).Draw(t, "path"), most)
		pauses := rapid.SliceOfN(rapid.Int64Range(0, 2*most), 1, 50).Draw(t, "pauses")
		for _, pause := range pauses {
			p.ask(pause)
			if p.took > p.path+2*wake || max(p.polled[0], p.polled[1]) > most {
				t.Fatalf("an operation takes %d ns, and the sides poll for %v", p.took, p.polled)
			}
		}
		p.path = 10_000 * microsecond
		for range 30 {
			p.ask(0)
		}
		if max(p.polled[0], p.polled[1]) > p.origin.least {
			t.Fatalf("the sides poll for %v, and nothing comes in time", p.polled)
		}
	})
}

// Trials, which are none beside who computes, are not used up there.
func TestTrialsWaitForAnEmptyProcessor(t *testing.T) {
	p := newPatience(20*microsecond, 50*microsecond, 200*microsecond, 10*microsecond)
	for range 100_000 {
		p.note(1000*microsecond, true, true)
	}
	for n := 0; p.trial == 0; n++ {
		if n > firstTrial {
			t.Fatalf("after long beside somebody who computes there is no trial in %d waits", n)
		}
		p.note(1000*microsecond, true, false)
	}
}

// Beside who computes, a caller polls for a frame that usually comes soon, and else hardly.
func TestSpinBeside(t *testing.T) {
	for _, c := range []struct{ quiet, most, want int64 }{ // µs
		{0, 200, 20},
		{8, 200, 20},
		{30, 200, 60},
		{74, 200, 148},
		{80, 200, 20},
		{5000, 200, 20},
		{80, 1000, 20},
		{30, 40, 40},
		{30, 1, 1},
	} {
		p := newPatience(time.Duration(min(50, c.most)*microsecond), time.Duration(c.most*microsecond), time.Duration(c.most*microsecond), 0)
		for range 100 {
			p.note(c.quiet*microsecond, false, false)
		}
		if got := p.spinBeside(); got > c.want*microsecond || got < c.want*microsecond-100 {
			t.Errorf("frames come after %d µs, it may poll for %d: it polls for %d ns, want %d", c.quiet, c.most, got, c.want*microsecond)
		}
	}
}
