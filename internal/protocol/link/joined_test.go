package link_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// joins makes engines whose devices send frames joined, and have much room for them.
func joins(c *link.Config) { c.Slab, c.Joins, c.JoinedRoom = link.HeapSlab(256, 0, 1472), 64, 8<<20 }

// isJoined reports whether a frame is sent by the way of joined frames.
func isJoined(b []byte) bool { return kindOf(b) == wire.KindData && b[6]&wire.FlagJoined != 0 }

// counted counts the frames of rank 0 by their way.
func (f *ranks) counted(pass func(joined bool) bool) *[2]int {
	n := new([2]int)
	f.Filter = func(from, _ int, b []byte) int {
		if from == 0 && kindOf(b) == wire.KindData {
			way := 0
			if isJoined(b) {
				way = 1
			}
			if n[way]++; !pass(way == 1) {
				return 0
			}
		}
		return 1
	}
	return n
}

func all(bool) bool { return true }

// An answer carries the acknowledgement of its request also where it may go joined.
func TestAnswersThatMayGoJoinedAcknowledge(t *testing.T) {
	f := newRanks(t, 2, joins)
	a := f.open(0, 1)
	f.Pass(millisecond)
	before := f.e[1].Stats.Acks
	for range 10 {
		f.ask(a, 8)
		if err := f.flush(a); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.e[1].Stats.Acks - before; n != 0 {
		t.Errorf("%d frames only acknowledged, beside 10 answers", n)
	}
	f.AtRest()
}

func TestLongTransfersAreJoined(t *testing.T) {
	f := newRanks(t, 2, joins)
	a := f.open(0, 1)
	f.Pass(millisecond)
	n := f.counted(all)
	f.transfer(a, 0, 100_000)
	if n[1] < 2 {
		t.Fatalf("the way was not tried: %v", *n)
	}
	f.Pass(millisecond)
	*n = [2]int{}
	f.transfer(a, 0, 100_000)
	if n[1] < 60 || n[0] > 8 {
		t.Errorf("of 100,000 bytes %d frames went by themselves and %d joined", n[0], n[1])
	}
	*n = [2]int{}
	f.transfer(a, 0, 2000)
	if n[0] != 2 || n[1] != 0 {
		t.Errorf("of 2000 bytes %d frames went by themselves and %d joined", n[0], n[1])
	}
	if s := f.e[0].Stats; s.Resent+s.Lost+f.e[1].Stats.Duplicates > 0 {
		t.Errorf("%+v", s)
	}
	f.Filter = nil
	f.AtRest()
}

// Frames of one run, which More joins, are of one length, but for the last.
func TestRunsAreOfOneLength(t *testing.T) {
	f := newRanks(t, 2, joins)
	a := f.open(0, 1)
	f.Pass(millisecond)
	f.transfer(a, 0, 100_000)
	e, longest := f.e[0], 0
	for _, n := range []int{1400, 1400, 900, 9000, 30_000} {
		if !a.write(&transfer{left: n}) {
			t.Fatal("no room")
		}
	}
	out := e.Output()
	for i, frames, bytes := 0, 1, 0; i < len(out); i++ {
		o := out[i]
		if bytes += int(o.Len); !o.More {
			frames, bytes = 1, 0
			continue
		}
		if frames++; i+1 == len(out) || out[i+1].Way != link.Joined || o.Way != link.Joined {
			t.Fatalf("frame %d of %d shares a message with none", i, len(out))
		}
		longest = max(longest, frames)
		if next := out[i+1]; next.Len > o.Len || next.More && next.Len < o.Len || bytes+int(next.Len) > 1<<16-49 || frames > 64 {
			t.Fatalf("frames of %d and %d bytes share a message of %d with %d bytes", o.Len, next.Len, frames, bytes)
		}
	}
	if longest < 15 {
		t.Errorf("the longest run has %d frames of %d", longest, len(out))
	}
	a.push()
	f.Until(1000*millisecond, a.over)
	f.AtRest()
}

// Small bundles that leave together with a run take no place in its message.
func TestSmallBundlesTakeNoPlaceInRuns(t *testing.T) {
	f := newRanks(t, 2, joins)
	a := f.open(0, 1)
	f.Pass(millisecond)
	f.transfer(a, 0, 100_000)
	e := f.e[0]
	for _, n := range slices.Concat(slices.Repeat([]int{400}, 20), []int{36 * 1368}) {
		if !a.write(&transfer{left: n}) {
			t.Fatal("no room")
		}
		e.Tick() // which ends a bundle
	}
	single, messages := 0, 0
	for _, o := range e.Output() {
		switch {
		case o.Way == link.Single:
			single++
		case !o.More:
			messages++
		}
	}
	if single != 20 || messages != 1 {
		t.Errorf("36 frames and 20 small ones leave as %d messages and %d by themselves", messages, single)
	}
	a.push()
	f.Until(1000*millisecond, a.over)
	f.AtRest()
}

// TestWaysOvertakeEachOther holds joined frames back until many others have passed them, and
// the other way round. No frame is lost, and none is taken for lost.
func TestWaysOvertakeEachOther(t *testing.T) {
	for _, held := range []bool{true, false} {
		f := newRanks(t, 2, joins)
		a := f.open(0, 1)
		f.Pass(millisecond)
		f.transfer(a, 0, 100_000)
		var late [][]byte
		f.Filter = func(from, _ int, b []byte) int {
			if from == 0 && kindOf(b) == wire.KindData && isJoined(b) == held {
				late = append(late, bytes.Clone(b))
				return 0
			}
			return 1
		}
		f.send(a, 60_000, 0)
		f.Settle()
		for range 10 {
			f.send(a, 8, 0)
			a.push()
			f.Settle()
		}
		f.Filter = nil
		if len(late) == 0 {
			t.Fatal("nothing was held back")
		}
		for _, b := range late {
			f.e[1].Receive(b, 0)
		}
		if err := f.flush(a); err != nil {
			t.Fatal(err)
		}
		if s := f.e[0].Stats; s.Lost+s.Resent+s.Timeouts+f.e[1].Stats.Duplicates > 0 {
			t.Errorf("held back joined %t: %+v", held, s)
		}
		f.once(a, 0)
		f.AtRest()
	}
}

// TestJoinedFramesThatVanish has the way of joined frames end after it was proven. Bundles that
// went by it are sent again by themselves, in time; frames stay as long as they were; and
// after the way has failed some times, it is not used for a while.
func TestJoinedFramesThatVanish(t *testing.T) {
	f := newRanks(t, 2, joins)
	a := f.open(0, 1)
	f.Pass(millisecond)
	f.transfer(a, 0, 100_000)
	n := f.counted(func(joined bool) bool { return !joined })
	begun := f.Now
	for range 20 {
		f.transfer(a, 0, 100_000)
	}
	if took := f.Now - begun; took > 500*millisecond {
		t.Errorf("took %d ms", took/millisecond)
	}
	if n[1] == 0 || n[1] > 1000 {
		t.Errorf("%d frames were lost on their way", n[1])
	}
	*n = [2]int{}
	f.transfer(a, 0, 100_000)
	if n[0] > 75 {
		t.Errorf("%d frames carry 100,000 bytes: they have become short", n[0])
	}
	if n[1] > probeFrames {
		t.Errorf("%d frames went by the way that fails", n[1])
	}
	// The way is back, and found again.
	f.Filter = nil
	f.Pass(60_000 * millisecond)
	n = f.counted(all)
	for range 3 {
		f.transfer(a, 0, 100_000)
		f.Pass(millisecond)
	}
	if n[1] < 60 {
		t.Errorf("%d frames went joined", n[1])
	}
	f.Filter = nil
	f.AtRest()
}

const probeFrames = 2

// TestLostMessageHalvesRuns loses the first whole message, as where the kernel lacks memory in
// one piece: long transfers go joined all the same, in shorter messages.
func TestLostMessageHalvesRuns(t *testing.T) {
	f := newRanks(t, 2, joins)
	a := f.open(0, 1)
	f.Pass(millisecond)
	f.transfer(a, 0, 100_000)
	f.Pass(millisecond)
	lost := 0
	f.Filter = func(from, _ int, b []byte) int {
		if from == 0 && isJoined(b) && lost < 44 {
			lost++
			return 0
		}
		return 1
	}
	f.transfer(a, 0, 100_000)
	n := f.counted(all)
	for range 20 {
		f.transfer(a, 0, 100_000)
	}
	if n[1] < 10*n[0] {
		t.Errorf("%d frames went by themselves and %d joined", n[0], n[1])
	}
	f.Filter = nil
	f.AtRest()
}

// TestPauseOfTheTargetKeepsRuns has the target stand still for longer than the timeout. It
// gets everything in the end, and the way is still used.
func TestPauseOfTheTargetKeepsRuns(t *testing.T) {
	for _, pause := range []int64{5, 10, 30} {
		f := newRanks(t, 2, joins)
		a := f.open(0, 1)
		f.Pass(millisecond)
		f.transfer(a, 0, 100_000)
		f.Pass(millisecond)
		var late [][]byte
		f.Filter = func(from, _ int, b []byte) int {
			if from == 0 {
				late = append(late, bytes.Clone(b))
				return 0
			}
			return 1
		}
		f.send(a, 50_000, 0)
		for end := f.Now + pause*millisecond; f.Now < end; {
			f.Settle()
			f.Advance(f.Now + 100*microsecond)
		}
		f.Filter = nil
		for _, b := range late {
			f.e[1].Receive(b, 0)
		}
		if err := f.flush(a); err != nil {
			t.Fatal(err)
		}
		n := f.counted(all)
		for range 5 {
			f.transfer(a, 0, 100_000)
		}
		if n[1] < 5*60 {
			t.Errorf("after a pause of %d ms %d frames went by themselves and %d joined", pause, n[0], n[1])
		}
		f.Filter = nil
		f.AtRest()
	}
}

// TestVanishedRunsComeAgainAfterOneTimeout loses all that is joined: everything comes again,
// by itself, when the timer has expired once after its early look.
func TestVanishedRunsComeAgainAfterOneTimeout(t *testing.T) {
	f := newRanks(t, 2, joins)
	a := f.open(0, 1)
	f.Pass(millisecond)
	for range 3 {
		f.transfer(a, 0, 100_000)
	}
	f.counted(func(joined bool) bool { return !joined })
	begun := f.Now
	f.transfer(a, 0, 60_000)
	if took := f.Now - begun; took > 33*millisecond { // 16 each: no round trip is known
		t.Errorf("took %d µs", took/microsecond)
	}
	f.Filter = nil
	f.AtRest()
}

// TestTimersBeginBeforeOutput sees that a driver may ask for the deadline before it asks for
// what is to be sent.
func TestTimersBeginBeforeOutput(t *testing.T) {
	f := newRanks(t, 2, joins)
	a := f.open(0, 1)
	f.Pass(millisecond)
	f.transfer(a, 0, 100)
	f.Pass(millisecond)
	e := f.e[0]
	a.put(8, 0, 0)
	f.Advance(f.Now + millisecond)
	a.push()
	e.Tick()
	before := e.Deadline()
	e.Output()
	if after := e.Deadline(); after < before {
		t.Errorf("the deadline was in %d µs, and is in %d", (before-f.Now)/microsecond, (after-f.Now)/microsecond)
	}
}

// TestNoJoinedFramesUnasked has peers without room for joined frames, or a device that sends
// none.
func TestNoJoinedFramesUnasked(t *testing.T) {
	for _, c := range []struct{ joins, room int }{{64, 0}, {0, 8 << 20}, {1, 8 << 20}} {
		f := newRanks(t, 2, func(cfg *link.Config) { joins(cfg); cfg.Joins, cfg.JoinedRoom = c.joins, c.room })
		a := f.open(0, 1)
		n := f.counted(all)
		f.transfer(a, 0, 100_000)
		f.transfer(a, 0, 100_000)
		if n[1] > 0 {
			t.Errorf("%+v: %d joined frames", c, n[1])
		}
	}
}

// TestJoinedFramesKeepToTheRoom has a peer with little room: no more is in flight.
func TestJoinedFramesKeepToTheRoom(t *testing.T) {
	f := newRanks(t, 2, func(c *link.Config) { joins(c); c.JoinedRoom = 100 * 512 })
	a := f.open(0, 1)
	f.Pass(millisecond)
	n := f.counted(all)
	f.transfer(a, 0, 100_000)
	f.Pass(millisecond)
	room := 128 * 100 // credits of two ranks
	*n = [2]int{}
	most := 0
	f.Filter = func(from, _ int, b []byte) int {
		if from == 0 && isJoined(b) {
			n[1]++
			if most = max(most, n[1]); n[1]*1472 > room {
				t.Fatalf("%d frames are in flight", n[1])
			}
			return 0
		}
		return 1
	}
	f.send(a, 100_000, 0)
	if most == 0 {
		t.Error("none was joined")
	}
	f.Filter = nil
	f.flush(a)
	f.AtRest()
}
