package engine

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/engine/message"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// TestMessageFindsItsRoomBesidePieces has a path no longer carry long frames while some
// are on their way. It sends messages of several frames while the lost frames are sent
// again in pieces, which take slots, too: the room that a message was promised stays its
// own.
func TestMessageFindsItsRoomBesidePieces(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		f := newRanks(t, 2, 1<<20, func(c *Config) { c.Slab = HeapSlab(64, 0, 9000) })
		a := f.access(0, 1)
		f.Pass(10 * millisecond)
		f.Carries(1300)
		f.issue(f.e[0], &onesided.Call{Access: a, Code: wire.CodePut, Origin: content(1, (1+rng.IntN(12))*8900)})
		data, got := content(2, message.MaxWhole), make([]byte, message.MaxWhole)
		for range 20 + rng.IntN(20) { // these arrive, and show what is lost
			f.issue(f.e[0], &onesided.Call{Access: a, Code: wire.CodePut, Origin: data[:8]})
			f.Pass(rng.Int64N(millisecond))
		}
		f.Advance(f.Now + rng.Int64N(300*millisecond)) // nothing runs
		p, r := &Sending{To: sessionAt(a).Peer(), Context: 1, Data: data}, &Receive{Context: 1, Source: 0, Tag: 0, Buffer: got}
		f.e[0].PostSend(p)
		f.e[1].PostReceive(r)
		f.Until(10_000*millisecond, func() bool { return p.Met() && r.Met() })
		if p.Err() != nil || r.Err() != nil || !bytes.Equal(got, data) {
			t.Fatalf("seed %d: %v, %v", seed, p.Err(), r.Err())
		}
		if err := f.flush(f.e[0], a); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRoomForAllFramesOfAMessage sends messages of several frames beside any number of
// bundles to a peer that is stopped: a message that is begun has room for all its frames.
func TestRoomForAllFramesOfAMessage(t *testing.T) {
	for n := range 24 {
		f := newRanks(t, 3, 1<<16, func(c *Config) { c.Slab = HeapSlab(32, 0, 1472) })
		stopped := f.access(0, 2)
		f.dial(0, 1)
		f.Pass(10 * millisecond)
		f.Cut[2] = true
		f.e[0].Issue(&onesided.Call{Access: stopped, Code: wire.CodePut, Origin: make([]byte, n*1368)})
		f.Pass(10 * millisecond)
		p := f.send(0, 1, 1, 1, content(n, 8192))
		r := f.receive(1, 0, 1, 1, 8192)
		f.Until(100*millisecond, func() bool { return p.Met() && r.Met() })
	}
}
