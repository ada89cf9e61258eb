// Histogram counts numbers in bins that are spread over the ranks. Each rank draws numbers and
// adds to bins in the others' memory; nobody answers a call for that.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"strings"

	"github.com/xdprma/xdprma/rma"
)

func main() {
	numbers := flag.Int("numbers", 100_000, "how many numbers each rank draws")
	bins := flag.Int("bins", 20, "how many bins there are")
	flag.Parse()
	ctx := context.Background()
	node, err := rma.Join(ctx, rma.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if err := run(ctx, node, *numbers, *bins, os.Stdout); err != nil {
		node.Abort(1, err) // says why, here and to the others
	}
	if err := node.Close(); err != nil {
		log.Fatal(err)
	}
}

// run draws numbers at each rank. Rank 0 writes the histogram to out.
func run(ctx context.Context, node *rma.Node, numbers, bins int, out io.Writer) error {
	perRank := (bins + node.Size() - 1) / node.Size()
	win, err := rma.AllocateOf[int64](ctx, node.World(), perRank)
	if err != nil {
		return err
	}
	if err := count(ctx, win, numbers, bins, perRank); err != nil {
		return err
	}
	// Unlock has completed what this rank added. After the barrier all have done so.
	if err := node.World().Barrier(ctx); err != nil {
		return err
	}
	if node.Rank() == 0 {
		if err := show(ctx, win, numbers, bins, perRank, out); err != nil {
			return err
		}
	}
	return win.Free(ctx) // which waits for the others
}

// count adds this rank's numbers. Additions of several ranks to one bin are atomic.
func count(ctx context.Context, win rma.WinOf[int64], numbers, bins, perRank int) error {
	if err := win.LockAll(ctx); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(7, uint64(win.Comm().Rank())))
	for range numbers {
		bin := binOf(random.NormFloat64(), bins)
		if err := win.Update(1, bin/perRank, rma.At(bin%perRank), rma.Sum); err != nil {
			return err
		}
	}
	return win.UnlockAll(ctx)
}

// binOf returns the bin of a number: those from -3 to 3 are divided evenly, and the outer bins
// have the rest.
func binOf(number float64, bins int) int {
	return min(max(int((number+3)/6*float64(bins)), 0), bins-1)
}

// show reads all bins, and checks that no number is missing.
func show(ctx context.Context, win rma.WinOf[int64], numbers, bins, perRank int, out io.Writer) error {
	counts := make([]int64, perRank*win.Comm().Size())
	if err := win.LockAll(ctx); err != nil {
		return err
	}
	for rank := range win.Comm().Size() {
		if err := win.Get(counts[rank*perRank:][:perRank], rank, rma.At(0)); err != nil {
			return err
		}
	}
	if err := win.UnlockAll(ctx); err != nil { // now counts is filled
		return err
	}
	var sum, most int64
	for _, n := range counts {
		sum, most = sum+n, max(most, n)
	}
	for bin, n := range counts[:bins] {
		fmt.Fprintf(out, "%5.2f %7d %s\n", -3+6*float64(bin)/float64(bins), n, strings.Repeat("#", int(50*n/most)))
	}
	if want := int64(numbers * win.Comm().Size()); sum != want {
		return fmt.Errorf("the bins have %d numbers, and %d were drawn", sum, want)
	}
	_, err := fmt.Fprintf(out, "histogram: OK, %d numbers\n", sum)
	return err
}
