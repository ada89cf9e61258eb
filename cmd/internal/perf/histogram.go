package perf

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The range of a histogram, in nanoseconds, and its precision: three digits.
const (
	leastLatency = 1
	mostLatency  = int64(60 * time.Second)
	digits       = 3
)

// histogram counts latencies with a precision of three digits.
type histogram struct{ h *hdrhistogram.Histogram }

// newHistogram returns an empty histogram. It allocates all that it will need.
func newHistogram() *histogram {
	return &histogram{hdrhistogram.New(leastLatency, mostLatency, digits)}
}

// record counts one latency; what lies outside 1 ns to 60 s counts as the bound.
// It does not allocate.
func (h *histogram) record(d time.Duration) {
	_ = h.h.RecordValue(min(max(int64(d), leastLatency), mostLatency)) // within the range it cannot fail
}

// reset forgets everything.
func (h *histogram) reset() { h.h.Reset() }

// count returns the number of latencies.
func (h *histogram) count() int64 { return h.h.TotalCount() }

// microseconds returns the latency at a percentile, 0 if there are none.
func (h *histogram) microseconds(percentile float64) float64 {
	if h.h.TotalCount() == 0 {
		return 0
	}
	return float64(h.h.ValueAtPercentile(percentile)) / 1e3
}

// encode returns the histogram for merge in another process.
func (h *histogram) encode() ([]byte, error) {
	b, err := h.h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return nil, fmt.Errorf("encode a histogram: %w", err)
	}
	return b, nil
}

// merge adds the latencies of an encoded histogram; of none if b is empty.
func (h *histogram) merge(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	other, err := hdrhistogram.Decode(b)
	if err != nil {
		return fmt.Errorf("decode a histogram: %w", err)
	}
	if dropped := h.h.Merge(other); dropped > 0 {
		return fmt.Errorf("merge histograms: %d latencies lie outside 1 ns to 60 s", dropped)
	}
	return nil
}
