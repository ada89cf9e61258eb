package collective

import (
	"errors"
	"testing"

	"github.com/xdprma/xdprma/mpierr"
)

// TestBlamedMemberEndsItsCall has the first of a group break the new communicator, and say
// that a member which waits in it is to blame: that one's call ends.
func TestBlamedMemberEndsItsCall(t *testing.T) {
	l := newLab(2)
	group := []int{0, 1}
	var calls []*Creation
	for r := range group {
		c := New(WorldContext, nil, r, len(group))
		calls = append(calls, c.CreateGroup(group, 0, 7))
	}
	l.step(0, calls[0])
	l.pump()
	l.held[[2]int{0, 1}] = true // it is not let go
	l.step(1, calls[1])
	l.pump()
	if calls[1].stage != joining {
		t.Fatalf("the member is in stage %d", calls[1].stage)
	}
	l.e[0].Revoke(7, 1)
	l.held[[2]int{0, 1}] = false
	l.pump()
	if need := l.step(1, calls[1]); need != Done {
		t.Fatalf("the member needs %d, not Done", need)
	}
	if _, err := calls[1].Result(); !errors.Is(err, mpierr.ProcFailed) {
		t.Errorf("the member gets %v", err)
	}
	if s := l.e[1].Session(1); s != nil {
		t.Error("the member listens to itself")
	}
}
