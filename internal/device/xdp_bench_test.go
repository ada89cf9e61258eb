package device

import (
	"fmt"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/userspace"
)

// BenchmarkRoundTrip moves a message of 88 bytes there and back between two
// devices on a veth pair, driven by one goroutine.
func BenchmarkRoundTrip(b *testing.B) {
	const maxTries = 10_000_000
	l := labtest.New(b, netlab.Config{Ranks: 2})
	for _, transport := range []userspace.Transport{userspace.XDPNative, userspace.XDPGeneric, userspace.UDP} {
		for _, v6 := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/IPv6=%v", transport, v6), func(b *testing.B) {
				ends := [2]*end{openEnd(b, l, 0, transport, v6), openEnd(b, l, 1, transport, v6)}
				var outs [2][]Out
				for i, e := range ends {
					m := message(wire.KindData, 88)
					copy(e.dev.Facts().Slab.Payload(0), m)
					outs[i] = []Out{{Slot: 0, Len: 88, Path: e.path(ends[1-i].dev.Facts().Local)}}
				}
				frames, slots := make([]Frame, 8), make([]int32, 8)
				b.ReportAllocs()
				for b.Loop() {
					for i, e := range ends {
						e.dev.Enqueue(outs[i])
						e.dev.Transmit()
						tries := 0
						for ; ends[1-i].dev.Receive(frames) == 0 && tries < maxTries; tries++ {
						}
						ends[1-i].dev.Release()
						for ; e.dev.Reap(slots) == 0 && tries < maxTries; tries++ {
							e.dev.Transmit()
						}
						if tries == maxTries {
							b.Fatal("a message was lost")
						}
					}
				}
			})
		}
	}
}
