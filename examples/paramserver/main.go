// Paramserver fits a line through points in several dimensions. Rank 0 keeps the parameters of
// the line in its window. In a round each rank pulls them, computes the gradient over its part of
// the points, and pushes a step. If a rank dies, the others divide its points and go on; if that
// was rank 0, the next one keeps the parameters.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/rma"
)

const (
	points = 3000
	seed   = 7   // from which the points follow
	noise  = 0.1 // the deviation of points from the line
	rate   = 0.05
	server = 0 // the rank whose window has the parameters
)

// line is what is to be found: the slopes, and the height at zero.
var line = []float64{2, -1, 0.5, 3}

func main() {
	rounds := flag.Int("rounds", 60, "how many steps to take")
	die := flag.Int("die", -1, "the rank that exits in the middle; -1: none")
	flag.Parse()
	ctx := context.Background()
	node, err := rma.Join(ctx, rma.Config{})
	if err != nil {
		log.Fatal(err)
	}
	err = run(ctx, node, *rounds, func(s *session, loss float64) {
		if node.Rank() == *die && s.round == *rounds/2 {
			os.Exit(1)
		}
		if s.win.Comm().Rank() == server && (s.round%10 == 0 || s.round == *rounds-1) {
			fmt.Printf("round %d, %d ranks: the loss is %.4f\n", s.round, s.win.Comm().Size(), loss)
		}
	})
	if err != nil {
		node.Abort(1, err) // says why, here and to the others
	}
	if err := node.Close(); err != nil {
		log.Fatal(err)
	}
}

// session is what one rank knows.
type session struct {
	world  *comm.Comm
	win    rma.WinOf[float64] // on the communicator of those that live
	line   []float64          // the parameters that this rank has pulled last
	points []point            // this rank's part
	round  int
}

// point has a one behind its coordinates, which the height is multiplied by.
type point struct {
	x []float64
	y float64
}

// run takes that many steps. Each rank calls watch with the loss before each of them.
func run(ctx context.Context, node *rma.Node, rounds int, watch func(s *session, loss float64)) error {
	s := &session{world: node.World(), line: make([]float64, len(line))}
	err := s.open(ctx, s.world)
	if err != nil {
		return err
	}
	for s.round < rounds {
		if err == nil {
			err = s.step(ctx, watch)
		}
		switch {
		case err == nil:
			s.round++
		case errors.Is(err, rma.ErrProcFailed) && ctx.Err() == nil:
			err = s.recover(ctx) // and take the step again, unless another rank has ended it
		default:
			return err
		}
	}
	return errors.Join(s.win.UnlockAll(ctx), s.win.Free(ctx))
}

// open makes a window on c, whose first rank gives it the parameters. All ranks go on with the
// furthest one's round: a barrier may have ended it at some, and failed at others.
func (s *session) open(ctx context.Context, c *comm.Comm) error {
	win, err := rma.AllocateOf[float64](ctx, c, len(s.line))
	if err != nil {
		return err
	}
	if c.Rank() == server {
		copy(win.Memory(), s.line)
	}
	round := []int64{0}
	err = comm.Allreduce(ctx, c, []int64{int64(s.round)}, round, rma.Max)
	// The fence hands the parameters over to the others.
	if err := errors.Join(err, win.Fence(ctx), win.LockAll(ctx)); err != nil {
		return errors.Join(err, win.Free(ctx))
	}
	s.win, s.points, s.round = win, nil, int(round[0])
	for i := c.Rank(); i < points; i += c.Size() {
		s.points = append(s.points, pointAt(i))
	}
	return nil
}

// step pulls the parameters, and pushes this rank's part of a step against the gradient. All
// have pulled when the sum of the losses is there, and all have pushed after the barrier. So
// no rank reads parameters while another one changes them.
func (s *session) step(ctx context.Context, watch func(s *session, loss float64)) error {
	if err := s.win.Read(ctx, s.line, server, rma.At(0)); err != nil {
		return err
	}
	loss, step := s.gradient()
	sum := []float64{0}
	if err := comm.Allreduce(ctx, s.win.Comm(), []float64{loss}, sum, rma.Sum); err != nil {
		return err
	}
	watch(s, sum[0])
	if err := errors.Join(s.win.Accumulate(step, server, rma.At(0), rma.Sum), s.win.Flush(ctx, server)); err != nil {
		return err
	}
	return s.win.Comm().Barrier(ctx)
}

// recover goes on with the ranks that live, after a call of step or recover has failed.
func (s *session) recover(ctx context.Context) error {
	// Some may not have met the failure, and wait in a collective for this rank. One that it
	// begins and gives up tells them.
	ended, end := context.WithCancel(ctx)
	end()
	_ = s.win.Comm().Barrier(ended)
	alive, err := survivors(ctx, s.world)
	if err != nil {
		return err
	}
	if alive.Rank() == server && s.win.Comm().Rank() == server {
		// All survivors have pushed what they will. A push of the dead one may still come in,
		// so the parameters are read by a call that is atomic. A new server, in turn, has
		// those that it pulled last.
		if err := errors.Join(s.win.GetAccumulate(nil, s.line, server, rma.At(0), rma.NoOp), s.win.Flush(ctx, server)); err != nil {
			return err
		}
	}
	old := s.win
	if err := s.open(ctx, alive); err != nil {
		return err // the old window still has the parameters
	}
	_ = errors.Join(old.UnlockAll(ctx), old.Free(ctx)) // says again that a rank has died
	return nil
}

// survivors returns a communicator of those that are left of world.
func survivors(ctx context.Context, world *comm.Comm) (*comm.Comm, error) {
	for {
		alive, err := world.CreateGroup(ctx, world.Group().Difference(world.Failed()), 0)
		if !errors.Is(err, rma.ErrProcFailed) || ctx.Err() != nil {
			return alive, err
		}
	}
}

// gradient returns this rank's part of the mean squared error and of a step against its gradient.
func (s *session) gradient() (loss float64, step []float64) {
	step = make([]float64, len(s.line))
	for _, p := range s.points {
		miss := p.miss(s.line)
		loss += miss * miss / points
		for i, x := range p.x {
			step[i] -= rate * 2 * miss * x / points
		}
	}
	return loss, step
}

// miss returns how far a line runs above the point.
func (p point) miss(line []float64) float64 {
	above := -p.y
	for i, x := range p.x {
		above += line[i] * x
	}
	return above
}

// pointAt returns the i-th point, which is the same at all ranks.
func pointAt(i int) point {
	random := rand.New(rand.NewPCG(seed, uint64(i)))
	p := point{x: []float64{random.NormFloat64(), random.NormFloat64(), random.NormFloat64(), 1}}
	p.y = p.miss(line) + noise*random.NormFloat64()
	return p
}
