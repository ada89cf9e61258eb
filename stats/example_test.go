package stats_test

import (
	"context"
	"fmt"
	"log"

	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
	"github.com/xdprma/xdprma/stats"
)

// troubles says what a rank has met that it should not.
func troubles(s stats.Stats) map[string]uint64 {
	found := map[string]uint64{
		"sent again": s.Resent, "refused": s.Refused, "conflicts": s.Conflicts, "malformed": s.Device.RxMalformed,
	}
	for name, n := range s.Faults {
		found["faulty "+name] = n
	}
	for name, n := range found {
		if n == 0 {
			delete(found, name)
		}
	}
	return found
}

// A program looks for what went wrong when it is over.
func Example() {
	err := rmatest.Job(2, func(ctx context.Context, node *rma.Node) error {
		if err := node.World().Barrier(ctx); err != nil {
			return err
		}
		s := node.Stats()
		fmt.Println("sent:", s.Sent > 0, "lost ranks:", s.PeersFailed, "refused:", troubles(s)["refused"])
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Unordered output:
	// sent: true lost ranks: 0 refused: 0
	// sent: true lost ranks: 0 refused: 0
}
