package engine

import (
	"errors"

	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/mpierr"
)

var errEvicted = errors.New("the memory has been freed with the window that it belongs to")

// Evict ends everything that would read or write the given memory later, which is about to
// be unmapped: results of calls on any window, receives, and messages that are being sent.
// They end with an error of class Win. The results are looked for by address, because no
// window knows which calls on other windows bring something into its memory.
func (e *Engine) Evict(mem []byte) {
	err := &mpierr.Error{Op: "window free", Class: mpierr.Win, Rank: mpierr.NoRank, Err: errEvicted}
	within := func(b []byte) bool { return overlap(b, mem) }
	e.Operations.Evict(err, within)
	e.Messages.Evict(err, within)
}

// overlap reports whether a and b have bytes in common.
func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	x, y := windows.Address(a), windows.Address(b)
	return x < y+uint64(len(b)) && y < x+uint64(len(a))
}
