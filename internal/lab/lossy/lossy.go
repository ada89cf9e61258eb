// Package lossy has tests run jobs of rmatest as examples are run, over many networks that lose frames.
package lossy

import (
	"fmt"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/rmatest"
)

// Networks runs a test once for each of many networks, which lose 2 and 5 % of the frames, and double
// and reorder some. The test is to run its job with rmatest.Unchecked, and to compare the result with one that is
// computed without ranks: in checking mode each flush waits for the target, so that less is overtaken.
func Networks(t *testing.T, test func(t *testing.T, net *rmatest.Network)) {
	first, seeds := testenv.Span(50, 3)
	for seed := first + 1; seed <= first+seeds; seed++ { // 0 is no seed
		for _, percent := range testenv.OneOf(2.0, 5.0) {
			t.Run(fmt.Sprintf("%g%%,seed=%d", percent, seed), func(t *testing.T) {
				t.Parallel() // it mostly waits
				test(t, &rmatest.Network{Seed: seed, Loss: percent / 100, Duplication: 0.02, Reordering: 0.05})
			})
		}
	}
}
