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

// Histogram counts latencies with a precision of three digits.
type Histogram struct{ h *hdrhistogram.Histogram }

// NewHistogram returns an empty histogram. It allocates all that it will need.
func NewHistogram() *Histogram {
	return &Histogram{hdrhistogram.New(leastLatency, mostLatency, digits)}
}

// Record counts one latency; what lies outside 1 ns to 60 s counts as the bound.
// It does not allocate.
func (h *Histogram) Record(d time.Duration) {
	_ = h.h.RecordValue(min(max(int64(d), leastLatency), mostLatency)) // within the range it cannot fail
}

// Reset forgets everything.
func (h *Histogram) Reset() { h.h.Reset() }

// Count returns the number of latencies.
func (h *Histogram) Count() int64 { return h.h.TotalCount() }

// Microseconds returns the latency at a percentile, 0 if there are none.
func (h *Histogram) Microseconds(percentile float64) float64 {
	if h.h.TotalCount() == 0 {
		return 0
	}
	return float64(h.h.ValueAtPercentile(percentile)) / 1e3
}

// Encode returns the histogram for Merge in another process.
func (h *Histogram) Encode() ([]byte, error) {
	b, err := h.h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return nil, fmt.Errorf("encode a histogram: %w", err)
	}
	return b, nil
}

// Merge adds the latencies of an encoded histogram; of none if b is empty.
func (h *Histogram) Merge(b []byte) error {
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
