package vmtests

import (
	"fmt"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/rma"
)

// messages sends between all ranks at once, around the limits of frames, and exchanges
// in a ring.
func messages(s *self, _ *rma.Win) error {
	var pending []*comm.Request
	sizes := []int{0, 8, 1024, 1025, 1368, 1369, 8192, 8193, 100 << 10, 1 << 20}
	for _, n := range sizes {
		for i := range s.size {
			to := (s.rank + i) % s.size
			data := make([]byte, n)
			fill(data, s.rank, to, n)
			r, err := comm.Isend(s.ctx, s.world, data, to, n)
			if err != nil {
				return err
			}
			pending = append(pending, r)
		}
	}
	data, want := make([]byte, largest), make([]byte, largest)
	next := make([]int, s.size) // of each rank's sizes
	for range len(sizes) * s.size {
		status, err := comm.Recv(s.ctx, s.world, data, comm.AnySource, comm.AnyTag)
		if err != nil {
			return err
		}
		n := sizes[next[status.Source]]
		next[status.Source]++
		if status.Count != n || status.Tag != n {
			return fmt.Errorf("%d bytes with tag %d of rank %d, want %d", status.Count, status.Tag, status.Source, n)
		}
		fill(want[:n], status.Source, s.rank, n)
		if err := same(data[:n], want[:n]); err != nil {
			return fmt.Errorf("%d bytes of rank %d: %w", n, status.Source, err)
		}
	}
	if err := comm.WaitAll(s.ctx, pending...); err != nil {
		return err
	}
	to, from := (s.rank+1)%s.size, (s.rank+s.size-1)%s.size
	for round := range 10 {
		out := make([]byte, largest>>round)
		fill(out, s.rank, to, round)
		got, err := comm.Sendrecv(s.ctx, s.world, out, to, round, data, from, round)
		if err != nil || got.Count != len(out) {
			return fmt.Errorf("round %d of the ring: %v, %w", round, got, err)
		}
		fill(want[:len(out)], from, s.rank, round)
		if err := same(data[:len(out)], want[:len(out)]); err != nil {
			return fmt.Errorf("round %d of the ring: %w", round, err)
		}
	}
	return nil
}
