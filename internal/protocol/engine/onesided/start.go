package onesided

import (
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// Start begins an access epoch on a, which the target's next post opens. Until then,
// calls that are issued on a are kept back. Complete ends the epoch.
func (x *Origin) Start(a *Access) { a.starts++ }

// StartPosted is Start for a target that has posted and has told nobody.
func (x *Origin) StartPosted(a *Access) {
	if a.starts++; a.Starting() {
		a.posts = a.starts
	}
}

// Complete ends the access epoch on a that Start began. The target is told as soon as
// everything issued before has been applied; what is issued next belongs to the next
// epoch. The error concerns the target as a whole.
func (x *Origin) Complete(a *Access) error {
	c := Call{Code: wire.CodeComplete, Access: a}
	done, err := x.Issue(&c)
	if !done {
		x.deferCall(&c)
		if a.session != nil {
			a.session.Stall()
		}
	}
	return err
}

// tellComplete tells the target that the access epoch is over, once everything issued
// before has been applied.
func (x *Origin) tellComplete(a *Access) bool {
	s := a.session
	if s == nil {
		a.exposure.complete()
		x.completed(localHolder, a.window, true)
		a.completed++
		return true
	}
	i := x.requestRoom(a, 0)
	if i == link.None {
		return false
	}
	x.add(a, i, &wire.Record{Code: wire.CodeComplete, Window: a.window}, 0, wire.FlagAfterAll)
	s.MarkDirty()
	a.completed++
	return true
}

// posted takes in that the target of a has posted: what was kept back may act.
func (x *Origin) posted(a *Access) {
	a.posts++
	if a.session == nil {
		x.issueQueue(a)
		return
	}
	a.session.MarkDirty()
}

// open reports whether the target has posted for an epoch that this rank has not completed.
func (a *Access) open() bool { return int32(a.posts-a.completed) > 0 }

// Starting reports whether the target has yet to post to this rank.
func (a *Access) Starting() bool { return int32(a.starts-a.posts) > 0 }
