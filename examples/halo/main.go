// Halo spreads heat over a plate whose rows are divided among the ranks. In a step each cell
// becomes the mean of its four neighbours. A rank therefore needs the last row of the rank above
// and the first row of the rank below. It keeps copies of them, its halo, around its own rows. Neighbours
// let each other know of new rows in one of three ways, which ways.go has.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"log"
	"os"
	"time"

	"github.com/xdprma/xdprma/rma"
)

// plate is what is computed: a grid of cells, and for how many steps.
type plate struct {
	rows, columns, steps int
	by                   string // how ranks exchange rows: a name of ways
}

func main() {
	var p plate
	flag.IntVar(&p.rows, "rows", 160, "rows of the grid, at least one for each rank")
	flag.IntVar(&p.columns, "columns", 240, "columns of the grid")
	flag.IntVar(&p.steps, "steps", 5000, "how many steps to compute")
	flag.StringVar(&p.by, "way", "notify", "how ranks exchange rows: notify, post or fence")
	path := flag.String("o", "halo.png", "the file that rank 0 writes the picture to")
	flag.Parse()
	ctx := context.Background()
	node, err := rma.Join(ctx, rma.Config{})
	if err != nil {
		log.Fatal(err)
	}
	err = run(ctx, node, p, func(cells []float64) error { return draw(p, cells, *path) })
	if err != nil {
		node.Abort(1, err) // says why, here and to the others
	}
	if err := node.Close(); err != nil {
		log.Fatal(err)
	}
}

// part is one rank's rows. Its window has two grids, one for the even and one for the odd steps:
// a step reads one and writes the other. Row 0 of a grid is the halo above, and the last row is
// that below.
type part struct {
	plate
	win          rma.WinOf[float64]
	way          way
	rank, size   int
	above, below int // the neighbours; ProcNull at the edges of the plate
}

// run computes the plate, and has rank 0 show all its cells, row by row.
func run(ctx context.Context, node *rma.Node, p plate, show func(cells []float64) error) error {
	if p.rows < node.Size() || p.columns < 1 || p.steps < 0 {
		return fmt.Errorf("there cannot be %d steps on %d rows of %d columns with %d ranks: each rank needs a row", p.steps, p.rows, p.columns, node.Size())
	}
	how, ok := ways[p.by]
	if !ok {
		return fmt.Errorf("there is no way %q to exchange rows: take notify, post or fence", p.by)
	}
	h := &part{plate: p, way: how, rank: node.Rank(), size: node.Size(), above: node.Rank() - 1, below: node.Rank() + 1}
	if h.above < 0 {
		h.above = rma.ProcNull
	}
	if h.below == h.size {
		h.below = rma.ProcNull
	}
	var err error
	if h.win, err = rma.AllocateOf[float64](ctx, node.World(), h.at(h.rank, 2, 0), rma.Counters(counters)); err != nil {
		return err
	}
	start := time.Now()
	if err := h.way.open(ctx, h); err != nil {
		return err
	}
	for step := range p.steps {
		if err := h.step(ctx, step); err != nil {
			return err
		}
	}
	if err := h.way.close(ctx, h); err != nil {
		return err
	}
	if h.rank == 0 {
		log.Printf("%s: %.2f us a step", p.by, float64(time.Since(start).Microseconds())/float64(max(p.steps, 1)))
	}
	cells, err := h.gather(ctx)
	if err == nil && h.rank == 0 {
		err = show(cells)
	}
	return errors.Join(err, h.win.Free(ctx))
}

// step computes this rank's rows of a grid, and exchanges the outer ones with the neighbours.
func (h *part) step(ctx context.Context, step int) error {
	from, to, last := step%2, (step+1)%2, h.ownRows(h.rank)
	if err := h.way.begin(ctx, h); err != nil {
		return err
	}
	h.update(from, to, 1)
	h.update(from, to, last)
	err := errors.Join(
		h.put(h.row(to, 1), h.above, h.at(h.above, to, h.ownRows(h.above)+1), fromBelow+to),
		h.put(h.row(to, last), h.below, h.at(h.below, to, 0), fromAbove+to),
		h.way.sent(ctx, h),
	)
	if err != nil {
		return err
	}
	for row := 2; row < last; row++ { // while the outer rows are on their way
		h.update(from, to, row)
	}
	return h.way.end(ctx, h, uint64(step)+1)
}

// update computes a row of grid to.
func (h *part) update(from, to, row int) {
	up, old, down, now := h.row(from, row-1), h.row(from, row), h.row(from, row+1), h.row(to, row)
	for column := range now {
		heat, held := h.held(h.firstRow(h.rank)+row-1, column)
		if !held {
			heat = (up[column] + down[column] + old[column-1] + old[column+1]) / 4
		}
		now[column] = heat
	}
}

// held returns the heat of cells that keep it: a hot disc, half of a ring around it, which is
// cold, and the edges, which are cold too.
func (p plate) held(row, column int) (heat float64, held bool) {
	if row == 0 || column == 0 || row == p.rows-1 || column == p.columns-1 {
		return 0, true
	}
	y, x := float64(row)/float64(p.rows)-0.5, (float64(column)-float64(p.columns)/2)/float64(p.rows)
	switch distance := x*x + y*y; {
	case distance < 0.01:
		return 1, true
	case distance > 0.05 && distance < 0.06 && x < y:
		return 0, true
	}
	return 0, false
}

// gather returns all cells at rank 0. The first fence makes each rank's rows visible to others,
// and the second one completes the gets.
func (h *part) gather(ctx context.Context) ([]float64, error) {
	err := h.win.Fence(ctx, rma.ModeNoPrecede)
	var cells []float64
	if h.rank == 0 {
		cells = make([]float64, h.rows*h.columns)
		for rank := range h.size {
			into := cells[h.firstRow(rank)*h.columns : h.firstRow(rank+1)*h.columns]
			err = errors.Join(err, h.win.Get(into, rank, rma.At(h.at(rank, h.steps%2, 1))))
		}
	}
	return cells, errors.Join(err, h.win.Fence(ctx, rma.ModeNoSucceed))
}

// firstRow returns the first row of the plate that is a rank's.
func (h *part) firstRow(rank int) int { return rank * h.rows / h.size }

// ownRows returns how many rows a rank has.
func (h *part) ownRows(rank int) int { return h.firstRow(rank+1) - h.firstRow(rank) }

// at returns the displacement of a row in the window of a rank, whose grids have two rows of halo.
func (h *part) at(rank, grid, row int) int { return (grid*(h.ownRows(rank)+2) + row) * h.columns }

// row returns a row of this rank's window.
func (h *part) row(grid, row int) []float64 {
	return h.win.Memory()[h.at(h.rank, grid, row):][:h.columns]
}

// draw writes a picture of the cells.
func draw(p plate, cells []float64, path string) error {
	colours := make(color.Palette, 256) // from black over red and yellow to white
	for i := range colours {
		part := func(from int) uint8 { return uint8(min(max(3*(i-from), 0), 255)) }
		colours[i] = color.RGBA{part(0), part(85), part(170), 255}
	}
	picture := image.NewPaletted(image.Rect(0, 0, p.columns, p.rows), colours)
	for i, heat := range cells {
		picture.Pix[i] = uint8(255 * heat)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(png.Encode(file, picture), file.Close())
}
