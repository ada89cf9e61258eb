package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// abandon gives up p at rank from, and reports whether it was not met. The data is used
// for something else from then on.
func (f *ranks) abandon(from int, p *Sending) bool {
	given := f.e[from].Abandon(p, slices.Clone(p.Data))
	clear(p.Data)
	return given
}

// TestAbandon gives up sends that nobody receives: nothing is left of them, at either rank.
func TestAbandon(t *testing.T) {
	for to := range 2 {
		f := newRanks(t, 2, 8, nil)
		f.dial(0, 1)
		f.Settle()
		for i := range 2000 { // more than there is credit for
			p := f.send(0, to, 1, i, content(i, 20_000))
			if i%2 == 0 {
				f.Settle()
			}
			if p.Met() || !f.abandon(0, p) || !p.Met() || f.abandon(0, p) {
				t.Fatalf("to %d: offer %d was not abandoned, or twice", to, i)
			}
			f.Settle()
			if n, m := f.e[0].Usage(), f.e[to].Usage(); n.Sends != 0 || m.Unexpected != 0 {
				t.Fatalf("to %d: after offer %d: %+v, %+v", to, i, n, m)
			}
		}
		r := f.receive(to, 0, 1, AnyTag, 8)
		f.send(0, to, 1, 3, content(1, 8))
		f.Until(1000*millisecond, r.Met)
		if !bytes.Equal(r.Buffer, content(1, 8)) {
			t.Errorf("to %d: the next message is %v", to, r.Buffer)
		}
		f.atRest()
	}
}

// TestAbandonQueued gives up sends that have no credit yet: they were never sent.
func TestAbandonQueued(t *testing.T) {
	f := newRanks(t, 2, 8, nil)
	f.dial(0, 1)
	f.Settle()
	var sends []*Sending
	for i := range 100 {
		sends = append(sends, f.send(0, 1, 1, i, content(i, 1000)))
	}
	withdrawn := 0
	for _, p := range sends {
		if f.abandon(0, p) {
			withdrawn++
		}
	}
	if withdrawn < 10 || withdrawn > 60 {
		t.Errorf("%d of 100 messages were withdrawn", withdrawn)
	}
	for i := range 100 - withdrawn {
		r := f.receive(1, 0, 1, AnyTag, 1000)
		f.Until(1000*millisecond, r.Met)
		if r.Got != i {
			t.Errorf("message %d is %d", i, r.Got)
		}
	}
	f.atRest()
}

// TestAbandonMatched gives up a send at every stage of its way to a receive that waits for
// it: the receive gets all of it as it was, or the next message.
func TestAbandonMatched(t *testing.T) {
	matched := 0
	for steps := range 20 {
		f := newRanks(t, 2, 8, nil)
		f.dial(0, 1)
		f.dial(1, 0)
		f.Settle()
		r := f.receive(1, 0, 1, AnyTag, 400_000)
		p := f.send(0, 1, 1, 1, content(1, 400_000))
		for range steps {
			f.Step()
		}
		given := f.abandon(0, p)
		f.send(0, 1, 1, 2, content(2, 400_000))
		f.Until(1000*millisecond, r.Met)
		if r.Err() != nil || r.Got == 2 && !given || !bytes.Equal(r.Buffer, content(r.Got, 400_000)) {
			t.Fatalf("after %d steps (given up: %v) the receive got %d: %v", steps, given, r.Got, r.Err())
		}
		if r.Got == 1 {
			matched++
			r := f.receive(1, 0, 1, 2, 400_000)
			f.Until(1000*millisecond, r.Met)
		}
		f.atRest()
	}
	if matched == 0 {
		t.Error("no send was given up while it was received")
	}
}

// TestAbandonThroughLoss gives up sends at random while frames are lost, repeated and
// delayed: messages arrive whole, in order and once, or not at all.
func TestAbandonThroughLoss(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 4))
		name := fmt.Sprintf("seed %d", seed)
		f := newRanks(t, 2, 8, nil)
		f.dial(0, 1)
		f.dial(1, 0)
		f.Settle()
		f.Filter = func(_, _ int, b []byte) int {
			if n := rng.IntN(10); n < 2 && kindOfFrame(b) == wire.KindData {
				return 2 * n
			}
			return 1
		}
		var sends []*Sending
		var receives []*Receive
		given := map[int]bool{}
		for i := range 60 {
			sends = append(sends, f.send(0, 1, 1, i, content(i, 8+rng.IntN(60_000))))
			if rng.IntN(2) == 0 {
				receives = append(receives, f.receive(1, 0, 1, AnyTag, 70_000))
			}
			for range rng.IntN(4) {
				f.Step()
			}
			if at := rng.IntN(len(sends)); rng.IntN(3) == 0 && f.abandon(0, sends[at]) {
				given[at] = true
			}
		}
		f.Pass(1000 * millisecond)
		end := f.send(0, 1, 1, len(sends), content(len(sends), 8))
		for len(receives) == 0 || receives[len(receives)-1].Got != len(sends) {
			receives = append(receives, f.receive(1, 0, 1, AnyTag, 70_000))
			f.Until(10_000*millisecond, receives[len(receives)-1].Met)
		}
		next := 0
		for _, r := range receives {
			for given[next] && next != r.Got {
				next++
			}
			if r.Err() != nil || r.Got != next || !bytes.Equal(r.Buffer[:r.Length], content(r.Got, r.Length)) {
				t.Fatalf("%s: got %d of %d bytes (%v), not message %d", name, r.Got, r.Length, r.Err(), next)
			}
			next++
		}
		f.Until(10_000*millisecond, end.Met)
		f.Filter = nil
		f.atRest()
	}
}

// TestAbandonOvertakes has the end of an offer arrive before the offer, and an offer of
// another rank go by the same id: each ends what it is the end of.
func TestAbandonOvertakes(t *testing.T) {
	f := newRanks(t, 3, 8, nil)
	f.dial(0, 1)
	f.dial(2, 1)
	f.Settle()
	other := f.send(2, 1, 1, 5, content(5, 20_000))
	f.Settle()
	lose := true
	f.Filter = func(from, _ int, b []byte) int {
		if lose && from == 0 && kindOfFrame(b) == wire.KindData {
			lose = false
			return 0
		}
		return 1
	}
	p := f.send(0, 1, 1, 4, content(4, 20_000))
	f.Settle()
	if lose || !f.abandon(0, p) {
		t.Fatal("the offer was not lost, or not abandoned")
	}
	f.Pass(1000 * millisecond)
	if n := f.e[0].Usage().Sends; n != 0 {
		t.Errorf("rank 0 keeps %d messages", n)
	}
	r := f.receive(1, AnySource, 1, AnyTag, 20_000)
	f.Until(1000*millisecond, func() bool { return r.Met() && other.Met() })
	if r.Err() != nil || r.Got != 5 || !bytes.Equal(r.Buffer, content(5, 20_000)) {
		t.Errorf("got message %d: %v", r.Got, r.Err())
	}
	f.atRest()
}
