package onesided

import (
	"errors"

	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// Ranks of one host may map each other's windows. Then an origin takes and gives the
// lock by the window's LockWord, and accesses the memory itself. A request that cannot
// go that way, such as one for a lock that others hold, goes to the target in frames.
// Both kinds of access act on the same memory.

// sharedLock is the lock of a window that this rank maps.
type sharedLock struct {
	word   *windows.LockWord // nil if it does not
	index  int               // of this rank, in word
	byWord bool              // the lock is held, and was taken by the word
	tell   bool              // given up; the target is still to be told
}

var errTaken = errors.New("the target took this process for dead, and gave its lock to others")

// Share says that this rank maps the window that a leads to, and has the given
// index in its lock.
func (a *Access) Share(word *windows.LockWord, index int) {
	a.shared.word, a.shared.index = word, index
}

// Window returns the id of the window that a leads to.
func (a *Access) Window() uint32 { return a.window }

// Held reports whether the lock is known to be held.
func (a *Access) Held() bool { return a.lock == locked }

// Local reports whether the target is this rank itself.
func (a *Access) Local() bool { return a.session == nil }

// Direct reports whether a call may act on the memory of the target at once, where this
// rank maps it or is the target itself: there is nothing that it could overtake, and it
// need not wait for a lock or a post. Before a call acts so, its caller calls ExpectTarget.
func (x *Origin) Direct(a *Access) bool {
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
func (x *Origin) ExpectTarget(a *Access) {
	if a.session != nil {
		a.session.Expect()
	}
}

// Refused records that a call which acted directly on the target was refused there.
func (a *Access) Refused(c *Call, class mpierr.Class) {
	rank := a.origin.cfg.Rank
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
func (x *Origin) giveWord(a *Access) bool {
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
