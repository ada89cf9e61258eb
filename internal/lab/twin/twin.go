// Package twin does in Go what an XDP program does with express requests and answers: bpf/serve.h,
// check.h, operate.h and hand.h. The simulation and tests of the engine have it play the program. The
// tests of package bpf run the same frames through both, and compare what they say, answer
// and leave behind.
package twin

import (
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
)

// process is the program's place in a windows.LockWord.
const process = 1

// Program plays the program of a rank.
type Program struct {
	*express.Tables
	shown     map[uint32]shown // the windows in the tables, by id
	interrupt func() bool
}

// shown is a window as this process reaches it.
type shown struct {
	mem      []byte
	lock     *windows.LockWord
	counters *windows.Counters
}

// New returns a program that serves requests by tables.
func New(tables *express.Tables) *Program {
	return &Program{Tables: tables, shown: map[uint32]shown{}}
}

// SetInterrupt has Serve interrupt a request, as the program is whose attempts to change an
// element all fail, before each record on memory for which interrupt returns true.
func (p *Program) SetInterrupt(interrupt func() bool) { p.interrupt = interrupt }

// Expose is Tables.Expose of a window whose memory, lock and counters are here; w need not say its
// size, nor how many counters there are. A nil lock is one that the program may not take.
func (p *Program) Expose(w express.Window, mem []byte, lock *windows.LockWord, counters *windows.Counters) (place int) {
	w.Size, w.Locks, w.Counters = uint64(len(mem)), lock != nil, counters.Len()
	if place = p.Tables.Expose(w, nil); place >= 0 {
		p.shown[w.ID] = shown{mem, lock, counters}
	}
	return place
}
