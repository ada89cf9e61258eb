package agent

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/mpierr"
)

// Server serves ranks. It loads its program when the first one enters.
type Server struct {
	listener *net.UnixListener
	log      *slog.Logger
	serving  sync.WaitGroup // goroutines that accept and serve
	carrying sync.WaitGroup // the porter's

	mu     sync.Mutex // guards what follows
	closed bool
	guests map[*guest]bool
	queue  []*errand // that wait for the porter

	wake   chan struct{} // of capacity 1: tells the porter of the queue
	porter porter
}

// Serve listens at a path for ranks of this process's user and root.
func Serve(path string, log *slog.Logger) (*Server, error) {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("listen for ranks at %s: %w", path, err)
	}
	s := &Server{listener: l, log: cmp.Or(log, slog.New(slog.DiscardHandler)), guests: map[*guest]bool{}, wake: make(chan struct{}, 1)}
	s.porter.log, s.porter.lanes = s.log, map[site]*lane{}
	s.serving.Go(s.accept)
	s.carrying.Go(s.carry)
	return s, nil
}

// acceptPause follows an error, as that too many files are open.
const acceptPause = 100 * time.Millisecond

func (s *Server) accept() {
	for {
		c, err := s.listener.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			s.log.Warn("a rank cannot connect", "error", err)
			time.Sleep(acceptPause)
			continue
		}
		g := &guest{server: s, conn: c}
		s.mu.Lock()
		if s.closed {
			_ = c.Close()
		} else {
			s.guests[g] = true
			s.serving.Go(g.serve)
		}
		s.mu.Unlock()
	}
}

// lookPause is how often the porter looks whether its switches are where they were.
const lookPause = time.Second

// carry gives ranks places, and takes them: all those at once that have come to wait meanwhile. Between, it looks after
// the switches.
func (s *Server) carry() {
	for {
		var look <-chan time.Time
		if len(s.porter.lanes) > 0 {
			look = time.After(lookPause)
		}
		select {
		case <-look:
			s.porter.look()
			continue
		case _, open := <-s.wake:
			if !open {
				return
			}
		}
		s.mu.Lock()
		list := s.queue
		s.queue = nil
		s.mu.Unlock()
		s.porter.carry(list)
		for _, e := range list {
			close(e.done)
		}
	}
}

// hand has the porter carry out an errand.
func (s *Server) hand(e *errand) {
	e.done = make(chan struct{})
	s.mu.Lock()
	s.queue = append(s.queue, e)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	<-e.done
}

// Close ends the service of all ranks. They go on over their sockets.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	for g := range s.guests {
		_ = g.conn.CloseRead() // it closes the connection once its rank has left
	}
	s.mu.Unlock()
	err := s.listener.Close()
	s.serving.Wait()
	close(s.wake)
	s.carrying.Wait()
	return errors.Join(err, s.porter.close())
}

// guest is a connection of a rank.
type guest struct {
	server *Server
	conn   *net.UnixConn
	place  *loader.Member // once it has entered
	lane   *lane          // likewise
}

// serve replies to what the rank asks, until it is gone.
func (g *guest) serve() {
	defer func() {
		if g.place != nil {
			g.server.hand(&errand{leaves: g})
		}
		_ = g.conn.Close()
		g.server.mu.Lock()
		delete(g.server.guests, g)
		g.server.mu.Unlock()
	}()
	if err := belongs(g.conn); err != nil {
		_ = send(g.conn, refusal(mpierr.New("enter", mpierr.Unsupported, mpierr.NoRank, "%w", err)), nil)
		return
	}
	for {
		b, files, err := receive(g.conn)
		if err != nil {
			return
		}
		answer, passed, err := g.answer(b, files)
		closeFiles(files)
		out := put(answer)
		if err != nil {
			out = refusal(err)
		}
		err = send(g.conn, out, passed)
		closeFiles(passed)
		if err != nil {
			return
		}
	}
}

// answer carries out a request. The descriptors that it returns are to be closed, as those of the request are.
func (g *guest) answer(b []byte, files []int) (answer reply, passed []int, err error) {
	answer.ABI = abi
	r, err := parseRequest(b)
	if err != nil {
		return answer, nil, mpierr.New("enter", mpierr.Unsupported, mpierr.NoRank, "%w", err)
	}
	wanted := 0
	if r.Kind == enter || r.Kind == install {
		wanted = 1
	}
	switch {
	case len(files) != wanted:
		return answer, nil, badRequest("a request of kind %d has %d descriptors, and not %d", r.Kind, len(files), wanted)
	case (r.Kind == enter) != (g.place == nil):
		return answer, nil, badRequest("a rank enters first, and once")
	case r.Value > math.MaxInt32:
		return answer, nil, badRequest("%d is too much", r.Value)
	}
	value := int(r.Value)
	switch r.Kind {
	case enter:
		e := &errand{enters: g, socket: files[0], ifindex: int(r.Interface), slots: int(r.Slots)}
		if g.server.hand(e); e.err != nil {
			return answer, nil, e.err
		}
		answer.Mode, answer.Most = uint32(e.mode), uint32(g.place.Chunks().Most())
		for _, m := range g.place.Maps() {
			fd, err := unix.FcntlInt(uintptr(m.FD()), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				return answer, passed, fmt.Errorf("pass %v: %w", m, err)
			}
			passed = append(passed, fd)
		}
	case memory:
		var fd int
		if fd, err = g.place.Chunks().NewChunk(value); err == nil {
			passed = append(passed, fd)
		}
	case install:
		err = g.place.Chunks().Install(value, files[0])
	case remove:
		err = g.place.Chunks().Remove(value)
	case quiesce:
		err = g.place.Chunks().Quiesce()
	default:
		err = badRequest("there is no request of kind %d", r.Kind)
	}
	return answer, passed, err
}

func badRequest(format string, args ...any) error {
	return mpierr.New("enter", mpierr.Arg, mpierr.NoRank, format, args...)
}
