package collective

import "strings"

// Awaits says in words what the call waits for, and for which window if it is a part of a call on one.
func (k *Call) Awaits() string {
	op := k.op
	if k.c.Title != nil {
		op = strings.TrimPrefix(op, "window ") + " of " + k.c.Title()
	}
	return op + ": " + k.transfer.Awaits()
}

// Awaits says in words what the transfer waits for. The ranks are those of the job.
func (t *Transfer) Awaits() string {
	switch {
	case !t.received():
		return t.In.Awaits()
	case !t.sent():
		return t.Out.Awaits()
	}
	return "its end"
}

// Idles reports whether what the call waits for need not ever come.
func (k *Call) Idles() bool { return k.transfer.Idles() }

// Idles reports whether the transfer waits for a message from whoever sends one, as a server does.
func (t *Transfer) Idles() bool { return !t.received() && t.In.Idles() }

// Awaits says in words what the call waits for.
func (k *Creation) Awaits() string { return createGroup + ": the other members of the group" }

// Awaits says in words what the call waits for.
func (s *Split) Awaits() string { return s.call.Awaits() }
