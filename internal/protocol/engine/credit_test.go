package engine

import (
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// TestRevokedCredit has messages arrive on contexts that the receiver knows to be broken,
// and the sender does not: they cost no credit.
func TestRevokedCredit(t *testing.T) {
	f := newRanks(t, 2, 8, nil)
	f.dial(0, 1)
	f.dial(1, 0)
	f.Settle()
	for context := uint32(5); context < 15; context++ {
		var sends []*Sending
		for i := range 10 {
			sends = append(sends, f.send(0, 1, context, i, content(i, 1000)))
		}
		f.e[1].Revoke(context, 1)
		f.Settle()
		for i, p := range sends {
			if !p.Met() {
				t.Fatalf("context %d: message %d waits for credit", context, i)
			}
		}
	}
	var sends []*Sending
	for i := range 50 {
		sends = append(sends, f.send(0, 1, 1, i, content(i, 1000)))
	}
	f.Settle()
	for i, p := range sends {
		if !p.Met() {
			t.Fatalf("message %d waits for credit", i)
		}
		f.receive(1, 0, 1, i, 1000)
	}
	f.atRest()
}

// TestCreditOfOthers has a sender without credit go on when the room that it needs is
// given back by the messages of another.
func TestCreditOfOthers(t *testing.T) {
	f := newRanks(t, 3, 8, func(c *Config) { c.MaxUnexpected = 256 << 10 })
	for i := range 400 {
		f.send(1, 2, 1, i, content(i, 1000))
	}
	full := f.receive(2, 1, 1, 399, 1000)
	f.Pass(1000 * millisecond)
	for i := range 150 {
		f.send(0, 2, 1, i, content(i, 1000))
	}
	last := f.receive(2, 0, 1, 149, 1000)
	f.Pass(1000 * millisecond)
	if full.Met() || last.Met() {
		t.Fatal("there was room for everything")
	}
	for i := range 399 {
		r := f.receive(2, 1, 1, i, 1000)
		f.Until(1000*millisecond, r.Met)
	}
	f.Until(1000*millisecond, last.Met)
	for i := range 149 {
		f.receive(2, 0, 1, i, 1000)
	}
	f.atRest()
}

// TestCreditOfLanes floods a rank with messages of collectives while a receive waits for
// one of the program: that grants them nothing, and takes none of them.
func TestCreditOfLanes(t *testing.T) {
	for _, tag := range []int{5, AnyTag} {
		f := newRanks(t, 2, 8, nil)
		f.dial(0, 1)
		f.Settle()
		in := f.receive(1, 0, 1, tag, 1000)
		for i := range 200 {
			f.send(0, 1, 1, MaxTag+1+i, content(i, 1000))
		}
		f.Pass(1000 * millisecond)
		if n := f.e[1].Usage().Unexpected; in.Met() || n > wire.MessageWindow {
			t.Errorf("tag %d: %d bytes are kept; the receive has ended: %v", tag, n, in.Met())
		}
		f.send(0, 1, 1, 5, content(5, 1000))
		f.Until(1000*millisecond, in.Met)
		if in.Got != 5 {
			t.Errorf("tag %d: got message %d", tag, in.Got)
		}
		for i := range 200 {
			f.receive(1, 0, 1, MaxTag+1+i, 1000)
		}
		f.atRest()
	}
}

// TestOffersForgotten receives many long messages: the receiver keeps nothing of them.
func TestOffersForgotten(t *testing.T) {
	f := newRanks(t, 2, 8, nil)
	f.dial(0, 1)
	f.Settle()
	for i := range 100 {
		r := f.receive(1, 0, 1, i, 10_000)
		f.send(0, 1, 1, i, content(i, 10_000))
		f.Until(1000*millisecond, r.Met)
	}
	f.atRest()
}
