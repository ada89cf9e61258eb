package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// serveJob has rank 0 serve a job, and others of its ranks join.
func serveJob(t *testing.T, key *secure.Key, ranks ...int) (*Member, []*Member) {
	t.Helper()
	return serveJobAt(t, "127.0.0.1:0", key, ranks...)
}

// serveJobAt is serveJob with the rendezvous at an address.
func serveJobAt(t *testing.T, address string, key *secure.Key, ranks ...int) (*Member, []*Member) {
	t.Helper()
	c := Config{Job: testJob, Size: 4, Rendezvous: address, Serve: true, Key: key}
	first, err := Open(testContext(t), c, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { first.Close() })
	c.Rendezvous, c.Serve = first.rendezvous.(*serving).server.Addr(), false
	var members []*Member
	for _, rank := range ranks {
		c.Rank = rank
		m, err := Open(testContext(t), c, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		members = append(members, m)
	}
	return first, members
}

// closing is a connection that says when it is closed, and when something is written after that.
type closing struct {
	net.Conn
	once   sync.Once
	closed atomic.Pointer[func()]
	late   chan struct{} // of capacity 1
	over   atomic.Bool
}

func (c *closing) Close() error {
	err := c.Conn.Close()
	c.over.Store(true)
	if f := c.closed.Load(); f != nil {
		c.once.Do(*f)
	}
	return err
}

func (c *closing) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if c.over.Load() {
		select {
		case c.late <- struct{}{}:
		default:
		}
	}
	return n, err
}

// closings is a listener whose connections are closings.
type closings struct {
	net.Listener
	accepted chan *closing
}

func (l closings) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	wrapped := &closing{Conn: c, late: make(chan struct{}, 1)}
	l.accepted <- wrapped
	return wrapped, nil
}

// TestEndsAtOnceAreAllTold has a rank die while another's end is being seen to: the answer that
// tells the latter of the former fails then, which says nothing of its own end.
func TestEndsAtOnceAreAllTold(t *testing.T) {
	ctx := testContext(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan *closing, 4)
	c := Config{Job: testJob, Size: 4}
	server, err := newServer(closings{l, accepted}, &c, c.Logger(), 0)
	if err != nil {
		t.Fatal(err)
	}
	server.start()
	defer server.Close()
	join := func(rank int) (*Member, *closing) {
		m, err := Open(ctx, Config{Job: testJob, Size: 4, Rank: rank, Rendezvous: server.Addr()}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m, <-accepted
	}
	one, _ := join(1)
	two, ends := join(2)
	witness, _ := join(3)
	go func() { _, _ = two.End(ctx) }()
	testenv.Await(t, "the call for ends", func() bool { return server.awaited.Load() > 0 })
	others := func() {
		_ = one.Close()
		select {
		case <-ends.late:
		case <-ctx.Done():
		}
	}
	ends.closed.Store(&others)
	_ = two.Close()
	told := map[int]bool{}
	for range 2 {
		e, err := witness.End(ctx)
		if err != nil {
			t.Fatalf("told of %v, then %v", told, err)
		}
		told[e.Rank] = true
	}
	if !told[1] || !told[2] {
		t.Errorf("told of %v, not of 1 and 2", told)
	}
}

// TestEndOfAConnectionTellsOfItsProcess has ranks go without a word: one that others wait for,
// one that has published its place, and one that has left in good order, of which nothing is said.
// Another process may have the rank later.
func TestEndOfAConnectionTellsOfItsProcess(t *testing.T) {
	key := secure.NewKey()
	for _, key := range []*secure.Key{nil, &key} {
		ctx := testContext(t)
		first, ranks := serveJob(t, key, 1, 2, 3)
		dead, left, witness := ranks[0], ranks[1], ranks[2]
		waits := make(chan error)
		go func() {
			_, err := witness.Find(ctx, 1)
			waits <- err
		}()
		if err := errors.Join(left.Publish(ctx, nil), left.Leave(ctx)); err != nil {
			t.Fatal(err)
		}
		_ = left.Close()
		_ = dead.Close()
		check := func(when string, err error) {
			t.Helper()
			e, ok := errors.AsType[*EndedError](err)
			if !ok || e.Rank != 1 || e.Incarnation != dead.Incarnation || !strings.Contains(e.Reason, "closed its connection") {
				t.Errorf("%s: %v", when, err)
			}
		}
		check("who waited", <-waits)
		for _, m := range []*Member{first, witness} {
			ended, err := m.End(ctx)
			if err != nil {
				t.Fatal(err)
			}
			check("an end", &ended.EndedError)
			_, err = m.Find(ctx, 1)
			check("who comes later", err)
			if _, err := m.Find(ctx, 2); !errors.Is(err, ErrLeft) {
				t.Errorf("of one that has left: %v", err)
			}
		}
		again, err := Open(ctx, Config{Job: testJob, Size: 4, Rank: 1, Rendezvous: first.rendezvous.(*serving).server.Addr(), Key: key}, nil, nil)
		if err == nil {
			err = again.Publish(ctx, []byte("here again"))
		}
		if err != nil {
			t.Fatal(err)
		}
		if p, err := witness.Find(ctx, 1); err != nil || string(p.Place) != "here again" {
			t.Errorf("the next process is at %q, %v", p.Place, err)
		}
		again.Close()
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		if ended, err := witness.End(short); err == nil && ended.Rank != 1 {
			t.Errorf("one that has left is said to have ended: %v", ended)
		}
		cancel()
	}
}

// TestEndBeforeAnAnswerIsTold has a rank end when it has asked something: its end shows when the
// answer is written.
func TestEndBeforeAnAnswerIsTold(t *testing.T) {
	ctx := testContext(t)
	first, _ := serveJobAt(t, "unix:"+filepath.Join(t.TempDir(), "rendezvous"), nil)
	c := &Config{Job: testJob, Size: 4, Rank: 1, Rendezvous: first.rendezvous.(*serving).server.Addr()}
	network, address, _ := splitAddress(c.Rendezvous)
	dead, w, err := newClient(c, c.Logger(), network, address, nil).attempt(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer dead.conn.Close()
	if err := dead.conn.(*net.UnixConn).CloseRead(); err != nil { // so that writing to it fails, as to that of a process that has ended
		t.Fatal(err)
	}
	if _, err := dead.conn.Write(appendMessage(nil, message{kind: kindWho, call: 1000})); err != nil {
		t.Fatal(err)
	}
	if ended, err := first.End(ctx); err != nil || ended.Rank != 1 || ended.Incarnation != w.incarnation {
		t.Errorf("rank 1 has ended, and rank 0 is told %+v, %v", ended, err)
	}
}

// TestEndOfTheServingProcessIsTold has rank 0, which serves the rendezvous, die, and leave.
func TestEndOfTheServingProcessIsTold(t *testing.T) {
	for _, dies := range []bool{true, false} {
		ctx := testContext(t)
		first, ranks := serveJob(t, nil, 1)
		ends, finds := make(chan *End, 1), make(chan error, 1)
		go func() {
			ended, err := ranks[0].End(ctx)
			if dies != (err == nil) {
				t.Errorf("rank 0 dies %t: the end is %v", dies, err)
			}
			ends <- ended
		}()
		go func() {
			_, err := ranks[0].Find(ctx, 2)
			finds <- err
		}()
		server := first.rendezvous.(*serving).server
		for server.awaited.Load() < 2 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		want := "has left the job"
		if dies {
			server.listener.Close()
			server.cut()
			want = "its process has ended"
		} else {
			first.rendezvous.(*serving).farewell()
			server.Close()
		}
		if err := <-finds; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rank 0 dies %t: who looks for another rank gets %v", dies, err)
		}
		if ended := <-ends; dies && (ended == nil || ended.Rank != 0 || ended.Incarnation != 0) {
			t.Errorf("the end of rank 0: %+v", ended)
		}
		if ended, err := ranks[0].End(ctx); err == nil {
			t.Errorf("rank 0 has ended twice: %v", ended)
		}
	}
}

// TestEndIsToldToWhoAsksTooLate has rank 0, which serves the rendezvous, die while another rank is
// about to ask something: the call that fails must not hide the death.
func TestEndIsToldToWhoAsksTooLate(t *testing.T) {
	key := secure.NewKey()
	for round := range 20 {
		ctx := testContext(t)
		first, ranks := serveJobAt(t, fmt.Sprintf("unix:%s/%d", t.TempDir(), round), []*secure.Key{nil, &key}[round%2], 1)
		other := ranks[0]
		server := first.rendezvous.(*serving).server
		server.listener.Close()
		server.cut()
		if _, err := other.Attendance(ctx); err == nil || !strings.Contains(err.Error(), "its process has ended") {
			t.Errorf("round %d: who asks a rendezvous whose rank has died: %v", round, err)
		}
		if ended, err := other.End(ctx); ended == nil || ended.Rank != 0 {
			t.Errorf("round %d: the end of rank 0: %v, %v", round, ended, err)
		}
	}
}

// TestSlowEndIsTold has rank 0, which serves the rendezvous, die, and the system close the listener
// some time after the connections.
func TestSlowEndIsTold(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	first, ranks := serveJob(t, nil, 1)
	server := first.rendezvous.(*serving).server
	server.cut()
	time.AfterFunc(time.Second, func() {
		server.listener.Close()
		server.cutUntil(ctx)
	})
	if ended, err := ranks[0].End(ctx); ended == nil || ended.Rank != 0 {
		t.Errorf("the end of rank 0: %v, %v", ended, err)
	}
}

// TestLastAttemptIsReset has clients see whether a rendezvous is gone just while its listener is closed,
// which resets connections that nobody has accepted.
func TestLastAttemptIsReset(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for range 20 {
		first, ranks := serveJob(t, nil, 1)
		server := first.rendezvous.(*serving).server
		server.cut()
		runtime.Gosched()
		server.listener.Close()
		go server.cutUntil(ctx)
		if ended, err := ranks[0].End(ctx); ended == nil || ended.Rank != 0 {
			t.Fatalf("a rendezvous whose listener is closed is not gone: %v, %v", ended, err)
		}
	}
}

// cut closes the connections of all clients, as the system does when the process ends.
func (s *Server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.clients {
		c.Close()
	}
}

// cutUntil does so until ctx ends, also with those that were being accepted.
func (s *Server) cutUntil(ctx context.Context) {
	for ctx.Err() == nil {
		s.cut()
		time.Sleep(time.Millisecond)
	}
}

// TestServerThatLeavesHasNotDied has a rank that serves the rendezvous leave while another has no call that waits.
func TestServerThatLeavesHasNotDied(t *testing.T) {
	ctx := testContext(t)
	first, ranks := serveJob(t, nil, 1)
	first.rendezvous.(*serving).farewell()
	first.rendezvous.(*serving).server.Close()
	<-ranks[0].rendezvous.(*Client).ended
	if ended, err := ranks[0].End(ctx); ended != nil || err == nil || !strings.Contains(err.Error(), "has left the job") {
		t.Errorf("rank 0 has left: %v, %v", ended, err)
	}
}

// TestFailureToJoinIsTold has a rank fail to join that others wait for, and rank 0, which serves
// the rendezvous: one that comes later is told, too.
func TestFailureToJoinIsTold(t *testing.T) {
	ctx := testContext(t)
	first, ranks := serveJob(t, nil, 1, 2)
	why := errors.New(`there is no interface "eth9"`)
	check := func(when string, rank int, err error) {
		t.Helper()
		if e, ok := errors.AsType[*EndedError](err); !ok || e.Rank != rank || !strings.Contains(e.Reason, "it could not join the job: "+why.Error()) {
			t.Errorf("%s: %v", when, err)
		}
	}
	ranks[0].Fail(ctx, why)
	for _, m := range []*Member{first, ranks[1]} {
		_, err := m.Find(ctx, 1)
		check("who waits", 1, err)
		ended, err := m.End(ctx)
		if err != nil {
			t.Fatal(err)
		}
		check("an end", 1, &ended.EndedError)
	}
	failed := make(chan struct{})
	go func() {
		defer close(failed)
		first.Fail(ctx, why)
	}()
	ended, err := ranks[1].End(ctx)
	if err != nil {
		t.Fatal(err)
	}
	check("an end", 0, &ended.EndedError)
	late, err := Open(ctx, Config{Job: testJob, Size: 4, Rank: 3, Rendezvous: first.rendezvous.(*serving).server.Addr()}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = late.Find(ctx, 0)
	check("who comes later", 0, err)
	late.Close()
	ranks[1].Close()
	<-failed
}

// TestPartingSaysWhy has ranks leave whose programs have failed, the one that serves the rendezvous too. The others
// are told why, now and later, whatever is said of their processes afterwards; and when they began to.
func TestPartingSaysWhy(t *testing.T) {
	ctx := testContext(t)
	for _, rank := range []int{0, 1} {
		first, members := serveJob(t, nil, 1, 2)
		server := first.rendezvous.(*serving).server
		culprit := append([]*Member{first}, members...)[rank]
		witness := members[1]
		if at := server.Parting(rank); !at.At.IsZero() {
			t.Errorf("rank %d has begun to leave at %v", rank, at.At)
		}
		if err := errors.Join(culprit.Publish(ctx, []byte("here")), culprit.Part(ctx, "open /nothere"), culprit.Part(ctx, "a later one"), culprit.Leave(ctx)); err != nil {
			t.Fatal(err)
		}
		if p := server.Parting(rank); p.At.IsZero() || p.Why != "open /nothere" {
			t.Errorf("rank %d has left at %v: %q", rank, p.At, p.Why)
		}
		if ended, err := witness.End(ctx); err != nil || ended.Rank != rank || ended.Reason != "open /nothere" {
			t.Errorf("rank %d: told of %v, %v", rank, ended, err)
		}
		if rank == 1 {
			server.Ended(rank, "it exited with status 1")
		}
		if _, err := witness.Find(ctx, rank); err == nil || err.Error() != "open /nothere" {
			t.Errorf("rank %d: looked for later: %v", rank, err)
		}
		if rank > 0 {
			continue
		}
		first.rendezvous.(*serving).farewell()
		if _, err := witness.Find(ctx, 1); err == nil || !strings.Contains(err.Error(), "has left the job: open /nothere") {
			t.Errorf("the rendezvous ends with %v", err)
		}
	}
}

// TestPartingIsForgotten has another process take the rank of one that has begun to leave.
func TestPartingIsForgotten(t *testing.T) {
	ctx := testContext(t)
	first, members := serveJob(t, nil, 1)
	server := first.rendezvous.(*serving).server
	if err := members[0].Part(ctx, "why"); err != nil {
		t.Fatal(err)
	}
	_ = members[0].Close()
	again, err := Open(ctx, Config{Job: testJob, Size: 4, Rank: 1, Rendezvous: server.Addr()}, nil, nil)
	if err == nil {
		err = again.Publish(ctx, []byte("here again"))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if p := server.Parting(1); !p.At.IsZero() {
		t.Errorf("the new process has left at %v: %q", p.At, p.Why)
	}
}

// TestResetWithinHostIsADeath has a process end with answers that it has not read, which resets its connection: to the
// loopback address, and to another one of this host.
func TestResetWithinHostIsADeath(t *testing.T) {
	ctx := testContext(t)
	addresses := []string{"127.0.0.1"}
	if outward := outwardAddress(ctx, netip.Addr{}); !outward.IsLoopback() {
		addresses = append(addresses, outward.String())
	}
	for _, address := range addresses {
		l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
		if err != nil {
			t.Fatal(err)
		}
		c := Config{Job: testJob, Size: 2, Rank: 1, Rendezvous: l.Addr().String()}
		server, err := newServer(l, &c, c.Logger(), 0)
		if err != nil {
			t.Fatal(err)
		}
		server.start()
		defer server.Close()
		client, err := Dial(ctx, &c, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		client.way().(*net.TCPConn).SetLinger(0) // has Close reset it
		client.Close()
		self := local{board: server.board, members: server.members, size: 2}
		if ended, err := self.End(ctx); err != nil || ended.Rank != 1 {
			t.Errorf("%s: %v, %v", address, ended, err)
		}
	}
}
