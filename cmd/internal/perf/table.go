package perf

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
)

// WriteTable writes rows, the first of which has the heads, in columns aligned at the right.
// A column with nothing below its head is left out.
func WriteTable(out io.Writer, rows [][]string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		for i, cell := range row {
			if slices.ContainsFunc(rows[1:], func(r []string) bool { return r[i] != "" }) {
				fmt.Fprint(w, cell, "\t")
			}
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// Figure has three significant digits, or all before the point. It is empty for 0.
func Figure(x float64) string {
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

// Count is empty for 0.
func Count(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// Median returns the middle of values, of an even number the mean of the two in the middle,
// and 0 of none. It sorts them.
func Median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	slices.Sort(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
