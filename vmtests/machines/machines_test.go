package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xdprma/xdprma/vmtests/machines/plan"
)

// sampleMatrix is of kernels that are not there.
func sampleMatrix() []*machine {
	return matrix([]*kernel{{release: "6.1.0-50-amd64", arch: arches[0]}, {release: "7.3.4", arch: arches[0]}, {release: "7.3.4-arm64", arch: arches[1]}}, false, "")
}

// Ranks run in dispatchers and beside agents where a link says so, and only there.
func TestStepsWithin(t *testing.T) {
	for _, m := range sampleMatrix() {
		for _, s := range m.steps {
			words := strings.Join(slices.Concat(s.Args...), " ")
			for link, word := range map[string]string{"dispatcher": slotObject, "agent": "agent --socket", "agent, native": "--native " + plan.Interface} {
				if strings.HasPrefix(s.Name, link) != strings.Contains(words, word) {
					t.Errorf("%s: step %q runs %q", m.name, s.Name, s.Args)
				}
			}
		}
	}
}

func TestVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		result plan.Result
		want   string
	}{
		"a job": {plan.Result{Output: "\nchapter: OK examples=23 ranks=2 mode=xdp-native-zerocopy\n"}, "xdp-native-zerocopy"},
		"tests": {plan.Result{Output: "--- PASS: TestA (0.0s)\n    --- PASS: TestA/b (0.0s)\n--- PASS: TestC (0.1s)\n"}, "2 passed"},
		"a failure": {plan.Result{Output: "--- FAIL: TestA (0.0s)\n    --- FAIL: TestA/b (0.0s)\n--- PASS: TestC (0.1s)\n",
			Failed: "exit status 1"}, "FAILED 2"},
		"a crash":         {plan.Result{Failed: "the machine ended before"}, "FAILED 1"},
		"a stopped rank":  {plan.Result{Output: "WARN\n{\"test\":\"x\",\"finished_while_stopped\":17}\n"}, "17 while stopped"},
		"nobody served":   {plan.Result{Output: "{\"finished_while_stopped\":0}\n"}, "0 while stopped"},
		"nothing to tell": {plan.Result{}, "ok"},
	} {
		if got := verdict(c.result); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	output := "    x_test.go:1: this kernel lacks a feature: bonds (Linux 2.2)\n    y_test.go:7: this kernel lacks a feature: bonds (Linux 2.2)\n"
	if got := lacks(output); !slices.Equal(got, []string{"bonds (Linux 2.2)"}) {
		t.Errorf("lacking %q", got)
	}
}

// Machines that do not run keep what the page says of them, and the rest of the page stays.
func TestPageKeepsWhatWasFound(t *testing.T) {
	dir := t.TempDir()
	page := filepath.Join(dir, "kernels.md")
	const (
		elsewhere = "| 9.9 | 3 passed | as another machine found |\n"
		there     = "| 9.9 | igb | plain | yes |\n| 9.9 | igb | VLAN | no |\n"
	)
	old := "\n| tests on |\n| --- |\n| 6.1.0-50-amd64 | old |\n" + elsewhere + "| 9.8 | old |\n\n| ranks on |\n| --- |\n" + there + "| 9.9 | vmxnet3 | old |\n\n"
	if err := os.WriteFile(page, []byte("# Before\n"+pageBegin+old+pageEnd+"after\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	never := &kernel{release: "9.9"}
	report := []*outcome{{machine: &machine{name: "never", kernel: never}}, {machine: &machine{name: "never igb", kernel: never, nic: nic{name: "igb", driver: "igb", links: bare}}}}
	for i, m := range sampleMatrix() {
		o := &outcome{machine: m, Date: "2026-11-28 abc", How: "KVM", Took: time.Minute}
		if i == 0 {
			o.Results = []plan.Result{{Step: "bpf", Output: "--- PASS: TestA (0.0s)\n"}}
			if err := o.keep(dir); err != nil {
				t.Fatal(err)
			}
			var err error
			if o, err = kept(dir, m); err != nil {
				t.Fatal(err)
			}
		} else if i == 1 {
			o.complete(nil)
		}
		report = append(report, o)
	}
	if err := writePage(page, report); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	for _, part := range []string{"# Before\n" + pageBegin, pageEnd + "after\n", "| 6.1.0-50-amd64 | 1 passed |", "| FAILED 1 | FAILED 1 | FAILED 1 |", "2026-11-28 abc, KVM, 1m0s", elsewhere, there} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in %s", part, text)
		}
	}
	if strings.Contains(text, "old") || strings.Count(text, "9.9") != 3 {
		t.Errorf("old rows of machines that ran, or that there are no more: %s", text)
	}
	if err := writePage(page, report); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(page); err != nil || string(again) != text {
		t.Errorf("the second time it is another page: %v\n%s", err, again)
	}
}

// A machine has two NICs that are joined, and no name of a machine or of its steps stands for two.
func TestMachinesDiffer(t *testing.T) {
	names := map[string]bool{}
	for _, m := range sampleMatrix() {
		if names[fileName(m.name)] {
			t.Errorf("two machines are called %s", m.name)
		}
		names[fileName(m.name)] = true
		if n := strings.Count(strings.Join(m.nic.devices(), " "), "hubid=0"); m.nic.driver != "" && n != 2 {
			t.Errorf("%s has %d NICs", m.name, n)
		}
		steps := map[string]bool{}
		for _, s := range m.steps {
			if steps[s.Name] || s.Limit == 0 || len(s.Args) == 0 {
				t.Errorf("%s: step %q is there twice, or has no limit or no program", m.name, s.Name)
			}
			steps[s.Name] = true
			if s.Pair != nil && s.Pair.Veth != (m.nic.driver == "") {
				t.Errorf("%s: step %q is not over the machine's NICs, or there are none", m.name, s.Name)
			}
		}
	}
}

// Kinds of processors with onlyNewest are tried with virtio_net, and what is the newest kernel is so for
// each kind.
func TestMachinesOfEachArch(t *testing.T) {
	var names []string
	for _, m := range sampleMatrix() {
		if m.kernel.arch.onlyNewest || m.nic.newest || m.perftest {
			names = append(names, m.name)
		}
	}
	want := []string{"7.3.4 virtio_net with IOMMU", "7.3.4 beside Soft-RoCE", "7.3.4-arm64 tests", "7.3.4-arm64 virtio_net", "7.3.4-arm64 virtio_net with IOMMU"}
	if !slices.Equal(names, want) {
		t.Errorf("machines %q, want %q", names, want)
	}
}

// The form of an archive: each part begins at a multiple of four, the folders come before what is in
// them, and the end is marked.
func TestArchive(t *testing.T) {
	var b bytes.Buffer
	a := newArchive(&b)
	a.data("/x/y", 0o644, []byte("abc"))
	a.link("/x/z", "y")
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	var names []string
	for rest := b.String(); rest != ""; {
		if !strings.HasPrefix(rest, "070701") {
			t.Fatalf("no header at %q", rest)
		}
		field := func(i int) (n int) {
			for _, c := range strings.ToLower(rest[6+8*i : 14+8*i]) {
				n = n<<4 | strings.IndexRune("0123456789abcdef", c)
			}
			return n
		}
		size, length := field(6), field(11)
		names = append(names, rest[110:110+length-1])
		rest = rest[(110+length+3)&^3:]
		rest = rest[min(len(rest), (size+3)&^3):]
	}
	if want := []string{"x", "x/y", "x/z", "TRAILER!!!"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

func TestContestFigures(t *testing.T) {
	const theirs = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n" +
		" 8       1000          38.50          1029.00      49.25               60.00             32.00          189.00                1029.00\n"
	if v, ok := contests[0].theirFigure(theirs); !ok || v != 49.25 {
		t.Errorf("their median is read as %v, %v", v, ok)
	}
	const rate = " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n 1048576    100            42.00              40.00              0.000040\n"
	if v, ok := contests[4].theirFigure(rate); !ok || math.Abs(v-41.943) > 0.001 {
		t.Errorf("their bandwidth is read as %v, %v", v, ok)
	}
	if v, ok := contests[0].ourFigure("WARN x\n{\"test\":\"y\",\"p50_us\":12.5}\n"); !ok || v != 12.5 {
		t.Errorf("our median is read as %v, %v", v, ok)
	}
	if _, ok := contests[0].theirFigure("Unable to open\n"); ok {
		t.Error("a failure has a figure")
	}
}

// A machine that reports what nobody can read is ended, and its error says so; nothing of it stays.
func TestBootEnds(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "qemu")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho garbage\nexec sleep 100\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"built", "userland", "perftest"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f := &files{cache: dir, built: filepath.Join(dir, "built.cpio"), userland: filepath.Join(dir, "userland")}
	if err := os.WriteFile(f.built, []byte("1"), 0o644); err != nil {
		t.Fatal(err)
	}
	q := &emulator{path: path}
	m := &machine{name: "m", kernel: &kernel{arch: arches[0]}}
	err := q.boot(t.Context(), m, f, filepath.Join(dir, "m.log"), func(plan.Result) { t.Error("a result") })
	if err == nil || !strings.Contains(err.Error(), "invalid character 'g'") {
		t.Errorf("boot: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.initrd")); err != nil || len(left) > 0 {
		t.Errorf("%q stays: %v", left, err)
	}
}
