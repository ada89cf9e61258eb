package epochs

import (
	"fmt"

	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/mpierr"
)

// NotifiedWait is met when one of a window's own counters has got to a number, or it is known that
// none may ever. Notifications can come without a frame, as device.Watched has it.
type NotifiedWait struct {
	windows.CounterWait
	Ranks  []int // of the job, that may notify
	Others Others

	Counter int    // that has got there, -1 if none has
	Number  uint64 // of it, then
	Lost    *mpierr.Error
}

// Others knows of the ranks that may notify.
type Others interface {
	LostMember(members []int) (err, left *mpierr.Error)
	AwaitAnyone(calls int)
}

// Begin makes the wait one for counters of w. It keeps the memory of the wait before.
func (x *NotifiedWait) Begin(w *Window, atLeast uint64, counters, ranks []int, others Others) {
	x.Ranks, x.Others, x.Counter, x.Number, x.Lost = ranks, others, -1, 0, nil
	x.Counters, x.Which, x.AtLeast = w.Own.Counters(), append(x.Which[:0], counters...), atLeast
}

// Met reports whether the wait is over.
func (x *NotifiedWait) Met() bool {
	if x.Counter >= 0 { // even if it has been reset since
		return true
	}
	if x.Counter = x.Done(); x.Counter >= 0 {
		x.Number = max(x.AtLeast, x.Counters.Read(x.Counter))
		return true
	}
	err, left := x.Others.LostMember(x.Ranks)
	if x.Lost = err; err == nil {
		x.Lost = left
	}
	return x.Lost != nil
}

// Changed implements device.Watched.
func (x *NotifiedWait) Changed() bool { return x.Done() >= 0 }

// Arm implements device.Watched.
func (x *NotifiedWait) Arm() {
	x.CounterWait.Arm()
	x.Others.AwaitAnyone(1)
}

// Disarm implements device.Watched.
func (x *NotifiedWait) Disarm() {
	x.CounterWait.Disarm()
	x.Others.AwaitAnyone(-1)
}

// Awaits says in words what the call waits for.
func (x *NotifiedWait) Awaits() string {
	return fmt.Sprintf("wait_notified: %d notifications at one of the counters %v", x.AtLeast, x.Which)
}
