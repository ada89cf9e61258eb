package sim

import (
	"testing"

	"github.com/xdprma/xdprma/internal/lab/program"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// TestRecordsAreThoseOfTheirRows looks at all records that ranks send, within bundles: their flags are
// those that the table says, each of which occurs, and they have data where it says so.
func TestRecordsAreThoseOfTheirRows(t *testing.T) {
	t.Parallel()
	var flags [256]uint8
	var data [256]int
	var sent [256]bool
	look := func(_, _ int, b []byte) [][]byte {
		var h wire.Header
		if h.Decode(b) != wire.OK || h.Kind != wire.KindData || h.Sequence == 0 { // a piece has none
			return [][]byte{b}
		}
		var r wire.Record
		for at := wire.HeaderLen; at < len(b); at += wire.NextRecord(b[at:], &r) {
			wire.NextRecord(b[at:], &r)
			sent[r.Code] = true
			flags[r.Code] |= r.Flags
			if len(r.Data) > 0 {
				data[r.Code]++
			}
		}
		return [][]byte{b}
	}
	for seed := range uint64(60) {
		for _, c := range []Config{{Seed: seed}, {Seed: seed, Program: program.Generate(seed, program.Ranks(seed))}, {Seed: seed, Together: true}} {
			c.Tamper = look
			if r := Run(c); r.Err != nil {
				t.Fatal(seed, r.Err)
			}
		}
	}
	for i := range 256 {
		c := wire.Code(i)
		switch row := c.Row(); {
		case sent[i] != (row.TakenBy != wire.ByNobody):
			t.Errorf("%v (%d) is sent: %v", c, i, sent[i])
		case flags[i] != row.Flags:
			t.Errorf("%v has flags %08b, its row says %08b", c, flags[i], row.Flags)
		case data[i] == 0 != (row.Data == wire.DataNone) && sent[i] && c != wire.CodeBye: // none of these programs says why it goes
			t.Errorf("%v has data: %v, its row says: %v", c, data[i] > 0, row.Data != wire.DataNone)
		}
	}
}
