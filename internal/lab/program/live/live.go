// Package live carries out the programs of package program with the public API, on
// the ranks of a job.
package live

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/lab/program"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/window"
)

// Run carries out the part of a program that belongs to this process's rank in c,
// which has as many ranks as the program. It creates the windows and frees them.
// Its results are as for program.Run. It blocks until all ranks are done.
func Run(ctx context.Context, c *comm.Comm, p *program.Program) ([]program.Record, error) {
	if c.Size() != p.Ranks {
		return nil, fmt.Errorf("program %d is for %d ranks, and there are %d", p.Seed, p.Ranks, c.Size())
	}
	m := &machine{ctx: ctx, comm: c}
	host, err := c.SplitHost(ctx, 0)
	if err != nil {
		return nil, err
	}
	if m.reversed, err = c.Split(ctx, 0, -c.Rank()); err != nil {
		return nil, err
	}
	for i := range p.Windows {
		// Where memory can be shared, every other window that the library allocates is.
		if err := m.create(&p.Windows[i], host.Size() == c.Size() && (p.Seed+uint64(i))%2 == 0); err != nil {
			return nil, fmt.Errorf("program %d, rank %d: %w", p.Seed, c.Rank(), err)
		}
	}
	records, err := program.Run(p, c.Rank(), m)
	if err != nil {
		return records, err // others may not come as far as Free
	}
	for _, w := range m.windows {
		err = errors.Join(err, w.Free(ctx))
	}
	return records, errors.Join(err, m.reversed.Free(), host.Free())
}

// machine is a rank with its windows.
type machine struct {
	ctx      context.Context
	comm     *comm.Comm
	reversed *comm.Comm
	windows  []win
}

// win is a window and what is known of it at the other ranks.
type win struct {
	*rma.Win
	mem   []byte
	units []int
	bases []int64 // dynamic: the addresses of the ranks' memory
}

func (m *machine) create(d *program.Window, shared bool) (err error) {
	rank := m.comm.Rank()
	size, unit := d.Sizes[rank], d.Units[rank]
	info := rma.Counters(program.NumCounters)
	w := win{mem: make([]byte, size), units: d.Units, bases: make([]int64, m.comm.Size())}
	switch d.Flavor {
	case window.FlavorCreate:
		w.Win, err = rma.Create(m.ctx, m.comm, w.mem, unit, info)
	case window.FlavorAllocate:
		allocate := rma.Allocate
		if shared {
			allocate = rma.AllocateShared
			for _, n := range d.Sizes {
				if n%8 != 0 { // the next rank's elements would not be aligned
					info["alloc_shared_noncontig"] = "true"
				}
			}
		}
		if w.Win, err = allocate(m.ctx, m.comm, size, unit, info); err == nil {
			w.mem = w.Memory()
		}
	case window.FlavorDynamic:
		if w.Win, err = rma.CreateDynamic(m.ctx, m.comm, info); err != nil {
			return err
		}
		from := 0
		for _, to := range d.Cuts[rank] {
			err = errors.Join(err, w.Attach(w.mem[from:to]))
			from = to
		}
		mine := []int64{rma.Address(buffer.Bytes(w.mem))}
		err = errors.Join(err, comm.Allgather(m.ctx, m.comm, mine, w.bases))
	}
	m.windows = append(m.windows, w)
	return err
}

func (m *machine) Begin(int) {}

func (m *machine) Barrier() error { return m.comm.Barrier(m.ctx) }

func (m *machine) Fence(win int, assert window.Assert) error {
	return m.windows[win].Fence(m.ctx, assert)
}

func (m *machine) Post(win int, group []int, assert window.Assert) error {
	return m.windows[win].Post(m.ctx, group, assert)
}

func (m *machine) Start(win int, group []int, assert window.Assert) error {
	return m.windows[win].Start(m.ctx, group, assert)
}

func (m *machine) Complete(win int) error { return m.windows[win].Complete(m.ctx) }

func (m *machine) Wait(win int, testing bool) error {
	w := m.windows[win]
	if !testing {
		return w.Wait(m.ctx)
	}
	for m.ctx.Err() == nil {
		if over, err := w.Test(); over || err != nil {
			return err
		}
		runtime.Gosched()
	}
	return m.ctx.Err()
}

func (m *machine) Lock(win, target int, exclusive bool, assert window.Assert) error {
	kind := rma.LockShared
	if exclusive {
		kind = rma.LockExclusive
	}
	return m.windows[win].Lock(m.ctx, kind, target, assert)
}

func (m *machine) Unlock(win, target int) error { return m.windows[win].Unlock(m.ctx, target) }

func (m *machine) LockAll(win int, assert window.Assert) error {
	return m.windows[win].LockAll(m.ctx, assert)
}

func (m *machine) UnlockAll(win int) error { return m.windows[win].UnlockAll(m.ctx) }

func (m *machine) Flush(win, target int, local bool) error {
	w := m.windows[win]
	switch {
	case target == program.Every && local:
		return w.FlushLocalAll(m.ctx)
	case target == program.Every:
		return w.FlushAll(m.ctx)
	case local:
		return w.FlushLocal(m.ctx, target)
	}
	return w.Flush(m.ctx, target)
}

func (m *machine) Sync(win int) error { return m.windows[win].Sync() }

func (m *machine) Notify(win, target, counter int) error {
	return m.windows[win].Notify(m.ctx, target, counter)
}

func (m *machine) WaitNotified(win, counter int, atLeast uint64) (uint64, error) {
	return m.windows[win].WaitNotified(m.ctx, counter, atLeast)
}

func (m *machine) Memory(win int) []byte { return m.windows[win].mem }

// described returns a side of a call, whose memory is mem.
func described(s *program.Side, mem []byte) buffer.Buffer {
	if s.Layout == nil {
		return buffer.Buffer{}
	}
	return buffer.TypedAt(mem, s.Base, s.Count, s.Type)
}

func (m *machine) Issue(c *program.Call, data, compare, result []byte) (func() error, error) {
	w := m.windows[c.Win]
	target, at := rma.ProcNull, rma.At(0)
	if c.Target != program.Null {
		target = c.Target
		at = rma.At(w.bases[target] + int64(c.Disp/w.units[target]))
	}
	origin, into := described(&c.Origin, data), described(&c.Result, result)
	// In programs the target has what the origin has, gaps included.
	where, gaps := c.Where(), false
	switch where {
	case &c.Origin:
		gaps = !origin.Plain()
	case &c.Result:
		gaps = !into.Plain()
	}
	if c.At.Layout != nil || gaps {
		at = at.As(where.Count, where.Type)
	}
	if c.Notifies {
		at = at.Notify(program.OfCalls)
	}
	other := buffer.Buffer{}
	if compare != nil {
		other = buffer.TypedAt(compare, 0, 1, c.Origin.Type)
	}
	var r *comm.Request
	var err error
	switch c.Code {
	case program.Put:
		if c.Requested {
			r, err = w.Rput(origin, target, at)
		} else {
			err = w.Put(origin, target, at)
		}
	case program.Get:
		if c.Requested {
			r, err = w.Rget(into, target, at)
		} else {
			err = w.Get(into, target, at)
		}
	case program.Accumulate:
		if c.Requested {
			r, err = w.Raccumulate(origin, target, at, c.Op)
		} else {
			err = w.Accumulate(origin, target, at, c.Op)
		}
	case program.GetAccumulate:
		if c.Requested {
			r, err = w.RgetAccumulate(origin, into, target, at, c.Op)
		} else {
			err = w.GetAccumulate(origin, into, target, at, c.Op)
		}
	case program.FetchAndOp:
		if c.Requested {
			r, err = w.RfetchAndOp(origin, into, target, at, c.Op)
		} else {
			err = w.FetchAndOp(origin, into, target, at, c.Op)
		}
	case program.CompareAndSwap:
		if c.Requested {
			r, err = w.RcompareAndSwap(origin, other, into, target, at)
		} else {
			err = w.CompareAndSwap(origin, other, into, target, at)
		}
	}
	if r == nil || err != nil {
		return nil, err
	}
	return func() error { return r.Wait(m.ctx) }, nil
}
