// Package bootstrap is how the ranks of a job find each other: a small
// key-value exchange (Store), and the environment variables by which a launcher
// tells a process its place in the job (FromEnvironment).
//
// # Environment
//
// Contract lists the variables. `xdprma run` sets all of it. Under a launcher that speaks
// PMI, such as srun and mpiexec.hydra, nothing has to be set: the launcher's variables
// give rank and size, and rank 0 tells the others over PMI where it serves the exchange,
// and the job's id (package pmi). torchrun's variables say the same in another way. With
// other launchers the user sets the rendezvous and the job's id.
//
// XDP takes an interface or an address. Where neither is named, auto means UDP, at
// the address from which the rendezvous is reached.
//
// A process with neither rank, size nor rendezvous set is a job of its own, of
// one rank. It is an error if a launcher's variables say that it has started several
// such processes and do not say how they find each other.
//
// # Trust
//
// The exchange is neither encrypted nor authenticated beyond the job id in a
// connection's first message. It keeps strangers and other jobs out by mistake
// or guesswork; it does not withstand somebody who reads its connections. A rank can
// change nothing that other ranks or the launcher have said.
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
	// ErrRefused is wrapped by Dial's error when the server turned the client away, and by
	// that of a call that wanted what is not for its rank.
	ErrRefused = errors.New("the rendezvous refused this process")
)

// AbortError is what every call returns once the launcher has aborted the job,
// with the first reason it gave.
type AbortError struct{ Reason string }

// Error returns the reason that was given.
func (e *AbortError) Error() string { return "the job was aborted: " + e.Reason }

// Key returns the name of a value of a rank. No other rank can put a value there.
func Key(rank int, name string) string { return keysOf(rank) + name }

// keysOf returns what the keys of a rank begin with.
func keysOf(rank int) string { return strconv.Itoa(rank) + "/" }

// Store is the exchange as one rank sees it. All methods may be called
// concurrently. After Close they return an error that wraps net.ErrClosed, and
// after an abort an *AbortError.
type Store interface {
	// Put sets key to a copy of value, replacing what an earlier incarnation of
	// a rank may have put there. It blocks for one round trip. The server refuses a key
	// that is not of this rank (Key), with ErrRefused.
	Put(ctx context.Context, key string, value []byte) error
	// Get returns the newest value of key, blocking until there is one.
	Get(ctx context.Context, key string) ([]byte, error)
	// Look returns the newest value of key, if there is one. It blocks for one round trip.
	Look(ctx context.Context, key string) (value []byte, found bool, err error)
	// Close ends this rank's part and unblocks its calls. It is idempotent.
	Close() error
}

// Fence blocks until all size ranks have called it with the same name. A name
// serves once. Rank 0 collects, so the cost is two small messages a rank.
func Fence(ctx context.Context, s Store, name string, rank, size int) error {
	here := "fence/" + name
	done := Key(0, here)
	if rank != 0 {
		if err := s.Put(ctx, Key(rank, here), nil); err != nil {
			return fmt.Errorf("fence %q: %w", name, err)
		}
		if _, err := s.Get(ctx, done); err != nil {
			return fmt.Errorf("fence %q: %w", name, err)
		}
		return nil
	}
	for r := 1; r < size; r++ {
		if _, err := s.Get(ctx, Key(r, here)); err != nil {
			return fmt.Errorf("fence %q, waiting for rank %d: %w", name, r, err)
		}
	}
	if err := s.Put(ctx, done, nil); err != nil {
		return fmt.Errorf("fence %q: %w", name, err)
	}
	return nil
}
