package main

import (
	"context"
	"fmt"

	"github.com/xdprma/xdprma/cmd/internal/perf"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
)

// perfInJob measures as a rank of a job that something else has started: tests
// of two ranks if it has two, and those of scale. Rank 0 reports.
func perfInJob(ctx context.Context, place bootstrap.Config, o *perfOptions, report *perfReport) error {
	if o.costs || o.floor && len(o.tests) == 0 {
		return fmt.Errorf("%s and %s are not measured inside a job: run xdprma perf with them by itself", perfFloor, perfCosts)
	}
	plan := &perf.Plan{Bind: o.bind, Duration: o.duration, Iterations: o.iterations}
	for _, t := range o.tests {
		if place.Size < 2 || place.Size > 2 && !t.Scale {
			return fmt.Errorf("%s is between two ranks, and this job has %d", t.Name, place.Size)
		}
		points, err := t.Points(o.bytes, o.window, place.Size)
		if err != nil {
			return err
		}
		plan.Points = append(plan.Points, points...)
	}
	return perfRank(ctx, plan, func(s *perf.Sample) error {
		r, err := perf.Summarize([]*perf.Sample{s}, nil)
		if err == nil {
			report.add([]*perf.Result{r}, "")
		}
		return err
	})
}
