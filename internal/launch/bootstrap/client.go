package bootstrap

import (
	"bufio"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/xdprma/xdprma/internal/lastwords"
	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// Client is a rank's part in a rendezvous that is served elsewhere. A connection that is lost it opens again (reopen.go),
// and then it makes the calls again that have no answer. To make one twice is as good as once.
type Client struct {
	place            Config
	network, address string
	security         *tls.Config // nil: the job has no key
	identity         ed25519.PrivateKey
	remote           net.Addr // of the first connection
	within           bool     // the other end is on this host
	welcome          welcome
	log              *slog.Logger
	routines         sync.WaitGroup
	life             context.Context // until it has ended
	endLife          context.CancelFunc
	told             uint32    // the number of the last news
	suspects         chan *End // the rank that serves the rendezvous; of capacity 1

	closing string // why the server has said that it ends; of receive

	mu      sync.Mutex
	next    uint32
	calls   map[uint32]*call
	conn    net.Conn      // nil: there is none now
	away    error         // why calls that wait for a connection no longer do so; nil: they do
	cause   error         // why there is none
	failure error         // of the last attempt to open one
	lives   bool          // the rank that serves has answered since there is none
	err     error         // why it has ended
	lost    *End          // that the serving rank's process has ended, until somebody is told
	ended   chan struct{} // closed when err is set
	writing sync.Mutex
}

var errAway = errors.New("there is no connection to the rendezvous now")

// call is a call without an answer.
type call struct {
	message
	answer chan message // of capacity 1
	failed chan error   // likewise: there is no connection for too long
	sent   net.Conn     // by which it was last sent; of send
}

func newClient(c *Config, log *slog.Logger, network, address string, security *tls.Config) *Client {
	_, identity, _ := ed25519.GenerateKey(nil) // never fails
	client := &Client{place: *c, network: network, address: address, security: security, identity: identity, log: log,
		suspects: make(chan *End, 1), calls: make(map[uint32]*call), ended: make(chan struct{})}
	client.life, client.endLife = context.WithCancel(context.Background())
	return client
}

// begin begins to serve calls over the first connection.
func (c *Client) begin(to way, w welcome) {
	c.welcome, c.remote, c.within, c.conn = w, to.conn.RemoteAddr(), w.near && sameHost(to.conn), to.conn
	c.routines.Go(func() { c.run(to) })
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
	case c.welcome.credentials == nil:
		return nil, errUnsigned
	case !at.IsValid():
		return nil, errTicketAddress
	}
	ticket, err := c.call(ctx, message{kind: kindSign, body: appendSign(nil, static, at)})
	if err == nil && !secure.VerifyTicket(ticket, c.welcome.credentials.signing) {
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

// End returns the next end of a rank's process, or suspicion of one, blocking until there is one. That of the
// process that serves the rendezvous is the last one.
func (c *Client) End(ctx context.Context) (*End, error) {
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	heard := make(chan struct{})
	var e *End
	var err error
	go func() {
		defer close(heard)
		e, err = c.ask(asking)
	}()
	select {
	case <-heard:
	case s := <-c.suspects:
		cancel()
		if <-heard; err != nil {
			return s, nil
		}
		c.tell(s)
	}
	return e, err
}

// ask asks the server for the next end.
func (c *Client) ask(ctx context.Context) (*End, error) {
	m, err := c.await(ctx, message{kind: kindEnd, number: int(c.told)})
	var e *End
	switch {
	case err != nil:
	case m.kind == kindNews:
		e, err = parseNews(m.body)
	default:
		if _, err = result(m); err == nil {
			err = fmt.Errorf("%w: kind %d in answer to a question for ends", errMalformed, m.kind)
		}
	}
	if err == nil {
		c.told = e.number
		return e, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e = c.lost; e != nil && c.err != nil {
		c.lost = nil
		return e, nil
	}
	return nil, err
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

// Asked makes known whether a process has answered that was under suspicion. Of the one that serves the rendezvous it
// is kept here.
func (c *Client) Asked(ctx context.Context, e *End, lives bool) error {
	if e.Rank == c.welcome.server && e.Incarnation == 0 {
		c.serverAnswered(lives)
		return nil
	}
	c.mu.Lock()
	away := c.conn == nil
	c.mu.Unlock()
	if away { // it is asked again
		return errAway
	}
	_, err := c.call(ctx, message{kind: kindAsked, body: appendAsked(nil, e, lives)})
	return err
}

// Close disconnects and unblocks all calls. It is idempotent.
func (c *Client) Close() error {
	c.disconnect(fmt.Errorf("the rendezvous client: %w", net.ErrClosed))
	c.routines.Wait()
	return nil
}

// call sends m and waits for the answer, also while there is no connection for a moment.
func (c *Client) call(ctx context.Context, m message) ([]byte, error) {
	a, err := c.await(ctx, m)
	if err != nil {
		return nil, err
	}
	return result(a)
}

// await is call that returns the answer as it is.
func (c *Client) await(ctx context.Context, m message) (message, error) {
	if err := ctx.Err(); err != nil {
		return message{}, err
	}
	p, err := c.register(m)
	if err != nil {
		return message{}, err
	}
	c.send(p)
	select {
	case a := <-p.answer:
		return a, nil
	case err := <-p.failed:
		return message{}, err
	case <-c.ended:
		select {
		case a := <-p.answer: // it came before the end
			return a, nil
		default:
			return message{}, c.err
		}
	case <-ctx.Done():
		c.forget(p.message.call)
		if m.kind == kindFind || m.kind == kindEnd {
			c.send(&call{message: message{kind: kindCancel, call: p.message.call}})
		}
		return message{}, ctx.Err()
	}
}

// register numbers m.
func (c *Client) register(m message) (*call, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return nil, c.err
	case c.away != nil && m.kind != kindEnd:
		return nil, c.away
	case len(c.calls) >= MaxPending:
		return nil, fmt.Errorf("%d calls outstanding: %w", len(c.calls), ErrLimit)
	}
	for c.next++; c.calls[c.next] != nil; c.next++ {
	}
	m.call = c.next
	p := &call{message: m, answer: make(chan message, 1), failed: make(chan error, 1)}
	c.calls[m.call] = p
	return p, nil
}

func (c *Client) forget(call uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, call)
}

// send writes p to the connection, unless that was done, or there is none: then it is done once there is another. A
// failure ends the connection, for the stream may have been cut within a message. Run, which reads from it, finds out why.
func (c *Client) send(p *call) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	if conn == nil || p.sent == conn {
		return
	}
	p.sent = conn
	conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := conn.Write(appendMessage(nil, p.message)); err != nil && !isClosed(err) {
		conn.Close()
	} else if err != nil {
		conn.SetReadDeadline(time.Now().Add(writeTimeout)) // it may be closed for writing alone; what has come by it counts
	}
}

// run hands answers to their calls, and opens the connection again when it is lost.
func (c *Client) run(to way) {
	for ok := true; ok; {
		begun := time.Now()
		err := c.receive(to.r)
		to.conn.Close()
		to, ok = c.reopen(err, time.Since(begun))
	}
}

// receive hands answers to their calls until the connection ends.
func (c *Client) receive(r *bufio.Reader) error {
	for {
		m, err := readMessage(r, maxMessageBytes)
		if err != nil {
			return err
		}
		if m.kind == kindClosing {
			c.closing = cmp.Or(string(m.body), "it has been closed") // it leaves in good order
		}
		c.mu.Lock()
		p := c.calls[m.call]
		delete(c.calls, m.call)
		c.mu.Unlock()
		if p != nil {
			p.answer <- m
		}
	}
}

// disconnect ends the client for the reason err, unless it has ended before.
func (c *Client) disconnect(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.ended)
		c.endLife()
		if c.conn != nil {
			c.conn.Close()
		}
	}
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
		ended, err := parseEnded(m.body)
		return nil, cmp.Or(err, error(&ended))
	case kindClosing:
		return nil, fmt.Errorf("the rendezvous has ended: %s", m.body)
	case kindFailed:
		return nil, fmt.Errorf("the rendezvous failed: %s", m.body)
	}
	return nil, fmt.Errorf("%w: kind %d in answer to a call", errMalformed, m.kind)
}
