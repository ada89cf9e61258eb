// Package inside lets package rma do with communicators and requests what users of package
// comm cannot. Package comm fills the functions in when it is initialised. Their results and
// arguments of type any are *comm.Comm; it would be a cycle of imports to say so.
package inside

import (
	"context"

	"github.com/xdprma/xdprma/internal/device/poller"
	"github.com/xdprma/xdprma/internal/launch/job"
)

var (
	// World returns the communicator of all ranks of a job, for rma.Join.
	World func(*job.Job) any
	// Self returns a communicator of this rank alone.
	Self func(*job.Job) any
	// Job returns the job that a communicator belongs to.
	Job func(c any) *job.Job
	// ForWindow returns communicators of the same ranks for the messages of the window with the
	// given id. Their messages are apart from those of c, so that the window's collectives and
	// the program's do not disturb each other. The second communicator is for calls that have
	// to work even if a collective on the first was given up. Both are nil if id is none
	// of a window.
	ForWindow func(c any, id uint32) (inner, ending any)
	// Break has c's collectives, and messages that are not there yet, fail at every member, as
	// a failed collective does: this rank has failed with err, of a call on another
	// communicator, and does not use c. It is for calls that make a communicator which others
	// may have then.
	Break func(c, other any, err error)
	// Barrier is Comm.Barrier of c as a part of the call op, whose own handler is told of errors:
	// c's is not.
	Barrier func(ctx context.Context, c any, op string) error
	// Gather is Comm.AllgatherBytes likewise.
	Gather func(ctx context.Context, c any, op string, mine []byte) ([][]byte, error)
	// Request returns, as a *comm.Request, the request of an operation that is over when cond
	// is met. finish, called once and without the engine's lock, returns its error, and must
	// not use the request.
	Request func(p *poller.Poller, cond poller.Condition, finish func() error) any
)
