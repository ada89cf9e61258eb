package main

import (
	"context"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/rma"
)

// pipeline is example 11.22: each rank fetches chunks of data from its right
// neighbour, computes with them and writes them back. As many buffers as there may
// be writes on their way let them overlap with the next chunks; WaitAny finds a
// buffer that is free again. A write that has completed there may not have completed at
// the target; after UnlockAll it has.
func pipeline(ctx context.Context, c *comm.Comm) {
	const chunks, chunkLen, buffers = 12, 32, 3
	win, err := rma.Allocate(ctx, c, chunks*chunkLen*8, 8, nil)
	check(err)
	own := rma.Slice[float64](win.Memory())
	for i := range own {
		own[i] = float64(c.Rank()*len(own) + i)
	}
	check(c.Barrier(ctx))

	var data [buffers][chunkLen]float64
	var puts [buffers]*comm.Request
	target := (c.Rank() + 1) % c.Size()
	check(win.LockAll(ctx, 0))
	for i := range chunks {
		j := i
		if i >= buffers {
			j, err = comm.WaitAny(ctx, puts[:]...)
			check(err)
		}
		chunk, at := buffer.Of(data[j][:]), rma.At(int64(i*chunkLen))
		get, err := win.Rget(chunk, target, at)
		check(err)
		check(get.Wait(ctx))
		for k := range data[j] {
			data[j][k] = -2 * data[j][k]
		}
		puts[j], err = win.Rput(chunk, target, at)
		check(err)
	}
	check(comm.WaitAll(ctx, puts[:]...))
	check(win.UnlockAll(ctx))

	check(c.Barrier(ctx))
	check(win.Lock(ctx, rma.LockShared, c.Rank(), 0))
	for i, v := range own {
		equal(v, -2*float64(c.Rank()*len(own)+i))
	}
	check(win.Unlock(ctx, c.Rank()))
	check(win.Free(ctx))
}
