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

// TestLastMessageLeavesWithItsCollective has collectives end at a rank that sends last, and
// waits for nobody: the frame is there when the call is over, for the others wait for it.
func TestLastMessageLeavesWithItsCollective(t *testing.T) {
	for op, begin := range map[string]func(c *Comm) *Call{
		"barrier":   func(c *Comm) *Call { return c.Barrier("barrier") },
		"allgather": func(c *Comm) *Call { return c.AllgatherBytes("allgather", []byte{7}) },
		"bcast":     func(c *Comm) *Call { return c.Bcast([]byte{7}, 0) },
		"gather":    func(c *Comm) *Call { return c.Gather([]byte{7}, make([]byte, 2), 1) },
	} {
		l := newLab(2)
		first, second := New(WorldContext, nil, 1, 2), New(WorldContext, nil, 0, 2)
		waits := begin(&first)
		if need := l.step(1, waits); need != Wait {
			t.Fatalf("%s: the rank that comes first needs %d, not Wait", op, need)
		}
		l.pump()
		ends := begin(&second)
		if need := l.step(0, ends); need != Done || ends.Err() != nil {
			t.Fatalf("%s: the rank that comes second needs %d, not Done: %v", op, need, ends.Err())
		}
		if len(l.e[0].Output()) == 0 {
			t.Errorf("%s: nothing leaves", op)
		}
		l.carry(t, ends, waits)
	}
}
