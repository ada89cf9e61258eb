package engine

// Transmit slots, places for parked bundles and operations are common to all sessions.
// A peer that stops, or means harm, keeps what it has until it is given up, so no
// session may take all. Each may have as much as is left for all others together. That
// alone would leave next to nothing after ten that took what they could, so a part is
// kept for sessions that have few.

// share is how one kind of thing is shared out.
type share struct {
	kept int32 // for sessions that have few
	few  int32 // of kept, the part of one of 64
}

func shareOf(size int) share {
	kept := int32(size / 8)
	return share{kept: kept, few: max(1, kept/64)}
}

// admits reports whether a session that has some may have so many more, one after the
// other, where so many are left for all.
func (h share) admits(has, more, left int32) bool {
	if has+more <= h.few {
		return more <= left
	}
	return has+more <= left-h.kept-(more-1)
}

// slotsAdmit reports whether the bundles of class c of s may have n more slots.
func (e *Engine) slotsAdmit(s *Session, c class, n int32) bool {
	left := e.slotsLeft(c)
	if others := len(e.active); c == request && (others == 0 || others == 1 && s.isActive) {
		return n <= left-e.slotShare.kept
	}
	return e.slotShare.admits(s.held[c], n, left)
}

// slotsLeft returns how many more slots the bundles of class c may have. A sixteenth is
// kept for acknowledgements, and as much of the rest for either class that a rank full
// of its own requests can still answer, and one full of answers can still ask.
func (e *Engine) slotsLeft(c class) int32 {
	n := int32(len(e.slots))
	others := [numClasses]int32{request: n / 4, response: n/4 - e.ackReserve}[1-c]
	return n - e.ackReserve - e.held[c] - max(e.held[1-c], others)
}

// opRoom reports whether one more operation may await an answer from s.
func (e *Engine) opRoom(s *Session) bool {
	return e.opShare.admits(s.pending, 1, int32(e.cfg.MaxOps)-e.pending)
}
