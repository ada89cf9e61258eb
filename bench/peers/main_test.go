package main

import (
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	figures := `mpich put-latency 8 1 40 us
mpich put-latency 8 1 30 us
mpich put-latency 8 1 50 us
mpich put-rate 8 64 0.1 Mop/s
mpich all-to-all 8 8 4000 us
openmpi put-rate 8 64 0.2 Mop/s
`
	results := `{"test":"put-latency","bytes":8,"p50_us":4}
{"test":"put-rate","bytes":8,"window":64,"mops_per_s":4}
{"test":"scale-put","bytes":8,"ranks":8,"p50_us":150}
{"test":"scale-barrier","ranks":8,"p50_us":50}
`
	table := newTable()
	if err := table.readPeers(strings.NewReader(figures)); err != nil {
		t.Fatal(err)
	}
	if err := table.readOurs(strings.NewReader(results)); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := table.print(&out, 1500); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, line := range strings.Split(out.String(), "\n") {
		name, rest, _ := strings.Cut(line, "  ")
		got[name] = strings.Join(strings.Fields(rest), " ")
	}
	for name, want := range map[string]string{
		"put + flush, 8 B":                     "us 4 40 failed 10 failed",
		"8-byte puts, 64 outstanding":          "Mop/s 4 0.1 0.2 40 20",
		"8 ranks: puts to all, flush, barrier": "us 200 4e+03 failed 20 failed",
		"get + flush, 8 B":                     "us failed failed failed failed failed",
	} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	if err := table.readPeers(strings.NewReader("mpich crashed")); err == nil {
		t.Error("a line that is no figure was accepted")
	}
}
