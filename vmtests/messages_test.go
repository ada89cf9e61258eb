package vmtests

import (
	"errors"
	"fmt"
	"slices"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/rma"
)

// messages sends between all ranks at once, around the limits of frames, and exchanges
// in a ring; then with derived datatypes.
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
	return typedMessages(s)
}

// typedMessages has all ranks transpose a matrix of which each has some rows: one
// sends columns, the others receive rows. Then structs go round, and to all.
func typedMessages(s *self) error {
	const n = 120 // rows of a rank
	columns := n * s.size
	value := func(row, column int) int64 { return int64(row)<<32 + int64(column) }
	mine, transposed, wanted := make([]int64, n*columns), make([]int64, n*columns), make([]int64, n*columns)
	for i := range mine {
		row, column := s.rank*n+i/columns, i%columns
		mine[i], wanted[i] = value(row, column), value(column, row)
	}
	// A rank's part of send is n columns, of recv n entries of each of its rows.
	column := made(datatype.Resized(made(datatype.Vector(n, 1, columns, datatype.Int64)), 0, 8))
	block := made(datatype.Resized(made(datatype.Vector(n, n, columns, datatype.Int64)), 0, n*8))
	if err := s.world.AlltoallBuffer(s.ctx, buffer.Typed(mine, columns, column), buffer.Typed(transposed, s.size, block)); err != nil {
		return err
	}
	if !slices.Equal(transposed, wanted) {
		return errors.New("the transposed matrix is wrong")
	}
	type sample struct {
		Kind  uint8
		Value float64
	}
	next, before := (s.rank+1)%s.size, (s.rank+s.size-1)%s.size
	samples, got := make([]sample, 5000), make([]sample, 5000)
	for i := range samples {
		samples[i] = sample{uint8(s.rank), float64(i)}
	}
	r, err := s.world.IrecvBuffer(s.ctx, buffer.OfStructs(got), before, 1, nil)
	if err != nil {
		return err
	}
	if err := errors.Join(s.world.SendBuffer(s.ctx, buffer.OfStructs(samples), next, 1), r.Wait(s.ctx)); err != nil {
		return err
	}
	for i := range got {
		if want := (sample{uint8(before), float64(i)}); got[i] != want {
			return fmt.Errorf("sample %d of rank %d is %v, want %v", i, before, got[i], want)
		}
	}
	if err := s.world.BcastBuffer(s.ctx, buffer.OfStructs(got), s.size-1); err != nil {
		return err
	}
	if first := got[0]; int(first.Kind) != (s.size-1+s.size-1)%s.size {
		return fmt.Errorf("the samples for all are of kind %d", first.Kind)
	}
	return nil
}
