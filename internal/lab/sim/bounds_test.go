package sim

import (
	"testing"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// TestBoundsHold runs scenarios in which a call lasts for several limits, one after the
// other, and no longer.
func TestBoundsHold(t *testing.T) {
	t.Parallel()
	victims := func(p *plan, rank int) []bool {
		v := make([]bool, p.ranks)
		v[rank] = true
		return v
	}
	for name, c := range map[string]Config{
		"many ranks queue for the locks of one that long frames do not reach": {shape: func(p *plan, now int64) {
			p.ranks, p.tasks, p.steps = 6, 2, 10
			p.faults = []fault{{kind: longFrames, victims: victims(p, 0), from: now + 2*millisecond, to: forGood, limit: 300}}
		}},
		"a rank starts again before anybody has met it": {Together: true, shape: func(p *plan, now int64) {
			p.faults = []fault{{kind: restart, victims: victims(p, 1), from: now, to: now + 5*millisecond}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			first, seeds := testenv.Span(60, 8)
			for c.Seed = first; c.Seed < first+seeds; c.Seed++ {
				if r := Run(c); r.Err != nil {
					t.Errorf("seed %d (%s): %.300s", c.Seed, r.Scenario, r.Err)
				}
			}
		})
	}
}
