package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// recorded has a fake go print what go test -json did of packages of every kind, and end with a status.
func recorded(t *testing.T, stream, exit string) (status int, out, told string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "go")
	if err := os.WriteFile(file, []byte("#!/bin/sh\ntest \"$1 $2\" = 'test -json' && cat "+stream+" && exit "+exit+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	var o, s bytes.Buffer
	status, err := run([]string{file, "test", module + "a"}, nil, &o, &s)
	if err != nil {
		t.Fatal(err)
	}
	return status, o.String(), s.String()
}

// TestPrintsWhatGoTestDoes has a recording of packages that pass, fail, panic, hang and do not compile.
// It wants the output of those that failed, whole and once, without that of tests that passed.
func TestPrintsWhatGoTestDoes(t *testing.T) {
	status, out, told := recorded(t, "testdata/all.json", "3")
	want, err := os.ReadFile("testdata/all.txt")
	if err != nil {
		t.Fatal(err)
	}
	if out != string(want) {
		t.Errorf("it printed\n%s\nwant\n%s", out, want)
	}
	if status != 3 {
		t.Errorf("the exit status is %d, and that of go test was 3", status)
	}
	for _, want := range []string{"2 packages ok, 4 failed; 4 tests passed, 1 skipped, 4 failed, in 0s\n",
		"failed: sample/bad.TestBad/wrong\n", "failed: sample/compile\n", "failed: sample/late\n"} {
		if !strings.Contains(told, want) {
			t.Errorf("no %q in\n%s", want, told)
		}
	}
	if status, out, _ := recorded(t, "/dev/null", "0"); status != 0 || out != "" {
		t.Errorf("an empty stream gives %d and %q", status, out)
	}
	if status, _, _ := recorded(t, "/dev/null", "$(kill -9 $$)"); status != 1 {
		t.Errorf("a go test that is killed gives %d", status)
	}
}

func TestLineOfPackageComesWhenItIsDone(t *testing.T) {
	at := time.Unix(0, 0)
	p := progress{begin: at, total: 3, packages: map[string]*tests{}}
	tell := func(action, of, test, output string) string {
		return p.add(event{Action: action, Package: module + of, Test: test, Output: output}, at)
	}
	status := func(want string) {
		t.Helper()
		if got := p.status(at); got != "... "+want+"\n" {
			t.Errorf("status is %q, want %q", got, want)
		}
	}
	at = at.Add(10 * time.Second)
	status("10s, 0 of 3 packages done, 0 failed; running: none, Go compiles")
	tell("start", "slow", "", "")
	tell("run", "slow", "TestWaits", "")
	tell("pause", "slow", "TestWaits", "")
	tell("start", "quick", "", "")
	status("10s, 0 of 3 packages done, 0 failed; running: quick 0s, slow 0s")
	tell("run", "slow", "TestLong", "")
	at = at.Add(2 * time.Second)
	tell("cont", "slow", "TestWaits", "")
	tell("run", "slow", "TestLong/case", "")
	at = at.Add(time.Second)
	status("13s, 0 of 3 packages done, 0 failed; running: quick 3s, slow 3s (TestLong 3s)")
	tell("pass", "slow", "TestLong", "")
	tell("output", "quick", "", "PASS\n")
	tell("output", "quick", "", "ok  \tquick\t3s\n")
	if got := tell("pass", "quick", "", ""); got != "ok  \tquick\t3s\n" {
		t.Errorf("the package that is done gives %q", got)
	}
	status("13s, 1 of 3 packages done, 0 failed; running: slow 3s (TestWaits 1s)")
}

// TestReportOfARaceIsKept has a test that passes print the report of a race, which another test has.
func TestReportOfARaceIsKept(t *testing.T) {
	const report = "==================\nWARNING: DATA RACE\nRead at 0x1 by goroutine 7:\n  p.f()\n      /p/p.go:12 +0x1\n"
	said := strings.SplitAfter("=== RUN   TestA\n    p_test.go:1: logged\n        and more\n"+report+"    p_test.go:1: again\n--- PASS: TestA (0.00s)\n", "\n")
	if got := strings.Join(unlogged(said), ""); got != report {
		t.Errorf("it keeps\n%s\nwant\n%s", got, report)
	}
}

// TestStillAtWork has a command that is silent for longer than it should be.
func TestStillAtWork(t *testing.T) {
	testenv.NeedsCommand(t, "bash", "bash")
	dir := t.TempDir()
	// The command goes on once it has been spoken of, and ends if that never happens.
	const command = `echo out; echo one >&2; printf half >&2
		for i in $(seq 1000); do grep -q still "$0" && break; sleep 0.01; done; echo whole >&2; exit 3`
	c := exec.Command("bash", "still.sh", "sh", "-c", command, filepath.Join(dir, "err"))
	c.Env = append(os.Environ(), "STILL_EVERY=0.05", "OF=9")
	var out bytes.Buffer
	c.Stdout = &out
	f, err := os.Create(filepath.Join(dir, "err"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c.Stderr = f
	c.Run()
	said, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^one\n(\.\.\. still at work after \d+ s, at 1 of at most 9 packages: sh -c echo out(?s:.*?)exit 3\n)+halfwhole\n$`)
	if c.ProcessState.ExitCode() != 3 || out.String() != "out\n" || !want.Match(said) {
		t.Errorf("status %d, output %q, and\n%s", c.ProcessState.ExitCode(), out.String(), said)
	}
}
