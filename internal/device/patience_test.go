package device

import (
	"testing"

	"pgregory.net/rapid"
)

const microsecond = 1000

// A pair is an origin that asks its target again and again, and waits for each answer. Both poll as
// their patience says, and sleep then.
type pair struct {
	wake, path     int64    // how long it takes to wake up, and how long there and back
	origin, target patience //
	took           int64    // the last operation
	polled         [2]int64 // in vain or not, during the last operation, by origin and target
	asleep         [2]bool  // who was, when its frame came
}

// await returns when somebody who has been quiet takes the frame that came after so long.
func (p *patience) await(came, wake int64) (taken, polled int64, slept bool) {
	spin := p.spin()
	p.note(came)
	if came <= spin {
		return came, came, false
	}
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
	p := patience{least: min(2*wake, most), most: most}
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
