package wire

import (
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/window"
)

// The columns of the table agree with each other.
func TestRowsAreConsistent(t *testing.T) {
	codes := map[string]Code{}
	for i := range 256 {
		c, row := Code(i), Code(i).Row()
		if row.Name == "" {
			if *row != (Row{}) {
				t.Errorf("code %d has no name, and %+v", c, *row)
			}
			continue
		}
		if other := codes[row.Name]; other != 0 {
			t.Errorf("%v is code %d and %d", c, other, c)
		}
		codes[row.Name] = c
		for _, rule := range []struct {
			held bool
			says string
		}{
			{row.TakenBy != ByNobody, "something takes it in"},
			{row.Answer == 0 || row.Answer.Row().TakenBy == ByOrigin, "its answer is for an origin"},
			{row.Answer == 0 || row.TakenBy != ByOrigin, "no answer is answered"},
			{!c.Communicates() || row.TakenBy == ByWindow, "what communicates is a call on a window"},
			{!c.Communicates() || row.Call.String() == row.Name, "its call has its name in window/conflict.go, and not \"" + row.Call.String() + "\""},
			{c.Communicates() || row.Call == 0 && !row.Combines, "nothing else is a call"},
			{c.Communicates() || row.Rights&^window.MayLock == 0, "nothing else needs a right to memory"},
			{!c.Communicates() || row.Combines || row.Rights != window.MayNothing, "what communicates needs a right"},
			{row.Rights == window.MayNothing || row.TakenBy == ByWindow, "rights are those at a window"},
			{!row.Combines || c.Accumulates() && (row.Data == DataOperand || row.Data == DataPartOperand), "what combines has an operand"},
			{c.Fetches() == (row.Data == DataPart || row.Data == DataPartOperand || row.Data == DataPair), "what has a result says how much"},
			{!row.Tier || row.TakenBy == ByWindow && row.Data != DataOwn, "the program executes what is about a window"},
			{row.TierFlags == 0 || row.Tier, "its flags are of what the program executes"},
			{row.TierFlags&^row.Flags == 0, "the program takes flags that it may have"},
		} {
			if !rule.held {
				t.Errorf("%v: not so: %s: %+v", c, rule.says, *row)
			}
		}
	}
}

// The program combines by operators that are defined for the elements.
func TestTierCombinesWhatIsDefined(t *testing.T) {
	for o := range datatype.Op(255) {
		for b := range datatype.Basic(255) {
			n := TierElements(o, b.Size())
			if n > 0 && TierSize(b) > 0 && o.Check(b) != 0 {
				t.Errorf("the program executes %v on %v: %v", o, b, o.Check(b))
			}
			if n > MaxElements || b.Size() < 4 && n > 1 {
				t.Errorf("the program executes %v on %d of %v", o, n, b)
			}
		}
	}
}
