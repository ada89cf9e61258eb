// Steal counts the nodes of a tree that nobody knows before. Its branches differ much in size, so
// ranks that have nothing to do steal work from the others, whose processes take no part in it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/rma"
)

func main() {
	effort := flag.Int("effort", 2000, "how long a node takes, in steps of a few ns")
	branches := flag.Int("branches", 2000, "how many children the root of the tree has")
	flag.Parse()
	ctx := context.Background()
	node, err := rma.Join(ctx, rma.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if err := run(ctx, node, *branches, *effort, os.Stdout); err != nil {
		node.Abort(1, err) // says why, here and to the others
	}
	if err := node.Close(); err != nil {
		log.Fatal(err)
	}
}

// children calls visit with the children of a node, which is a random number. Most have none.
func children(node uint64, branches int, visit func(uint64)) {
	n := 0
	switch {
	case node == root:
		n = branches
	case node%1000 < 245: // so that a branch has 50 nodes on average
		n = 4
	}
	for i := range uint64(n) {
		visit(mix(node+(i+1)*0x9e3779b97f4a7c15) | 1)
	}
}

// mix is the step of splitmix64.
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

const root = 0

// run counts at each rank. Rank 0 writes the sum to out.
func run(ctx context.Context, node *rma.Node, branches, effort int, out io.Writer) error {
	d, err := open(ctx, node.World())
	if err != nil {
		return err
	}
	w := worker{deques: d, branches: branches, effort: effort}
	if node.Rank() == 0 {
		w.tasks = []uint64{root}
	}
	if err := w.work(ctx); err != nil {
		return err
	}
	counts, sum := make([]int64, node.Size()), int64(0)
	if err := comm.Gather(ctx, node.World(), []int64{w.count}, counts, 0); err != nil {
		return err
	}
	if node.Rank() == 0 {
		for _, n := range counts {
			sum += n
		}
		if _, err := fmt.Fprintf(out, "steal: %d nodes, by rank %d\n", sum, counts); err != nil {
			return err
		}
	}
	return d.close(ctx)
}

// worker is one rank at work.
type worker struct {
	*deques
	branches int
	effort   int
	tasks    []uint64 // its own, out of reach for the others
	count    int64    // nodes seen
}

const (
	batch = 64  // tasks published at a time
	keep  = 128 // tasks that a rank does not publish
)

// work works until no rank has a task.
func (w *worker) work(ctx context.Context) error {
	busy := len(w.tasks) > 0 // and counted as such
	if err := w.begin(ctx, busy); err != nil {
		return err
	}
	for {
		for len(w.tasks) > 0 {
			last := len(w.tasks) - 1
			task := w.tasks[last]
			w.tasks = w.tasks[:last]
			w.count++
			for h, i := task|1, 0; i < w.effort && h != 0; i++ {
				h = mix(h) // what a node is worth
			}
			children(task, w.branches, func(c uint64) { w.tasks = append(w.tasks, c) })
			for len(w.tasks) >= keep+batch {
				published, err := w.publish(ctx, w.tasks[:batch]) // the oldest, which have most below them
				if err != nil {
					return err
				}
				if !published {
					break
				}
				w.tasks = append(w.tasks[:0], w.tasks[batch:]...)
			}
		}
		if busy {
			if err := w.tally(ctx, -1); err != nil {
				return err
			}
			busy = false
		}
		stolen, err := w.stealAround(ctx)
		if err != nil {
			return err
		}
		if len(stolen) > 0 {
			w.tasks, busy = append(w.tasks, stolen...), true
			continue
		}
		if over, err := w.over(ctx); over || err != nil {
			return err
		}
	}
}
