package bpf_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/twin"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// The program executes the records of which the table says so, each code in some form, alone or under
// a lock, and it does with all of them what its twin does.
func TestTheProgramExecutesWhatTheTableSays(t *testing.T) {
	p, other := loadTier(t), heapSide()
	one, part := []byte{1, 0, 0, 0, 0, 0, 0, 0}, make([]byte, wire.PartLen)
	wire.PutPart(part, 0, 8)
	lock := record{wire.Record{Code: wire.CodeLock, Window: wideWindow}, nil}
	unlock := record{wire.Record{Code: wire.CodeUnlock, Window: wideWindow}, nil}
	h := express.Header{Session: sessionOf(0), Exchange: 1, Try: 1}
	var times [numCounters]uint64
	for i := range 256 {
		executed := false
		for _, data := range [][]byte{nil, one, part, slices.Concat(part, one), slices.Concat(one, one)} {
			r := record{wire.Record{Code: wire.Code(i), Window: wideWindow, Basic: uint8(datatype.BasicUint64), Op: uint8(datatype.Sum)}, data}
			for _, list := range [][]record{{r}, {r, unlock}, {lock, r}} {
				if _, why := p.both(t, other, 0, signed(keyOf(0), h, list...), &times); why == twin.None {
					executed = true
					h.Exchange++
				}
			}
		}
		if c := wire.Code(i); executed != c.Row().Tier {
			t.Errorf("%v (%d) is executed: %t", c, i, executed)
		}
	}
	p.compare(t, other, true)
}

// The program combines elements exactly where the table says so, and as package elements does.
func TestTheProgramCombinesWhatTheTableSays(t *testing.T) {
	p, other := loadTier(t), heapSide()
	h := express.Header{Session: sessionOf(0), Exchange: 1, Try: 1}
	var times [numCounters]uint64
	var c twin.Trial
	defer func() {
		if t.Failed() {
			t.Logf("%v with %v of %v: operand %x on %x", c.Code, datatype.Op(c.Op), datatype.Basic(c.Basic), c.Data, c.Old)
		}
	}()
	for c = range twin.Trials {
		c.Window = wideWindow
		mem := p.chunks[0][wideBase:][:len(c.Old)]
		copy(mem, c.Old)
		copy(other.chunks[0][wideBase:], c.Old)
		_, why := p.both(t, other, 0, signed(keyOf(0), h, record{c.Record, c.Data}), &times)
		if executed := why == twin.None; executed != c.Executed || !bytes.Equal(mem, c.New) {
			t.Fatalf("executed: %t, want %t; memory %x, want %x", executed, c.Executed, mem, c.New)
		}
		if c.Executed {
			h.Exchange++
		}
	}
	p.compare(t, other, true)
}
