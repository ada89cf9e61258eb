package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/xdprma/xdprma/vmtests/machines/plan"
)

// perftest is Debian's packages that measure Soft-RoCE.
var perftest = []string{"perftest", "ibverbs-providers"}

// A contest is a measurement of this library and of Soft-RoCE, the kernel's RDMA over Ethernet.
type contest struct {
	name     string
	ours     []string // of xdprma perf
	theirs   []string // of perftest
	greater  bool     // is better
	ourField string   // of xdprma perf's JSON
	column   int      // of perftest's table
}

var contests = []contest{
	{"fetch_and_op, 8 bytes, µs", []string{"fetch-and-op-latency"}, []string{"ib_atomic_lat", "-A", "FETCH_AND_ADD"}, false, "p50_us", 4},
	{"get, 8 bytes, µs", []string{"--bytes", "8", "get-latency"}, []string{"ib_read_lat", "-s", "8"}, false, "p50_us", 4},
	// ib_write_lat halves what a write and one back take, and counts no acknowledgement, for which a put and flush waits.
	{"put, 8 bytes, µs", []string{"--bytes", "8", "put-latency"}, []string{"ib_write_lat", "-s", "8"}, false, "p50_us", 4},
	{"get, 1 MiB, MB/s", []string{"--bytes", "1M", "get-bandwidth"}, []string{"ib_read_bw", "-s", "1048576"}, true, "mb_per_s", 3},
	{"put, 1 MiB, MB/s", []string{"--bytes", "1M", "put-bandwidth"}, []string{"ib_write_bw", "-s", "1048576"}, true, "mb_per_s", 3},
}

// contestRounds is how often each is measured, one after the other.
const contestRounds = 3

// contestSteps measure both in turn, over one veth pair.
func contestSteps() (steps []plan.Step) {
	for round := range contestRounds {
		for _, c := range contests {
			iterations := "1000"
			if c.greater {
				iterations = "100"
			}
			theirs := append(slices.Clone(c.theirs), "-F", "-x", "1", "-n", iterations, "-d")
			ours := slices.Concat([]string{commands + "/xdprma", "perf", "--json", "--rounds", "1", "--duration", "1s"}, c.ours)
			steps = append(steps, plan.Step{
				Name: fmt.Sprintf("Soft-RoCE %s #%d", c.name, round), Pair: &plan.Pair{Veth: true, MTU: 1500, RDMA: true}, Dir: "/tmp", Limit: 3 * time.Minute,
				Args: [][]string{append(slices.Clone(theirs), "rxe0", "10.77.0.2"), append([]string{"stdbuf", "-oL"}, append(theirs, "rxe1")...)}, After: "Waiting for client",
			}, plan.Step{
				Name: fmt.Sprintf("xdprma %s #%d", c.name, round), Pair: &plan.Pair{Veth: true, MTU: 1500}, Dir: "/tmp", Limit: 3 * time.Minute,
				Args: [][]string{ours, ours},
			})
		}
	}
	return steps
}

// row of perftest's table: bytes, iterations, and figures.
var row = regexp.MustCompile(`(?m)^\s*\d+(\s+[\d.]+){3,}\s*$`)

// theirFigure reads a figure from perftest's table. Its MB are 2^20 bytes.
func (c *contest) theirFigure(output string) (float64, bool) {
	fields := strings.Fields(row.FindString(output))
	if len(fields) <= c.column {
		return 0, false
	}
	v, err := strconv.ParseFloat(fields[c.column], 64)
	if c.greater {
		v *= 1 << 20 / 1e6
	}
	return v, err == nil
}

// ourFigure reads it from the JSON of xdprma perf.
func (c *contest) ourFigure(output string) (float64, bool) {
	for line := range strings.Lines(output) {
		found := map[string]any{}
		if json.Unmarshal([]byte(line), &found) == nil {
			v, ok := found[c.ourField].(float64)
			return v, ok
		}
	}
	return 0, false
}

// contestTable compares the medians.
func contestTable(o *outcome) string {
	var t strings.Builder
	fmt.Fprintf(&t, "| on %s, over a veth pair (%s) | xdprma | Soft-RoCE | so much better |\n| --- | --- | --- | --- |\n", o.machine.kernel.release, o.run())
	for _, c := range contests {
		median := func(who string, read func(string) (float64, bool)) float64 {
			var all []float64
			for round := range contestRounds {
				r, _ := o.of(fmt.Sprintf("%s %s #%d", who, c.name, round))
				if v, ok := read(r.Output); ok {
					all = append(all, v)
				}
			}
			if len(all) == 0 {
				return 0
			}
			slices.Sort(all)
			return all[len(all)/2]
		}
		ours, theirs := median("xdprma", c.ourFigure), median("Soft-RoCE", c.theirFigure)
		if ours == 0 || theirs == 0 {
			fmt.Fprintf(&t, "| %s | %.0f | %.0f | not measured |\n", c.name, ours, theirs)
			continue
		}
		better := theirs / ours
		if c.greater {
			better = ours / theirs
		}
		fmt.Fprintf(&t, "| %s | %.0f | %.0f | %.2f × |\n", c.name, ours, theirs, better)
	}
	return t.String()
}
