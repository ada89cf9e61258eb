package bpf_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/xdprma/xdprma/bpf"
	"github.com/xdprma/xdprma/internal/lab/twin"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// Each C struct has the layout that Go knows.
func TestLayouts(t *testing.T) {
	spec, err := bpf.LoadExpress()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		size   uint32
		fields []wire.HeaderField
	}{
		{"wire_header", wire.HeaderLen, wire.HeaderFields},
		{"express_slot", express.SlotLen, express.SlotFields()},
		{"express_window", express.WindowLen, express.WindowFields()},
	} {
		var c *btf.Struct
		if err := spec.Types.TypeByName(tt.name, &c); err != nil {
			t.Fatal(err)
		}
		if c.Size != tt.size {
			t.Errorf("%s has %d bytes in C and %d in Go", tt.name, c.Size, tt.size)
		}
		var got []wire.HeaderField
		for _, m := range c.Members {
			if m.Name == "pad" || m.Name == "rest" {
				continue
			}
			size, err := btf.Sizeof(m.Type)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, wire.HeaderField{Name: m.Name, Offset: int(m.Offset.Bytes()), Size: size})
		}
		if !slices.Equal(got, tt.fields) {
			t.Errorf("%s is in C\n%v, in Go\n%v", tt.name, got, tt.fields)
		}
	}
}

// Each reason of the twin has its counter.
func TestReasonsHaveCounters(t *testing.T) {
	spec, err := bpf.LoadExpress()
	if err != nil {
		t.Fatal(err)
	}
	var counters *btf.Enum
	if err := spec.Types.TypeByName("counter", &counters); err != nil {
		t.Fatal(err)
	}
	first := int(bpf.ClassifierCounterCOUNTER_EXPRESS_EXECUTED)
	for why := twin.None; why < twin.NumReasons; why++ {
		want := "COUNTER_EXPRESS_" + strings.ToUpper(why.String())
		if got := counters.Values[first+int(why)].Name; got != want {
			t.Errorf("reason %v is counted as %s, not %s", why, got, want)
		}
	}
}
