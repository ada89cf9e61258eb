package rma_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/lab/testjob"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/userspace"
)

// job is the ranks of a job, all in this process.
type job struct {
	t     testing.TB
	ctx   context.Context
	nodes []*rma.Node
}

// newJob joins size ranks over UDP and closes them at the end of the test.
func newJob(t testing.TB, size int, limits rma.Limits) *job {
	t.Helper()
	return newJobOf(t, make([]string, size), rma.Config{Limits: limits})
}

// newJobAt is newJob for ranks that are told the names of their hosts. Where there
// is a name, ranks of one host share memory; where there is none, the rank uses frames.
// The run over host memory leaves such a test out.
func newJobAt(t testing.TB, hosts []string, limits rma.Limits) *job {
	t.Helper()
	once(t)
	return newJobOf(t, hosts, rma.Config{Limits: limits})
}

// newJobOf is newJobAt for tests that the run over host memory repeats.
func newJobOf(t testing.TB, hosts []string, c rma.Config) *job {
	t.Helper()
	size := len(hosts)
	places, stop, err := testjob.Places(size)
	if err != nil {
		t.Fatal(err)
	}
	for rank, name := range hosts {
		if places[rank].Host = name; name != "" {
			places[rank].Frames = false
		}
	}
	t.Cleanup(stop)
	return joined(t, places, func(_ int, join func() error) error { return join() }, c)
}

// newLabJob is newJob for ranks that have an interface each, and a transport over XDP.
func newLabJob(t testing.TB, size int, transport userspace.Transport, limits rma.Limits) *job {
	t.Helper()
	lab := newLab(t, size)
	if transport == userspace.XDPNative {
		if err := lab.AcceptAnswers(); err != nil {
			t.Fatal(err)
		}
	}
	return newJobIn(t, lab, transport, rma.Config{Limits: limits})
}

// newLabJobAt is newLabJob for ranks that are told the names of their hosts. Ranks of one
// host share memory, unless all use frames.
func newLabJobAt(t testing.TB, hosts []string, frames bool, limits rma.Limits) *job {
	t.Helper()
	lab := newLab(t, len(hosts))
	if err := lab.AcceptAnswers(); err != nil {
		t.Fatal(err)
	}
	places := placesIn(t, lab, userspace.XDPNative)
	for rank, name := range hosts {
		places[rank].Host, places[rank].Frames = name, frames
	}
	return joined(t, places, lab.Do, rma.Config{Limits: limits})
}

// newLab makes interfaces for ranks, which do not accept answers from XDP in native mode
// if there are more than two.
func newLab(t testing.TB, size int) *netlab.Lab {
	t.Helper()
	return newLabOf(t, netlab.Config{Ranks: size})
}

// newLabOf is newLab with more to say of the network.
func newLabOf(t testing.TB, c netlab.Config) *netlab.Lab {
	t.Helper()
	once(t)
	return labtest.New(t, c)
}

// newJobIn is newLabJob in a lab that there is.
func newJobIn(t testing.TB, lab *netlab.Lab, transport userspace.Transport, c rma.Config) *job {
	t.Helper()
	return joined(t, placesIn(t, lab, transport), lab.Do, c)
}

// placesIn returns the places of the ranks of a lab, each on a host of its own.
func placesIn(t testing.TB, lab *netlab.Lab, transport userspace.Transport) (places []bootstrap.Config) {
	t.Helper()
	return placesAt(t, lab, transport, testjob.Protected(secure.Sign)) // at the level seal no program would execute anything
}

// placesAt is placesIn for ranks that have the security of first.
func placesAt(t testing.TB, lab *netlab.Lab, transport userspace.Transport, first bootstrap.Config) (places []bootstrap.Config) {
	t.Helper()
	size := lab.Ranks()
	l, err := bootstrap.Listen("unix:" + filepath.Join(t.TempDir(), "rendezvous"))
	if err != nil {
		t.Fatal(err)
	}
	first.Config, first.Size, first.Job = userspace.Config{Transport: transport, Port: bootstrap.DefaultPort}, size, bootstrap.NewJob()
	server, err := bootstrap.Serve(l, &first)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	first.Rendezvous = server.Addr()
	for rank := range size {
		p := first
		p.Rank, p.Interface, p.Address, p.Host = rank, lab.Interface(rank), lab.Addr(rank), fmt.Sprint("host ", rank)
		places = append(places, p)
	}
	return places
}

// joined joins the ranks of places, each in the surroundings that within gives it.
func joined(t testing.TB, places []bootstrap.Config, within func(rank int, join func() error) error, c rma.Config) *job {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Limit)
	t.Cleanup(cancel)
	j := &job{t: t, ctx: ctx, nodes: make([]*rma.Node, len(places))}
	t.Cleanup(j.close)
	for rank := range places {
		if err := within(rank, func() (err error) {
			at := testjob.Config(&places[rank])
			c.Place, c.Network = at.Place, at.Network
			j.nodes[rank], err = rma.Join(ctx, c)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	return j
}

// once leaves a test out of the run over host memory: it is about frames, or says itself
// which of its ranks share memory, so that run would be the same again.
func once(t testing.TB) {
	t.Helper()
	if overHostMemory() {
		testenv.HasRun(t)
	}
}

// close closes all nodes at once, because each waits for the others a while.
func (j *job) close() {
	err := errors.Join(j.outcomes(func(n *rma.Node) error {
		if n == nil {
			return nil
		}
		return n.Close()
	})...)
	if err != nil {
		j.t.Errorf("close: %v", err)
	}
}

// each runs f on all ranks at once, and fails the test with what they return.
func (j *job) each(f func(n *rma.Node) error) {
	j.t.Helper()
	if err := errors.Join(j.outcomes(f)...); err != nil {
		j.t.Fatal(err)
	}
}

// outcomes runs f on all ranks at once and returns what each returned.
func (j *job) outcomes(f func(n *rma.Node) error) []error {
	errs := make([]error, len(j.nodes))
	var all sync.WaitGroup
	for rank, n := range j.nodes {
		all.Go(func() {
			if err := f(n); err != nil {
				errs[rank] = fmt.Errorf("rank %d: %w", rank, err)
			}
		})
	}
	all.Wait()
	return errs
}

// windows creates a window with the given bytes and displacement unit on each rank.
func (j *job) windows(size, dispUnit int) []*rma.Win {
	j.t.Helper()
	return j.windowsOf(func(int) (int, int) { return size, dispUnit }, nil)
}

func (j *job) windowsOf(shape func(rank int) (size, dispUnit int), info rma.Info) []*rma.Win {
	j.t.Helper()
	wins := make([]*rma.Win, len(j.nodes))
	j.each(func(n *rma.Node) (err error) {
		size, unit := shape(n.Rank())
		wins[n.Rank()], err = rma.Allocate(j.ctx, n.World(), size, unit, info)
		return err
	})
	return wins
}

// must fails the test if any of errs is not nil.
func (j *job) must(errs ...error) {
	j.t.Helper()
	if err := errors.Join(errs...); err != nil {
		j.t.Fatal(err)
	}
}

// first returns the first error of errs, and allocates nothing.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func lockShared(w *rma.Win) func() error {
	return func() error { return w.Lock(context.Background(), rma.LockShared, 1, 0) }
}

func unlock(w *rma.Win) func() error {
	return func() error { return w.Unlock(context.Background(), 1) }
}
