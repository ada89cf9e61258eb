package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

func TestKv(t *testing.T) {
	var out bytes.Buffer
	rmatest.Run(t, 3, func(t *rmatest.T, node *rma.Node) {
		text := &out
		if node.Rank() != 0 {
			text = nil
		}
		t.Must(run(t.Context(), node, 300, text))
	})
	if !strings.HasPrefix(out.String(), "kv: OK, 900 visits") {
		t.Errorf("got %s", &out)
	}
}
