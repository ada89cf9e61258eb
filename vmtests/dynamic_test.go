package vmtests

import (
	"encoding/binary"
	"fmt"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/rma"
)

// dynamic builds one stack of nodes that live in the address spaces of all ranks,
// in memory that is attached piece by piece, and has every rank walk over it.
func dynamic(s *self, _ *rma.Win) error {
	const nodes = 20
	win, err := rma.CreateDynamic(s.ctx, s.world, nil)
	if err != nil {
		return err
	}
	// A place is a rank and an address. The head is a place at rank 0; a node is the
	// place of the next one and a value.
	const end = -1
	head := make([]byte, 16)
	rma.Slice[int64](head)[0] = end
	if err := win.Attach(head); err != nil {
		return err
	}
	address := binary.LittleEndian.AppendUint64(nil, uint64(rma.Address(buffer.Bytes(head))))
	addresses, err := s.world.AllgatherBytes(s.ctx, address)
	if err != nil {
		return err
	}
	headAt := rma.At(int64(binary.LittleEndian.Uint64(addresses[0])))
	for i := range nodes {
		mem := make([]byte, 24)
		node := rma.Slice[int64](mem)
		node[2] = int64(s.rank*nodes + i)
		place := []int64{int64(s.rank), rma.Address(buffer.Of(node))}
		err := all(
			func() error { return win.Lock(s.ctx, rma.LockExclusive, 0, 0) },
			func() error { return win.Get(buffer.Of(node[:2]), 0, headAt) },
			func() error { return win.Flush(s.ctx, 0) },
			func() error { return win.Attach(mem) },
			func() error { return win.Put(buffer.Of(place), 0, headAt) },
			func() error { return win.Unlock(s.ctx, 0) },
		)
		if err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
	}
	if err := s.world.Barrier(s.ctx); err != nil {
		return err
	}
	seen := map[int64]bool{}
	node := make([]int64, 3)
	get := func(n int, rank int, at rma.Location) error {
		if err := win.Get(buffer.Of(node[:n]), rank, at); err != nil {
			return err
		}
		return win.Flush(s.ctx, rank)
	}
	if err := win.LockAll(s.ctx, 0); err != nil {
		return err
	}
	steps := 0
	for err = get(2, 0, headAt); err == nil && node[0] != end && steps <= s.size*nodes; steps++ {
		err = get(3, int(node[0]), rma.At(node[1]))
		seen[node[2]] = true
	}
	if err != nil {
		return fmt.Errorf("after %d nodes: %w", steps, err)
	}
	if len(seen) != s.size*nodes || steps != len(seen) {
		return fmt.Errorf("%d nodes in %d steps, want %d", len(seen), steps, s.size*nodes)
	}
	if err := win.UnlockAll(s.ctx); err != nil {
		return err
	}
	if err := s.world.Barrier(s.ctx); err != nil {
		return err
	}
	if err := win.Detach(head); err != nil {
		return err
	}
	return win.Free(s.ctx)
}
