package perf

import "github.com/xdprma/xdprma/comm"

// messageOnce sends a message there and back, between two ranks.
func messageOnce(r *rank, p Point) pass {
	world, out, in := r.node.World(), r.out[:p.Bytes], r.in[:p.Bytes]
	receive := func() error {
		_, err := comm.Recv(r.ctx, world, in, r.peer(), 0)
		return err
	}
	send := func() error { return comm.Send(r.ctx, world, out, r.peer(), 0) }
	return r.thereAndBack(send, receive)
}

// thereAndBack has rank 0 send and then receive, and the other one receive first.
func (r *rank) thereAndBack(send, receive func() error) pass {
	first, second := send, receive
	if r.id != 0 {
		first, second = receive, send
	}
	return func() error {
		if err := first(); err != nil {
			return err
		}
		return second()
	}
}

// messageWindow sends a window of messages from rank 0 and waits for an answer.
func messageWindow(r *rank, p Point) pass {
	world := r.node.World()
	requests := make([]*comm.Request, p.Window)
	begin := func(i int) (*comm.Request, error) {
		at := i * p.Bytes
		if r.id == 0 {
			return comm.Isend(r.ctx, world, r.out[at:at+p.Bytes], r.peer(), 0)
		}
		return comm.Irecv(r.ctx, world, r.in[at:at+p.Bytes], r.peer(), 0, nil)
	}
	return func() error {
		for i := range requests {
			var err error
			if requests[i], err = begin(i); err != nil {
				return err
			}
		}
		if err := comm.WaitAll(r.ctx, requests...); err != nil {
			return err
		}
		if r.id != 0 {
			return comm.Send(r.ctx, world, []byte(nil), r.peer(), 1)
		}
		_, err := comm.Recv(r.ctx, world, []byte(nil), r.peer(), 1)
		return err
	}
}
