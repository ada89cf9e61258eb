package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/cmd/internal/perf"
	"github.com/xdprma/xdprma/internal/lab/testenv"
)

var updateGolden = flag.Bool("update", false, "write the golden files of perf anew")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *updateGolden {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// perfSample has a result of each shape.
func perfSample() []*perf.Result {
	none, some, added := 0.0, 1.23456, 0.852712
	return []*perf.Result{
		{Test: "put-latency", Bytes: 8, P50: 5.1234567, P99: 123.4567, FloorP50: 3.7, FloorP99: 6.65, KernelP50: 1.2345678, KernelP99: 2.5, MemoryP50: 1.1345678, MemoryP99: 2.25, Ratio: 1.3846999, Mode: "xdp-native", MTU: 1500, Ranks: 2, AllocsPerOp: &none},
		{Test: "put-latency", Bytes: 65536, P50: 86.1, P99: 1218, FloorP50: 42.7, FloorP99: 60.9, Ratio: 2.02, Mode: "xdp-native", MTU: 1500, Ranks: 2, AllocsPerOp: &some},
		{Test: "put-bandwidth", Bytes: 1024, Window: 64, MBPerS: 548.1239, MopsPerS: 0.5353, FloorMBPerS: 655.5, Ratio: 0.84, Mode: "udp", MTU: 1500, Ranks: 2, AllocsPerOp: &none},
		{Test: "put-bandwidth", Bytes: 1 << 20, Window: 1, MBPerS: 1145, MopsPerS: 0.00109, FloorMBPerS: 655.5, Ratio: 1.75, Mode: "udp", MTU: 1500, Ranks: 2, AllocsPerOp: &none},
		{Test: "progress-stopped-paced", Bytes: 8, P50: 3001024.511, P99: 3001024.511, FloorP50: 3.7, FloorP99: 6.65, KernelP50: 3.5, KernelP99: 6, MemoryP50: 3, MemoryP99: 5, Ratio: 811087.7, WhileStopped: new(uint64), Mode: "xdp-native", MTU: 1500, Ranks: 2, AllocsPerOp: &none},
		{Test: "idle", Ratio: 0.004931, Mode: "udp", MTU: 1500, Ranks: 2},
		{Test: "costs-joined", Bytes: 64768, MBPerS: 4000.1239, NsPerByte: 0.249992256, MessageTime: 16.1914985, SenderTime: 15.2514985, ReceiverTime: 9.5, Mode: "udp behind xdp-generic", MTU: 1500, Ranks: 2},
		{Test: "costs-pieces", Bytes: 64768, MBPerS: 3800, NsPerByte: 0.263157895, MessageTime: 17.0442105, Added: &added, Mode: "udp behind xdp-generic", MTU: 1500, Ranks: 2},
		{Test: "floor-stream", MBPerS: 1638, Mode: "xdp-native", MTU: 1500, Ranks: 2},
	}
}

func TestPerfTable(t *testing.T) {
	var b bytes.Buffer
	all := perfSample()
	for _, part := range [][]*perf.Result{all[:2], all[2:4], all[4:5], all[5:6], all[6:8], {all[8], all[0]}, nil} {
		if err := writePerfTable(&b, part, map[bool]string{true: "xdp-native"}[len(part) == 2 && part[1].Added == nil]); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "perf_table.txt", b.Bytes())
}

func TestPerfJSON(t *testing.T) {
	saved := filepath.Join(t.TempDir(), "results.json")
	for _, json := range []bool{true, false} {
		var b bytes.Buffer
		report, err := newPerfReport(&b, json, saved, "")
		if err != nil {
			t.Fatal(err)
		}
		report.origin = func() perfOrigin {
			return perfOrigin{Time: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC), Host: "node1", Version: "v0.4.0"}
		}
		report.add(perfSample(), "")
		if err := report.finish(); err != nil {
			t.Fatal(err)
		}
		if json {
			golden(t, "perf.json", b.Bytes())
		}
		copied, err := os.ReadFile(saved)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "perf.json", copied)
	}
	for _, plot := range []bool{false, true} {
		names := [2]string{filepath.Join(t.TempDir(), "results.json"), t.TempDir()}
		if plot {
			names[0], names[1] = names[1], names[0]
		}
		if _, err := newPerfReport(io.Discard, false, names[0], names[1]); err == nil {
			t.Errorf("a directory was opened to write to, of %q", names)
		}
	}
}

// The drawing has a line for each test and one for the floors of each chart, with a point for
// each size, and a name for each line.
func TestPerfPlot(t *testing.T) {
	var b bytes.Buffer
	if err := writePerfPlot(&b, perfSample(), 2); err != nil {
		t.Fatal(err)
	}
	var svg struct {
		Charts []struct {
			Lines []struct {
				Points string `xml:"points,attr"`
			} `xml:"polyline"`
			Texts []string `xml:"text"`
		} `xml:"g"`
	}
	if err := xml.Unmarshal(b.Bytes(), &svg); err != nil {
		t.Fatal(err)
	}
	want := [][]string{
		{"latency p50, µs (xdp-native, MTU 1500, --busy 2)", "8", "32K", "put-latency", "floor"},
		{"bandwidth, MB/s (xdp-native, MTU 1500, --busy 2)", "1K", "1M", "put-bandwidth", "floor"},
	}
	if len(svg.Charts) != len(want) {
		t.Fatalf("%d charts, want %d", len(svg.Charts), len(want))
	}
	for i, chart := range svg.Charts {
		for _, text := range want[i] {
			if !slices.Contains(chart.Texts, text) {
				t.Errorf("chart %d lacks the text %q: %q", i, text, chart.Texts)
			}
		}
		if len(chart.Lines) != 2 {
			t.Errorf("chart %d has %d lines, want 2", i, len(chart.Lines))
		}
		for _, line := range chart.Lines {
			var x0, y0, x1, y1 float64
			if _, err := fmt.Sscanf(line.Points, "%g,%g %g,%g", &x0, &y0, &x1, &y1); err != nil || x1 <= x0 {
				t.Errorf("chart %d has a line through %q: %v", i, line.Points, err)
			}
			// The bandwidth's floor alone is the same at both sizes; all else is more at the larger.
			if level := i == 1 && y0 == y1; !level && y1 >= y0 {
				t.Errorf("chart %d has a line through %q", i, line.Points)
			}
		}
	}
	if err := writePerfPlot(io.Discard, perfSample()[5:], 0); err == nil {
		t.Error("nothing to draw, and no error")
	}
}

func TestPlotDrawsMedians(t *testing.T) {
	draw := func(values ...float64) string {
		results := []*perf.Result{{Test: "put-latency", Bytes: 64, P50: 2}}
		for _, v := range values {
			results = append(results, &perf.Result{Test: "put-latency", Bytes: 8, P50: v})
		}
		var b strings.Builder
		if err := writePerfPlot(&b, results, 0); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if got, want := draw(3, 9, 4), draw(4); got != want {
		t.Errorf("3, 9 and 4 are drawn as\n%s\nand 4 as\n%s", got, want)
	}
}

// parsePerfLine parses a command line as main does, and does nothing else.
func parsePerfLine(args ...string) (o *perfOptions, err error) {
	c := perfCommand()
	c.ExitErrHandler = func(context.Context, *cli.Command, error) {}
	c.Action = func(_ context.Context, c *cli.Command) error {
		o, err = parsePerf(c)
		return err
	}
	if e := c.Run(context.Background(), append([]string{"perf"}, args...)); err == nil {
		err = e
	}
	return o, err
}

func TestPerfArguments(t *testing.T) {
	o, err := parsePerfLine("put-latency", "--bytes", "8, 4K,1M", "barrier", "--window", "16", "--duration", "1s", "put-latency", "--json")
	if err != nil {
		t.Fatal(err)
	}
	if len(o.tests) != 2 || !slices.Equal(o.bytes, []int{8, 4096, 1 << 20}) || o.window != 16 || o.duration != time.Second || !o.json || o.floor || o.mtu != 1500 {
		t.Errorf("%+v", o)
	}
	o, err = parsePerfLine("all")
	if err != nil || len(o.tests) != len(perf.Tests) || !o.floor || !slices.Equal(o.scales(), []int{2, 4, 8}) {
		t.Errorf("%+v, %v", o, err)
	}
	o, err = parsePerfLine("scale", "floor", "--ranks", "3")
	if err != nil || len(o.tests) != 2 || !o.floor || !slices.Equal(o.scales(), []int{2, 3}) {
		t.Errorf("%+v, %v", o, err)
	}
	for want, args := range map[string][]string{
		"no test given":          {},
		`there is no test "put"`: {"put"},
		"--bytes: \"0\"":         {"put-latency", "--bytes", "0"},
		"--bytes: \"8k\"":        {"put-latency", "--bytes", "8k"},
		"--bytes: \"\"":          {"put-latency", "--bytes", "8,"},
		"--bytes: \"99999999M\"": {"put-latency", "--bytes", "99999999M"},
		"not a multiple of 8":    {"accumulate-latency", "--bytes", "12"},
		"--window is -1":         {"put-rate", "--window=-1"},
		"bytes in all":           {"put-bandwidth", "--bytes", "1M", "--window", "10000"},
		"--mtu is 100,":          {"barrier", "--mtu", "100"},
		"--queues is 0":          {"barrier", "--queues", "0"},
		"--duration is 0s":       {"barrier", "--duration", "0s"},
		"--iterations is -5":     {"barrier", "--iterations=-5"},
		"--rounds is 0":          {"barrier", "--rounds", "0"},
		"--ranks is 9":           {"scale", "--ranks", "9"},
		"--busy is -1":           {"barrier", "--busy=-1"},
		"--busy is 65":           {"barrier", "--busy", "65"},
		`transport "rdma" is not auto, xdp, xdp-native, xdp-generic, shared or udp`: {"barrier", "--transport", "rdma"},
	} {
		_, err := parsePerfLine(args...)
		exit, ok := errors.AsType[*exitError](err)
		if !ok || exit.status != statusUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// perfResults reads what --json printed, and checks that each has the fields of
// its kind.
func perfResults(t *testing.T, b *bytes.Buffer, floor bool) []perf.Result {
	t.Helper()
	var results []perf.Result
	for line := range strings.Lines(b.String()) {
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		var r perfRecord
		if err := d.Decode(&r); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		results = append(results, *r.Result)
		test, known := perf.Find(r.Test)
		figure := r.P50
		if known && test.Kind != perf.Latency {
			figure = r.MBPerS
		}
		if !known || r.Time.IsZero() || r.Host == "" || r.Version == "" || figure <= 0 || r.Mode == "" || r.MTU == 0 || r.AllocsPerOp == nil || floor && r.Ratio <= 0 {
			t.Errorf("incomplete: %s", line)
		}
	}
	return results
}

func TestPerfMeasures(t *testing.T) {
	testenv.NeedsRoot(t)
	plot := filepath.Join(t.TempDir(), "plot.svg")
	c := command(t, "perf", "put-latency", "get-bibandwidth", "barrier", "progress-1-busy",
		"scale-put", "--ranks", "3", "--bytes", "8,9000", "--json", "--iterations", "20", "--rounds", "2", "--plot", plot)
	if s := c.run(t); s != 0 {
		t.Fatalf("status %d: %s", s, &c.stderr)
	}
	all := c.stdout.String()
	results := perfResults(t, &c.stdout, true)
	for _, r := range results { // of one word each, but for the bandwidths
		if word := r.Bytes <= 8 && r.P50 > 0; (r.KernelP50 > 0) != word || (r.KernelP99 > 0) != word || (r.MemoryP50 > 0) != word || (r.MemoryP99 > 0) != word {
			t.Errorf("%s, %d bytes: floors in the kernel %v and %v, %v and %v µs", r.Test, r.Bytes, r.KernelP50, r.KernelP99, r.MemoryP50, r.MemoryP99)
		}
	}
	for _, name := range []string{`"floor_p50_us":`, `"kernel_floor_p50_us":`, `"kernel_floor_p99_us":`, `"memory_floor_p50_us":`, `"memory_floor_p99_us":`} {
		if !strings.Contains(all, name) {
			t.Errorf("no %s in %s", name, all)
		}
	}
	if want := 2 + 2 + 1 + 1 + 2*2; len(results) != want {
		t.Errorf("%d results, want %d: %s", len(results), want, &c.stdout)
	}
	if _, err := os.Stat(plot); err != nil {
		t.Error(err)
	}
}

func TestPerfWithoutPrivileges(t *testing.T) {
	c := nobody(command(t, "perf", "floor", "get-latency", "put-rate", "--transport", "udp", "--bytes", "8,20000", "--json", "--duration", "20ms", "--rounds", "1"))
	if s := c.run(t); s != 0 {
		t.Fatalf("status %d: %s", s, &c.stderr)
	}
	if n := strings.Count(c.stdout.String(), `{"test":"floor-`); n != 7 {
		t.Errorf("%d floors in %s", n, &c.stdout)
	}
	var measured bytes.Buffer
	for line := range strings.Lines(c.stdout.String()) {
		if !strings.Contains(line, `"test":"floor-`) {
			measured.WriteString(line)
		}
	}
	if got := perfResults(t, &measured, true); len(got) != 2+2*3 {
		t.Errorf("%d results: %s", len(got), &c.stdout)
	}
}

// There are floors in the kernel over every transport but UDP, with one queue, over a
// bridge too.
func TestPerfKernelFloorsFollowTheTransport(t *testing.T) {
	testenv.NeedsRoot(t)
	for _, test := range []struct {
		args   []string
		kernel bool
	}{
		{[]string{"--transport", "auto"}, true},
		{[]string{"--transport", "xdp-generic"}, true},
		{[]string{"--transport", "udp"}, false},
		{[]string{"--ranks", "2", "--queues", "2"}, false},
	} {
		c := command(t, append([]string{"perf", "scale-barrier", "--ranks", "3", "--json", "--iterations", "20", "--rounds", "1"}, test.args...)...)
		if s := c.run(t); s != 0 {
			t.Fatalf("%q: status %d: %s", test.args, s, &c.stderr)
		}
		for _, r := range perfResults(t, &c.stdout, true) {
			if (r.KernelP50 > 0) != test.kernel || (r.MemoryP50 > 0) != test.kernel {
				t.Errorf("%q, %d ranks: floors in the kernel %v and %v µs", test.args, r.Ranks, r.KernelP50, r.MemoryP50)
			}
		}
	}
}

// The floor of bandwidths is a stream of joined UDP frames beneath ranks in generic mode, and
// an AF_XDP stream beneath those in native mode. The tables say which.
func TestPerfFloorFollowsTheModeOfRanks(t *testing.T) {
	testenv.NeedsRoot(t)
	const joined, bare = "floor: bare UDP sockets behind generic XDP, frames joined", "floor: bare AF_XDP, "
	for _, transport := range []string{"auto", "xdp-native", "xdp-generic"} {
		args := []string{"perf", "put-bandwidth", "put-rate", "--bytes", "8192", "--transport", transport, "--iterations", "20", "--rounds", "1"}
		if transport == "xdp-generic" {
			args = append(args, "floor")
		}
		c := command(t, args...)
		if s := c.run(t); s != 0 {
			t.Fatalf("%s: status %d: %s", transport, s, &c.stderr)
		}
		out := c.stdout.String()
		generic := strings.Contains(out, "put-bandwidth (xdp-generic, ")
		if transport != "auto" && generic != (transport == "xdp-generic") {
			t.Errorf("%s: the ranks' mode is another one", transport)
		}
		want := []string{"put-bandwidth (xdp-native, MTU 1500, 2 ranks; " + bare + "xdp-native)", "put-rate (xdp-native, MTU 1500, 2 ranks; " + bare + "xdp-native)"}
		if generic {
			want = []string{"put-bandwidth (xdp-generic, MTU 1500, 2 ranks; " + joined + ")", "put-rate (xdp-generic, MTU 1500, 2 ranks; " + bare + "xdp-generic)"}
		}
		if transport == "xdp-generic" {
			want = append(want, "floor-kernel", "floor-memory", "floor-stream-joined")
		}
		for _, line := range want {
			if !strings.Contains(out, line) {
				t.Errorf("%s: no %q in\n%s", transport, line, out)
			}
		}
		if !generic && strings.Contains(out, "joined") {
			t.Errorf("%s: a floor of joined frames in\n%s", transport, out)
		}
	}
}

// The costs are those of joined frames, which ranks in native mode do not send.
func TestPerfCosts(t *testing.T) {
	modes(t, func(t *testing.T, command func(...string) *invocation) {
		c := command("perf", "costs", "--json", "--duration", "10ms", "--rounds", "2")
		if s := c.run(t); s != 0 {
			t.Fatalf("status %d: %s", s, &c.stderr)
		}
		d := json.NewDecoder(&c.stdout)
		for i, cost := range perf.Costs {
			var r perf.Result
			if err := d.Decode(&r); err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
			if r.Test != string(cost.Kind) || r.Bytes == 0 || r.MBPerS <= 0 || r.NsPerByte <= 0 || r.MessageTime <= 0 || r.SenderTime <= 0 || r.ReceiverTime <= 0 || (r.Added == nil) != (i == 0) {
				t.Errorf("step %d, %s: %+v", i, cost.Kind, r)
			}
		}
		if d.More() {
			t.Error("more results than steps")
		}
	})
}

func TestPerfNoCostsInNativeMode(t *testing.T) {
	testenv.NeedsRoot(t)
	c := command(t, "perf", "costs", "--transport", "xdp-native")
	if s := c.run(t); s != statusFailed || !strings.Contains(c.stderr.String(), "--transport xdp-generic") {
		t.Errorf("status %d: %s", s, &c.stderr)
	}
}

// A target that is stopped goes on, and the test says how many operations finished
// before. There are floors in the kernel where there are namespaces.
func TestPerfTargetStopped(t *testing.T) {
	modes(t, func(t *testing.T, command func(...string) *invocation) {
		c := command("perf", "progress-stopped-paced", "progress-gc-paced", "--json", "--duration", "20ms", "--rounds", "1")
		if s := c.run(t); s != 0 {
			t.Fatalf("status %d: %s", s, &c.stderr)
		}
		results := perfResults(t, &c.stdout, true)
		if len(results) != 2 {
			t.Fatalf("%d results: %s", len(results), &c.stdout)
		}
		for _, r := range results {
			if stops := r.Test == "progress-stopped-paced"; (r.WhileStopped != nil) != stops {
				t.Errorf("%s: finished while stopped: %v", r.Test, r.WhileStopped)
			}
			if inNamespaces := r.Mode != "udp"; (r.KernelP50 > 0) != inNamespaces || (r.MemoryP50 > 0) != inNamespaces {
				t.Errorf("%s, %s: floors in the kernel %v and %v µs", r.Test, r.Mode, r.KernelP50, r.MemoryP50)
			}
		}
	})
}

// argument returns an argument of a process, and nothing if it has ended.
func argument(pid, i int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	arguments := strings.Split(string(b), "\x00")
	if i >= len(arguments) {
		return ""
	}
	return arguments[i]
}

// statFields returns the fields of a process's /proc/PID/stat from its state on, and none if it has ended.
func statFields(pid int) []string { return fieldsOf(fmt.Sprintf("/proc/%d/stat", pid)) }

func fieldsOf(stat string) []string {
	b, _ := os.ReadFile(stat)
	_, fields, _ := strings.Cut(string(b), ") ")
	return strings.Fields(fields)
}

// gone reports whether a process has ended, with all its threads, so that its parent can know.
func gone(pid int) bool {
	fields := statFields(pid)
	return len(fields) < 18 || fields[0] == "Z" && fields[17] == "1"
}

// stopped reports whether a process is stopped by a signal, with all its threads, so that its parent can know.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	return len(threads) > 0 && !slices.ContainsFunc(threads, func(stat string) bool {
		fields := fieldsOf(stat)
		return len(fields) > 0 && fields[0] != "T"
	})
}

// ranks returns the processes of a measurement that are ranks.
func (c *invocation) ranks(t *testing.T) []int {
	t.Helper()
	return slices.DeleteFunc(c.children(t), func(pid int) bool { return argument(pid, 1) != perfRankName })
}

// An origin that is killed while its target is stopped leaves no stopped process.
func TestPerfOriginDiesWhileTargetIsStopped(t *testing.T) {
	modes(t, func(t *testing.T, command func(...string) *invocation) {
		c := command("perf", "progress-stopped-paced", "--rounds", "1", "--duration", "60s")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		var target int
		testenv.Await(t, "a stopped process", func() bool {
			pids := c.ranks(t)
			i := slices.IndexFunc(pids, stopped)
			if i < 0 || len(pids) != 2 {
				return false
			}
			target = pids[i]
			if err := unix.Kill(pids[1-i], unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			return true
		})
		if s := c.finish(t); s == 0 {
			t.Errorf("status %d, stopped process %d: %s", s, target, &c.stdout)
		}
		if stopped(target) {
			t.Errorf("process %d is still stopped", target)
		}
	})
}

func TestPerfInJob(t *testing.T) {
	c := nobody(command(t, "run", "-n", "2", "--transport", "udp", "--", binary, "perf", "put-latency", "scale-barrier", "--iterations", "20", "--json"))
	if s := c.run(t); s != 0 {
		t.Fatalf("status %d: %s", s, &c.stderr)
	}
	out := bytes.NewBufferString(strings.ReplaceAll(c.stdout.String(), "[0] ", ""))
	if got := perfResults(t, out, false); len(got) != 5 {
		t.Errorf("%d results: %s", len(got), &c.stdout)
	}
}

func TestPerfUsage(t *testing.T) {
	for _, args := range [][]string{{"perf"}, {"perf", "nothing"}, {"perf-rank", "no plan"}} {
		c := command(t, args...)
		if s := c.run(t); s != statusUsage {
			t.Errorf("%q: status %d: %s", args, s, &c.stderr)
		}
	}
}

// A signal ends the measurement at any time, and nothing is left.
func TestPerfInterrupted(t *testing.T) {
	testenv.NeedsRoot(t)
	for _, test := range []string{"floor", "barrier"} {
		c := command(t, "perf", test, "--duration", "60s")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		testenv.Await(t, "its network", func() bool { return len(c.leftovers()) > 2 })
		if err := c.Process.Signal(unix.SIGINT); err != nil {
			t.Fatal(err)
		}
		if s := c.finish(t); s == 0 {
			t.Errorf("%s: status 0: %s", test, &c.stdout)
		}
	}
}

// children returns the processes that c has started and not reaped.
func (c *invocation) children(t *testing.T) (pids []int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", c.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, _ := os.ReadFile(file) // a thread that has ended has no children
		for _, field := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// A rank that dies ends the measurement with its status.
func TestPerfRankDies(t *testing.T) {
	modes(t, func(t *testing.T, command func(...string) *invocation) {
		c := command("perf", "put-latency", "--duration", "60s", "--rounds", "1")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		var pids []int
		testenv.Await(t, "two ranks", func() bool { pids = c.ranks(t); return len(pids) == 2 })
		if err := unix.Kill(pids[0], unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if s := c.finish(t); s == 0 {
			t.Errorf("status 0: %s", &c.stdout)
		}
	})
}
