package main

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/xdprma/xdprma/internal/launch/bootstrap"
)

// TestVerdict has ranks begin to leave the job, and end, in some order: the job ends for the one that was first. One that
// has left before and has not ended may be why.
func TestVerdict(t *testing.T) {
	const failed = "exited with status 1"
	type step struct {
		rank   int
		parts  bool   // the rank begins to leave, or else it ends
		why    string // it says so
		status int
	}
	for _, test := range []struct {
		name, want string
		steps      []step
	}{
		{"the others end before the first", "rank 2 " + failed, []step{{2, true, "", 0}, {0, true, "", 0}, {0, false, "", 1}, {2, false, "", 1}}},
		{"it says why", "rank 2 " + failed + ": no data", []step{{2, true, "no data", 0}, {0, false, "", 1}, {2, false, "", 1}}},
		{"it has not ended", "rank 2 has not ended: no data", []step{{2, true, "no data", 0}, {0, false, "", 1}}},
		{"it has not ended, nor said why", "rank 0 " + failed + "; rank 2 had left the job before, and has not ended", []step{{2, true, "", 0}, {0, false, "", 1}, {1, true, "", 0}}},
		{"it has ended well", "rank 0 " + failed, []step{{2, true, "", 0}, {2, false, "", 0}, {0, true, "", 0}, {0, false, "", 1}}},
		{"it dies", "rank 2 " + failed, []step{{2, false, "", 1}, {0, true, "", 0}, {0, false, "", 1}}},
	} {
		c := bootstrap.Config{Job: 1, Size: 3, Rendezvous: "unix:" + filepath.Join(t.TempDir(), "rendezvous")}
		l, err := bootstrap.Listen(c.Rendezvous)
		if err != nil {
			t.Fatal(err)
		}
		server, err := bootstrap.Serve(l, &c)
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		j := &job{rendezvous: server, outcomes: map[int]outcome{}}
		var ranks []*bootstrap.Member
		for c.Rank = range c.Size {
			m, err := bootstrap.Open(t.Context(), c, nil, nil)
			if err == nil {
				err = m.Publish(t.Context(), []byte("here"))
			}
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			ranks, j.processes = append(ranks, m), append(j.processes, &process{rank: c.Rank})
		}
		for _, s := range test.steps {
			if s.parts {
				if err := errors.Join(ranks[s.rank].Part(t.Context(), s.why), ranks[s.rank].Leave(t.Context())); err != nil {
					t.Fatal(err)
				}
				continue
			}
			o := outcome{status: s.status, reason: "exited with status 0", at: time.Now()}
			if s.status != 0 {
				o.reason = failed
			}
			j.outcomes[s.rank] = o
		}
		p, o := j.firstFailed()
		if got := j.verdict(p, &o); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
