package device

import (
	"fmt"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/userspace"
)

// BenchmarkUDPFrames moves frames from device to device, both on one goroutine: what a
// full frame costs both ends and the kernel between them.
func BenchmarkUDPFrames(b *testing.B) {
	l := labtest.New(b, netlab.Config{Ranks: 2, MTU: 1500})
	for _, place := range []string{"veth", "loopback"} {
		for _, joined := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/joined %v", place, joined), func(b *testing.B) {
				var from, to *end
				if place == "veth" {
					from, to = openEnd(b, l, 0, userspace.UDP, false), openEnd(b, l, 1, userspace.UDP, false)
				} else {
					from, to = newUDP(b, loopback4), newUDP(b, loopback4)
				}
				offload(b, from, joined, false)
				offload(b, to, false, joined)
				passFrames(b, from, to)
			})
		}
	}
}

func passFrames(b *testing.B, from, to *end) {
	slab, path := from.dev.Facts().Slab, from.path(to.dev.Facts().Local)
	outs := make([]Out, slab.Slots)
	for i := range outs {
		copy(slab.Payload(int32(i)), message(wire.KindData, slab.MaxPayload))
		outs[i] = Out{Slot: int32(i), Len: int32(slab.MaxPayload), Path: path}
	}
	frames, slots := make([]Frame, batch), make([]int32, len(outs))
	b.SetBytes(int64(slab.MaxPayload))
	b.ResetTimer()
	for sent := 0; sent < b.N; {
		n := from.dev.Enqueue(outs[:min(len(outs), b.N-sent)])
		from.dev.Transmit()
		for received := 0; received < n; {
			received += to.dev.Receive(frames)
			to.dev.Release()
		}
		for reaped := 0; reaped < n; {
			reaped += from.dev.Reap(slots)
		}
		sent += n
	}
}
