package sim

import (
	"testing"

	"github.com/xdprma/xdprma/internal/lab/program"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// Programs make all calls that communicate.
func TestProgramsMakeAllCalls(t *testing.T) {
	made := map[wire.Code]bool{}
	for c := program.Put; c <= program.CompareAndSwap; c++ {
		made[callCodes[c]] = true
	}
	for i := range 256 {
		if c := wire.Code(i); made[c] != c.Communicates() {
			t.Errorf("programs make calls of %v (%d): %t", c, i, made[c])
		}
	}
}
