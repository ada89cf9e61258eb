package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/xdprma/xdprma/vmtests/machines/plan"
)

// outcome is what came of a machine.
type outcome struct {
	machine *machine
	begin   time.Time
	took    time.Duration
	results []plan.Result
}

// complete adds the steps that never ended, because the machine did.
func (o *outcome) complete(m *machine, err error) {
	for _, s := range m.steps {
		if _, ok := o.of(s.Name); ok {
			continue
		}
		r := plan.Result{Step: s.Name, Failed: "the machine ended before"}
		if err != nil {
			r.Failed += ": " + err.Error()
		}
		o.results = append(o.results, r)
	}
}

// of returns the result of a step.
func (o *outcome) of(step string) (plan.Result, bool) {
	for _, r := range o.results {
		if r.Step == step {
			return r, true
		}
	}
	return plan.Result{}, false
}

func (o *outcome) failures() (n int) {
	for _, r := range o.results {
		if r.Failed != "" {
			n++
		}
	}
	return n
}

// line is a result for a person who waits.
func (o *outcome) line(r plan.Result) string {
	text := fmt.Sprintf("%-22s %-30s %4.0f s", r.Step, verdict(r), r.Took.Seconds())
	if r.Failed == "" {
		return text
	}
	for _, name := range failedTests(r.Output) {
		text += "\n      " + name
	}
	return text + "\n      " + strings.ReplaceAll(r.Failed, "\n", "\n      ")
}

// These find what programs print.
var (
	failed  = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	passed  = regexp.MustCompile(`(?m)^--- PASS: (\S+)`)
	lacking = regexp.MustCompile(`this kernel lacks a feature: (.*)`)
	mode    = regexp.MustCompile(`(?m)^(?:chapter|wordcount): OK .*mode=(\S+)`)
)

func failedTests(output string) (names []string) {
	for _, m := range failed.FindAllStringSubmatch(output, -1) {
		names = append(names, m[1])
	}
	return names
}

// lacks returns the features that tests were skipped for.
func lacks(output string) (features []string) {
	for _, m := range lacking.FindAllStringSubmatch(output, -1) {
		features = append(features, strings.TrimSpace(m[1]))
	}
	return unique(features)
}

// verdict is a result in a few words.
func verdict(r plan.Result) string {
	if r.Failed != "" {
		return fmt.Sprintf("FAILED %d", max(1, len(failedTests(r.Output))))
	}
	if m := mode.FindStringSubmatch(r.Output); m != nil {
		return m[1]
	}
	if n := len(passed.FindAllString(r.Output, -1)); n > 0 {
		return fmt.Sprintf("%d passed", n)
	}
	if n, ok := whileStopped(r.Output); ok {
		return fmt.Sprintf("%d while stopped", n)
	}
	return "ok"
}

// whileStopped returns how many calls to a target the test of xdprma perf saw end while the target was
// stopped, so that only its XDP program can have executed them.
func whileStopped(output string) (n uint64, ok bool) {
	for line := range strings.Lines(output) {
		var found struct {
			N *uint64 `json:"finished_while_stopped"`
		}
		if json.Unmarshal([]byte(line), &found) == nil && found.N != nil {
			return *found.N, true
		}
	}
	return 0, false
}
