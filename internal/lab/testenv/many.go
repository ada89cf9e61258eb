package testenv

import (
	"os"
	"strconv"
	"testing"
)

// Ranks returns how many ranks a test of many has: some, half of them in a short run, or what the
// environment says, as so many keep the machine from doing anything else.
func Ranks(some int) int { return many("XDPRMA_TEST_RANKS", some) }

// Windows returns how often a test that makes many windows does, likewise.
func Windows(some int) int { return many("XDPRMA_TEST_WINDOWS", some) }

func many(variable string, some int) int {
	if n, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		return n
	}
	if testing.Short() {
		return some / 2
	}
	return some
}
