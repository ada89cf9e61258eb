package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/cmd/internal/perf"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/userspace"
)

const perfDescription = `Measures one-sided communication between two ranks on this machine, and the
floor under it: AF_XDP frames between the same interfaces without any protocol
(an echo, a one-way stream), taken before, between and after. Latencies of a word
also have two floors in the kernel, over one queue: a fetch-and-add that the
target's XDP program answers, and the same with an XDP program at the origin that
writes the answer to memory, which the origin polls. Where XDP is in generic mode,
the floor of bandwidths is a stream of joined UDP frames that pass a program.
Without root all use UDP on the loopback interface.

Tests:
%s
  scale      scale-put and scale-barrier with 2 ranks to --ranks
  progress   all of progress-...; one of them stops its target for a while, with
             SIGSTOP, and needs both ranks on one machine
  floor      the floor alone: echoes of the sizes, a fetch-and-add in XDP with the
             answer to a socket and to memory, a stream of full frames and one of
             frames of 8 bytes; in generic mode a stream of joined UDP frames too
  costs      what a long transfer pays for beside the bare stream of joined UDP
             frames, one cost more in each step; with --transport xdp-generic or udp
  all        everything but costs

The steps of costs:
%s
Each does all that those before it do. The table has the µs that a message takes,
how many more than in the step before, and for how many each side is busy with it,
the median. A cost at the side that waits for the other does not slow the stream.
On a veth the kernel's part of receiving is done while the sender sends.

With --busy N, N processes compute beside ranks and floors, on whichever
processors the kernel gives them.

Inside a job that something else has started, perf measures between the job's
ranks, and takes no floor.

The target waits in a barrier, but for progress. With --bind, two ranks and the
sides of a floor keep to a processor each: spinning on one they would take turns.

Latencies are of an operation and its flush, in µs. MB/s is 10^6 payload bytes a
second. The ratio is that to the floor: above 1 for latencies, below 1 for
throughput. Windows of small operations share frames and can exceed 1, and a
barrier of two ranks, whose frames cross, can stay below it. Of idle the ratio is
the processor time of one rank as a fraction of a core.`

// The rounds of a measurement. An even number has an odd number of floors, and
// so one in the middle.
const defaultRounds, maxRounds = 8, 100

// The names under which the floor alone, and the steps of perf.Costs, are measured.
const perfFloor, perfCosts = "floor", "costs"

func perfCommand() *cli.Command {
	var list, costs strings.Builder
	for _, t := range perf.Tests {
		fmt.Fprintf(&list, "  %-26s%s\n", t.Name, t.About)
	}
	for _, c := range perf.Costs {
		fmt.Fprintf(&costs, "  %-26s%s\n", c.Kind, c.About)
	}
	return &cli.Command{
		Name:        "perf",
		Usage:       "measure one-sided communication, and AF_XDP alone",
		ArgsUsage:   "test...",
		Description: fmt.Sprintf(perfDescription, list.String(), costs.String()),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "bytes", Usage: "sizes of an operation, separated by commas; K and M mean 2^10 and 2^20"},
			&cli.IntFlag{Name: "window", Usage: "operations outstanding in tests of bandwidth and rate; default: by test and size"},
			&cli.IntFlag{Name: "mtu", Value: netlab.DefaultMTU, Usage: "MTU of the ranks' interfaces, in bytes"},
			&cli.StringFlag{Name: "transport", Value: string(userspace.Auto), Usage: userspace.TransportNames},
			&cli.StringFlag{Name: "security", Value: secure.None.String(), Usage: secure.LevelNames + ": whether each frame is authenticated, and encrypted"},
			&cli.IntFlag{Name: "queues", Value: 1, Usage: "queues of each interface"},
			&cli.DurationFlag{Name: "duration", Value: 500 * time.Millisecond, Usage: "length of each measurement"},
			&cli.IntFlag{Name: "iterations", Usage: "length of each measurement in passes of its loop; overrides --duration"},
			&cli.IntFlag{Name: "rounds", Value: defaultRounds, Usage: "jobs that share each measurement, with the floor taken before, between and after them"},
			&cli.IntFlag{Name: "ranks", Value: perf.MaxRanks, Usage: "most ranks of the scale tests"},
			&cli.IntFlag{Name: "busy", Usage: "processes that compute meanwhile"},
			&cli.BoolFlag{Name: "bind", Value: true, Usage: "keep each of two ranks, and each side of a floor, on a processor of its own, as MPI launchers do; not in tests of progress and idleness"},
			&cli.BoolFlag{Name: "json", Usage: "print a JSON object for each result, one a line"},
			&cli.StringFlag{Name: "save", Usage: "write these objects into this `file` as well as the tables"},
			&cli.StringFlag{Name: "plot", Usage: "draw latency and bandwidth against size into this SVG `file`"},
			&cli.StringFlag{Name: "cpuprofile", Hidden: true, Usage: "write the processor profiles of the ranks to this `file` with the rank appended"},
		},
		ShellComplete: func(ctx context.Context, c *cli.Command) {
			cli.DefaultCompleteWithFlags(ctx, c)
			for _, t := range perf.Tests {
				fmt.Fprintf(c.Root().Writer, "%s:%s\n", t.Name, t.About)
			}
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			o, err := parsePerf(c)
			if err != nil {
				return err
			}
			place, err := bootstrap.FromEnvironment()
			if err != nil {
				return err
			}
			if place.Launched() && o.busy > 0 {
				return usageError("--busy does not work inside a job: start the processes that compute beside it yourself")
			}
			if place.Launched() && place.Rank != 0 { // rank 0 reports
				o.save, o.plot = "", ""
			}
			report, err := newPerfReport(os.Stdout, o.json, o.save, o.plot)
			if err != nil {
				return err
			}
			report.busy = o.busy
			if place.Launched() {
				err = perfInJob(ctx, place, o, report)
			} else {
				err = perfInLabs(o, report)
			}
			return errors.Join(err, report.finish())
		},
	}
}

// perfOptions is a command line of perf.
type perfOptions struct {
	tests      []perf.Test
	floor      bool // measure the floor alone too
	costs      bool // measure the steps of perf.Costs too
	bytes      []int
	window     int
	mtu        int
	transport  userspace.Transport
	security   bootstrap.Security
	queues     int
	duration   time.Duration
	iterations int
	rounds     int
	ranks      int
	busy       int
	bind       bool
	json       bool
	save       string
	plot       string
	profile    string
}

// parsePerf validates a command line.
func parsePerf(c *cli.Command) (*perfOptions, error) {
	o := &perfOptions{
		window: c.Int("window"), mtu: c.Int("mtu"), queues: c.Int("queues"),
		duration: c.Duration("duration"), iterations: c.Int("iterations"), rounds: c.Int("rounds"), ranks: c.Int("ranks"), busy: c.Int("busy"),
		bind: c.Bool("bind"), json: c.Bool("json"), save: c.String("save"), plot: c.String("plot"), profile: c.String("cpuprofile"),
	}
	var err error
	if _, err = secure.ParseLevel(c.String("security")); err != nil {
		return nil, usageError("--security: %w", err)
	}
	o.security = bootstrap.Security(c.String("security"))
	if o.transport, err = userspace.ParseTransport(c.String("transport")); err != nil {
		return nil, usageError("%w", err)
	}
	if o.bytes, err = parseSizes(c.String("bytes")); err != nil {
		return nil, err
	}
	switch {
	case o.window < 0 || o.window > perf.MaxWindow:
		return nil, usageError("--window is %d, it must be 1 to %d", o.window, perf.MaxWindow)
	case o.mtu < netlab.MinMTU || o.mtu > netlab.MaxMTU:
		return nil, usageError("--mtu is %d, it must be %d to %d", o.mtu, netlab.MinMTU, netlab.MaxMTU)
	case o.queues < 1 || o.queues > netlab.MaxQueues:
		return nil, usageError("--queues is %d, it must be 1 to %d", o.queues, netlab.MaxQueues)
	case o.duration < time.Millisecond || o.duration > time.Minute:
		return nil, usageError("--duration is %v, it must be 1ms to 1m", o.duration)
	case o.iterations < 0:
		return nil, usageError("--iterations is %d, it must not be negative", o.iterations)
	case o.rounds < 1 || o.rounds > maxRounds:
		return nil, usageError("--rounds is %d, it must be 1 to %d", o.rounds, maxRounds)
	case o.busy < 0 || o.busy > maxBusy:
		return nil, usageError("--busy is %d, it must be 0 to %d", o.busy, maxBusy)
	case o.ranks < 2 || o.ranks > perf.MaxRanks:
		return nil, usageError("--ranks is %d, it must be 2 to %d", o.ranks, perf.MaxRanks)
	}
	if err := o.selectTests(c.Args().Slice()); err != nil {
		return nil, err
	}
	return o, nil
}

// selectTests finds what the arguments name, each test once.
func (o *perfOptions) selectTests(names []string) error {
	if len(names) == 0 {
		return usageError("no test given; xdprma perf --help lists them, and `all` is all of them")
	}
	for _, name := range names {
		if name == perfFloor || name == "all" {
			o.floor = true
		}
		if name == perfCosts {
			o.costs = true
		}
		if name == perfFloor || name == perfCosts {
			continue
		}
		found := perf.Select(name)
		if found == nil {
			return usageError("there is no test %q; xdprma perf --help lists them", name)
		}
		for _, t := range found {
			if !slices.ContainsFunc(o.tests, func(have perf.Test) bool { return have.Name == t.Name }) {
				o.tests = append(o.tests, t)
			}
		}
	}
	for _, t := range o.tests {
		if _, err := t.Points(o.bytes, o.window, 2); err != nil {
			return usageError("%w", err)
		}
	}
	return nil
}

// parseSizes reads numbers of bytes separated by commas; none for an empty string.
func parseSizes(s string) (sizes []int, err error) {
	if s == "" {
		return nil, nil
	}
	for _, field := range strings.Split(s, ",") {
		digits, unit := strings.TrimSpace(field), 1
		if d, ok := strings.CutSuffix(digits, "K"); ok {
			digits, unit = d, 1<<10
		} else if d, ok := strings.CutSuffix(digits, "M"); ok {
			digits, unit = d, 1<<20
		}
		n, err := strconv.Atoi(digits)
		if err != nil || n < 1 || n > perf.MaxBytes/unit {
			return nil, usageError("--bytes: %q is not a size from 1 to %dM", field, perf.MaxBytes>>20)
		}
		sizes = append(sizes, n*unit)
	}
	return sizes, nil
}

// scales returns the numbers of ranks of the scale tests.
func (o *perfOptions) scales() (ranks []int) {
	for n := 2; n < o.ranks; n *= 2 {
		ranks = append(ranks, n)
	}
	return append(ranks, o.ranks)
}

// floorPoints returns what is measured of the floor alone, beneath ranks with a device.
func (o *perfOptions) floorPoints(ranks perf.FloorDevice, inKernel bool) []perf.FloorPoint {
	sizes := o.bytes
	if len(sizes) == 0 {
		sizes = []int{8, 1024, 65536}
	}
	var points []perf.FloorPoint
	for _, n := range sizes {
		points = append(points, perf.FloorPoint{Kind: perf.Echo, Bytes: n})
	}
	if inKernel {
		points = append(points, perf.FloorPoint{Kind: perf.Kernel, Bytes: 8}, perf.FloorPoint{Kind: perf.Memory, Bytes: 8})
	}
	points = append(points, perf.FloorPoint{Kind: perf.Stream},
		perf.FloorPoint{Kind: perf.CheckedStream}, perf.FloorPoint{Kind: perf.SignedStream}, perf.FloorPoint{Kind: perf.SealedStream}, perf.FloorPoint{Kind: perf.Stream, Bytes: 8})
	if ranks == perf.FloorXDPGeneric {
		points = append(points, perf.FloorPoint{Kind: perf.JoinedStream})
	}
	return points
}

// perfMachine describes what was measured on, and how busy that was before.
func perfMachine() string {
	var name unix.Utsname
	var info unix.Sysinfo_t
	if unix.Uname(&name) != nil || unix.Sysinfo(&info) != nil { // they fail for bad arguments only
		return runtime.GOARCH
	}
	return fmt.Sprintf("Linux %s, %s, %d processors, load %.1f", unix.ByteSliceToString(name.Release[:]), runtime.GOARCH,
		runtime.NumCPU(), float64(info.Loads[0])/(1<<unix.SI_LOAD_SHIFT))
}
