package bootstrap

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// far is a listener whose connections come from another host.
type far struct{ net.Listener }

type farConn struct{ net.Conn }

func (l far) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return farConn{c}, err
}

func (farConn) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }
func (farConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 1} }

// serveFar has a rank serve a job for others on other hosts, or if it is noRank, something else.
func serveFar(t *testing.T, rank int, key *secure.Key, silence time.Duration) (*Server, *local) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Job: testJob, Size: 4, Key: key, DeadAfter: silence}
	s, err := newServer(far{l}, &c, c.Logger(), rank)
	if err != nil {
		t.Fatal(err)
	}
	s.start()
	t.Cleanup(func() { s.Close() })
	return s, &local{board: s.board, members: s.members, rank: rank, size: 4}
}

func joinFar(t *testing.T, s *Server, rank int) (*Member, error) {
	t.Helper()
	m, err := Open(testContext(t), Config{Job: testJob, Size: 4, Rank: rank, Rendezvous: s.Addr()}, nil, nil)
	if err == nil {
		t.Cleanup(func() { m.Close() })
	}
	return m, err
}

const shortSilence = 600 * time.Millisecond

// answering has a member answer all questions, by what lives says, until the test ends.
func answering(t *testing.T, m rendezvous, lives func() bool) {
	ctx, cancel := context.WithCancel(testContext(t))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			e, err := m.End(ctx)
			if err != nil {
				return
			}
			if e.Suspected {
				_ = m.Asked(ctx, e, lives())
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// lose has a rank join from another host, publish its place, and lose its connection for good.
func lose(t *testing.T, s *Server, rank int) *Member {
	t.Helper()
	m, err := joinFar(t, s, rank)
	if err == nil {
		err = m.Publish(testContext(t), []byte("here"))
	}
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	testenv.Await(t, "the loss", func() bool {
		s.members.mu.Lock()
		defer s.members.mu.Unlock()
		return s.members.ranks[rank].visit == nil
	})
	return m
}

// TestLostRankIsAsked has the connections of ranks on other hosts end without a word. One that answers lives, and nobody gets its
// place. One that is silent has died, and another process gets the place then.
func TestLostRankIsAsked(t *testing.T) {
	for _, lives := range []bool{true, false} {
		t.Run(map[bool]string{true: "lives", false: "dead"}[lives], func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			s, self := serveFar(t, 0, nil, shortSilence)
			s.members.limit = 100 * time.Millisecond
			lost := lose(t, s, 1)
			e, err := self.End(ctx)
			if err != nil || !e.Suspected || e.Asker != 0 || e.Rank != 1 || e.Incarnation != lost.Incarnation || !strings.Contains(e.Reason, "was lost") {
				t.Fatalf("told of %+v, %v", e, err)
			}
			if p, _, err := self.find(ctx, 1, true); err != nil || string(p.Place) != "here" {
				t.Errorf("nobody is sure yet, and the rank is at %q, %v", p.Place, err)
			}
			if err := self.Asked(ctx, e, lives); err != nil {
				t.Fatal(err)
			}
			if !lives {
				if e, err = self.End(ctx); err != nil || !e.Suspected || e.Incarnation != lost.Incarnation {
					t.Errorf("told of %+v, %v", e, err)
				}
				if _, _, err := self.find(ctx, 1, true); err == nil || !strings.Contains(err.Error(), "its process has ended") {
					t.Errorf("of one that is silent: %v", err)
				}
			}
			answering(t, self, func() bool { return lives })
			next, err := joinFar(t, s, 1)
			if lives && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "lives: its connection to the rendezvous was lost")) {
				t.Errorf("another process joins as a rank that lives: %v", err)
			}
			if !lives && (err != nil || next.Incarnation <= lost.Incarnation) {
				t.Errorf("no other process joins as a rank that is silent: %v", err)
			}
		})
	}
}

// TestOthersHearALostRank has a launcher serve the rendezvous: a member is asked, and the word of one that does not hear a
// rank does not count beside that of one that does.
func TestOthersHearALostRank(t *testing.T) {
	for _, heard := range []bool{true, false} {
		t.Run(map[bool]string{true: "heard", false: "silent"}[heard], func(t *testing.T) {
			t.Parallel()
			s, _ := serveFar(t, noRank, nil, shortSilence)
			s.members.limit = 100 * time.Millisecond
			for _, rank := range []int{0, 2} {
				m, err := joinFar(t, s, rank)
				if err != nil {
					t.Fatal(err)
				}
				answering(t, m.rendezvous, func() bool { return heard && rank == 2 })
			}
			lose(t, s, 1)
			if _, err := joinFar(t, s, 1); heard != errors.Is(err, ErrRefused) || !heard && err != nil {
				t.Errorf("another process joins as the rank: %v", err)
			}
		})
	}
}

// TestAnswerToAnEarlierQuestionIsNone has a member tell late that a rank has answered which has died since.
func TestAnswerToAnEarlierQuestionIsNone(t *testing.T) {
	ctx := testContext(t)
	s, self := serveFar(t, 0, nil, shortSilence)
	lose(t, s, 1)
	before, err := self.End(ctx)
	if err == nil {
		err = self.Asked(ctx, before, true)
	}
	var now *End
	if err == nil {
		now, err = self.End(ctx) // one that lives and does not come again is asked again
	}
	if err != nil || now.Question == before.Question {
		t.Fatalf("asked again: %+v, %v", now, err)
	}
	other := &local{board: s.board, members: s.members, rank: 2, size: 4}
	if err := errors.Join(other.Asked(ctx, before, true), self.Asked(ctx, now, false)); err != nil {
		t.Fatal(err)
	}
	if _, err := self.End(ctx); err != nil {
		t.Fatal(err)
	}
	if p, _, err := self.find(ctx, 1, true); err == nil {
		t.Errorf("the dead rank is at %s", p.Place)
	}
}

// TestAbandonedWaitTakesNoPlace has processes that want a rank go while they wait for it: the next one does not wait for them.
func TestAbandonedWaitTakesNoPlace(t *testing.T) {
	ctx := testContext(t)
	s, self := serveFar(t, 0, nil, shortSilence)
	lost := lose(t, s, 1)
	answering(t, self, func() bool { return false })
	c := &Config{Job: testJob, Size: 4, Rank: 1, Rendezvous: s.Addr()}
	network, address, _ := splitAddress(s.Addr())
	for range 5 {
		if _, _, err := newClient(c, c.Logger(), network, address, nil).attempt(ctx); err == nil || !strings.Contains(err.Error(), "connection to the rendezvous was lost") {
			t.Fatalf("a process that is to wait: %v", err)
		}
	}
	next, err := joinFar(t, s, 1)
	if err != nil || next.Incarnation <= lost.Incarnation {
		t.Fatal(err)
	}
	s.members.mu.Lock()
	defer s.members.mu.Unlock()
	if n := s.members.lost; n != 1 {
		t.Errorf("%d connections were lost, want 1", n)
	}
}

// TestSilentProcessDoesNotComeAgain has a process come again after the others were told that it has ended.
func TestSilentProcessDoesNotComeAgain(t *testing.T) {
	ctx := testContext(t)
	s, self := serveFar(t, 0, nil, shortSilence)
	answering(t, self, func() bool { return false })
	lost := lose(t, s, 1)
	testenv.Await(t, "the end", func() bool {
		_, _, err := self.find(ctx, 1, true)
		return err != nil
	})
	if err := again(t, s.Addr(), nil, 1, lost.Incarnation, lost.rendezvous.(*Client).identity); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "were told that it has ended") {
		t.Errorf("it comes again: %v", err)
	}
}

// TestLostFarewellIsOne has a rank begin to leave, and lose its connection before it has left.
func TestLostFarewellIsOne(t *testing.T) {
	ctx := testContext(t)
	s, self := serveFar(t, 0, nil, shortSilence)
	answering(t, self, func() bool { return false })
	m, err := joinFar(t, s, 1)
	if err == nil {
		err = errors.Join(m.Publish(ctx, []byte("here")), m.Part(ctx, ""))
	}
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	testenv.Await(t, "what is said of it", func() bool {
		_, _, err = self.find(ctx, 1, true)
		return err != nil
	})
	if !errors.Is(err, ErrLeft) {
		t.Errorf("a rank that has left: %v", err)
	}
}

// TestServerWaitsForThoseWhoComeAgain has a rank that serves the rendezvous leave while the connection of another is lost.
func TestServerWaitsForThoseWhoComeAgain(t *testing.T) {
	s, self := serveFar(t, 0, nil, time.Hour)
	come := make(chan struct{})
	address := relay(t, s, func(n int, client, server net.Conn) {
		if n > 0 {
			<-come
		}
		pass(client, server)
	})
	m, err := Open(testContext(t), Config{Job: testJob, Size: 4, Rank: 1, Rendezvous: address}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s.cut()
	testenv.Await(t, "the loss", s.members.away)
	time.AfterFunc(2*returnLimit, func() { close(come) })
	closed := make(chan error)
	go func() { closed <- (&serving{*self, s}).Close() }()
	if err := m.Leave(testContext(t)); err != nil {
		t.Errorf("the rank that comes again leaves: %v", err)
	}
	m.Close()
	<-closed
}

// TestSuspicionsAreFew has a rank suspected again and again: one suspicion of it is kept, and none once it has come again.
func TestSuspicionsAreFew(t *testing.T) {
	s, self := serveFar(t, 0, nil, time.Hour)
	m, err := joinFar(t, s, 1)
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		s.doubt(1, m.Incarnation, errors.New("why"))
	}
	kept := func() int {
		s.board.mu.Lock()
		defer s.board.mu.Unlock()
		return len(s.board.news)
	}
	if n := kept(); n != 1 {
		t.Errorf("%d suspicions are kept", n)
	}
	if e, err := self.End(testContext(t)); err != nil || e.Question != 1000 {
		t.Errorf("told of %+v, %v", e, err)
	}
	s.cut()
	testenv.Await(t, "the end of the suspicion", func() bool { return kept() == 0 })
}

// TestFullServerTakesInWhoComesAgain has a rank whose connection was reset at its end alone come again to a full rendezvous.
func TestFullServerTakesInWhoComesAgain(t *testing.T) {
	s, _ := serveFar(t, 0, nil, time.Hour)
	m, err := joinFar(t, s, 1)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	for len(s.clients) < MaxClients {
		a, _ := net.Pipe()
		s.clients[a] = nil
	}
	s.mu.Unlock()
	client := m.rendezvous.(*Client)
	before := client.way()
	before.SetReadDeadline(time.Now()) // so that it gives the connection up
	testenv.Await(t, "another connection", func() bool { now := client.way(); return now != nil && now != before })
	c := &Config{Job: testJob, Size: 4, Rank: 2, Rendezvous: s.Addr()}
	network, address, _ := splitAddress(s.Addr())
	if _, _, err := newClient(c, c.Logger(), network, address, nil).attempt(testContext(t)); err == nil || errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "which is the limit") {
		t.Errorf("a rank that comes for the first time: %v", err)
	}
}

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
	ctx := testContext(t)
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
		raw, err := net.Dial("tcp", s.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		conn, err := shakeHands(ctx, tls.Client(raw, security))
		if err != nil {
			t.Fatal(err)
		}
		said := introduction{level: c.askedLevel(), incarnation: first.Incarnation}
		words, err := said.again(conn, 0)
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

// TestServerThatIsGoneIsAsked has a rank that serves the rendezvous be gone with its host, whose address answers nothing any more: an attempt to
// connect takes long, and nobody waits for it.
func TestServerThatIsGoneIsAsked(t *testing.T) {
	ctx := testContext(t)
	first, _ := serveJob(t, nil)
	s := first.rendezvous.(*serving).server
	m, err := Open(ctx, Config{Job: testJob, Size: 4, Rank: 1, Rendezvous: s.Addr(), DeadAfter: shortSilence}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	hole, err := net.Listen("tcp", "127.0.0.1:0") // where nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	m.rendezvous.(*Client).elsewhere(hole.Addr().String())
	s.listener.Close()
	s.cut()
	begun := time.Now()
	if e, err := m.End(ctx); err != nil || !e.Suspected || e.Rank != 0 {
		t.Errorf("told of %+v, %v", e, err)
	}
	if _, err := m.Find(ctx, 2); err == nil || !strings.Contains(err.Error(), "was lost") {
		t.Errorf("who looks for a rank: %v", err)
	}
	if time.Since(begun) > tryTimeout {
		t.Error("it takes as long as an attempt to connect")
	}
}

// TestRankThatSaysGoodbyeIsNotAsked has ranks on other hosts leave, and not join: another process gets the place at once.
func TestRankThatSaysGoodbyeIsNotAsked(t *testing.T) {
	ctx := testContext(t)
	s, self := serveFar(t, 0, nil, time.Hour)
	for rank := 1; rank <= 2; rank++ {
		m, err := joinFar(t, s, rank)
		if err != nil {
			t.Fatal(err)
		}
		if rank == 1 {
			if err := errors.Join(m.Publish(ctx, []byte("here")), m.Leave(ctx)); err != nil {
				t.Fatal(err)
			}
			m.Close()
		} else {
			m.Fail(ctx, errors.New("there is no interface"))
		}
		if _, err := joinFar(t, s, rank); err != nil {
			t.Error(err)
		}
	}
	if e, err := self.End(ctx); err != nil || e.Suspected || e.Rank != 2 {
		t.Errorf("told of %+v, %v", e, err)
	}
	short, cancel := context.WithTimeout(ctx, 2*returnLimit)
	defer cancel()
	if e, err := self.End(short); err == nil {
		t.Errorf("told of %+v", e)
	}
}
