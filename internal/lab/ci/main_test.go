package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

func TestSummaryFailsForEachTestThatDidNotRun(t *testing.T) {
	const pass = `{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
`
	for name, test := range map[string]struct {
		in   string
		ok   bool
		want string
	}{
		"passed":  {pass, true, "ok  \tp\t0.1s\n1 passed, 0 failed\n"},
		"nothing": {"", false, "0 passed, 0 failed\n"},
		"failed": {pass + `{"Action":"output","Package":"q","Test":"TestB","Output":"why\n"}
{"Action":"fail","Package":"q","Test":"TestB"}
`, false, "why\nok  \tp\t0.1s\n1 passed, 1 failed\n"},
		"package failed": {pass + `{"Action":"output","Package":"q","Output":"panic\n"}
{"Action":"fail","Package":"q"}
`, false, "panic\nok  \tp\t0.1s\n1 passed, 1 failed\n"},
		"not built": {pass + `{"Action":"build-output","ImportPath":"q","Output":"undefined: x\n"}
{"Action":"build-fail","ImportPath":"q"}
{"Action":"fail","Package":"q","FailedBuild":"q"}
`, false, "undefined: x\ndoes not build: q\nok  \tp\t0.1s\n1 passed, 1 failed\n"},
		"skipped": {pass + `{"Action":"skip","Package":"p","Test":"TestC"}`, false, "ok  \tp\t0.1s\nskipped: p.TestC\n1 passed, 0 failed\n"},
		"not on this kernel": {pass + `{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:1: ` + testenv.MissingFeature + `warp (Linux 99)\n"}
{"Action":"skip","Package":"p","Test":"TestC"}`, true, "ok  \tp\t0.1s\nnot on this kernel: p.TestC: warp (Linux 99)\n1 passed, 0 failed\n"},
		"of another part": {pass + strings.Repeat(`{"Action":"output","Package":"`+module+`p","Test":"TestC","Output":"    c_test.go:1: `+testenv.NotInTurn+`attacks\n"}
{"Action":"skip","Package":"`+module+`p","Test":"TestC"}
`, 2), true, "ok  \tp\t0.1s\nleft to another run: p.TestC: attacks\n1 passed, 0 failed\n"},
		"fuzzed": {pass + `{"Action":"output","Package":"p","Test":"FuzzA","Output":"fuzz: elapsed: 3s, execs: 70 (20/sec), new interesting: 0 (total: 3)\n"}
{"Action":"output","Package":"p","Test":"FuzzA","Output":"fuzz: elapsed: 5s, execs: 100 (20/sec), new interesting: 0 (total: 3)\n"}
{"Action":"pass","Package":"p","Test":"FuzzA"}
{"Action":"output","Package":"q","Test":"FuzzB","Output":"fuzz: elapsed: 5s, execs: 11 (2/sec), new interesting: 0 (total: 3)\n"}
{"Action":"pass","Package":"q","Test":"FuzzB"}`, true, "ok  \tp\t0.1s\n2 targets fuzzed with 111 inputs\n3 passed, 0 failed\n"},
		"without tests": {pass + `{"Action":"skip","Package":"q"}`, true, "ok  \tp\t0.1s\n1 passed, 0 failed\n"},
	} {
		r := report{output: map[string][]string{}}
		if err := r.read("test", strings.NewReader(test.in)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var out strings.Builder
		if ok := r.write(&out); ok != test.ok || out.String() != test.want {
			t.Errorf("%s: %v and\n%swant %v and\n%s", name, ok, out.String(), test.ok, test.want)
		}
	}
	r := report{}
	if r.read("test", strings.NewReader("not json")) == nil {
		t.Error("took what is not JSON")
	}
}

// TestEveryStepIsHeldToItsTests has a step in which nothing ran, one whose file is cut off,
// and one that left none: each is a failure, and what the other steps say is told.
func TestEveryStepIsHeldToItsTests(t *testing.T) {
	const pass, fail = `{"Action":"pass","Package":"p","Test":"TestA"}`, `{"Action":"fail","Package":"p","Test":"TestB"}`
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, test := range []struct {
		files []string
		why   string
		want  string
	}{
		{[]string{file("test.json", pass), file("fuzz.json", "")}, "fuzz.json: nothing passed", "1 passed, 1 failed\n"},
		{[]string{file("fuzz.json", pass+"\n{"), file("test.json", fail+"\n"+pass)}, "unexpected end", "2 passed, 2 failed\n"},
		{[]string{file("test.json", fail+"\n"+pass), "no such file"}, "no such file", "1 passed, 2 failed\n"},
		{[]string{file("test.json", pass), file("race.json", pass)}, "", "2 passed, 0 failed\n"},
	} {
		var out strings.Builder
		_, err := run(&out, test.files)
		if out.String() != test.want || (err == nil) != (test.why == "") || err != nil && !strings.Contains(err.Error(), test.why) {
			t.Errorf("%q: %v and %q, want %q and %q", test.files, err, out.String(), test.why, test.want)
		}
	}
}

func TestSlowestPackagesOfEachStep(t *testing.T) {
	r := report{output: map[string][]string{}}
	for name, in := range map[string]string{
		"test": `{"Action":"pass","Package":"` + module + `rma","Test":"TestA","Elapsed":90}
{"Action":"pass","Package":"` + module + `rma","Elapsed":3.6}
{"Action":"fail","Package":"` + module + `comm","Elapsed":7}
{"Action":"pass","Package":"a","Elapsed":1}
{"Action":"pass","Package":"b","Elapsed":1}
{"Action":"pass","Package":"d","Elapsed":0.1}
{"Action":"pass","Package":"c","Elapsed":1}`,
		"fuzz": `{"Action":"pass","Package":"a","Elapsed":2}
{"Action":"pass","Package":"a","Elapsed":3}`,
	} {
		if err := r.read(name, strings.NewReader(in)); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	r.write(&out)
	for _, want := range []string{"slowest of test: comm 7 s, rma 4 s, a 1 s, b 1 s, c 1 s\n", "slowest of fuzz: a 5 s\n", "slowest tests of test: rma.TestA 90 s\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestLongOutputKeepsItsStartAndEnd(t *testing.T) {
	lines := strings.SplitAfter(strings.Repeat("x\n", 99)+"last", "\n")
	if got := shorten(lines); len(got) != 100 {
		t.Errorf("100 lines became %d", len(got))
	}
	got := shorten(append(lines, "end"))
	if len(got) != 81 || got[40] != "... 21 lines left out ...\n" || got[80] != "end" {
		t.Errorf("101 lines became %d: %q", len(got), got)
	}
}
