package floor

import (
	"sync/atomic"
	"unsafe"
)

// Answer is the memory of one answer at a time: struct answer of floor.c.
type Answer struct {
	awaited, ready atomic.Uint64
	word           uint64
}

func answerIn(memory []byte) *Answer { return (*Answer)(unsafe.Pointer(unsafe.SliceData(memory))) }

// Await lets the answer to the request of a number, which is not 0, be written, and no other.
func (a *Answer) Await(number uint64) { a.awaited.Store(number) }

// Take returns the number of the last answer that was written, 0 if there is none, and the
// word as it was before.
func (a *Answer) Take() (number, word uint64) {
	number = a.ready.Load() // first: the word is there when it says so
	return number, a.word
}
