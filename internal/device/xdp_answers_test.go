package device

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/siphash"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/stats"
	"github.com/xdprma/xdprma/userspace"
)

// answered is a device whose program takes the answers of a peer in one session.
type answered struct {
	*end
	x    *XDP
	peer *end
	path PathID // from the peer to x
	key  *siphash.Key
}

const answeredSession = testSession + 1

func newAnswered(t *testing.T, l *netlab.Lab, transport userspace.Transport, v6 bool, key *siphash.Key) *answered {
	t.Helper()
	var dev Device
	err := l.Do(0, func() (err error) {
		dev, err = OpenXDP(t.Context(), Config{Config: userspace.Config{Transport: transport, Interface: l.Interface(0), Address: address(l, 0, v6)}, Sessions: 1, Slots: 128})
		return err
	})
	a := &answered{end: newEnd(t, dev, err), peer: openEnd(t, l, 1, transport, v6), key: key}
	a.x = dev.(*XDP)
	slot := express.Slot{Session: answeredSession, Peer: endOf(a.peer.dev.Facts().Local), Local: endOf(dev.Facts().Local)}
	if key != nil {
		slot.Keys = &express.Keys{Answered: *key}
	}
	dev.Facts().Tier.Tables().OpenSlot(0, slot)
	if err := dev.Facts().Filter.AllowSession(answeredSession, 0); err != nil {
		t.Fatal(err)
	}
	a.path = a.peer.path(dev.Facts().Local)
	return a
}

// answer makes one with results of n bytes.
func (a *answered) answer(exchange uint64, n int) []byte {
	b := make([]byte, wire.HeaderLen+n)
	for i := wire.HeaderLen; i < len(b); i++ {
		b[i] = byte(rand.Uint32())
	}
	express.Request(b, express.Header{Session: answeredSession, Exchange: exchange, Try: 1, Flags: wire.FlagResponse}, a.key)
	return b
}

func (a *answered) close() {
	a.end.close()
	a.peer.close()
}

func eachAnswered(t *testing.T, test func(t *testing.T, a *answered)) {
	l := labtest.New(t, netlab.Config{Ranks: 2})
	for _, transport := range []userspace.Transport{userspace.XDPNative, userspace.XDPGeneric} {
		for _, v6 := range []bool{false, true} {
			for _, key := range []*siphash.Key{nil, {1, 2}} {
				t.Run(fmt.Sprintf("%s, IPv6 %v, keyed %v", transport, v6, key != nil), func(t *testing.T) {
					a := newAnswered(t, l, transport, v6, key)
					defer a.close()
					test(t, a)
				})
			}
		}
	}
}

// Answers of all lengths come by the ring, many times round it, in their order and as they were sent.
// Forged ones come no further than the program.
func TestAnswersComeByTheRing(t *testing.T) {
	eachAnswered(t, func(t *testing.T, a *answered) {
		bad := a.answer(1, 8)
		bad[wire.HeaderLen]++
		other := a.answer(1, 8)
		express.Sign(other, &siphash.Key{3})
		a.peer.send(a.path, bad, other)
		var before, after stats.Device
		a.x.Stats(&before)
		sent, answers := uint64(0), uint64(0)
		for exchange := uint64(1); sent < 4<<16; exchange++ {
			lot := [][]byte{a.answer(exchange, 8), a.answer(exchange, 0), a.answer(exchange, 32), a.answer(exchange, 40),
				a.answer(exchange, express.MaxResults), a.answer(exchange, 8*rand.IntN(express.MaxResults/8))}
			a.peer.send(a.path, lot...)
			came := a.receive(len(lot))
			for i := range lot {
				if !came[i].Answer || came[i].Path != NoPath || !bytes.Equal(came[i].Payload, lot[i]) {
					t.Fatalf("exchange %d, %d: an answer %v, path %d,\n%x, want\n%x", exchange, i, came[i].Answer, came[i].Path, came[i].Payload, lot[i])
				}
				sent += uint64(len(lot[i]))
				answers++
			}
		}
		a.x.Stats(&after)
		if frames, bytes := after.RxFrames-before.RxFrames, after.RxBytes-before.RxBytes; frames != answers || bytes != sent {
			t.Errorf("counted %d frames of %d bytes, want %d of %d", frames, bytes, answers, sent)
		}
		counters, err := a.x.program.Counters()
		if err != nil || counters["express_bad_checksum"]+counters["express_bad_code"]+counters["express_bad_form"] != 2 || counters["express_no_room"] != 0 {
			t.Errorf("%v, %v", counters, err)
		}
	})
}

// Answers for which the ring has no room come by the socket, and so do bundles.
func TestFullRingGoesOnByTheSocket(t *testing.T) {
	eachAnswered(t, func(t *testing.T, a *answered) {
		a.peer.send(a.peer.path(a.x.facts.Local), message(wire.KindData, 100))
		if came := a.receive(1); came[0].Answer {
			t.Error("a bundle is an answer")
		}
		var sent [][]byte
		for exchange := range uint64(100) {
			sent = append(sent, a.answer(exchange+1, express.MaxResults))
			a.peer.send(a.path, sent[exchange])
		}
		came, byRing := a.receive(len(sent)), 0
		for i, f := range came {
			if f.Answer {
				if byRing++; byRing != i+1 {
					t.Errorf("an answer came by the ring after %d by the socket", i+1-byRing)
				}
			}
			if !bytes.Equal(f.Payload, sent[i]) {
				t.Fatalf("message %d: %x, want %x", i, f.Payload, sent[i])
			}
		}
		counters, err := a.x.program.Counters()
		if err != nil || byRing == 0 || counters["express_handed"] != uint64(byRing) || counters["express_no_room"] != uint64(len(sent)-byRing) || byRing == len(sent) {
			t.Errorf("%d of %d by the ring: %v, %v", byRing, len(sent), counters, err)
		}
		a.peer.send(a.path, sent[0])
		if again := a.receive(1); !again[0].Answer {
			t.Error("once the ring has room, an answer comes by the socket")
		}
	})
}

// Whenever an answer comes, who sleeps or is about to is woken.
func TestAnswersWakeWhoSleeps(t *testing.T) {
	eachAnswered(t, func(t *testing.T, a *answered) {
		rounds := uint64(500)
		if testing.Short() {
			rounds = 200
		}
		sleeps := make(chan struct{})
		go func() {
			for exchange := range rounds {
				if <-sleeps; exchange%2 == 0 {
					time.Sleep(time.Duration(rand.IntN(100)) * time.Microsecond) // it sleeps, or is about to
				}
				a.peer.send(a.path, a.answer(exchange+1, 8))
			}
		}()
		frames := make([]Frame, 16)
		for exchange := range rounds {
			sleeps <- struct{}{}
			for a.dev.Receive(frames) == 0 {
				begin := time.Now()
				if a.dev.Sleep(testenv.Limit); time.Since(begin) >= testenv.Limit {
					t.Fatalf("exchange %d: nobody was woken", exchange)
				}
			}
			a.dev.Release()
		}
	})
}

// Answers keep nobody from what else has come for long.
func TestAnswersLeaveTheSocketsTheirTurn(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2})
	a := newAnswered(t, l, userspace.XDPGeneric, false, nil)
	a.peer.send(a.path, message(wire.KindData, 100))
	frames := make([]Frame, 1)
	for turn := range answersInARow + 1 {
		a.peer.send(a.path, a.answer(uint64(turn+1), 8))
		if a.dev.Receive(frames) == 1 && !frames[0].Answer {
			return
		}
		a.dev.Release()
	}
	t.Errorf("a bundle has not come after %d turns", answersInARow+1)
}

func TestAnswersAllocateNothing(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2})
	a := newAnswered(t, l, userspace.XDPGeneric, false, nil)
	frames, answer := make([]Frame, 1), a.answer(1, 8)
	slot := a.peer.free[0]
	copy(a.peer.dev.Facts().Slab.Payload(slot), answer)
	outs, reaped := []Out{{Slot: slot, Len: int32(len(answer)), Path: a.path}}, make([]int32, 1)
	if n := testing.AllocsPerRun(200, func() {
		a.peer.dev.Enqueue(outs)
		for a.peer.dev.Reap(reaped) == 0 {
			a.peer.dev.Transmit()
		}
		for a.dev.Receive(frames) == 0 {
		}
		a.dev.Release()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
