package lossy

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

// Output runs a job of rmatest, and returns what rank 0 has written. Each rank calls run, and what the others write is
// dropped. An error of any rank fails the test.
func Output(t *testing.T, ranks int, run func(ctx context.Context, node *rma.Node, out io.Writer) error, options ...rmatest.Option) string {
	t.Helper()
	var out bytes.Buffer
	rmatest.Run(t, ranks, func(t *rmatest.T, node *rma.Node) {
		text := io.Discard
		if node.Rank() == 0 {
			text = &out
		}
		t.Must(run(t.Context(), node, text))
	}, options...)
	return out.String()
}
