package engine

// A transmit slot holds one bundle from the moment its first record is written
// until the peer has acknowledged it, so that sending it again costs no copy.
// At any time a slot is in exactly one of these states.
type slotState uint8

const (
	slotFree   slotState = iota
	slotOpen             // records are being added
	slotQueued           // complete, waiting for the window
	slotFlight           // sent, not acknowledged
	slotDone             // acknowledged, or sent without need for it; the device still has it
)

// class of a bundle. Responses have a window and a sequence of their own: they
// are always accepted by their receiver, so requests can never block them, and
// with them every request is served in the end.
type class uint8

const (
	request class = iota
	response
	numClasses
)

type slot struct {
	next, prev int32
	state      slotState
	class      class
	flags      uint8
	inDevice   bool // between output and Reap: must not be written
	session    *Session
	length     int32 // of the payload, header included
	sends      uint32
	tries      uint32 // of sends, those since the peer applied what is before this bundle
	applied    uint64 // below it all was applied then
	pieces     int32  // besides the first, that it was sent in last
	order      uint32
	packet     uint64
	seq        uint64
	sentAt     int64
	firstAt    int64 // when it was sent for the first time
}

const none int32 = -1

// slotList is a list of slots linked through their next and prev.
type slotList struct {
	head, tail int32
	n          int32
}

func newSlotList() slotList { return slotList{head: none, tail: none} }

func (e *Engine) pushBack(l *slotList, i int32) {
	s := &e.slots[i]
	s.next, s.prev = none, l.tail
	if l.tail == none {
		l.head = i
	} else {
		e.slots[l.tail].next = i
	}
	l.tail = i
	l.n++
}

// insert puts slot i into l by its sequence number, from the end of l, where most
// belong.
func (e *Engine) insert(l *slotList, i int32) {
	before := l.tail
	for before != none && e.slots[before].seq > e.slots[i].seq {
		before = e.slots[before].prev
	}
	s := &e.slots[i]
	s.prev = before
	if before == none {
		s.next, l.head = l.head, i
	} else {
		s.next = e.slots[before].next
		e.slots[before].next = i
	}
	if s.next == none {
		l.tail = i
	} else {
		e.slots[s.next].prev = i
	}
	l.n++
}

func (e *Engine) remove(l *slotList, i int32) {
	s := &e.slots[i]
	if s.prev == none {
		l.head = s.next
	} else {
		e.slots[s.prev].next = s.next
	}
	if s.next == none {
		l.tail = s.prev
	} else {
		e.slots[s.next].prev = s.prev
	}
	l.n--
}

// allocSlot takes a free slot; there must be one (see mayOpen).
func (e *Engine) allocSlot() int32 {
	i := e.freeHead
	e.freeHead = e.slots[i].next
	e.freeSlots--
	return i
}

// discard frees the slot of a bundle that s need not send any more.
func (e *Engine) discard(s *Session, i int32) {
	c := e.slots[i].class
	s.held[c]--
	e.held[c]--
	e.freeSlot(i)
}

func (e *Engine) freeSlot(i int32) {
	s := &e.slots[i]
	if s.inDevice {
		s.state = slotDone
		return
	}
	s.state = slotFree
	s.session = nil
	s.next = e.freeHead
	e.freeHead = i
	e.freeSlots++
}

// Reaped takes back transmit slots that the device no longer needs.
func (e *Engine) Reaped(slots []int32) {
	for _, i := range slots {
		if uint(i) >= uint(len(e.slots)) || !e.slots[i].inDevice {
			panic("engine: the device returned a slot that it does not have")
		}
		e.slots[i].inDevice = false
		if e.slots[i].state == slotDone {
			e.freeSlot(i)
		}
	}
	if len(e.late) > 0 {
		for _, s := range e.late {
			s.isLate = false
			e.settle(s, s.ackLargest, 0) // what arrived has left the flight before
		}
		e.late = e.late[:0]
	}
	e.wakeParked()
	if len(e.stalled) > 0 {
		e.wakeBy(e.now)
	}
}

// NeedsReap reports whether something waits for slots that the device may be
// done with; otherwise they can be given back in batches.
func (e *Engine) NeedsReap() bool {
	return e.freeSlots <= int32(len(e.slots))/4 || len(e.late) > 0
}

// Output returns the frames that are ready for the device. The slice is valid
// until the next call of any other method.
func (e *Engine) Output() []Out { return e.out }

// Took says that the device has taken the first n frames of Output.
func (e *Engine) Took(n int) {
	m := copy(e.out, e.out[n:])
	e.out = e.out[:m]
}
