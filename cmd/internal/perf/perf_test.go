package perf

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The counts that several processes sent to each other add up to those of one process.
func TestHistogramMerge(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		parts := rapid.SliceOfN(rapid.SliceOf(rapid.Int64Range(-5, int64(2*time.Minute))), 1, 4).Draw(rt, "parts")
		whole, merged := newHistogram(), newHistogram()
		for _, part := range parts {
			h := newHistogram()
			for _, ns := range part {
				h.record(time.Duration(ns))
				whole.record(time.Duration(ns))
			}
			b, err := h.encode()
			if err == nil {
				err = merged.merge(b)
			}
			if err != nil {
				rt.Fatal(err)
			}
		}
		if merged.count() != whole.count() {
			rt.Fatalf("%d latencies merged, %d counted", merged.count(), whole.count())
		}
		for _, p := range []float64{0, 50, 99, 100} {
			if got, want := merged.microseconds(p), whole.microseconds(p); got != want {
				rt.Fatalf("p%v is %v µs, want %v", p, got, want)
			}
		}
	})
}

func TestPercentilesComeFromTheHistogram(t *testing.T) {
	h := newHistogram()
	if h.microseconds(50) != 0 {
		t.Error("an empty histogram has a median")
	}
	for i := range 1000 {
		h.record(time.Duration(i+1) * time.Microsecond)
	}
	if got := h.microseconds(50); got < 499 || got > 501 {
		t.Errorf("p50 %v", got)
	}
	if got := h.microseconds(99); got < 989 || got > 991 {
		t.Errorf("p99 %v", got)
	}
	if err := h.merge([]byte("no histogram")); err == nil {
		t.Error("bytes that are no histogram were merged")
	}
	if n := testing.AllocsPerRun(100, func() { h.record(time.Duration(rand.Int64N(1e9))) }); n != 0 {
		t.Errorf("Record allocates %v times", n)
	}
}

// latencies encodes a histogram of one value in µs.
func latencies(t *testing.T, micros ...int) []byte {
	t.Helper()
	h := newHistogram()
	for _, us := range micros {
		h.record(time.Duration(us) * time.Microsecond)
	}
	b, err := h.encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func near(got, want float64) bool { return got >= want*0.998 && got <= want*1.002 }

func TestSummarizeLatency(t *testing.T) {
	p := Point{Test: "put-latency", Bytes: 8, Ranks: 2}
	samples := []*Sample{
		{Point: p, Latency: latencies(t, 10, 10, 10), Passes: 3, Ops: 3, Allocs: 3, Elapsed: time.Millisecond, Mode: "udp", MTU: 1500},
		{Point: p, Latency: latencies(t, 20), Passes: 1, Ops: 1, Allocs: 3, Elapsed: time.Millisecond, Mode: "udp", MTU: 1500},
	}
	echo := FloorPoint{Kind: Echo, Bytes: 8}
	var floors []*FloorSample
	for _, us := range []int{90, 4, 5} { // one was disturbed
		floors = append(floors, &FloorSample{Point: echo, Latency: latencies(t, us), Mode: "xdp-native", MTU: 1500})
	}
	r, err := Summarize(samples, floors)
	if err != nil {
		t.Fatal(err)
	}
	if !near(r.P50, 10) || !near(r.P99, 20) || !near(r.FloorP50, 5) || !near(r.Ratio, 2) || *r.AllocsPerOp != 1.5 {
		t.Errorf("%+v, %v allocations", r, *r.AllocsPerOp)
	}
	if r.MBPerS != 0 || r.MopsPerS != 0 || r.FloorMBPerS != 0 || r.Mode != "udp" {
		t.Errorf("%+v", r)
	}
	if s := Spread(floors); !near(s, 90./4) {
		t.Errorf("spread %v", s)
	}
}

// Of a machine that is fast in some rounds, slow in others and both in one, only
// rounds count in which floor and sample saw the same machine.
func TestSummarizeSteady(t *testing.T) {
	p := Point{Test: "put-latency", Bytes: 8, Ranks: 2}
	var samples []*Sample
	for _, us := range []int{6, 6, 3, 15, 14} {
		samples = append(samples, &Sample{Point: p, Latency: latencies(t, us), Passes: 1, Ops: 1, Elapsed: time.Millisecond})
	}
	var floors, kernel, memory []*FloorSample
	for _, us := range []int{4, 4, 10, 10, 10, 40} { // steady: rounds 0, 2 and 3; in 2 the sample was not
		floors = append(floors, &FloorSample{Point: FloorPoint{Kind: Echo, Bytes: 8}, Latency: latencies(t, us)})
		kernel = append(kernel, &FloorSample{Point: FloorPoint{Kind: Kernel, Bytes: 8}, Latency: latencies(t, us+100)})
		memory = append(memory, &FloorSample{Point: FloorPoint{Kind: Memory, Bytes: 8}, Latency: latencies(t, us+200)})
	}
	r, err := Summarize(samples, floors, kernel, memory)
	if err != nil {
		t.Fatal(err)
	}
	if !near(r.P50, 6) || !near(r.P99, 15) || !near(r.FloorP50, 7) || !near(r.KernelP50, 107) || !near(r.KernelP99, 107) ||
		!near(r.MemoryP50, 207) || !near(r.MemoryP99, 207) {
		t.Errorf("%+v", r)
	}
}

func TestSummarizeThroughput(t *testing.T) {
	for _, test := range []struct {
		point                Point
		floor                FloorSample
		mb, mops, ratio, f50 float64
	}{
		{Point{"put-bandwidth", 1000, 16, 2}, FloorSample{MBPerS: 100}, 80, 0.08, 0.8, 0},
		{Point{"put-rate", 8, 64, 2}, FloorSample{MBPerS: 0.32}, 0.64, 0.08, 2, 0},
		{Point{"put-rate", 8, 1, 2}, FloorSample{Latency: latencies(t, 5)}, 0.64, 0.08, 0.4, 5},
	} {
		samples := []*Sample{
			{Point: test.point, Ops: 100, Passes: 100, Elapsed: time.Millisecond},
			{Point: test.point, Ops: 60, Passes: 60, Elapsed: time.Millisecond},
		}
		test.floor.Point, _ = test.point.Floor(FloorXDP)
		r, err := Summarize(samples, []*FloorSample{&test.floor})
		if err != nil {
			t.Fatal(err)
		}
		if !near(r.MBPerS, test.mb) || !near(r.MopsPerS, test.mops) || !near(r.Ratio, test.ratio) || r.P50 != 0 {
			t.Errorf("%v: %+v", test.point, r)
		}
		if test.f50 != 0 && !near(r.FloorP50, test.f50) {
			t.Errorf("%v: floor %+v", test.point, r)
		}
	}
}

func TestSummarizeIdle(t *testing.T) {
	r, err := Summarize([]*Sample{{Point: Point{Test: "idle", Ranks: 2}, Elapsed: 4 * time.Second, CPU: 10 * time.Millisecond}}, nil)
	if err != nil || !near(r.Ratio, 0.0025) || r.AllocsPerOp != nil {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestSummarizeErrors(t *testing.T) {
	for _, samples := range [][]*Sample{
		nil,
		{{Point: Point{Test: "nothing"}}},
		{{Point: Point{Test: "put-latency"}}}, // no time
		{{Point: Point{Test: "put-latency"}, Elapsed: 1, Latency: []byte("?")}},
	} {
		if r, err := Summarize(samples, nil); err == nil {
			t.Errorf("%v gives %+v", samples, r)
		}
	}
}

func TestNamesSelectTests(t *testing.T) {
	for name, least := range map[string]int{"all": 20, "progress": 4, "scale": 2, "barrier": 1} {
		if got := len(Select(name)); got < least {
			t.Errorf("%q selects %d tests", name, got)
		}
	}
	for _, name := range []string{"", "put", "floor"} {
		if got := Select(name); got != nil {
			t.Errorf("%q selects %v", name, got)
		}
	}
	var names []string
	for _, test := range Tests {
		names = append(names, test.Name)
	}
	if slices.Sort(names); len(slices.Compact(names)) != len(Tests) {
		t.Errorf("two tests have one name: %v", names)
	}
}

func TestPointsFollowSizesAndWindow(t *testing.T) {
	for _, test := range []struct {
		name   string
		bytes  []int
		window int
		want   []Point // nil: an error
	}{
		{"put-latency", []int{8, 64}, 5, []Point{{"put-latency", 8, 0, 2}, {"put-latency", 64, 0, 2}}},
		{"fetch-and-op-latency", []int{64}, 0, []Point{{"fetch-and-op-latency", 8, 0, 2}}},
		{"barrier", []int{64}, 3, []Point{{"barrier", 0, 0, 2}}},
		{"put-rate", nil, 0, []Point{{"put-rate", 8, 1, 2}, {"put-rate", 8, 64, 2}, {"put-rate", 8, 1024, 2}}},
		{"put-rate", nil, 7, []Point{{"put-rate", 8, 7, 2}}},
		{"put-bandwidth", []int{1024, 1 << 17, 1 << 20, 1 << 22}, 0, []Point{
			{"put-bandwidth", 1024, 64, 2}, {"put-bandwidth", 1 << 17, 8, 2}, {"put-bandwidth", 1 << 20, 1, 2}, {"put-bandwidth", 1 << 22, 1, 2}}},
		{"accumulate-latency", []int{12}, 0, nil},
		{"put-latency", []int{0}, 0, nil},
		{"put-bandwidth", []int{0}, 0, nil},
		{"put-latency", []int{MaxBytes + 1}, 0, nil},
		{"put-bandwidth", []int{1 << 20}, 1024, nil},
	} {
		tt, _ := Find(test.name)
		got, err := tt.Points(test.bytes, test.window, 2)
		if !slices.Equal(got, test.want) || (err != nil) != (test.want == nil) {
			t.Errorf("%s %v: %v, %v", test.name, test.bytes, got, err)
		}
	}
}

func TestEachPointHasItsFloor(t *testing.T) {
	points := []Point{{"put-latency", 8, 0, 2}, {"barrier", 0, 0, 2}, {"put-latency", 256, 0, 2}, {"put-rate", 8, 1, 2}, {"put-rate", 8, 64, 2},
		{"put-bandwidth", 8, 64, 2}, {"put-bandwidth", 1 << 20, 1, 2}, {"idle", 0, 0, 2}}
	for _, test := range []struct {
		device   FloorDevice
		inKernel bool
		want     []FloorPoint
	}{
		{FloorUDP, false, []FloorPoint{{Kind: Echo, Bytes: 8}, {Kind: Echo, Bytes: 256}, {Kind: Stream, Bytes: 8}, {Kind: Stream}}},
		{FloorXDP, true, []FloorPoint{{Kind: Echo, Bytes: 8}, {Kind: Kernel, Bytes: 8}, {Kind: Memory, Bytes: 8}, {Kind: Echo, Bytes: 256}, {Kind: Stream, Bytes: 8}, {Kind: Stream}}},
		{FloorXDPGeneric, true, []FloorPoint{{Kind: Echo, Bytes: 8}, {Kind: Kernel, Bytes: 8}, {Kind: Memory, Bytes: 8}, {Kind: Echo, Bytes: 256}, {Kind: Stream, Bytes: 8}, {Kind: JoinedStream}}},
	} {
		if got := Floors(points, test.device, test.inKernel); !slices.Equal(got, test.want) {
			t.Errorf("%s, in the kernel too %v: got %v, want %v", test.device, test.inKernel, got, test.want)
		}
		for _, f := range test.want {
			if on := f.On(test.device); on != test.device && f.Kind != JoinedStream || on == FloorJoined && test.device != FloorXDPGeneric {
				t.Errorf("%s: %v is on %s", test.device, f, on)
			}
		}
	}
}

// Every byte of an operation has a place in the floor's frames.
func TestEveryByteHasAPlaceInTheFloorsFrames(t *testing.T) {
	s := &side{line: &udpLine{most: 1472}}
	for _, bytes := range []int{1, 8, 1400, 1401, 65536, 1 << 20} {
		frames, length := s.layout(bytes)
		if frames*(length-opOverhead) < bytes || length > s.payload() || length < markLen || (frames-1)*(s.payload()-opOverhead) >= bytes {
			t.Errorf("%d bytes: %d frames of %d", bytes, frames, length)
		}
	}
	if frames, length := s.layout(8); frames != 1 || length+headers != 122 {
		t.Errorf("8 bytes: %d frames of %d bytes", frames, length+headers)
	}
}

func TestMarkIsReadBack(t *testing.T) {
	b := make([]byte, markLen)
	if _, ok := mark(b); ok {
		t.Error("zeroes are a mark")
	}
	putMark(b, 77)
	if n, ok := mark(b); n != 77 || !ok {
		t.Errorf("%d, %v", n, ok)
	}
	if _, ok := mark(b[:markLen-1]); ok {
		t.Error("a part of a mark is one")
	}
}

func TestMedian(t *testing.T) {
	for want, values := range map[float64][]float64{0: nil, 3: {5, 3, 1}, 2.5: {4, 1, 2, 3}} {
		if got := Median(values); got != want {
			t.Errorf("median of %v is %v, want %v", values, got, want)
		}
	}
}
