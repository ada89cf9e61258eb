package bootstrap

import (
	"bufio"
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

const (
	helloTimeout = 5 * time.Second  // a connection without a hello is closed after it
	writeTimeout = 10 * time.Second // a client that takes no answer for so long is closed
)

// keepAlive has the server notice within seconds that a client's host has gone.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

// Server serves a Store to the ranks of a job. A client that sends something
// malformed, or the wrong token, loses its own connection and nothing else. A rank that
// takes the job for one of another size than the first did, or whose number another
// connected process has, is refused.
type Server struct {
	listener net.Listener
	token    string
	store    *Memory
	members  *members
	lobby    lobby // connections without a hello

	mu       sync.Mutex
	clients  map[net.Conn]struct{} // connections with one
	closed   bool
	left     chan struct{} // signalled when a client leaves
	stopped  chan struct{} // closed by Close
	routines sync.WaitGroup
}

// Serve accepts clients that know the token at l, in the background, until
// Close. The server owns l from then on.
func Serve(l net.Listener, token string) *Server {
	s := newServer(l, token)
	s.start()
	return s
}

func newServer(l net.Listener, token string) *Server {
	return &Server{
		listener: l, token: token, store: NewMemory(), members: newMembers(),
		clients: make(map[net.Conn]struct{}),
		left:    make(chan struct{}, 1),
		stopped: make(chan struct{}),
	}
}

func (s *Server) start() { s.routines.Go(s.accept) }

// Addr returns the address in the form that Dial takes.
func (s *Server) Addr() string {
	a := s.listener.Addr()
	if a.Network() == "unix" {
		return "unix:" + a.String()
	}
	return "tcp:" + a.String()
}

// Store returns the server's own view of the exchange. Closing it ends the
// exchange for everyone.
func (s *Server) Store() *Memory { return s.store }

// Abort makes every present and later call of every client return an
// *AbortError. It does not block.
func (s *Server) Abort(reason string) { s.store.Abort(reason) }

// Ended makes known that the process of a rank has ended, for the given reason, and that
// no other will have this rank. A member that waits for the rank's place, now or later,
// is told so; the others learn it by Member.End. It does not block.
func (s *Server) Ended(rank int, reason string) {
	before, news := s.members.end(rank)
	if !news {
		return
	}
	reason = truncate(reason)
	s.store.finish(placeKey(rank), append([]byte{valueEnded}, reason...))
	s.store.finish(endKey(before), append(binary.LittleEndian.AppendUint32(nil, uint32(rank)), reason...))
}

// drain blocks until no client is connected or ctx ends.
func (s *Server) drain(ctx context.Context) error {
	for {
		s.mu.Lock()
		n := len(s.clients)
		s.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-s.left:
		case <-s.stopped:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close stops serving, disconnects all clients and waits until nothing of the
// server runs any more. It is idempotent.
func (s *Server) Close() error {
	s.mu.Lock()
	var err error
	if !s.closed {
		s.closed = true
		close(s.stopped)
		err = s.listener.Close()
		for c := range s.clients {
			c.Close()
		}
		s.lobby.close()
	}
	s.mu.Unlock()
	s.store.Close()
	s.routines.Wait()
	return err
}

func (s *Server) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			if !s.pauseAfter(err) {
				return
			}
			continue
		}
		s.lobby.enter(c)
		s.routines.Go(func() { s.serve(c) })
	}
}

// pauseAfter waits a little after a passing failure of accept, such as a lack
// of descriptors, and reports whether to go on.
func (s *Server) pauseAfter(err error) bool {
	if errors.Is(err, net.ErrClosed) {
		return false
	}
	select {
	case <-time.After(50 * time.Millisecond):
		return true
	case <-s.stopped:
		return false
	}
}

// enter takes in a connection that has said hello.
func (s *Server) enter(c net.Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return net.ErrClosed
	case len(s.clients) >= MaxClients:
		return fmt.Errorf("%d processes are connected, which is the limit", len(s.clients))
	}
	s.clients[c] = struct{}{}
	return nil
}

func (s *Server) leave(c net.Conn) {
	s.mu.Lock()
	delete(s.clients, c)
	s.mu.Unlock()
	select {
	case s.left <- struct{}{}:
	default:
	}
}

// serve runs one client's connection to its end.
func (s *Server) serve(conn net.Conn) {
	defer conn.Close()
	ctx, cancel := context.WithCancel(context.Background())
	c := &connection{server: s, conn: conn, ctx: ctx, gets: make(map[uint32]context.CancelFunc)}
	defer c.routines.Wait()
	defer cancel()

	r := bufio.NewReader(conn)
	m, known := c.greet(r)
	if !s.lobby.leave(conn) || !known {
		return
	}
	if err := s.enter(conn); err != nil {
		c.refuse(m, err)
		return
	}
	defer s.leave(conn)
	incarnation, leave, err := s.members.enter(m.rank, m.size, conn.RemoteAddr().String(), s.stopped)
	if err != nil {
		c.refuse(m, err)
		return
	}
	defer leave()
	c.rank, c.incarnation = m.rank, incarnation
	if !c.answer(message{kind: kindOK, call: m.call, body: binary.LittleEndian.AppendUint64(nil, incarnation)}) {
		return
	}
	for {
		m, err := readMessage(r, maxMessageBytes)
		if err != nil || !c.handle(m) {
			conn.Close() // an answer being written must not hold up the end
			return
		}
	}
}

// connection is the server's side of one client.
type connection struct {
	server   *Server
	conn     net.Conn
	ctx      context.Context // ends with the connection
	routines sync.WaitGroup

	rank        int // what the client is, once it has entered
	incarnation uint64

	mu   sync.Mutex // guards gets
	gets map[uint32]context.CancelFunc

	writing sync.Mutex
}

// greet reads the hello and reports whether it comes from a process of the job.
func (c *connection) greet(r *bufio.Reader) (message, bool) {
	if tcp, ok := c.conn.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(keepAlive) // without it a lost host is noticed later
	}
	c.conn.SetReadDeadline(time.Now().Add(helloTimeout))
	m, err := readMessage(r, maxHelloBytes)
	if err != nil || m.kind != kindHello {
		return m, false
	}
	theirs, ok := bytes.CutPrefix(m.body, []byte(protocol))
	switch {
	case ok && len(theirs) > 0 && theirs[0] != protocolVersion[0]:
		c.refuse(m, fmt.Errorf("it speaks version %d of the rendezvous, which speaks version %d: start all ranks of a job, and the launcher, from one build",
			theirs[0], protocolVersion[0]))
		return m, false
	case subtle.ConstantTimeCompare(m.body, []byte(helloMagic+c.server.token)) != 1:
		c.refuse(m, errors.New("its job id is another one"))
		return m, false
	}
	c.conn.SetReadDeadline(time.Time{})
	return m, true
}

// refuse answers a message that asks for what its sender may not have, as answer does.
func (c *connection) refuse(m message, why error) bool {
	return c.answer(message{kind: kindRefused, call: m.call, body: []byte(truncate(why.Error()))})
}

// handle carries out a client's message and reports whether the connection may go on.
func (c *connection) handle(m message) bool {
	switch m.kind {
	case kindPut:
		if err := c.checkPut(m); err != nil {
			return c.refuse(m, err)
		}
		return c.answer(outcome(m.call, nil, c.server.store.Put(c.ctx, m.key, m.body)))
	case kindGet:
		return c.startGet(m)
	case kindLook:
		value, found, err := c.server.store.Look(c.ctx, m.key)
		if err == nil && !found {
			return c.answer(message{kind: kindAbsent, call: m.call})
		}
		return c.answer(outcome(m.call, value, err))
	case kindWho:
		return c.answer(message{kind: kindOK, call: m.call, body: []byte(c.server.members.describe())})
	case kindCancel:
		c.mu.Lock()
		cancel := c.gets[m.call]
		delete(c.gets, m.call)
		c.mu.Unlock()
		if cancel != nil {
			cancel()
		}
		return true
	}
	return false
}

// checkPut returns why a client may not put a value, or nil.
func (c *connection) checkPut(m message) error {
	why := ""
	switch {
	case !strings.HasPrefix(m.key, keysOf(c.rank)):
		why = fmt.Sprintf("it wanted to put key %q, and may put keys that begin with %q", m.key, keysOf(c.rank))
	case m.key == placeKey(c.rank) && !isPlaceOf(c.incarnation, m.body):
		why = fmt.Sprintf("it wanted to put key %q for another incarnation than its own, %d", m.key, c.incarnation)
	default:
		return nil
	}
	return c.server.members.refuse(c.rank, c.conn.RemoteAddr().String(), why)
}

// startGet answers a get as soon as there is a value, and lets other messages
// through meanwhile.
func (c *connection) startGet(m message) bool {
	c.mu.Lock()
	_, twice := c.gets[m.call]
	full := len(c.gets) >= MaxPending
	if twice || full {
		c.mu.Unlock()
		return false
	}
	ctx, cancel := context.WithCancel(c.ctx)
	c.gets[m.call] = cancel
	c.mu.Unlock()

	c.routines.Go(func() {
		value, err := c.server.store.Get(ctx, m.key)
		canceled := ctx.Err() != nil
		cancel()
		c.mu.Lock()
		delete(c.gets, m.call)
		c.mu.Unlock()
		if !canceled {
			c.answer(outcome(m.call, value, err))
		}
	})
	return true
}

// answer writes m and reports whether that worked; otherwise the connection is closed.
func (c *connection) answer(m message) bool {
	b := appendMessage(nil, m)
	c.writing.Lock()
	defer c.writing.Unlock()
	c.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := c.conn.Write(b); err != nil {
		c.conn.Close()
		return false
	}
	return true
}

// outcome is the answer to a call that ended with value and err.
func outcome(call uint32, value []byte, err error) message {
	if err == nil {
		return message{kind: kindOK, call: call, body: value}
	}
	if aborted, ok := errors.AsType[*AbortError](err); ok {
		return message{kind: kindAborted, call: call, body: []byte(aborted.Reason)}
	}
	if errors.Is(err, ErrLimit) {
		return message{kind: kindLimit, call: call, body: []byte(err.Error())}
	}
	return message{kind: kindFailed, call: call, body: []byte(err.Error())}
}
