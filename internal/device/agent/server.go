package agent

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/mpierr"
)

// Config says where a Server is, and what for whom. Zero means what a field states.
type Config struct {
	Path       string      // of its Unix socket
	Mode       os.FileMode // of the socket: whoever may write to it may enter; 0: 0600
	Group      int         // of the socket; 0: that of this process
	Interfaces []string    // at which ranks may be, by their names in the ranks' network namespaces; empty: at all
	Native     []string    // of this process's network namespace: the switch is in the driver, as long as the server is there
	Ports      [2]uint16   // the first and the last that ranks may have; {0, 0}: any
	Limits     Limits
	Logger     *slog.Logger // silent by default
}

// maxRanks is how many ranks a Server has room for in each mode.
const maxRanks = 1024

// Server serves ranks. It loads a program when the first rank enters that it is for.
type Server struct {
	listener *net.UnixListener
	log      *slog.Logger
	accounts *accounts
	serving  sync.WaitGroup // goroutines that accept and serve
	carrying sync.WaitGroup // the porter's

	mu     sync.Mutex // guards what follows
	closed bool
	guests map[*guest]bool
	queue  []*errand // that wait for the porter

	strangers map[uint32]int // of each user: guests that have not entered

	looks [64]sync.Mutex // of some users each: one at a time looks where its socket is

	ending chan struct{} // is closed by Close
	wake   chan struct{} // of capacity 1: tells the porter of the queue
	porter porter
}

// Serve listens for ranks, and puts the switches of native interfaces there.
func Serve(c Config) (*Server, error) {
	s := &Server{
		log: cmp.Or(c.Logger, slog.New(slog.DiscardHandler)), guests: map[*guest]bool{}, strangers: map[uint32]int{}, wake: make(chan struct{}, 1),
		ending: make(chan struct{}), accounts: &accounts{limits: c.Limits, each: map[owner]*account{}},
	}
	s.porter = porter{log: s.log, config: c, accounts: s.accounts, executors: map[loader.Mode]*loader.Executor{}, lanes: map[site]*lane{}}
	if err := s.porter.stay(); err != nil {
		return nil, errors.Join(err, s.porter.close())
	}
	var err error
	if s.listener, err = listen(c); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for ranks at %s: %w", c.Path, err), s.porter.close())
	}
	s.serving.Go(s.accept)
	s.carrying.Go(s.carry)
	return s, nil
}

// listen makes the socket. A file of a server that was killed is replaced.
func listen(c Config) (*net.UnixListener, error) {
	at := &net.UnixAddr{Name: c.Path, Net: "unixpacket"}
	l, err := net.ListenUnix("unixpacket", at)
	if errors.Is(err, unix.EADDRINUSE) {
		if err := removeDead(at); err != nil {
			return nil, err
		}
		l, err = net.ListenUnix("unixpacket", at)
	}
	if err != nil {
		return nil, err
	}
	if c.Group != 0 {
		err = os.Chown(c.Path, -1, c.Group)
	}
	if err := errors.Join(err, os.Chmod(c.Path, cmp.Or(c.Mode, 0o600))); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// removeDead removes a socket at which nobody listens.
func removeDead(at *net.UnixAddr) error {
	info, err := os.Lstat(at.Name)
	if err != nil {
		return err
	}
	if info.Mode().Type() != os.ModeSocket {
		return errors.New("there is a file that is no socket")
	}
	there, err := net.DialUnix("unixpacket", nil, at)
	switch {
	case err == nil:
		_ = there.Close()
		return errors.New("another agent is there")
	case !errors.Is(err, unix.ECONNREFUSED):
		return err
	}
	return os.Remove(at.Name)
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
		if err := s.greet(g); err != nil {
			s.log.Debug("a rank is turned away", "user", g.owner.user, "error", err)
			_ = c.Close()
		}
	}
}

// maxStrangers is how many connections of a user may be open by which no rank has entered, or none yet.
const maxStrangers = 128

// greet begins to serve a guest.
func (s *Server) greet(g *guest) error {
	peer, err := peerOf(g.conn)
	if err != nil {
		return err
	}
	g.owner.user = peer
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	if s.strangers[peer] >= maxStrangers {
		return fmt.Errorf("%d others of the user have not entered", maxStrangers)
	}
	s.strangers[peer]++
	s.guests[g] = true
	s.serving.Go(g.serve)
	return nil
}

// known notes that a guest has entered.
func (s *Server) known(g *guest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.known = true
	s.lessStrange(g.owner.user)
}

// forget notes that a guest has gone.
func (s *Server) forget(g *guest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.guests, g)
	if !g.known {
		s.lessStrange(g.owner.user)
	}
}

func (s *Server) lessStrange(user uint32) {
	if s.strangers[user]--; s.strangers[user] == 0 {
		delete(s.strangers, user)
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
	close(s.ending)
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
	owner  owner
	known  bool // it has entered; guarded by the server's mu

	// Once it has entered, which others learn by known.
	place *loader.Member
	lane  *lane
	at    netip.AddrPort

	list []*guest // that it is being told of
}

// A guest that does not enter, or does not read its replies, is not waited for any longer.
const (
	enterPatience = 10 * time.Second
	replyPatience = time.Second
)

// serve replies to what the rank asks, until it is gone.
func (g *guest) serve() {
	defer func() {
		if g.place != nil {
			g.server.hand(&errand{leaves: g})
		}
		g.server.forget(g)
		_ = g.conn.Close()
	}()
	_ = g.conn.SetReadDeadline(time.Now().Add(enterPatience))
	for {
		b, files, err := receive(g.conn)
		if err != nil {
			g.server.discard(files)
			return
		}
		answer, passed, err := g.answer(b, files)
		g.server.discard(files)
		out := append(put(answer.reply), answer.text...)
		if err != nil {
			out = refusal(err)
		}
		_ = g.conn.SetWriteDeadline(time.Now().Add(replyPatience))
		err = send(g.conn, out, passed)
		closeFiles(passed)
		if err != nil {
			return
		}
	}
}

// discard closes what a guest has passed. Where it is in a file system of the guest's own, that takes as long as the guest
// likes; then the guest waits, and the server does not when it is closed.
func (s *Server) discard(files []int) {
	if len(files) == 0 {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		closeFiles(files)
	}()
	select {
	case <-done:
	case <-s.ending:
	}
}

// answer carries out a request. The descriptors that it returns are to be closed, as those of the request are.
func (g *guest) answer(b []byte, files []int) (answer said, passed []int, err error) {
	answer.ABI = abi
	r, err := parseRequest(b)
	if err != nil {
		return answer, nil, mpierr.New("enter", mpierr.Unsupported, mpierr.NoRank, "%w", err)
	}
	wanted := 0
	if r.Kind == enter || r.Kind == install || r.Kind == probe {
		wanted = 1
	}
	asks := r.Kind == status || r.Kind == probe
	switch {
	case len(files) != wanted && (r.Kind != enter || len(files) == 0): // who returns has maps
		return answer, nil, badRequest("a request of kind %d has %d descriptors, and not %d", r.Kind, len(files), wanted)
	case !asks && (r.Kind == enter) != (g.place == nil):
		return answer, nil, badRequest("a rank enters first, and once")
	case r.Value > math.MaxInt32:
		return answer, nil, badRequest("%d is too much", r.Value)
	}
	value := int(r.Value)
	switch r.Kind {
	case enter:
		return g.enter(r, files)
	case memory:
		var fd int
		if fd, err = g.newChunk(value); err == nil {
			passed = append(passed, fd)
		}
	case install:
		if err = g.place.Chunks().Install(value, files[0]); err == nil {
			err = g.count(files[0])
		}
	case remove:
		err = g.place.Chunks().Remove(value)
	case quiesce:
		err = g.place.Chunks().Quiesce()
	case probe:
		answer.Mode, err = g.probe(r, files[0])
	case status:
		answer.text, err = g.tell(value)
	default:
		err = badRequest("there is no request of kind %d", r.Kind)
	}
	return answer, passed, err
}

// enter lets the rank in.
func (g *guest) enter(r request, files []int) (answer said, passed []int, err error) {
	e := &errand{enters: g, socket: files[0], slots: int(r.Slots)}
	if e.from, err = g.locate(r, files[0]); err != nil {
		return answer, nil, err
	}
	defer unix.Close(e.from.namespace)
	if e.maps, err = mapsOf(files[1:]); err != nil {
		return answer, nil, err
	}
	if g.server.hand(e); e.err != nil {
		return answer, nil, e.err
	}
	g.server.known(g)
	_ = g.conn.SetReadDeadline(time.Time{})
	answer.ABI, answer.Mode, answer.Most = abi, uint32(e.mode), uint32(g.place.Chunks().Most())
	if len(files) > 1 {
		return answer, nil, nil // it has the maps
	}
	for _, m := range g.place.Maps() {
		fd, err := unix.FcntlInt(uintptr(m.FD()), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return answer, passed, fmt.Errorf("pass %v: %w", m, err)
		}
		passed = append(passed, fd)
	}
	return answer, passed, nil
}

// locate finds out where a guest's socket is. A user's guests wait for each other, and few others do for them.
func (g *guest) locate(r request, socket int) (origin, error) {
	s := g.server
	turn := &s.looks[g.owner.user%uint32(len(s.looks))]
	turn.Lock()
	defer turn.Unlock()
	return s.porter.config.locate(socket, int(r.Interface))
}

// probe returns where the switch would be that serves a rank, if the rank may enter.
func (g *guest) probe(r request, socket int) (mode uint32, err error) {
	e := &errand{asks: g}
	if e.from, err = g.locate(r, socket); err != nil {
		return 0, err
	}
	defer unix.Close(e.from.namespace)
	g.server.hand(e)
	return uint32(e.mode), e.err
}

// newChunk makes memory for windows, which counts for its owner.
func (g *guest) newChunk(size int) (file int, err error) {
	a := g.server.accounts
	if err := a.reserve(g.owner, int64(size)); err != nil {
		return -1, err
	}
	defer a.release(g.owner, int64(size))
	if file, err = g.place.Chunks().NewChunk(size); err != nil {
		return -1, err
	}
	if err := g.count(file); err != nil {
		_ = unix.Close(file)
		return -1, err
	}
	return file, nil
}

// count counts a map for the rank's owner.
func (g *guest) count(file int) error {
	m, err := mapOf(file)
	if err != nil {
		return fmt.Errorf("count memory: %w", err)
	}
	g.server.accounts.made(g.owner, m)
	return m.Close()
}

// mapOf returns the map of a descriptor, which stays the caller's. It does not touch a file that is no map: where a
// user has made the file system, even to close a copy takes as long as the user likes.
func mapOf(file int) (*ebpf.Map, error) {
	if kind, err := os.Readlink(fmt.Sprintf("/proc/thread-self/fd/%d", file)); err != nil || kind != "anon_inode:bpf-map" {
		return nil, fmt.Errorf("a descriptor is of %q, and of no map (%v)", kind, err)
	}
	copied, err := unix.FcntlInt(uintptr(file), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return ebpf.NewMapFromFD(copied) // it closes it if it fails
}

func badRequest(format string, args ...any) error {
	return mpierr.New("enter", mpierr.Arg, mpierr.NoRank, format, args...)
}
