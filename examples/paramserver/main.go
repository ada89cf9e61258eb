// Paramserver fits a model to data that is spread over the ranks. Its parameters lie in rank 0's
// window: workers read them and add their gradients, each at its own pace. If a worker dies, the
// others go on.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"time"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/rma"
)

func main() {
	rounds := flag.Int("rounds", 400, "gradients that each worker computes")
	dies := flag.Int("die", -1, "the rank that dies in the middle")
	flag.Parse()
	ctx := context.Background()
	node, err := rma.Join(ctx, rma.Config{Limits: rma.Limits{DeadAfter: 2 * time.Second}})
	if err != nil {
		log.Fatal(err)
	}
	die := func() {
		if node.Rank() == *dies {
			os.Exit(7) // without a word to anybody
		}
	}
	if err := errors.Join(run(ctx, node, *rounds, die, os.Stdout), node.Close()); err != nil {
		log.Fatal(err)
	}
}

// truth is what the data was made with.
var truth = []float64{3, -2, 0.5, 1}

// sample returns a point of this rank's data: inputs, and what they gave, with noise.
func sample(random *rand.Rand) (inputs []float64, output float64) {
	inputs = make([]float64, len(truth))
	for i, w := range truth {
		inputs[i] = random.Float64()*2 - 1
		output += w * inputs[i]
	}
	return inputs, output + 0.01*random.NormFloat64()
}

// run works at each rank. In the middle it calls die.
func run(ctx context.Context, node *rma.Node, rounds int, die func(), out io.Writer) error {
	world := node.World()
	parameters, err := rma.AllocateOf[float64](ctx, world, len(truth))
	if err != nil {
		return err
	}
	if err := parameters.LockAll(ctx); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(11, uint64(node.Rank())))
	for round := range rounds {
		if round == rounds/2 {
			die()
		}
		if err := train(ctx, parameters, random); err != nil {
			return err // without rank 0 there are no parameters
		}
	}
	if err := parameters.Flush(ctx, 0); err != nil { // the last gradient is there, too
		return err
	}
	alive, err := survivors(ctx, world)
	if err != nil {
		return err
	}
	fit := make([]float64, len(truth))
	if err := parameters.Read(ctx, fit, 0, rma.At(0)); err != nil {
		return err
	}
	mean := make([]float64, 1)
	if err := comm.Allreduce(ctx, alive, []float64{loss(fit, random)}, mean, datatype.Sum); err != nil {
		return err
	}
	if alive.Rank() == 0 {
		if _, err := fmt.Fprintf(out, "paramserver: OK, %d of %d ranks, loss %.4f, parameters %.2f\n",
			alive.Size(), world.Size(), mean[0]/float64(alive.Size()), fit); err != nil {
			return err
		}
	}
	if err := alive.Barrier(ctx); err != nil {
		return err
	}
	err = errors.Join(parameters.UnlockAll(ctx), parameters.Free(ctx))
	if alive.Size() < world.Size() && errors.Is(err, rma.ErrProcFailed) {
		return nil // the window is freed here; only that all have freed it cannot be known
	}
	return err
}

// train reads the parameters, computes a gradient, and adds it. Others do so meanwhile: each
// addition is atomic, and it does not matter much if a gradient is of parameters a moment old.
func train(ctx context.Context, parameters rma.WinOf[float64], random *rand.Rand) error {
	const batch, rate = 16, 0.05
	now, step := make([]float64, len(truth)), make([]float64, len(truth))
	// An atomic read, because others add.
	if err := parameters.GetAccumulate(nil, now, 0, rma.At(0), rma.NoOp); err != nil {
		return err
	}
	if err := parameters.Flush(ctx, 0); err != nil {
		return err
	}
	for range batch {
		inputs, output := sample(random)
		fault := predict(now, inputs) - output
		for i, x := range inputs {
			step[i] -= rate * fault * x / batch
		}
	}
	return parameters.Accumulate(step, 0, rma.At(0), rma.Sum) // completed by the next flush
}

func predict(parameters, inputs []float64) (y float64) {
	for i, w := range parameters {
		y += w * inputs[i]
	}
	return y
}

// loss is the mean square of what a model is wrong by.
func loss(parameters []float64, random *rand.Rand) (sum float64) {
	const points = 200
	for range points {
		inputs, output := sample(random)
		fault := predict(parameters, inputs) - output
		sum += fault * fault / points
	}
	return sum
}

// survivors returns a communicator of the ranks that are alive. All of them call it. The barrier
// fails at all if anybody has died.
func survivors(ctx context.Context, world *comm.Comm) (*comm.Comm, error) {
	if world.Barrier(ctx) == nil {
		return world, nil
	}
	for {
		alive, err := world.CreateGroup(ctx, world.Group().Difference(world.Failed()), 0)
		if !errors.Is(err, comm.ErrProcFailed) {
			return alive, err
		}
	}
}
