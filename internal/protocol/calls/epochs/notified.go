package epochs

import (
	"fmt"

	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/mpierr"
)

// NotifiedWait is met when one of a window's own counters has got to a number, or it is known that
// none may ever. Notifications can come without a frame, as poller.Watched has it.
type NotifiedWait struct {
	windows.CounterWait
	Counter int           // that has got there, -1 if none has
	Number  uint64        // of it, then
	Lost    *mpierr.Error // why none may ever

	window *Window
	ranks  []int // of the job, that may notify
	others Others
	waits  bool
}

// Others knows of the ranks that may notify.
type Others interface {
	LostMember(members []int) (err, left *mpierr.Error)
	Expect(ranks []int)
	Unexpect(ranks []int)
}

// Begin begins to wait for counters of w, as Name says, which some ranks of the job may count up.
// It is called with the engine's lock held, as End is.
func (x *NotifiedWait) Begin(w *Window, atLeast uint64, ranks []int, others Others) {
	x.window, x.ranks, x.others, x.Counter = w, ranks, others, -1
	x.Counters, x.AtLeast = w.Own.Counters(), atLeast
	if x.waits = x.Done() < 0; x.waits {
		others.Expect(ranks)
	}
}

// Waits reports whether there is anything to wait for. Then End is to be called.
func (x *NotifiedWait) Waits() bool { return x.waits }

// End ends Begin, if it Waits.
func (x *NotifiedWait) End() {
	if x.waits {
		x.others.Unexpect(x.ranks)
	}
}

// Clear makes the wait one that may begin again. It keeps memory.
func (x *NotifiedWait) Clear() { *x = NotifiedWait{CounterWait: x.CounterWait.Cleared()} }

// Met reports whether the wait is over.
func (x *NotifiedWait) Met() bool {
	if x.Counter >= 0 { // even if it has been reset since
		return true
	}
	if x.Counter = x.Done(); x.Counter >= 0 {
		x.Number = max(x.AtLeast, x.Counters.Read(x.Counter))
		return true
	}
	err, left := x.others.LostMember(x.ranks)
	if x.Lost = err; err == nil {
		x.Lost = left
	}
	return x.Lost != nil || x.window.freed
}

// Changed reports whether the wait is over. The driver asks now and then, because memory changes without a frame.
func (x *NotifiedWait) Changed() bool { return x.Done() >= 0 }

// Awaits says in words what the call waits for. That may come from any rank.
func (x *NotifiedWait) Awaits() (what string, rank int) {
	const shown = 4
	if n := len(x.Which); n > shown {
		return fmt.Sprintf("wait_notified on %s: %d notifications at one of %d counters, %v and others", x.window.Own.Title(), x.AtLeast, n, x.Which[:shown]), mpierr.NoRank
	}
	return fmt.Sprintf("wait_notified on %s: %d notifications at one of the counters %v", x.window.Own.Title(), x.AtLeast, x.Which), mpierr.NoRank
}
