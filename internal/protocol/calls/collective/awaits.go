package collective

import (
	"fmt"

	"github.com/xdprma/xdprma/internal/protocol/engine"
)

// Awaits says in words what the call waits for.
func (k *Call) Awaits() string { return k.op + ": " + k.transfer.Awaits() }

// Awaits says in words what the transfer waits for. The ranks are those of the job.
func (t *Transfer) Awaits() string {
	switch {
	case !t.received() && t.from == engine.AnySource:
		return "a message from any rank"
	case !t.received():
		return fmt.Sprintf("a message from rank %d", t.c.WorldRank(t.from))
	case !t.sent():
		return fmt.Sprintf("rank %d to take a message", t.c.WorldRank(t.to))
	}
	return "its end"
}

// Idles reports whether what the call waits for need not ever come.
func (k *Call) Idles() bool { return k.transfer.Idles() }

// Idles reports whether the transfer waits for a message from whoever sends one, as a server does.
func (t *Transfer) Idles() bool { return !t.received() && t.from == engine.AnySource }

// Awaits says in words what the call waits for.
func (k *Creation) Awaits() string { return "the other members of a new communicator" }

// Awaits says in words what the call waits for.
func (s *Split) Awaits() string { return s.call.Awaits() }
