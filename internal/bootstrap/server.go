package bootstrap

import (
	"bufio"
	"context"
	"crypto/subtle"
	"errors"
	"net"
	"sync"
	"time"
)

const (
	helloTimeout = 5 * time.Second  // a connection without a hello is closed after it
	writeTimeout = 10 * time.Second // a client that takes no answer for so long is closed
	maxGreeting  = 128              // connections that may be without a hello at a time
)

// Server serves a Store to the ranks of a job. A client that sends something
// malformed, or the wrong token, loses its own connection and nothing else.
type Server struct {
	listener net.Listener
	token    string
	store    *Memory
	greeting chan struct{} // one element for each connection without a hello

	mu       sync.Mutex
	clients  map[net.Conn]struct{}
	closed   bool
	left     chan struct{} // signalled when a client leaves
	stopped  chan struct{} // closed by Close
	routines sync.WaitGroup
}

// Serve accepts clients that know the token at l, in the background, until
// Close. The server owns l from then on.
func Serve(l net.Listener, token string) *Server {
	s := &Server{
		listener: l, token: token, store: NewMemory(),
		greeting: make(chan struct{}, maxGreeting),
		clients:  make(map[net.Conn]struct{}),
		left:     make(chan struct{}, 1),
		stopped:  make(chan struct{}),
	}
	s.routines.Go(s.accept)
	return s
}

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
	}
	s.mu.Unlock()
	s.store.Close()
	s.routines.Wait()
	return err
}

func (s *Server) accept() {
	for {
		select {
		case s.greeting <- struct{}{}:
		case <-s.stopped:
			return
		}
		c, err := s.listener.Accept()
		if err != nil {
			<-s.greeting
			if !s.pauseAfter(err) {
				return
			}
			continue
		}
		if !s.enter(c) {
			<-s.greeting
			c.Close()
			continue
		}
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

func (s *Server) enter(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.clients) >= MaxClients {
		return false
	}
	s.clients[c] = struct{}{}
	return true
}

func (s *Server) leave(c net.Conn) {
	c.Close()
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
	defer s.leave(conn)
	ctx, cancel := context.WithCancel(context.Background())
	c := &connection{server: s, conn: conn, ctx: ctx, gets: make(map[uint32]context.CancelFunc)}
	defer c.routines.Wait()
	defer cancel()

	r := bufio.NewReader(conn)
	admitted := c.admit(r)
	<-s.greeting
	if !admitted {
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

	mu   sync.Mutex // guards gets
	gets map[uint32]context.CancelFunc

	writing sync.Mutex
}

// admit reads the hello and answers it.
func (c *connection) admit(r *bufio.Reader) bool {
	c.conn.SetReadDeadline(time.Now().Add(helloTimeout))
	m, err := readMessage(r, maxHelloBytes)
	if err != nil || m.kind != kindHello {
		return false
	}
	want := []byte(helloMagic + c.server.token)
	if subtle.ConstantTimeCompare(m.body, want) != 1 {
		c.answer(message{kind: kindRefused, call: m.call, body: []byte("its job id or protocol version is another one")})
		return false
	}
	c.conn.SetReadDeadline(time.Time{})
	return c.answer(message{kind: kindOK, call: m.call})
}

// handle carries out a client's message and reports whether the connection may go on.
func (c *connection) handle(m message) bool {
	switch m.kind {
	case kindPut:
		return c.answer(outcome(m.call, nil, c.server.store.Put(c.ctx, m.key, m.body)))
	case kindGet:
		return c.startGet(m)
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
