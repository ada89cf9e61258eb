package engine

import (
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/onesided"
	"github.com/xdprma/xdprma/internal/wire"
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
				f := newFabric(b, 2, 4096, nil)
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
						f.step()
					}
					f.advance(f.now + 1000)
				}
			})
		}
	}
}
