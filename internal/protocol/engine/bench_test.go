package engine

import (
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// BenchmarkRoundTrip takes the time of the protocol alone: both engines of a round trip,
// without a device.
func BenchmarkRoundTrip(b *testing.B) {
	value, result := word(1), make([]byte, 8)
	calls := []struct {
		name string
		call onesided.Call
	}{
		{"put", onesided.Call{Code: wire.CodePut, Origin: value}},
		{"get", onesided.Call{Code: wire.CodeGet, Result: result}},
		{"fetch-and-op", onesided.Call{Code: wire.CodeGetAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64, Origin: value, Result: result}},
	}
	for _, c := range calls {
		for _, window := range []int{1, 64} {
			name := c.name
			if window > 1 {
				name += "/64 outstanding"
			}
			b.Run(name, func(b *testing.B) {
				f := newRanks(b, 2, 4096, nil)
				a := f.access(0, 1)
				e := f.e[0]
				b.ReportAllocs()
				for i := 0; i < b.N; i += window {
					for range window {
						call := c.call
						call.Access = a
						if done, err := e.Issue(&call); err != nil || !done {
							b.Fatal("no room", err)
						}
					}
					e.Flush(a)
					for !(*onesided.FlushWait)(a).Met() {
						f.Step()
					}
					f.Advance(f.Now + 1000)
				}
			})
		}
	}
}

// BenchmarkExchange takes the time of both engines of an exchange, which the target's
// takes as a bundle in the place of its program.
func BenchmarkExchange(b *testing.B) {
	value, result := word(1), make([]byte, 8)
	for _, c := range []struct {
		name string
		lock bool
		call onesided.Call
	}{
		{"put", false, onesided.Call{Code: wire.CodePut, Origin: value}},
		{"fetch-and-op", false, onesided.Call{Code: wire.CodeGetAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64, Origin: value, Result: result}},
		{"lock, put, unlock", true, onesided.Call{Code: wire.CodePut, Origin: value}},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := newPrograms(b, 2, 4096, nil)
			p.mode = absent
			a := p.access(0, 1)
			e, call := p.e[0], c.call
			call.Access = a
			b.ReportAllocs()
			for b.Loop() {
				once := call
				locked := !c.lock || e.Lock(a, true)
				if done, err := e.Issue(&once); !locked || !done || err != nil || c.lock && !e.Unlock(a) {
					b.Fatal("no room", err)
				}
				e.Flush(a)
				for !(*onesided.FlushWait)(a).Met() {
					p.Step()
				}
				a.Unlocked()
				p.Advance(p.Now + 1000)
			}
			if n := p.e[0].Stats.Taken; n < uint64(b.N) {
				b.Errorf("%d exchanges of %d", n, b.N)
			}
		})
	}
}
