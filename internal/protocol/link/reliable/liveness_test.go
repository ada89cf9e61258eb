package reliable_test

import (
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
)

// TestSilenceIsDeathOnlyAfterTheLimitAndSeveralTimeouts has a peer that owes, and is silent.
func TestSilenceIsDeathOnlyAfterTheLimitAndSeveralTimeouts(t *testing.T) {
	const limit = 1000
	for _, test := range []struct {
		name    string
		expired int
		heard   int64 // after it began to owe at 100; 0: not at all
		excused int64
		now     int64
		dead    bool
	}{
		{"before the limit", 5, 0, 0, 1099, false},
		{"at the limit", 3, 0, 0, 1100, true},
		{"this process may have paused", 2, 0, 0, 5000, false},
		{"heard since", 3, 600, 0, 1100, false},
		{"silent since", 3, 600, 0, 1600, true},
		{"this process lacked a processor", 3, 0, 500, 1100, false},
		{"and longer", 3, 0, 500, 1600, true},
	} {
		var v reliable.Liveness
		v.Heard(50)
		v.Owe(100, 10)
		if test.heard != 0 {
			v.Heard(test.heard)
		}
		for range test.expired {
			v.Expired()
		}
		if test.excused != 0 {
			v.Excuse(test.excused, 5000)
		}
		if dead := v.Dead(test.now, limit); dead != test.dead {
			t.Errorf("%s: dead %v", test.name, dead)
		}
	}
}

// TestHearingEndsTheCountOfTimeouts but work at an answer does not.
func TestHearingEndsTheCountOfTimeouts(t *testing.T) {
	var v reliable.Liveness
	v.Owe(100, 10)
	v.Expired()
	v.Works(200)
	if n := v.Expirations(); n != 1 || v.Silence(250) != 50 || !v.HeardSince() {
		t.Errorf("at work: %d timeouts, silent for %d", n, v.Silence(250))
	}
	v.Heard(300)
	if n := v.Expirations(); n != 0 {
		t.Errorf("heard: %d timeouts", n)
	}
}

// TestWhoOwesIsAskedInTime and who owes nothing is not.
func TestWhoOwesIsAskedInTime(t *testing.T) {
	var v reliable.Liveness
	if v.Owes() || v.Due(1<<40) {
		t.Error("the zero value owes")
	}
	v.Owe(100, 10)
	if !v.Owes() || v.Due(109) || !v.Due(110) || v.AskAt() != 110 {
		t.Errorf("it is asked at %d", v.AskAt())
	}
	v.Restart(200)
	if v.AskAt() != 110 || v.Owing(250) != 50 {
		t.Errorf("restarted: asked at %d, owes for %d", v.AskAt(), v.Owing(250))
	}
	v.Settle()
	if v.Owes() || v.Due(1<<40) {
		t.Error("it owes what is settled")
	}
}

// TestStuckIsWhoAppliesNothing for the limit, at several looks, while it has something to apply.
func TestStuckIsWhoAppliesNothing(t *testing.T) {
	const limit = 1000
	look := func(v *reliable.Liveness, from, to int64, busy bool) (at int64) {
		for now := from; now <= to; now += 100 {
			if v.Stuck(now, limit, busy) {
				return now
			}
		}
		return 0
	}
	var v reliable.Liveness
	v.Owe(100, 10)
	if at := look(&v, 100, 5000, false); at != 0 {
		t.Errorf("with nothing to apply it is stuck at %d", at)
	}
	if at := look(&v, 5100, 9000, true); at != 6000 { // the last look above was at 5000
		t.Errorf("it is stuck at %d", at)
	}
	v.Moved()
	if at := look(&v, 6100, 9000, true); at != 7100 {
		t.Errorf("after it moved it is stuck at %d", at)
	}
	v = reliable.Liveness{}
	v.Owe(100, 10)
	v.Stuck(100, limit, true)
	for i, late := range []int64{5000, 5001, 5002} {
		if v.Stuck(late, limit, true) {
			t.Errorf("it is stuck after %d looks", i+1)
		}
	}
	if !v.Stuck(5003, limit, true) {
		t.Error("it is not stuck after four looks")
	}
}
