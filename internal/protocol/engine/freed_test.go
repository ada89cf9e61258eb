package engine

import "testing"

// TestFreeContext frees a context with messages of every kind that nobody has received:
// their sends complete, what comes later is dropped too, credit is given back, and
// receives that were posted go on.
func TestFreeContext(t *testing.T) {
	for to := range 2 {
		f := newRanks(t, 2, 8, nil)
		f.dial(0, 1)
		f.dial(1, 0)
		f.Settle()
		posted := f.receive(to, 0, 1, 9, 100_000)
		var sends []*Sending
		for i := range 300 { // more than there is credit for
			sends = append(sends, f.send(0, to, 1, 1, content(i, 8+i%3*1000)), f.send(0, to, 1, 2, content(i, 20_000)))
		}
		f.Settle()
		f.e[to].FreeContext(1)
		f.Until(1000*millisecond, func() bool {
			for _, p := range sends {
				if !p.Met() {
					return false
				}
			}
			return true
		})
		for _, p := range sends {
			if p.Err() != nil {
				t.Fatalf("to %d: a send ended with %v", to, p.Err())
			}
		}
		if got := f.e[to].Stats.Dropped; got != uint64(len(sends)) {
			t.Errorf("to %d: %d of %d messages were dropped", to, got, len(sends))
		}
		last, other := f.send(0, to, 1, 9, content(1, 100_000)), f.send(0, to, 2, 1, content(2, 8))
		r := f.receive(to, 0, 2, 1, 8)
		f.Until(1000*millisecond, func() bool { return last.Met() && other.Met() && r.Met() && posted.Met() })
		if r.Err() != nil || posted.Err() != nil || posted.Length != 100_000 {
			t.Errorf("to %d: receives ended with %v, %v", to, r.Err(), posted.Err())
		}
		if to == 1 {
			sends = sends[:0]
			for i := range 300 { // without a receive that waits, credit comes back alone
				sends = append(sends, f.send(0, to, 1, 1, content(i, 1000)), f.send(0, to, 1, 2, content(i, 20_000)))
			}
			f.Until(1000*millisecond, func() bool { return sends[598].Met() && sends[599].Met() })
		}
		late := f.receive(to, 0, 1, 9, 8)
		if !late.Met() || late.Err() == nil {
			t.Errorf("to %d: a receive on the freed context waits", to)
		}
		f.atRest()
	}
}

// TestFreeAfterBye frees a context with an offer of a rank that has left: nobody is told.
func TestFreeAfterBye(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	f.dial(0, 1)
	f.dial(1, 0)
	f.Settle()
	f.send(0, 1, 1, 1, content(1, 20_000))
	f.Settle()
	f.e[0].Bye("")
	f.Settle()
	before := f.e[1].Stats.Sent
	f.Cut[0] = true
	f.e[1].FreeContext(1)
	f.Pass(20_000 * millisecond)
	if n := f.e[1].Stats.Sent - before; n != 0 || f.e[1].Stats.PeersFailed != 0 {
		t.Errorf("%d bundles went to a rank that has left; %d peers failed", n, f.e[1].Stats.PeersFailed)
	}
	f.atRest()
}
