package rma_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
	"github.com/xdprma/xdprma/userspace"
)

// idler is a rank that makes calls with nothing to do.
type idler struct {
	ctx  context.Context
	comm *comm.Comm
	win  rma.WinOf[int64]

	none   buffer.Buffer // holds nothing
	target int           // this rank, the next one, or ProcNull
	at     rma.Location
}

// request waits for a request in all ways, each of which finds it over.
func (c *idler) request(r *comm.Request, err error) error {
	if err != nil {
		return err
	}
	for done := false; !done && err == nil; {
		done, err = r.Test()
	}
	return errors.Join(err, r.Wait(c.ctx), comm.WaitAll(c.ctx, r, nil), only(comm.WaitAny(c.ctx, r)), only(comm.TestAll(r, nil)))
}

// withoutData are the calls that access a target, given what holds nothing. Some need an element.
var withoutData = []struct {
	names string
	class rma.Class // of the error
	call  func(c *idler) error
}{
	{names: "Win.Put", call: func(c *idler) error { return c.win.Win.Put(c.none, c.target, c.at) }},
	{names: "Win.Get", call: func(c *idler) error { return c.win.Win.Get(c.none, c.target, c.at) }},
	{names: "Win.Accumulate", call: func(c *idler) error { return c.win.Win.Accumulate(c.none, c.target, c.at, rma.Sum) }},
	{names: "Win.GetAccumulate", call: func(c *idler) error {
		return c.win.Win.GetAccumulate(c.none, c.none, c.target, c.at, rma.Sum)
	}},
	{names: "Win.GetAccumulate with no_op", call: func(c *idler) error {
		return c.win.Win.GetAccumulate(buffer.Buffer{}, c.none, c.target, c.at, rma.NoOp)
	}},
	{names: "Win.FetchAndOp", class: rma.ErrCount, call: func(c *idler) error {
		return c.win.FetchAndOp(c.none, c.none, c.target, c.at, rma.Sum)
	}},
	{names: "Win.CompareAndSwap", class: rma.ErrCount, call: func(c *idler) error {
		return c.win.Win.CompareAndSwap(c.none, c.none, c.none, c.target, c.at)
	}},
	{names: "Win.Rput", call: func(c *idler) error { return c.request(c.win.Rput(c.none, c.target, c.at)) }},
	{names: "Win.Rget", call: func(c *idler) error { return c.request(c.win.Win.Rget(c.none, c.target, c.at)) }},
	{names: "Win.Raccumulate", call: func(c *idler) error {
		return c.request(c.win.Raccumulate(c.none, c.target, c.at, rma.Sum))
	}},
	{names: "Win.RgetAccumulate", call: func(c *idler) error {
		return c.request(c.win.RgetAccumulate(c.none, c.none, c.target, c.at, rma.Sum))
	}},
	{names: "Win.RfetchAndOp", class: rma.ErrCount, call: func(c *idler) error {
		return c.request(c.win.RfetchAndOp(c.none, c.none, c.target, c.at, rma.Sum))
	}},
	{names: "Win.RcompareAndSwap", class: rma.ErrCount, call: func(c *idler) error {
		return c.request(c.win.RcompareAndSwap(c.none, c.none, c.none, c.target, c.at))
	}},
	{names: "WinOf.Put", call: func(c *idler) error { return c.win.Put(nil, c.target, c.at) }},
	{names: "WinOf.Get", call: func(c *idler) error { return c.win.Get([]int64{}, c.target, c.at) }},
	{names: "WinOf.Read", call: func(c *idler) error { return c.win.Read(c.ctx, nil, c.target, c.at) }},
	{names: "WinOf.Accumulate", call: func(c *idler) error { return c.win.Accumulate(nil, c.target, c.at, rma.Sum) }},
	{names: "WinOf.GetAccumulate", call: func(c *idler) error {
		return c.win.GetAccumulate(nil, []int64{}, c.target, c.at, rma.Sum)
	}},
	{names: "WinOf.Rget", call: func(c *idler) error { return c.request(c.win.Rget(nil, c.target, c.at)) }},
	{names: "Win.Notify", call: func(c *idler) error { return c.win.Notify(c.ctx, c.target, 0) }},
}

// nobodyThere are the calls that access one element, for a target that is not there.
var nobodyThere = []struct {
	names string
	call  func(c *idler) error
}{
	{"Fetch WinOf.Fetch", func(c *idler) error {
		return only(rma.Fetch(c.ctx, c.win.Win, int64(7), rma.ProcNull, c.at, rma.Sum))
	}},
	{"Load WinOf.Load", func(c *idler) error { return only(rma.Load[int64](c.ctx, c.win.Win, rma.ProcNull, c.at)) }},
	{"Store WinOf.Store", func(c *idler) error { return rma.Store(c.ctx, c.win.Win, int64(7), rma.ProcNull, c.at) }},
	{"CompareAndSwap WinOf.CompareAndSwap", func(c *idler) error {
		_, _, err := rma.CompareAndSwap(c.ctx, c.win.Win, int64(0), int64(7), rma.ProcNull, c.at)
		return err
	}},
	{"WinOf.PutValue", func(c *idler) error { return c.win.PutValue(7, rma.ProcNull, c.at) }},
	{"WinOf.Update", func(c *idler) error { return c.win.Update(7, rma.ProcNull, c.at, rma.Sum) }},
	{"WinOf.Read", func(c *idler) error { return c.win.Read(c.ctx, []int64{7}, rma.ProcNull, c.at) }},
}

// withoutRanks are synchronisation and collective calls with nothing to do. All ranks make them, in an epoch of
// LockAll unless bare is set.
var withoutRanks = []struct {
	names string
	bare  bool
	call  func(c *idler) error
}{
	{names: "Win.Flush Win.FlushLocal Win.FlushAll Win.FlushLocalAll", call: func(c *idler) error {
		w := c.win
		return first(w.Flush(c.ctx, c.target), w.FlushLocal(c.ctx, c.target), w.FlushAll(c.ctx), w.FlushLocalAll(c.ctx))
	}},
	{names: "Win.FlushRanks Win.FlushLocalRanks", call: func(c *idler) error {
		w := c.win
		return first(w.FlushRanks(c.ctx), w.FlushLocalRanks(c.ctx), w.FlushRanks(c.ctx, c.target), w.FlushLocalRanks(c.ctx, c.target))
	}},
	{bare: true, names: "Win.LockAll Win.UnlockAll Win.Lock Win.Unlock Win.Sync", call: func(c *idler) error {
		w := c.win
		return first(w.Lock(c.ctx, rma.LockExclusive, c.comm.Rank()), w.Unlock(c.ctx, c.comm.Rank()),
			w.LockAll(c.ctx, rma.ModeNoCheck), w.UnlockAll(c.ctx), w.Sync())
	}},
	{bare: true, names: "Win.Post Win.Start Win.Complete Win.Wait Win.Test", call: func(c *idler) error {
		w := c.win
		return first(w.Post(c.ctx, nil), w.Start(c.ctx, nil), w.Complete(c.ctx), w.Wait(c.ctx),
			w.Post(c.ctx, []int{rma.ProcNull}), w.Start(c.ctx, []int{rma.ProcNull}), w.Put(nil, rma.ProcNull, c.at),
			w.Complete(c.ctx), only(w.Test()))
	}},
	{bare: true, names: "Win.PostGroup Win.StartGroup", call: func(c *idler) error {
		w, empty := c.win, comm.Group{}
		return first(w.PostGroup(c.ctx, empty), w.StartGroup(c.ctx, empty), w.Complete(c.ctx), w.Wait(c.ctx))
	}},
	{bare: true, names: "Win.Fence", call: func(c *idler) error {
		w := c.win
		return first(w.Fence(c.ctx), w.Put(nil, c.target, c.at), w.Get(nil, c.target, c.at),
			w.Fence(c.ctx, rma.ModeNoSucceed))
	}},
	{names: "Win.WaitNotified Win.WaitAnyNotified", call: func(c *idler) error {
		_, _, err := c.win.WaitAnyNotified(c.ctx, 0, 0)
		return first(only(c.win.WaitNotified(c.ctx, 0, 0)), err)
	}},
	{names: "Win.SetInfo", call: func(c *idler) error { return first(c.win.SetInfo(c.ctx, nil), c.win.SetInfo(c.ctx, rma.Info{})) }},
	{names: "Win.Dup WinOf.Dup", call: func(c *idler) error {
		w, err := c.win.Dup(c.ctx)
		if err != nil {
			return err
		}
		return first(w.LockAll(c.ctx), w.Read(c.ctx, nil, c.target, c.at), w.UnlockAll(c.ctx), w.Free(c.ctx))
	}},
	{names: "Allocate AllocateOf", call: func(c *idler) error { return c.window(rma.AllocateOf[int64](c.ctx, c.comm, 0)) }},
	{names: "Create CreateOf", call: func(c *idler) error { return c.window(rma.CreateOf[int64](c.ctx, c.comm, nil)) }},
	{names: "AllocateShared AllocateSharedOf", call: func(c *idler) error {
		here, err := c.comm.SplitHost(c.ctx, 0)
		if err != nil {
			return err
		}
		alone := *c
		alone.comm, alone.target = here, here.Rank()
		return first(alone.window(rma.AllocateSharedOf[int64](c.ctx, here, 0)), here.Free())
	}},
	{names: "CreateDynamic Win.Attach Win.Detach", call: func(c *idler) error {
		w, err := rma.CreateDynamic(c.ctx, c.comm, nil, nil)
		if err != nil {
			return err
		}
		return errors.Join(first(w.Attach(nil), w.Detach(nil), w.Attach([]byte{}), w.Detach([]byte{})), c.window(rma.View[int64](w), nil))
	}},
	{names: "Comm.Barrier Comm.BcastBuffer Bcast Comm.BcastBytes", call: func(c *idler) error {
		return first(c.comm.Barrier(c.ctx), comm.Bcast[int64](c.ctx, c.comm, nil, 0), c.comm.BcastBuffer(c.ctx, buffer.Of[int64](nil), 0),
			only(c.comm.BcastBytes(c.ctx, nil, 0)))
	}},
	{names: "Reduce Allreduce", call: func(c *idler) error {
		return first(comm.Reduce[int64](c.ctx, c.comm, nil, nil, rma.Sum, 0), comm.Allreduce(c.ctx, c.comm, []int64{}, nil, rma.Sum))
	}},
	{names: "Gather Comm.GatherBuffer Allgather Comm.AllgatherBuffer Comm.AllgatherBytes", call: func(c *idler) error {
		none := buffer.Of[int64](nil)
		return first(comm.Gather[int64](c.ctx, c.comm, nil, nil, 0), c.comm.GatherBuffer(c.ctx, none, none, 0),
			comm.Allgather[int64](c.ctx, c.comm, nil, nil), c.comm.AllgatherBuffer(c.ctx, none, none), only(c.comm.AllgatherBytes(c.ctx, nil)))
	}},
	{names: "Scatter Comm.ScatterBuffer Alltoall Comm.AlltoallBuffer", call: func(c *idler) error {
		none := buffer.Of[int64](nil)
		return first(comm.Scatter[int64](c.ctx, c.comm, nil, nil, 0), c.comm.ScatterBuffer(c.ctx, none, none, 0),
			comm.Alltoall[int64](c.ctx, c.comm, nil, nil), c.comm.AlltoallBuffer(c.ctx, none, none))
	}},
	{names: "Send Comm.SendBuffer Recv Comm.RecvBuffer Isend Irecv Comm.IsendBuffer Comm.IrecvBuffer", call: func(c *idler) error {
		none, to, from := buffer.Of[int64](nil), c.target, c.target
		if to != rma.ProcNull && to != c.comm.Rank() {
			from = (c.comm.Rank() + c.comm.Size() - 1) % c.comm.Size()
		}
		r, err := c.comm.IrecvBuffer(c.ctx, none, from, 1, nil)
		r2, err2 := comm.Irecv[int64](c.ctx, c.comm, nil, from, 1, nil)
		if err := first(err, err2, comm.Send[int64](c.ctx, c.comm, nil, to, 1), c.comm.SendBuffer(c.ctx, none, to, 1), c.request(r, nil), c.request(r2, nil)); err != nil {
			return err
		}
		s, err := c.comm.IsendBuffer(c.ctx, none, to, 1)
		s2, err2 := comm.Isend[int64](c.ctx, c.comm, nil, to, 1)
		return first(err, err2, only(comm.Recv[int64](c.ctx, c.comm, nil, from, 1)), only(c.comm.RecvBuffer(c.ctx, none, from, 1)), c.request(s, nil), c.request(s2, nil))
	}},
	{names: "Sendrecv Comm.SendrecvBuffer", call: func(c *idler) error {
		none, self := buffer.Of[int64](nil), c.comm.Rank()
		return first(only(comm.Sendrecv[int64, int64](c.ctx, c.comm, nil, self, 2, nil, self, 2)),
			only(c.comm.SendrecvBuffer(c.ctx, none, rma.ProcNull, 2, none, rma.ProcNull, 2)))
	}},
	{names: "Comm.Probe Comm.Iprobe", call: func(c *idler) error {
		_, _, err := c.comm.Iprobe(rma.ProcNull, 3)
		return first(only(c.comm.Probe(c.ctx, rma.ProcNull, 3)), err)
	}},
	{names: "WaitAll WaitAny WaitSome TestAll TestAny TestSome Request.Wait Request.Test", call: func(c *idler) error {
		var none *comm.Request
		for _, list := range [][]*comm.Request{nil, {}, {nil}, {none, nil}} {
			_, _, err := comm.TestAny(list...)
			if err := first(comm.WaitAll(c.ctx, list...), only(comm.WaitAny(c.ctx, list...)), only(comm.WaitSome(c.ctx, list...)),
				only(comm.TestAll(list...)), err, only(comm.TestSome(list...))); err != nil {
				return err
			}
		}
		return first(none.Wait(c.ctx), only(none.Test()))
	}},
	{names: "Comm.Create Comm.Split", call: func(c *idler) error {
		nobody, err := c.comm.Create(c.ctx, comm.Group{})
		if nobody != nil || err != nil {
			return fmt.Errorf("a communicator of nobody: %v, %w", nobody, err)
		}
		return nil
	}},
	{names: "Comm.CreateGroup", call: func(c *idler) error {
		just, err := c.comm.Group().Incl([]int{c.comm.Rank()})
		if err != nil {
			return err
		}
		alone, err := c.comm.CreateGroup(c.ctx, just, 0)
		if err != nil {
			return err
		}
		return first(alone.Barrier(c.ctx), comm.Bcast[int64](c.ctx, alone, nil, 0), alone.Free())
	}},
}

// window has a window without memory accessed, and freed.
func (c *idler) window(w rma.WinOf[int64], err error) error {
	if err != nil {
		return err
	}
	return first(w.LockAll(c.ctx), w.Put(nil, c.target, rma.At(0)), w.Read(c.ctx, nil, c.target, rma.At(0)), w.Accumulate(nil, c.target, rma.At(0), rma.Sum),
		w.UnlockAll(c.ctx), w.Free(c.ctx))
}

// hintsOfNothing are those with which calls take other ways.
var hintsOfNothing = []rma.Info{nil, rma.Ordered(), rma.CheckConflicts(), rma.Unordered()}

// idle makes every call with nothing to do, each on windows to which nobody has issued anything, with every
// hint, or with the next one of them each time. It is the program of one rank.
func idle(ctx context.Context, n *rma.Node, allHints bool) error {
	c := &idler{ctx: ctx, comm: n.World()}
	turn := 0
	each := func(name string, bare bool, counts int, call func() error) error {
		hints := hintsOfNothing
		if turn++; !allHints {
			hints = hints[turn%len(hints):][:1]
		}
		for _, info := range hints {
			if err := c.each(info, bare, counts, call); err != nil {
				return fmt.Errorf("%s, hints %v: %w", name, info, err)
			}
		}
		return nil
	}
	nones := map[string]buffer.Buffer{"nil": buffer.Of[int64](nil), "empty": buffer.Of([]int64{}), "typed": buffer.Typed[int64](nil, 0, everySecond)}
	places := map[string]rma.Location{"the end": rma.At(4), "typed": rma.At(0).As(0, datatype.Int64), "in time": rma.At(0).Within(ctx), "notified": rma.At(0).Notify(0)}
	for _, one := range withoutData {
		for _, kind := range []string{"nil", "empty", "typed"} {
			for _, place := range []string{"the end", "typed", "in time", "notified"} {
				if !strings.HasPrefix(one.names, "Win.") && kind != "nil" || one.names == "Win.Notify" && (kind != "nil" || place != "in time") {
					continue
				}
				c.none, c.at = nones[kind], places[place]
				counts := 0
				if one.class == 0 && place == "notified" || one.names == "Win.Notify" {
					counts = 1
				}
				err := each(fmt.Sprintf("%s of %s at %s", one.names, kind, place), false, counts, func() error {
					err := one.call(c)
					if one.class != 0 && errors.Is(err, one.class) || one.class != 0 && kind == "typed" && errors.Is(err, rma.ErrType) {
						return nil
					}
					return err
				})
				if err != nil {
					return err
				}
			}
		}
	}
	c.at = rma.At(0)
	for _, one := range nobodyThere {
		if err := each(one.names, false, 0, func() error { return one.call(c) }); err != nil {
			return err
		}
	}
	for _, one := range withoutRanks {
		if err := each(one.names, one.bare, 0, func() error { return one.call(c) }); err != nil {
			return err
		}
	}
	return nil
}

// each makes a call for each kind of target on a new window. Then its memory is as it was, the counter has
// counted the given number of notifications for each target, and the window can be used.
func (c *idler) each(info rma.Info, bare bool, counts int, call func() error) (err error) {
	if c.win, err = rma.AllocateOf[int64](c.ctx, c.comm, 4, rma.Counters(1), info); err != nil {
		return err
	}
	next := (c.comm.Rank() + 1) % c.comm.Size()
	if !bare {
		if err := c.win.LockAll(c.ctx); err != nil {
			return err
		}
	}
	for _, c.target = range []int{next, c.comm.Rank(), rma.ProcNull} {
		if err := call(); err != nil {
			return fmt.Errorf("target %d: %w", c.target, err)
		}
	}
	if bare {
		if err := first(c.comm.Barrier(c.ctx), c.win.LockAll(c.ctx)); err != nil {
			return err
		}
	}
	if err := first(c.win.Update(1, next, rma.At(0), rma.Sum), c.win.FlushAll(c.ctx), c.win.UnlockAll(c.ctx), c.comm.Barrier(c.ctx)); err != nil {
		return err
	}
	n, err := c.win.Notified(0)
	if got := c.win.Memory(); err == nil && (!slices.Equal(got, []int64{1, 0, 0, 0}) || n != uint64(2*counts)) {
		err = fmt.Errorf("the memory is %v and the counter %d, want 1 in the first element and %d", got, n, 2*counts)
	}
	return errors.Join(err, c.win.Free(c.ctx))
}

// TestNothingToDo makes every call with nothing to do: it returns, and leaves all as it was.
func TestNothingToDo(t *testing.T) {
	once(t)
	t.Parallel()
	for name, options := range map[string][]rmatest.Option{
		"checked": nil, "unchecked": {rmatest.Unchecked()}, "a host": {rmatest.Unchecked(), rmatest.Hosts(1)},
		"lossy": {rmatest.Unchecked(), &rmatest.Network{Loss: 0.05, Duplication: 0.02, Reordering: 0.05}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := rmatest.Job(2, func(ctx context.Context, n *rma.Node) error { return idle(ctx, n, name != "lossy") }, options...); err != nil {
				t.Error(err)
			}
		})
	}
	type transport struct {
		name string
		join func(t *testing.T) *job
	}
	for _, over := range append(testenv.OneOf(
		transport{"xdp-native", func(t *testing.T) *job { return newLabJob(t, 2, userspace.XDPNative, rma.Limits{}) }},
		transport{"xdp-generic", func(t *testing.T) *job { return newLabJob(t, 2, userspace.XDPGeneric, rma.Limits{}) }},
	), transport{"udp", func(t *testing.T) *job { return newJobAt(t, []string{"", ""}, rma.Limits{}) }},
		transport{"host memory", func(t *testing.T) *job { return newJobAt(t, []string{"a", "a"}, rma.Limits{}) }},
	) {
		t.Run(over.name, func(t *testing.T) {
			j := over.join(t)
			j.each(func(n *rma.Node) error { return idle(j.ctx, n, false) })
		})
	}
}

// onlyLocal are exported calls with such parameters that concern this process alone.
var onlyLocal = []string{"BytesOf", "BytesOfStructs", "Slice", "StructSlice", "Address", "Win.Unattended"}

// TestCallsWithNothingAreListed holds the lists to the exported calls that are given data, a target, ranks or requests.
func TestCallsWithNothingAreListed(t *testing.T) {
	once(t)
	listed := slices.Clone(onlyLocal)
	add := func(names string) { listed = append(listed, strings.Fields(names)...) }
	for _, one := range withoutData {
		add(one.names)
	}
	for _, one := range nobodyThere {
		add(one.names)
	}
	for _, one := range withoutRanks {
		add(one.names)
	}
	calls := slices.Concat(callsGiven(t, "."), callsGiven(t, "../comm"))
	if len(calls) < 60 {
		t.Errorf("only %d calls were found", len(calls))
	}
	for _, name := range calls {
		if !slices.Contains(listed, name) {
			t.Errorf("%s is not among the calls that are made with nothing to do", name)
		}
	}
}

// callsGiven returns the exported calls of a package that are given data, a target, ranks or requests.
func callsGiven(t *testing.T, dir string) (names []string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() || !slices.ContainsFunc(f.Type.Params.List, isGiven) {
				continue
			}
			name := f.Name.Name
			if f.Recv != nil {
				of := strings.TrimPrefix(types.ExprString(f.Recv.List[0].Type), "*")
				if of, _, _ = strings.Cut(of, "["); !slices.Contains([]string{"Win", "WinOf", "Comm"}, of) {
					continue
				}
				name = of + "." + name
			}
			names = append(names, name)
		}
	}
	return names
}

// isGiven reports whether parameters are data, a target, ranks or requests.
func isGiven(f *ast.Field) bool {
	switch of := types.ExprString(f.Type); of {
	case "int":
		return slices.ContainsFunc(f.Names, func(n *ast.Ident) bool { return slices.Contains([]string{"target", "source", "dest", "root"}, n.Name) })
	case "...Info", "...Assert":
		return false
	default:
		return strings.HasPrefix(of, "[]") || strings.HasPrefix(of, "...") || strings.HasSuffix(of, "Group") || of == "buffer.Buffer"
	}
}
