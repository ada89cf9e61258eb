package bootstrap

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xdprma/xdprma/internal/lab/logs"
	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// TestWaitsAreSummedUp has ranks say what they wait for. The log names the rank that keeps all waiting, once for all of
// them, and again when that has lasted for twice as long.
func TestWaitsAreSummedUp(t *testing.T) {
	var log logs.Log
	members := newMembers(log.Logger(), time.Second, noRank)
	const size, missing = 9, 8
	for rank := range size {
		if rank != missing {
			if _, _, err := members.tryEnter(rank, size, identity{}, &visit{from: "here"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	w := newWaits(log.Logger(), members)
	wait := func(rank, other int, waited time.Duration, told slog.Level) Wait {
		return Wait{Rank: rank, For: other, What: "barrier", Waited: waited, Told: told}
	}
	say := func(rank, other int, waited time.Duration, told slog.Level) {
		w.say(rank, []Wait{wait(rank, other, waited, told)})
	}
	lines := func(n int, want ...string) {
		t.Helper()
		if got := log.Lines(want...); got != n {
			t.Errorf("%d lines with %q, want %d:\n%s", got, want, n, &log)
		}
	}

	// Rank 4 has not come to a barrier, for which the others wait, one behind the other.
	behind := map[int]int{5: 4, 6: 4, 7: 5, 0: 7, 1: 0, 2: 1, 3: 4}
	for _, told := range []slog.Level{QuietWait, slog.LevelInfo, slog.LevelWarn} {
		for rank, other := range behind {
			waited := map[slog.Level]time.Duration{QuietWait: 5 * time.Second, slog.LevelInfo: 10 * time.Second, slog.LevelWarn: time.Minute}[told]
			say(rank, other, waited+time.Duration(rank)*100*time.Millisecond, told)
		}
	}
	all := []string{"a rank keeps others waiting, and does not wait itself", "rank=4", `waiting="0, 1, 2, 3, 5, 6, 7"`, "for=barrier"}
	lines(1, append(all, "level=INFO", "waited=1")...)
	lines(1, append(all, "level=WARN", "waited=1m0")...)
	lines(2, "level=")

	// It comes; then it is slow again, and that is told of anew.
	for rank := range behind {
		w.say(rank, nil)
	}
	say(5, 4, 11*time.Second, slog.LevelInfo)
	lines(2, "level=INFO", "rank=4")
	w.say(5, nil)

	// Ranks that wait for each other, and others that wait for one of them.
	say(3, 1, time.Minute, QuietWait)
	say(1, 2, time.Minute, slog.LevelWarn)
	say(2, 1, time.Minute, slog.LevelWarn)
	say(3, 1, time.Minute, slog.LevelWarn)
	lines(1, "level=WARN", "ranks wait for each other", `waits="rank 1 for rank 2: barrier; rank 2 for rank 1: barrier"`)
	for rank := range 4 {
		w.say(rank, nil)
	}

	// A lock: rank 1 knows at which rank it is, and that rank who has it.
	say(1, 0, 10*time.Second, QuietWait)
	w.say(0, []Wait{{Rank: 1, For: 7, What: "the lock", Waited: 9 * time.Second, Told: slog.LevelInfo}})
	say(1, 0, 10*time.Second, slog.LevelInfo)
	lines(1, "rank=7", `waiting=1`, `for="the lock"`)
	lines(0, "rank=0")
	w.say(0, nil)
	w.say(1, nil)

	say(0, missing, 10*time.Second, slog.LevelInfo)
	say(1, missing, 11*time.Second, slog.LevelInfo)
	lines(1, "level=WARN", "a rank has not joined the job, and others wait for it", "rank=8", "waiting=0", "never seen: 8")
	w.say(0, nil)
	w.say(1, nil)
	if len(w.said) != 0 {
		t.Errorf("kept: %v", w.said)
	}
}

// TestWaitsOfManyRanks has each of many ranks wait for the one before it.
func TestWaitsOfManyRanks(t *testing.T) {
	var log logs.Log
	w := newWaits(log.Logger(), newMembers(log.Logger(), time.Second, noRank))
	const size = 300
	for rank := 1; rank < size; rank++ {
		w.say(rank, []Wait{{Rank: rank, For: rank - 1, Waited: time.Minute, Told: QuietWait}})
	}
	w.say(size-1, []Wait{{Rank: size - 1, For: size - 2, Waited: time.Minute, Told: slog.LevelWarn}})
	if log.Lines("rank=0", "1, 2, 3", "and 283 more") != 1 {
		t.Errorf("the log says %s", &log)
	}
}

// TestWaitsTravel has a rank say over its connection what it waits for. It is forgotten when the rank has gone.
func TestWaitsTravel(t *testing.T) {
	ctx := testContext(t)
	first, members := serveJob(t, nil, 1, 2)
	server := first.rendezvous.(*serving).server
	list := []Wait{{Rank: 1, For: 2, What: "größer", Waited: time.Minute, Told: slog.LevelWarn}, {Rank: 2, For: 0, What: strings.Repeat("x", 300), Waited: 1, Told: QuietWait}}
	if err := members[0].Waits(ctx, list); err != nil {
		t.Fatal(err)
	}
	server.waits.mu.Lock()
	got := server.waits.said[1]
	server.waits.mu.Unlock()
	list[1].What = list[1].What[:maxWaitWords]
	if !slices.Equal(got, list) {
		t.Errorf("%v, want %v", got, list)
	}
	if err := members[0].Waits(ctx, slices.Repeat(list, 20)); err != nil {
		t.Errorf("more than a rank says at a time: %v", err)
	}
	_ = members[0].Close()
	testenv.Await(t, "the end of what a rank has said that has gone", func() bool {
		server.waits.mu.Lock()
		defer server.waits.mu.Unlock()
		return len(server.waits.said) == 0
	})
}

//fuzz:inputs 20000
func FuzzWaits(f *testing.F) {
	f.Add(appendWaits(nil, []Wait{{Rank: 1, For: 2, What: "a barrier", Waited: time.Minute, Told: slog.LevelWarn}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		const size = 4
		list, err := parseWaits(b, size)
		if err != nil {
			return
		}
		w := newWaits(slog.New(slog.DiscardHandler), newMembers(slog.New(slog.DiscardHandler), time.Second, noRank))
		w.say(0, list)
		again, err := parseWaits(appendWaits(nil, list), size)
		if err != nil || len(again) != len(list) {
			t.Errorf("%v becomes %v, %v", list, again, err)
		}
	})
}

// TestManyWaitsAreCheap has all ranks of a large job wait for one, say so again, and go on: what each says costs
// little, however many have.
func TestManyWaitsAreCheap(t *testing.T) {
	const size, most = 8192, 10 * time.Second // where each has all looked at, it takes a minute
	var log logs.Log
	members := newMembers(log.Logger(), time.Second, noRank)
	for rank := range size {
		members.ranks[rank] = &entry{}
	}
	w := newWaits(log.Logger(), members)
	begin := time.Now()
	for _, told := range []slog.Level{QuietWait, slog.LevelInfo} {
		for rank := 1; rank < size; rank++ {
			w.say(rank, []Wait{{Rank: rank, What: "barrier", Waited: 10 * time.Second, Told: told}})
		}
	}
	for rank := 1; rank < size; rank++ {
		w.say(rank, nil)
	}
	if took := time.Since(begin); took > most {
		t.Errorf("it took %v", took)
	}
	if n := log.Lines("a rank keeps others waiting", "rank=0"); n != 1 || len(w.told) > 0 {
		t.Errorf("%d lines, want 1, and %d ranks are still told of:\n%s", n, len(w.told), &log)
	}
}
