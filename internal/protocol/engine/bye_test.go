package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// A rank that leaves while it has no room tells so as soon as it has.
func TestByeWithoutRoom(t *testing.T) {
	f := newRanks(t, 2, 4096, func(c *Config) { c.DeadAfter = 1 << 40 })
	a := f.access(0, 1)
	f.issue(f.e[0], &onesided.Call{Access: a, Code: wire.CodePut, Origin: make([]byte, 8)})
	f.Settle()
	f.Cut[1] = true
	for full := false; !full; {
		done, err := f.e[0].Issue(&onesided.Call{Access: a, Code: wire.CodePut, Origin: make([]byte, 1000)})
		if err != nil {
			t.Fatal(err)
		}
		f.Step()
		full = !done
	}
	f.e[0].Bye("")
	if f.Step(); (&ByeWait{f.e[0]}).Met() {
		t.Fatal("the wait is over before the peer could hear")
	}
	f.Cut[1] = false
	for i := 0; i < 1000 && !(&ByeWait{f.e[0]}).Met(); i++ {
		f.Advance(f.Now + 10*millisecond)
		f.Step()
	}
	if f.e[1].Session(0).Left() == nil {
		t.Error("the peer does not know that the rank has left")
	}
}

func TestBye(t *testing.T) {
	f := newRanks(t, 3, 64, nil)
	a, b := f.access(0, 1), f.access(2, 1)
	f.e[1].Bye("")
	wait := &ByeWait{f.e[1]}
	f.Until(1000*millisecond, wait.Met)
	for _, s := range []*Session{sessionAt(a), sessionAt(b)} {
		if s.Left() == nil {
			t.Fatal("the farewell did not arrive")
		}
	}
	if _, err := f.e[0].Issue(&onesided.Call{Access: a, Code: wire.CodePut, Origin: word(1)}); !errors.Is(err, mpierr.ProcFailed) {
		t.Errorf("a put to a rank that has left: %v", err)
	}
	if r := f.receive(0, 1, 1, 1, 8); !errors.Is(r.Err(), mpierr.ProcFailed) {
		t.Error("a wait for a message of a rank that has left goes on")
	}
	f.atRest()
}

// TestByeSaysWhy has a rank leave because its program has failed: it counts as failed, also for a receive from
// any rank, and the errors have its words, printable and cut short. It hears nothing of what is lost on the way.
func TestByeSaysWhy(t *testing.T) {
	f := newRanks(t, 3, 64, nil)
	a := f.access(0, 1)
	f.access(2, 1)
	f.access(0, 2)
	anyone := f.receive(0, AnySource, 1, 1, 8)
	lost := 0
	f.Filter = func(from, _ int, _ []byte) int { // its first frames are lost
		if from == 1 && lost < 3 {
			lost++
			return 0
		}
		return 1
	}
	f.e[1].Bye("its program has failed: open \x1b/nothere\n" + strings.Repeat("x", 2000))
	f.Until(10_000*millisecond, (&ByeWait{f.e[1]}).Met)
	_, err := f.e[0].Issue(&onesided.Call{Access: a, Code: wire.CodePut, Origin: word(1)})
	if !errors.Is(err, mpierr.ProcFailed) || !strings.Contains(err.Error(), "its program has failed: open  /nothere; xxx") || !strings.HasSuffix(err.Error(), "...") || len(err.Error()) > 560 {
		t.Errorf("a put to a rank whose program has failed: %v", err)
	}
	if !anyone.Met() || !errors.Is(anyone.Err(), mpierr.ProcFailed) || !strings.Contains(anyone.Err().Error(), "/nothere") {
		t.Errorf("a receive from any rank: %v", anyone.Err())
	}
	if n := f.e[0].Stats.PeersFailed; n != 1 || lost != 3 {
		t.Errorf("%d peers have failed, %d frames were lost", n, lost)
	}
}
