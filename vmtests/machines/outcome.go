package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/xdprma/xdprma/vmtests/machines/plan"
)

// outcome is what came of a machine. It is kept in a file until the machine runs again.
type outcome struct {
	machine *machine
	Date    string // of the run, and which commit of the project it was
	How     string // the machine's processors ran
	Took    time.Duration
	Results []plan.Result
}

// keep writes an outcome to its file in a folder.
func (o *outcome) keep(dir string) error {
	content, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, fileName(o.machine.name)+".json"), content, 0o644)
}

// kept reads the outcome of a machine's last run. It has no results if there was none.
func kept(dir string, m *machine) (*outcome, error) {
	o := &outcome{machine: m}
	content, err := os.ReadFile(filepath.Join(dir, fileName(m.name)+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return o, nil
	}
	if err == nil {
		err = json.Unmarshal(content, o)
	}
	return o, err
}

// fileName is a machine's name in names of files.
func fileName(machine string) string { return strings.ReplaceAll(machine, " ", "-") }

// complete adds the steps that never ended, because the machine did.
func (o *outcome) complete(err error) {
	for _, s := range o.machine.steps {
		if _, ok := o.of(s.Name); ok {
			continue
		}
		r := plan.Result{Step: s.Name, Failed: "the machine ended before"}
		if err != nil {
			r.Failed += ": " + err.Error()
		}
		o.Results = append(o.Results, r)
	}
}

// of returns the result of a step.
func (o *outcome) of(step string) (plan.Result, bool) {
	for _, r := range o.Results {
		if r.Step == step {
			return r, true
		}
	}
	return plan.Result{}, false
}

func (o *outcome) failures() (n int) {
	for _, r := range o.Results {
		if r.Failed != "" {
			n++
		}
	}
	return n
}

// line is a result for a person who waits.
func line(r plan.Result) string {
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
