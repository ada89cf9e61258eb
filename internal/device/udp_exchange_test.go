package device

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/stats"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// testSession is a session id that the receiver lets through.
const testSession = 0x1234

// end is a device under test and what is needed to send through it by hand.
type end struct {
	t    testing.TB
	dev  Device
	free []int32

	joins bool // sends frames joined
	way   engine.Way
}

func newEnd(t testing.TB, dev Device, err error) *end {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	e := &end{t: t, dev: dev}
	t.Cleanup(e.close)
	for i := range int32(dev.Facts().Slab.Slots) {
		e.free = append(e.free, i)
	}
	if f := dev.Facts().Filter; f != nil {
		if err := f.AllowSession(testSession, loader.NoSlot); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

func (e *end) close() {
	for range 2 { // it is idempotent
		if err := e.dev.Close(); err != nil {
			e.t.Error(err)
		}
	}
}

// message returns a well-formed payload of n bytes with random content.
func message(kind wire.Kind, n int) []byte {
	b := make([]byte, n)
	for i := wire.HeaderLen; i < n; i++ {
		b[i] = byte(rand.Uint32())
	}
	h := wire.Header{Kind: kind, Session: testSession}
	if kind == wire.KindHello {
		h.Session = 0
	}
	h.Encode(b)
	return b
}

func (e *end) path(to netip.AddrPort) PathID {
	e.t.Helper()
	id, err := e.dev.Path(e.t.Context(), to)
	if err != nil {
		e.t.Fatal(err)
	}
	return id
}

// send transmits payloads and waits until their slots are reaped.
func (e *end) send(path PathID, payloads ...[]byte) {
	e.t.Helper()
	slots := len(e.free)
	var outs []Out
	for _, p := range payloads {
		slot := e.free[0]
		e.free = e.free[1:]
		copy(e.dev.Facts().Slab.Payload(slot), p)
		outs = append(outs, Out{Slot: slot, Len: int32(len(p)), Path: path, Way: e.way})
	}
	e.join(outs)
	reaped := make([]int32, 16)
	for start := time.Now(); len(outs) > 0 || len(e.free) < slots; {
		outs = outs[e.dev.Enqueue(outs):]
		e.dev.Transmit()
		e.free = append(e.free, reaped[:e.dev.Reap(reaped)]...)
		if time.Since(start) > testenv.Limit {
			e.t.Fatalf("%d frames not taken, %d slots not reaped", len(outs), slots-len(e.free))
		}
	}
}

// receive waits for n messages, of which it copies the payloads.
func (e *end) receive(n int) (messages []Frame) {
	e.t.Helper()
	frames := make([]Frame, 16)
	for start := time.Now(); len(messages) < n; {
		got := e.dev.Receive(frames)
		for _, f := range frames[:got] {
			messages = append(messages, Frame{Payload: bytes.Clone(f.Payload), Path: f.Path, Answer: f.Answer})
		}
		e.dev.Release()
		if got == 0 {
			e.dev.Sleep(100 * time.Millisecond)
		}
		if time.Since(start) > testenv.Limit {
			e.t.Fatalf("%d of %d messages arrived; receiver %+v", len(messages), n, e.stats())
		}
	}
	return messages
}

func (e *end) stats() (s stats.Device) {
	e.dev.Stats(&s)
	return s
}

// exchange checks that a and b reach each other with messages of all sizes, and
// that b learns the way back to a from a handshake.
func exchange(t *testing.T, a, b *end) {
	t.Helper()
	largest := min(a.dev.Facts().Slab.MaxPayload, b.dev.Facts().Slab.MaxPayload)
	ab := a.path(b.dev.Facts().Local)
	if again := a.path(b.dev.Facts().Local); again != ab {
		t.Errorf("paths %d and %d to the same address", ab, again)
	}
	if peer := a.dev.Peer(ab); peer != b.dev.Facts().Local {
		t.Errorf("the path to %v leads to %v", b.dev.Facts().Local, peer)
	}
	var sent [][]byte
	for _, n := range []int{wire.HeaderLen, wire.HeaderLen + 1, 200, largest / 2, largest - 1, largest} {
		sent = append(sent, message(wire.KindData, n))
	}
	for range 100 {
		sent = append(sent, message(wire.KindData, wire.HeaderLen+rand.IntN(largest-wire.HeaderLen)))
	}
	for batch := sent; len(batch) > 0; batch = batch[min(10, len(batch)):] {
		ten := batch[:min(10, len(batch))]
		a.send(ab, ten...)
		sameMessages(t, b.receive(len(ten)), ten)
	}
	hello := message(wire.KindHello, 200)
	a.send(ab, hello, hello)
	learned := b.receive(2)
	if learned[0].Path == NoPath || learned[0].Path != learned[1].Path {
		t.Fatalf("paths %d and %d learned from two handshakes of one sender", learned[0].Path, learned[1].Path)
	}
	if peer := b.dev.Peer(learned[0].Path); peer != a.dev.Facts().Local {
		t.Errorf("the path learned from %v leads to %v", a.dev.Facts().Local, peer)
	}
	answer := message(wire.KindHelloAck, largest)
	b.send(learned[0].Path, answer)
	got := a.receive(1)
	sameMessages(t, got, [][]byte{answer})
	if got[0].Path == NoPath {
		t.Error("no path learned from the answer")
	}
	if s := a.stats(); s.TxFrames != uint64(len(sent)+2) || s.RxFrames != 1 || s.TxErrors+s.TxDropped+s.RxDropped+s.RxMalformed != 0 {
		t.Errorf("statistics of the sender: %+v", s)
	}
	if s := b.stats(); s.RxFrames != uint64(len(sent)+2) || s.TxBytes < uint64(largest) || s.RxDropped+s.RxMalformed != 0 {
		t.Errorf("statistics of the receiver: %+v", s)
	}
}

// sameMessages checks that messages have the payloads that were sent, in any order, and
// that only handshakes have paths.
func sameMessages(t *testing.T, got []Frame, want [][]byte) {
	t.Helper()
	left := map[string]int{}
	for _, w := range want {
		left[string(w)]++
	}
	for i, g := range got {
		if left[string(g.Payload)]--; left[string(g.Payload)] < 0 {
			t.Fatalf("message %d of %d bytes was not sent", i, len(g.Payload))
		}
		if (g.Path != NoPath) != wire.IsHandshake(g.Payload) {
			t.Fatalf("message %d of kind %d has path %d", i, g.Payload[5], g.Path)
		}
	}
}
