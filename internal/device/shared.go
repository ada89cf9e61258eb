package device

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/device/agent"
	"github.com/xdprma/xdprma/internal/device/tier"
	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/stats"
)

// Shared is a Device of a rank that shares an interface. Its frames leave and arrive by a UDP socket. An agent's
// program, at XDP or tc, sees them before the socket does: it executes small requests to the rank, and hands answers
// over. Whatever becomes of the program, what it does not take arrives at the socket.
type Shared struct {
	UDP
	entry   *agent.Entry
	watches sync.WaitGroup
	end     func() // ends the watches
	answers answers

	// The driver's.
	rung   uint64 // the doorbell, when the socket was looked at last
	looks  int    // at the socket, that are left since something came
	turns  int    // calls of Receive since the socket was looked at
	unrung bool   // the last frames came to the socket unrung

	heard atomic.Bool // the socket has something to read; whoever sleeps says so, too
}

var _ Device = (*Shared)(nil)

// lookEvery is how many calls of Receive pass before one looks at the socket, where the program has not rung. Frames
// come there unrung by other interfaces, as those of ranks of this host, and while the program is away. Once one has,
// unrungEvery calls pass, until the program rings.
const (
	lookEvery   = 1024
	unrungEvery = 4
)

// OpenShared opens a device at config's address, which is required and decides on the interface, and enters the rank with
// the agent at config's AgentPath. It takes no privilege. It blocks until the agent has replied, for up to 10 seconds. The goroutine
// must run in the network namespace that the device is to use.
func OpenShared(ctx context.Context, config Config) (*Shared, error) {
	s := &Shared{UDP: UDP{base: base{job: config.Job, keyed: config.HelloKey != nil}, socket: socket{fd: -1}}}
	if err := s.open(ctx, config); err != nil {
		_ = s.Close() // the first error is the one to tell
		return nil, err
	}
	return s, nil
}

func (s *Shared) open(ctx context.Context, c Config) (err error) {
	path := c.AgentPath()
	if path == "" {
		return openError(mpierr.Arg, errors.New("this host has no agent, which a shared interface takes: root starts one by `xdprma agent`"))
	}
	if err := s.beginNumbered(&c); err != nil {
		return err
	}
	if s.entry, err = agent.Enter(ctx, path, s.fd, s.zone, max(1, c.Sessions)); err != nil {
		return err
	}
	fds := []int{s.fd}
	if c.Sessions > 0 {
		s.facts.Tier, s.facts.Filter = tier.New(s.entry.Tier(), c.Logger), s.entry
		s.answers.ring = s.facts.Tier.Answers()
		fds = []int{s.answers.ring.FD(), s.fd}
	}
	if err := s.sleeper.open(fds...); err != nil {
		return openError(mpierr.Unsupported, err)
	}
	s.facts.Mode = NewMode(sharedMode(s.entry.Mode()))
	watched, end := context.WithCancel(context.WithoutCancel(ctx))
	s.end = end
	s.watches.Go(func() { s.watch(watched, c.Logger) })
	return nil
}

// sharedMode is the mode of ranks whose program runs at how.
func sharedMode(how loader.Mode) string { return "shared-" + how.String() }

// ProbeShared asks the agent at a path whether it would serve a rank at an address of the interface with an index, and returns
// the rank's mode then. The goroutine must run in the interface's network namespace.
func ProbeShared(ctx context.Context, path string, ip netip.Addr, index int) (mode string, err error) {
	var failed error
	for range numberedTries {
		fd, port, err := udpSocket(netip.AddrPortFrom(zoned(ip, index), 0))
		if err != nil {
			return "", err
		}
		_ = unix.Close(fd)
		if fd, _, failed = udpSocket(netip.AddrPortFrom(zoned(ip, index), port)); failed != nil {
			continue
		}
		how, err := agent.Probe(ctx, path, fd, index)
		_ = unix.Close(fd)
		if err != nil {
			return "", err
		}
		return sharedMode(how), nil
	}
	return "", failed
}

// numberedTries is how often another port is chosen where somebody else has taken it meanwhile.
const numberedTries = 8

// beginNumbered is begin with the socket bound to its port by number. If the system chose it, the port would go to
// others when somebody disconnects the socket, and the agent would serve whoever has it then.
func (s *Shared) beginNumbered(c *Config) error {
	if c.Port != 0 {
		return s.begin(c)
	}
	for tries := 1; ; tries++ {
		fd, port, err := udpSocket(netip.AddrPortFrom(c.Address, 0))
		if err != nil {
			return openError(mpierr.Arg, err)
		}
		_ = unix.Close(fd)
		c.Port = port
		if err = s.begin(c); err == nil || tries == numberedTries || !errors.Is(err, unix.EADDRINUSE) {
			return err
		}
		_ = s.link.close()
	}
}

// How long a rank waits before it looks for an agent that is gone, and at most before it looks again.
const (
	returnPause = time.Second
	returnLimit = 15 * time.Second
)

// watch says that the agent is gone, and returns to it when it is there again.
func (s *Shared) watch(ctx context.Context, log *slog.Logger) {
	about := []any{"interface", s.facts.Interface, "mode", s.facts.Mode.opened}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.entry.Lost():
		}
		s.facts.Mode.passes.Store(true)
		log.Warn("the agent that has shared XDP with this rank is gone: the rank goes on over its UDP socket, and executes small requests itself, which is slower, until it is there again",
			about...)
		told := ""
		for pause := returnPause; ; pause = min(2*pause, returnLimit) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			err := s.entry.Return(ctx)
			if err == nil {
				break
			}
			if absent := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED); absent {
				pause = returnPause / 2
			} else if told != err.Error() && ctx.Err() == nil {
				told = err.Error()
				log.Warn("the agent does not take this rank back", append([]any{"error", err}, about...)...)
			}
		}
		s.facts.Mode.passes.Store(false)
		log.Warn("the agent shares XDP with this rank again", about...)
	}
}

// Receive implements Device. It returns at most 64 messages of the socket between two calls of Release.
func (s *Shared) Receive(frames []Frame) int {
	if n := s.answers.take(frames); n > 0 {
		return n
	}
	if !s.isDue() {
		return 0
	}
	s.turns = 0
	s.heard.Store(false) // before the look: what comes after it, a sleeper may have seen already
	n, more := s.read(frames, &s.base)
	switch {
	case n > 0:
		s.unrung = s.looks == 0
		s.looks = emptyLooks
	case s.looks > 0:
		s.looks--
	}
	if more {
		s.heard.Store(true)
		s.sleeper.wake() // the socket does not wake whoever sleeps on it
	}
	return n
}

// isDue reports whether the socket is worth a look.
func (s *Shared) isDue() bool {
	if rung := s.entry.Doorbell().Load(); rung != s.rung {
		s.rung, s.looks, s.unrung = rung, emptyLooks, false
	}
	s.turns++
	return s.looks > 0 || s.heard.Load() || s.turns >= lookEvery || s.unrung && s.turns >= unrungEvery
}

// Release implements Device.
func (s *Shared) Release() {
	s.answers.release()
	s.UDP.Release()
}

// Sleep implements Device. It also ends when frames that found the socket's
// buffer full can be sent.
func (s *Shared) Sleep(d time.Duration) {
	events := int16(unix.POLLIN)
	if s.tx.full.Load() {
		events |= unix.POLLOUT
	}
	if !s.answers.doze() {
		return
	}
	ready := s.sleeper.sleep(d, events)
	s.answers.rise()
	if last := s.sleeper.polls[len(s.sleeper.polls)-1].Revents; ready > 0 && last != 0 {
		if last&unix.POLLIN != 0 {
			s.heard.Store(true)
		}
		if last&unix.POLLERR != 0 {
			s.clearError()
		}
	}
}

// Stats implements Device, as that of UDP does. RxBytes counts answers, too.
func (s *Shared) Stats(to *stats.Device) {
	s.UDP.Stats(to)
	to.RxBytes += s.answers.bytes.Load()
	s.facts.Tier.Stats(to)
	counters, err := s.entry.Counters()
	if err != nil {
		return
	}
	if to.Filter == nil {
		to.Filter = make(map[string]uint64, len(counters))
	}
	for name, n := range counters {
		to.Filter[name] += n
	}
	to.RxFrames += counters[handedOver]
}

// Close implements Device: it waits for what its tier does in the background, and leaves before it closes the socket.
func (s *Shared) Close() error {
	s.close.Do(func() {
		if s.end != nil {
			s.end()
			s.watches.Wait()
		}
		s.facts.Tier.Close()
		errs := []error{s.link.close()}
		if s.entry != nil {
			errs = append(errs, s.entry.Close())
		}
		s.err = errors.Join(append(errs, s.sleeper.close(), s.shut())...)
	})
	return s.err
}
