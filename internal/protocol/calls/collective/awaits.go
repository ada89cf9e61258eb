package collective

import (
	"strings"

	"github.com/xdprma/xdprma/mpierr"
)

// Awaits says in words what the call waits for, and for which window if it is a part of a call on one.
func (k *Call) Awaits() (what string, rank int) {
	op := k.op
	if k.c.Title != nil {
		op = strings.TrimPrefix(op, "window ") + " of " + k.c.Title()
	}
	what, rank = k.transfer.Awaits()
	return op + ": " + what, rank
}

// Awaits says in words what the transfer waits for, and which rank, or NoRank. The ranks are those of the job.
func (t *Transfer) Awaits() (what string, rank int) {
	switch {
	case !t.received():
		return t.In.Awaits()
	case !t.sent():
		return t.Out.Awaits()
	}
	return "its end", mpierr.NoRank
}

// Idles reports whether what the call waits for need not ever come.
func (k *Call) Idles() bool { return k.transfer.Idles() }

// Idles reports whether the transfer waits for a message from whoever sends one, as a server does.
func (t *Transfer) Idles() bool { return !t.received() && t.In.Idles() }

// Awaits says in words what the call waits for.
func (k *Creation) Awaits() (what string, rank int) {
	return createGroup + ": the other members of the group", mpierr.NoRank
}

// Awaits says in words what the call waits for.
func (s *Split) Awaits() (what string, rank int) { return s.call.Awaits() }
