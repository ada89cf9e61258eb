package rmatest

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/xdprma/xdprma/rma"
)

// Option changes how a job runs. A *Network is one.
type Option interface{ set(*settings) }

type setting func(*settings)

func (o setting) set(s *settings) { o(s) }

// Hosts divides the ranks over so many hosts, in blocks of consecutive ranks. Without it each
// rank has a host of its own.
func Hosts(n int) Option { return setting(func(s *settings) { s.hosts = n }) }

// Unchecked turns checking mode off. Then ranks of one host access each other's windows by
// loads and stores, and conflicting accesses are not found.
func Unchecked() Option { return setting(func(s *settings) { s.check = false }) }

// Limits sets the limits of all ranks. Fields that are 0 stand for 256 frames each way, a DeadAfter
// of a minute, since a busy machine may keep a rank waiting for long, and the defaults besides.
func Limits(l rma.Limits) Option { return setting(func(s *settings) { s.limits = l }) }

// Within ends a job that takes longer, with a report of the ranks that hang.
func Within(d time.Duration) Option { return setting(func(s *settings) { s.limit = d }) }

type settings struct {
	hosts   int // 0: one for each rank
	check   bool
	limits  rma.Limits
	limit   time.Duration // 0: none
	network *Network
	logger  func(rank int) *slog.Logger
}

// frames is how many a rank can hold each way: fewer than a process has by default, because
// one process holds those of all ranks.
const frames = 256

func newSettings(size int, options []Option) (settings, error) {
	s := settings{check: true}
	for _, o := range options {
		o.set(&s)
	}
	s.limits.RxFrames, s.limits.TxFrames = cmp.Or(s.limits.RxFrames, frames), cmp.Or(s.limits.TxFrames, frames)
	s.limits.DeadAfter = cmp.Or(s.limits.DeadAfter, time.Minute)
	if s.network == nil {
		s.network = &Network{}
	}
	if s.hosts == 0 {
		s.hosts = size
	}
	switch {
	case size < 1:
		return s, fmt.Errorf("rmatest: a job of %d ranks: it needs one at least", size)
	case s.hosts < 1 || s.hosts > size:
		return s, fmt.Errorf("rmatest: %d hosts for %d ranks: choose from 1 to %d", s.hosts, size, size)
	}
	return s, s.network.validate()
}
