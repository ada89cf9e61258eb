package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/xdprma/xdprma/cmd/internal/perf"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/userspace"
)

const (
	// floorTime is how long each sample of a floor takes, and floorAlone that of
	// the floor for its own sake.
	floorTime, floorAlone = 40 * time.Millisecond, 300 * time.Millisecond
	// perfStartTime is what a job may take beside its measurements.
	perfStartTime = 60 * time.Second
	// perfSlack is how many times longer than planned a measurement may take.
	perfSlack = 20
	// loopbackPayload is what frames of the library's UDP device carry on the
	// loopback interface, in bytes.
	loopbackPayload = 8952
	// ipUDP is the bytes of the headers of IPv4 and UDP.
	ipUDP = 28
	// unsteady is by how much floors around one test may differ without a word.
	unsteady = 1.5
)

// perfInLabs measures in networks that it makes itself.
func perfInLabs(o *perfOptions, report *perfReport) (err error) {
	signals, stop := catchSignals()
	defer stop()
	busy, err := startBusy(o.busy)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, busy.end()) }()
	var pairs, scales []perf.Test
	for _, t := range o.tests {
		if t.Scale {
			scales = append(scales, t)
		} else {
			pairs = append(pairs, t)
		}
	}
	progress := newPerfProgress(o.steps(len(pairs), len(scales)))
	defer progress.clear()
	if len(pairs) > 0 || o.floor || o.costs {
		err := withBench(o, 2, signals, progress, report, func(b *bench) error { return b.pairs(pairs) })
		if err != nil {
			return err
		}
	}
	if len(scales) == 0 {
		return nil
	}
	return withBench(o, o.ranks, signals, progress, report, func(b *bench) error { return b.scales(scales) })
}

// steps is how many tests there are to do.
func (o *perfOptions) steps(pairs, scales int) int {
	n := pairs + scales*len(o.scales())
	if o.floor {
		n++
	}
	if o.costs {
		n++
	}
	return n
}

// bench runs the jobs of a measurement in one network.
type bench struct {
	runner
	o        *perfOptions
	self     string // this program
	signals  <-chan os.Signal
	progress *perfProgress
	report   *perfReport
	mode     string // how the ranks' frames travel
}

// withBench makes a network of a number of ranks, calls f, and removes it.
func withBench(o *perfOptions, ranks int, signals <-chan os.Signal, progress *perfProgress, report *perfReport, f func(*bench) error) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	b := &bench{o: o, self: self, signals: signals, progress: progress, report: report}
	all, _, err := bootstrap.ForAll()
	if err != nil {
		return usageError("%w", err)
	}
	all = bootstrap.Config{NoExpress: all.NoExpress, Patience: all.Patience, Check: all.Check, Security: o.security} // the command line says the rest
	b.runner = runner{all: all, ranks: ranks, perHost: 1, mtu: o.mtu, queues: o.queues, console: newConsole(os.Stdout, os.Stderr),
		transports: slices.Repeat([]userspace.Transport{o.transport}, ranks)}
	if err := b.network(); err != nil {
		return err
	}
	if b.lab != nil {
		defer func() { err = errors.Join(err, b.lab.Close()) }()
	}
	if err := b.startAgent(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.stopAgent()) }()
	if b.mode, err = b.learnMode(); err != nil {
		return err
	}
	return f(b)
}

// learnMode returns how frames of the ranks travel. Where the ranks choose, a job tells.
func (b *bench) learnMode() (string, error) {
	switch t := b.o.transport; {
	case b.lab == nil:
		return string(userspace.UDP), nil
	case t == userspace.UDP || t == userspace.XDPNative || t == userspace.XDPGeneric:
		return string(t), nil
	}
	samples, err := b.runPlan(&perf.Plan{Points: []perf.Point{{Test: "barrier", Ranks: 2}}, Iterations: 1}, 2)
	if err != nil {
		return "", err
	}
	return samples[0].Mode, nil
}

// pairs measures the floor alone and the costs, if asked to, and tests of two ranks.
func (b *bench) pairs(tests []perf.Test) error {
	if b.o.floor {
		b.progress.next(perfFloor)
		floors, err := b.takeFloor(b.o.floorPoints(b.floorDevice(), b.kernelFloors()), floorAlone)
		if err != nil {
			return err
		}
		var results []*perf.Result
		for _, f := range floors {
			r, err := perf.SummarizeFloor([]*perf.FloorSample{f})
			if err != nil {
				return err
			}
			results = append(results, r)
		}
		b.print(results, "")
	}
	if b.o.costs {
		b.progress.next(perfCosts)
		if err := b.costs(); err != nil {
			return err
		}
	}
	for _, t := range tests {
		b.progress.next(t.Name)
		if err := b.test(t, 2); err != nil {
			return err
		}
	}
	return nil
}

// costs measures the steps of perf.Costs, in turn in each round.
func (b *bench) costs() error {
	device := b.floorDevice()
	switch device {
	case perf.FloorXDPGeneric:
		device = perf.FloorJoined
	case perf.FloorXDP:
		return fmt.Errorf("%s are of joined UDP frames, and ranks in native mode send none: use --transport xdp-generic or udp", perfCosts)
	}
	var points []perf.FloorPoint
	for range b.o.rounds {
		for _, c := range perf.Costs {
			points = append(points, perf.FloorPoint{Kind: c.Kind})
		}
	}
	samples, err := b.takeFloorOn(device, points, b.o.duration/time.Duration(b.o.rounds))
	if err != nil {
		return err
	}
	results, err := perf.SummarizeCosts(samples)
	if err != nil {
		return err
	}
	b.print(results, "")
	return nil
}

// scales measures tests with growing numbers of the network's ranks.
func (b *bench) scales(tests []perf.Test) error {
	for _, t := range tests {
		for _, n := range b.o.scales() {
			b.progress.next(fmt.Sprintf("%s, %d ranks", t.Name, n))
			if err := b.test(t, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// test measures all points of a test, and their floors around it.
func (b *bench) test(t perf.Test, ranks int) error {
	points, err := t.Points(b.o.bytes, b.o.window, ranks)
	if err != nil {
		return err
	}
	rounds := b.o.rounds
	if t.Once {
		rounds = 1
	}
	samples := map[perf.Point][]*perf.Sample{}
	floors := map[perf.FloorPoint][]*perf.FloorSample{}
	takeFloor := func() error {
		taken, err := b.takeFloor(perf.Floors(points, b.floorDevice(), b.kernelFloors()), floorTime)
		for _, f := range taken {
			floors[f.Point] = append(floors[f.Point], f)
		}
		return err
	}
	if err := takeFloor(); err != nil {
		return err
	}
	for range rounds {
		taken, err := b.takeSamples(points, ranks, rounds)
		if err != nil {
			return err
		}
		for _, s := range taken {
			samples[s.Point] = append(samples[s.Point], s)
		}
		if err := takeFloor(); err != nil {
			return err
		}
	}
	return b.summarize(points, samples, floors)
}

func (b *bench) summarize(points []perf.Point, samples map[perf.Point][]*perf.Sample, floors map[perf.FloorPoint][]*perf.FloorSample) error {
	var results []*perf.Result
	under := ""
	for _, p := range points {
		f, _ := p.Floor(b.floorDevice())
		if taken := floors[f]; len(taken) > 0 {
			under = taken[0].Mode
		}
		var kernel [][]*perf.FloorSample
		for _, f := range p.KernelFloors() {
			kernel = append(kernel, floors[f])
		}
		r, err := perf.Summarize(samples[p], floors[f], kernel...)
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	b.print(results, under)
	for f, taken := range floors {
		if spread := perf.Spread(taken); spread > unsteady && f.Load == "" {
			b.console.logf("warning: %s: the samples of %s differ by a factor of %.1f: the machine is not quiet, and the ratios are rough", points[0].Test, f.Kind, spread)
			break
		}
	}
	return nil
}

func (b *bench) print(results []*perf.Result, under string) {
	b.progress.clear()
	b.report.add(results, under)
}

// takeSamples runs one job of so many ranks, one of rounds, over points.
func (b *bench) takeSamples(points []perf.Point, ranks, rounds int) ([]*perf.Sample, error) {
	plan := &perf.Plan{Points: points, Bind: b.o.bind, Duration: b.o.duration / time.Duration(rounds)}
	if b.o.iterations > 0 {
		plan.Iterations = max(b.o.iterations/rounds, 1)
	}
	args := []string{}
	if b.o.profile != "" {
		args = append(args, "--cpuprofile", b.o.profile)
	}
	return b.runPlan(plan, ranks, args...)
}

// runPlan runs a job of so many ranks over the points of a plan.
func (b *bench) runPlan(plan *perf.Plan, ranks int, args ...string) ([]*perf.Sample, error) {
	out, err := b.runJob(plan, ranks, len(plan.Points), args...)
	if err != nil {
		return nil, err
	}
	return readSamples[perf.Sample](out, len(plan.Points))
}

// takeFloor measures points of the floor, those of each device in a job of two processes.
func (b *bench) takeFloor(points []perf.FloorPoint, each time.Duration) ([]*perf.FloorSample, error) {
	var samples []*perf.FloorSample
	for _, device := range []perf.FloorDevice{b.floorDevice(), perf.FloorJoined} {
		var on []perf.FloorPoint
		for _, p := range points {
			if p.On(b.floorDevice()) == device {
				on = append(on, p)
			}
		}
		taken, err := b.takeFloorOn(device, on, each)
		if err != nil {
			return nil, err
		}
		samples = append(samples, taken...)
	}
	return samples, nil
}

func (b *bench) takeFloorOn(device perf.FloorDevice, points []perf.FloorPoint, each time.Duration) ([]*perf.FloorSample, error) {
	if len(points) == 0 {
		return nil, nil
	}
	plan := &perf.Plan{Floors: points, Device: device, Bind: b.o.bind, Duration: each}
	payload := loopbackPayload
	if b.lab != nil {
		payload = b.o.mtu - ipUDP
	}
	out, err := b.runJob(plan, 2, len(points), "--payload", strconv.Itoa(payload))
	if err != nil {
		return nil, err
	}
	return readSamples[perf.FloorSample](out, len(points))
}

// floorDevice is what the ranks use.
func (b *bench) floorDevice() perf.FloorDevice {
	switch userspace.Transport(b.mode) {
	case userspace.UDP:
		return perf.FloorUDP
	case userspace.XDPGeneric:
		return perf.FloorXDPGeneric
	}
	return perf.FloorXDP
}

// kernelFloors reports whether there are floors in XDP: not over UDP, and with one queue
// only. A veth hands answers from XDP to the queue of the processor's number, and the
// asking side listens at the first.
func (b *bench) kernelFloors() bool {
	device := b.floorDevice()
	return b.o.queues == 1 && (device == perf.FloorXDPGeneric || device == perf.FloorXDP && b.answers)
}

// runJob starts ranks of this program with a plan, and returns what rank 0 printed.
func (b *bench) runJob(plan *perf.Plan, ranks, points int, args ...string) (*bytes.Buffer, error) {
	text, err := json.Marshal(plan)
	if err != nil {
		return nil, err
	}
	r := b.runner // a job has its own rendezvous
	r.ranks = ranks
	r.startGuard()
	defer r.guard.close()
	if err := r.rendezvous(); err != nil {
		return nil, err
	}
	defer r.endRendezvous()
	r.configure()
	timeout := perfStartTime + time.Duration(points)*perfSlack*max(plan.Duration, time.Second)
	if plan.Iterations > 0 {
		timeout = 0 // nobody knows
	}
	var out bytes.Buffer
	r.console = newConsole(&out, os.Stderr)
	var streams [2]*os.File
	if len(plan.Floors) > 0 {
		if streams, err = perf.FloorStreams(); err != nil {
			return nil, err
		}
		defer func() { streams[0].Close(); streams[1].Close() }()
	}
	j := &job{console: r.console, timeout: timeout, rendezvous: r.server}
	for rank := range ranks {
		p, err := r.perfProcess(rank, b.self, append(slices.Concat([]string{b.self, perfRankName}, args), string(text)))
		if err != nil {
			return nil, err
		}
		if len(plan.Floors) > 0 {
			p.cmd.ExtraFiles = []*os.File{streams[rank]} // descriptor floorStream there
		}
		j.processes = append(j.processes, p)
	}
	if status := j.run(b.signals); status != 0 {
		return nil, &exitError{status: status} // the job has said why
	}
	return &out, nil
}

// perfProcess prepares one rank. Its standard output is for samples.
func (r *runner) perfProcess(rank int, program string, args []string) (*process, error) {
	stdout, err := newStream(&lineWriter{console: r.console, dst: r.console.out})
	if err != nil {
		return nil, err
	}
	stderr, err := newStream(&lineWriter{console: r.console, dst: r.console.err, prefix: fmt.Sprintf("[%d] ", rank)})
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{Path: program, Args: args, Env: slices.Concat(bootstrap.Inherited(os.Environ()), r.configs[rank].Environ())}
	start := (*exec.Cmd).Start
	if r.lab != nil {
		start = func(cmd *exec.Cmd) error { return r.lab.Start(rank, cmd) }
	}
	return &process{rank: rank, cmd: cmd, start: start, stdout: stdout, stderr: stderr, guard: r.guard}, nil
}
