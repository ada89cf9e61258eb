package testenv

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Turns go through all cases, parts and seeds between them, and each turn has those that every turn has.
func TestTurnsGoThroughAll(t *testing.T) {
	var more, ways []string
	seeds := map[uint64]int{}
	for n := range uint64(6) {
		t.Setenv(envTurn, strconv.FormatUint(n, 10))
		cases := Cases([]string{"always"}, "a", "b", "c")
		if short := testing.Short(); cases[0] != "always" || len(cases) != 2 && !short {
			t.Errorf("turn %d has the cases %q", n, cases)
		}
		more = append(more, cases[1:]...)
		ways = append(ways, OneOf("a", "b")...)
		if Cases([]int{1})[0] != 1 {
			t.Error("a test without further cases has none")
		}
		first, of := Span(500, 500)
		for seed := first; seed < first+of; seed++ {
			seeds[seed]++
		}
	}
	if slices.Sort(more); !testing.Short() && strings.Join(more, "") != "aabbcc" {
		t.Errorf("six turns have the further cases %q", more)
	}
	if slices.Sort(ways); strings.Join(ways, "") != "aaabbb" {
		t.Errorf("six turns go the ways %q", ways)
	}
	for seed := range uint64(500) {
		if seeds[seed] != 2 && !testing.Short() {
			t.Errorf("six turns try seed %d %d times, want 2", seed, seeds[seed])
		}
	}
}

// Runs that have the same part and the same race tests go through all cases as well, however many there are.
func TestEachPartGoesThroughAllCases(t *testing.T) {
	for length := range 12 {
		var list []int
		for i := range length + 1 {
			list = append(list, i)
		}
		met := map[[2]uint64]bool{}
		for n := range uint64(round * len(list)) {
			t.Setenv(envTurn, strconv.FormatUint(n, 10))
			met[[2]uint64{n % round, uint64(OneOf(list...)[0])}] = true
		}
		if len(met) != round*len(list) {
			t.Errorf("of %d cases in each of %d kinds of runs, %d are tried", len(list), round, len(met))
		}
	}
}

// Where nobody says which turn it is, all is tried.
func TestWithoutTurnsAllIsTried(t *testing.T) {
	for _, turn := range []string{"", "all"} {
		t.Setenv(envTurn, turn)
		t.Setenv(envPart, "")
		first, seeds := Span(500, 500)
		if n := len(Cases([]int{1}, 2, 3)); n != 3 && !testing.Short() || len(OneOf(1, 2)) != 2 || first != 0 || seeds != 500 {
			t.Errorf("turn %q: %d of 3 cases, seeds %d and %d more", turn, n, first, seeds)
		}
		v := &verdict{TB: t}
		if Only(v, Attacks); v.skipped {
			t.Error("a part was left out")
		}
	}
}

// A run has one part, and says of tests of the others whose they are.
func TestOtherPartsAreLeftOut(t *testing.T) {
	t.Setenv(envPart, string(Attacks))
	for part, reason := range map[Part]string{Attacks: "", Stranger: NotInTurn + "stranger"} {
		v := &verdict{TB: t}
		if Only(v, part); v.reason != reason {
			t.Errorf("%s is left out for %q, want %q", part, v.reason, reason)
		}
	}
}

// CI takes turns at each part, and at no other: of a misspelt one no test would be left.
func TestCIHasEachPart(t *testing.T) {
	run, err := os.ReadFile("../../../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(run), "\nparts=(")
	list, _, _ = strings.Cut(list, ")")
	got := strings.Fields(list)
	var want []string
	for _, part := range []Part{Attacks, Again, Stranger} {
		want = append(want, string(part))
	}
	for line := range strings.Lines(string(run)) {
		if step, ok := strings.CutPrefix(line, "in_turn "); ok {
			part, _, _ := strings.Cut(step, " ")
			want = append(want, part)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	want = slices.Compact(want)
	if !slices.Equal(got, want) {
		t.Errorf(".ci/run has the parts %q, want %q", got, want)
	}
	_, list, _ = strings.Cut(string(run), "\ngroups=(")
	list, _, _ = strings.Cut(list, ")")
	if n := len(got) * len(strings.Fields(list)); n != round {
		t.Errorf(".ci/run has a round of %d runs, and tests choose for one of %d", n, round)
	}
}
