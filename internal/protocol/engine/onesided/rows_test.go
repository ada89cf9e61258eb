package onesided

import (
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// shapes are what the data of a record may be: that of each well-formed one on an element of 8
// bytes is among them.
func shapes() [][]byte {
	part := make([]byte, wire.PartLen)
	wire.PutPart(part, 0, 8)
	return [][]byte{nil, word(1), part, append(append([]byte(nil), part...), word(1)...), append(word(0), word(1)...)}
}

// recorder notes which codes the other services were asked for.
type recorder struct {
	nobody
	asked map[wire.Code]bool
}

func (o *recorder) Request(_ *link.Session, r wire.Record) mpierr.Class {
	o.asked[r.Code] = true
	return mpierr.Success
}

// The target takes in the records of which the table says so, plain and with a datatype. It hands
// those of other services to them, and refuses all others as malformed.
func TestTargetTakesInWhatTheTableSays(t *testing.T) {
	typ := wire.TypePiece{Type: 1, Last: true}.Record()
	typ.Data = must(datatype.Encode(committed(datatype.Vector(2, 1, 2, datatype.Uint64))))
	for i := range 256 {
		c := wire.Code(i)
		row := c.Row()
		f := newRanks(t, 2, 64, nil)
		s := f.access(0, 1).session
		e, others := f.e[0], &recorder{asked: map[wire.Code]bool{}}
		e.Operations.cfg.Others = others
		apply := func(r *wire.Record) mpierr.Class { return e.applyRecord(s, &link.Bundle{Session: s.Session}, r) }
		if class := apply(&typ); class != mpierr.Success {
			t.Fatal(class)
		}
		// take returns how many shapes took effect, and how many were malformed.
		take := func(flags uint8, head []byte) (done, malformed int) {
			before := e.Stats.Faults[wire.BadRecord]
			for _, data := range shapes() {
				r := wire.Record{Code: c, Window: testWindow, Token: 1, Flags: flags, Basic: uint8(datatype.BasicUint64), Op: uint8(datatype.Sum), Data: append(head[:len(head):len(head)], data...)}
				if apply(&r) == mpierr.Success {
					done++
				}
			}
			return done, int(e.Stats.Faults[wire.BadRecord] - before)
		}
		all := len(shapes())
		done, malformed := take(0, nil)
		want, forOthers := 0, row.TakenBy == wire.ByMessages || row.TakenBy == wire.ByMembership
		if row.TakenBy == wire.ByNobody || row.TakenBy == wire.ByOrigin {
			want = all
		}
		if malformed != want || others.asked[c] != forOthers {
			t.Errorf("%v (%d): %d of %d are malformed, want %d; other services were asked: %t", c, c, malformed, all, want, others.asked[c])
		}
		if !c.Communicates() {
			continue
		}
		layout := make([]byte, wire.LayoutLen)
		wire.Layout{Type: 1, Count: 1}.Put(layout)
		doneTyped, malformed := take(wire.FlagTyped, layout)
		if want = 0; row.Flags&wire.FlagTyped == 0 {
			want = all
		}
		if malformed != want || done == 0 || (doneTyped == 0) != (want == all) {
			t.Errorf("%v: %d plain and %d typed ones take effect, %d of these are malformed, want %d", c, done, doneTyped, malformed, want)
		}
	}
}

// Calls have the codes of which the table says that they communicate, where they act at once and where
// they become requests, or tell the target something.
func TestCallsAreThoseOfTheTable(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a, e := f.access(0, 1), f.e[0]
	w := f.e[1].Windows().Lookup(testWindow)
	panics := func(do func()) (panicked bool) {
		defer func() { panicked = recover() != nil }()
		do()
		return false
	}
	for i := range 256 {
		c := Call{Access: a, Code: wire.Code(i), Basic: datatype.BasicUint64, Op: datatype.Sum, Origin: word(1), Compare: word(0)}
		if c.Code.Fetches() {
			c.Result = make([]byte, 8)
		}
		if panicked := panics(func() { c.act(w, 0, c.Origin, c.Result) }); panicked == c.Code.Communicates() {
			t.Errorf("%v (%d) acts: %t", c.Code, i, !panicked)
		}
		switch c.Code {
		case wire.CodeComplete, wire.CodeUnlock, wire.CodeNotify, wire.CodePing:
			if !c.says() {
				t.Errorf("%v communicates", c.Code)
			}
			continue
		}
		if panicked := panics(func() { e.Issue(&c) }); panicked == c.Code.Communicates() {
			t.Errorf("%v (%d) is issued: %t", c.Code, i, !panicked)
		}
	}
	if err := f.flush(e, a); err != nil {
		t.Error(err)
	}
	f.atRest()
}
