package perf

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind says which of a sample's figures is the result, and what floor it has.
type Kind int

// The kinds.
const (
	Latency   Kind = iota // p50 and p99 of a pass; an echo of the same size
	Bandwidth             // bytes a second; a stream of full frames, joined beneath generic XDP
	Rate                  // operations a second; a stream of one operation a frame
	Idle                  // processor time; none
)

// Test is one benchmark.
type Test struct {
	Name    string
	About   string // one line for people
	Kind    Kind
	Unit    int   // bytes of an operation are a multiple of it
	Bytes   []int // sizes measured unless others are asked for; nil: the test has none
	Fixed   bool  // it has these sizes only
	Windows []int // operations outstanding likewise; nil: by size for Bandwidth, else none
	Scale   bool  // it runs with any number of ranks, the others with two
	Free    bool  // its ranks are not bound to processors
	Once    bool  // one job measures it, not several
	Stretch int   // how many times longer than others it is measured; 0: once

	// Of a test of progress: the target's load, and the time between two operations.
	load string
	pace time.Duration

	// run is called by all ranks that take part, between barriers.
	run func(*rank, Point) error
}

var (
	latencySizes   = []int{8, 256, 4096, 65536}
	bandwidthSizes = []int{1024, 8192, 65536, 1 << 20}
	word           = []int{8}
	rateWindows    = []int{1, 64, 1024}
)

// Tests lists all tests, in the order in which a suite runs them.
var Tests = slices.Concat([]Test{
	{Name: "put-latency", About: "put and flush", Bytes: latencySizes, run: originOnly(putOnce)},
	{Name: "get-latency", About: "get and flush", Bytes: latencySizes, run: originOnly(getOnce)},
	{Name: "accumulate-latency", About: "accumulate (sum of int64) and flush", Unit: 8, Bytes: latencySizes, run: originOnly(accumulateOnce)},
	{Name: "get-accumulate-latency", About: "get_accumulate (sum of int64) and flush", Unit: 8, Bytes: latencySizes, run: originOnly(getAccumulateOnce)},
	{Name: "fetch-and-op-latency", About: "fetch_and_op (sum of int64) and flush", Bytes: word, Fixed: true, run: originOnly(fetchAndOpOnce)},
	{Name: "compare-and-swap-latency", About: "compare_and_swap (int64) and flush", Bytes: word, Fixed: true, run: originOnly(compareAndSwapOnce)},
	{Name: "lock-put-unlock", About: "exclusive lock, put, unlock; nobody else wants the lock", Bytes: word, run: unlocked(lockPutUnlock)},
	{Name: "fence", About: "both ranks put to each other, and fence", Bytes: word, run: active(fenceOnce)},
	{Name: "post-start", About: "both ranks post, start, put to each other, complete and wait", Bytes: word, run: active(postOnce)},
	{Name: "barrier", About: "barrier of two ranks", run: together(barrierOnce, 1)},
	{Name: "message-latency", About: "a message to the other rank, and one back", Bytes: latencySizes, run: together(messageOnce, 1)},
	{Name: "notify-latency", About: "a notified put to the other rank, which waits for it, and one back", Bytes: latencySizes, run: together(notifyOnce, 1)},
	{Name: "allreduce-latency", About: "allreduce (sum of int64) of two ranks", Unit: 8, Bytes: latencySizes, run: together(allreduceOnce, 1)},
	{Name: "put-bandwidth", About: "windows of puts, each flushed", Kind: Bandwidth, Bytes: bandwidthSizes, run: originOnly(putWindow)},
	{Name: "get-bandwidth", About: "windows of gets, each flushed", Kind: Bandwidth, Bytes: bandwidthSizes, run: originOnly(getWindow)},
	{Name: "put-bibandwidth", About: "put-bandwidth by both ranks at once", Kind: Bandwidth, Bytes: bandwidthSizes, run: bothWays(putWindow)},
	{Name: "get-bibandwidth", About: "get-bandwidth by both ranks at once", Kind: Bandwidth, Bytes: bandwidthSizes, run: bothWays(getWindow)},
	{Name: "message-bandwidth", About: "windows of messages, each answered", Kind: Bandwidth, Bytes: bandwidthSizes, run: oneWay(messageWindow)},
	{Name: "put-rate", About: "puts a second", Kind: Rate, Bytes: word, Windows: rateWindows, run: originOnly(putWindow)},
	{Name: "notify-rate", About: "notified puts a second", Kind: Rate, Bytes: word, Windows: rateWindows, run: originOnly(notifiedWindow)},
	{Name: "get-rate", About: "gets a second", Kind: Rate, Bytes: word, Windows: rateWindows, run: originOnly(getWindow)},
	{Name: "fetch-and-op-rate", About: "fetch_and_op (sum of int64) a second", Kind: Rate, Bytes: word, Fixed: true, Windows: rateWindows, run: originOnly(fetchAndOpWindow)},
}, progressTests(), []Test{
	{Name: "idle", About: "processor time of a rank without traffic", Kind: Idle, Free: true, Once: true, run: runIdle},
	{Name: "scale-put", About: "every rank puts to all others, and flushes", Bytes: word, Scale: true, run: together(putToAll, 0)},
	{Name: "scale-barrier", About: "barrier of all ranks", Scale: true, run: together(barrierOnce, 1)},
})

// pace is the time between two operations of a paced test.
const pace = 200 * time.Microsecond

// progressTests are the tests whose target is under a load and does not call the library.
func progressTests() (tests []Test) {
	for _, l := range loads() {
		t := Test{Name: "progress-" + l.name, Bytes: word, Fixed: true, Free: true, Once: l.stops, Stretch: 2,
			About: "fetch_and_op; " + l.about, load: l.name, run: progress(l, 0)}
		if !l.paced {
			tests = append(tests, t)
		}
		t.Name += "-paced"
		t.About += fmt.Sprintf(", an operation every %v", pace)
		t.pace, t.run = pace, progress(l, pace)
		tests = append(tests, t)
	}
	return tests
}

// Find returns the test of that name.
func Find(name string) (Test, bool) {
	i := slices.IndexFunc(Tests, func(t Test) bool { return t.Name == name })
	if i < 0 {
		return Test{}, false
	}
	return Tests[i], true
}

// Select returns the tests that a name stands for: one test, "all", or a group,
// "progress" or "scale".
func Select(name string) []Test {
	if t, ok := Find(name); ok {
		return []Test{t}
	}
	var group []Test
	for _, t := range Tests {
		if name == "all" || (name == "progress" || name == "scale") && strings.HasPrefix(t.Name, name+"-") {
			group = append(group, t)
		}
	}
	return group
}

// Bounds of what may be asked for.
const (
	MaxBytes  = 64 << 20 // of one operation
	MaxWindow = 1 << 16
	MaxMemory = 256 << 20 // bytes of all operations of a window
	MaxRanks  = 8
)

// windowBytes is how much the windows of a bandwidth test hold at most, but for
// one operation at least.
const windowBytes = 1 << 20

// defaultWindow is the number of operations between flushes of a bandwidth test.
func defaultWindow(bytes int) int { return min(max(windowBytes/bytes, 1), 64) }

// Points returns the settings at which t is measured by a number of ranks.
// bytes and window replace the test's own, unless they are empty and 0.
func (t *Test) Points(bytes []int, window, ranks int) ([]Point, error) {
	sizes := t.Bytes
	if len(bytes) > 0 && sizes != nil && !t.Fixed {
		sizes = bytes
	}
	if sizes == nil {
		return []Point{{Test: t.Name, Ranks: ranks}}, nil
	}
	var points []Point
	for _, size := range sizes {
		if unit := max(t.Unit, 1); size%unit != 0 {
			return nil, fmt.Errorf("%s: %d bytes are not a multiple of %d", t.Name, size, unit)
		}
		for _, w := range t.windows(size, window) {
			if size < 1 || size > MaxBytes || w > MaxWindow || size*max(w, 1) > MaxMemory {
				return nil, fmt.Errorf("%s: windows of %d operations of %d bytes: at most %d of at most %d bytes, and %d bytes in all",
					t.Name, w, size, MaxWindow, MaxBytes, MaxMemory)
			}
			points = append(points, Point{Test: t.Name, Bytes: size, Window: w, Ranks: ranks})
		}
	}
	return points, nil
}

func (t *Test) windows(size, window int) []int {
	switch {
	case t.Kind != Bandwidth && t.Kind != Rate:
		return []int{0}
	case window > 0:
		return []int{window}
	case t.Windows != nil:
		return t.Windows
	}
	return []int{defaultWindow(max(size, 1))}
}

// Floor returns the floor of a point that ranks measure over a device, and whether there
// is one. In generic mode the kernel carries joined frames several times faster than an
// AF_XDP socket does the same bytes. Natively, no frames arrive joined.
func (p Point) Floor(ranks FloorDevice) (FloorPoint, bool) {
	t, _ := Find(p.Test)
	switch {
	case t.Kind == Latency || t.Kind == Rate && p.Window == 1:
		return FloorPoint{Kind: Echo, Bytes: max(p.Bytes, smallest)}, true
	case t.Kind == Bandwidth && ranks == FloorXDPGeneric:
		return FloorPoint{Kind: JoinedStream}, true
	case t.Kind == Bandwidth:
		return FloorPoint{Kind: Stream}, true
	case t.Kind == Rate:
		return FloorPoint{Kind: Stream, Bytes: p.Bytes}, true
	}
	return FloorPoint{}, false
}

// KernelFloors returns the floors in XDP of a point, if it is a latency of a word.
// Beside a test of progress their target has the same load.
func (p Point) KernelFloors() []FloorPoint {
	if f, ok := p.Floor(FloorXDP); !ok || f != (FloorPoint{Kind: Echo, Bytes: smallest}) {
		return nil
	}
	t, _ := Find(p.Test)
	return []FloorPoint{{Kind: Kernel, Bytes: smallest, Load: t.load, Pace: t.pace}, {Kind: Memory, Bytes: smallest, Load: t.load, Pace: t.pace}}
}

// Floors returns the floors of points that ranks measure over a device, each once; those
// in XDP if inKernel is set.
func Floors(points []Point, ranks FloorDevice, inKernel bool) (floors []FloorPoint) {
	add := func(f FloorPoint) {
		if !slices.Contains(floors, f) {
			floors = append(floors, f)
		}
	}
	for _, p := range points {
		if f, ok := p.Floor(ranks); ok {
			add(f)
		}
		if inKernel {
			for _, f := range p.KernelFloors() {
				add(f)
			}
		}
	}
	return floors
}
