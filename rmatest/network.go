package rmatest

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/xdprma/xdprma/internal/device/memnet"
)

// Network is what joins the ranks of a job. The zero value delivers every frame at once and in
// order. The fields are set before the job begins; chances are from 0 to 1. Its methods may be
// called from any goroutine while the job runs. It serves one job at a time.
type Network struct {
	Seed        uint64        // the faults follow from it; 0: a new one for each job
	Loss        float64       // the chance that a frame is lost
	Duplication float64       // the chance that a frame arrives twice
	Reordering  float64       // the chance that a frame is held back, for up to a millisecond, so that later ones overtake it
	Delay       time.Duration // the most that a frame takes; each takes a random part of it

	mu  sync.Mutex
	job *trial // which it serves, or nil
}

// ErrDead is the cause with which the context of a rank ends that Network.Kill has ended.
var ErrDead = errors.New("the test has killed this rank")

func (n *Network) set(s *settings) { s.network = n }

func (n *Network) validate() error {
	for name, chance := range map[string]float64{"Loss": n.Loss, "Duplication": n.Duplication, "Reordering": n.Reordering} {
		if !(chance >= 0 && chance <= 1) {
			return fmt.Errorf("rmatest: the network's %s is %v: choose from 0 to 1", name, chance)
		}
	}
	if n.Delay < 0 {
		return fmt.Errorf("rmatest: the network's Delay %v is negative", n.Delay)
	}
	return nil
}

// faulty reports whether the network draws anything from its seed.
func (n *Network) faulty() bool { return n.Loss+n.Duplication+n.Reordering > 0 || n.Delay > 0 }

// serve has the network serve a job, and returns its inside and its seed.
func (n *Network) serve(j *trial) (*memnet.Network, uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.job != nil {
		return nil, 0, errors.New("rmatest: the network serves another job: give each its own")
	}
	n.job = j
	seed := cmp.Or(n.Seed, rand.Uint64(), 1)
	return memnet.New(j.size, memnet.Faults{Seed: seed, Loss: n.Loss, Duplication: n.Duplication, Reordering: n.Reordering, Delay: n.Delay}), seed, nil
}

// leave ends the service.
func (n *Network) leave() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.job = nil
}

// serving returns the job, which has the rank.
func (n *Network) serving(rank int) *trial {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.job == nil {
		panic("rmatest: this network serves no job: give it to Run or Job as an option, and use it while the ranks run")
	}
	if rank < 0 || rank >= n.job.size {
		panic(fmt.Sprintf("rmatest: rank %d of a job of %d", rank, n.job.size))
	}
	return n.job
}

// Stop has a rank stand still until Resume, as a process that is stopped: it neither receives
// nor sends nor answers, and its own calls that need the network wait, whatever becomes of
// their contexts. Other ranks count it as failed after Limits.DeadAfter if it owes an answer. It
// does nothing for a rank that is stopped or killed. All ranks are resumed when the job fails, and
// when nobody else is left.
func (n *Network) Stop(rank int) { n.serving(rank).stop(rank) }

// Resume has a rank go on after Stop. It finds the frames that were sent to it meanwhile, up to
// 4096 of them.
func (n *Network) Resume(rank int) { n.serving(rank).resume(rank) }

// Kill ends a rank, as a process that dies: nothing of it is sent or received any more. The
// others learn of it within some 100 ms, as under a launcher; to have them find out by silence,
// use Stop. The context of the rank's function ends with the cause ErrDead, and its calls
// that need another rank fail. The function is to return then; no failure of a dead rank counts.
func (n *Network) Kill(rank int) { n.serving(rank).kill(rank) }
