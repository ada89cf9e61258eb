// Kv counts visits in a hash map that all ranks share: a package of its own, kv/kv, on top of
// the library.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"

	"github.com/xdprma/xdprma/examples/kv/kv"
	"github.com/xdprma/xdprma/rma"
)

func main() {
	visits := flag.Int("visits", 10_000, "how many visits each rank counts")
	flag.Parse()
	ctx := context.Background()
	node, err := rma.Join(ctx, rma.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if err := run(ctx, node, *visits, os.Stdout); err != nil {
		node.Abort(1, err) // says why, here and to the others
	}
	if err := node.Close(); err != nil {
		log.Fatal(err)
	}
}

// run counts at each rank. Rank 0 writes the pages with most visits to out.
func run(ctx context.Context, node *rma.Node, visits int, out io.Writer) error {
	const pages = 100
	m, err := kv.New(ctx, node.World(), 2*pages)
	if err != nil {
		return err
	}
	random := rand.NewZipf(rand.New(rand.NewPCG(3, uint64(node.Rank()))), 1.3, 1, pages-1)
	for range visits {
		if _, err := m.Add(ctx, 1+random.Uint64(), 1); err != nil {
			return err
		}
	}
	if err := node.World().Barrier(ctx); err != nil {
		return err
	}
	if node.Rank() == 0 {
		var sum, page, most uint64
		if err := m.Range(ctx, func(key, value uint64) bool {
			sum += value
			if value > most {
				page, most = key, value
			}
			return true
		}); err != nil {
			return err
		}
		if want := uint64(visits * node.Size()); sum != want {
			return fmt.Errorf("the map has %d visits, and there were %d", sum, want)
		}
		if _, err := fmt.Fprintf(out, "kv: OK, %d visits, most of page %d: %d\n", sum, page, most); err != nil {
			return err
		}
	}
	return m.Close(ctx)
}
