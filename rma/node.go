// Package rma is one-sided communication for Go programs: the RMA chapter of MPI
// over ordinary Ethernet. Ranks expose windows of memory; others put, get and
// atomically update them while the owner computes or sleeps.
//
// A program joins a job, creates windows on its world communicator, and works on
// other ranks' windows inside epochs:
//
//	node, err := rma.Join(ctx, rma.Config{})
//	win, err := rma.AllocateOf[int64](ctx, node.World(), 100) // numbers of each rank
//	win.Lock(ctx, rma.LockShared, target)
//	win.Put(values, target, rma.At(7))
//	former, err := win.Fetch(ctx, 1, target, rma.At(0), rma.Sum)
//	win.Unlock(ctx, target)
//
// Such a WinOf is a window of elements of one type: its memory is a slice, and displacements
// count elements. Beneath it is a Win, with the calls of the standard as they are there, for
// any memory: with buffers (package buffer), displacement units and derived datatypes (package
// datatype). Both do the same things.
//
// Collectives and messages between ranks, such as Barrier, Allreduce and Send, are in
// package comm, for the communicator that World returns; derived datatypes are in
// package datatype.
//
// # Terms
//
// The origin is the rank that calls, the target the rank whose window is
// accessed. A displacement counts in units that the target chose for its window.
// Sections named in comments are those of the standard's one-sided chapter.
//
// # Blocking
//
// Communication calls (Put, Get, Accumulate and so on) do not wait for the
// target to do anything, nor for a connection to it: they return once the data has
// been taken over, which can mean waiting for room when much is in flight;
// Location.Within bounds that. Origin buffers of Put and
// Accumulate may be reused at once; result buffers belong to the library until
// a synchronisation call. Calls that take a context block; when the context
// ends, they fail with class ErrTimeout and its error, and the operations stay
// outstanding.
//
// # Errors
//
// Errors are *Error and carry a class of the standard; errors.Is(err, ErrRange) finds
// it. The call itself refuses a mistake that the origin can see (range, epoch,
// datatype). The next call that completes the operation returns a mistake that only the
// target can see. A rank that dies, or is not heard of within Limits.DeadAfter, gives
// ErrProcFailed; nothing hangs. A window's error handler is told of every error before
// the call returns it; by default it does nothing.
//
// # Concurrency
//
// All calls may be made by any goroutine. Synchronisation calls on one window and
// target by several goroutines at once have one epoch between them; with a duplicate each (Win.Dup)
// they have epochs of their own.
// docs/memory-model.md says which loads see which updates, and what is atomic.
package rma

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/inside"
	"github.com/xdprma/xdprma/internal/lastwords"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/launch/job"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/stats"
	"github.com/xdprma/xdprma/userspace"
)

// Config says how a process joins its job. The zero value takes everything from
// the environment that `xdprma run`, or another launcher, has set.
type Config struct {
	Place   *Place            // rank, size and rendezvous; nil: from the environment, as is Network then
	Network *userspace.Config // transport, interface and address; nil: beside a Place, the library chooses
	Limits  Limits            // sizes and times; zero fields mean their defaults
	Logger  *slog.Logger      // what the rank tells; nil: as XDPRMA_LOG says, by default the warnings and errors by slog.Default()
	Exit    func(code int)    // what ErrorsAreFatal ends the process with; nil: os.Exit

	// Check has all windows look for conflicting accesses, as the environment
	// variable XDPRMA_CHECK=1 does, and the info key xdprma_check_conflicts for one
	// window. It is for finding mistakes: it costs a round trip a flush, and time.
	Check bool
	// OnConflict is told of conflicting accesses to this rank's windows, besides the
	// log, in a goroutine of its own. It may be nil.
	OnConflict func(Conflict)
}

// Place is a process's place in its job, for programs that start their ranks by themselves.
// docs/several-hosts.md has the variables that say the same, and what each means to the ranks.
type Place struct {
	Rank, Size  int           // of Size ranks, counted from 0
	Job         uint64        // random, the same for all ranks, never 0 in a job of several, and told to nobody else
	Rendezvous  string        // host:port, tcp:host:port or unix:/path; empty for a job of one rank
	Serve       bool          // whether this rank serves the rendezvous; one does, or something else than a rank
	Patience    time.Duration // how long to try to reach the rendezvous, where a context sets no limit; 0: a minute
	JoinTimeout time.Duration // how long ranks have to join, counted from the joining of this one; 0: ten minutes
	Host        string        // names the host, for ranks that share memory; empty: the kernel and network namespace do
	Frames      bool          // access windows of ranks of the same host by frames too, in this and all ranks of a communicator
	NoExpress   bool          // this rank's XDP program executes no requests of others

	// KeepCapabilities has the process keep all its capabilities. By default a rank that has set
	// up XDP takes those from all threads of the process that it does not need any more, for good:
	// CAP_NET_ADMIN, CAP_NET_RAW and CAP_PERFMON, and CAP_BPF where its XDP program executes no
	// requests. Set it where a process has several ranks, or joins again, or has other use for them.
	KeepCapabilities bool

	// Key is the job's: 32 random bytes that its ranks have and nobody else. With it the
	// rendezvous and all handshakes are authenticated, and frames as Security says. Nil: nothing
	// is.
	Key *[32]byte
	// Security is "none", "sign", for frames that are authenticated, "seal", for frames that are
	// encrypted, too, or "auto", the default: it is that of whoever serves the rendezvous, and there
	// sign if other hosts can reach it. Sign and seal take a Key.
	Security string
}

// Limits bounds what a process keeps for the others. Fields that are 0 have a default: RxFrames and
// TxFrames, the frames that it has room for, 1024; DeadAfter, 5 s of silence after which a rank has failed;
// Spin, 200 µs of polling before a call sleeps; and ExpressWindow, 64 MiB, up to which windows are within
// reach of the XDP program. userspace.Limits says more of each.
type Limits = userspace.Limits

// place returns where c, which Join was given, puts this process.
func (c *Config) place() (place bootstrap.Config, err error) {
	if p := c.Place; p != nil {
		place = bootstrap.Config{Rank: p.Rank, Size: p.Size, Job: p.Job, Rendezvous: p.Rendezvous, Serve: p.Serve,
			Patience: p.Patience, JoinTimeout: p.JoinTimeout, Host: p.Host, Frames: p.Frames, NoExpress: p.NoExpress, KeepCaps: p.KeepCapabilities,
			Key: (*secure.Key)(p.Key), Security: bootstrap.Security(p.Security)}
		err = place.Read(bootstrap.EnvCheck, bootstrap.EnvCheck, os.Getenv(bootstrap.EnvCheck)) // a process is checked from outside, whoever places it
	} else {
		place, err = bootstrap.FromEnvironment()
	}
	place.Check = place.Check || c.Check
	if c.Network != nil {
		place.Config = *c.Network
	}
	return place, err
}

// Node is this process as a rank of a job.
type Node struct {
	job   *job.Job
	world *comm.Comm
	self  *comm.Comm
}

// Join makes this process a rank of its job (MPI_Init). It opens the network and
// starts to serve peers in the background; it waits for the rendezvous, not for
// the other ranks, and up to ten seconds, with a warning, for a queue of the interface that
// another AF_XDP socket has. A rank that has set up XDP gives up capabilities that it does not need
// any more; see Place.KeepCapabilities. A process that no launcher has started is a job of one rank.
// Errors name what is missing and what to do. Classes: ErrUnsupported; ErrArg, also if
// another process has the rank, or other ranks were told of another size of the job; and
// ErrTimeout if ctx ends or the rendezvous is not reached within a minute, or the time
// that XDPRMA_RENDEZVOUS_TIMEOUT says.
func Join(ctx context.Context, c Config) (*Node, error) {
	place, err := c.place()
	if err != nil {
		return nil, newError("join", ErrArg, NoRank, "%w", err)
	}
	j, err := job.Join(ctx, job.Config{Place: place, Limits: c.Limits, Logger: c.Logger, Exit: c.Exit, OnConflict: c.OnConflict})
	if err != nil {
		return nil, err
	}
	return &Node{job: j, world: inside.World(j).(*comm.Comm), self: inside.Self(j).(*comm.Comm)}, nil
}

// World returns the communicator of all ranks of the job (MPI_COMM_WORLD).
func (n *Node) World() *comm.Comm { return n.world }

// Self returns the communicator of this rank alone (MPI_COMM_SELF).
func (n *Node) Self() *comm.Comm { return n.self }

// Rank returns this process's rank in the job, from 0.
func (n *Node) Rank() int { return n.job.Rank() }

// Size returns the number of ranks in the job.
func (n *Node) Size() int { return n.job.Size() }

// Mode names how frames travel: "xdp-native-zerocopy", "xdp-native",
// "xdp-generic" or "udp"; "shared-tcx" or "shared-generic" where the rank shares its interface, and its frames travel
// by a UDP socket but for small calls. It becomes "udp" if XDP turns out not to deliver frames, or the agent is gone.
// It is "udp" while another tool has taken the rank's XDP program from the interface.
func (n *Node) Mode() string { return n.job.Poller().Facts().Mode.String() }

// Security says how far the frames of the job are protected: "none", by a checksum against damage
// alone; "sign", each by a tag that only its sender can make; or "seal", where their data is encrypted,
// too. docs/wire.md has them all.
func (n *Node) Security() string { return n.job.Security().String() }

// MaxPayload returns the bytes of one frame's payload that this rank sends at most.
func (n *Node) MaxPayload() int { return n.job.Poller().Facts().Slab.MaxPayload }

// Stats returns what this rank has counted since Join. It does not block.
func (n *Node) Stats() stats.Stats {
	defer n.job.Poller().Guard()
	e := n.job.Poller().Lock()
	protocol := e.Stats
	n.job.Poller().UnlockQuiet()
	s := stats.Stats{Link: protocol.Link, Messages: protocol.Counts, OneSided: protocol.Totals,
		Faults: map[string]uint64{}, Device: n.job.Poller().Stats()}
	for fault, times := range protocol.Faults {
		if times > 0 {
			s.Faults[wire.Fault(fault).String()] = times
		}
	}
	return s
}

// Abort ends the process with a status, after it has logged why and left the job (MPI_Abort):
// the other ranks' calls that need this one fail with ErrProcFailed and say why, and a launcher such as
// xdprma run ends them. It returns only where Config.Exit does. It may take as long as Close.
func (n *Node) Abort(status int, why error) { n.job.Abort(status, why) }

// Close leaves the job (MPI_Finalize): peers hear of it, what is outstanding is
// delivered or given up within two seconds, and the network is released. Calls
// that wait return net.ErrClosed. Windows that were not freed can no longer be
// used. Close is idempotent. Where it is deferred and the goroutine panics, the others hear that the
// program has failed, as by CloseWith, and the panic goes on.
func (n *Node) Close() error {
	if p := recover(); p != nil {
		_ = n.CloseWith(fmt.Errorf("panic: %v", p))
		panic(p)
	}
	return n.job.Close()
}

// CloseWith is Close for a program that ends with err, and returns err joined with the error of Close.
// Unless err is nil, the program has failed: the other ranks' calls that need this one fail with
// ErrProcFailed and say why, and xdprma run does. Print err before: other launchers end this process when a rank that
// has failed for it ends first. Abort does both.
func (n *Node) CloseWith(err error) error {
	return errors.Join(err, n.job.CloseFor(lastwords.Failed(err)))
}
