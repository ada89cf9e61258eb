package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/xdprma/xdprma/internal/perf"
)

// perfReport prints results as they come, and keeps them for a drawing.
type perfReport struct {
	out     io.Writer
	json    bool
	begun   bool
	results []*perf.Result
	err     error // the first of writing
}

func newPerfReport(out io.Writer, json bool) *perfReport {
	return &perfReport{out: out, json: json}
}

// add prints the results of one test. under names what its floor ran on.
func (p *perfReport) add(results []*perf.Result, under string) {
	p.results = append(p.results, results...)
	var err error
	if p.json {
		err = writePerfJSON(p.out, results)
	} else {
		if !p.begun {
			_, err = fmt.Fprintf(p.out, "%s; latency in µs, MB/s of 10^6 payload bytes, Mop/s of 10^6 operations\n", perfMachine())
			p.begun = true
		}
		if err == nil {
			err = writePerfTable(p.out, results, under)
		}
	}
	if p.err == nil {
		p.err = err
	}
}

// finish draws the results into an SVG file, if one is named.
func (p *perfReport) finish(plot string) error {
	if p.err != nil || plot == "" {
		return p.err
	}
	f, err := os.Create(plot)
	if err != nil {
		return err
	}
	err = writePerfPlot(f, p.results)
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// writePerfJSON writes an object a line, with three digits after the point.
func writePerfJSON(w io.Writer, results []*perf.Result) error {
	for _, r := range results {
		rounded := *r
		for _, f := range []*float64{&rounded.P50, &rounded.P99, &rounded.MBPerS, &rounded.FloorP50, &rounded.FloorP99, &rounded.FloorMBPerS} {
			*f = round(*f, 3)
		}
		rounded.MopsPerS, rounded.Ratio = round(r.MopsPerS, 6), round(r.Ratio, 5)
		if r.AllocsPerOp != nil {
			each := round(*r.AllocsPerOp, 4)
			rounded.AllocsPerOp = &each
		}
		b, err := json.Marshal(&rounded)
		if err != nil {
			return err
		}
		if _, err := w.Write(append(b, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// round keeps a number of digits after the point.
func round(x float64, digits int) float64 {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'f', digits, 64), 64) // its own format
	return rounded
}
