package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/xdprma/xdprma/cmd/internal/perf"
	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// perfColumn is a column of a table; text is empty where it does not apply.
type perfColumn struct {
	head string
	text func(*perf.Result) string
}

var perfColumns = []perfColumn{
	{"bytes", func(r *perf.Result) string { return perf.Count(r.Bytes) }},
	{"window", func(r *perf.Result) string { return perf.Count(r.Window) }},
	{"p50", func(r *perf.Result) string { return perf.Figure(r.P50) }},
	{"p99", func(r *perf.Result) string { return perf.Figure(r.P99) }},
	{"MB/s", func(r *perf.Result) string { return perf.Figure(r.MBPerS) }},
	{"ns/byte", func(r *perf.Result) string { return perf.Figure(r.NsPerByte) }},
	{"µs/message", func(r *perf.Result) string { return perf.Figure(r.MessageTime) }},
	{"adds", func(r *perf.Result) string { return hundredths(r.Added) }},
	{"sender", func(r *perf.Result) string { return perf.Figure(r.SenderTime) }},
	{"receiver", func(r *perf.Result) string { return perf.Figure(r.ReceiverTime) }},
	{"Mop/s", func(r *perf.Result) string { return perf.Figure(r.MopsPerS) }},
	{"floor p50", func(r *perf.Result) string { return perf.Figure(r.FloorP50) }},
	{"floor p99", func(r *perf.Result) string { return perf.Figure(r.FloorP99) }},
	{"floor MB/s", func(r *perf.Result) string { return perf.Figure(r.FloorMBPerS) }},
	{"ratio", ratioText},
	{"kernel p50", func(r *perf.Result) string { return perf.Figure(r.KernelP50) }},
	{"kernel p99", func(r *perf.Result) string { return perf.Figure(r.KernelP99) }},
	{"memory p50", func(r *perf.Result) string { return perf.Figure(r.MemoryP50) }},
	{"memory p99", func(r *perf.Result) string { return perf.Figure(r.MemoryP99) }},
	{"while stopped", func(r *perf.Result) string {
		if r.WhileStopped == nil {
			return ""
		}
		return strconv.FormatUint(*r.WhileStopped, 10)
	}},
	{"allocs/op", func(r *perf.Result) string { return hundredths(r.AllocsPerOp) }},
}

// writePerfTable writes the results of one test, or of several with their names.
func writePerfTable(w io.Writer, results []*perf.Result, under string) error {
	if len(results) == 0 {
		return nil
	}
	first := results[0]
	title := fmt.Sprintf("%s (%s, MTU %d, %d ranks", first.Test, first.Mode, first.MTU, first.Ranks)
	switch first.Level {
	case secure.Sign.String():
		title += ", signed"
	case secure.Seal.String():
		title += ", sealed"
	}
	if under != "" {
		title += "; floor: " + floorText(under)
	}
	if _, err := fmt.Fprintf(w, "\n%s)\n", title); err != nil {
		return err
	}
	columns := perfColumns
	if slices.ContainsFunc(results, func(r *perf.Result) bool { return r.Test != first.Test }) {
		columns = append([]perfColumn{{"test", func(r *perf.Result) string { return r.Test }}}, columns...)
	}
	rows := make([][]string, len(results)+1)
	for _, c := range columns {
		rows[0] = append(rows[0], c.head)
		for i, r := range results {
			rows[i+1] = append(rows[i+1], c.text(r))
		}
	}
	return perf.WriteTable(w, rows)
}

func floorText(mode string) string {
	switch mode {
	case "udp":
		return "bare UDP sockets"
	case string(perf.FloorJoined):
		return "bare UDP sockets behind generic XDP, frames joined"
	}
	return "bare AF_XDP, " + mode
}

func ratioText(r *perf.Result) string {
	if t, ok := perf.Find(r.Test); ok && t.Kind == perf.Idle {
		share := 100 * r.Ratio
		return hundredths(&share) + "% of a core"
	}
	if r.Ratio == 0 {
		return ""
	}
	return hundredths(&r.Ratio)
}

// hundredths is empty for nil.
func hundredths(x *float64) string {
	if x == nil {
		return ""
	}
	return strconv.FormatFloat(*x, 'f', 2, 64)
}
