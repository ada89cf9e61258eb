package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/cmd/internal/perf"
)

// The library is measured in four rounds of which the last lacks MPICH, on a
// machine that is twice as fast in the second.
const (
	figuresFile = `1 mpich put-latency 8 1 40.000 80.000 0.000000
2 mpich put-latency 8 1 20.000 40.000 0.000000
3 mpich put-latency 8 1 44.000 90.000 0.000000
1 mpich put-rate 8 64 0.000 0.000 0.100000
1 mpich put-bandwidth 1048576 4 0.000 0.000 0.001000
1 mpich barrier 8 1 9.000 20.000 0.000000
1 openmpi scale-barrier 8 1 4000.000 9000.000 0.000000
1 mpich put-latency 9 1 1.000 1.000 0.000000
1 mpich unheard-of 8 1 1.000 1.000 0.000000
`
	ownFile = `1 {"test":"floor-echo","bytes":8,"p50_us":3.7,"mode":"xdp-native","mtu":1500,"ranks":2}
2 {"test":"floor-echo","bytes":8,"p50_us":1.4,"mode":"xdp-native","mtu":1500,"ranks":2}
1 {"test":"put-latency","bytes":8,"p50_us":4,"p99_us":9,"mode":"xdp-native","mtu":1500,"ranks":2}
2 {"test":"put-latency","bytes":8,"p50_us":4,"p99_us":9,"mode":"xdp-native","mtu":1500,"ranks":2}
3 {"test":"put-latency","bytes":8,"p50_us":4,"p99_us":9,"mode":"xdp-native","mtu":1500,"ranks":2}
4 {"test":"put-latency","bytes":8,"p50_us":400,"p99_us":9,"mode":"xdp-native","mtu":1500,"ranks":2}
1 {"test":"put-rate","bytes":8,"window":64,"mops_per_s":4,"mb_per_s":32,"mode":"xdp-native","mtu":1500,"ranks":2}
1 {"test":"put-bandwidth","bytes":1048576,"window":4,"mops_per_s":0.002,"mb_per_s":2097.152,"mode":"xdp-native","mtu":1500,"ranks":2}
1 {"test":"barrier","p50_us":3,"mode":"xdp-native","mtu":1500,"ranks":2}
1 {"test":"scale-barrier","p50_us":200,"mode":"xdp-native","mtu":1500,"ranks":8}
1 {"test":"scale-barrier","p50_us":2,"mode":"xdp-native","mtu":1500,"ranks":4}
1 {"test":"progress-1-busy-paced","bytes":8,"p50_us":25,"mode":"xdp-native","mtu":1500,"ranks":2}
`
	failuresFile = "openmpi put-latency no end\nopenmpi put-latency no end\n"
)

func sample(t *testing.T) *comparison {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"figures": figuresFile, "ours": ownFile, "failures": failuresFile} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c, err := read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTableListsEachPeersResults(t *testing.T) {
	var out strings.Builder
	if err := sample(t).print(&out, 1500); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	all := "\n" + strings.Join(got, "\n") + "\n"
	for _, want := range []string{
		"MTU 1500 bytes unit xdprma MPICH Open MPI × MPICH × Open MPI",
		"put + flush 8 µs 4.00 40.0 failed 10.0", // 10, 5 and 11 times
		"puts, 64 outstanding 8 Mop/s 4.00 0.1000 failed 40.0",
		"puts, 4 outstanding 1048576 MB/s 2097 1049 failed 2.00",
		"barrier, 2 ranks µs 3.00 9.00 failed 3.00",
		"8 ranks: barrier µs 200 failed 4000 20.0",
		"get + flush 8 µs failed failed failed",
		"bare AF_XDP echo of 8 bytes, by round: 1.4 to 3.7 µs",
		"failed: openmpi put-latency no end",
	} {
		if strings.Count(all, "\n"+want+"\n") != 1 {
			t.Errorf("no line, or several, %q in\n%s", want, all)
		}
	}
}

func TestResultsSurviveJSON(t *testing.T) {
	var out bytes.Buffer
	if err := sample(t).json(&out, 9000); err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(&out)
	for i, want := range tests {
		var l line
		if err := d.Decode(&l); err != nil {
			t.Fatal(err)
		}
		if l.Test != want.name || l.Bytes != want.bytes || l.Window != want.window || l.MTU != 9000 {
			t.Errorf("line %d is %+v", i, l)
		}
		if i == 0 && (l.Libraries["mpich"].P99 != 80 || l.Libraries["mpich"].Rounds != 3 || l.Libraries["openmpi"] != nil || l.Times["mpich"] != 10) {
			t.Errorf("%+v", l)
		}
	}
}

// Each row's test exists once, with settings that xdprma perf takes.
func TestTestsExist(t *testing.T) {
	seen := map[test]bool{}
	for _, test := range tests {
		about := test.about
		test.about = ""
		if seen[test] {
			t.Errorf("%s twice", about)
		}
		seen[test] = true
		found, ok := perf.Find(test.ours())
		if !ok {
			t.Errorf("xdprma perf has no test %s", test.ours())
			continue
		}
		var bytes []int
		if test.bytes > 0 {
			bytes = []int{test.bytes}
		}
		points, err := found.Points(bytes, test.window, test.ranks)
		if err != nil {
			t.Error(err)
		}
		if test.window == 0 && (len(points) != 1 || points[0].Bytes != test.bytes) {
			t.Errorf("%s is measured as %+v", about, points)
		}
	}
}

func TestBadInput(t *testing.T) {
	c := newComparison()
	if err := lines(strings.NewReader("1 mpich crashed"), c.peer); err == nil {
		t.Error("a line that is no figure was accepted")
	}
	for _, bad := range []string{"no round", "1 {"} {
		if err := lines(strings.NewReader(bad), c.own); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	for _, args := range [][]string{nil, {"table"}, {"table", "x", "y"}, {"table", "1500", filepath.Join(t.TempDir(), "none")}} {
		if err := run(&strings.Builder{}, args); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}
