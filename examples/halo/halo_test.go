package main

import (
	"context"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/lossy"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

// alone computes the plate without ranks.
func alone(p plate) []float64 {
	cells := make([]float64, p.rows*p.columns)
	for range p.steps {
		old := slices.Clone(cells)
		for i := range cells {
			heat, held := p.held(i/p.columns, i%p.columns)
			if !held {
				heat = (old[i-p.columns] + old[i+p.columns] + old[i-1] + old[i+1]) / 4
			}
			cells[i] = heat
		}
	}
	return cells
}

// TestHalo compares the cells bit by bit with those computed without ranks. The numbers of rows
// give ranks different parts, and parts of one row.
func TestHalo(t *testing.T) {
	for name, options := range map[string][]rmatest.Option{
		"frames":        nil,
		"shared memory": {rmatest.Unchecked(), rmatest.Hosts(1)},
		"lossy":         {&rmatest.Network{Seed: 1, Loss: 0.02, Duplication: 0.02, Reordering: 0.05}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, p := range []plate{{rows: 22, columns: 31, steps: 41}, {rows: 4, columns: 9, steps: 8}} {
				for i, way := range []string{"notify", "post", "fence", "notify"} {
					ranks, got := []int{1, 4}[min(i, 1)], []float64(nil)
					p.by = way
					rmatest.Run(t, ranks, func(t *rmatest.T, node *rma.Node) {
						t.Must(run(t.Context(), node, p, func(cells []float64) error { got = cells; return nil }))
					}, options...)
					if !slices.Equal(got, alone(p)) {
						t.Errorf("%d ranks computed for %+v\n%v, want\n%v", ranks, p, got, alone(p))
					}
				}
			}
		})
	}
}

// TestHaloOverLoss takes so many steps that rows of one step get lost and those of the next arrive.
func TestHaloOverLoss(t *testing.T) {
	for way := range ways {
		t.Run(way, func(t *testing.T) {
			p := plate{rows: 22, columns: 31, steps: 201, by: way}
			want := alone(p)
			lossy.Networks(t, func(t *testing.T, net *rmatest.Network) {
				var got []float64
				rmatest.Run(t, 4, func(t *rmatest.T, node *rma.Node) {
					t.Must(run(t.Context(), node, p, func(cells []float64) error { got = cells; return nil }))
				}, net, rmatest.Unchecked())
				if !slices.Equal(got, want) {
					t.Error("the plate differs from that which is computed without ranks")
				}
			})
		})
	}
}

func TestTooFewRows(t *testing.T) {
	err := rmatest.Job(3, func(ctx context.Context, node *rma.Node) error {
		return run(ctx, node, plate{rows: 2, columns: 5, steps: 1, by: "notify"}, nil)
	})
	if err == nil || !strings.Contains(err.Error(), "each rank needs a row") {
		t.Errorf("two rows were divided among three ranks: %v", err)
	}
}

func TestPicture(t *testing.T) {
	path := filepath.Join(t.TempDir(), "halo.png")
	p := plate{rows: 1, columns: 3}
	if err := draw(p, []float64{0, 0.5, 1}, path); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	picture, err := png.Decode(file)
	if err != nil {
		t.Fatal(err)
	}
	for x, want := range [][3]uint32{{0, 0, 0}, {255, 126, 0}, {255, 255, 255}} {
		if r, g, b, _ := picture.At(x, 0).RGBA(); [3]uint32{r >> 8, g >> 8, b >> 8} != want {
			t.Errorf("cell %d has the colour %d, %d, %d, want %d", x, r>>8, g>>8, b>>8, want)
		}
	}
}
