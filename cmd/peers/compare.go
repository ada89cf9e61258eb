package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/xdprma/xdprma/cmd/internal/perf"
)

// kind says which figure of a test counts.
type kind int

const (
	latency   kind = iota // the median, in µs
	rate                  // operations a second
	bandwidth             // bytes a second
)

// units are those of the kinds.
var units = [...]string{latency: "µs", rate: "Mop/s", bandwidth: "MB/s"}

// test is what is measured of every library.
type test struct {
	name          string
	about         string
	kind          kind
	bytes, window int // 0: has none
	ranks         int
}

// least is the bytes of a test that has none.
const least = 8

// tests is the order of the table too.
var tests = []test{
	{"put-latency", "put + flush", latency, 8, 0, 2},
	{"get-latency", "get + flush", latency, 8, 0, 2},
	{"accumulate-latency", "accumulate + flush", latency, 8, 0, 2},
	{"fetch-and-op-latency", "fetch_and_op + flush", latency, 8, 0, 2},
	{"compare-and-swap-latency", "compare_and_swap + flush", latency, 8, 0, 2},
	{"lock-put-unlock", "lock, put, unlock", latency, 8, 0, 2},
	{"barrier", "barrier, 2 ranks", latency, 0, 0, 2},
	{"notify-latency", "notified put there and back (theirs: message)", latency, 8, 0, 2},
	{"message-latency", "message there and back", latency, 8, 0, 2},
	{"message-latency", "message there and back", latency, 4096, 0, 2},
	{"message-latency", "message there and back", latency, 65536, 0, 2},
	{"allreduce-latency", "allreduce, 2 ranks", latency, 8, 0, 2},
	{"allreduce-latency", "allreduce, 2 ranks", latency, 65536, 0, 2},
	{"put-latency", "put + flush", latency, 65536, 0, 2},
	{"get-latency", "get + flush", latency, 65536, 0, 2},
	{"put-rate", "puts, 1 outstanding", rate, 8, 1, 2},
	{"put-rate", "puts, 64 outstanding", rate, 8, 64, 2},
	{"put-rate", "puts, 1024 outstanding", rate, 8, 1024, 2},
	{"get-rate", "gets, 64 outstanding", rate, 8, 64, 2},
	{"get-rate", "gets, 1024 outstanding", rate, 8, 1024, 2},
	{"fetch-and-op-rate", "fetch_and_op, 64 outstanding", rate, 8, 64, 2},
	{"fetch-and-op-rate", "fetch_and_op, 1024 outstanding", rate, 8, 1024, 2},
	{"put-bandwidth", "puts, 4 outstanding", bandwidth, 1 << 20, 4, 2},
	{"get-bandwidth", "gets, 4 outstanding", bandwidth, 1 << 20, 4, 2},
	{"progress", "fetch_and_op, computing target", latency, 8, 0, 2},
	{"scale-put", "8 ranks: puts to all, flush", latency, 8, 0, 8},
	{"scale-barrier", "8 ranks: barrier", latency, 0, 0, 8},
}

// ours is what xdprma perf calls the test.
func (t test) ours() string {
	if t.name == "progress" {
		return "progress-1-busy-paced"
	}
	return t.name
}

// theirs is what rma.c calls the test. No MPI has notified operations: a message tells a
// target that data is there.
func (t test) theirs() string {
	if t.name == "notify-latency" {
		return "message-latency"
	}
	return t.name
}

// The libraries, in the order of the table.
const own = "xdprma"

var peers = []struct{ id, title string }{{"mpich", "MPICH"}, {"openmpi", "Open MPI"}}

// figures are what one library did in one round, or the medians of several.
type figures struct {
	P50    float64 `json:"p50_us,omitempty"`
	P99    float64 `json:"p99_us,omitempty"`
	Mops   float64 `json:"mops_per_s,omitempty"`
	MB     float64 `json:"mb_per_s,omitempty"`
	Rounds int     `json:"rounds"` // that gave a figure
}

// value is the figure that counts.
func (f figures) value(k kind) float64 {
	return [...]float64{latency: f.P50, rate: f.Mops, bandwidth: f.MB}[k]
}

// comparison is all that was measured.
type comparison struct {
	rounds   map[int]map[string]map[test]figures // by round and library
	floors   []float64                           // the bare echo's median in each round
	failures []string                            // library, test and what it said, each once
}

func newComparison() *comparison {
	return &comparison{rounds: map[int]map[string]map[test]figures{}}
}

// lines calls f with each line.
func lines(in io.Reader, f func(string) error) error {
	s := bufio.NewScanner(in)
	for s.Scan() {
		if err := f(s.Text()); err != nil {
			return fmt.Errorf("%q: %w", s.Text(), err)
		}
	}
	return s.Err()
}

// peer reads round, library and a line of rma.c.
func (c *comparison) peer(line string) error {
	var round, bytes, window int
	var library, name string
	var f figures
	if _, err := fmt.Sscan(line, &round, &library, &name, &bytes, &window, &f.P50, &f.P99, &f.Mops); err != nil {
		return err
	}
	f.MB = f.Mops * float64(bytes)
	for _, t := range tests {
		if t.theirs() == name && max(t.bytes, least) == bytes && max(t.window, 1) == window {
			c.add(round, library, t, f)
		}
	}
	return nil
}

// own reads round and a result of xdprma perf.
func (c *comparison) own(line string) error {
	var r perf.Result
	var round int
	if _, err := fmt.Sscan(line, &round); err != nil {
		return err
	}
	_, object, _ := strings.Cut(line, " ")
	if err := json.Unmarshal([]byte(object), &r); err != nil {
		return err
	}
	if r.Test == string(perf.Echo) {
		c.floors = append(c.floors, r.P50)
	}
	for _, t := range tests {
		if t.ours() == r.Test && t.bytes == r.Bytes && t.window == r.Window && t.ranks == r.Ranks {
			c.add(round, own, t, figures{P50: r.P50, P99: r.P99, Mops: r.MopsPerS, MB: r.MBPerS})
		}
	}
	return nil
}

func (c *comparison) failure(line string) error {
	if !slices.Contains(c.failures, line) {
		c.failures = append(c.failures, line)
	}
	return nil
}

func (c *comparison) add(round int, library string, t test, f figures) {
	if f.value(t.kind) <= 0 {
		return
	}
	if c.rounds[round] == nil {
		c.rounds[round] = map[string]map[test]figures{}
	}
	if c.rounds[round][library] == nil {
		c.rounds[round][library] = map[test]figures{}
	}
	c.rounds[round][library][t] = f
}

// medians returns a library's figures over the rounds.
func (c *comparison) medians(library string, t test) figures {
	var p50, p99, mops, mb []float64
	for _, r := range c.rounds {
		if f, ok := r[library][t]; ok {
			p50, p99, mops, mb = append(p50, f.P50), append(p99, f.P99), append(mops, f.Mops), append(mb, f.MB)
		}
	}
	return figures{perf.Median(p50), perf.Median(p99), perf.Median(mops), perf.Median(mb), len(p50)}
}

// times returns how many times as fast as a library xdprma is: the median of the
// rounds' ratios, since what a round measures of one test lies close together,
// and the machine is often another from round to round. 0 means unknown.
func (c *comparison) times(library string, t test) float64 {
	var ratios []float64
	for _, r := range c.rounds {
		mine, have := r[own][t]
		theirs, had := r[library][t]
		if !have || !had {
			continue
		}
		ratio := mine.value(t.kind) / theirs.value(t.kind)
		if t.kind == latency {
			ratio = 1 / ratio
		}
		ratios = append(ratios, ratio)
	}
	return perf.Median(ratios)
}
