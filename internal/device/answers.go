package device

import (
	"sync/atomic"

	"github.com/xdprma/xdprma/loader"
)

// answersInARow is how often answers keep the driver from what came to the sockets.
const answersInARow = 8

// handedOver is the program's counter of answers.
const handedOver = "express_handed"

// answers are those that a program hands over. The driver uses them.
type answers struct {
	ring   *loader.Answers // nil: it hands over none
	streak int             // how often nothing but answers was received, in a row
	bytes  atomic.Uint64
}

// take is Receive of answers. One look at a word tells whether there is one.
func (a *answers) take(frames []Frame) int {
	if a.ring == nil || a.streak == answersInARow {
		a.streak = 0
		return 0
	}
	n, bytes := 0, 0
	for n < len(frames) {
		answer := a.ring.Next()
		if answer == nil {
			break
		}
		frames[n] = Frame{Payload: answer, Path: NoPath, Answer: true}
		n++
		bytes += len(answer)
	}
	if n == 0 {
		a.streak = 0
		return 0
	}
	a.streak++
	a.bytes.Add(uint64(bytes))
	return n
}

func (a *answers) release() {
	if a.ring != nil {
		a.ring.Release()
	}
}

// doze has the program wake who is about to sleep, and returns false if an answer is there by now.
func (a *answers) doze() bool {
	if a.ring == nil || a.ring.Doze() {
		return true
	}
	a.ring.Rise()
	return false
}

func (a *answers) rise() {
	if a.ring != nil {
		a.ring.Rise()
	}
}
