package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/xdprma/xdprma/vmtests/machines/plan"
)

// The text between these lines of the page is written anew.
const (
	pageBegin = "<!-- make vm writes from here -->\n"
	pageEnd   = "<!-- to here -->\n"
)

// writePage puts what works where into the page.
func writePage(path string, report []*outcome) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	head, rest, ok1 := strings.Cut(string(page), pageBegin)
	old, tail, ok2 := strings.Cut(rest, pageEnd)
	if !ok1 || !ok2 {
		return fmt.Errorf("%s has no lines %q and %q", path, pageBegin, pageEnd)
	}
	return os.WriteFile(path, []byte(head+pageBegin+"\n"+tables(report, strings.Split(old, "\n\n"))+"\n"+pageEnd+tail), 0o644)
}

// tables show what the last run of each machine found. Of a machine that never ran here, rows of the
// page's old tables stay.
func tables(report []*outcome, old []string) string {
	var t strings.Builder
	stay := func(o *outcome, table int, cells ...string) bool {
		if o.Date == "" && table < len(old) {
			for line := range strings.Lines(old[table] + "\n") {
				if strings.HasPrefix(line, "| "+strings.Join(cells, " | ")+" | ") {
					t.WriteString(line)
				}
			}
		}
		return o.Date == ""
	}
	row := func(cells ...string) { fmt.Fprintf(&t, "| %s |\n", strings.Join(cells, " | ")) }
	rule := func(n int) { fmt.Fprintf(&t, "|%s\n", strings.Repeat(" --- |", n)) }

	row(slices.Concat([]string{"tests on"}, suites, []string{"skipped, because the kernel has none", "run"})...)
	rule(len(suites) + 3)
	for _, o := range report {
		if o.machine.nic.links != nil || o.machine.perftest || stay(o, 0, o.machine.kernel.release) {
			continue
		}
		cells, missing := []string{o.machine.kernel.release}, []string{}
		for _, s := range suites {
			r, _ := o.of(s)
			cells = append(cells, verdict(r))
			missing = append(missing, lacks(r.Output)...)
		}
		row(append(cells, strings.Join(unique(missing), "; "), o.run())...)
	}

	t.WriteString("\n")
	row("ranks on", "NIC", "link", "chapter's examples", "wordcount", "served while its process is stopped", "run")
	rule(7)
	for _, o := range report {
		if o.machine.nic.links == nil || stay(o, 1, o.machine.kernel.release, o.machine.nic.name) {
			continue
		}
		for _, l := range o.machine.nic.links {
			cells := []string{o.machine.kernel.release, o.machine.nic.name, l.name}
			for _, j := range jobs {
				r, _ := o.of(stepName(l.name, j.name))
				cells = append(cells, cell(r))
			}
			row(append(cells, o.run())...)
		}
	}
	for _, o := range report {
		switch {
		case !o.machine.perftest:
		case o.Date != "":
			t.WriteString("\n" + contestTable(o))
		case len(old) > 2:
			t.WriteString("\n" + strings.TrimSpace(old[2]) + "\n")
		}
	}
	return t.String()
}

// run says when the machine ran, how, and for how long.
func (o *outcome) run() string {
	return fmt.Sprintf("%s, %s, %v", o.Date, o.How, o.Took.Round(time.Second))
}

// cell is a verdict in one word.
func cell(r plan.Result) string {
	n, stopped := whileStopped(r.Output)
	switch {
	case r.Failed != "" || !stopped:
		return verdict(r)
	case n > 0:
		return "yes"
	}
	return "no"
}

// stepName is the name of what ranks do over a link.
func stepName(link, job string) string { return link + ", " + job }
