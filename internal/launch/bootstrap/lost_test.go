package bootstrap

import (
	"context"
	"errors"
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
