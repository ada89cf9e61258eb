// Command ci reads what `go test -json` wrote, a file a step, and says how it went: the
// output of tests that failed, then each package's line, the slowest packages and tests of each
// step, the tests that were skipped, which parts were left to other runs, how many inputs fuzz
// targets were tried with, and as its last line "N passed, N failed".
// It fails if a test failed, if nothing passed in a step, or if a test was skipped for any other
// reason than a feature that the kernel lacks, or a part that another run has: where CI runs, every
// test can.
//
//	go run ./internal/lab/ci file.json...
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

const module = "github.com/xdprma/xdprma/"

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
	ImportPath                    string  // of a package that does not build
}

// report is the sum of what events told.
type report struct {
	passed, failed int
	packages       []string // the line of each package, as go test prints it
	steps          []step
	failures       []string // output of what failed
	skipped        []string // tests, as package.Test
	unfit          []string // tests that the kernel lacks a feature for, with its name
	left           []string // tests of parts that other runs have, with the part
	targets        int      // that were fuzzed
	inputs         int      // that they were tried with
	output         map[string][]string
}

// step is what one file tells.
type step struct {
	name  string
	took  map[string]float64 // seconds, by package
	tests map[string]float64 // seconds, by package and test
}

func main() {
	ok, err := run(os.Stdout, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "ci:", err)
	}
	if !ok || err != nil {
		os.Exit(1)
	}
}

// run writes the report about files to w and says whether all is well.
func run(w io.Writer, files []string) (bool, error) {
	r := report{output: map[string][]string{}}
	var errs []error // what is whole of the files is told nevertheless
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		before := r.passed
		if err := r.read(strings.TrimSuffix(filepath.Base(name), ".json"), f); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		} else if r.passed == before {
			errs = append(errs, fmt.Errorf("%s: nothing passed in this step", name))
		}
		f.Close()
	}
	r.failed += len(errs) // or the last line would tell of no failure
	return r.write(w), errors.Join(errs...)
}

// read takes in what the tests of a step printed.
func (r *report) read(name string, in io.Reader) error {
	r.steps = append(r.steps, step{name: name, took: map[string]float64{}, tests: map[string]float64{}})
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("%w in %q", err, lines.Text())
		}
		r.add(&e)
	}
	return lines.Err()
}

func (r *report) add(e *event) {
	key := e.Package + "." + e.Test
	of := &r.steps[len(r.steps)-1]
	switch {
	case e.Elapsed == 0:
	case e.Test == "": // a package that fuzz targets are in ends once for each
		of.took[e.Package] += e.Elapsed
	case !strings.Contains(e.Test, "/"):
		of.tests[key] += e.Elapsed
	}
	switch e.Action {
	case "output":
		if e.Test == "" && strings.HasPrefix(e.Output, "ok  \t") {
			r.packages = append(r.packages, e.Output)
		}
		r.output[key] = append(r.output[key], e.Output)
	case "build-output":
		r.failures = append(r.failures, e.Output)
	case "build-fail":
		r.failures = append(r.failures, "does not build: "+e.ImportPath+"\n")
	case "skip":
		if e.Test != "" {
			r.skip(key)
		}
	case "pass":
		if e.Test != "" {
			r.passed++
			r.countInputs(r.output[key])
		}
	case "fail":
		r.failed++ // a package counts too: it can fail outside any test
		r.failures = append(r.failures, shorten(r.output[key])...)
	}
	if e.Action == "pass" || e.Action == "skip" || e.Action == "fail" {
		delete(r.output, key)
	}
}

// slowest names what took longest, and how long.
func slowest(most int, took map[string]float64) string {
	names := slices.SortedFunc(maps.Keys(took), func(a, b string) int {
		return cmp.Or(cmp.Compare(took[b], took[a]), cmp.Compare(a, b))
	})
	var list []string
	for _, name := range names[:min(most, len(names))] {
		list = append(list, fmt.Sprintf("%s %.0f s", strings.TrimPrefix(name, module), took[name]))
	}
	return strings.Join(list, ", ")
}

// skip notes that a test was skipped, and whether the kernel was the reason, or the part.
func (r *report) skip(test string) {
	for _, line := range r.output[test] {
		if _, part, ok := strings.Cut(line, testenv.NotInTurn); ok {
			r.left = append(r.left, strings.TrimPrefix(test, module)+": "+strings.TrimSpace(part))
			return
		}
		if _, feature, ok := strings.Cut(line, testenv.MissingFeature); ok {
			r.unfit = append(r.unfit, test+": "+strings.TrimSpace(feature))
			return
		}
	}
	r.skipped = append(r.skipped, test)
}

var execs = regexp.MustCompile(`^fuzz: elapsed: .*, execs: (\d+) `)

// countInputs adds what a test says of fuzzing; the last such line has the sum.
func (r *report) countInputs(lines []string) {
	for _, line := range slices.Backward(lines) {
		if m := execs.FindStringSubmatch(line); m != nil {
			n, _ := strconv.Atoi(m[1]) // the expression has checked it
			r.targets, r.inputs = r.targets+1, r.inputs+n
			return
		}
	}
}

// shorten leaves out the middle of a long output: what went wrong stands at its
// start or its end.
func shorten(lines []string) []string {
	const most, keep = 100, 40
	if len(lines) <= most {
		return lines
	}
	left := fmt.Sprintf("... %d lines left out ...\n", len(lines)-2*keep)
	return slices.Concat(lines[:keep], []string{left}, lines[len(lines)-keep:])
}

// write prints the report and says whether all is well.
func (r *report) write(w io.Writer) bool {
	for _, line := range r.failures {
		io.WriteString(w, line)
	}
	for _, line := range r.packages {
		io.WriteString(w, line)
	}
	for _, s := range r.steps {
		if len(s.took) > 0 {
			fmt.Fprintf(w, "slowest of %s: %s\n", s.name, slowest(5, s.took))
		}
		if len(s.tests) > 0 {
			fmt.Fprintf(w, "slowest tests of %s: %s\n", s.name, slowest(20, s.tests))
		}
	}
	for _, name := range r.skipped {
		fmt.Fprintln(w, "skipped:", name)
	}
	for _, name := range r.unfit {
		fmt.Fprintln(w, "not on this kernel:", name)
	}
	slices.Sort(r.left)
	for _, name := range slices.Compact(r.left) { // race leaves out what test does
		fmt.Fprintln(w, "left to another run:", name)
	}
	if r.targets > 0 {
		fmt.Fprintf(w, "%d targets fuzzed with %d inputs\n", r.targets, r.inputs)
	}
	fmt.Fprintf(w, "%d passed, %d failed\n", r.passed, r.failed)
	return r.failed == 0 && len(r.skipped) == 0 && r.passed > 0
}
