// Halo computes how heat spreads over a plate. The rows of the plate are divided among the ranks.
// Each needs the rows next to its own, its halo, which the neighbours write into its memory.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"log"
	"os"

	"github.com/xdprma/xdprma/rma"
)

func main() {
	size := flag.Int("size", 120, "rows and columns of the plate")
	steps := flag.Int("steps", 2000, "steps of time")
	file := flag.String("o", "", "the file for a picture; none without a name")
	flag.Parse()
	ctx := context.Background()
	node, err := rma.Join(ctx, rma.Config{})
	if err != nil {
		log.Fatal(err)
	}
	plate, err := run(ctx, node, *size, *steps)
	if err == nil && node.Rank() == 0 {
		fmt.Printf("halo: OK, the middle of the plate has %.2f degrees\n", plate[*size/2*(*size)+*size/2])
		err = draw(plate, *size, *file)
	}
	if err := errors.Join(err, node.Close()); err != nil {
		log.Fatal(err)
	}
}

// heat returns the temperature of a place at the start: the upper edge and a spot are hot. The
// edges stay as they are.
func heat(row, column, size int) float64 {
	dr, dc := row-2*size/3, column-size/3
	if row == 0 || dr*dr+dc*dc < size*size/100 {
		return 100
	}
	return 0
}

// rowsOf returns the first row of a rank, and the one after its last.
func rowsOf(rank, ranks, size int) (first, end int) {
	return rank * size / ranks, (rank + 1) * size / ranks
}

// run computes, and returns the plate at rank 0.
func run(ctx context.Context, node *rma.Node, size, steps int) ([]float64, error) {
	first, end := rowsOf(node.Rank(), node.Size(), size)
	rows := end - first
	if size < node.Size() {
		return nil, fmt.Errorf("%d ranks cannot divide %d rows", node.Size(), size)
	}
	// Two layers, now and next, each of this rank's rows between two of the halo.
	layer := (rows + 2) * size
	win, err := rma.AllocateOf[float64](ctx, node.World(), 2*layer)
	if err != nil {
		return nil, err
	}
	grid := win.Memory()
	for i := range rows * size {
		grid[size+i] = heat(first+i/size, i%size, size)
	}
	for step := range steps {
		from, to := step%2*layer, (step+1)%2*layer
		if err := swapHalos(ctx, win, node, size, step%2); err != nil {
			return nil, err
		}
		for row := 1; row <= rows; row++ {
			advance(grid[to+row*size:][:size], grid[from+(row-1)*size:][:3*size], size, first+row-1)
		}
	}
	plate, err := gather(ctx, win, node, size, steps%2)
	return plate, errors.Join(err, win.Free(ctx))
}

// swapHalos writes the outer rows of this rank into the halos of its neighbours, and returns when
// theirs are here. Post and Start concern neighbours alone; a fence would have all ranks wait for
// the slowest.
func swapHalos(ctx context.Context, win rma.WinOf[float64], node *rma.Node, size, layer int) error {
	up, down := node.Rank()-1, node.Rank()+1
	if up < 0 {
		up = rma.ProcNull // nobody
	}
	if down == node.Size() {
		down = rma.ProcNull
	}
	first, end := rowsOf(node.Rank(), node.Size(), size)
	mine := win.Memory()[layer*(end-first+2)*size:]
	// The row after the last one of the rank above.
	at := 0
	if up != rma.ProcNull {
		f, e := rowsOf(up, node.Size(), size)
		at = (layer*(e-f+2) + e - f + 1) * size
	}
	below := 0
	if down != rma.ProcNull {
		f, e := rowsOf(down, node.Size(), size)
		below = layer * (e - f + 2) * size
	}
	neighbours := []int{up, down}
	return cmp.Or( // the first error
		win.Post(ctx, neighbours), // this rank's halo may be written
		win.Start(ctx, neighbours),
		win.Put(mine[size:2*size], up, rma.At(at)),
		win.Put(mine[(end-first)*size:][:size], down, rma.At(below)),
		win.Complete(ctx),
		win.Wait(ctx), // and it has been
	)
}

// advance computes a row from the three around it. The edges of the plate stay.
func advance(to, around []float64, size, row int) {
	copy(to, around[size:2*size])
	if row == 0 || row == size-1 {
		return
	}
	for c := 1; c < size-1; c++ {
		to[c] = 0.25 * (around[c] + around[size+c-1] + around[size+c+1] + around[2*size+c])
	}
}

// gather returns the whole plate at rank 0, which reads it from the others' memory.
func gather(ctx context.Context, win rma.WinOf[float64], node *rma.Node, size, layer int) (plate []float64, err error) {
	if err := node.World().Barrier(ctx); err != nil || node.Rank() != 0 {
		return nil, err
	}
	plate = make([]float64, size*size)
	if err := win.LockAll(ctx); err != nil {
		return nil, err
	}
	for rank := range node.Size() {
		first, end := rowsOf(rank, node.Size(), size)
		at := (layer*(end-first+2) + 1) * size
		if err := win.Get(plate[first*size:end*size], rank, rma.At(at)); err != nil {
			return nil, err
		}
	}
	return plate, win.UnlockAll(ctx)
}

// draw makes a picture of the plate.
func draw(plate []float64, size int, file string) error {
	if file == "" {
		return nil
	}
	picture := image.NewRGBA(image.Rect(0, 0, size, size))
	for i, t := range plate {
		picture.Set(i%size, i/size, color.RGBA{uint8(t * 2.55), uint8(t * t / 40), uint8(90 - 0.9*t), 255})
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(png.Encode(f, picture), f.Close())
}
