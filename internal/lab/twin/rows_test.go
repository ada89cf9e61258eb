package twin

import (
	"bytes"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// The tier executes the records of which the table says so: each code in some form, alone or under a
// lock, and nothing else in any. A call has an effect on memory, or a result.
func TestTheTierExecutesWhatTheTableSays(t *testing.T) {
	one := []byte{1, 0, 0, 0, 0, 0, 0, 0}
	for i := range 256 {
		c, exchange := wire.Code(i), uint64(1)
		tt := newTarget()
		executed, acted := false, false
		for _, data := range [][]byte{nil, one, asked(8), asked(8, one...), append(bytes.Repeat([]byte{3}, 8), one...)} {
			r := record{wire.Record{Code: c, Window: id, Basic: uint8(datatype.BasicUint64), Op: uint8(datatype.Sum)}, data}
			for _, list := range [][]record{{r}, {r, unlock()}, {lock(0), r}} {
				for at := range tt.mem {
					tt.mem[at] = 3
				}
				clear(tt.words[:windows.LockWordLen])
				before, frame := bytes.Clone(tt.mem), request(exchange, list...)
				n, v, why := tt.Serve(0, frame)
				if why != None {
					continue
				}
				executed, exchange = true, exchange+1
				acted = acted || v == Answer && (!bytes.Equal(tt.mem, before) || n > wire.HeaderLen && !bytes.Equal(frame[wire.HeaderLen:n], make([]byte, n-wire.HeaderLen)))
			}
		}
		if executed != c.Row().Tier || acted != (executed && c.Communicates()) {
			t.Errorf("%v (%d) is executed: %t; has an effect: %t", c, i, executed, acted)
		}
	}
}

// The tier combines elements exactly where the table says so, and as package elements does.
func TestTheTierCombinesWhatTheTableSays(t *testing.T) {
	tt, exchange, executed := newTarget(), uint64(1), 0
	for c := range Trials {
		c.Window = id
		copy(tt.mem, c.Old)
		frame := request(exchange, record{c.Record, c.Data})
		end, v, why := tt.Serve(0, frame)
		if (v == Answer) != c.Executed || !c.Executed && why != Operation {
			t.Fatalf("%v with %v of %d bytes of %v: %v, and by the table it is executed: %t",
				c.Code, datatype.Op(c.Op), len(c.Data), datatype.Basic(c.Basic), why, c.Executed)
		}
		if !bytes.Equal(tt.mem[:len(c.New)], c.New) || v == Answer && !bytes.HasPrefix(frame[wire.HeaderLen:end], c.Result) {
			t.Fatalf("%v with %v of %v: memory %x, want %x; result %x, want %x; operand %x on %x",
				c.Code, datatype.Op(c.Op), datatype.Basic(c.Basic), tt.mem[:len(c.New)], c.New, frame[wire.HeaderLen:][:len(c.Result)], c.Result, c.Data, c.Old)
		}
		if c.Executed {
			exchange++
			executed++
		}
	}
	if executed == 0 {
		t.Error("no trial is executed")
	}
}
