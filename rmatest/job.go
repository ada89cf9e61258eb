package rmatest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"sync"
	"time"

	"github.com/xdprma/xdprma/internal/device"
	"github.com/xdprma/xdprma/internal/device/memnet"
	"github.com/xdprma/xdprma/internal/inside"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/userspace"
)

// Job runs program as each of size ranks, all in this process, and returns when all have ended.
// It is Run where there is no test, as in an Example. A rank that returns an error, or panics,
// ends the others: their contexts end, and the error of Job is that of this rank. So is that
// of a rank that returns before it has freed its windows. Conflicting accesses and goroutines
// that are left over are errors as well.
func Job(size int, program func(ctx context.Context, node *rma.Node) error, options ...Option) error {
	j, err := newJob(context.Background(), size, options)
	if err != nil {
		return err
	}
	if err = errors.Join(append([]error{j.run(program)}, j.conflicts...)...); err != nil && j.settings.network.faulty() {
		err = fmt.Errorf("%w (%s)", err, j.repeat())
	}
	return err
}

// trial is a job that runs.
type trial struct {
	settings
	size    int
	name    string // of the job among all of this process
	seed    uint64
	network *memnet.Network
	place   rma.Place
	server  *bootstrap.Server
	ctx     context.Context
	cancel  context.CancelFunc
	grace   time.Duration // for ranks to end once ctx has ended
	told    chan struct{} // closed when a conflict is known

	mu        sync.Mutex
	over      bool  // Run or Job has returned, or is about to
	err       error // why the job has failed
	culprit   int   // the rank that failed first
	conflicts []error
	ranks     []*rank
}

// rank is one of a job.
type rank struct {
	number int
	ctx    context.Context
	cancel context.CancelCauseFunc

	// These are guarded by the job's lock.
	state   string    // in words, for a report; empty: it has ended
	node    *rma.Node // nil until it has joined
	stopped bool
	killed  bool
}

const (
	patience = 10 * time.Second // for what needs a moment to end
	noRank   = -1
)

var (
	// errTold is a failure that the test knows already.
	errTold = errors.New("a rank has failed")
	errExit = errors.New("its function has ended its goroutine: call FailNow and Skip of the T that it is given, and not of the test's")
)

func newJob(ctx context.Context, size int, options []Option) (*trial, error) {
	s, err := newSettings(size, options)
	if err != nil {
		return nil, err
	}
	j := &trial{settings: s, size: size, grace: patience, culprit: noRank, told: make(chan struct{})}
	if j.network, j.seed, err = s.network.serve(j); err != nil {
		return nil, err
	}
	secret := bootstrap.Config{Job: bootstrap.NewJob()}
	j.place = rma.Place{Size: size, Job: secret.Job}
	j.name = fmt.Sprintf("%016x", secret.FrameJob())
	// A name that is not in the file system: nothing is left behind, and it takes no folder.
	l, err := net.Listen("unix", "@xdprma-test-"+j.name)
	if err != nil {
		s.network.leave()
		return nil, fmt.Errorf("rmatest: %w", err)
	}
	j.ctx, j.cancel = context.WithCancel(ctx)
	j.labelled(noRank, func() { j.server, err = bootstrap.Serve(l, &secret) })
	if err != nil {
		j.cancel()
		s.network.leave()
		return nil, fmt.Errorf("rmatest: %w", err)
	}
	j.place.Rendezvous = j.server.Addr()
	for number := range size {
		r := &rank{number: number, state: "joins"}
		r.ctx, r.cancel = context.WithCancelCause(j.ctx)
		j.ranks = append(j.ranks, r)
	}
	return j, nil
}

// labelled runs f with labels that the goroutines which it starts inherit. They tell them from
// those of other jobs.
func (j *trial) labelled(rank int, f func()) {
	pprof.Do(j.ctx, pprof.Labels(labelJob, j.name, labelRank, strconv.Itoa(rank)), func(context.Context) { f() })
}

// run runs the ranks and returns why the job has failed.
func (j *trial) run(program func(ctx context.Context, node *rma.Node) error) error {
	var group sync.WaitGroup
	for _, r := range j.ranks {
		group.Go(func() { j.labelled(r.number, func() { j.live(r, program) }) })
	}
	all := make(chan struct{})
	go func() { group.Wait(); close(all) }()
	var limit <-chan time.Time
	if j.limit > 0 {
		timer := time.NewTimer(j.limit)
		defer timer.Stop()
		limit = timer.C
	}
	select {
	case <-all:
	case <-j.ctx.Done():
	case <-limit:
		j.fail(noRank, fmt.Errorf("the ranks have not ended within %v:%s", j.limit.Round(time.Millisecond), j.where()))
	}
	ended := true
	select {
	case <-all:
	case <-time.After(j.grace):
		ended = false
	}
	err := j.server.Close()
	j.cancel()
	j.settings.network.leave()
	left := ""
	if ended {
		left = j.left(patience)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.over = true
	switch {
	case !ended:
		return errors.Join(j.err, fmt.Errorf("ranks have not ended within %v of that:%s", j.grace.Round(time.Millisecond), j.whereLocked()))
	case j.err != nil:
		return j.err
	case left != "":
		return fmt.Errorf("all ranks have closed, and goroutines are left:%s", left)
	}
	return err
}

// live is the life of a rank.
func (j *trial) live(r *rank, program func(ctx context.Context, node *rma.Node) error) {
	defer j.enter(r, "")
	place := j.place
	place.Rank, place.Host = r.number, fmt.Sprint("host ", r.number*j.hosts/j.size)
	network := userspace.Config{Transport: userspace.UDP, Address: memnet.Address(r.number)}
	c := rma.Config{Place: &place, Network: &network, Limits: j.limits, Check: j.check, OnConflict: j.conflict}
	if j.logger != nil {
		c.Logger = j.logger(r.number)
	}
	node, err := rma.Join(device.WithFactory(r.ctx, func(c device.Config) (device.Device, error) { return j.network.Open(r.number, c) }), c)
	if err != nil {
		j.fail(r.number, err)
		return
	}
	j.mu.Lock()
	r.node = node
	j.mu.Unlock()
	j.enter(r, "runs")
	if err = call(r.ctx, node, program); err == nil {
		err = unfreed(node)
	}
	if err != nil {
		j.fail(r.number, err)
	}
	j.enter(r, "closes")
	if err := node.Close(); err != nil {
		j.fail(r.number, err)
	}
	j.server.Ended(r.number, "its function has returned") // for those who have not met it
	if node.Stats().OneSided.Conflicts > 0 {
		<-j.told // by a goroutine of its own, which may be late
	}
}

// call runs a rank's program, in a goroutine that it may end.
func call(ctx context.Context, node *rma.Node, program func(ctx context.Context, node *rma.Node) error) error {
	err := errExit
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				err = panicked(p)
			}
		}()
		err = program(ctx, node)
	}()
	<-done
	return err
}

// panicked returns the error of a panic that goes on.
func panicked(p any) error { return fmt.Errorf("panic: %v\n%s", p, debug.Stack()) }

// unfreed returns an error if a rank that has not closed its node has windows.
func unfreed(node *rma.Node) error {
	count := 0
	job := inside.Job(node.World())
	job.Poller().Lock()
	if !job.Poller().Closed() {
		job.Windows().All(func(*windows.Window) { count++ })
	}
	job.Poller().UnlockQuiet()
	if count > 0 {
		return fmt.Errorf("it has returned and not freed its windows, %d in number: call Win.Free", count)
	}
	return nil
}

// enter notes what a rank does.
func (j *trial) enter(r *rank, state string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r.state = state
	for _, r := range j.ranks {
		if r.state != "" && !r.stopped {
			return
		}
	}
	for _, r := range j.ranks { // nobody else is left to do it
		if r.stopped {
			r.stopped = false
			go j.network.Resume(r.number)
		}
	}
}

// heard reports whether what a rank says counts: that of one that was killed does not, nor
// that of others once one has failed.
func (j *trial) heard(rank int) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.heardLocked(rank)
}

func (j *trial) heardLocked(rank int) bool {
	return !j.over && (j.err == nil || j.culprit == rank) && (rank == noRank || !j.ranks[rank].killed)
}

// fail ends the job because a rank has failed, and reports whether it is the first.
func (j *trial) fail(rank int, err error) (first bool) {
	j.mu.Lock()
	first = j.err == nil && j.heardLocked(rank)
	if first {
		j.err, j.culprit = err, rank
		if rank != noRank && !errors.Is(err, errTold) {
			j.err = fmt.Errorf("rank %d: %w", rank, err)
		}
	}
	j.mu.Unlock()
	if first {
		j.cancel()
		for r := range j.size {
			j.network.Resume(r)
		}
	}
	return first
}

// conflict takes in conflicting accesses.
func (j *trial) conflict(c rma.Conflict) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.conflicts) == 0 {
		close(j.told)
	}
	j.conflicts = append(j.conflicts, c.Err())
}

// stop is Network.Stop.
func (j *trial) stop(rank int) {
	j.network.Stop(rank)
	j.mu.Lock()
	over := j.err != nil || j.ranks[rank].killed
	j.ranks[rank].stopped = !over
	j.mu.Unlock()
	if over {
		j.network.Resume(rank)
	}
}

// resume is Network.Resume.
func (j *trial) resume(rank int) {
	j.mu.Lock()
	j.ranks[rank].stopped = false
	j.mu.Unlock()
	j.network.Resume(rank)
}

// kill is Network.Kill. The rank learns of its death last: it may close its node at once, and
// nobody is to hear of that.
func (j *trial) kill(rank int) {
	j.mu.Lock()
	j.ranks[rank].killed = true
	j.mu.Unlock()
	j.network.Silence(rank, ErrDead)
	j.server.Ended(rank, "the test has killed it")
	j.network.Kill(rank, ErrDead)
	j.ranks[rank].cancel(ErrDead)
}

// repeat says how to have the same faults again.
func (j *trial) repeat() string {
	return fmt.Sprintf("for the same faults, set the network's Seed to %d", j.seed)
}
