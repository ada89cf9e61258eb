package onesided

import (
	"bytes"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// TestOperationsAreSharedAmongTargets leaves gets without an answer at many targets: they
// do not take all there may be.
func TestOperationsAreSharedAmongTargets(t *testing.T) {
	const n = 7
	f := newRanks(t, 2+n, 8, func(c *setup) {
		c.MaxOps = 64
		if c.Rank == 0 {
			c.Slab = link.HeapSlab(1024, 0, 1472)
		}
	})
	well := f.access(0, 1)
	for r := 2; r < 2+n; r++ {
		a := f.access(0, r)
		f.Cut[r] = true
		for range 100 {
			f.e[0].Issue(&Call{Access: a, Code: wire.CodeGet, Result: make([]byte, 8)})
		}
		if (*RoomWait)(a).Met() {
			t.Fatalf("rank %d: %d operations of all, and there is room for more", r, f.e[0].Usage().Operations)
		}
	}
	if done, err := f.e[0].Issue(&Call{Access: well, Code: wire.CodeGet, Result: make([]byte, 8)}); !done || err != nil {
		t.Errorf("a get at another waits: %v", err)
	}
	if f.Settle(); !(*LocalWait)(well).Met() {
		t.Error("a get at another is not answered")
	}
}

// TestSlowPeerLives has peers whose requests arrive, and take effect only much later than
// a silent peer is given up.
func TestSlowPeerLives(t *testing.T) {
	f := newRanks(t, 3, 64, nil)
	first, second := f.access(1, 0), f.access(2, 0)
	f.e[1].Lock(first, true)
	f.Until(1000*millisecond, (*LockWait)(first).Met)
	f.e[2].Lock(second, true)
	f.issue(f.e[2], &Call{Access: second, Code: wire.CodePut, Origin: word(7)})
	f.e[2].Flush(second)
	f.Pass(10 * testLimit)
	if first.session.Dead() || second.session.Dead() || (*LockWait)(second).Met() {
		t.Fatalf("%v, %v", first.Err(), second.Err())
	}
	if !f.e[1].Unlock(first) {
		t.Fatal("no room for the unlock")
	}
	f.Until(1000*millisecond, (*FlushWait)(second).Met)
	if err := second.TakeError(); err != nil || le.Uint64(f.mem[0]) != 7 {
		t.Error(err)
	}
}

// Answers to a long get fill their frames, but for the last: so many of them share a message.
func TestAnswersToLongGetsAreOfOneLength(t *testing.T) {
	f := newRanks(t, 2, 1<<20, func(c *setup) { c.Slab, c.Joins, c.JoinedRoom = link.HeapSlab(256, 0, 1472), 64, 8<<20 })
	a := f.access(0, 1)
	f.Pass(millisecond)
	lengths := map[int]int{}
	f.Filter = func(from, _ int, b []byte) int {
		if from == 1 && kindOfFrame(b) == wire.KindData && b[6]&wire.FlagJoined != 0 {
			lengths[len(b)]++
		}
		return 1
	}
	copy(f.mem[1], noise(300_000))
	for range 3 { // the first has the way proven
		clear(lengths)
		result := make([]byte, 300_000)
		f.issue(f.e[0], &Call{Access: a, Code: wire.CodeGet, Result: result})
		if err := f.flush(f.e[0], a); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(result, f.mem[1][:len(result)]) {
			t.Fatal("the get has found something else")
		}
		f.Pass(millisecond)
	}
	joined := 0
	for _, n := range lengths {
		joined += n
	}
	if full := lengths[1472]; full < 200 || joined-full > 1 {
		t.Errorf("joined frames by their length: %v", lengths)
	}
	f.Filter = nil
	f.atRest()
}
