package link

// Transmit slots, places for parked bundles and operations are common to all sessions. A
// peer that stops, or means harm, keeps what it has until it is given up, so no session
// may take all. Each may have as much as is left for all others together. After ten
// sessions had taken all that this rule allows, next to nothing would be left. So a part
// is kept for sessions that have few.

// Share is how one kind of thing is shared out.
type Share struct {
	kept int32 // for sessions that have few
	few  int32 // of kept, the part of one of 64
}

// ShareOf returns how a number of things are shared out.
func ShareOf(size int) Share {
	kept := int32(size / 8)
	return Share{kept: kept, few: max(1, kept/64)}
}

// Admits reports whether a session that has some may have so many more, one after the
// other, where so many are left for all.
func (h Share) Admits(has, more, left int32) bool {
	if has+more <= h.few {
		return more <= left
	}
	return has+more <= left-h.kept-(more-1)
}

// slotsAdmit reports whether the bundles of class c of s may have n more slots.
func (l *Link) slotsAdmit(s *Session, c Class, n int32) bool {
	left := l.slotsLeft(c)
	if others := len(l.active); c == Request && (others == 0 || others == 1 && s.isActive) {
		return n <= left-l.slotShare.kept
	}
	return l.slotShare.Admits(s.held[c], n, left)
}

// slotsLeft returns how many more slots the bundles of class c may have. A sixteenth is
// kept for acknowledgements. A part of the rest is kept for each class: so a rank full
// of its own requests can still answer, and a rank full of answers can still ask.
func (l *Link) slotsLeft(c Class) int32 {
	n := int32(len(l.slots))
	others := [NumClasses]int32{Request: n / 4, Response: n/4 - l.ackReserve}[1-c]
	return n - l.ackReserve - l.held[c] - max(l.held[1-c], others)
}
