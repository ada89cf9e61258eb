package comm

import (
	"context"
	"time"
)

// LeadHalf is CreateGroup at the first of g, which lets only some go.
func (c *Comm) LeadHalf(ctx context.Context, g Group, some int) error {
	k := c.newCreation(g, 0)
	d := k.newComm(c.job.contextID())
	if err := k.tellAll(ctx, d.context); err != nil {
		return err
	}
	if err := k.gather(ctx, d); err != nil {
		return err
	}
	k.letGo(d, k.world[1:1+some])
	return nil
}

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
