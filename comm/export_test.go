package comm

import (
	"context"
	"time"
)

// SetLongWait has ranks wait in silence for another time, until restore is called.
func SetLongWait(d time.Duration) (restore func()) {
	was := longWait
	longWait = d
	return func() { longWait = was }
}

// SplitInSteps is Split, all of one colour, which calls between when this rank has its
// communicator, and the others are still to be told so.
func (c *Comm) SplitInSteps(ctx context.Context, between func()) (*Comm, error) {
	return c.split(ctx, "comm split", 0, 0, func(*Comm) error { between(); return nil })
}
