package link_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

const (
	fewBits   = 4 // of a number, within an epoch of these tests
	fewFrames = 1 << fewBits
	soon      = 1000 * millisecond // another key is due
)

// fewNumbers has epochs end soon.
func fewNumbers(c *link.Config) {
	c.Credentials.Bounds.EpochBits, c.Credentials.RenewAfter = fewBits, soon
}

// TestLossAtTheEndOfAnEpoch loses each set of the frames around the end of an epoch, which numbers bring about,
// or the time before any one of them. All that is lost is opened and sent again.
func TestLossAtTheEndOfAnEpoch(t *testing.T) {
	const around = 6 // frames, half of them before the end
	eachTag(t, func(t *testing.T, level secure.Level) {
		f := newMembers(t, 2, level, fewNumbers)
		p := f.dial(0, 1)
		f.transfer(p, 0, 100)
		next, first, lost := uint64(0), uint64(0), 0
		f.Filter = func(from, _ int, b []byte) int {
			if from == 1 {
				return 1
			}
			number := secure.Number(b)
			next = number + 1
			if at := number - first; at < around && lost>>at&1 != 0 {
				return 0
			}
			return 1
		}
		for passes := range around + 1 { // before the frame of that place; at last it does not
			for lost = range 1 << around {
				first = ^uint64(0) - around
				for f.transfer(p, 0, 8); next%fewFrames != fewFrames-around/2; {
					f.transfer(p, 0, 8)
				}
				first = next
				for place := range around {
					if place == passes {
						f.Advance(f.Now + soon)
					}
					f.send(p, 8, 0)
					p.push()
					f.Settle()
				}
				if err := f.flush(p); err != nil || next>>fewBits == first>>fewBits {
					t.Fatalf("of the frames around number %d those of %06b are lost, with another key before frame %d: next is number %d, %v", first, lost, passes, next, err)
				}
			}
			f.once(p, 0)
		}
		if s := f.e[1].Stats; s.Faults != [wire.NumFaults]uint64{} || f.e[0].Stats.Resent == 0 {
			t.Errorf("faults %v, and %d bundles were sent again", s.Faults, f.e[0].Stats.Resent)
		}
		f.AtRest()
	})
}

// TestBundleThatCannotBeOpenedEndsItsSession writes over bundles that are lost: they cannot be sent again.
func TestBundleThatCannotBeOpenedEndsItsSession(t *testing.T) {
	for _, n := range []int{8, 20_000} {
		var slab *link.Slab
		f := newMembers(t, 2, secure.Seal, func(c *link.Config) {
			if c.Rank == 0 {
				slab = c.Slab
			}
		})
		p := f.dial(0, 1)
		f.transfer(p, 0, 100)
		f.ask(p, 3000)
		f.Settle()
		f.Filter = func(from, _ int, b []byte) int { return from }
		f.send(p, n, 0)
		p.push()
		f.Settle()
		for i := range slab.Mem {
			slab.Mem[i] ^= 1
		}
		f.Filter = nil
		if err := f.flush(p); err == nil || !strings.Contains(err.Error(), "cannot be decrypted") {
			t.Fatalf("%d bytes: %v", n, err)
		}
		f.Until(1000*millisecond, f.at(1, 0).Dead) // it is told
		f.AtRest()
	}
}

// TestForgedFramesEndASession has frames damaged, before a session opens at one end or while it is open.
func TestForgedFramesEndASession(t *testing.T) {
	const most = 20
	eachTag(t, func(t *testing.T, level secure.Level) {
		for _, early := range []bool{false, true} {
			f := newMembers(t, 2, level, func(c *link.Config) { c.Credentials.Bounds.Forged = most })
			p := f.dial(0, 1)
			if !early {
				f.transfer(p, 0, 100)
			}
			f.Filter = func(from, _ int, b []byte) int {
				if from != 0 || wire.IsHandshake(b) {
					return 1
				}
				forged := bytes.Clone(b)
				forged[len(b)-9]++ // of the tag
				f.e[1].Receive(forged, 0)
				return 0
			}
			f.send(p, 100, 0)
			p.push()
			f.Until(10_000*millisecond, func() bool {
				there := f.at(1, 0)
				if f.e[1].Stats.Faults[wire.BadTag] < most {
					return false
				}
				return early || there.Dead() && strings.Contains(there.Err().Error(), "wrong tags")
			})
			f.Filter = nil
			if err := f.flush(p); err == nil || f.e[1].Stats.Faults[wire.BadTag] != most && !early {
				t.Errorf("early %t: the peer takes that for life: %v, faults %v", early, err, f.e[1].Stats.Faults)
			}
		}
	})
}
