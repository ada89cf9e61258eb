package bpf_test

import (
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/xdprma/xdprma/bpf"
	"github.com/xdprma/xdprma/internal/wire"
)

// The C struct and the Go layout of the header are one.
func TestHeaderLayout(t *testing.T) {
	spec, err := bpf.LoadClassifier()
	if err != nil {
		t.Fatal(err)
	}
	var header *btf.Struct
	if err := spec.Types.TypeByName("wire_header", &header); err != nil {
		t.Fatal(err)
	}
	if header.Size != wire.HeaderLen {
		t.Errorf("the C header has %d bytes, the Go header %d", header.Size, wire.HeaderLen)
	}
	if len(header.Members) != len(wire.HeaderFields) {
		t.Fatalf("the C header has %d fields, the Go header %d", len(header.Members), len(wire.HeaderFields))
	}
	for i, m := range header.Members {
		size, err := btf.Sizeof(m.Type)
		if err != nil {
			t.Fatal(err)
		}
		got := wire.HeaderField{Name: m.Name, Offset: int(m.Offset.Bytes()), Size: size}
		if got != wire.HeaderFields[i] {
			t.Errorf("field %d is %v in C and %v in Go", i, got, wire.HeaderFields[i])
		}
	}
}
