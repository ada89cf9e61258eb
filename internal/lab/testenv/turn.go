package testenv

import (
	"os"
	"slices"
	"strconv"
	"testing"
)

// NotInTurn begins the reason of a test that is skipped because it is of a part that another run of
// CI has. CI accepts such a test.
const NotInTurn = "another run has this part: "

// A Part is tests that show again, in another way, what others show, or that take long. A run of CI
// has one part, and the next runs the others; where nobody says which part it is, all are tried.
type Part string

// The parts that consist of tests. CI has further ones, which are steps of its own.
const (
	// Attacks is what becomes of a job whose frames are protected, with somebody on their way.
	Attacks Part = "attacks"
	// Again is the tests of calls once more, with ranks that share memory, and with frames that are protected.
	Again Part = "again"
	// Stranger is the library in a module of somebody who has got it from a proxy.
	Stranger Part = "stranger"
)

// envPart is the environment variable that names the one part to try; empty or not set: all.
const envPart = "XDPRMA_TEST_PART"

// envTurn is the environment variable with a number by which a test chooses among its cases and
// seeds. CI sets it to the number of commits. Empty or not set: all are tried.
const envTurn = "XDPRMA_TEST_TURN"

// Only skips a test that is of a part, unless this run has that part, or all.
func Only(t testing.TB, p Part) {
	t.Helper()
	if own := os.Getenv(envPart); own != "" && own != string(p) {
		t.Skip(NotInTurn + string(p))
	}
}

// round is the number of runs after which parts and race tests are as before (see .ci/run).
const round = 7 * 3

// turn returns a number to choose by, and false if there is none in the environment. In runs that have the same
// part and race tests it is 23 more each time. So a list of any length below 23 is gone through there, too.
func turn() (uint64, bool) {
	n, err := strconv.ParseUint(os.Getenv(envTurn), 10, 64)
	return n + n/round*2, err == nil
}

// Cases returns what a test goes through: few and more, and with -short few alone. Where runs take
// turns, it is few and one of more.
func Cases[T any](few []T, more ...T) []T {
	n, turns := turn()
	switch {
	case testing.Short() || len(more) == 0:
		return few
	case turns:
		return append(slices.Clip(few), more[n%uint64(len(more))])
	}
	return append(slices.Clip(few), more...)
}

// OneOf returns what a test goes through: all, or where runs take turns one of them.
func OneOf[T any](all ...T) []T {
	if n, turns := turn(); turns {
		i := n % uint64(len(all))
		return all[i : i+1]
	}
	return all
}

// Seeds returns how many seeds a test goes through: all, or few with -short, as under
// the race detector, which has little more to find in more of the same.
func Seeds(all, few uint64) uint64 {
	if testing.Short() {
		return few
	}
	return all
}

// shares is how many runs it takes to go through all seeds, where runs take turns.
const shares = 3

// Span returns the seeds that a test goes through, the first and how many: all, which begin with 0,
// or few with -short. Where runs take turns, it is a third of all.
func Span(all, few uint64) (first, seeds uint64) {
	n, turns := turn()
	switch {
	case testing.Short():
		return 0, few
	case turns:
		n %= shares
		first = all * n / shares
		return first, all*(n+1)/shares - first
	}
	return 0, all
}
