package main

import (
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

// serial computes the plate alone.
func serial(size, steps int) []float64 {
	now, next := make([]float64, size*size), make([]float64, size*size)
	for i := range now {
		now[i] = heat(i/size, i%size, size)
	}
	copy(next, now)
	for range steps {
		for row := 1; row < size-1; row++ {
			advance(next[row*size:][:size], now[(row-1)*size:][:3*size], size, row)
		}
		now, next = next, now
	}
	return now
}

func TestHalo(t *testing.T) {
	const size, steps = 23, 50
	want := serial(size, steps)
	for name, options := range map[string][]rmatest.Option{
		"frames":        nil,
		"shared memory": {rmatest.Unchecked(), rmatest.Hosts(1)},
		"lossy":         {&rmatest.Network{Seed: 3, Loss: 0.02, Duplication: 0.02, Reordering: 0.05}},
	} {
		for _, ranks := range []int{1, 2, 5} {
			t.Run(name, func(t *testing.T) {
				rmatest.Run(t, ranks, func(t *rmatest.T, node *rma.Node) {
					plate, err := run(t.Context(), node, size, steps)
					t.Must(err)
					if node.Rank() == 0 && !slices.Equal(plate, want) {
						t.Errorf("%d ranks compute something else than one", ranks)
					}
				}, options...)
			})
		}
	}
}

func TestPicture(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plate.png")
	if err := draw(serial(20, 10), 20, file); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	picture, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	if hot, _, _, _ := picture.At(10, 0).RGBA(); hot>>8 < 250 {
		t.Errorf("the hot edge has the colour %v", picture.At(10, 0))
	}
}
