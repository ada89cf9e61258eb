package link_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// inClear returns how many frames have a text in clear.
func inClear(tape []frame, text []byte) (n int) {
	for _, m := range tape {
		if bytes.Contains(m.payload, text) {
			n++
		}
	}
	return n
}

// TestSealHidesRecords looks for the data of records and of answers in all frames.
func TestSealHidesRecords(t *testing.T) {
	eachTag(t, func(t *testing.T, level secure.Level) {
		f := newMembers(t, 2, level, nil)
		tape := f.taped(nil)
		p := f.dial(0, 1)
		f.transfer(p, 0, 3000)
		hidden := inClear(*tape, data(1, 32)) == 0
		if hidden != (level == secure.Seal) {
			t.Errorf("the data of records and answers are hidden: %t", hidden)
		}
	})
}

// TestRepeatsAreSealedAfresh loses frames of long and short bundles, so that they are sent again, whole
// and in pieces, over renewals of the keys. The layer looks at the data of all records.
func TestRepeatsAreSealedAfresh(t *testing.T) {
	eachTag(t, func(t *testing.T, level secure.Level) {
		for seed := range uint64(20) {
			random := rand.New(rand.NewPCG(seed, 3))
			f := newMembers(t, 2, level, nil)
			p := f.dial(0, 1)
			f.transfer(p, 0, 100)
			last := map[int]uint64{}
			f.taped(func(from, _ int, b []byte) int {
				if number := secure.Number(b); number < last[from] {
					t.Fatalf("rank %d uses number %d after %d", from, number, last[from]-1)
				} else {
					last[from] = number + 1
				}
				switch long := len(b) > wire.MinPayload; {
				case long && seed%2 == 0, random.IntN(4) == 0:
					return 0 // the path of even seeds takes no long frames any more
				}
				return 1
			})
			for range 6 {
				for range 4 {
					f.transfer(p, 0, random.IntN(4000))
				}
				f.Pass(50_000 * millisecond)
			}
			if s := &f.e[0].Stats; s.Resent == 0 || s.Faults[wire.BadTag] != 0 {
				t.Fatalf("seed %d: %d bundles were sent again, faults %v", seed, s.Resent, s.Faults)
			}
		}
	})
}

// TestKeysOfWaitingBundlesAreKept has keys renewed while bundles wait to be sent again: they are opened
// with the key that they were sealed with.
func TestKeysOfWaitingBundlesAreKept(t *testing.T) {
	f := newMembers(t, 2, secure.Seal, nil)
	p := f.dial(0, 1)
	f.transfer(p, 0, 100)
	loses, last := false, uint64(0)
	f.taped(func(from, _ int, b []byte) int {
		if from == 0 {
			last = secure.Number(b)
		}
		if loses && from == 0 && len(b) > 1000 {
			return 0
		}
		return 1
	})
	for range 100 {
		loses = true
		f.send(p, 5000, 0)
		p.push()
		f.Pass(3000 * millisecond)
		loses = false
		f.transfer(p, 0, 0)
	}
	if epochs, s := last>>24, &f.e[0].Stats; epochs < 2 || s.Resent < 1000 {
		t.Fatalf("after %d epochs %d bundles were sent again", epochs, s.Resent)
	}
}

// TestProcessorsWithoutAES joins ranks whose processors compute AES or do not, at each level.
func TestProcessorsWithoutAES(t *testing.T) {
	eachTag(t, func(t *testing.T, level secure.Level) {
		for mix := range 4 {
			f := newMembers(t, 2, level, func(c *link.Config) { c.Credentials.AES = mix>>c.Rank&1 != 0 })
			f.both()
			for r := range f.e {
				if s := &f.e[r].Stats; s.Faults != [wire.NumFaults]uint64{} || s.Frames == 0 {
					t.Errorf("AES at %b: rank %d has counted %v", mix, r, s.Faults)
				}
			}
		}
	})
}
