// Package job is a process's part in a job: where it meets the other ranks, and what drives
// its end of the protocol.
package job

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/xdprma/xdprma/internal/device"
	"github.com/xdprma/xdprma/internal/device/poller"
	"github.com/xdprma/xdprma/internal/lastwords"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/protocol/calls/collective"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/siphash"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/userspace"
	"github.com/xdprma/xdprma/window"
)

const (
	defaultExpressWindow = 64 << 20
	defaultJoinTimeout   = 10 * time.Minute
)

// validate returns what is wrong with a place and limits that a program has set.
func (o *Config) validate() error {
	p, l := o.Place, o.Limits
	switch {
	case p.Size < 1 || p.Size > bootstrap.MaxRanks || p.Rank < 0 || p.Rank >= p.Size:
		return fmt.Errorf("rank %d of %d: a job has 1 to %d ranks, counted from 0", p.Rank, p.Size, bootstrap.MaxRanks)
	case p.Rendezvous == "" && p.PMI.FD == 0 && p.Size > 1:
		return fmt.Errorf("a job of %d ranks without a rendezvous", p.Size)
	case l.RxFrames != 0 && (l.RxFrames < userspace.MinRxFrames || l.RxFrames > userspace.MaxFrames):
		return fmt.Errorf("RxFrames %d is not within %d and %d", l.RxFrames, userspace.MinRxFrames, userspace.MaxFrames)
	case l.TxFrames != 0 && (l.TxFrames < userspace.MinTxFrames || l.TxFrames > userspace.MaxFrames):
		return fmt.Errorf("TxFrames %d is not within %d and %d", l.TxFrames, userspace.MinTxFrames, userspace.MaxFrames)
	case l.ExpressWindow < 0:
		return fmt.Errorf("ExpressWindow %d is negative", l.ExpressWindow)
	case l.DeadAfter < 0:
		return fmt.Errorf("DeadAfter %v is negative", l.DeadAfter)
	case l.Spin < 0:
		return fmt.Errorf("the limit Spin %v is negative", l.Spin)
	}
	return nil
}

// Config is how a process takes part in a job.
type Config struct {
	Place  bootstrap.Config
	Limits userspace.Limits
	Logger *slog.Logger   // nil: what Place says
	Exit   func(code int) // what Fatal ends the process with; nil: os.Exit

	OnConflict func(window.Conflict) // told of conflicting accesses, in a goroutine of its own; may be nil
}

// Job is this process's part in a job: the ranks, the network device and the
// engine.
type Job struct {
	Contexts  IDs // message contexts, for communicators whose first rank this is
	WindowIDs IDs // for windows whose first rank this is

	rank, size int
	store      *bootstrap.Member
	poller     *poller.Poller
	windows    *windows.Table
	log        *slog.Logger
	exit       func(code int) // nil: os.Exit
	check      bool
	onConflict func(window.Conflict)
	host       string
	frames     bool
	express    int // bytes of the largest window in memory that the XDP program reaches

	directory directory              // of the other ranks
	absent    absence                // of ranks that calls wait for
	asked     map[int]*bootstrap.End // by rank: the last suspicion that it has to answer; used with the engine's lock held
	verdicts  chan verdict
	joinBy    time.Time // calls that wait for a rank which has not joined by then fail

	tasks    chan task     // for the engine; see offload
	looks    chan struct{} // likewise, of questions that are answered at once
	searches chan struct{} // holds something for each search that goes on; see seek

	mu         sync.Mutex      // guards the beginning and the end of background
	life       context.Context // until Close, for what goes on in the background
	endLife    context.CancelFunc
	background sync.WaitGroup
	ends       sync.WaitGroup // of watchEnds, which goes on until Close has told all peers
	endEnds    context.CancelFunc

	warnLost, warnUnknown sync.Once
	closing               sync.Once
	closeErr              error
}

// Join makes this process a rank of the job that o.Place describes: it opens the
// network device, publishes its address and starts serving. It blocks until the
// rendezvous answers, not for the other ranks, unless Place.PMI is set, and as
// device.Open does. Classes: Arg, also if another process has the rank or the ranks
// were told of different sizes of the job; Unsupported; and Timeout if ctx ends or the
// rendezvous is not reached in time (Place.Patience).
func Join(ctx context.Context, o Config) (*Job, error) {
	if o.Logger == nil {
		o.Logger = o.Place.Logger()
	}
	o.Limits.DeadAfter = cmp.Or(o.Place.DeadAfter, o.Limits.DeadAfter, o.Place.SilenceByDefault)
	if err := o.validate(); err != nil {
		return nil, &mpierr.Error{Op: "join", Class: mpierr.Arg, Rank: mpierr.NoRank, Err: err}
	}
	if o.Place.PMI.FD == 0 { // which all ranks have to come to first
		if err := device.Present(ctx, &o.Place.Config); err != nil {
			o.tellAbsence(ctx, err)
			return nil, joinError(ctx, o.Place.Rank, err)
		}
	}
	o.Place.DeadAfter = o.Limits.DeadAfter
	store, err := openStore(ctx, &o)
	if err != nil {
		return nil, joinError(ctx, o.Place.Rank, err)
	}
	j := &Job{
		rank: o.Place.Rank, size: o.Place.Size, store: store, log: o.Logger, exit: o.Exit,
		check: o.Place.Check, onConflict: o.OnConflict, host: o.Place.Host, frames: o.Place.Frames,
		express:  cmp.Or(o.Limits.ExpressWindow, defaultExpressWindow),
		Contexts: IDs{rank: o.Place.Rank, size: o.Place.Size}, WindowIDs: IDs{rank: o.Place.Rank, size: o.Place.Size},
		windows: &windows.Table{}, looks: make(chan struct{}, looksAtOnce), searches: make(chan struct{}, searchesAtOnce), tasks: make(chan task, mostTasks),
		asked: map[int]*bootstrap.End{}, verdicts: make(chan verdict, mostVerdicts),
	}
	j.joinBy = time.Now().Add(cmp.Or(o.Place.JoinTimeout, defaultJoinTimeout))
	j.life, j.endLife = context.WithCancel(context.Background())
	if err := j.start(ctx, o); err != nil {
		j.endLife()
		j.failToJoin(&o, err)
		return nil, err
	}
	if !o.Place.KeepCaps {
		j.dropCapabilities(&o.Place.Config)
	}
	j.log.Info("joined", j.describe()...)
	return j, nil
}

func (j *Job) start(ctx context.Context, o Config) error {
	earlier, _, err := j.store.FindNow(ctx, j.rank) // what an earlier process has published
	if ended, ok := errors.AsType[*bootstrap.EndedError](err); ok && ended.Incarnation != 0 {
		earlier.Incarnation = ended.Incarnation
	} else if err != nil && !errors.Is(err, bootstrap.ErrLeft) {
		return joinError(ctx, j.rank, err)
	}
	frameJob, helloKey := j.frameJob(&o.Place)
	dev, err := openDevice(ctx, o, j.store.Rendezvous, frameJob, helloKey)
	if err != nil {
		return joinError(ctx, j.rank, err)
	}
	facts := dev.Facts()
	j.checkFamily(facts.Local.Addr())
	credentials, err := j.credentials(ctx, facts.Local)
	if err != nil {
		_ = dev.Close()
		return joinError(ctx, j.rank, err)
	}
	self := peerAddress{addr: facts.Local, incarnation: j.store.Incarnation}
	var tables *express.Tables
	if facts.Tier != nil {
		tables = facts.Tier.Tables()
	}
	eng := engine.New(engine.Config{
		LinkConfig: engine.LinkConfig{
			Rank: j.rank, Size: j.size, Job: frameJob, Incarnation: self.incarnation, Rand: randomID, Slab: facts.Slab,
			RxFrames: o.Limits.RxFrames, Joins: facts.Joins, JoinedRoom: facts.Room, DeadAfter: int64(o.Limits.DeadAfter),
			Address: func(path device.PathID) string { return dev.Peer(path).String() },
			Trouble: func(silent int64) string { return facts.Mode.Trouble(time.Duration(silent)) },
			Published: func(rank int, incarnation uint64, path device.PathID) engine.Verdict {
				return j.directory.judge(rank, incarnation, dev.Peer(path))
			},
			Credentials: credentials, Offload: j.offload, Route: j.route,
			Seek: j.seek,

			Express:     tables,
			Peer:        func(path device.PathID) (peer, local express.Endpoint) { return device.Ends(dev, path) },
			AnswersLost: func(rank int) { go j.answersLost(rank) }, // out of the engine's lock
			Asked:       j.answered,
		},
		Earlier:    earlier.Incarnation,
		Windows:    j.windows,
		OnConflict: func(c window.Conflict) { go j.conflict(c) },
	})
	j.poller = poller.New(dev, eng, poller.Config{Spin: o.Limits.Spin})
	e := j.poller.Lock()
	e.OpenContext(collective.WorldContext, nil)
	j.poller.Unlock()
	j.directory.begin(j.lookUp)
	if err := j.store.Publish(ctx, PlaceOf(self.addr)); err != nil {
		j.directory.close()
		_ = j.poller.Close()
		return joinError(ctx, j.rank, err)
	}
	if err := j.store.Joined(); err != nil {
		j.directory.close()
		_ = j.poller.Close()
		return joinError(ctx, j.rank, err)
	}
	if j.size > 1 {
		var watching context.Context
		watching, j.endEnds = context.WithCancel(context.Background())
		j.ends.Go(func() { j.watchEnds(watching) })
		j.ends.Go(func() { j.tellVerdicts(watching) })
		silence := LongWait
		j.goBackground(func(ctx context.Context) { j.tellWaits(ctx, silence) })
	}
	if credentials != nil {
		j.goBackground(j.compute)
	}
	return nil
}

// describe returns what the log says of this rank when it has joined.
func (j *Job) describe() []any {
	facts := j.poller.Facts()
	return []any{"rank", j.rank, "size", j.size, "mode", facts.Mode.String(), "interface", facts.Interface, "address", facts.Local,
		"queues", facts.Queues, "security", j.Security().String(), "version", version()}
}

// tellAbsence has the rendezvous, if it can be reached soon, tell the others that a rank which
// has not opened it does not join. Where that takes a while, the log says first why: the operator
// need not wait for it.
func (o *Config) tellAbsence(ctx context.Context, why error) {
	ctx, cancel := context.WithTimeout(ctx, byeLimit)
	defer cancel()
	late := time.AfterFunc(absencePatience, func() {
		o.Logger.Error("this rank cannot join the job, and tries to tell the others before it says so", "rank", o.Place.Rank, "error", why)
	})
	defer late.Stop()
	if store, err := bootstrap.Open(ctx, o.Place, o.Logger, nil); err == nil {
		store.Fail(ctx, why)
	}
}

// failToJoin tells the others that this rank does not join.
func (j *Job) failToJoin(o *Config, why error) {
	if o.Place.PMI.FD != 0 { // the launcher may end this process before it can say so itself
		j.log.Error("this rank cannot join the job, and so its launcher is asked to end the job", "rank", j.rank, "error", why)
	}
	if e, ok := errors.AsType[*mpierr.Error](why); ok {
		why = e.Err // the others know of whom and what it speaks
	}
	ctx, cancel := context.WithTimeout(context.Background(), byeLimit)
	defer cancel()
	j.store.Fail(ctx, why)
}

// joinError returns the error of what went wrong while joining.
func joinError(ctx context.Context, rank int, err error) error {
	class := mpierr.Unsupported
	switch end := ctx.Err(); {
	case end != nil && errors.Is(err, end), errors.Is(err, context.DeadlineExceeded):
		class = mpierr.Timeout
	case errors.Is(err, bootstrap.ErrRefused):
		class = mpierr.Arg
	}
	if _, ended := errors.AsType[*bootstrap.EndedError](err); ended {
		class = mpierr.ProcFailed
	}
	return &mpierr.Error{Op: "join", Class: class, Rank: rank, Err: err}
}

func randomID() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// openDevice opens the network device that the process's place asks for, for ranks that
// have met at the address rendezvous. Where nobody has named an interface or address, or on the loopback
// interface, it puts no XDP program there.
func openDevice(ctx context.Context, o Config, rendezvous netip.Addr, job uint64, helloKey *siphash.Key) (device.Device, error) {
	p := o.Place
	c := device.Config{
		Config: p.Config, Near: rendezvous, RxFrames: o.Limits.RxFrames, Slots: o.Limits.TxFrames,
		Patience: o.Limits.DeadAfter, Job: job, HelloKey: helloKey, Logger: o.Logger,
	}
	if !p.NoExpress && p.Size > 1 {
		// Two for each peer, since all may start again at once: what their earlier lives had
		// is of use again only when the device has quiesced that.
		c.Sessions = min(2*p.Size, express.MaxRank)
	}
	if p.Interface == "" && (!p.Address.IsValid() || p.Address.IsLoopback()) && (p.Transport == "" || p.Transport == userspace.Auto) {
		c.Unnamed = true
		if c.AgentPath() == "" && p.Size > 1 {
			o.Logger.Info("the transport auto means UDP here: XDP takes an agent, or an interface by name, or an address of one other than loopback's",
				"rank", p.Rank, "interface", bootstrap.EnvInterface, "address", bootstrap.EnvAddress, "agent", bootstrap.EnvAgent)
		}
	}
	if p.Interface == "" && !p.Address.IsValid() && (c.Unnamed || c.Transport == userspace.UDP || c.Transport == userspace.Shared) {
		var err error
		if c.Address, err = p.LocalAddress(ctx, rendezvous); err != nil {
			return nil, err
		}
	}
	return device.Open(ctx, c)
}

// Closed reports whether Close was called, or the poller was closed.
func (j *Job) Closed() bool { return j.life.Err() != nil || j.poller.Closed() }

// goBackground runs f in a goroutine that Close waits for; f ends with its context.
func (j *Job) goBackground(f func(ctx context.Context)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.life.Err() == nil {
		j.background.Go(func() { f(j.life) })
	}
}

// Rank returns this process's rank in the job.
func (j *Job) Rank() int { return j.rank }

// Incarnation numbers this process among those that have had its rank, one after the other.
func (j *Job) Incarnation() uint64 { return j.store.Incarnation }

// Size returns the number of ranks in the job.
func (j *Job) Size() int { return j.size }

// Poller returns what drives the engine.
func (j *Job) Poller() *poller.Poller { return j.poller }

// Checks reports whether windows are to look for conflicting accesses.
func (j *Job) Checks() bool { return j.check }

// conflict makes conflicting accesses known. There are few: a window lists a
// bounded number, and tells of each once.
func (j *Job) conflict(c window.Conflict) {
	j.log.Warn("conflicting accesses to a window", "error", c.Err())
	if j.onConflict != nil {
		j.onConflict(c)
	}
}

// answersLost says what is wrong where another rank executes requests in XDP and its
// answers do not come.
func (j *Job) answersLost(rank int) {
	j.warnLost.Do(func() {
		j.log.Warn("a rank executes requests in XDP, and its answers get lost: its process answers instead, which is slower; "+
			"unless its log says that its XDP program was taken, give it the transport xdp-generic, whose answers every driver sends (auto does so on a veth); "+
			"or, on a veth, attach an XDP program that passes all frames to the other end, as `xdprma run` does", "rank", rank)
	})
}

// ExpressWindow returns how many bytes a window may have in memory that the XDP program
// reaches.
func (j *Job) ExpressWindow() int { return j.express }

// Windows returns the windows that this process exposes. It is used with the
// engine's lock held.
func (j *Job) Windows() *windows.Table { return j.windows }

// The limits of a graceful close.
const (
	byeLimit    = 2 * time.Second
	lingerLimit = 250 * time.Millisecond
)

const absencePatience = 50 * time.Millisecond // until the log is told of an absence that others are told of

// Close leaves the job: it tells the peers, waits until they have everything
// that this process has sent (at most two seconds), and releases the network.
// Waiters get net.ErrClosed. It is idempotent, and calls at the same time wait for
// each other.
func (j *Job) Close() error { return j.CloseFor("") }

// CloseFor is Close that tells the others why the program has failed, unless why is empty.
func (j *Job) CloseFor(why string) error {
	j.closing.Do(func() { j.closeErr = j.close(why) })
	return j.closeErr
}

func (j *Job) close(why string) error {
	j.mu.Lock()
	j.endLife()
	j.mu.Unlock()
	j.background.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), lingerLimit)
	_ = j.store.Part(ctx, why) // before the others fail for it: the launcher names who was first
	cancel()
	defer j.poller.Guard()
	e := j.poller.Lock()
	e.Bye(why)
	j.poller.Unlock()
	ctx, cancel = context.WithTimeout(context.Background(), byeLimit)
	// A frame that is not acknowledged by then never will be: the peer is gone.
	_ = j.poller.Wait(ctx, &engine.ByeWait{Engine: e})
	cancel()
	// A peer whose last acknowledgement was lost asks again.
	ctx, cancel = context.WithTimeout(context.Background(), lingerLimit)
	_ = j.poller.Wait(ctx, &engine.LeftWait{Engine: e})
	cancel()
	if j.endEnds != nil {
		j.endEnds()
		j.ends.Wait()
	}
	j.directory.close()
	ctx, cancel = context.WithTimeout(context.Background(), lingerLimit)
	_ = j.store.Leave(ctx) // without it, those that have not met this rank find it silent
	cancel()
	err := j.poller.Close()
	if e := j.store.Close(); err == nil {
		err = e
	}
	return err
}

// Fatal logs an error with the given attributes, leaves the job, and ends the process; or it logs, and does
// whatever Config.Exit says.
func (j *Job) Fatal(err error, attributes ...any) {
	j.log.Error("fatal error: the handler of errors is ErrorsAreFatal",
		append([]any{"rank", j.rank, "error", err}, attributes...)...)
	if j.exit == nil {
		_ = j.CloseFor(lastwords.Failed(err)) // there is a worse error to tell
	}
	j.end(1)
}

// Abort logs why, leaves the job and ends the process, or does whatever Config.Exit says.
func (j *Job) Abort(status int, why error) {
	j.log.Error("the program aborts the job", "rank", j.rank, "status", status, "error", why)
	_ = j.CloseFor(lastwords.Aborted(why)) // likewise
	j.end(status)
}

// end ends the process, or does whatever Config.Exit says.
func (j *Job) end(status int) {
	if j.exit == nil {
		os.Exit(status)
	}
	j.exit(status)
}
