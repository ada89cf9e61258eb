package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/pprof"
	"strconv"

	"github.com/urfave/cli/v3"

	"github.com/xdprma/xdprma/cmd/internal/perf"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/rma"
)

const perfRankName = "perf-rank"

// perfRankCommand is one process of a measurement: it reads its plan from its
// argument and its place from the environment, and prints the samples.
func perfRankCommand() *cli.Command {
	return &cli.Command{
		Name:   perfRankName,
		Hidden: true,
		Usage:  "one rank of xdprma perf",
		Flags:  []cli.Flag{&cli.StringFlag{Name: "cpuprofile"}, &cli.IntFlag{Name: "payload"}},
		Action: func(ctx context.Context, c *cli.Command) error {
			var plan perf.Plan
			if err := json.Unmarshal([]byte(c.Args().First()), &plan); err != nil {
				return usageError("%s is started by xdprma perf: %w", perfRankName, err)
			}
			place, err := bootstrap.FromEnvironment()
			if err != nil {
				return err
			}
			if len(plan.Floors) > 0 {
				return perfFloorSide(ctx, place, c.Int("payload"), &plan)
			}
			if file := c.String("cpuprofile"); file != "" {
				stop, err := startProfile(file + "." + strconv.Itoa(place.Rank))
				if err != nil {
					return err
				}
				defer stop()
			}
			out := json.NewEncoder(os.Stdout)
			return perfRank(ctx, &plan, func(s *perf.Sample) error { return out.Encode(s) })
		},
	}
}

// perfRank joins the job and measures.
func perfRank(ctx context.Context, plan *perf.Plan, emit func(*perf.Sample) error) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	// Accesses go by the network, which is measured, also on the loopback interface.
	if err := os.Setenv(bootstrap.EnvFrames, "1"); err != nil {
		return err
	}
	node, err := rma.Join(ctx, rma.Config{Logger: log})
	if err != nil {
		return err
	}
	return node.CloseWith(perf.Run(ctx, node, plan, emit))
}

// floorStream is the descriptor of a side of a floor that leads to the other side.
const floorStream = 3

// perfFloorSide is one side of a floor.
func perfFloorSide(ctx context.Context, place bootstrap.Config, payload int, plan *perf.Plan) error {
	file := os.NewFile(floorStream, "the other side of the floor")
	stream, err := net.FileConn(file)
	if err != nil {
		return usageError("%s is started by xdprma perf: %w", perfRankName, err)
	}
	_ = file.Close() // stream has a descriptor of its own
	out := json.NewEncoder(os.Stdout)
	at := perf.FloorPlace{Side: place.Rank, Interface: place.Interface, Address: place.Address, Payload: payload}
	return perf.RunFloor(ctx, stream, at, plan, func(s *perf.FloorSample) error { return out.Encode(s) })
}

func startProfile(file string) (stop func(), err error) {
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		f.Close()
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		f.Close()
	}, nil
}

// readSamples decodes what rank 0 of a job printed of so many points.
func readSamples[T any](r io.Reader, points int) ([]*T, error) {
	samples := make([]*T, points)
	d := json.NewDecoder(r)
	for i := range samples {
		samples[i] = new(T)
		if err := d.Decode(samples[i]); err != nil {
			return nil, fmt.Errorf("what a rank reported of point %d of %d cannot be read: %w", i+1, points, err)
		}
	}
	if d.More() {
		return nil, fmt.Errorf("a rank reported more than %d points", points)
	}
	return samples, nil
}
