package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/xdprma/xdprma/cmd/internal/perf"
)

// perfReport prints results as they come, and keeps them for a drawing.
type perfReport struct {
	out     io.Writer
	json    bool
	saved   *os.File // gets an object a line, whatever out gets; may be nil
	begun   bool
	results []*perf.Result
	err     error // the first of writing
}

// newPerfReport reports to out, and into the file save unless that is empty.
func newPerfReport(out io.Writer, json bool, save string) (*perfReport, error) {
	p := &perfReport{out: out, json: json}
	if save != "" {
		f, err := os.Create(save)
		if err != nil {
			return nil, err
		}
		p.saved = f
	}
	return p, nil
}

// add prints the results of one test. under names what its floor ran on.
func (p *perfReport) add(results []*perf.Result, under string) {
	p.results = append(p.results, results...)
	if p.saved != nil {
		p.fail(writePerfJSON(p.saved, results))
	}
	if p.json {
		p.fail(writePerfJSON(p.out, results))
		return
	}
	if !p.begun {
		_, err := fmt.Fprintf(p.out, "%s; latency in µs, MB/s of 10^6 payload bytes, Mop/s of 10^6 operations\n", perfMachine())
		p.fail(err)
		p.begun = true
	}
	p.fail(writePerfTable(p.out, results, under))
}

// fail keeps the first error.
func (p *perfReport) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// finish closes the file of results, and draws what there is into an SVG file if
// one is named.
func (p *perfReport) finish(plot string) error {
	if p.saved != nil {
		p.fail(p.saved.Close())
	}
	if p.err != nil || plot == "" || len(p.results) == 0 {
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

// writePerfJSON writes an object a line, with six digits after the point.
func writePerfJSON(w io.Writer, results []*perf.Result) error {
	e := json.NewEncoder(w)
	for _, r := range results {
		rounded := *r
		for _, f := range []*float64{&rounded.P50, &rounded.P99, &rounded.MBPerS, &rounded.NsPerByte, &rounded.MessageTime, &rounded.SenderTime,
			&rounded.ReceiverTime, &rounded.MopsPerS, &rounded.FloorP50, &rounded.FloorP99, &rounded.FloorMBPerS, &rounded.KernelP50,
			&rounded.KernelP99, &rounded.Ratio} {
			*f = round(*f)
		}
		for _, f := range []**float64{&rounded.Added, &rounded.AllocsPerOp} {
			if *f != nil {
				shorter := round(**f)
				*f = &shorter
			}
		}
		if err := e.Encode(&rounded); err != nil {
			return err
		}
	}
	return nil
}

// round keeps six digits after the point.
func round(x float64) float64 { return math.Round(x*1e6) / 1e6 }
