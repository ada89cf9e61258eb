package collective

import "testing"

// TestMessageLeavesWithItsSend sends a message for which nobody waits: its frame is there when
// the transfer is over, and does not wait for the next call.
func TestMessageLeavesWithItsSend(t *testing.T) {
	l := newLab(2)
	c := New(WorldContext, nil, 0, 2)
	var x Transfer
	x.Begin(&c, Half{Rank: 1, Tag: 1, Data: []byte{7}}, Half{Rank: Nobody})
	if need := x.Step(l.e[0]); need != Done {
		t.Fatalf("a short message needs %d", need)
	}
	if send, recv := x.Errs(); send != nil || recv != nil {
		t.Error(send, recv)
	}
	if len(l.e[0].Output()) == 0 {
		t.Error("nothing leaves")
	}
}
