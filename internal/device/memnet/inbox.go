package memnet

import (
	"container/heap"
	"time"
)

// mostWaiting is how many frames wait for a rank at most, as in a socket's buffer.
const mostWaiting = 4096

// letter is a frame on its way.
type letter struct {
	payload []byte
	from    int
	due     time.Duration // since the network began; 0: at once
	number  uint64        // in the order sent
}

// inbox holds the frames for a rank: those that are due at once in their order, and the others
// by the time at which they are due.
type inbox struct {
	now    []letter
	first  int // of now that was not taken
	later  letters
	number uint64
}

func (b *inbox) len() int { return len(b.now) - b.first + len(b.later) }

func (b *inbox) clear() { *b = inbox{number: b.number} }

func (b *inbox) put(l letter) {
	b.number++
	if l.number = b.number; l.due == 0 {
		if b.first >= mostWaiting { // the inbox was never empty for long
			n := copy(b.now, b.now[b.first:])
			clear(b.now[n:])
			b.now, b.first = b.now[:n], 0
		}
		b.now = append(b.now, l)
		return
	}
	heap.Push(&b.later, l)
}

// take returns the next frame that is due.
func (b *inbox) take(time func() time.Duration) (letter, bool) {
	if len(b.later) > 0 && b.later[0].due <= time() {
		return heap.Pop(&b.later).(letter), true
	}
	if b.first == len(b.now) {
		return letter{}, false
	}
	l := b.now[b.first]
	if b.first++; b.first == len(b.now) {
		b.now, b.first = b.now[:0], 0
	}
	return l, true
}

// next returns when the next frame is due.
func (b *inbox) next() (due time.Duration, ok bool) {
	switch {
	case b.first < len(b.now):
		return 0, true
	case len(b.later) > 0:
		return b.later[0].due, true
	}
	return 0, false
}

// letters is a heap.
type letters []letter

func (l letters) Len() int { return len(l) }
func (l letters) Less(i, j int) bool {
	return l[i].due < l[j].due || l[i].due == l[j].due && l[i].number < l[j].number
}
func (l letters) Swap(i, j int) { l[i], l[j] = l[j], l[i] }

// Push is for package heap.
func (l *letters) Push(x any) { *l = append(*l, x.(letter)) }

// Pop is for package heap.
func (l *letters) Pop() any {
	last := (*l)[len(*l)-1]
	(*l)[len(*l)-1] = letter{}
	*l = (*l)[:len(*l)-1]
	return last
}
