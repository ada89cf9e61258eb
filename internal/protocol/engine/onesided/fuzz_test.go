package onesided

import (
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/window"
)

// Definitions and typed requests of any content: no panic, no memory touched that
// is not the window's, and no more kept than allowed.
//
//fuzz:inputs 20000
func FuzzTypedRequests(f *testing.F) {
	for _, t := range []*datatype.Type{
		datatype.Uint64, committed(datatype.Vector(3, 1, 2, datatype.Uint64)), committed(datatype.Hvector(4, 1, -8, datatype.Uint64)),
		committed(datatype.Resized(record(), -8, 96)), scattered(1, 10),
	} {
		b := must(datatype.Encode(t))
		for _, c := range []wire.Code{wire.CodePut, wire.CodeGet, wire.CodeAccumulate, wire.CodeGetAccumulate} {
			f.Add(b, uint8(2), uint8(c), uint8(datatype.BasicUint64), uint8(datatype.Sum), uint64(0), uint64(1), uint64(0), []byte{0, 0, 0, 0, 8, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8})
			f.Add(b, uint8(0), uint8(c), uint8(datatype.BasicUint64), uint8(datatype.NoOp), uint64(24), uint64(2), uint64(8), []byte{8, 0, 0, 0, 0, 1, 0, 0})
		}
	}
	const guard, size = 64, 256
	whole := make([]byte, guard+size+guard)
	f.Fuzz(func(t *testing.T, encoding []byte, split, code, basic, op uint8, disp, count, position uint64, data []byte) {
		if len(encoding) > 1000 || len(data) > 1000 {
			return
		}
		for i := range whole {
			whole[i] = 0xa5
		}
		fb := newRanks(t, 2, 8, func(c *setup) {
			w, err := windows.New(windows.Config{ID: testWindow + 1, Flavor: window.FlavorCreate, Memory: windows.Slice(whole[guard : guard+size]), Size: size, DispUnit: 1, GroupSize: 2,
				Checker: windows.NewChecker(testWindow+1, 1)})
			if err == nil {
				err = c.Windows.Add(w)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
		a := fb.access(0, 1)
		e, s := fb.e[0], a.session
		send := func(r wire.Record, data []byte) {
			copy(e.add(a, s.Room(link.Request, len(data)), &r, len(data), 0), data)
		}
		at := min(int(split), len(encoding))
		if at > 0 {
			send(wire.TypePiece{Type: 1}.Record(), encoding[:at])
		}
		send(wire.TypePiece{Type: 1, Offset: uint32(at), Last: true}.Record(), encoding[at:])
		for _, l := range []wire.Layout{{Type: 1, Count: count, Position: position}, {Type: 1, Count: count, Position: position + 8}} {
			b := make([]byte, wire.LayoutLen+len(data))
			copy(l.Put(b), data)
			send(wire.Record{Code: wire.Code(code), Basic: basic, Op: op, Flags: wire.FlagTyped, Window: testWindow + 1, Token: 1, Disp: disp}, b)
		}
		for range 200 { // a get may ask for a lot
			if !fb.Step() {
				break
			}
		}
		for i := range guard {
			if whole[i] != 0xa5 || whole[len(whole)-1-i] != 0xa5 {
				t.Fatal("memory outside of the window has changed")
			}
		}
		if n := fb.e[1].Usage().TypeBytes; n > len(encoding)+2*(wire.LayoutLen+len(data)) {
			t.Errorf("%d bytes kept of %d", n, len(encoding))
		}
	})
}
