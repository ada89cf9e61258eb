package main

import (
	"context"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/rma"
)

// sharedStores is example 11.21: A hands values to B by storing them in memory that
// both have, and messages say whose turn it is. A message synchronises processes, not
// memory: A calls Sync between its store and the message, and B between the message
// and its load. The messages of this library hand over memory too, and on the way
// back, where B's load has to be over, the printed program calls no Sync; here both do
// the same in both directions.
//
// A and B are the first two ranks of each host. A rank that is alone on its host has
// nobody to share memory with, and does nothing.
func sharedStores(ctx context.Context, c *comm.Comm) {
	host, err := c.SplitHost(ctx, 0)
	check(err)
	size := 0
	if host.Rank() == processA {
		size = 8
	}
	win, err := rma.AllocateShared(ctx, host, size, 8, nil)
	check(err)
	shared, err := win.SharedQuery(processA)
	check(err)
	x := &rma.Slice[int64](shared.Memory)[0]
	const turn = 0 // tag

	check(win.LockAll(ctx, rma.ModeNoCheck))
	for i := range int64(rounds) {
		switch {
		case host.Size() == 1:
		case host.Rank() == processA:
			*x = i * i
			check(win.Sync())
			check(comm.Send(ctx, host, []byte{}, processB, turn))
			_, err := comm.Recv(ctx, host, []byte{}, processB, turn)
			check(err)
			check(win.Sync())
		case host.Rank() == processB:
			_, err := comm.Recv(ctx, host, []byte{}, processA, turn)
			check(err)
			check(win.Sync())
			equal(*x, i*i)
			check(win.Sync())
			check(comm.Send(ctx, host, []byte{}, processA, turn))
		}
	}
	check(win.UnlockAll(ctx))
	check(win.Free(ctx))
	check(host.Free())
}
