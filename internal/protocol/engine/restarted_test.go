package engine

import (
	"errors"
	"testing"

	"github.com/xdprma/xdprma/mpierr"
)

// TestCollectiveFailsWithRestartedMember restarts a rank while nobody waits for it. It is
// no member of the communicators of its former life: a message of a collective that needs
// it is not waited for, and a message between two ranks is.
func TestCollectiveFailsWithRestartedMember(t *testing.T) {
	f := newRanks(t, 3, 8, nil)
	f.dial(0, 1)
	f.dial(0, 2)
	f.Settle()
	f.start(1, 2, 3, 8, nil)
	f.dial(1, 0)
	f.Settle()
	if !f.e[0].Gone(1) || !f.e[0].Session(1).Open() {
		t.Fatal("rank 0 has not met the new life of rank 1")
	}
	for name, source := range map[string]int{"from the restarted rank": 1, "from another member": 2} {
		r := &Receive{Context: 1, Source: source, Tag: MaxTag + 1, Collective: true}
		if f.e[0].PostReceive(r); !r.Met() || !errors.Is(r.Err(), mpierr.ProcFailed) {
			t.Errorf("a receive %s: over %t, %v", name, r.Met(), r.Err())
		}
		p := &Sending{To: f.e[0].Session(source).Peer(), Context: 1, Tag: MaxTag + 1, Collective: true}
		if f.e[0].PostSend(p); !p.Met() || !errors.Is(p.Err(), mpierr.ProcFailed) {
			t.Errorf("a send %s: over %t, %v", name, p.Met(), p.Err())
		}
	}
	r := f.receive(0, 1, 2, 1, 8)
	f.send(1, 0, 2, 1, make([]byte, 8))
	if f.Settle(); !r.Met() || r.Err() != nil {
		t.Errorf("a message of the new life: over %t, %v", r.Met(), r.Err())
	}
	other := &Receive{Context: 1, Source: 2, Tag: MaxTag + 1, Collective: true, Members: []int{0, 2}}
	if f.e[0].PostReceive(other); other.Met() {
		t.Errorf("a collective of others: %v", other.Err())
	}
	f.e[0].WithdrawReceive(other)
}

// TestUnknownFirstLife restarts a rank that nobody has met: its second life is a member to
// all others. A collective waits for it, as long as it answers, until it leaves.
func TestUnknownFirstLife(t *testing.T) {
	f := newRanks(t, 2, 8, nil)
	f.start(1, 2, 2, 8, nil)
	f.dial(1, 0)
	f.Settle()
	r := &Receive{Context: 1, Source: 1, Tag: MaxTag + 1, Collective: true}
	f.e[0].PostReceive(r)
	if f.Pass(4 * testLimit); f.e[0].Gone(1) || r.Met() {
		t.Fatalf("the wait is over: %t, %v", r.Met(), r.Err())
	}
	f.e[1].Bye("")
	if f.Settle(); !f.e[0].Gone(1) || !r.Met() || !errors.Is(r.Err(), mpierr.ProcFailed) {
		t.Errorf("after the farewell: over %t, %v", r.Met(), r.Err())
	}
	f.atRest()
}
