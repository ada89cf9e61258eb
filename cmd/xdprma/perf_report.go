package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/xdprma/xdprma/cmd/internal/perf"
)

// perfReport prints results as they come, and keeps them for a drawing.
type perfReport struct {
	out     io.Writer
	json    bool
	saved   *os.File // gets an object a line, whatever out gets; may be nil
	plot    *os.File // gets the drawing; may be nil
	origin  func() perfOrigin
	busy    int // processes that compute meanwhile
	begun   bool
	results []*perf.Result
	err     error // the first of writing
}

// perfOrigin says when, where and beside what a result was measured.
type perfOrigin struct {
	Time    time.Time `json:"time"`
	Host    string    `json:"host"`
	Version string    `json:"version"`        // of this command
	Busy    int       `json:"busy,omitempty"` // processes that computed meanwhile
}

// perfRecord is a result in JSON.
type perfRecord struct {
	*perf.Result
	perfOrigin
}

// thisOrigin is that of what has just been measured.
func thisOrigin() perfOrigin {
	host, _ := os.Hostname() // it is for the reader alone
	return perfOrigin{Time: time.Now().UTC().Truncate(time.Second), Host: host, Version: version()}
}

// newPerfReport reports to out, and into the files save and plot unless their names are empty.
// They are opened now, so that nothing is measured in vain.
func newPerfReport(out io.Writer, json bool, save, plot string) (*perfReport, error) {
	p := &perfReport{out: out, json: json, origin: thisOrigin}
	var err error
	if save != "" {
		p.saved, err = os.Create(save)
	}
	if err == nil && plot != "" {
		p.plot, err = os.Create(plot)
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// close closes the files.
func (p *perfReport) close() error {
	var errs []error
	for _, f := range []*os.File{p.saved, p.plot} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// add prints the results of one test. under names what its floor ran on.
func (p *perfReport) add(results []*perf.Result, under string) {
	p.results = append(p.results, results...)
	origin := p.origin()
	origin.Busy = p.busy
	if p.saved != nil {
		p.fail(writePerfJSON(p.saved, results, origin))
	}
	if p.json {
		p.fail(writePerfJSON(p.out, results, origin))
		return
	}
	if !p.begun {
		beside := ""
		if p.busy > 0 {
			beside = fmt.Sprintf("; processes that compute meanwhile: %d", p.busy)
		}
		_, err := fmt.Fprintf(p.out, "%s%s; latency in µs, MB/s of 10^6 payload bytes, Mop/s of 10^6 operations\n", perfMachine(), beside)
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

// finish draws what there is, if a file for that was named, and closes the files.
func (p *perfReport) finish() error {
	if p.err == nil && p.plot != nil && len(p.results) > 0 {
		p.fail(writePerfPlot(p.plot, p.results, p.busy))
	}
	p.fail(p.close())
	return p.err
}

// writePerfJSON writes an object a line, with six digits after the point.
func writePerfJSON(w io.Writer, results []*perf.Result, origin perfOrigin) error {
	e := json.NewEncoder(w)
	for _, r := range results {
		rounded := *r
		for _, f := range []*float64{&rounded.P50, &rounded.P99, &rounded.MBPerS, &rounded.NsPerByte, &rounded.MessageTime, &rounded.SenderTime,
			&rounded.ReceiverTime, &rounded.MopsPerS, &rounded.FloorP50, &rounded.FloorP99, &rounded.FloorMBPerS, &rounded.KernelP50,
			&rounded.KernelP99, &rounded.MemoryP50, &rounded.MemoryP99, &rounded.Ratio} {
			*f = round(*f)
		}
		for _, f := range []**float64{&rounded.Added, &rounded.AllocsPerOp} {
			if *f != nil {
				shorter := round(**f)
				*f = &shorter
			}
		}
		if err := e.Encode(perfRecord{&rounded, origin}); err != nil {
			return err
		}
	}
	return nil
}

// round keeps six digits after the point.
func round(x float64) float64 { return math.Round(x*1e6) / 1e6 }
