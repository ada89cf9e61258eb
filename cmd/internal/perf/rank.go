package perf

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/rma"
)

// ipUDP is what an IPv4 packet has before the payload of a frame.
const ipUDP = 28

// rank is one process of a measurement. Its buffers serve all points.
type rank struct {
	ctx      context.Context
	node     *rma.Node
	win      *rma.Win
	plan     *Plan
	id, size int

	out, in []byte // buffers of the origin: what goes out, what comes back
	words   words
	heard   uint64 // notifications that this rank has waited for
	room    int    // bytes of the window for operations; behind them lie the agreed words

	// Of the current point.
	histogram *histogram
	sample    *Sample
	duration  time.Duration // of the timed loop
}

// Run measures the points of a plan at the ranks of node's job. All ranks call
// it; emit is called at rank 0 with each sample. Points are for as many ranks
// as the job has. It blocks until all ranks are through.
func Run(ctx context.Context, node *rma.Node, plan *Plan, emit func(*Sample) error) error {
	r := &rank{ctx: ctx, node: node, plan: plan, id: node.Rank(), size: node.Size(), histogram: newHistogram()}
	room := smallest
	for _, p := range plan.Points {
		if p.Ranks != r.size {
			return fmt.Errorf("%s is for %d ranks, the job has %d", p.Test, p.Ranks, r.size)
		}
		room = max(room, p.Bytes*max(p.Window, 1))
	}
	r.room = (room + 7) &^ 7
	r.out, r.in = make([]byte, r.room), make([]byte, r.room)
	win, err := rma.Allocate(ctx, node.World(), r.room+8*agreedWords, 1, rma.Counters(2))
	if err != nil {
		return err
	}
	r.win = win
	for _, p := range plan.Points {
		if err := r.measure(p, emit); err != nil {
			return fmt.Errorf("%s, %d bytes: %w", p.Test, p.Bytes, err)
		}
	}
	return win.Free(ctx)
}

// executed returns how many requests this rank's XDP program has executed.
func (r *rank) executed() uint64 {
	device := r.node.Stats().Device
	return device.Filter["express_executed"]
}

// measure runs one point.
func (r *rank) measure(p Point, emit func(*Sample) error) error {
	t, ok := Find(p.Test)
	if !ok {
		return fmt.Errorf("there is no such test")
	}
	r.sample = &Sample{Point: p, Mode: r.node.Mode(), Level: r.node.Security(), MTU: r.node.MaxPayload() + ipUDP}
	r.duration = r.plan.Duration * time.Duration(max(t.Stretch, 1))
	r.histogram.reset()
	runtime.GC()
	before := r.executed() // the program does not wait until this process goes on after the barrier
	if err := r.node.World().Barrier(r.ctx); err != nil {
		return err
	}
	if r.plan.Bind && !t.Free && !t.Scale {
		release, err := bind(r.id, r.size)
		if err != nil {
			return err
		}
		defer release() // after the barrier in which a target waits
	}
	if err := t.run(r, p); err != nil {
		return err
	}
	if err := r.node.World().Barrier(r.ctx); err != nil {
		return err
	}
	executed := []uint64{0}
	err := comm.Allreduce(r.ctx, r.node.World(), []uint64{r.executed() - before}, executed, datatype.Sum)
	if err != nil || r.id != 0 {
		return err
	}
	r.sample.Executed = executed[0]
	if r.histogram.count() > 0 {
		var err error
		if r.sample.Latency, err = r.histogram.encode(); err != nil {
			return err
		}
	}
	return emit(r.sample)
}
