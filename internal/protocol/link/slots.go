package link

// slotState is the state of a transmit slot, which is in exactly one at any time. A slot holds
// one bundle, from its first record until the peer has acknowledged the bundle. So sending a
// bundle again costs no copy.
type slotState uint8

const (
	slotFree      slotState = iota
	slotOpen                // records are being added
	slotQueued              // complete, waiting for the window
	slotFlight              // sent, not acknowledged
	slotExchanged           // sent as an exchange, not answered
	slotDone                // acknowledged, or sent without need for it; the device still has it
)

// Class of a bundle. Responses have a window and a sequence of their own: they
// are always accepted by their receiver, so requests can never block them, and
// with them every request is served in the end.
type Class uint8

// The classes.
const (
	Request    Class = iota
	Response         // to requests of the peer
	NumClasses       // how many there are
)

type slot struct {
	next, prev int32
	state      slotState
	class      Class
	flags      uint8
	extra      bool // sent beyond the window
	prompt     bool // may be an exchange although nobody waits for it
	inDevice   bool // between output and Reap: must not be written
	sealed     bool // encrypted: the records are to be had by unseal
	way        Way  // that it was sent by last
	session    *Session
	length     int32 // of the payload, header included
	sends      uint32
	tries      uint32 // of sends, those since the peer applied what is before this bundle
	applied    uint64 // below it all was applied then
	pieces     int32  // besides the first, that it was sent in last
	order      uint32
	packet     uint64
	first      uint64 // the packet that it was sent in for the first time; 0: in pieces, or by another way than now
	seq        uint64
	sentAt     int64
	firstAt    int64 // when it was sent for the first time
}

// None stands for no slot.
const None int32 = -1

// slotList is a list of slots linked through their next and prev.
type slotList struct {
	head, tail int32
	n          int32
}

func newSlotList() slotList { return slotList{head: None, tail: None} }

func (l *Link) pushBack(list *slotList, i int32) {
	s := &l.slots[i]
	s.next, s.prev = None, list.tail
	if list.tail == None {
		list.head = i
	} else {
		l.slots[list.tail].next = i
	}
	list.tail = i
	list.n++
}

// insert puts slot i into list by its sequence number, from the end of list, where most
// belong.
func (l *Link) insert(list *slotList, i int32) {
	before := list.tail
	for before != None && l.slots[before].seq > l.slots[i].seq {
		before = l.slots[before].prev
	}
	l.insertAfter(list, before, i)
}

// insertAfter puts slot i into list, behind slot before; at its head if that is None.
func (l *Link) insertAfter(list *slotList, before, i int32) {
	s := &l.slots[i]
	s.prev = before
	if before == None {
		s.next, list.head = list.head, i
	} else {
		s.next = l.slots[before].next
		l.slots[before].next = i
	}
	if s.next == None {
		list.tail = i
	} else {
		l.slots[s.next].prev = i
	}
	list.n++
}

func (l *Link) remove(list *slotList, i int32) {
	s := &l.slots[i]
	if s.prev == None {
		list.head = s.next
	} else {
		l.slots[s.prev].next = s.next
	}
	if s.next == None {
		list.tail = s.prev
	} else {
		l.slots[s.next].prev = s.prev
	}
	list.n--
}

// allocSlot takes a free slot; there must be one (see Session.MayOpen).
func (l *Link) allocSlot() int32 {
	i := l.freeHead
	l.freeHead = l.slots[i].next
	l.freeSlots--
	return i
}

// discard frees the slot of a bundle that s need not send any more.
func (l *Link) discard(s *Session, i int32) {
	c := l.slots[i].class
	s.held[c]--
	l.held[c]--
	l.freeSlot(i)
}

func (l *Link) freeSlot(i int32) {
	s := &l.slots[i]
	if s.inDevice {
		s.state = slotDone
		return
	}
	s.state = slotFree
	s.session = nil
	s.next = l.freeHead
	l.freeHead = i
	l.freeSlots++
}

// Reaped takes back transmit slots that the device no longer needs.
func (l *Link) Reaped(slots []int32) {
	for _, i := range slots {
		if uint(i) >= uint(len(l.slots)) || !l.slots[i].inDevice {
			panic("link: the device returned a slot that it does not have")
		}
		l.slots[i].inDevice = false
		if l.slots[i].state == slotDone {
			l.freeSlot(i)
		}
	}
	if len(l.late) > 0 {
		for _, s := range l.late {
			s.isLate = false
			for w := range numWays {
				l.settle(s, w, s.ways[w].ackLargest, 0) // what arrived has left the flight before
			}
		}
		l.late = l.late[:0]
	}
	l.wakeParked()
	if len(l.stalled) > 0 {
		l.WakeBy(l.Now)
	}
}

// NeedsReap reports whether something waits for slots that the device may be
// done with; otherwise they can be given back in batches.
func (l *Link) NeedsReap() bool {
	return l.freeSlots <= int32(len(l.slots))/4 || len(l.late) > 0
}

// Output returns the frames that are ready for the device. The slice is valid
// until the next call of any other method.
func (l *Link) Output() []Out {
	if len(l.leaving) > 0 {
		l.depart()
	}
	return l.out
}

// Took says that the device has taken the first n frames of Output.
func (l *Link) Took(n int) {
	m := copy(l.out, l.out[n:])
	l.out = l.out[:m]
}
