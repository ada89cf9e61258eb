// Package bootstrap is how the ranks of a job find each other: a small
// key-value exchange (Store), and the environment variables by which a launcher
// tells a process its place in the job (FromEnvironment).
//
// # Environment
//
// `xdprma run` sets all of these; with another launcher the user sets the
// rendezvous and the job id, and the launcher's own variables give rank and size.
//
//	XDPRMA_RANK              rank of this process, from 0; else PMI_RANK,
//	                         OMPI_COMM_WORLD_RANK or SLURM_PROCID
//	XDPRMA_SIZE              number of ranks; else PMI_SIZE, OMPI_COMM_WORLD_SIZE,
//	                         SLURM_STEP_NUM_TASKS or SLURM_NTASKS
//	XDPRMA_JOB               1 to 16 hexadecimal digits, not zero, the same for
//	                         all ranks and chosen at random for each job; it is
//	                         also the secret that admits a rank to the exchange
//	XDPRMA_RENDEZVOUS        where the exchange is served: host:port,
//	                         tcp:host:port or unix:/path
//	XDPRMA_RENDEZVOUS_SERVE  0: somebody else serves it, as `xdprma run` does;
//	                         absent or 1: rank 0 serves it
//	XDPRMA_RENDEZVOUS_TIMEOUT  how long to try to reach it, such as 90s or 10m; a
//	                         minute, unless the program sets a limit of its own
//	XDPRMA_TRANSPORT         auto (default), xdp, xdp-native, xdp-generic, udp
//	XDPRMA_INTERFACE         network interface to use; default: that of the address
//	XDPRMA_ADDRESS           IP address to use; default: the first of the interface
//	XDPRMA_PORT              UDP port; 0: any port.
//	                         The default is 7770 on an interface or address that
//	                         is named, other than loopback's, and else 0
//	XDPRMA_QUEUES            at most so many of the interface's queues are used by
//	                         XDP; what arrives by others takes the slower way
//	                         through the kernel. The default is all, up to 64
//	XDPRMA_HOST              a name for the host; ranks that are told the same one
//	                         share memory. The default is that ranks do which
//	                         share the running kernel and the network namespace
//	XDPRMA_FRAMES            1: access windows of ranks of the same host by frames
//	XDPRMA_EXPRESS           off: the XDP program executes no requests; default: on
//	                         too, in this and all ranks of a communicator
//
// XDP takes an interface or an address. Where neither is named, auto means UDP, at
// the address from which the rendezvous is reached.
//
// A process with neither rank, size nor rendezvous set is a job of its own, of
// one rank. It is an error if PMI's, Open MPI's or Slurm's variables say that a
// launcher has started several such processes.
//
// # Trust
//
// The exchange is neither encrypted nor authenticated beyond the job id in a
// connection's first message. It keeps strangers and other jobs out by mistake
// or guesswork; it does not withstand somebody who reads the network.
package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// Limits of a store. A request that exceeds one is refused with ErrLimit and changes
// nothing.
const (
	MaxKeyBytes   = 256       // length of a key; the shortest is 1
	MaxValueBytes = 64 << 10  // length of a value
	MaxKeys       = 1 << 16   // number of keys
	MaxTotalBytes = 256 << 20 // keys and values together
	MaxPending    = 1024      // calls outstanding in one client
	MaxClients    = 4096      // connected clients of a server
)

var (
	// ErrLimit is wrapped by the error of a call that would exceed a limit.
	ErrLimit = errors.New("limit of the rendezvous exceeded")
	// ErrRefused is wrapped by Dial's error when the server turned the client away.
	ErrRefused = errors.New("the rendezvous refused this process")
)

// AbortError is what every call returns once the launcher has aborted the job,
// with the first reason it gave.
type AbortError struct{ Reason string }

// Error returns the reason that was given.
func (e *AbortError) Error() string { return "the job was aborted: " + e.Reason }

// Store is the exchange as one rank sees it. All methods may be called
// concurrently. After Close they return an error that wraps net.ErrClosed, and
// after an abort an *AbortError.
type Store interface {
	// Put sets key to a copy of value, replacing what an earlier incarnation of
	// a rank may have put there. It blocks for one round trip.
	Put(ctx context.Context, key string, value []byte) error
	// Get returns the newest value of key, blocking until there is one.
	Get(ctx context.Context, key string) ([]byte, error)
	// Close ends this rank's part and unblocks its calls. It is idempotent.
	Close() error
}

// Fence blocks until all size ranks have called it with the same name. A name
// serves once. Rank 0 collects, so the cost is two small messages a rank.
func Fence(ctx context.Context, s Store, name string, rank, size int) error {
	done := "fence/" + name + "/done"
	if rank != 0 {
		if err := s.Put(ctx, "fence/"+name+"/"+strconv.Itoa(rank), nil); err != nil {
			return fmt.Errorf("fence %q: %w", name, err)
		}
		if _, err := s.Get(ctx, done); err != nil {
			return fmt.Errorf("fence %q: %w", name, err)
		}
		return nil
	}
	for r := 1; r < size; r++ {
		if _, err := s.Get(ctx, "fence/"+name+"/"+strconv.Itoa(r)); err != nil {
			return fmt.Errorf("fence %q, waiting for rank %d: %w", name, r, err)
		}
	}
	if err := s.Put(ctx, done, nil); err != nil {
		return fmt.Errorf("fence %q: %w", name, err)
	}
	return nil
}
