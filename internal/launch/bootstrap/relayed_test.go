package bootstrap

import (
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// relay passes what comes by l on to a server. How says of the n-th connection what is to become of it, given both ends.
func relay(t *testing.T, s *Server, how func(n int, client, server net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for n := 0; ; n++ {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", s.listener.Addr().String())
			if err != nil {
				client.Close()
				return
			}
			t.Cleanup(func() { server.Close() })
			go how(n, client, server)
		}
	}()
	return "tcp:" + l.Addr().String()
}

// pass passes both ways on, until either end closes.
func pass(client, server net.Conn) {
	go func() {
		_, _ = io.Copy(server, client)
		server.Close()
	}()
	_, _ = io.Copy(client, server)
	client.Close()
}

// TestJoinIsCutHalfWay resets the connection of a process that joins at its end alone, when it was admitted and has not heard so.
func TestJoinIsCutHalfWay(t *testing.T) {
	s, _ := serveFar(t, 0, nil, time.Hour)
	address := relay(t, s, func(n int, client, server net.Conn) {
		if n > 0 {
			pass(client, server)
			return
		}
		go func() { _, _ = io.Copy(server, client) }()
		_, _ = server.Read(make([]byte, 1)) // the answer, which stays open
		client.Close()
	})
	m, err := Open(testContext(t), Config{Job: testJob, Size: 4, Rank: 1, Rendezvous: address}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
}

// TestJoinIsCutAtBothEnds cuts it for both ends: nobody is told that the process has ended, which comes again.
func TestJoinIsCutAtBothEnds(t *testing.T) {
	ctx := testContext(t)
	s, self := serveFar(t, 0, nil, time.Hour)
	answering(t, self, func() bool { return false })
	address := relay(t, s, func(n int, client, server net.Conn) {
		if n > 0 {
			pass(client, server)
			return
		}
		go func() { _, _ = io.Copy(server, client) }()
		_, _ = server.Read(make([]byte, 1))
		client.Close()
		server.Close()
	})
	m, err := Open(ctx, Config{Job: testJob, Size: 4, Rank: 1, Rendezvous: address}, nil, nil)
	if err == nil {
		defer m.Close()
		err = m.Publish(ctx, []byte("here"))
	}
	if err != nil {
		t.Fatal(err)
	}
	if p, _, err := self.find(ctx, 1, true); err != nil || string(p.Place) != "here" {
		t.Errorf("the rank is at %q, %v", p.Place, err)
	}
}

// TestSlowSuccessorIsAdmitted has a process want the rank of a dead one that comes seldom, over a slow path.
func TestSlowSuccessorIsAdmitted(t *testing.T) {
	m := newMembers(slog.New(slog.DiscardHandler), 5*time.Second, 0)
	now := time.Unix(1000, 0)
	m.now = func() time.Time { return now }
	v := &visit{hangUp: func() {}}
	incarnation, err := m.enter(1, 4, identity{1}, v, nil)
	if err != nil {
		t.Fatal(err)
	}
	m.leave(1, v, false)
	for range 10 {
		now = now.Add(1100 * time.Millisecond)
		if _, err = m.enter(1, 4, identity{2}, &visit{}, func(uint64) { m.ask(1, incarnation) }); err == nil {
			return
		}
	}
	t.Errorf("it is not admitted: %v", err)
}

// secureTo begins TLS with a server.
func secureTo(t *testing.T, s *Server, security *tls.Config) net.Conn {
	t.Helper()
	raw, err := net.Dial("tcp", s.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	conn, err := shakeHands(testContext(t), tls.Client(raw, security))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestIdentityIsProven has somebody who knows the identity of a process say hello by it, for the first time, without a signature and with one
// of another connection.
func TestIdentityIsProven(t *testing.T) {
	key := secure.NewKey()
	ctx := testContext(t)
	s, self := serveFar(t, 0, &key, time.Hour)
	c := Config{Job: testJob, Size: 4, Rank: 1, Key: &key, Rendezvous: s.Addr()}
	m, err := Open(ctx, c, nil, nil)
	if err == nil {
		defer m.Close()
		err = m.Publish(ctx, []byte("here"))
	}
	if err != nil {
		t.Fatal(err)
	}
	security, err := c.tls()
	if err != nil {
		t.Fatal(err)
	}
	victim := m.rendezvous.(*Client)
	said := introduction{identity: identity(victim.identity.Public().(ed25519.PublicKey))}
	for range 2 {
		conn := secureTo(t, s, security)
		if _, err := conn.Write(appendMessage(nil, message{kind: kindHello, rank: 1, size: 4, body: helloBody(&said, c.Token())})); err != nil {
			t.Fatal(err)
		}
		if a, err := readMessage(conn, maxMessageBytes); err != nil || a.kind != kindRefused {
			t.Errorf("answered by kind %d, %v", a.kind, err)
		}
		if err := said.prove(victim.way(), 1, victim.identity); err != nil {
			t.Fatal(err)
		}
	}
	if p, _, err := self.find(ctx, 1, true); err != nil || string(p.Place) != "here" {
		t.Errorf("the rank is at %q, %v", p.Place, err)
	}
}

// TestTunnelIsNotTheKernel has a rank come through a tunnel that ends at a loopback address and is started anew: neither end takes that for
// the end of the other's process.
func TestTunnelIsNotTheKernel(t *testing.T) {
	ctx := testContext(t)
	first, _ := serveJob(t, nil)
	s := first.rendezvous.(*serving).server
	tunnels := make(chan net.Conn, 10)
	address := relay(t, s, func(_ int, client, server net.Conn) {
		tunnels <- client
		pass(client, server)
	})
	m, err := Open(ctx, Config{Job: testJob, Size: 4, Rank: 1, Rendezvous: address}, nil, nil)
	if err == nil {
		err = m.Publish(ctx, []byte("here"))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	(<-tunnels).Close()
	<-tunnels
	if _, err := m.Attendance(ctx); err != nil || m.rendezvous.(*Client).within {
		t.Errorf("the rank counts as one of this host, or %v", err)
	}
	if p, err := first.Find(ctx, 1); err != nil || string(p.Place) != "here" {
		t.Errorf("it is at %q, %v", p.Place, err)
	}
	if err := m.Leave(ctx); err != nil {
		t.Error(err)
	}
}

// TestServingRankIsNobodyElse has members say that they are the rank that serves the rendezvous, come again. Its identity is no
// key; of a key of zeros, which is a point of order 4, anybody has signatures.
func TestServingRankIsNobodyElse(t *testing.T) {
	key := secure.NewKey()
	first, _ := serveJob(t, &key)
	s := first.rendezvous.(*serving).server
	c := &Config{Job: testJob, Size: 4, Key: &key}
	security, err := c.tls()
	if err != nil {
		t.Fatal(err)
	}
	order4 := [][32]byte{{1}, {}, {31: 0x80}, {0xec, 30: 0xff, 31: 0x7f}}
	for i := 1; i < 30; i++ {
		order4[3][i] = 0xff
	}
	for forged := false; !forged; {
		conn := secureTo(t, s, security)
		said := introduction{level: c.askedLevel(), incarnation: first.Incarnation}
		words, err := said.words(conn, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, point := range order4 {
			if said.proof = (signature{}); !forged {
				copy(said.proof[:], point[:])
				forged = ed25519.Verify(said.identity[:], words, said.proof[:])
			}
		}
		if !forged {
			continue
		}
		if said.proven(conn, 0) {
			t.Error("a signature of nobody is believed")
		}
		if err := s.members.reenter(0, first.Incarnation, identity{}, &visit{from: "there"}); !errors.Is(err, nil) && !strings.Contains(err.Error(), "never admitted") || err == nil {
			t.Errorf("the rank that serves comes again: %v", err)
		}
	}
}

// TestLateCallDoesNotCount has a process come again, and leave, while a call that it has made over its first connection
// waits to be carried out.
func TestLateCallDoesNotCount(t *testing.T) {
	ctx := testContext(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gated{armed: make(chan struct{}), got: make(chan struct{}, 1), gate: make(chan struct{})}
	c := Config{Job: testJob, Size: 4, DeadAfter: time.Hour}
	s, err := newServer(&gating{Listener: l, first: g}, &c, c.Logger(), 0)
	if err != nil {
		t.Fatal(err)
	}
	s.start()
	defer s.Close()
	self := &local{board: s.board, members: s.members, size: 4}
	m, err := joinFar(t, s, 1)
	if err != nil {
		t.Fatal(err)
	}
	close(g.armed)
	done := make(chan error, 1)
	go func() { done <- errors.Join(m.Publish(ctx, []byte("here")), m.Leave(ctx)) }()
	<-g.got
	m.rendezvous.(*Client).way().Close()
	time.AfterFunc(returnLimit, func() { close(g.gate) })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * returnLimit)
	if p, _, err := self.find(ctx, 1, true); !errors.Is(err, ErrLeft) {
		t.Errorf("a rank that has left is at %s, %v", p.Place, err)
	}
}

// gated is a connection whose reads, once armed, return what they have only when the gate opens.
type gated struct {
	net.Conn
	armed, got, gate chan struct{}
}

func (g gated) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	select {
	case <-g.armed:
		if n > 0 {
			select {
			case g.got <- struct{}{}:
			default:
			}
			<-g.gate
		}
	default:
	}
	return n, err
}

// gating is a listener whose first connection is gated.
type gating struct {
	net.Listener
	first *gated
}

func (l *gating) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil || l.first == nil {
		return farConn{c}, err
	}
	g := *l.first
	l.first = nil
	g.Conn = farConn{c}
	return g, nil
}
