package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

const module = "github.com/xdprma/xdprma/"

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action, Package, Test, Output string
}

// progress is what the events so far tell.
type progress struct {
	begin              time.Time
	total              int               // packages to test, 0 if unknown
	packages           map[string]*tests // that run
	ok, failed         int               // packages
	passed, skips, bad int               // tests
	failures           []string          // tests that failed, and packages that did outside of one
}

// tests is what is known of a package that runs.
type tests struct {
	begin   time.Time
	order   []string             // tests as they began
	output  map[string][]string  // by test, and "" of the package
	failed  bool                 // whether a test has
	running map[string]time.Time // since when the tests on top run, and do not wait for their turn
}

// add takes in an event, and returns what to print now.
func (p *progress) add(e event, now time.Time) string {
	if e.Package == "" { // a build, which has all its output in one piece
		return e.Output
	}
	t := p.packages[e.Package]
	if t == nil {
		t = &tests{begin: now, output: map[string][]string{}, running: map[string]time.Time{}}
		p.packages[e.Package] = t
	}
	switch e.Action {
	case "run", "cont":
		if e.Action == "run" {
			t.order = append(t.order, e.Test)
		}
		if !strings.Contains(e.Test, "/") {
			t.running[e.Test] = now
		}
	case "pause":
		delete(t.running, e.Test)
	case "output":
		t.output[e.Test] = append(t.output[e.Test], e.Output)
	case "pass", "skip", "fail":
		if e.Test == "" {
			delete(p.packages, e.Package)
			return p.end(t, e)
		}
		p.endTest(t, e)
	}
	return ""
}

// endTest takes in that a test ended. Nobody wants to know of a test that passed again, so nothing
// is kept of it but the lines that it did not log: they may be of others, such as a data race.
func (p *progress) endTest(t *tests, e event) {
	delete(t.running, e.Test)
	switch e.Action {
	case "pass":
		p.passed++
	case "skip":
		p.skips++
	case "fail":
		p.bad++
		t.failed = true
		p.failures = append(p.failures, strings.TrimPrefix(e.Package, module)+"."+e.Test)
		return
	}
	if kept := unlogged(t.output[e.Test]); len(kept) > 0 {
		t.output[e.Test] = kept
	} else {
		delete(t.output, e.Test)
	}
}

// end returns what go test prints of a package: its last line, and before it, if it failed, its output.
func (p *progress) end(t *tests, e event) string {
	own := t.output[""]
	if e.Action != "fail" {
		p.ok++
		return strings.Join(own[max(0, len(own)-1):], "")
	}
	p.failed++
	if !t.failed {
		p.failures = append(p.failures, strings.TrimPrefix(e.Package, module))
	}
	var said []string
	for _, name := range t.order {
		lines := slices.DeleteFunc(t.output[name], func(line string) bool { return frame.MatchString(line) })
		if i := slices.IndexFunc(lines, verdict.MatchString); i > 0 { // go test has it before what the test logged
			lines = slices.Concat(lines[i:i+1], lines[:i], lines[i+1:])
		}
		said = append(said, lines...)
	}
	return strings.Join(slices.Concat(said, own), "")
}

var (
	frame   = regexp.MustCompile(`^=== (RUN|PAUSE|CONT|NAME) `)
	verdict = regexp.MustCompile(`^ *--- (PASS|FAIL|SKIP): `)
	logged  = regexp.MustCompile(`^    \S+\.go:\d+: `)
)

// unlogged returns the lines of a test's output that are of no log.
func unlogged(lines []string) (kept []string) {
	inLog := false
	for _, line := range lines {
		inLog = logged.MatchString(line) || inLog && strings.HasPrefix(line, "        ")
		if !inLog && !frame.MatchString(line) && !verdict.MatchString(line) {
			kept = append(kept, line)
		}
	}
	return kept
}

// status says what runs at a time: of each package the test that has run for longest.
func (p *progress) status(now time.Time) string {
	var running []string
	for name, t := range p.packages {
		said := fmt.Sprintf("%s %s", strings.TrimPrefix(name, module), seconds(now.Sub(t.begin)))
		first := ""
		for test, since := range t.running {
			if first == "" || cmp.Or(since.Compare(t.running[first]), cmp.Compare(test, first)) < 0 {
				first = test
			}
		}
		if first != "" {
			said += fmt.Sprintf(" (%s %s)", first, seconds(now.Sub(t.running[first])))
		}
		running = append(running, said)
	}
	slices.Sort(running)
	if len(running) == 0 {
		running = []string{"none, Go compiles"}
	}
	of := ""
	if p.total > 0 {
		of = fmt.Sprintf(" of %d", p.total)
	}
	return fmt.Sprintf("... %s, %d%s packages done, %d failed; running: %s\n",
		seconds(now.Sub(p.begin)), p.ok+p.failed, of, p.failed, strings.Join(running, ", "))
}

// summary says how it went.
func (p *progress) summary(now time.Time) string {
	said := fmt.Sprintf("%d packages ok, %d failed; %d tests passed, %d skipped, %d failed, in %s\n",
		p.ok, p.failed, p.passed, p.skips, p.bad, seconds(now.Sub(p.begin)))
	for _, name := range p.failures {
		said += "failed: " + name + "\n"
	}
	return said
}

func seconds(d time.Duration) time.Duration { return d.Round(time.Second) }
