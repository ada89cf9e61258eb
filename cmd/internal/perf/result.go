package perf

import (
	"fmt"
	"slices"
	"time"
)

// Result is the outcome of one point, as it is told to people and programs.
// A field that does not apply is absent.
type Result struct {
	Test         string   `json:"test"`
	Bytes        int      `json:"bytes,omitempty"`               // of an operation, or of a message of Costs
	Window       int      `json:"window,omitempty"`              // operations outstanding
	P50          float64  `json:"p50_us,omitempty"`              // latency in µs
	P99          float64  `json:"p99_us,omitempty"`              // likewise
	MBPerS       float64  `json:"mb_per_s,omitempty"`            // 10^6 payload bytes a second
	NsPerByte    float64  `json:"ns_per_byte,omitempty"`         // of a step of Costs
	MessageTime  float64  `json:"message_us,omitempty"`          // likewise, of its messages of Bytes
	Added        *float64 `json:"added_us,omitempty"`            // likewise, by which the time of a message exceeds that of the step before
	SenderTime   float64  `json:"sender_us,omitempty"`           // likewise, for which the sender is busy with each message
	ReceiverTime float64  `json:"receiver_us,omitempty"`         // likewise, the receiver
	MopsPerS     float64  `json:"mops_per_s,omitempty"`          // 10^6 operations a second
	FloorP50     float64  `json:"floor_p50_us,omitempty"`        // of the bare echo
	FloorP99     float64  `json:"floor_p99_us,omitempty"`        // likewise
	FloorMBPerS  float64  `json:"floor_mb_per_s,omitempty"`      // of the bare stream
	KernelP50    float64  `json:"kernel_floor_p50_us,omitempty"` // of the bare fetch-and-add in XDP
	KernelP99    float64  `json:"kernel_floor_p99_us,omitempty"` // likewise
	MemoryP50    float64  `json:"memory_floor_p50_us,omitempty"` // likewise, with an answer that no socket receives
	MemoryP99    float64  `json:"memory_floor_p99_us,omitempty"` // likewise
	// Ratio is latency to the floor's or throughput to the floor's; of the test
	// idle it is processor time to time.
	Ratio float64 `json:"ratio,omitempty"`
	Mode  string  `json:"mode"`            // how frames travelled
	Level string  `json:"level,omitempty"` // of their security
	MTU   int     `json:"mtu"`             // bytes of the largest IP packet
	Ranks int     `json:"ranks"`           // that took part
	// WhileStopped is how many operations began and finished while the target was
	// stopped. The latencies are then of all that were under way.
	WhileStopped *uint64  `json:"finished_while_stopped,omitempty"`
	Executed     uint64   `json:"executed,omitempty"`      // requests, by the XDP programs of the ranks; those of the warm-up too
	AllocsPerOp  *float64 `json:"allocs_per_op,omitempty"` // by the origin's process, its poller included
}

// Summarize makes one result of the samples that several jobs took of one point,
// and the samples of its floor taken before, between and after them, of which the
// median counts, and likewise of each of its floors in XDP. Where the machine changed its
// speed, only the rounds count that can be compared (see steady). There may be no
// floor.
func Summarize(samples []*Sample, floors []*FloorSample, kernel ...[]*FloorSample) (*Result, error) {
	if len(samples) == 0 {
		return nil, fmt.Errorf("there are no samples")
	}
	if rounds := steady(samples, floors); rounds != nil {
		samples, floors = during(samples, rounds), around(floors, rounds)
		kernel = slices.Clone(kernel)
		for i, taken := range kernel {
			kernel[i] = around(taken, rounds)
		}
	}
	p := samples[0].Point
	t, ok := Find(p.Test)
	if !ok {
		return nil, fmt.Errorf("there is no test %q", p.Test)
	}
	r := &Result{Test: p.Test, Bytes: p.Bytes, Window: p.Window, Ranks: p.Ranks, Mode: samples[0].Mode, Level: samples[0].Level, MTU: samples[0].MTU}
	h := newHistogram()
	var ops, passes, allocs uint64
	var elapsed, cpu time.Duration
	for _, s := range samples {
		if err := h.merge(s.Latency); err != nil {
			return nil, fmt.Errorf("%s: %w", p.Test, err)
		}
		r.Executed += s.Executed
		ops, passes, allocs = ops+s.Ops, passes+s.Passes, allocs+s.Allocs
		elapsed, cpu = elapsed+s.Elapsed, cpu+s.CPU
		if s.WhileStopped != nil {
			total := *s.WhileStopped
			if r.WhileStopped != nil {
				total += *r.WhileStopped
			}
			r.WhileStopped = &total
		}
	}
	if elapsed <= 0 {
		return nil, fmt.Errorf("%s: the timed loop took no time", p.Test)
	}
	switch t.Kind {
	case Latency:
		r.P50, r.P99 = h.microseconds(50), h.microseconds(99)
	case Bandwidth, Rate:
		r.MopsPerS = float64(ops) / float64(elapsed.Nanoseconds()) * 1e3
		r.MBPerS = r.MopsPerS * float64(p.Bytes)
	case Idle:
		r.Ratio = float64(cpu) / float64(elapsed)
	}
	if t.Scale {
		r.MopsPerS = float64(ops) / float64(elapsed.Nanoseconds()) * 1e3
	}
	if passes > 0 {
		each := float64(allocs) / float64(max(passes*uint64(max(p.Window, 1)), 1))
		r.AllocsPerOp = &each
	}
	return r, r.compare(floors, kernel)
}

// compare fills in the floors, and the ratio to that over AF_XDP.
func (r *Result) compare(floors []*FloorSample, kernel [][]*FloorSample) error {
	for _, taken := range kernel {
		if len(taken) == 0 {
			continue
		}
		f, err := SummarizeFloor(taken)
		if err != nil {
			return err
		}
		if taken[0].Point.Kind == Memory {
			r.MemoryP50, r.MemoryP99 = f.P50, f.P99
		} else {
			r.KernelP50, r.KernelP99 = f.P50, f.P99
		}
	}
	if len(floors) == 0 {
		return nil
	}
	f, err := SummarizeFloor(floors)
	if err != nil {
		return err
	}
	r.FloorP50, r.FloorP99, r.FloorMBPerS = f.P50, f.P99, f.MBPerS
	switch {
	case f.P50 > 0 && r.P50 > 0:
		r.Ratio = r.P50 / f.P50
	case f.P50 > 0: // operations one at a time: each as long as a round trip
		r.Ratio = r.MopsPerS * f.P50
	case f.MBPerS > 0:
		r.Ratio = r.MBPerS / f.MBPerS
	}
	return nil
}

// SummarizeFloor makes one result of the samples of one floor: their medians.
func SummarizeFloor(samples []*FloorSample) (*Result, error) {
	if len(samples) == 0 {
		return nil, fmt.Errorf("there are no samples")
	}
	var p50, p99, rate []float64
	for _, s := range samples {
		h := newHistogram()
		if err := h.merge(s.Latency); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Point.Kind, err)
		}
		p50, p99, rate = append(p50, h.microseconds(50)), append(p99, h.microseconds(99)), append(rate, s.MBPerS)
	}
	first := samples[0]
	return &Result{Test: string(first.Point.Kind), Bytes: first.Point.Bytes, Mode: first.Mode, MTU: first.MTU, Ranks: 2,
		P50: Median(p50), P99: Median(p99), MBPerS: Median(rate)}, nil
}

// Spread returns by what factor samples of one floor differ, 1 if not at all: a
// sign of how much of the machine the measurement had.
func Spread(samples []*FloorSample) float64 {
	var values []float64
	for _, s := range samples {
		values = append(values, s.MBPerS+medianOf(s.Latency)) // one of them is 0
	}
	if len(values) == 0 || slices.Min(values) <= 0 {
		return 1
	}
	return slices.Max(values) / slices.Min(values)
}
