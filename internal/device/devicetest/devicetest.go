// Package devicetest checks that devices keep the contract of device.Device. Every kind of device has a
// test that calls Run.
package devicetest

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xdprma/xdprma/internal/device"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/stats"
)

// Slots is how many transmit slots the devices of a Network have.
const Slots = 32

// Network has two devices that reach each other.
type Network struct {
	// Open opens both with Slots slots each, for any job, and without sessions whose requests an
	// XDP program executes. It may be called again once both are closed.
	Open func(t *testing.T) (a, b device.Device)
	// Lose takes from the first device what it moves frames by, for good. nil: that cannot be done.
	Lose func(t *testing.T)
}

// Run checks the devices of a network. It calls Lose last.
func Run(t *testing.T, n Network) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, a, b *end)
	}{
		{"facts", facts}, {"frames", frames}, {"payloads", payloads}, {"slots", slots}, {"nothing", nothing},
		{"sleep", sleep}, {"sleeper", sleeper}, {"path", path}, {"filter", filter}, {"stats", counters},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, b := n.open(t)
			test.run(t, a, b)
		})
	}
	t.Run("close", n.leaves)
	if n.Lose != nil {
		t.Run("loss", n.loses)
	}
}

// session is the id of a session that both ends let through.
const session = 0x1234

// end is a device, and what a driver keeps of it.
type end struct {
	device.Device
	t     *testing.T
	facts *device.Facts
	owned map[int32]int // slots that the device has, and how often
}

func (n Network) open(t *testing.T) (a, b *end) {
	t.Helper()
	x, y := n.Open(t)
	both := [2]*end{}
	for i, d := range []device.Device{x, y} {
		e := &end{Device: d, t: t, facts: d.Facts(), owned: map[int32]int{}}
		t.Cleanup(func() {
			for range 2 {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}
		})
		e.allow(session)
		both[i] = e
	}
	return both[0], both[1]
}

func (e *end) allow(id uint64) {
	e.t.Helper()
	if e.facts.Filter == nil {
		return
	}
	if err := e.facts.Filter.AllowSession(id, loader.NoSlot); err != nil {
		e.t.Fatal(err)
	}
}

func (e *end) to(peer *end) device.PathID {
	e.t.Helper()
	id, err := e.Path(e.t.Context(), peer.facts.Local)
	if err != nil {
		e.t.Fatal(err)
	}
	return id
}

// message returns a payload of n bytes, of a session unless it is the first of a handshake.
func message(kind wire.Kind, id uint64, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	h := wire.Header{Kind: kind, Session: id}
	if kind == wire.KindHello {
		h.Session = 0
	}
	h.Encode(b)
	return b
}

func data(n int) []byte { return message(wire.KindData, session, n) }

// put writes a payload to a slot, which is the device's from then on.
func (e *end) put(slot int32, by device.PathID, payload []byte) device.Out {
	copy(e.facts.Slab.Payload(slot), payload)
	return device.Out{Slot: slot, Len: int32(len(payload)), Path: by}
}

// take notes which slots the device has.
func (e *end) take(outs []device.Out) {
	for _, o := range outs {
		e.owned[o.Slot]++
	}
}

// reap has the device give slots back, and checks that it had them.
func (e *end) reap() {
	e.t.Helper()
	var got [Slots]int32
	for _, slot := range got[:e.Reap(got[:])] {
		if e.owned[slot]--; e.owned[slot] < 0 {
			e.t.Fatalf("slot %d is given back, which the device does not have", slot)
		} else if e.owned[slot] == 0 {
			delete(e.owned, slot)
		}
	}
}

// send sends payloads, at most as many as there are slots, and waits until all slots are back.
func (e *end) send(by device.PathID, payloads ...[]byte) {
	e.t.Helper()
	var outs []device.Out
	for i, p := range payloads {
		outs = append(outs, e.put(int32(i), by, p))
	}
	testenv.Await(e.t, "the device to give all slots back", func() bool {
		n := e.Enqueue(outs)
		e.take(outs[:n])
		outs = outs[n:]
		e.Transmit()
		e.reap()
		return len(outs) == 0 && len(e.owned) == 0
	})
}

// receive waits for n frames, and returns copies. More are a fault, and so is a field that was there before.
func (e *end) receive(n int) (got []device.Frame) {
	e.t.Helper()
	var few [8]device.Frame
	testenv.Await(e.t, "frames", func() bool {
		for i := range few {
			few[i] = device.Frame{Path: 7, Answer: true}
		}
		for _, f := range few[:e.Receive(few[:])] {
			if f.Answer {
				e.t.Error("a frame is an answer that no program has taken for one")
			}
			got = append(got, device.Frame{Payload: bytes.Clone(f.Payload), Path: f.Path})
		}
		e.Release()
		return len(got) >= n
	})
	if len(got) > n {
		e.t.Fatalf("%d frames have arrived, of %d", len(got), n)
	}
	return got
}

func (e *end) stats() (s stats.Device) {
	e.Stats(&s)
	return s
}

// facts checks that facts are there, agree with each other and stay.
func facts(t *testing.T, a, b *end) {
	f := a.facts
	before, mode := *f, f.Mode.String()
	switch {
	case f.Slab.Slots != Slots || f.Slab.MaxPayload < wire.MinPayload:
		t.Errorf("%d slots of %d bytes", f.Slab.Slots, f.Slab.MaxPayload)
	case !f.Local.IsValid() || f.Local.Port() == 0 || f.Local.Addr().Zone() != "" || f.Local == b.facts.Local:
		t.Errorf("one is at %v, and the other at %v", f.Local, b.facts.Local)
	case mode == "" || f.Queues > 0 && f.Filter == nil || f.Queues > 0 && f.Interface == "":
		t.Errorf("mode %q, %d queues of interface %q, a filter: %v", mode, f.Queues, f.Interface, f.Filter != nil)
	case f.Tier != nil || f.Joins > 0 && f.Room == 0 || f.Mode.Trouble(time.Hour) != "":
		t.Errorf("tier %v, %d joined frames, room for %d bytes, trouble %q", f.Tier, f.Joins, f.Room, f.Mode.Trouble(time.Hour))
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if a.Facts() != f || *f != before || f.Mode.String() != mode || f.Alive.Err() != nil {
		t.Errorf("the facts were %+v, and are %+v after Close", before, *a.Facts())
	}
}

// frames checks that frames of all lengths arrive whole, both ways, and that handshakes alone tell the
// way back.
func frames(t *testing.T, a, b *end) {
	for _, ends := range [][2]*end{{a, b}, {b, a}} {
		from, to := ends[0], ends[1]
		longest := min(from.facts.Slab.MaxPayload, to.facts.Slab.MaxPayload)
		way := from.to(to)
		for _, n := range []int{wire.HeaderLen, wire.HeaderLen + 1, 200, longest - 1, longest} {
			sent := data(n)
			from.send(way, sent)
			if got := to.receive(1)[0]; !bytes.Equal(got.Payload, sent) || got.Path != device.NoPath {
				t.Errorf("of %d bytes %d arrive, by path %d", n, len(got.Payload), got.Path)
			}
		}
		hello := message(wire.KindHello, 0, 200)
		from.send(way, hello, hello)
		got := to.receive(2)
		if got[0].Path == device.NoPath || got[1].Path != got[0].Path || to.Peer(got[0].Path) != from.facts.Local {
			t.Fatalf("handshakes of one sender come by paths %d and %d", got[0].Path, got[1].Path)
		}
		answer := message(wire.KindHelloAck, session, 200)
		to.send(got[0].Path, answer)
		if got := from.receive(1)[0]; !bytes.Equal(got.Payload, answer) || got.Path == device.NoPath {
			t.Errorf("the answer comes by path %d", got.Path)
		}
	}
}

// payloads checks that payloads stay as they are until Release, whatever comes meanwhile.
func payloads(t *testing.T, a, b *end) {
	way := a.to(b)
	const half = 8
	var sent [2 * half][]byte
	for i := range sent {
		sent[i] = data(100 + i)
	}
	var held []device.Frame
	for some := range 2 {
		a.send(way, sent[some*half:(some+1)*half]...)
		testenv.Await(t, "frames", func() bool {
			var few [5]device.Frame
			held = append(held, few[:b.Receive(few[:])]...)
			return len(held) >= (some+1)*half
		})
	}
	for i, f := range held {
		if !bytes.Equal(f.Payload, sent[i]) {
			t.Fatalf("frame %d has changed before Release", i)
		}
	}
	b.Release()
	a.send(way, sent[0])
	b.receive(1)
}

// slots checks that Enqueue takes a prefix of more than there is room for, and that as many slots
// come back and as many frames arrive.
func slots(t *testing.T, a, b *end) {
	way := a.to(b)
	var outs []device.Out
	var sent [][]byte
	for i := range int32(Slots) {
		sent = append(sent, data(100+int(i)))
		outs = append(outs, a.put(i, way, sent[i]))
	}
	outs = append(outs, outs...) // of the second half the slots may be the device's
	taken := a.Enqueue(outs)
	if taken < 1 || taken > len(outs) {
		t.Fatalf("%d of %d frames are taken", taken, len(outs))
	}
	a.take(outs[:taken])
	testenv.Await(t, "the device to give all slots back", func() bool {
		a.Transmit()
		a.reap()
		return len(a.owned) == 0
	})
	for i, f := range b.receive(taken) {
		if !bytes.Equal(f.Payload, sent[i%Slots]) {
			t.Fatalf("frame %d of %d is another", i, taken)
		}
	}
	a.reap() // nothing more
	if n := a.Enqueue(nil); n != 0 {
		t.Errorf("%d of no frames are taken", n)
	}
}

// nothing checks the calls that have nothing to do.
func nothing(t *testing.T, a, b *end) {
	way, before := a.to(b), a.stats()
	for range 3 {
		a.Transmit()
		a.reap()
		a.Release()
		if n := a.Receive(make([]device.Frame, 4)); n != 0 {
			t.Fatalf("%d frames, of none", n)
		}
	}
	if s := a.stats(); s.TxFrames != before.TxFrames || s.TxErrors != 0 || s.RxFrames != before.RxFrames {
		t.Errorf("counters %+v, %+v before", s, before)
	}
	a.send(way, data(100))
	b.receive(1)
}

// sleep checks that Sleep lasts until there is a reason to end it, and no longer.
func sleep(t *testing.T, a, b *end) {
	way := a.to(b)
	asleep := func() <-chan error {
		before := b.stats().Sleeps
		done := testenv.Start(func() error { b.Sleep(time.Hour); return nil })
		testenv.Await(t, "somebody to sleep", func() bool { return b.stats().Sleeps > before })
		select {
		case <-done:
			t.Error("a sleep has ended without a reason")
		default:
		}
		return done
	}
	b.Sleep(time.Microsecond)
	b.Wake()
	b.Wake()
	_ = testenv.Ends(t, "the sleep after a Wake", testenv.Start(func() error { b.Sleep(time.Hour); return nil }))
	for range 3 {
		done := asleep()
		b.Wake()
		_ = testenv.Ends(t, "the sleep in which a Wake is", done)
	}
	for range 3 {
		done := asleep()
		a.send(way, data(100))
		_ = testenv.Ends(t, "the sleep in which a frame arrives", done)
		b.receive(1)
		b.Wake() // a device may have been woken by the frame already, and by the look at it
		b.Sleep(time.Hour)
	}
}

// sleeper checks that one goroutine may sleep while another receives. The race detector finds what they share.
func sleeper(t *testing.T, a, b *end) {
	way := a.to(b)
	var slept atomic.Int64
	var ends atomic.Bool
	done := testenv.Start(func() error {
		for ; !ends.Load(); slept.Add(1) {
			b.Sleep(time.Millisecond)
		}
		return nil
	})
	for range 50 {
		a.send(way, data(100))
		before := slept.Load()
		testenv.Await(t, "the sleeper to be woken by the frame", func() bool { return slept.Load() > before+1 })
		b.receive(1)
	}
	ends.Store(true)
	_ = testenv.Ends(t, "the sleeper", done)
}

// path checks that an address has one path, which leads there, and what has none.
func path(t *testing.T, a, b *end) {
	way := a.to(b)
	if again := a.to(b); again != way || a.Peer(way) != b.facts.Local {
		t.Errorf("paths %d and %d to %v; the first leads to %v", way, again, b.facts.Local, a.Peer(way))
	}
	if id, err := a.Path(t.Context(), netip.AddrPortFrom(b.facts.Local.Addr(), 0)); err == nil || id != device.NoPath {
		t.Errorf("path %d to port 0: %v", id, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_ = testenv.Ends(t, "Path", testenv.Start(func() error { _, err := a.Path(ended, b.facts.Local); return err }))
}

// filter checks that a device with a filter lets through what it was told, and one without lets all through.
func filter(t *testing.T, a, b *end) {
	const other = session + 1
	way, stranger, known := a.to(b), message(wire.KindData, other, 100), data(200)
	comes := func(want bool, when string) {
		t.Helper()
		a.send(way, stranger, known) // which arrive in this order
		n := 1
		if want {
			n = 2
		}
		if got := b.receive(n); !bytes.Equal(got[n-1].Payload, known) || want && !bytes.Equal(got[0].Payload, stranger) {
			t.Errorf("%s, frames of %d bytes arrive", when, len(got[0].Payload))
		}
	}
	f := b.facts.Filter
	comes(f == nil, "before it is allowed")
	b.allow(other)
	comes(true, "while it is allowed")
	if f != nil {
		f.ForgetSession(other)
	}
	comes(f == nil, "after it is forgotten")
}

// counters checks that Stats adds what has happened to what it is given.
func counters(t *testing.T, a, b *end) {
	way, sender, receiver := a.to(b), a.stats(), b.stats()
	for range 3 {
		a.send(way, data(500))
		b.receive(1)
	}
	s, r := a.stats(), b.stats()
	if s.TxFrames != sender.TxFrames+3 || s.TxBytes < sender.TxBytes+1500 || r.RxFrames != receiver.RxFrames+3 || r.RxBytes < receiver.RxBytes+1500 {
		t.Errorf("the sender counts %+v, %+v before; the receiver %+v, %+v before", s, sender, r, receiver)
	}
	twice := s
	a.Stats(&twice)
	if twice.TxFrames != 2*s.TxFrames || twice.TxBytes != 2*s.TxBytes {
		t.Errorf("%+v, which is not twice %+v", twice, s)
	}
}
