package engine

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// A peer may send records of any code, as requests and as answers: nothing panics, and as requests those
// are malformed that the table has as nothing, or as answers.
func TestRecordsOfAllCodes(t *testing.T) {
	part := make([]byte, wire.PartLen)
	wire.PutPart(part, 0, 8)
	shapes := [][]byte{nil, word(1), part, append(bytes.Clone(part), word(1)...), append(word(0), word(1)...), make([]byte, wire.LayoutLen+16)}
	for i := range 256 {
		c := wire.Code(i)
		t.Run(fmt.Sprintf("%d %v", i, c), func(t *testing.T) {
			f := newRanks(t, 2, 64, nil)
			a := f.access(1, 0)
			e := f.e[1]
			f.Filter = func(_, _ int, _ []byte) int { return 0 }
			n := map[uint8]uint64{}
			send := func(class uint8, r wire.Record, data []byte) {
				n[class]++
				b := make([]byte, wire.HeaderLen+wire.RecordSize(len(data)))
				copy(wire.PutRecord(b[wire.HeaderLen:], &r, len(data)), data)
				h := wire.Header{Kind: wire.KindData, Flags: class, Packet: n[0] + n[wire.FlagResponse], Sequence: n[class]}
				h.Encode(b)
				e.Receive(mend(b, sessionAt(a).ID()), 0)
				f.Step()
			}
			const request = 0
			for _, data := range shapes {
				send(request, wire.Record{Code: c, Window: testWindow, Token: 1}, data)
			}
			want := 0
			if by := c.Row().TakenBy; by == wire.ByNobody || by == wire.ByOrigin {
				want = len(shapes)
			}
			if got := e.Stats.Faults[wire.BadRecord]; got != uint64(want) {
				t.Errorf("%d of %d requests are malformed, want %d", got, len(shapes), want)
			}
			for flags := range uint8(32) {
				for _, data := range shapes {
					send(request, wire.Record{Code: c, Window: testWindow, Token: 1, Flags: flags}, data)
					send(wire.FlagResponse, wire.Record{Code: c, Window: testWindow, Token: 1, Flags: flags}, data)
				}
			}
		})
	}
}

// The other services take in the records that the table gives them, and refuse all others.
func TestOtherServicesTakeInWhatTheTableSays(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a := f.access(1, 0)
	e := f.e[1]
	for i := range 256 {
		c, before := wire.Code(i), e.Stats.Faults[wire.BadRecord]
		class := (*others)(e).Request(&sessionAt(a).Session, wire.Record{Code: c, Data: []byte{1}})
		by := c.Row().TakenBy
		theirs := by == wire.ByMessages || by == wire.ByMembership
		if refused := class == mpierr.Intern && e.Stats.Faults[wire.BadRecord] > before; refused == theirs {
			t.Errorf("%v (%d): class %v, and counted as malformed: %t", c, i, class, !theirs)
		}
	}
}
