package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

func TestParamserver(t *testing.T) {
	for _, test := range []struct {
		name    string
		dies    int
		want    string
		network *rmatest.Network
		options []rmatest.Option
	}{
		{"frames", -1, "OK, 4 of 4 ranks", &rmatest.Network{}, nil},
		{"shared memory", -1, "OK, 4 of 4 ranks", &rmatest.Network{}, []rmatest.Option{rmatest.Unchecked(), rmatest.Hosts(1)}},
		{"lossy", -1, "OK, 4 of 4 ranks", &rmatest.Network{Seed: 4, Loss: 0.02, Duplication: 0.02, Reordering: 0.05}, nil},
		{"a death", 2, "OK, 3 of 4 ranks", &rmatest.Network{}, nil},
		{"a death, lossy", 1, "OK, 3 of 4 ranks", &rmatest.Network{Seed: 4, Loss: 0.02}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			rmatest.Run(t, 4, func(t *rmatest.T, node *rma.Node) {
				text := &out
				if node.Rank() != 0 {
					text = nil
				}
				die := func() {
					if node.Rank() == test.dies {
						test.network.Kill(node.Rank())
					}
				}
				if err := run(t.Context(), node, 300, die, text); node.Rank() != test.dies {
					t.Must(err)
				} else if err == nil || errors.Is(err, rma.ErrArg) {
					t.Errorf("the dead rank: %v", err)
				}
			}, append(test.options, test.network)...)
			if !strings.Contains(out.String(), test.want) || !strings.Contains(out.String(), "loss 0.00") {
				t.Errorf("got %s", &out)
			}
			t.Log(out.String())
		})
	}
}
