package reliable

import (
	"testing"

	"pgregory.net/rapid"
)

// The receiver agrees with two plain sets, for any order of arrival and application.
func TestReceiverAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Receiver
		got, applied := map[uint64]bool{}, map[uint64]bool{}
		next := uint64(1)
		steps := rapid.IntRange(1, 400).Draw(t, "steps")
		for range steps {
			seq := next + uint64(rapid.IntRange(-5, Span+4).Draw(t, "ahead"))
			if rapid.Bool().Draw(t, "near") {
				seq = next + uint64(rapid.IntRange(0, 3).Draw(t, "small"))
			}
			want := Fresh
			switch {
			case seq == 0 || int64(seq) < 0 || seq >= next+Span:
				want = TooFar
			case got[seq] || seq < next:
				want = Duplicate
			}
			if v := r.Check(seq); v != want {
				t.Fatalf("Check(%d) with next %d = %v, want %v", seq, next, v, want)
			}
			if want == Fresh {
				r.Received(seq)
				got[seq] = true
			}
			if got[seq] && !applied[seq] && rapid.Bool().Draw(t, "apply") {
				r.Applied(seq)
				applied[seq] = true
				for applied[next] {
					next++
				}
			}
			if r.Next() != next {
				t.Fatalf("Next() = %d, want %d", r.Next(), next)
			}
		}
	})
}

func TestReceiverRunsAcrossManySpans(t *testing.T) {
	var r Receiver
	for seq := uint64(1); seq < 10*Span; seq += 2 { // pairs swapped
		for _, s := range []uint64{seq + 1, seq} {
			if v := r.Check(s); v != Fresh {
				t.Fatalf("Check(%d) = %v", s, v)
			}
			r.Received(s)
			r.Applied(s)
			if v := r.Check(s); v != Duplicate {
				t.Fatalf("second Check(%d) = %v", s, v)
			}
		}
	}
}

func TestPacketsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p PacketNumbers
		got := map[uint64]bool{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			n := max(1, int64(p.Largest)+int64(rapid.IntRange(-70, 70).Draw(t, "ahead")))
			p.Add(uint64(n))
			got[uint64(n)] = true
			for q := max(1, int64(p.Largest)-70); q <= int64(p.Largest)+2; q++ {
				want := got[uint64(q)] && int64(p.Largest)-q <= 64
				if h := Has(p.Largest, p.Bits, uint64(q)); h && !got[uint64(q)] {
					t.Fatalf("packet %d acknowledged and never received", q)
				} else if !h && want && n >= q {
					// A packet that arrived more than 64 behind may be forgotten; one in
					// reach of the largest at its arrival must be remembered.
					t.Fatalf("packet %d forgotten (largest %d)", q, p.Largest)
				}
			}
		}
	})
}

func TestProbeComesBeforeTheTimeout(t *testing.T) {
	var r RTT
	if got := r.Probe(); got != r.Timeout() {
		t.Errorf("before any sample: %d", got)
	}
	r.Sample(10_000)
	if got := r.Probe(); got != MinProbe {
		t.Errorf("of a short round trip: %d", got)
	}
	r.Expired()
	if got := r.Probe(); got != r.Timeout() {
		t.Errorf("while the timeout backs off: %d", got)
	}
	r = RTT{}
	for range 100 {
		r.Sample(1_000_000)
	}
	if got := r.Probe(); got < 2_000_000 || got > 2_100_000 {
		t.Errorf("of a long round trip: %d", got)
	}
	for range 100 {
		r.Sample(50_000_000)
	}
	if got := r.Probe(); got != r.Timeout() {
		t.Errorf("of a very long round trip: %d, the timeout is %d", got, r.Timeout())
	}
}

func TestTimeoutFollowsTheRoundTrip(t *testing.T) {
	var r RTT
	if r.Timeout() != 4*MinTimeout {
		t.Fatalf("before any sample: %d", r.Timeout())
	}
	for range 100 {
		r.Sample(10_000_000)
	}
	if got := r.Timeout(); got < 10_000_000 || got > 11_000_000 {
		t.Fatalf("steady 10 ms gives %d", got)
	}
	before := r.Timeout()
	r.Expired()
	if r.Timeout() != 2*before {
		t.Fatalf("backoff: %d after %d", r.Timeout(), before)
	}
	for range 64 {
		r.Expired()
	}
	if r.Timeout() != MaxTimeout {
		t.Fatalf("unbounded: %d", r.Timeout())
	}
	r.Progress()
	if r.Timeout() != before {
		t.Fatalf("after progress: %d", r.Timeout())
	}
}

// TestSlowRoundTrips has round trips take longer than backing off may.
func TestSlowRoundTrips(t *testing.T) {
	for _, c := range []struct{ trip, least, most int64 }{
		{MaxTimeout / 2, MaxTimeout / 2, MaxTimeout},
		{2 * MaxTimeout, 2 * MaxTimeout, 3 * MaxTimeout},
		{10 * SlowTimeout, SlowTimeout, SlowTimeout},
	} {
		var r RTT
		for range 100 {
			r.Sample(c.trip)
		}
		if got := r.Timeout(); got < c.least || got > c.most {
			t.Errorf("after trips of %d: %d", c.trip, got)
		}
		g := r.Guess()
		if g.Sampled() || g.Timeout() != min(r.Timeout(), MaxTimeout) {
			t.Errorf("a guess after trips of %d: %d", c.trip, g.Timeout())
		}
		for range 10 {
			g.Expired()
		}
		if got := g.Timeout(); got != min(max(MaxTimeout, 4*min(r.Timeout(), MaxTimeout)), SlowTimeout) {
			t.Errorf("backing off after trips of %d: %d", c.trip, got)
		}
		g.Sample(MinProbe)
		if got := g.Timeout(); got != MinTimeout {
			t.Errorf("a trip is seen, and the guess counts: %d", got)
		}
	}
	if (&RTT{}).Guess() != (RTT{}) {
		t.Error("a guess by nothing")
	}
	fast := RTT{}
	fast.Sample(1000)
	if g := fast.Guess(); g.Timeout() != 4*MinTimeout {
		t.Errorf("a guess after fast trips: %d", g.Timeout())
	}
}

func TestCongestionWindowStaysInBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := NewAIMD()
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			before := c.Window()
			if rapid.Bool().Draw(t, "loss") {
				c.Lost(true)
				if c.Window() > before {
					t.Fatal("a loss widened the window")
				}
			} else {
				c.Acked(rapid.IntRange(1, 64).Draw(t, "n"))
				if c.Window() < before {
					t.Fatal("an acknowledgement narrowed the window")
				}
			}
			if w := c.Window(); w < windowFloor || w > windowLimit {
				t.Fatalf("window %d", w)
			}
		}
	})
}
