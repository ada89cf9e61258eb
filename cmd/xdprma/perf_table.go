package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/xdprma/xdprma/internal/lab/perf"
)

// perfColumn is a column of a table; text is empty where it does not apply.
type perfColumn struct {
	head string
	text func(*perf.Result) string
}

var perfColumns = []perfColumn{
	{"bytes", func(r *perf.Result) string { return count(r.Bytes) }},
	{"window", func(r *perf.Result) string { return count(r.Window) }},
	{"p50", func(r *perf.Result) string { return figure(r.P50) }},
	{"p99", func(r *perf.Result) string { return figure(r.P99) }},
	{"MB/s", func(r *perf.Result) string { return figure(r.MBPerS) }},
	{"ns/byte", func(r *perf.Result) string { return figure(r.NsPerByte) }},
	{"µs/message", func(r *perf.Result) string { return figure(r.MessageTime) }},
	{"adds", func(r *perf.Result) string {
		if r.Added == nil {
			return ""
		}
		return strconv.FormatFloat(*r.Added, 'f', 2, 64)
	}},
	{"sender", func(r *perf.Result) string { return figure(r.SenderTime) }},
	{"receiver", func(r *perf.Result) string { return figure(r.ReceiverTime) }},
	{"Mop/s", func(r *perf.Result) string { return figure(r.MopsPerS) }},
	{"floor p50", func(r *perf.Result) string { return figure(r.FloorP50) }},
	{"floor p99", func(r *perf.Result) string { return figure(r.FloorP99) }},
	{"floor MB/s", func(r *perf.Result) string { return figure(r.FloorMBPerS) }},
	{"ratio", ratioText},
	{"kernel p50", func(r *perf.Result) string { return figure(r.KernelP50) }},
	{"kernel p99", func(r *perf.Result) string { return figure(r.KernelP99) }},
	{"while stopped", func(r *perf.Result) string {
		if r.WhileStopped == nil {
			return ""
		}
		return strconv.FormatUint(*r.WhileStopped, 10)
	}},
	{"allocs/op", func(r *perf.Result) string {
		if r.AllocsPerOp == nil {
			return ""
		}
		return strconv.FormatFloat(*r.AllocsPerOp, 'f', 2, 64)
	}},
}

// writePerfTable writes the results of one test, in aligned columns of which
// those without a figure are left out.
func writePerfTable(w io.Writer, results []*perf.Result, under string) error {
	if len(results) == 0 {
		return nil
	}
	var b strings.Builder
	first := results[0]
	fmt.Fprintf(&b, "\n%s (%s, MTU %d, %d ranks", first.Test, first.Mode, first.MTU, first.Ranks)
	if under != "" {
		fmt.Fprintf(&b, "; floor: %s", floorText(under))
	}
	b.WriteString(")\n")
	lines := make([]strings.Builder, len(results)+1)
	named := false // which test a row is of, where there are several
	for _, r := range results {
		named = named || r.Test != first.Test
	}
	columns := perfColumns
	if named {
		columns = append([]perfColumn{{"test", func(r *perf.Result) string { return r.Test }}}, columns...)
	}
	for _, c := range columns {
		addColumn(lines, c, results)
	}
	for i := range lines {
		b.WriteString(lines[i].String())
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// addColumn appends one column to the lines, unless it is empty.
func addColumn(lines []strings.Builder, c perfColumn, results []*perf.Result) {
	cells := []string{c.head}
	width, empty := 0, true
	for _, r := range results {
		cells = append(cells, c.text(r))
	}
	for i, cell := range cells {
		width = max(width, utf8.RuneCountInString(cell))
		empty = empty && (i == 0 || cell == "")
	}
	if empty {
		return
	}
	for i, cell := range cells {
		lines[i].WriteString(strings.Repeat(" ", width-utf8.RuneCountInString(cell)+2) + cell)
	}
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

func count(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// figure has three significant digits, or all before the point.
func figure(x float64) string {
	switch {
	case x == 0:
		return ""
	case x >= 100:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x >= 10:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case x >= 1:
		return strconv.FormatFloat(x, 'f', 2, 64)
	}
	return strconv.FormatFloat(x, 'f', 4, 64)
}

func ratioText(r *perf.Result) string {
	if t, ok := perf.Find(r.Test); ok && t.Kind == perf.Idle {
		return strconv.FormatFloat(100*r.Ratio, 'f', 2, 64) + "% of a core"
	}
	if r.Ratio == 0 {
		return ""
	}
	return strconv.FormatFloat(r.Ratio, 'f', 2, 64)
}
