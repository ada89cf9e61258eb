package bpf_test

import (
	"testing"

	"github.com/xdprma/xdprma/internal/wire"
)

// BenchmarkClassify has the kernel run the program on a frame of a known session,
// and reports the time of one run.
func BenchmarkClassify(b *testing.B) {
	c := load(b)
	frame := packet{payload: message(wire.KindData, session)}.bytes()
	const runs = 1_000_000
	for b.Loop() {
		verdict, each, err := c.XdprmaClassify.Benchmark(frame, runs, nil)
		if err != nil || verdict != 4 {
			b.Fatalf("verdict %d, %v", verdict, err)
		}
		b.ReportMetric(float64(each.Nanoseconds()), "ns/frame")
	}
}
