package bootstrap

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	// dialTimeout bounds Dial when its context has no deadline.
	dialTimeout  = time.Minute
	dialPauseMin = 5 * time.Millisecond
	dialPauseMax = 200 * time.Millisecond
)

// Client is a Store served elsewhere.
type Client struct {
	conn     net.Conn
	routines sync.WaitGroup

	mu    sync.Mutex
	next  uint32
	calls map[uint32]chan message // of capacity 1
	err   error                   // why the connection ended
	ended chan struct{}           // closed when err is set

	writing sync.Mutex
}

// Dial connects to the rendezvous at addr (host:port, tcp:host:port or
// unix:/path) with the job's token. While nobody listens there it tries again,
// until ctx ends or, when ctx has no deadline, a minute has passed.
func Dial(ctx context.Context, addr, token string) (*Client, error) {
	network, address, err := splitAddress(addr)
	if err != nil {
		return nil, err
	}
	if len(token) > maxTokenBytes {
		return nil, fmt.Errorf("a token of %d bytes, the longest is %d: %w", len(token), maxTokenBytes, ErrLimit)
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, dialTimeout)
		defer cancel()
	}
	for pause := dialPauseMin; ; pause = min(2*pause, dialPauseMax) {
		c, err := dialOnce(ctx, network, address, token)
		if err == nil {
			return c, nil
		}
		if errors.Is(err, ErrRefused) {
			return nil, fmt.Errorf("rendezvous at %s: %w", addr, err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("cannot reach the rendezvous at %s (is rank 0, or the launcher, running there?): %w", addr, errors.Join(ctx.Err(), err))
		}
	}
}

func dialOnce(ctx context.Context, network, address, token string) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	r := bufio.NewReader(conn)
	err = greet(conn, r, token)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	c := &Client{conn: conn, calls: make(map[uint32]chan message), ended: make(chan struct{})}
	c.routines.Go(func() { c.receive(r) })
	return c, nil
}

func greet(conn net.Conn, r *bufio.Reader, token string) error {
	if _, err := conn.Write(appendMessage(nil, message{kind: kindHello, body: []byte(helloMagic + token)})); err != nil {
		return err
	}
	m, err := readMessage(r, maxMessageBytes)
	switch {
	case err != nil:
		return err
	case m.kind == kindOK:
		return nil
	case m.kind == kindRefused:
		return fmt.Errorf("%w: %s", ErrRefused, m.body)
	}
	return fmt.Errorf("%w: kind %d in answer to a hello", errMalformed, m.kind)
}

// Put sets key to value at the server. It blocks for one round trip.
func (c *Client) Put(ctx context.Context, key string, value []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if len(value) > MaxValueBytes {
		return fmt.Errorf("a value of %d bytes, the longest is %d: %w", len(value), MaxValueBytes, ErrLimit)
	}
	_, err := c.call(ctx, message{kind: kindPut, key: key, body: value})
	return err
}

// Get returns the newest value of key, blocking until there is one.
func (c *Client) Get(ctx context.Context, key string) ([]byte, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	value, err := c.call(ctx, message{kind: kindGet, key: key})
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("waiting for key %q: %w", key, err)
	}
	return value, err
}

// Close disconnects and unblocks all calls. It is idempotent.
func (c *Client) Close() error {
	c.end(fmt.Errorf("the rendezvous client: %w", net.ErrClosed))
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
		if m.kind == kindGet {
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
// within a message.
func (c *Client) send(m message) error {
	b := appendMessage(nil, m)
	c.writing.Lock()
	defer c.writing.Unlock()
	c.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := c.conn.Write(b); err != nil {
		return c.end(fmt.Errorf("the connection to the rendezvous failed: %w", err))
	}
	return nil
}

// receive hands answers to their calls until the connection ends.
func (c *Client) receive(r *bufio.Reader) {
	for {
		m, err := readMessage(r, maxMessageBytes)
		if err != nil {
			c.end(fmt.Errorf("the connection to the rendezvous ended: %w", err))
			return
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

// end closes the connection for the reason err, unless it has ended before, and
// returns the reason.
func (c *Client) end(err error) error {
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
	case kindLimit:
		return nil, fmt.Errorf("%w: %s", ErrLimit, m.body)
	case kindFailed:
		return nil, fmt.Errorf("the rendezvous failed: %s", m.body)
	}
	return nil, fmt.Errorf("%w: kind %d in answer to a call", errMalformed, m.kind)
}
