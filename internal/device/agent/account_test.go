package agent

import (
	"errors"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/mpierr"
)

// Whoever has many maps and asks time and again takes little of the time of others, and has room once maps are gone.
func TestPruneRests(t *testing.T) {
	testenv.NeedsRoot(t)
	o, a := owner{user: 1}, &accounts{limits: Limits{Memory: 300 * 12}, each: map[owner]*account{}}
	if err := a.enter(o); err != nil {
		t.Fatal(err)
	}
	var made []*ebpf.Map
	for range 300 {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		a.made(o, m)
		made = append(made, m)
	}
	last := time.Time{}
	for begin := time.Now(); time.Since(begin) < 50*time.Millisecond; {
		if err := a.reserve(o, 1); !errors.Is(err, mpierr.NoMem) {
			t.Fatalf("more than the limit: %v", err)
		}
		if rests := a.each[o].rests; rests != last && time.Now().Before(last) {
			t.Fatal("it does not rest")
		} else {
			last = rests
		}
	}
	for _, m := range made[:10] {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	testenv.Await(t, "room for ten", func() bool { return a.reserve(o, 10*12) == nil })
	if n := len(a.each[o].maps); n != 290 {
		t.Errorf("%d maps count, want 290", n)
	}
}
