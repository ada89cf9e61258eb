package bootstrap

import (
	"bufio"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// dialTimeout bounds Dial when neither its context nor its place has a limit.
	dialTimeout  = time.Minute
	dialPauseMin = 5 * time.Millisecond
	dialPauseMax = 200 * time.Millisecond
	tryTimeout   = 10 * time.Second // bounds one attempt of several
)

// Dial connects to the rendezvous of the place c, as the rank that c says. While nobody
// listens there it tries again, and passes to failed, unless that is nil, why an attempt
// has failed. It gives up when ctx ends or, when ctx has no deadline, after c.Patience,
// and at once if the rendezvous refuses this process.
func Dial(ctx context.Context, c *Config, failed func(error)) (*Client, error) {
	return connect(ctx, c, c.Logger(), failed)
}

// connect is Dial with a log of its own.
func connect(ctx context.Context, c *Config, log *slog.Logger, failed func(error)) (*Client, error) {
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
	client := newClient(c, log, network, address, security)
	ctx, cancel := c.patient(ctx)
	defer cancel()
	var reason error // of the last attempt that nothing has cut short
	for pause := dialPauseMin; ; pause = min(2*pause, dialPauseMax) {
		begun := time.Now()
		way, w, err := client.attempt(ctx)
		if err == nil {
			client.begin(way, w)
			return client, nil
		}
		if errors.Is(err, ErrRefused) {
			return nil, fmt.Errorf("rendezvous at %s: %w", c.Rendezvous, err)
		}
		if wait, ok := errors.AsType[*busy](err); ok {
			reason = wait
		} else if reason == nil || !cutShort(ctx, begun, err) {
			reason = explainDial(err)
		}
		if failed != nil && ctx.Err() == nil {
			failed(reason)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			if wait, ok := errors.AsType[*busy](reason); ok {
				return nil, fmt.Errorf("rendezvous at %s: %w: %w", c.Rendezvous, ErrRefused, wait)
			}
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

// way is a connection on which the rendezvous has taken this process in.
type way struct {
	conn net.Conn
	r    *bufio.Reader
}

// attempt makes one attempt to connect.
func (c *Client) attempt(ctx context.Context) (way, welcome, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	d := net.Dialer{KeepAliveConfig: keepAlive} // a connection that was reset at the other end alone is noticed by that
	conn, err := d.DialContext(ctx, c.network, c.address)
	if err != nil {
		return way{}, welcome{}, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	to, w, err := c.greet(ctx, conn)
	if !stop() && (err == nil || errors.Is(err, net.ErrClosed)) {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
	}
	return to, w, err
}

// refusal is that the rendezvous has said why it does not take this process in. To a process that comes again, in a job with a
// key, nobody else can say so.
type refusal struct{ why string }

func (r *refusal) Error() string { return fmt.Sprintf("%v: %s", ErrRefused, r.why) }
func (r *refusal) Unwrap() error { return ErrRefused }

// greet begins TLS over conn, if the job has a key, and says hello. Of a rendezvous that has admitted this process
// before, it has proof that it is the same.
func (c *Client) greet(ctx context.Context, conn net.Conn) (to way, w welcome, err error) {
	if err := checkUser(conn); err != nil {
		return to, w, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if c.security != nil {
		if conn, err = shakeHands(ctx, tls.Client(conn, c.security)); err != nil {
			return to, w, explainTLS(err)
		}
	}
	again := c.welcome.incarnation != 0
	said := introduction{level: c.place.askedLevel(), incarnation: c.welcome.incarnation, identity: identity(c.identity.Public().(ed25519.PublicKey)), from: endOf(conn.LocalAddr())}
	if err := said.prove(conn, c.place.Rank, c.identity); err != nil {
		return to, w, err
	}
	hello := message{kind: kindHello, rank: c.place.Rank, size: c.place.Size, body: helloBody(&said, c.place.Token())}
	if _, err := conn.Write(appendMessage(nil, hello)); err != nil {
		return to, w, explainTLS(err)
	}
	to = way{conn, bufio.NewReader(conn)}
	m, err := readMessage(to.r, maxMessageBytes)
	switch {
	case err != nil:
		return to, w, explainTLS(err)
	case m.kind == kindRefused:
		return to, w, c.refused(conn, m.body)
	case m.kind == kindBusy:
		return to, w, &busy{why: string(m.body)}
	case m.kind != kindOK:
		return to, w, fmt.Errorf("%w: kind %d in answer to a hello", errMalformed, m.kind)
	}
	if w, err = parseWelcome(m.body, &c.place, again); err == nil && again {
		err = c.verify(conn, &w)
	}
	return to, w, err
}

// refused returns why the rendezvous has refused this process: a *refusal, unless somebody else may have said so.
func (c *Client) refused(conn net.Conn, body []byte) error {
	if before := c.welcome.credentials; before != nil {
		if len(body) < ed25519.SignatureSize {
			return errOther
		}
		signed, why := body[:ed25519.SignatureSize], body[ed25519.SignatureSize:]
		if words, err := refusedAgain(conn, string(why)); err != nil || !ed25519.Verify(before.signing, words, signed) {
			return errOther
		}
		body = why
	}
	return &refusal{string(body)}
}

var errOther = errors.New("another rendezvous than before answers there")

// verify returns an error unless the rendezvous is the one that has admitted this process before.
func (c *Client) verify(conn net.Conn, w *welcome) error {
	before := &c.welcome
	same := w.incarnation == before.incarnation && w.server == before.server
	if before.credentials != nil && same {
		words, err := sameAgain(conn)
		if err != nil {
			return err
		}
		same = w.credentials.run == before.credentials.run && w.credentials.level == before.credentials.level &&
			subtle.ConstantTimeCompare(w.credentials.key[:], before.credentials.key[:]) == 1 &&
			ed25519.Verify(before.credentials.signing, words, w.proof)
	}
	if !same {
		return errOther
	}
	return nil
}
