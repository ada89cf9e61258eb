package link_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/credentials"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// eachLevel runs a test in jobs with a key, at each level.
func eachLevel(t *testing.T, test func(t *testing.T, level secure.Level)) {
	atLevels(t, test, secure.None, secure.Sign, secure.Seal)
}

// eachTag is eachLevel of those at which frames have tags.
func eachTag(t *testing.T, test func(t *testing.T, level secure.Level)) {
	atLevels(t, test, secure.Sign, secure.Seal)
}

func atLevels(t *testing.T, test func(t *testing.T, level secure.Level), levels ...secure.Level) {
	for _, level := range levels {
		t.Run(level.String(), func(t *testing.T) { test(t, level) })
	}
}

// frame is one that was on its way.
type frame struct {
	from, to int
	payload  []byte
}

// taped has f keep all frames, which pass as filter says; nil: all do.
func (f *ranks) taped(filter func(from, to int, b []byte) int) *[]frame {
	tape := &[]frame{}
	f.Filter = func(from, to int, b []byte) int {
		*tape = append(*tape, frame{from, to, bytes.Clone(b)})
		if filter != nil {
			return filter(from, to, b)
		}
		return 1
	}
	return tape
}

// loseAllButHellos loses what a rank sends, but for its hellos, until heal is called.
func (f *ranks) loseAllButHellos(of int) (heal func()) {
	f.taped(func(from, _ int, b []byte) int {
		if from == of && kindOf(b) != wire.KindHello {
			return 0
		}
		return 1
	})
	return func() { f.Filter = nil }
}

// both has both ranks transfer something, and sees that it took effect once.
func (f *ranks) both() {
	f.T.Helper()
	f.transfer(f.dial(0, 1), 0, 5000)
	f.transfer(f.dial(1, 0), 1, 5000)
}

func TestGreeting(t *testing.T) {
	eachLevel(t, func(t *testing.T, level secure.Level) {
		f := newMembers(t, 2, level, nil)
		tape := f.taped(nil)
		f.both()
		kinds := map[wire.Kind]int{}
		for _, m := range *tape {
			kinds[kindOf(m.payload)]++
		}
		if kinds[wire.KindHello] != 1 || kinds[wire.KindHelloAck] != 1 {
			t.Errorf("the handshake took %d hellos and %d answers", kinds[wire.KindHello], kinds[wire.KindHelloAck])
		}
		if (f.e[0].Stats.Handshakes | f.e[1].Stats.Handshakes) != 0 {
			t.Errorf("handshake frames were refused: %+v", f.e)
		}
	})
}

func TestGreetingsCross(t *testing.T) {
	eachLevel(t, func(t *testing.T, level secure.Level) {
		for _, lost := range []string{"nothing", "first answer", "hello of 0", "hello of 1"} {
			t.Run(lost, func(t *testing.T) {
				f := newMembers(t, 2, level, nil)
				n := map[string]int{}
				f.taped(func(from, _ int, b []byte) int {
					what := map[wire.Kind]string{wire.KindHello: fmt.Sprint("hello of ", from), wire.KindHelloAck: "first answer"}[kindOf(b)]
					if n[what]++; what == lost && n[what] == 1 {
						return 0
					}
					return 1
				})
				a, b := f.dial(0, 1), f.dial(1, 0)
				f.Until(1000*millisecond, func() bool { return a.Open() && b.Open() })
				f.both()
			})
		}
	})
}

// TestGreetingSurvivesLoss loses each frame of the beginning of a session once, and each pair of
// them.
func TestGreetingSurvivesLoss(t *testing.T) {
	eachLevel(t, func(t *testing.T, level secure.Level) {
		const first = 10
		for i := range first {
			for j := range i + 1 {
				for _, dialer := range []int{0, 1} {
					f := newMembers(t, 2, level, nil)
					n := -1
					f.taped(func(int, int, []byte) int {
						if n++; n == i || n == j {
							return 0
						}
						return 1
					})
					f.transfer(f.dial(dialer, 1-dialer), dialer, 3000)
				}
			}
		}
	})
}

// TestSilentDialer has the first frame after the handshake get lost, of a rank that has nothing else
// to say: the other one must learn that the session is open.
func TestSilentDialer(t *testing.T) {
	eachLevel(t, func(t *testing.T, level secure.Level) {
		f := newMembers(t, 2, level, nil)
		lose := 0
		f.taped(func(from, _ int, b []byte) int {
			if k := kindOf(b); from == 0 && k != wire.KindHello && lose < 3 {
				lose++
				return 0
			}
			return 1
		})
		a := f.dial(0, 1)
		f.Until(1000*millisecond, func() bool { return a.Open() && f.at(1, 0) != nil && f.at(1, 0).Open() })
		if lose != 3 {
			t.Errorf("%d frames were lost", lose)
		}
	})
}

// quiet is all of a rank's state that frames may not change, in words.
func (f *ranks) quiet(r int) string {
	s := ""
	for other := range f.e {
		if p := f.at(r, other); p != nil {
			s += fmt.Sprintf("rank %d: open %v dead %v life %d ids %x %x, %d records, acked %d %d, heard %v; ", other, p.Open(), p.Dead(), p.Life(), p.ID(), p.PeerID(),
				len(p.applied), p.Acked(link.Request), p.Acked(link.Response), p.Err())
		}
	}
	return s
}

// TestFramesAreBelievedOnce delivers each frame of a session again, altered in each bit, cut
// at each length, and to its sender. Nothing of that has an effect.
func TestFramesAreBelievedOnce(t *testing.T) {
	eachTag(t, func(t *testing.T, level secure.Level) {
		f := newMembers(t, 2, level, nil)
		tape := f.taped(nil)
		f.both()
		f.Filter = nil
		before := []string{f.quiet(0), f.quiet(1)}
		for _, m := range *tape {
			for bit := range 8 * len(m.payload) {
				if bit > 8*wire.HeaderLen+64 && bit < 8*(len(m.payload)-secure.TrailerLen) && bit%13 != 0 {
					continue // a sample of the records
				}
				b := bytes.Clone(m.payload)
				b[bit/8] ^= 1 << (bit % 8)
				f.e[m.to].Receive(b, link.PathID(m.from))
			}
			for n := range m.payload {
				f.e[m.to].Receive(bytes.Clone(m.payload[:n]), link.PathID(m.from))
			}
			f.e[m.from].Receive(bytes.Clone(m.payload), link.PathID(m.to))
			f.e[m.to].Receive(bytes.Clone(m.payload), link.PathID(m.from))
		}
		for r := range f.e {
			if after := f.quiet(r); after != before[r] {
				t.Errorf("rank %d has changed:\n%s\n%s", r, before[r], after)
			}
			if s := &f.e[r].Stats; s.Faults[wire.BadTag] == 0 || s.Faults[wire.Replayed] == 0 || s.Faults[wire.BadCode] == 0 || s.Faults[wire.BadChecksum] != 0 {
				t.Errorf("rank %d has counted %v", r, s.Faults)
			}
		}
		f.both()
	})
}

// TestOldHelloOpensNothing sends captured handshake frames again, when the sender lives another life,
// and when the target does.
func TestOldHelloOpensNothing(t *testing.T) {
	eachLevel(t, func(t *testing.T, level secure.Level) {
		f := newMembers(t, 2, level, nil)
		tape := f.taped(nil)
		f.both()
		old := *tape
		f.Filter = nil
		replay := func(to int) {
			for _, m := range old {
				if m.to == to && wire.IsHandshake(m.payload) {
					f.e[to].Receive(bytes.Clone(m.payload), link.PathID(m.from))
				}
			}
		}
		f.start(0, 2, 2, nil) // rank 0 starts again
		f.transfer(f.dial(0, 1), 0, 100)
		replay(1)
		f.both()
		if p := f.at(1, 0); p.Life() != 2 {
			t.Errorf("rank 1 speaks with life %d", p.Life())
		}
		f.start(1, 2, 2, nil)
		replay(1)
		if f.at(1, 0) != nil {
			t.Error("a hello to an earlier life has begun a session")
		}
		sent := f.Frames
		f.Step()
		if f.Frames != sent+1 { // the ticket of life 2, once for the one hello
			t.Errorf("%d frames answer an old hello", f.Frames-sent)
		}
	})
}

// TestHelloOfANewLifeWaitsForItsFirstFrame shows that a hello ends no session before a frame under
// the new keys comes.
func TestHelloOfANewLifeWaitsForItsFirstFrame(t *testing.T) {
	eachLevel(t, func(t *testing.T, level secure.Level) {
		f := newMembers(t, 2, level, nil)
		f.both()
		old := f.at(1, 0)
		f.start(0, 2, 2, nil)
		heal := f.loseAllButHellos(0)
		p := f.dial(0, 1)
		f.Until(1000*millisecond, p.Open)
		if old.Dead() || f.at(1, 0) != old {
			t.Fatal("the hello alone has ended the session")
		}
		heal()
		f.transfer(p, 0, 100)
		if !old.Dead() || f.at(1, 0) == old {
			t.Error("the first frame has not ended the session of the earlier life")
		}
	})
}

// TestTicketTellsOfANewLife has a rank dial a life that is over.
func TestTicketTellsOfANewLife(t *testing.T) {
	eachLevel(t, func(t *testing.T, level secure.Level) {
		f := newMembers(t, 2, level, nil)
		p := f.dial(0, 1)
		f.start(1, 2, 2, nil)
		f.Until(100*millisecond, p.Dead)
		f.transfer(f.dial(0, 1), 0, 100)
	})
}

// TestGreetingOfStrangersIsRefused shows that a hello needs the code, the job, the level, and a
// ticket of the rendezvous.
func TestGreetingOfStrangersIsRefused(t *testing.T) {
	eachLevel(t, func(t *testing.T, level secure.Level) {
		for name, change := range map[string]func(id *link.Credentials){
			"code":  func(id *link.Credentials) { id.Secrets.Hello[0] ^= 1 },
			"psk":   func(id *link.Credentials) { id.Secrets.PSK[0] ^= 1 },
			"level": func(id *link.Credentials) { id.Ticket = credentials.Of(0, 1, (level+1)%3).Ticket },
			"ticket": func(id *link.Credentials) {
				id.Ticket = bytes.Clone(id.Ticket)
				id.Ticket[16] ^= 4
				id.Ticket[100] ^= 1
			},
			"static": func(id *link.Credentials) { id.Static = id.Fresh() },
			"rank":   func(id *link.Credentials) { id.Ticket = credentials.Of(2, 1, level).Ticket },
		} {
			t.Run(name, func(t *testing.T) {
				f := newMembers(t, 3, level, func(c *link.Config) {
					if c.Rank == 0 {
						change(c.Credentials)
					}
				})
				p := f.dial(0, 1)
				f.Pass(50 * millisecond)
				if p.Open() || f.at(1, 0) != nil || f.at(1, 2) != nil {
					t.Fatal("the session has opened")
				}
				if s := &f.e[1].Stats; s.Handshakes+s.Faults[wire.BadCode] == 0 {
					t.Errorf("nothing is counted: %+v", s)
				}
				f.transfer(f.dial(2, 1), 2, 100)
			})
		}
	})
}

// TestKeysAreRenewed lets minutes pass with traffic, in which both directions go on with new keys.
func TestKeysAreRenewed(t *testing.T) {
	eachTag(t, func(t *testing.T, level secure.Level) {
		f := newMembers(t, 2, level, nil)
		largest := map[int]uint64{}
		f.taped(func(from, _ int, b []byte) int {
			if !wire.IsHandshake(b) {
				number := secure.Number(b)
				if number < largest[from] {
					t.Fatalf("rank %d goes back from number %d to %d", from, largest[from], number)
				}
				largest[from] = number + 1
			}
			return 1
		})
		for range 8 {
			f.both()
			f.Pass(50_000 * millisecond)
		}
		f.both()
		for r := range f.e {
			if epochs := largest[r] >> 24; epochs < 2 || epochs > 3 {
				t.Errorf("rank %d is at epoch %d after 400 s", r, epochs)
			}
			if s := &f.e[r].Stats; s.Faults[wire.BadTag]+s.Faults[wire.Replayed] > 0 {
				t.Errorf("rank %d has refused frames of the other: %v", r, s.Faults)
			}
		}
	})
}

// TestForgedResetEndsNothing sends a reset that anybody can write.
func TestForgedResetEndsNothing(t *testing.T) {
	f := newMembers(t, 2, secure.Sign, nil)
	f.both()
	b := make([]byte, wire.HeaderLen+secure.TrailerLen)
	h := wire.Header{Kind: wire.KindReset, Session: f.at(0, 1).ID()}
	h.Encode(b[:wire.HeaderLen])
	f.e[0].Receive(b, 1)
	f.e[0].Receive(b[:wire.HeaderLen], 1)
	if f.at(0, 1).Dead() {
		t.Fatal("a forged reset has ended the session")
	}
	f.both()
}

// TestPeerIsToldThatItIsGivenUp shows that a reset of the peer itself is believed.
func TestPeerIsToldThatItIsGivenUp(t *testing.T) {
	f := newMembers(t, 2, secure.Sign, nil)
	f.both()
	p := f.at(0, 1)
	f.at(1, 0).GiveUp(link.ErrRestarted)
	f.Until(100*millisecond, p.Dead)
}

// TestGreetingWithoutHands has nobody who computes, for a while.
func TestGreetingWithoutHands(t *testing.T) {
	eachLevel(t, func(t *testing.T, level secure.Level) {
		busy := 0
		f := newMembers(t, 2, level, func(c *link.Config) {
			c.Offload = func(work, done func()) bool {
				if busy++; busy%3 != 0 {
					return false
				}
				work()
				done()
				return true
			}
		})
		f.both()
	})
}

// TestRefusedHelloIsForgotten has the device refuse the session of a hello that was answered, of which
// no frame has come. A later session with the rank has another id, which the device knows.
func TestRefusedHelloIsForgotten(t *testing.T) {
	eachLevel(t, func(t *testing.T, level secure.Level) {
		f := newMembers(t, 2, level, nil)
		refused, known := uint64(0), map[uint64]bool{}
		f.Told = func(r int, opened []link.Opened, _, closed []uint64) {
			for _, o := range opened {
				if known[o.ID] = true; r == 1 && refused == 0 {
					refused, known[o.ID] = o.ID, false
					f.e[1].Refuse(o.ID, link.ErrReset)
				}
			}
			for _, id := range closed {
				delete(known, id)
			}
		}
		f.Filter = func(from, _ int, b []byte) int {
			if from == 0 && kindOf(b) == wire.KindHello {
				return 1
			}
			return 0
		}
		f.dial(0, 1)
		f.Settle()
		if refused == 0 {
			t.Fatal("nothing was refused")
		}
		if p := f.dial(1, 0); !known[p.ID()] && p.ID() == refused {
			t.Error("the session has the id that was refused")
		}
	})
}

// TestPeerThatDialsIsFound has the search for a rank fail after its hello was answered, and before its
// first frame. The session opens all the same, or ends if that frame never comes.
func TestPeerThatDialsIsFound(t *testing.T) {
	eachLevel(t, func(t *testing.T, level secure.Level) {
		for _, dies := range []bool{false, true} {
			f := newMembers(t, 2, level, nil)
			heal := f.loseAllButHellos(0)
			f.e[1].Connect(0)
			q, p := f.at(1, 0), f.dial(0, 1)
			f.Until(1000*millisecond, p.Open)
			f.e[1].NotFound(0, link.ErrReset)
			if q.Dead() || f.at(1, 0) != q {
				t.Fatal("the session has ended")
			}
			if dies {
				f.Cut[0] = true
				f.Until(3*testLimit, q.Dead)
				continue
			}
			heal()
			f.transfer(p, 0, 100)
			f.transfer(q, 1, 100)
		}
	})
}

// TestOldHelloHoldsNobodyUp has the way to where an earlier life was never be found. A hello of the
// present life is answered meanwhile, whether the old one was to be answered by a ticket or not.
func TestOldHelloHoldsNobodyUp(t *testing.T) {
	eachLevel(t, func(t *testing.T, level secure.Level) {
		for _, target := range []uint64{1, 2} {
			routed := 0
			f := newMembers(t, 2, level, nil)
			old := f.taped(func(int, int, []byte) int { return 0 })
			f.dial(0, 1)
			f.Settle()
			f.Filter = nil
			f.start(1, target, 2, func(c *link.Config) {
				c.Route = func(t *secure.Ticket, done func(link.PathID)) {
					if routed++; t.Incarnation > 1 {
						done(link.PathID(t.Rank))
					}
				}
			})
			f.start(0, 2, 2, nil)
			f.e[1].Receive((*old)[0].payload, 0)
			if routed != 1 {
				t.Fatalf("%d ways were looked for", routed)
			}
			f.transfer(f.dial(0, 1), 0, 100)
		}
	})
}

// TestTicketOfAFormerLifeComesLate has a rank learn of a peer's former life when the present one has dialed
// it already, and been answered. The session that the peer has opened by then stays good.
func TestTicketOfAFormerLifeComesLate(t *testing.T) {
	eachLevel(t, func(t *testing.T, level secure.Level) {
		for _, seeks := range []bool{true, false} {
			f := newMembers(t, 2, level, nil)
			if seeks {
				f.e[1].Connect(0)
			}
			f.start(0, 2, 2, nil)
			heal := f.loseAllButHellos(0)
			p := f.dial(0, 1)
			f.Until(1000*millisecond, p.Open)
			f.e[1].DialBy(0, credentials.Ticket(0, 1, level))
			f.dial(1, 0)
			heal()
			f.both()
			if p.Dead() || f.at(1, 0).Life() != 2 {
				t.Errorf("seeks %t: rank 1 speaks with life %d, and the session of that rank has the error %v", seeks, f.at(1, 0).Life(), p.Err())
			}
		}
	})
}
