package express_test

import (
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

const second int64 = 1_000_000_000

// begun returns an origin of which an exchange with 16 bytes of results runs, that was tried so often.
func begun(tries int) *express.Origin {
	x := &express.Origin{}
	x.Open(express.MaxPayload)
	again(x, second, tries)
	return x
}

func again(x *express.Origin, now int64, tries int) {
	x.Begin(now, express.Exchanged{Slot: 7, Records: 1, Length: 200, Results: 16}, &reliable.RTT{})
	for range tries {
		x.Try(now, 5)
	}
}

func TestAnswersAreJudged(t *testing.T) {
	for _, test := range []struct {
		name    string
		h       express.Header
		length  int
		verdict express.Verdict
	}{
		{"of the last try", express.Header{Exchange: 1, Try: 2}, 16, express.Executed},
		{"of an earlier try", express.Header{Exchange: 1, Try: 1}, 16, express.Executed},
		{"a record was refused", express.Header{Exchange: 1, Try: 1, Fate: 2}, 16, express.Executed},
		{"taken as a bundle", express.Header{Exchange: 1, Try: 2, Fate: express.FateTaken}, 0, express.Taken},
		{"of an earlier exchange", express.Header{Exchange: 0, Try: 1}, 16, express.Late},
		{"of a later exchange", express.Header{Exchange: 2, Try: 1}, 16, express.Late},
		{"of no try", express.Header{Exchange: 1, Try: 0}, 16, express.Odd},
		{"of a try to come", express.Header{Exchange: 1, Try: 3}, 16, express.Odd},
		{"with too few results", express.Header{Exchange: 1, Try: 2}, 8, express.Odd},
		{"with too many results", express.Header{Exchange: 1, Try: 2}, 24, express.Odd},
		{"taken, with results", express.Header{Exchange: 1, Try: 2, Fate: express.FateTaken}, 16, express.Odd},
	} {
		x := begun(2)
		if v := x.Judge(second, &test.h, test.length); v != test.verdict {
			t.Errorf("%s: verdict %d, want %d", test.name, v, test.verdict)
		}
		if !x.Running() {
			t.Errorf("%s: a judgement ended the exchange", test.name)
		}
	}
	var none express.Origin
	if v := none.Judge(second, &express.Header{}, 0); v != express.Late || none.Served() || none.Admits(second, 1) {
		t.Errorf("where nothing was asked the verdict is %d", v)
	}
	x := begun(1)
	x.Execute()
	if v := x.Judge(second, &express.Header{Exchange: 1, Try: 1}, 16); v != express.Late || x.Skipped() != 1 {
		t.Errorf("the second answer to an exchange: verdict %d, %d bundles skipped", v, x.Skipped())
	}
}

// TestOnlyTheLastTryTellsTheRoundTrip since an answer to an earlier one was on its way for longer.
func TestOnlyTheLastTryTellsTheRoundTrip(t *testing.T) {
	for try, told := range map[uint64]bool{1: false, 2: true} {
		x := begun(2)
		before := x.DueAt() - second
		x.Judge(second+1000, &express.Header{Exchange: 1, Try: try}, 16)
		x.Wait(second)
		if after := x.DueAt() - second; after < before != told {
			t.Errorf("try %d: the patience was %d and is %d", try, before, after)
		}
	}
}

// TestEachSecondTryAsksUserSpace from the second on, or the third once the program has answered.
func TestEachSecondTryAsksUserSpace(t *testing.T) {
	for _, answered := range []bool{false, true} {
		x := begun(0)
		if answered {
			x.Try(second, 5)
			x.Doubt(second, &express.Header{Exchange: 1, Try: 1})
			x.Execute()
			again(x, second, 0)
		}
		for try := 1; try <= 8; try++ {
			want := try >= 2 && try%2 == 0
			if answered {
				want = try >= 3 && try%2 == 1
			}
			if h := x.Try(second, 5); h.Flags == wire.FlagUser != want || h.Try != uint64(try) || h.Session != 5 {
				t.Errorf("try %d, answered before %v: %+v", try, answered, h)
			}
		}
	}
}

// TestTierIsLeftForLongerEachTime while the answers of its program get lost.
func TestTierIsLeftForLongerEachTime(t *testing.T) {
	x := begun(2)
	now := second
	byUser, handedOn := express.Header{Try: 2, User: true}, express.Header{Try: 1, User: true}
	lose := func(n int) (leaves, first bool) {
		for range n - 1 {
			if leaves, _ := x.Doubt(now, &byUser); leaves {
				t.Fatal("the tier is left too early")
			}
			if leaves, _ := x.Doubt(now, &handedOn); leaves {
				t.Fatal("the tier is left for what the program handed on")
			}
		}
		return x.Doubt(now, &byUser)
	}
	for i, away := range []int64{second, 2 * second, 4 * second} {
		leaves, first := lose(3)
		if !leaves || first != (i == 0) || !x.AnswersLost() || x.Admits(now+away-1, 100) || !x.Admits(now+away, 100) {
			t.Errorf("time %d: leaves %v, first %v", i, leaves, first)
		}
		now += away
	}
	x.Doubt(now, &express.Header{Try: 1})
	if x.AnswersLost() {
		t.Error("the program has answered, and its answers get lost")
	}
	x.Execute()
	again(x, now, 3)
	byUser.Try = 3 // the program has answered: the third asks user space
	if leaves, first := lose(10); !leaves || first || x.Admits(now+second-1, 100) || !x.Admits(now+second, 100) {
		t.Errorf("after the program has answered: leaves %v, first %v", leaves, first)
	}
}

// TestSeveralTriesInVainSayMore than the first, which is early.
func TestSeveralTriesInVainSayMore(t *testing.T) {
	x := begun(1)
	if x.Expired() {
		t.Error("the first try says something of the peer")
	}
	for range 3 {
		x.Try(10*second, 5)
	}
	if !x.Expired() || !x.InVain(9*second) || x.InVain(9*second+1) {
		t.Error("four tries within nine seconds")
	}
	x.Excuse(2*second, 20*second)
	if x.InVain(8*second) || !x.InVain(7*second) {
		t.Error("two of nine seconds are excused")
	}
	x = begun(3)
	if x.InVain(0) {
		t.Error("three tries are enough")
	}
}

func TestNewestRequestIsRemembered(t *testing.T) {
	var n express.Newest
	for i, test := range []struct {
		exchange, try uint64
		follows       bool
	}{{1, 1, true}, {1, 1, false}, {1, 2, true}, {1, 1, false}, {3, 1, true}, {2, 9, false}, {3, 2, true}} {
		if got := n.Follows(&express.Header{Exchange: test.exchange, Try: test.try}); got != test.follows {
			t.Errorf("request %d follows: %v", i, got)
		}
	}
}
