package onesided

import (
	"maps"
	"slices"

	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/mpierr"
)

// takeGiven handles a peer's record that it has given up a lock by the word.
func (x *Locks) takeGiven(id uint32) mpierr.Class {
	if l := x.byWindow[id]; l != nil {
		x.grant(id, l.Retry(x.granted[:0]))
	}
	return mpierr.Success
}

// wordPause is how long the owner leaves a lock by a word alone, between looks, while
// requests wait for it.
const wordPause = 2 * millisecond

// lookAtWord grants l to requests that wait for it if the word is free. A process that
// gives the word up tells the owner, unless it is stopped or dies before; so the owner
// looks as well, and each time at who has it: the program notes for whom a moment after
// it has taken the word.
func (x *Locks) lookAtWord(id uint32, l *lock) {
	if x.grant(id, l.Retry(x.granted[:0])); l.Waiting() == 0 {
		return
	}
	x.watchWord(id, l)
	if x.wordsAt == 0 {
		x.wordsAt = x.link.Now + wordPause
	}
	x.link.WakeBy(x.wordsAt)
}

// lookAtWords looks at all words that somebody waits for, when that is due.
func (x *Locks) lookAtWords() {
	switch {
	case x.wordsAt == 0:
		return
	case x.link.Now < x.wordsAt:
		x.link.WakeBy(x.wordsAt)
		return
	}
	x.wordsAt = 0
	x.LookAtLocks()
}

// LookAtLocks looks at all words that somebody waits for.
func (x *Locks) LookAtLocks() {
	if x.waiting == 0 {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(x.byWindow)) {
		if l := x.byWindow[id]; l.host != nil && l.Waiting() > 0 {
			x.lookAtWord(id, l)
		}
	}
}

// sharer returns the session with the process that has an index in a window's lock,
// nil if there is none that lives.
func (x *Locks) sharer(h *windows.Host, index int) *Peer {
	if index >= len(h.Ranks) || h.Ranks[index] == windows.InKernel {
		return nil
	}
	if s := x.peer(h.Ranks[index]); s != nil && !s.Dead() {
		return s
	}
	return nil
}

// gone reports whether the process with an index in a window's lock holds it no more. One
// that has died holds it until nothing that it has sent can take effect.
func (x *Locks) gone(h *windows.Host, index int) bool {
	if index < len(h.Ranks) {
		if h.Ranks[index] == windows.InKernel {
			return false
		}
		if s := x.peer(h.Ranks[index]); s != nil && (!s.Dead() || x.link.Quiescing(s.Session)) {
			return false
		}
	}
	return true
}

// watchWord watches those who hold the lock of a window by its word while others wait. The
// program holds it for the peer whose request it executes. If it was interrupted, the
// peer's next frame has to come, or its death be noticed.
func (x *Locks) watchWord(id uint32, l *lock) {
	l.host.Lock.Holders(func(index int) {
		if s := x.sharer(l.host, index); s != nil {
			x.watchHolder(s)
		} else if index < len(l.host.Ranks) && l.host.Ranks[index] == windows.InKernel {
			x.watchServed(id)
		}
	})
}

// watchServed watches those of which an exchange holds the lock of a window.
func (x *Locks) watchServed(id uint32) {
	x.link.EachServed(func(s *link.Session, slot int) {
		if held, ok := x.cfg.Express.Holds(slot); ok && held == id {
			x.watchHolder(x.cfg.Peer(s))
		}
	})
}

// dropServed gives up the lock that an exchange of s, which has ended, left held when the
// program was interrupted.
func (x *Locks) dropServed(s *Peer) {
	if s.Slot() < 0 {
		return
	}
	if id, held := x.cfg.Express.Abandon(s.Slot()); held {
		if w := x.cfg.Windows.Lookup(id); w != nil {
			dropWord(w, windows.InKernel)
		}
	}
}

// dropWord gives up the lock of a window for a dead peer, or for the program.
func dropWord(w *windows.Window, rank int) {
	if h := w.Host(); h != nil {
		h.Lock.Give(h.IndexOf(rank))
	}
}
