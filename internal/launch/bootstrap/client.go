package bootstrap

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lastwords"
	"github.com/xdprma/xdprma/internal/protocol/secure"
)

const (
	// dialTimeout bounds Dial when neither its context nor its place has a limit.
	dialTimeout  = time.Minute
	dialPauseMin = 5 * time.Millisecond
	dialPauseMax = 200 * time.Millisecond
	tryTimeout   = 10 * time.Second // bounds one attempt of several
	goneTimeout  = 10 * time.Second // by then the system has closed what a process had open that has ended
)

// Client is a rank's part in a rendezvous that is served elsewhere.
type Client struct {
	conn        net.Conn
	incarnation uint64
	server      int          // the rank that serves the rendezvous, or noRank
	closing     string       // why it has said that it ends; of receive
	credentials *credentials // nil: the job has no key
	routines    sync.WaitGroup

	mu    sync.Mutex
	next  uint32
	calls map[uint32]chan message // of capacity 1
	err   error                   // why the connection ended
	lost  *EndedError             // that the serving rank's process has ended, until somebody is told
	ended chan struct{}           // closed when err is set

	writing sync.Mutex
}

// Dial connects to the rendezvous of the place c, as the rank that c says. While nobody
// listens there it tries again, and passes to failed, unless that is nil, why an attempt
// has failed. It gives up when ctx ends or, when ctx has no deadline, after c.Patience,
// and at once if the rendezvous refuses this process.
func Dial(ctx context.Context, c *Config, failed func(error)) (*Client, error) {
	network, address, err := splitAddress(c.Rendezvous)
	if err != nil {
		return nil, err
	}
	if err := c.checkSecurity(); err != nil {
		return nil, err
	}
	security, err := c.tls()
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.patient(ctx)
	defer cancel()
	var reason error // of the last attempt that nothing has cut short
	for pause := dialPauseMin; ; pause = min(2*pause, dialPauseMax) {
		begun := time.Now()
		client, err := dialOnce(ctx, network, address, c, security)
		if err == nil {
			return client, nil
		}
		if errors.Is(err, ErrRefused) {
			return nil, fmt.Errorf("rendezvous at %s: %w", c.Rendezvous, err)
		}
		if reason == nil || !cutShort(ctx, begun, err) {
			reason = explainDial(err)
		}
		if failed != nil && ctx.Err() == nil {
			failed(reason)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("cannot reach the rendezvous at %s (is rank 0, or the launcher, running there? %s says how long to try): %w; the last attempt: %w",
				c.Rendezvous, EnvPatience, ctx.Err(), reason)
		}
	}
}

// patient returns ctx, with the limit that the place has if ctx has none.
func (c *Config) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, cmp.Or(c.Patience, dialTimeout))
}

// cutShort reports whether an attempt that has begun at a time had not the time of other attempts,
// because ctx ends: its error err says nothing of the rendezvous.
func cutShort(ctx context.Context, begun time.Time, err error) bool {
	end, limited := ctx.Deadline()
	return ctx.Err() != nil || limited && end.Sub(begun) < tryTimeout && timedOut(err)
}

func timedOut(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// explainDial returns why a rendezvous was not reached, in words for an operator.
func explainDial(err error) error {
	var dns *net.DNSError
	why := "the connection failed"
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		why = "the host is unknown here"
	case errors.Is(err, unix.ECONNREFUSED) && dialledItself(err):
		why = "nobody listens there yet, and the address means this host itself: if rank 0 runs on another one, set " + EnvRendezvous + " to an address of that"
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
		why = "nobody listens there yet"
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		why = "there is no route to the host, or it is down"
	case timedOut(err):
		why = "the host does not answer: it is down, or a firewall drops the connection"
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET):
		why = "the connection was closed"
	}
	return fmt.Errorf("%s (%w)", why, err)
}

// dialledItself reports whether a connection failed that led to the loopback interface.
func dialledItself(err error) bool {
	op, _ := errors.AsType[*net.OpError](err)
	if op == nil {
		return false
	}
	tcp, ok := op.Addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

func dialOnce(ctx context.Context, network, address string, place *Config, security *tls.Config) (*Client, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	c, r, err := greet(ctx, conn, place, security)
	if !stop() && (err == nil || errors.Is(err, net.ErrClosed)) {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	c.routines.Go(func() { c.receive(r) })
	return c, nil
}

// greet begins TLS over conn, unless security is nil, and says hello. It returns the client,
// which has yet to receive by the reader.
func greet(ctx context.Context, conn net.Conn, place *Config, security *tls.Config) (*Client, *bufio.Reader, error) {
	if err := checkUser(conn); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if security != nil {
		var err error
		if conn, err = shakeHands(ctx, tls.Client(conn, security)); err != nil {
			return nil, nil, explainTLS(err)
		}
	}
	hello := message{kind: kindHello, rank: place.Rank, size: place.Size, body: helloBody(place.askedLevel(), place.Token())}
	if _, err := conn.Write(appendMessage(nil, hello)); err != nil {
		return nil, nil, explainTLS(err)
	}
	r := bufio.NewReader(conn)
	m, err := readMessage(r, maxMessageBytes)
	switch {
	case err != nil:
		return nil, nil, explainTLS(err)
	case m.kind == kindRefused:
		return nil, nil, fmt.Errorf("%w: %s", ErrRefused, m.body)
	case m.kind != kindOK:
		return nil, nil, fmt.Errorf("%w: kind %d in answer to a hello", errMalformed, m.kind)
	}
	c := &Client{conn: conn, calls: make(map[uint32]chan message), ended: make(chan struct{})}
	c.incarnation, c.server, c.credentials, err = parseWelcome(m.body, place)
	return c, r, err
}

// Publish makes known where this rank is.
func (c *Client) Publish(ctx context.Context, place []byte) error {
	if err := checkPlace(place); err != nil {
		return err
	}
	_, err := c.call(ctx, message{kind: kindPublish, body: place})
	return err
}

// Part makes known that this rank begins to leave the job.
func (c *Client) Part(ctx context.Context, why string) error {
	_, err := c.call(ctx, message{kind: kindPart, body: []byte(lastwords.Of(why))})
	return err
}

// Leave makes known that this rank has left the job.
func (c *Client) Leave(ctx context.Context) error {
	_, err := c.call(ctx, message{kind: kindLeave})
	return err
}

// Fail makes known why this process does not join.
func (c *Client) Fail(ctx context.Context, why string) error {
	_, err := c.call(ctx, message{kind: kindFail, body: []byte(lastwords.Of(why))})
	return err
}

// Sign has the rendezvous sign the ticket of this process.
func (c *Client) Sign(ctx context.Context, static [32]byte, at netip.AddrPort) ([]byte, error) {
	switch {
	case c.credentials == nil:
		return nil, errUnsigned
	case !at.IsValid():
		return nil, errTicketAddress
	}
	ticket, err := c.call(ctx, message{kind: kindSign, body: appendSign(nil, static, at)})
	if err == nil && !secure.VerifyTicket(ticket, c.credentials.signing) {
		return nil, fmt.Errorf("%w: the ticket of this rank", errMalformed)
	}
	return ticket, err
}

func (c *Client) find(ctx context.Context, rank int, wait bool) (p Published, found bool, err error) {
	m := message{kind: kindLook, number: rank}
	if wait {
		m.kind = kindFind
	}
	b, err := c.call(ctx, m)
	switch {
	case errors.Is(err, errAbsent):
		return p, false, nil
	case err != nil && !errors.Is(err, ErrLeft):
		return p, false, err
	}
	p, malformed := parsePublished(b)
	if malformed != nil {
		return p, false, fmt.Errorf("what rank %d has published: %w", rank, malformed)
	}
	return p, true, err
}

// errAbsent is that a rank has published nothing.
var errAbsent = errors.New("there is no place yet")

// End returns the n-th end of a rank's process, blocking until there is one. The end of the
// process that serves the rendezvous is the last one.
func (c *Client) End(ctx context.Context, n int) (*EndedError, error) {
	_, err := c.call(ctx, message{kind: kindEnd, number: n})
	c.mu.Lock()
	defer c.mu.Unlock()
	ended, ok := errors.AsType[*EndedError](err)
	if lost := c.lost; err != c.err && ok {
		return ended, nil
	} else if lost != nil {
		c.lost = nil
		return lost, nil
	}
	return nil, cmp.Or(err, fmt.Errorf("%w: end number %d", errMalformed, n))
}

// Waits makes known which ranks this one has waited for for long.
func (c *Client) Waits(ctx context.Context, list []Wait) error {
	_, err := c.call(ctx, message{kind: kindWaits, body: appendWaits(nil, list)})
	return err
}

// Attendance returns in words which ranks of the job are there.
func (c *Client) Attendance(ctx context.Context) (string, error) {
	text, err := c.call(ctx, message{kind: kindWho})
	return string(text), err
}

// Close disconnects and unblocks all calls. It is idempotent.
func (c *Client) Close() error {
	c.disconnect(fmt.Errorf("the rendezvous client: %w", net.ErrClosed))
	c.routines.Wait()
	return nil
}

// call sends m and waits for the answer.
func (c *Client) call(ctx context.Context, m message) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	answer, err := c.register(&m)
	if err != nil {
		return nil, err
	}
	if err := c.send(m); err != nil {
		c.forget(m.call)
		return nil, err
	}
	select {
	case a := <-answer:
		return result(a)
	case <-c.ended:
		select {
		case a := <-answer: // it came before the end
			return result(a)
		default:
			return nil, c.err
		}
	case <-ctx.Done():
		c.forget(m.call)
		if m.kind == kindFind || m.kind == kindEnd {
			c.send(message{kind: kindCancel, call: m.call})
		}
		return nil, ctx.Err()
	}
}

// register numbers m and returns where its answer will arrive.
func (c *Client) register(m *message) (chan message, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	if len(c.calls) >= MaxPending {
		return nil, fmt.Errorf("%d calls outstanding: %w", len(c.calls), ErrLimit)
	}
	for c.next++; c.calls[c.next] != nil; c.next++ {
	}
	m.call = c.next
	answer := make(chan message, 1)
	c.calls[m.call] = answer
	return answer, nil
}

func (c *Client) forget(call uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, call)
}

// send writes m. A failure ends the connection, for the stream may have been cut
// within a message. If the other end has closed it, send returns nil, and receive finds out why: that
// may be a death, which a call that comes just then must not hide.
func (c *Client) send(m message) error {
	b := appendMessage(nil, m)
	c.writing.Lock()
	defer c.writing.Unlock()
	c.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := c.conn.Write(b)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET):
		c.conn.SetReadDeadline(time.Now().Add(writeTimeout)) // it may be closed for writing alone
		return nil
	}
	return c.disconnect(fmt.Errorf("the connection to the rendezvous failed: %w", err))
}

// receive hands answers to their calls until the connection ends.
func (c *Client) receive(r *bufio.Reader) {
	for {
		m, err := readMessage(r, maxMessageBytes)
		if err != nil {
			c.connectionEnded(err)
			return
		}
		if m.kind == kindClosing {
			c.closing = string(m.body) // it leaves in good order
		}
		c.mu.Lock()
		answer := c.calls[m.call]
		delete(c.calls, m.call)
		c.mu.Unlock()
		if answer != nil {
			answer <- m
		}
	}
}

// connectionEnded takes in that the connection ended with err. The system closes that of a process which
// ends. One to a host that is gone fails in another way, as a network does that fails.
func (c *Client) connectionEnded(err error) {
	switch {
	case c.closing != "":
		c.disconnect(fmt.Errorf("the rendezvous has ended: %s", c.closing))
		return
	case c.server == noRank || !mayBeEnd(err) || !c.serverIsGone():
		c.disconnect(fmt.Errorf("the connection to the rendezvous ended: %w", err))
		return
	}
	ended := &EndedError{Rank: c.server, Reason: fmt.Sprintf("its process has ended: the rendezvous, which rank %d served, closed the connection (%v)", c.server, err)}
	c.mu.Lock()
	if c.err == nil {
		c.lost = ended
	}
	c.mu.Unlock()
	c.disconnect(fmt.Errorf("rank %d: %w", c.server, ended))
}

// serverIsGone reports whether nobody listens any more where the rendezvous was: one that lives may
// have closed this connection alone. The system closes what a process has open one after the other, the
// listener among the last, and what is in between may take long. Until then it takes connections, and
// resets them; and what else may go wrong with one says nothing of the process.
func (c *Client) serverIsGone() bool {
	at := c.conn.RemoteAddr()
	for end := time.Now().Add(goneTimeout); time.Now().Before(end); {
		conn, err := net.DialTimeout(at.Network(), at.String(), time.Second)
		switch {
		case err == nil:
			conn.Close()
		case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
			return true
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-c.ended:
			return false
		}
	}
	return false
}

// closedByEnd reports whether err is what a connection fails with when the process at the other
// end has ended. A reset may be one, too, but networks reset connections of processes that live.
func closedByEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// mayBeEnd reports whether a connection that failed with err may have been closed by the end of a process.
// It is not read any more some time after it could not be written.
func mayBeEnd(err error) bool {
	return closedByEnd(err) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, os.ErrDeadlineExceeded)
}

// disconnect closes the connection for the reason err, unless it has ended before, and
// returns the reason.
func (c *Client) disconnect(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.ended)
		c.conn.Close()
	}
	return c.err
}

// result is what a call returns for its answer.
func result(m message) ([]byte, error) {
	switch m.kind {
	case kindOK:
		return m.body, nil
	case kindAborted:
		return nil, &AbortError{Reason: string(m.body)}
	case kindRefused:
		return nil, fmt.Errorf("%w: %s", ErrRefused, m.body)
	case kindAbsent:
		return nil, errAbsent
	case kindLeft:
		return m.body, ErrLeft
	case kindEnded:
		if len(m.body) < 12 {
			return nil, fmt.Errorf("%w: an end of %d bytes", errMalformed, len(m.body))
		}
		return nil, &EndedError{Rank: int(binary.LittleEndian.Uint32(m.body)), Incarnation: binary.LittleEndian.Uint64(m.body[4:]), Reason: string(m.body[12:])}
	case kindClosing:
		return nil, fmt.Errorf("the rendezvous has ended: %s", m.body)
	case kindFailed:
		return nil, fmt.Errorf("the rendezvous failed: %s", m.body)
	}
	return nil, fmt.Errorf("%w: kind %d in answer to a call", errMalformed, m.kind)
}
