package link_test

import (
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

const (
	keyTime = 120_000 * millisecond // of a key that is used
	epoch   = 24                    // bits of a number within one
	hour    = 3600_000 * millisecond
)

// watched returns where the numbers of the frames that arrive from each of two ranks stand. If passes is not nil, it
// says which do.
func (f *ranks) watched(passes func(from int) bool) *[2]uint64 {
	next := new([2]uint64)
	f.Filter = func(from, _ int, b []byte) int {
		if wire.IsHandshake(b) {
			return 1
		}
		if passes != nil && !passes(from) {
			return 0
		}
		next[from] = secure.Number(b) + 1
		return 1
	}
	return next
}

// sleep lets time pass as ranks that sleep until their deadlines have it, until none is left, and returns
// at how many times a deadline came for each, or frames did.
func (f *ranks) sleep() (wakes []int) {
	f.T.Helper()
	wakes = make([]int, len(f.e))
	frames := make([]uint64, len(f.e))
	for range 1000 {
		next := link.Never
		for r, e := range f.e {
			frames[r] = e.Stats.Frames
			e.LookAhead()
			next = min(next, e.Deadline())
		}
		if next == link.Never {
			return wakes
		}
		due := make([]bool, len(f.e))
		for r, e := range f.e {
			due[r] = e.Deadline() == next
		}
		f.Advance(max(next, f.Now))
		f.Settle()
		for r, e := range f.e {
			if due[r] || e.Stats.Frames != frames[r] {
				wakes[r]++
			}
		}
	}
	f.T.Fatalf("sessions at rest have the ranks wake up without end: %v", wakes)
	return nil
}

// TestSessionAtRestRenewsItsKeysOnce leaves a session alone after data in one direction, with answers or
// without, and after data that began another key by themselves.
func TestSessionAtRestRenewsItsKeysOnce(t *testing.T) {
	eachTag(t, func(t *testing.T, level secure.Level) {
		for _, answer := range []int{0, 3000} {
			f := newMembers(t, 2, level, nil)
			next := f.watched(nil)
			p := f.dial(0, 1)
			for round := range uint64(3) {
				var before [2]uint64
				for r := range before {
					before[r] = next[r] >> epoch
				}
				if answer > 0 {
					f.ask(p, answer)
				}
				f.send(p, 100, 0)
				if err := f.flush(p); err != nil {
					t.Fatal(err)
				}
				f.Pass(1000 * millisecond)
				frames, later := f.Frames, uint64(0)
				if round > 0 { // the key was old, so the first frame went under another one
					later = 1
				}
				wakes := f.sleep()
				if got := next[0] >> epoch; got != before[0]+1+later {
					t.Errorf("answers of %d bytes, round %d: the frames of rank 0 go from epoch %d to %d", answer, round, before[0], got)
				}
				if got := next[1] >> epoch; got <= before[1] || got > before[1]+1+later {
					t.Errorf("answers of %d bytes, round %d: the frames of rank 1 go from epoch %d to %d", answer, round, before[1], got)
				}
				if n := f.Frames - frames; n > 6 {
					t.Errorf("%d frames renew the keys of two directions", n)
				}
				for r, n := range wakes {
					if f.at(r, 1-r).KeepsFormer() {
						t.Errorf("round %d: rank %d keeps the former key of frames to it", round, r)
					}
					if n > 4 {
						t.Errorf("round %d: rank %d wakes up %d times for the keys of two directions", round, r, n)
					}
				}
				frames = f.Frames
				f.Pass(hour)
				if f.Frames != frames {
					t.Errorf("%d frames leave later", f.Frames-frames)
				}
			}
			f.AtRest()
			f.unharmed(p)
		}
	})
}

// unharmed sees that nothing was counted as a failure, and that a session works.
func (f *ranks) unharmed(p *peer) {
	f.T.Helper()
	for r, e := range f.e {
		if s := &e.Stats; s.Timeouts+s.Probes+s.PeersFailed+s.Resent+s.Lost+s.SlotsExhausted != 0 || s.Faults != [wire.NumFaults]uint64{} {
			f.T.Errorf("rank %d has counted %+v", r, *s)
		}
	}
	f.Filter = nil
	f.transfer(p, 0, 3000)
}

// TestRenewalAtRestSurvivesLoss loses the first frames that renew keys, in either direction. After some of them a rank
// asks no more, and the key is renewed by the next use.
func TestRenewalAtRestSurvivesLoss(t *testing.T) {
	eachTag(t, func(t *testing.T, level secure.Level) {
		for loser := range 2 {
			for lost := range 7 {
				f := newMembers(t, 2, level, nil)
				p := f.dial(0, 1)
				f.transfer(p, 0, 100)
				left := lost
				next := f.watched(func(from int) bool {
					if from != loser || left == 0 {
						return true
					}
					left--
					return false
				})
				f.sleep()
				for r := range 2 {
					if next[r]>>epoch != 1 && lost < 5 {
						t.Errorf("%d frames of rank %d are lost: those of rank %d that arrive are of epoch %d", lost, loser, r, next[r]>>epoch)
					}
				}
				if f.e[0].Usage().Active+f.e[1].Usage().Active != 0 {
					t.Error("a session at rest is active")
				}
				f.unharmed(p)
				f.AtRest()
			}
		}
	})
}

// TestRenewalAtRestOfASilentPeer has a peer vanish for an hour while nobody waits for it.
func TestRenewalAtRestOfASilentPeer(t *testing.T) {
	eachTag(t, func(t *testing.T, level secure.Level) {
		f := newMembers(t, 2, level, nil)
		p := f.dial(0, 1)
		f.transfer(p, 0, 100)
		f.Cut[1] = true
		f.sleep()
		f.Pass(hour)
		if !p.Open() || len(f.e[0].Active()) != 0 {
			t.Errorf("after an hour the session is %v, of %d active ones", p.Err(), len(f.e[0].Active()))
		}
		f.Cut[1] = false
		f.unharmed(p)
		f.AtRest()
	})
}

// TestManyRenewAtRest has one rank with more sessions than slots.
func TestManyRenewAtRest(t *testing.T) {
	const n = 100
	f := newMembers(t, n, secure.Sign, nil)
	last := [n]uint64{}
	f.Filter = func(from, to int, b []byte) int {
		if from == 0 && !wire.IsHandshake(b) {
			last[to] = secure.Number(b)
		}
		return 1
	}
	for r := range n - 1 {
		f.transfer(f.dial(0, r+1), 0, 8)
	}
	f.Pass(keyTime / 2)
	if got := len(f.e[0].Active()); got != 0 {
		t.Errorf("%d sessions at rest are looked at each time", got)
	}
	f.Pass(keyTime)
	for r := range n - 1 {
		if last[r+1]>>epoch != 1 {
			t.Errorf("frames to rank %d have number %#x", r+1, last[r+1])
		}
	}
	f.AtRest()
}
