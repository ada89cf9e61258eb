package vmtests

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/rma"
)

func init() { programs["pouring"] = pouring }

// pouring: the ranks pass large blocks round a ring of messages, and the victim is
// killed while they do. Its neighbours find out, and tell the others.
func pouring(s *self) error {
	const block = 1 << 20
	out, in := make([]byte, block), make([]byte, block)
	right, left := (s.rank+1)%s.size, (s.rank+s.size-1)%s.size
	if err := s.world.Barrier(s.ctx); err != nil {
		return err
	}
	fmt.Println("ready")
	var err error
	for err == nil {
		if _, err = comm.Sendrecv(s.ctx, s.world, out, right, 1, in, left, 1); err == nil {
			err = s.world.Barrier(s.ctx)
		}
	}
	// A collective that is given up breaks the communicator for those who do not know.
	over, cancel := context.WithCancel(s.ctx)
	cancel()
	_ = s.world.Barrier(over)
	if !errors.Is(err, rma.ErrProcFailed) {
		return fmt.Errorf("got %w, want the failure of a rank", err)
	}
	fmt.Println("noticed")
	return s.listen("leave")
}

func TestKilledMidMessage(t *testing.T) {
	t.Parallel()
	for _, g := range testenv.Cases([]ground{onXDP}, onUDP, onMemory) {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			j := g.job(t, 5, spec{program: "pouring", deadAfter: deadAfter})
			for _, r := range j.ranks {
				j.await(r, "ready")
			}
			time.Sleep(30 * time.Millisecond) // traffic
			j.ranks[victim].kill()
			<-j.ranks[victim].done
			j.ranks = append(j.ranks[:victim:victim], j.ranks[victim+1:]...)
			for _, r := range j.ranks {
				j.await(r, "noticed")
			}
			for _, r := range j.ranks {
				r.tell("leave")
			}
			j.finish()
		})
	}
}
