package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/xdprma/xdprma/internal/lab/perf"
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

// writePerfJSON writes an object a line, with three digits after the point.
func writePerfJSON(w io.Writer, results []*perf.Result) error {
	for _, r := range results {
		rounded := *r
		for _, f := range []*float64{&rounded.P50, &rounded.P99, &rounded.MBPerS, &rounded.FloorP50, &rounded.FloorP99, &rounded.FloorMBPerS,
			&rounded.MessageTime, &rounded.SenderTime, &rounded.ReceiverTime, &rounded.KernelP50, &rounded.KernelP99} {
			*f = round(*f, 3)
		}
		rounded.NsPerByte = round(r.NsPerByte, 5)
		if r.Added != nil {
			added := round(*r.Added, 3)
			rounded.Added = &added
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
