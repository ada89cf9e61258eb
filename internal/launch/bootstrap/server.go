package bootstrap

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	helloTimeout = 5 * time.Second  // a connection without a hello is closed after it
	writeTimeout = 10 * time.Second // a client that takes no answer for so long is closed
)

// keepAlive has the server notice within seconds that a client's host has gone.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

// Server serves the rendezvous to the ranks of a job. A client that sends something
// malformed, or the wrong token, loses its own connection and nothing else. A rank that
// takes the job for one of another size than the first did, or whose number another
// connected process has, is refused.
type Server struct {
	listener  net.Listener
	token     string
	rank      int        // that serves, or noRank
	authority *authority // nil: the job has no key
	board     *board
	members   *members
	waits     *waits
	lobby     lobby // connections without a hello

	mu       sync.Mutex
	clients  map[net.Conn]*connection // those with one
	closed   bool
	left     chan struct{} // signalled when a client leaves
	stopped  chan struct{} // closed by Close
	routines sync.WaitGroup
	awaited  atomic.Int32 // calls of clients that have no answer yet
}

// noRank is in the place of the rank that serves the rendezvous where something else does.
const noRank = -1

// Serve accepts clients of the job of c at l, in the background, until Close: those that know
// its Token and have its Key. The log, at the level of c, tells of others. The server owns l from then on, also if this fails.
func Serve(l net.Listener, c *Config) (*Server, error) {
	s, err := newServer(l, c, c.Logger(), noRank)
	if err == nil {
		s.start()
	}
	return s, err
}

// newServer returns a server that is part of a rank, or of something else.
func newServer(l net.Listener, c *Config, log *slog.Logger, rank int) (*Server, error) {
	a, err := c.newAuthority(l.Addr())
	if err != nil {
		l.Close()
		return nil, err
	}
	members := newMembers(log, c.silence(), rank)
	if tcp, ok := l.Addr().(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		members.alone = fmt.Sprintf("the rendezvous is served at %v, which processes of this host alone reach", tcp.IP)
	}
	return &Server{
		listener: l, token: c.Token(), rank: rank, authority: a, board: newBoard(), members: members, waits: newWaits(log, members),
		lobby:   lobby{handshakes: newHandshakes()},
		clients: make(map[net.Conn]*connection),
		left:    make(chan struct{}, 1),
		stopped: make(chan struct{}),
	}, nil
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

// Abort makes every present and later call of every client return an
// *AbortError. It does not block.
func (s *Server) Abort(reason string) { s.board.end(&AbortError{Reason: truncate(reason)}) }

// Ended makes known that the process of a rank has ended, for the given reason unless it has given one
// itself, and that no other will have this rank. A member that waits for the rank's place, now or later,
// is told so; the others learn it by Member.End. It does not block.
func (s *Server) Ended(rank int, reason string) {
	s.members.end(rank)
	reason = cmp.Or(s.board.parted(rank).Why, truncate("its process has ended: "+reason))
	s.board.ended(&End{EndedError: EndedError{Rank: rank, Reason: reason}})
}

// Parting returns how a rank has begun to leave the job, as it says itself.
func (s *Server) Parting(rank int) Parting { return s.board.parted(rank) }

// drain blocks until no client is connected, or will be again soon, or ctx ends.
func (s *Server) drain(ctx context.Context) error {
	for {
		s.mu.Lock()
		n := len(s.clients)
		s.mu.Unlock()
		away := s.members.away()
		if n == 0 && !away {
			return nil
		}
		var soon <-chan time.Time
		if away {
			soon = time.After(returnLimit)
		}
		select {
		case <-s.left:
		case <-soon:
		case <-s.stopped:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// farewell tells all clients that the rendezvous ends in good order, and why. Otherwise they would
// take the end of their connections for that of a process that has died. It blocks until ctx ends
// at most.
func (s *Server) farewell(ctx context.Context, why error) {
	s.board.end(why) // answers those that wait
	s.mu.Lock()
	var told sync.WaitGroup
	for _, c := range s.clients {
		told.Go(func() { c.answer(message{kind: kindClosing, body: []byte(truncate(why.Error()))}) })
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		told.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	s.settle(ctx)
}

// settle blocks until no call of a client waits for an answer, or ctx ends.
func (s *Server) settle(ctx context.Context) {
	for s.awaited.Load() > 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
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
	s.board.end(fmt.Errorf("the rendezvous: %w", net.ErrClosed))
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
func (s *Server) enter(c *connection, conn net.Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return net.ErrClosed
	case len(s.clients) >= MaxClients && c.said.incarnation == 0: // else it was counted before
		return &busy{why: fmt.Sprintf("%d processes are connected, which is the limit", len(s.clients))}
	}
	s.clients[conn] = c
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

// serve runs one client's connection to its end, and finds out what has become of the client.
func (s *Server) serve(conn net.Conn) {
	if client, err := s.attend(conn); err != nil {
		s.lost(client, err)
	}
}

// attend is serve without that: it returns the client, and why its connection was lost, if nobody knows.
func (s *Server) attend(conn net.Conn) (_ *local, lost error) {
	defer conn.Close() // without TLS's end: messages say how long they are
	ctx, cancel := context.WithCancel(context.Background())
	c := &connection{server: s, conn: conn, ctx: ctx, waits: make(map[uint32]context.CancelFunc)}
	defer c.routines.Wait()
	defer cancel()

	m, r, known := c.greet()
	if !s.lobby.leave(conn) || !known {
		return nil, nil
	}
	near := sameHost(conn) && c.said.from == endOf(conn.RemoteAddr()) // and no proxy is in between
	v := &visit{from: from(conn), hangUp: func() { conn.Close() }, over: make(chan struct{})}
	defer close(v.over)
	if err := s.enter(c, conn); err != nil {
		c.refuse(m, err)
		return nil, nil
	}
	defer s.leave(conn)
	incarnation, err := s.admit(c, m, v)
	if err != nil {
		c.refuse(m, err)
		return nil, nil
	}
	c.client = local{board: s.board, members: s.members, waits: s.waits, authority: s.authority, rank: m.rank, size: m.size, incarnation: incarnation}
	welcome, err := s.authority.welcome(c.conn, incarnation, s.rank, near, c.said.incarnation != 0)
	ok := err == nil && c.answer(message{kind: kindOK, call: m.call, body: welcome})
	for ok && err == nil {
		if m, err = readMessage(r, maxMessageBytes); err == nil {
			ok = c.handle(m)
		}
	}
	conn.Close()           // an answer being written must not hold up the end
	if !closedByEnd(err) { // else an answer may have failed since, by that end
		c.writing.Lock()
		err = cmp.Or(c.unwritten, err, errMalformed)
		c.writing.Unlock()
	}
	reset := errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
	certain := near && (reset || closedByEnd(err)) // there is no network: the kernel has closed it
	last, unknown := s.members.leave(c.client.rank, v, certain)
	if unknown {
		lost = err
	}
	if last {
		s.waits.say(c.client.rank, nil)
	}
	if last && certain && s.rank != noRank { // a launcher tells of ends by itself
		s.board.ended(&End{EndedError: EndedError{Rank: c.client.rank, Incarnation: incarnation,
			Reason: "its process has ended: it closed its connection to the rendezvous, and had not left the job"}})
	}
	return &c.client, lost
}

// admit takes in the process that has said the hello m, for the first time or again.
func (s *Server) admit(c *connection, m message, v *visit) (incarnation uint64, err error) {
	said := &c.said
	if !said.proven(c.conn, m.rank) {
		return 0, s.members.refuse(m.rank, v.from, "it does not prove who it is")
	}
	if said.incarnation != 0 {
		err := s.members.reenter(m.rank, said.incarnation, said.identity, v)
		if err == nil {
			s.board.back(m.rank)
		}
		return said.incarnation, err
	}
	doubt := func(incarnation uint64) { s.doubt(m.rank, incarnation, errors.New("another process wants its rank")) }
	return s.members.enter(m.rank, m.size, c.said.identity, v, doubt)
}

// sameHost reports whether both ends of a connection are known to be on this host.
func sameHost(conn net.Conn) bool {
	local, ok := conn.LocalAddr().(*net.TCPAddr)
	remote, _ := conn.RemoteAddr().(*net.TCPAddr)
	return withinHost(conn.LocalAddr()) || ok && remote != nil && local.IP.Equal(remote.IP)
}

// from returns where the client of a connection is, in words for an operator.
func from(conn net.Conn) string {
	if conn.RemoteAddr().Network() == "unix" {
		return "the unix socket"
	}
	return conn.RemoteAddr().String()
}

// connection is the server's side of one client.
type connection struct {
	server   *Server
	conn     net.Conn        // over TLS, once that has begun
	ctx      context.Context // ends with the connection
	routines sync.WaitGroup

	said   introduction // in its hello
	client local        // its part, once it has entered

	mu    sync.Mutex // guards waits
	waits map[uint32]context.CancelFunc

	writing   sync.Mutex
	unwritten error // why an answer could not be written: the connection is closed since
}

// greet begins TLS, if the job has a key, reads the hello, and reports whether it comes from a
// process of the job. More of its messages come by r.
func (c *connection) greet() (m message, r *bufio.Reader, known bool) {
	user := checkUser(c.conn)
	if tcp, ok := c.conn.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(keepAlive) // without it a lost host is noticed later
	}
	c.conn.SetDeadline(time.Now().Add(helloTimeout))
	if !c.secure() {
		return m, nil, false
	}
	r = bufio.NewReader(c.conn)
	if begin, err := r.Peek(len(tlsHandshake)); err == nil && string(begin) == tlsHandshake {
		c.turnAway(m, "it has a job key, and the rendezvous has none")
		return m, nil, false
	}
	m, err := readMessage(r, maxHelloBytes)
	if err != nil || m.kind != kindHello {
		return m, nil, false
	}
	if err := cmp.Or(user, c.admits(m.body), c.server.authority.checkRank(c.conn, m.rank)); err != nil {
		c.turnAway(m, err.Error())
		return m, nil, false
	}
	c.conn.SetDeadline(time.Time{})
	return m, r, true
}

// secure begins TLS if the job has a key, and reports whether the client has the key too.
func (c *connection) secure() bool {
	if c.server.authority == nil {
		return true
	}
	config, tokens := c.server.authority.tls.Clone(), (*bucket)(nil)
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (_ *tls.Config, err error) { // nothing has been computed yet
		if tokens, err = c.server.lobby.begin(hello.Context(), c.conn); err != nil {
			c.conn.Close() // without TLS's alert, which would say that the keys differ
		}
		return nil, err
	}
	conn, err := shakeHands(c.ctx, tls.Server(c.conn, config))
	switch {
	case err == nil:
		tokens.give()
		c.conn = conn
		return true
	case isPlain(err):
		c.turnAway(message{}, "the job has a key, and this process has none: name it by "+EnvKeyFile)
	case errors.Is(err, errOtherKey), isAlert(err):
		c.server.members.turnAway(from(c.conn), errOtherKey.Error())
	}
	return false
}

// turnAway refuses a client that has not shown that it is of the job, in answer to m if it has said
// hello.
func (c *connection) turnAway(m message, why string) {
	c.server.members.turnAway(from(c.conn), why)
	c.refuse(m, errors.New(why))
}

// admits takes in the body of a hello, and returns why the process takes no part in the job, or nil.
func (c *connection) admits(hello []byte) error {
	theirs, ok := bytes.CutPrefix(hello, []byte(protocol))
	if ok && len(theirs) > 0 && theirs[0] != protocolVersion[0] {
		return fmt.Errorf("it speaks version %d of the rendezvous, which speaks version %d: start all ranks of a job, and the launcher, from one build",
			theirs[0], protocolVersion[0])
	}
	said, token, ok := parseHello(hello)
	if !ok || subtle.ConstantTimeCompare(token, []byte(c.server.token)) != 1 {
		return errors.New("its job id is another one")
	}
	c.said = said
	return c.server.authority.agrees(said.level)
}

// refuse answers a hello that its sender may not say, or not yet.
func (c *connection) refuse(m message, why error) {
	if b, ok := errors.AsType[*busy](why); ok {
		c.answer(message{kind: kindBusy, call: m.call, body: []byte(truncate(b.why))})
		return
	}
	c.answer(message{kind: kindRefused, call: m.call, body: c.server.authority.refusal(c.conn, c.said.incarnation != 0, truncate(why.Error()))})
}

// handle carries out a client's message and reports whether the connection may go on.
func (c *connection) handle(m message) bool {
	switch m.kind {
	case kindPublish, kindLeave, kindFail, kindPart, kindWaits, kindAsked, kindLook, kindWho, kindSign:
		return c.answer(c.ask(c.ctx, m))
	case kindFind, kindEnd:
		return c.wait(m)
	case kindCancel:
		c.mu.Lock()
		cancel := c.waits[m.call]
		delete(c.waits, m.call)
		c.mu.Unlock()
		if cancel != nil {
			cancel()
		}
		return true
	}
	return false
}

// ask carries out a call of the client, and returns the answer.
func (c *connection) ask(ctx context.Context, m message) message {
	var body []byte
	var err error
	switch m.kind {
	case kindPublish:
		err = c.client.Publish(ctx, m.body)
	case kindLeave:
		err = c.client.Leave(ctx)
	case kindPart:
		err = c.client.Part(ctx, string(m.body))
	case kindWaits:
		var list []Wait
		if list, err = parseWaits(m.body, c.client.size); err == nil {
			err = c.client.Waits(ctx, list)
		}
	case kindAsked:
		e, lives := parseAsked(m.body)
		err = c.client.Asked(ctx, e, lives)
	case kindFail:
		err = c.client.Fail(ctx, string(m.body))
	case kindSign:
		static, at := parseSign(m.body)
		body, err = c.client.Sign(ctx, static, at)
	case kindFind, kindLook:
		p, found, e := c.client.find(ctx, m.number, m.kind == kindFind)
		if err = e; err == nil && !found {
			err = errAbsent
		}
		body = appendPublished(nil, p)
	case kindEnd:
		var e *End
		if e, err = c.client.end(ctx, uint32(m.number)); err == nil {
			return message{kind: kindNews, call: m.call, body: appendNews(nil, e)}
		}
	case kindWho:
		var text string
		text, err = c.client.Attendance(ctx)
		body = []byte(text)
	}
	return outcome(m.call, body, err)
}

// wait answers a call that may take long, and lets other messages through meanwhile.
func (c *connection) wait(m message) bool {
	c.mu.Lock()
	_, twice := c.waits[m.call]
	full := len(c.waits) >= MaxPending
	if twice || full {
		c.mu.Unlock()
		return false
	}
	ctx, cancel := context.WithCancel(c.ctx)
	c.waits[m.call] = cancel
	c.mu.Unlock()

	c.server.awaited.Add(1)
	c.routines.Go(func() {
		defer c.server.awaited.Add(-1)
		a := c.ask(ctx, m)
		canceled := ctx.Err() != nil
		cancel()
		c.mu.Lock()
		delete(c.waits, m.call)
		c.mu.Unlock()
		if !canceled {
			c.answer(a)
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
		c.unwritten = cmp.Or(c.unwritten, err)
		c.conn.Close()
		return false
	}
	return true
}

// outcome is the answer to a call that ended with body and err.
func outcome(call uint32, body []byte, err error) message {
	aborted, isAborted := errors.AsType[*AbortError](err)
	ended, isEnded := errors.AsType[*EndedError](err)
	switch {
	case err == nil:
		return message{kind: kindOK, call: call, body: body}
	case isAborted:
		return message{kind: kindAborted, call: call, body: []byte(aborted.Reason)}
	case isEnded:
		return message{kind: kindEnded, call: call, body: appendEnded(nil, ended)}
	case errors.Is(err, ErrLeft):
		return message{kind: kindLeft, call: call, body: body}
	case errors.Is(err, errAbsent):
		return message{kind: kindAbsent, call: call}
	case errors.Is(err, errClosing):
		return message{kind: kindClosing, call: call, body: []byte(truncate(err.Error()))}
	}
	return message{kind: kindFailed, call: call, body: []byte(truncate(err.Error()))}
}
