package rma_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/userspace"
)

// caller is one goroutine of a rank, with a communicator and a window of its own.
type caller struct {
	ctx    context.Context
	node   *rma.Node
	comm   *comm.Comm
	win    *rma.Win
	others []int // all ranks but this one
	next   int   // the rank after this one

	request *comm.Request
	former  []int64
	key     rma.Keyval[int]
	commKey comm.Keyval[int]
}

func (c *caller) at() rma.Location { return rma.At(0).Within(c.ctx) }

// wait waits for a request and keeps it.
func (c *caller) wait(r *comm.Request, err error) error {
	if err != nil {
		return err
	}
	c.request = r
	return r.Wait(c.ctx)
}

// begin opens an epoch with all targets.
func begin(c *caller) error { return c.win.LockAll(c.ctx, 0) }

// receive begins a receive that nobody sends for.
func receive(c *caller) (err error) {
	c.request, err = comm.Irecv(c.ctx, c.comm, make([]int64, 1), c.next, 1, nil)
	return err
}

// only drops what a call returns beside its error.
func only[T any](_ T, err error) error { return err }

// everyCall is all that a program can ask of a job: each with the names of what it calls.
// A local one may succeed after Close.
var everyCall = []struct {
	names string
	local bool
	begin func(c *caller) error
	call  func(c *caller) error
}{
	{names: "Win.Put Win.Flush", begin: begin, call: func(c *caller) error {
		return first(c.win.Put(buffer.Value(new(int64)), c.next, c.at()), c.win.Flush(c.ctx, c.next))
	}},
	{names: "Win.Put of much", begin: begin, call: func(c *caller) error {
		return c.win.Put(buffer.Of(make([]int64, closeElements)), c.next, c.at())
	}},
	{names: "Win.Put of a datatype", begin: begin, call: func(c *caller) error {
		return first(c.win.Put(buffer.Typed(make([]int64, 8), 1, everySecond), c.next, c.at().As(1, everySecond)), c.win.FlushAll(c.ctx))
	}},
	{names: "Win.Put of the own", begin: begin, call: func(c *caller) error {
		return first(c.win.Put(buffer.Value(new(int64)), c.node.Rank(), c.at()), c.win.Flush(c.ctx, c.node.Rank()))
	}},
	{names: "Win.Get Win.FlushLocal", begin: begin, call: func(c *caller) error {
		return first(c.win.Get(buffer.Of(c.former), c.next, c.at()), c.win.FlushLocal(c.ctx, c.next))
	}},
	{names: "Win.Get of a datatype", begin: begin, call: func(c *caller) error {
		return first(c.win.Get(buffer.Typed(c.former[:8], 1, everySecond), c.next, c.at().As(1, everySecond)), c.win.FlushAll(c.ctx))
	}},
	{names: "Win.FlushRanks Win.FlushLocalRanks", begin: begin, call: func(c *caller) error {
		put := func() error { return c.win.Put(buffer.Value(new(int64)), c.next, c.at()) }
		return first(put(), c.win.FlushRanks(c.ctx, c.next, c.comm.Rank()), put(), c.win.FlushLocalRanks(c.ctx, c.next))
	}},
	{names: "Win.Accumulate Win.FlushLocalAll", begin: begin, call: func(c *caller) error {
		return first(c.win.Accumulate(buffer.Value(new(int64)), c.next, c.at(), rma.Sum), c.win.FlushLocalAll(c.ctx))
	}},
	{names: "Win.GetAccumulate Win.FlushAll", begin: begin, call: func(c *caller) error {
		return first(c.win.GetAccumulate(buffer.Of(make([]int64, closeElements)), buffer.Of(c.former), c.next, c.at(), rma.Sum), c.win.FlushAll(c.ctx))
	}},
	{names: "Win.FetchAndOp", begin: begin, call: func(c *caller) error {
		return first(c.win.FetchAndOp(buffer.Value(new(int64)), buffer.Value(&c.former[0]), c.next, c.at(), rma.Sum), c.win.Flush(c.ctx, c.next))
	}},
	{names: "Win.CompareAndSwap", begin: begin, call: func(c *caller) error {
		return first(c.win.CompareAndSwap(buffer.Value(new(int64)), buffer.Value(new(int64)), buffer.Value(&c.former[0]), c.next, c.at()), c.win.Flush(c.ctx, c.next))
	}},
	{names: "Win.Rput Request.Wait", begin: begin, call: func(c *caller) error {
		return c.wait(c.win.Rput(buffer.Value(new(int64)), c.next, c.at()))
	}},
	{names: "Win.Rget", begin: begin, call: func(c *caller) error {
		return c.wait(c.win.Rget(buffer.Of(c.former), c.next, c.at()))
	}},
	{names: "Win.Raccumulate", begin: begin, call: func(c *caller) error {
		return c.wait(c.win.Raccumulate(buffer.Value(new(int64)), c.next, c.at(), rma.Sum))
	}},
	{names: "Win.RgetAccumulate", begin: begin, call: func(c *caller) error {
		return c.wait(c.win.RgetAccumulate(buffer.Value(new(int64)), buffer.Value(&c.former[0]), c.next, c.at(), rma.Sum))
	}},
	{names: "Win.RfetchAndOp", begin: begin, call: func(c *caller) error {
		return c.wait(c.win.RfetchAndOp(buffer.Value(new(int64)), buffer.Value(&c.former[0]), c.next, c.at(), rma.Sum))
	}},
	{names: "Win.RcompareAndSwap", begin: begin, call: func(c *caller) error {
		return c.wait(c.win.RcompareAndSwap(buffer.Value(new(int64)), buffer.Value(new(int64)), buffer.Value(&c.former[0]), c.next, c.at()))
	}},
	{names: "Fetch", begin: begin, call: func(c *caller) error {
		return only(rma.Fetch(c.ctx, c.win, int64(1), c.next, rma.At(0), rma.Sum))
	}},
	{names: "Load", begin: begin, call: func(c *caller) error {
		return only(rma.Load[int64](c.ctx, c.win, c.next, rma.At(0)))
	}},
	{names: "Store WinOf.Store", begin: begin, call: func(c *caller) error {
		return rma.Store(c.ctx, c.win, int64(1), c.next, rma.At(0))
	}},
	{names: "WinOf.Read", begin: begin, call: func(c *caller) error {
		return rma.View[int64](c.win).Read(c.ctx, c.former, c.next, c.at())
	}},
	{names: "WinOf.PutValue WinOf.Update", begin: begin, call: func(c *caller) error {
		w := rma.View[int64](c.win)
		return first(w.PutValue(1, c.next, c.at()), w.Update(1, c.next, c.at(), rma.Sum), w.Flush(c.ctx, c.next))
	}},
	{names: "CompareAndSwap", begin: begin, call: func(c *caller) error {
		_, _, err := rma.CompareAndSwap(c.ctx, c.win, int64(0), int64(1), c.next, rma.At(0))
		return err
	}},
	{names: "Win.Lock Win.Unlock", call: func(c *caller) error {
		return first(c.win.Lock(c.ctx, rma.LockExclusive, c.next, 0), c.win.Unlock(c.ctx, c.next))
	}},
	{names: "Win.Lock of one", call: func(c *caller) error {
		return first(c.win.Lock(c.ctx, rma.LockExclusive, 0, 0), only(rma.Fetch(c.ctx, c.win, int64(1), 0, rma.At(0), rma.Sum)), c.win.Unlock(c.ctx, 0))
	}},
	{names: "Win.LockAll Win.UnlockAll", call: func(c *caller) error {
		return first(c.win.LockAll(c.ctx, 0), only(rma.Fetch(c.ctx, c.win, int64(1), c.next, rma.At(0), rma.Sum)), c.win.UnlockAll(c.ctx))
	}},
	{names: "Win.Fence", call: func(c *caller) error { return c.win.Fence(c.ctx, 0) }},
	{names: "Win.Post Win.Start Win.Complete Win.Wait", call: func(c *caller) error {
		return first(c.win.Post(c.ctx, c.others, 0), c.win.Start(c.ctx, c.others, 0), c.win.Complete(c.ctx), c.win.Wait(c.ctx))
	}},
	{names: "Win.PostGroup Win.StartGroup", call: func(c *caller) error {
		g, err := c.win.Group().Incl(c.others)
		return first(err, c.win.PostGroup(c.ctx, g), c.win.StartGroup(c.ctx, g), c.win.Complete(c.ctx), c.win.Wait(c.ctx))
	}},
	{names: "Win.Test", begin: func(c *caller) error { return c.win.Post(c.ctx, c.others, 0) }, call: func(c *caller) error {
		over, err := c.win.Test()
		if over {
			err = c.win.Post(c.ctx, c.others, 0)
		}
		return err
	}},
	{names: "Win.Notify Win.Put that notifies", begin: begin, call: func(c *caller) error {
		return first(c.win.Put(buffer.Value(new(int64)), c.next, c.at().Notify(0)), c.win.Notify(c.ctx, c.next, 0), c.win.Flush(c.ctx, c.next))
	}},
	{names: "Win.WaitNotified", call: func(c *caller) error { return only(c.win.WaitNotified(c.ctx, 0, 1<<62)) }},
	{names: "Win.WaitAnyNotified", call: func(c *caller) error {
		_, _, err := c.win.WaitAnyNotified(c.ctx, 1<<62, 0)
		return err
	}},
	{names: "Win.Notified Win.ResetNotified", local: true, call: func(c *caller) error {
		_, err := c.win.Notified(0)
		return first(err, only(c.win.ResetNotified(0)))
	}},
	{names: "Win.Sync", begin: begin, call: func(c *caller) error { return c.win.Sync() }},
	{names: "Win.SetInfo", call: func(c *caller) error { return c.win.SetInfo(c.ctx, nil) }},
	{names: "Win.SharedQuery", call: func(c *caller) error { return only(c.win.SharedQuery(c.next)) }},
	{names: "Win.Free", local: true, call: func(c *caller) error { // and the makers of windows
		w, err := rma.Create(c.ctx, c.comm, make([]byte, 8), 8, nil)
		if err != nil {
			return err
		}
		return w.Free(c.ctx)
	}},
	{names: "Allocate", call: func(c *caller) error {
		w, err := rma.Allocate(c.ctx, c.comm, 8, 8, nil)
		if err != nil {
			return err
		}
		return w.Free(c.ctx)
	}},
	{names: "Win.Dup", call: func(c *caller) error {
		w, err := c.win.Dup(c.ctx)
		if err != nil {
			return err
		}
		return w.Free(c.ctx)
	}},
	{names: "CreateDynamic Win.Attach Win.Detach", call: func(c *caller) error {
		w, err := rma.CreateDynamic(c.ctx, c.comm, nil)
		if err != nil {
			return err
		}
		mem := rma.BytesOf(make([]int64, 1))
		return first(w.Attach(mem), w.Detach(mem), w.Free(c.ctx))
	}},
	{names: "Win.Info Win.Name Win.Conflicts Win.Unattended Win.Errhandler Win.SetErrhandler Win.CallErrhandler", local: true, call: func(c *caller) error {
		_, _, _, _, w := c.win.Info(), c.win.Name(), c.win.Unattended(c.next), c.win.Errhandler(), c.win
		w.Conflicts()
		w.SetErrhandler(rma.ErrorsReturn)
		w.CallErrhandler(nil)
		return nil
	}},
	{names: "Win.Memory Win.Comm Win.Group Win.Flavor Win.Model Win.Size Win.DispUnit", local: true, call: func(c *caller) error {
		w := c.win
		_, _, _, _, _, _, _ = w.Memory(), w.Comm(), w.Group(), w.Flavor(), w.Model(), w.Size(), w.DispUnit()
		return nil
	}},
	{names: "Win.SetName Keyval.Set Keyval.Get Keyval.Delete", local: true, call: func(c *caller) error {
		_, _ = c.key.Get(c.win)
		return first(c.win.SetName("a name"), c.key.Set(c.win, 1), c.key.Delete(c.win))
	}},
	{names: "Node.Close Node.MaxPayload Node.Mode Node.Rank Node.Security Node.Size Node.Self Node.Stats Node.World", local: true, call: func(c *caller) error {
		_, _, _, _, _, _ = c.node.MaxPayload(), c.node.Mode(), c.node.Rank(), c.node.Size(), c.node.World(), c.node.Self()
		_, _ = c.node.Stats(), c.node.Security()
		return nil
	}},
	{names: "Comm.Barrier", call: func(c *caller) error { return c.comm.Barrier(c.ctx) }},
	{names: "Bcast Comm.BcastBuffer", call: func(c *caller) error { return comm.Bcast(c.ctx, c.comm, make([]int64, closeElements), 0) }},
	{names: "Comm.BcastBytes", call: func(c *caller) error { return only(c.comm.BcastBytes(c.ctx, make([]byte, 8), 0)) }},
	{names: "Reduce", call: func(c *caller) error {
		return comm.Reduce(c.ctx, c.comm, make([]int64, 1), make([]int64, 1), rma.Sum, 0)
	}},
	{names: "Allreduce", call: func(c *caller) error {
		return comm.Allreduce(c.ctx, c.comm, make([]int64, 1), make([]int64, 1), rma.Sum)
	}},
	{names: "Gather Comm.GatherBuffer", call: func(c *caller) error {
		return comm.Gather(c.ctx, c.comm, make([]int64, 1), make([]int64, c.comm.Size()), 0)
	}},
	{names: "Scatter Comm.ScatterBuffer", call: func(c *caller) error {
		return comm.Scatter(c.ctx, c.comm, make([]int64, c.comm.Size()), make([]int64, 1), 0)
	}},
	{names: "Allgather Comm.AllgatherBuffer", call: func(c *caller) error {
		return comm.Allgather(c.ctx, c.comm, make([]int64, 1), make([]int64, c.comm.Size()))
	}},
	{names: "Comm.AllgatherBytes", call: func(c *caller) error { return only(c.comm.AllgatherBytes(c.ctx, make([]byte, 8))) }},
	{names: "Alltoall Comm.AlltoallBuffer", call: func(c *caller) error {
		return comm.Alltoall(c.ctx, c.comm, make([]int64, c.comm.Size()), make([]int64, c.comm.Size()))
	}},
	{names: "Comm.Dup", call: func(c *caller) error { return only(c.comm.Dup(c.ctx)) }},
	{names: "Comm.Free", local: true, call: func(c *caller) error { // and what makes another
		other, err := c.comm.Split(c.ctx, 0, 0)
		if err != nil {
			return err
		}
		return other.Free()
	}},
	{names: "Comm.Split", call: func(c *caller) error { return only(c.comm.Split(c.ctx, c.comm.Rank()%2, 0)) }},
	{names: "Comm.SplitHost", call: func(c *caller) error { return only(c.comm.SplitHost(c.ctx, 0)) }},
	{names: "Comm.Create", call: func(c *caller) error { return only(c.comm.Create(c.ctx, c.comm.Group())) }},
	{names: "Comm.CreateGroup", call: func(c *caller) error { return only(c.comm.CreateGroup(c.ctx, c.comm.Group(), 0)) }},
	{names: "Send Recv Comm.SendBuffer Comm.RecvBuffer", call: func(c *caller) error {
		if c.comm.Rank()%2 == 0 {
			return comm.Send(c.ctx, c.comm, make([]int64, closeElements), c.comm.Rank()+1, 0)
		}
		return only(comm.Recv(c.ctx, c.comm, make([]int64, closeElements), comm.AnySource, 0))
	}},
	{names: "Isend Irecv Comm.IsendBuffer Comm.IrecvBuffer WaitAll", call: func(c *caller) error {
		s, err := comm.Isend(c.ctx, c.comm, make([]int64, 1), c.next, 0)
		if err != nil {
			return err
		}
		r, err := comm.Irecv(c.ctx, c.comm, make([]int64, 1), comm.AnySource, 0, nil)
		if err != nil {
			return err
		}
		return comm.WaitAll(c.ctx, s, r)
	}},
	{names: "Sendrecv Comm.SendrecvBuffer", call: func(c *caller) error {
		before := (c.comm.Rank() + c.comm.Size() - 1) % c.comm.Size()
		return only(comm.Sendrecv(c.ctx, c.comm, make([]int64, 1), c.next, 0, make([]int64, 1), before, 0))
	}},
	{names: "Comm.Probe", call: func(c *caller) error { return only(c.comm.Probe(c.ctx, c.next, 0)) }},
	{names: "Comm.Iprobe", call: func(c *caller) error {
		_, _, err := c.comm.Iprobe(comm.AnySource, 0)
		return err
	}},
	{names: "WaitAny", begin: receive, local: true, call: func(c *caller) error { return only(comm.WaitAny(c.ctx, c.request)) }},
	{names: "WaitSome", begin: receive, local: true, call: func(c *caller) error { return only(comm.WaitSome(c.ctx, c.request)) }},
	{names: "Request.Test", begin: receive, local: true, call: func(c *caller) error { return only(c.request.Test()) }},
	{names: "TestAll", begin: receive, local: true, call: func(c *caller) error { return only(comm.TestAll(c.request)) }},
	{names: "TestAny TestSome", begin: receive, local: true, call: func(c *caller) error {
		_, _, err := comm.TestAny(c.request)
		return errors.Join(err, only(comm.TestSome(c.request)))
	}},
	{names: "Comm.Failed Comm.Group Comm.Compare Comm.Name Comm.SetName Comm.Rank Comm.Size Comm.WorldRank", local: true, call: func(c *caller) error {
		_, _, _, _, _ = c.comm.Failed(), c.comm.Group(), c.comm.Compare(c.node.World()), c.comm.Name(), c.comm.WorldRank(0)
		c.comm.SetName("a name")
		return nil
	}},
	{names: "Comm.Errhandler Comm.SetErrhandler Comm.CallErrhandler", local: true, call: func(c *caller) error {
		c.comm.SetErrhandler(comm.ErrorsReturn)
		c.comm.CallErrhandler(nil)
		_, _ = c.comm.Errhandler(), c.commKey.Delete(c.comm)
		return nil
	}},
}

const closeElements = 4096 // more than a few frames hold

var everySecond = func() *datatype.Type {
	t, err := datatype.Vector(4, 1, 2, datatype.Int64)
	if err = errors.Join(err, t.Commit()); err != nil {
		panic(err)
	}
	return t
}()

// TestCallsAreListed holds everyCall to the methods that there are.
func TestCallsAreListed(t *testing.T) {
	once(t)
	listed := map[string]bool{}
	for _, c := range everyCall {
		for _, name := range strings.Fields(c.names) {
			listed[name] = true
		}
	}
	others := []string{"Node.Abort", "Node.CloseWith", // which close the node themselves; and those of tests alone
		"Win.Usage", "Node.PanicInEngine", "Node.Hold", "Node.LockWaits", "Node.Silence", "Node.SilenceWaiting"}
	for _, of := range []reflect.Type{reflect.TypeFor[*rma.Win](), reflect.TypeFor[*rma.Node](), reflect.TypeFor[*comm.Comm](), reflect.TypeFor[*comm.Request]()} {
		for i := range of.NumMethod() {
			if name := of.Elem().Name() + "." + of.Method(i).Name; !listed[name] && !slices.Contains(others, name) {
				t.Errorf("%s is not among the calls that meet Close", name)
			}
		}
	}
}

// TestCallsMeetClose closes the ranks of a job, each at a moment of its own, while all
// calls are under way in goroutines. Each call ends, because this rank or another has
// closed, and a later one says so.
func TestCallsMeetClose(t *testing.T) {
	once(t)
	t.Parallel()
	const size = 4
	in := func(transport userspace.Transport, perHost int) func(t *testing.T) *job {
		return func(t *testing.T) *job {
			lab := newLabOf(t, netlab.Config{Ranks: size, RanksPerHost: perHost})
			if transport == userspace.XDPNative {
				if err := lab.AcceptAnswers(); err != nil {
					t.Fatal(err)
				}
			}
			places := placesIn(t, lab, transport)
			for rank := range places {
				places[rank].Host = fmt.Sprint("host ", rank/perHost)
			}
			return joined(t, places, lab.Do, rma.Config{})
		}
	}
	at := func(hosts ...string) func(t *testing.T) *job {
		return func(t *testing.T) *job { return newJobAt(t, hosts, rma.Limits{}) }
	}
	type way struct {
		name string
		join func(t *testing.T) *job
	}
	for _, w := range slices.Concat(testenv.OneOf(
		way{"udp", at("", "", "", "")}, way{"a host", at("a", "a", "a", "a")}, way{"two hosts", at("a", "a", "b", "b")},
	), testenv.OneOf(
		way{"xdp-native", in(userspace.XDPNative, 1)}, way{"xdp-generic", in(userspace.XDPGeneric, 1)},
		way{"xdp-native, two a host", in(userspace.XDPNative, 2)},
	)) {
		t.Run(w.name, func(t *testing.T) {
			j := w.join(t)
			var under sync.WaitGroup
			closed := make([]chan struct{}, size)
			for rank := range closed {
				closed[rank] = make(chan struct{})
			}
			callers := make([][]*caller, size)
			j.each(func(n *rma.Node) error {
				for i := range everyCall {
					c, err := newCaller(j, n)
					if err != nil {
						return fmt.Errorf("%s: %w", everyCall[i].names, err)
					}
					callers[n.Rank()] = append(callers[n.Rank()], c)
				}
				return nil
			})
			for rank, of := range callers {
				for i, c := range of {
					under.Go(func() { c.meetClose(t, i, closed[rank]) })
				}
			}
			j.each(func(n *rma.Node) error {
				time.Sleep(rand.N(20 * time.Millisecond)) // no wait for anything: any moment is one to close at
				defer close(closed[n.Rank()])
				return n.Close()
			})
			under.Wait()
		})
	}
}

// newCaller makes a communicator and a window; all ranks do so at once.
func newCaller(j *job, n *rma.Node) (*caller, error) {
	c := &caller{ctx: j.ctx, node: n, others: others(n, false), next: (n.Rank() + 1) % n.Size(), former: make([]int64, closeElements)}
	var err error
	if c.comm, err = n.World().Dup(j.ctx); err == nil {
		c.win, err = rma.Allocate(j.ctx, c.comm, 8*closeElements, 8, rma.Counters(1))
	}
	return c, err
}

// meetClose repeats a call until it fails or the node is closed, and makes it once more then.
func (c *caller) meetClose(t *testing.T, i int, closed <-chan struct{}) {
	call, err := &everyCall[i], error(nil)
	if call.begin != nil {
		err = call.begin(c)
	}
	for open := true; open && err == nil; {
		select {
		case <-closed:
			open = false
		default:
			err = call.call(c)
		}
	}
	if err != nil && !errors.Is(err, rma.ErrClosed) && !errors.Is(err, rma.ErrProcFailed) {
		t.Errorf("%s beside Close: %v", call.names, err)
	}
	<-closed
	if err := call.call(c); !call.local && !errors.Is(err, rma.ErrClosed) {
		t.Errorf("%s after Close: %v", call.names, err)
	}
}
