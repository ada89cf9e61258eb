package onesided

import (
	"errors"
	"maps"
	"slices"

	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/window"
)

// Ranks of one host may map each other's windows. Then an origin takes and gives the
// lock by the window's LockWord, and accesses the memory itself. A request that cannot
// go that way, such as one for a lock that others hold, goes to the target in frames.
// Both kinds of access act on the same memory.

// sharedLock is the lock of a window that this rank maps.
type sharedLock struct {
	word   *window.LockWord // nil if it does not
	index  int              // of this rank, in word
	byWord bool             // the lock is held, and was taken by the word
	tell   bool             // given up; the target is still to be told
}

var errTaken = errors.New("the target took this process for dead, and gave its lock to others")

// Share says that this rank maps the window that a leads to, and has the given
// index in its lock.
func (a *Access) Share(word *window.LockWord, index int) { a.shared.word, a.shared.index = word, index }

// Window returns the id of the window that a leads to.
func (a *Access) Window() uint32 { return a.window }

// Held reports whether the lock is known to be held.
func (a *Access) Held() bool { return a.lock == locked }

// Local reports whether the target is this rank itself.
func (a *Access) Local() bool { return a.session == nil }

// Direct reports whether a call may act on the memory of the target at once, where this
// rank maps it or is the target itself: there is nothing that it could overtake, and it
// need not wait for a lock or a post. Before a call acts so, its caller calls ExpectTarget.
func (x *Operations) Direct(a *Access) bool {
	s := a.session
	if a.keepsBack() || a.lock == refused || !(*FlushWait)(a).Met() {
		return false
	}
	if s == nil {
		return true
	}
	return s.Open() && s.left == nil && a.shared.word != nil && !a.shared.word.Retired()
}

// ExpectTarget notes that a call acts on the memory of a's target without asking it: that the
// target still lives is looked after in the background.
func (x *Operations) ExpectTarget(a *Access) {
	if a.session != nil {
		a.session.Expect()
	}
}

// Refused records that a call which acted directly on the target was refused there.
func (a *Access) Refused(c *Call, class mpierr.Class) {
	rank := a.ops.cfg.Rank
	if a.session != nil {
		rank = a.session.Rank()
	}
	err := refusal(c.Code, class, rank)
	if c.Request != nil && c.answered() {
		c.Request.err = err
		return
	}
	a.fail(err)
}

// takeWord takes the lock where one compare-and-swap does it. The session must be
// open: the target watches over holders through it.
func (a *Access) takeWord(exclusive bool) bool {
	l := &a.shared
	if l.word == nil || !a.session.Open() || l.word.Retired() || !l.word.Take(l.index, kindOf(exclusive)) {
		return false
	}
	a.lock, l.byWord = locked, true
	a.session.Expect()
	return true
}

// giveWord is Unlock for a lock that was taken by the word.
func (x *Operations) giveWord(a *Access) bool {
	s, l := a.session, &a.shared
	if l.byWord {
		if !s.Dead() && !(*FlushWait)(a).Met() {
			s.Push(a.lastSeq) // some of it went in frames
			return false
		}
		held, tell := l.word.Give(l.index)
		if !held {
			a.fail(&mpierr.Error{Op: "unlock", Class: mpierr.ProcFailed, Rank: s.Rank(), Err: errTaken})
		}
		a.lock, l.byWord, l.tell = unlocked, false, tell
	}
	if l.tell && !s.Dead() {
		i := s.Room(link.Request, 0)
		if i == link.None {
			return false
		}
		x.link.Append(i, &wire.Record{Code: wire.CodeGiven, Window: a.window}, 0)
		s.MarkDirty()
	}
	l.tell = false
	return true
}

// takeGiven handles a peer's record that it has given up a lock by the word.
func (x *Operations) takeGiven(id uint32) mpierr.Class {
	if l := x.locks[id]; l != nil {
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
func (x *Operations) lookAtWord(id uint32, l *lock) {
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
func (x *Operations) lookAtWords() {
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
func (x *Operations) LookAtLocks() {
	if x.waiting == 0 {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(x.locks)) {
		if l := x.locks[id]; l.host != nil && l.Waiting() > 0 {
			x.lookAtWord(id, l)
		}
	}
}

// sharer returns the session with the process that has an index in a window's lock,
// nil if there is none that lives.
func (x *Operations) sharer(h *window.Host, index int) *Peer {
	if index >= len(h.Ranks) || h.Ranks[index] == window.InKernel {
		return nil
	}
	if s := x.peer(h.Ranks[index]); s != nil && !s.Dead() {
		return s
	}
	return nil
}

// gone reports whether the process with an index in a window's lock holds it no more. One
// that has died holds it until nothing that it has sent can take effect.
func (x *Operations) gone(h *window.Host, index int) bool {
	if index < len(h.Ranks) {
		if h.Ranks[index] == window.InKernel {
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
func (x *Operations) watchWord(id uint32, l *lock) {
	l.host.Lock.Holders(func(index int) {
		if s := x.sharer(l.host, index); s != nil {
			x.watchHolder(s)
		} else if index < len(l.host.Ranks) && l.host.Ranks[index] == window.InKernel {
			x.watchServed(id)
		}
	})
}

// watchServed watches those of which an exchange holds the lock of a window.
func (x *Operations) watchServed(id uint32) {
	x.link.EachServed(func(s *link.Session, slot int) {
		if held, ok := x.cfg.Express.Holds(slot); ok && held == id {
			x.watchHolder(x.cfg.Peer(s))
		}
	})
}

// dropServed gives up the lock that an exchange of s, which has ended, left held when the
// program was interrupted.
func (x *Operations) dropServed(s *Peer) {
	if s.Slot() < 0 {
		return
	}
	if id, held := x.cfg.Express.Abandon(s.Slot()); held {
		if w := x.cfg.Windows.Lookup(id); w != nil {
			dropWord(w, window.InKernel)
		}
	}
}

// dropWord gives up the lock of a window for a dead peer, or for the program.
func dropWord(w *window.Window, rank int) {
	if h := w.Host(); h != nil {
		h.Lock.Give(h.IndexOf(rank))
	}
}
