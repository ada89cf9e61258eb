package device

// answersInARow is how often answers keep the driver from what came to the sockets.
const answersInARow = 8

// handedOver is the program's counter of answers.
const handedOver = "express_handed"

// takeAnswers is Receive of the answers that the program hands over. One look at a word tells whether
// there is one.
func (x *XDP) takeAnswers(frames []Frame) int {
	if x.answers == nil || x.streak == answersInARow {
		x.streak = 0
		return 0
	}
	n, bytes := 0, 0
	for n < len(frames) {
		answer := x.answers.Next()
		if answer == nil {
			break
		}
		frames[n] = Frame{Payload: answer, Path: NoPath, Answer: true}
		n++
		bytes += len(answer)
	}
	if n == 0 {
		x.streak = 0
		return 0
	}
	x.streak++
	x.handed.Add(uint64(bytes))
	return n
}

// doze has the program wake who is about to sleep, and returns false if an answer is there by now.
func (x *XDP) doze() bool {
	if x.answers == nil || x.answers.Doze() {
		return true
	}
	x.answers.Rise()
	return false
}

func (x *XDP) rise() {
	if x.answers != nil {
		x.answers.Rise()
	}
}
