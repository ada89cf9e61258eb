// Package bootstrap is how the ranks of a job find each other: a rendezvous, where they tell
// their places (Member), and the environment variables by which a launcher tells a process its
// place in the job (FromEnvironment).
//
// # Environment
//
// Contract lists the variables. `xdprma run` sets all of it. Under a launcher that speaks
// PMI, such as srun and mpiexec.hydra, nothing has to be set: the launcher's variables
// give rank and size, and rank 0 tells the others over PMI where it serves the rendezvous,
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
// The rendezvous of a job with a key speaks TLS 1.3, and each end shows the other that it has
// the key. It signs a ticket for each rank, which tells the others who has which static key.
// A member of the job that is on the way between another and the rendezvous can take the place
// of either: the key that both show is one that it has too.
//
// Ranks that meet over PMI, and have no key, make a certificate each, and tell its fingerprint
// over PMI. Each shows the rendezvous that it has its own, and is given the job's key there. A
// member cannot take the place of another, or of rank 0. Somebody who changes what PMI carries
// can.
//
// # Connections
//
// The end of a connection is no proof that a process has ended, unless both ends are of one host, whose kernel closes
// it: anybody beside the path who sees a segment can forge another. A client whose connection is lost opens another
// one, shows that it is the same process as before, and makes its calls again (Client). Until then the rendezvous keeps its place. If
// it does not come soon, those who have met the rank ask it by frames, and its process counts as ended if it does not answer the
// rank that serves the rendezvous. Another process is admitted in its place once nobody has heard of it
// for as long as a rank may be silent.
//
// Without a key the rendezvous is neither encrypted nor authenticated beyond the job id in a
// connection's first message. It keeps strangers and other jobs out by mistake
// or guesswork; it does not withstand somebody who reads its connections.
//
// At a unix socket both ends are of one user, or one is root's. A rank speaks for itself
// alone: no message names the rank or the incarnation that it is from.
package bootstrap

import (
	"context"
	"errors"
	"net/netip"
)

// Limits of the rendezvous. A call that exceeds one fails with ErrLimit and changes nothing.
const (
	MaxPlaceBytes = 4 << 10 // length of what a rank publishes
	MaxPending    = 1024    // calls outstanding in one client
	MaxClients    = 4096    // connected clients of a server
)

var (
	// ErrLimit is wrapped by the error of a call that would exceed a limit.
	ErrLimit = errors.New("limit of the rendezvous exceeded")
	// ErrRefused is wrapped by Dial's error when the server turned the client away.
	ErrRefused = errors.New("the rendezvous refused this process")
	// ErrLeft is that a rank has left the job.
	ErrLeft = errors.New("it has left the job")
)

// AbortError is what every call returns once the launcher has aborted the job,
// with the first reason it gave.
type AbortError struct{ Reason string }

// Error returns the reason that was given.
func (e *AbortError) Error() string { return "the job was aborted: " + e.Reason }

// EndedError is that a process with a rank takes no part in the job any more: it has ended,
// without having left the job, or could not join.
type EndedError struct {
	Rank        int
	Incarnation uint64 // of the process; 0: no other will have its rank
	Reason      string
}

// Error returns why that is so.
func (e *EndedError) Error() string { return e.Reason }

// End is news of the end of a rank's process.
type End struct {
	EndedError
	// Suspected is set where nobody knows: the connection of the process was lost without a word of it. Members
	// that have met it ask it themselves. The rank Asker, if there is one, asks it in any case. Each tells by
	// Asked whether it has answered.
	Suspected bool
	Asker     int
	Question  uint32 // which tells this suspicion from others of the process

	number uint32 // among the news
}

// Published is what is known of a rank.
type Published struct {
	Incarnation uint64 // of the process that has last published or left
	Place       []byte // what it has published
	Ticket      []byte // what the rendezvous has signed for the process; nil: nothing
}

// rendezvous is what a rank says to the others, and hears of them. All methods may be called
// concurrently, and those without another word block for one round trip. After Close they
// return an error that wraps net.ErrClosed, and after an abort an *AbortError.
type rendezvous interface {
	// Publish makes known where this rank is: it sets what Find returns.
	Publish(ctx context.Context, place []byte) error
	// Part makes known that this rank begins to leave the job, before the others hear so by frames: the
	// launcher can tell then who was first. If why is not empty, its program has failed, as why says:
	// whoever needs the rank gets an *EndedError, as after Fail.
	Part(ctx context.Context, why string) error
	// Leave makes known that this rank has left the job: from then on, Find fails with
	// ErrLeft, until another process publishes a place of the rank, unless it has parted for a reason.
	Leave(ctx context.Context) error
	// Fail makes known why this process does not join: whoever waits for its rank gets an
	// *EndedError, until another process publishes a place of the rank. If this rank serves the
	// rendezvous, no other process can, and Fail waits a moment for ranks that have not come yet.
	Fail(ctx context.Context, why string) error
	// Sign has the rendezvous sign and keep the ticket of this process, with its static key
	// and the address of its frames, and returns the ticket. From then on it is part of what
	// the others find. Without a job key it fails.
	Sign(ctx context.Context, static [32]byte, at netip.AddrPort) ([]byte, error)
	// find is Member.Find, or without waiting Member.FindNow.
	find(ctx context.Context, rank int, wait bool) (p Published, found bool, err error)
	// End returns the next end of a rank's process, or suspicion of one. It blocks until there is one. There is one
	// call at a time.
	End(ctx context.Context) (*End, error)
	// Asked makes known whether a process has answered that was under suspicion.
	Asked(ctx context.Context, e *End, lives bool) error
	// Waits makes known which ranks this one has waited for for long, in place of what it said before. The log of
	// whoever serves the rendezvous tells from that which rank keeps the others waiting.
	Waits(ctx context.Context, list []Wait) error
	// Attendance returns in words which ranks of the job are there and which are not, and
	// which process was last refused.
	Attendance(ctx context.Context) (string, error)
	// Close ends this rank's part and unblocks its calls. It is idempotent.
	Close() error
}
