package bootstrap

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// way returns the present connection, nil if there is none.
func (c *Client) way() net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn
}

// elsewhere has the rendezvous be on another host, and connections be opened again to an address.
func (c *Client) elsewhere(address string) {
	c.mu.Lock() // as reopen does before it looks at these
	defer c.mu.Unlock()
	c.within, c.address = false, address
}

// waiting returns once the server has so many calls to answer.
func waiting(t *testing.T, s *Server, n int32) {
	t.Helper()
	testenv.Await(t, "calls that wait", func() bool { return s.awaited.Load() == n })
}

// TestLostConnectionIsOpenedAgain cuts the connections of a rank again and again: its calls go on, and nobody takes it for dead. A rank
// of another host cuts some itself. On this host that would be its end.
func TestLostConnectionIsOpenedAgain(t *testing.T) {
	key := secure.NewKey()
	for name, c := range map[string]struct {
		address string
		key     *secure.Key
		far     bool
	}{
		"TCP": {address: "127.0.0.1:0"}, "unix": {address: "unix:" + filepath.Join(t.TempDir(), "rendezvous")},
		"key": {address: "127.0.0.1:0", key: &key}, "far": {far: true}, "far, key": {far: true, key: &key},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			var server *Server
			var self *local
			if c.far {
				server, self = serveFar(t, 0, c.key, time.Hour)
			} else {
				first, _ := serveJobAt(t, c.address, c.key)
				server, self = first.rendezvous.(*serving).server, &first.rendezvous.(*serving).local
			}
			var ranks []*Member
			for rank := 1; rank <= 2; rank++ {
				m, err := Open(ctx, Config{Job: testJob, Size: 4, Rank: rank, Rendezvous: server.Addr(), Key: c.key}, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				ranks = append(ranks, m)
			}
			cut, client := ranks[0], ranks[0].rendezvous.(*Client)
			if err := cut.Publish(ctx, []byte("here")); err != nil {
				t.Fatal(err)
			}
			found, ended := make(chan error, 1), make(chan error, 1)
			go func() {
				p, err := cut.Find(ctx, 2)
				if err == nil && string(p.Place) != "there" {
					err = errors.New(string(p.Place))
				}
				found <- err
			}()
			go func() {
				e, err := cut.End(ctx)
				for err == nil && e.Suspected { // on a busy machine it may take a while until another connection is there
					e, err = cut.End(ctx)
				}
				if err == nil && e.Rank != 2 {
					err = e
				}
				ended <- err
			}()
			for n := range 3 {
				waiting(t, server, 2)
				before := client.way()
				if c.far && n%2 == 0 {
					before.Close()
				} else {
					server.cut()
				}
				testenv.Await(t, "another connection", func() bool { now := client.way(); return now != nil && now != before })
				if _, err := cut.Attendance(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if err := ranks[1].Publish(ctx, []byte("there")); err != nil {
				t.Fatal(err)
			}
			if err := <-found; err != nil {
				t.Error(err)
			}
			server.Ended(2, "it was killed")
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if p, _, err := self.find(ctx, 1, true); err != nil || string(p.Place) != "here" || p.Incarnation != cut.Incarnation {
				t.Errorf("the rank is at %q in life %d: %v", p.Place, p.Incarnation, err)
			}
			if who, err := cut.Attendance(ctx); err != nil || !strings.Contains(who, "opened again by the same processes") {
				t.Errorf("%q, %v", who, err)
			}
		})
	}
}

// again is what a process says that wants to be taken for one which was admitted before.
func again(t *testing.T, server string, key *secure.Key, rank int, life uint64, who ed25519.PrivateKey) error {
	t.Helper()
	c := &Config{Job: testJob, Size: 4, Rank: rank, Rendezvous: server, Key: key}
	security, err := c.tls()
	if err != nil {
		t.Fatal(err)
	}
	network, address, _ := splitAddress(server)
	impostor := newClient(c, c.Logger(), network, address, security)
	impostor.welcome.incarnation = life
	if who != nil {
		impostor.identity = who
	}
	to, _, err := impostor.attempt(testContext(t))
	if to.conn != nil {
		to.conn.Close()
	}
	return err
}

// TestOnlyTheSameProcessComesAgain has members say that they are a process whose connection was lost, or that lives: without its
// key, in another life, and as another rank.
func TestOnlyTheSameProcessComesAgain(t *testing.T) {
	key := secure.NewKey()
	for _, key := range []*secure.Key{nil, &key} {
		ctx := testContext(t)
		first, ranks := serveJob(t, key, 1, 2)
		server := first.rendezvous.(*serving).server
		own := ranks[0].rendezvous.(*Client).identity
		for _, c := range []struct {
			why  string
			rank int
			life uint64
			who  ed25519.PrivateKey
			want string
		}{
			{"with another key", 1, ranks[0].Incarnation, nil, "another process"},
			{"in an earlier life", 1, ranks[0].Incarnation - 1, own, "another process"},
			{"in a later life", 1, ranks[0].Incarnation + 1, own, "has never admitted it"},
			{"as another rank", 2, ranks[1].Incarnation, own, "another process"},
			{"as the rank that serves", 0, first.Incarnation, own, "has never admitted it"},
			{"as a rank that has not come", 3, 1, own, "has never admitted it"},
			{"as no rank", 9, 1, own, "has never admitted it"},
		} {
			if err := again(t, server.Addr(), key, c.rank, c.life, c.who); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", c.why, err)
			}
		}
		for _, m := range ranks {
			if _, err := m.Attendance(ctx); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestProofIsOfOneConnection takes what a process has signed on a connection, and what the rendezvous has, to another one.
func TestProofIsOfOneConnection(t *testing.T) {
	key := secure.NewKey()
	server := serveAs(t, "127.0.0.1:0", &Config{Job: testJob, Key: &key})
	network, address, _ := splitAddress(server.Addr())
	c := &Config{Job: testJob, Size: 4, Rank: 1, Rendezvous: server.Addr(), Key: &key}
	security, err := c.tls()
	if err != nil {
		t.Fatal(err)
	}
	client := newClient(c, c.Logger(), network, address, security)
	said := make([]introduction, 2)
	words := make([][]byte, 2)
	for i := range said {
		to, w, err := client.attempt(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		defer to.conn.Close()
		client.welcome = w
		said[i] = introduction{incarnation: w.incarnation, identity: identity(client.identity.Public().(ed25519.PublicKey))}
		if err := said[i].prove(to.conn, 1, client.identity); err != nil {
			t.Fatal(err)
		}
		if words[i], err = sameAgain(to.conn); err != nil {
			t.Fatal(err)
		}
		if i == 1 && (said[0].proven(to.conn, 1) || !said[1].proven(to.conn, 1) || said[1].proven(to.conn, 2)) {
			t.Error("what was signed on another connection, or as another rank, is believed")
		}
	}
	if bytes.Equal(words[0], words[1]) {
		t.Error("the rendezvous signs the same on two connections")
	}
}

// TestAnotherRendezvousIsNotTheSame has another rendezvous of the same key take the place of one that was lost.
func TestAnotherRendezvousIsNotTheSame(t *testing.T) {
	key := secure.NewKey()
	c := &Config{Job: testJob, Size: 4, Rank: 1, Key: &key}
	c.Rendezvous = serveAs(t, "127.0.0.1:0", c).Addr()
	client, err := Dial(testContext(t), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	other := serveAs(t, "127.0.0.1:0", c)
	other.members.mu.Lock()
	other.members.ranks[1] = &entry{incarnation: client.welcome.incarnation, identity: identity(client.identity.Public().(ed25519.PublicKey)), change: make(chan struct{})}
	other.members.mu.Unlock()
	_, client.address, _ = splitAddress(other.Addr())
	if _, _, err := client.attempt(testContext(t)); err == nil || !strings.Contains(err.Error(), "another rendezvous") {
		t.Errorf("it is taken for the same: %v", err)
	}
}

// TestProcessHasOneTicket has a process ask for a second ticket, with another static key.
func TestProcessHasOneTicket(t *testing.T) {
	key := secure.NewKey()
	ctx := testContext(t)
	_, ranks := serveJob(t, &key, 1)
	at := netip.MustParseAddrPort("10.9.7.1:7770")
	one, err := ranks[0].Sign(ctx, [32]byte{1}, at)
	if err != nil {
		t.Fatal(err)
	}
	if two, err := ranks[0].Sign(ctx, [32]byte{1}, at); err != nil || !bytes.Equal(one, two) {
		t.Errorf("the same again: %x, %v", two, err)
	}
	if _, err := ranks[0].Sign(ctx, [32]byte{2}, at); err == nil || !strings.Contains(err.Error(), "has a ticket already") {
		t.Errorf("with another key: %v", err)
	}
}

// TestServerIsAsked has the rendezvous of a rank on another host be gone. The client is told that the rank may have ended, and has it
// asked. Only if it is silent, too, it has.
func TestServerIsAsked(t *testing.T) {
	for _, lives := range []bool{true, false} {
		ctx := testContext(t)
		first, ranks := serveJob(t, nil, 1)
		server, client := first.rendezvous.(*serving).server, ranks[0].rendezvous.(*Client)
		client.elsewhere(client.address)
		server.listener.Close()
		server.cut()
		found := make(chan error, 1)
		go func() {
			_, err := ranks[0].Find(ctx, 2)
			found <- err
		}()
		e, err := client.End(ctx)
		if err != nil || !e.Suspected || e.Rank != 0 || e.Incarnation != 0 {
			t.Fatalf("told of %+v, %v", e, err)
		}
		if err := client.Asked(ctx, e, lives); err != nil {
			t.Error(err)
		}
		if !lives {
			if e, err := client.End(ctx); err != nil || !e.Suspected || e.Rank != 0 {
				t.Errorf("told of %+v, %v", e, err)
			}
			if err := <-found; err == nil || !strings.Contains(err.Error(), "its process has ended") {
				t.Errorf("who looks for a rank is told %v", err)
			}
			continue
		}
		select {
		case err := <-found:
			t.Errorf("rank 0 lives, and who looks for another one is told %v", err)
		case <-client.ended:
			t.Error("rank 0 lives, and counts as dead")
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// TestAlertInClearIsNoRefusal has somebody answer the begin of TLS in clear when a connection is opened again: with an alert,
// and with noise. The client tries again.
func TestAlertInClearIsNoRefusal(t *testing.T) {
	key := secure.NewKey()
	ctx := testContext(t)
	server := serveAs(t, "127.0.0.1:0", &Config{Job: testJob, Key: &key})
	m, err := Open(ctx, Config{Job: testJob, Size: 4, Rank: 1, Rendezvous: server.Addr(), Key: &key}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	client := m.rendezvous.(*Client)
	genuine := client.address
	attempts := make(chan struct{}, 2)
	forger, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer forger.Close()
	go func() {
		for _, answer := range []string{"\x15\x03\x03\x00\x02\x02\x46", "noise that is no record of TLS"} {
			c, err := forger.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1))
			_, _ = c.Write([]byte(answer))
			c.Close()
			attempts <- struct{}{}
		}
		forger.Close()
		c, err := net.Listen("tcp", forger.Addr().String()) // from now on the genuine one answers there
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { c.Close() })
		for {
			a, err := c.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", genuine)
			if err != nil {
				t.Error(err)
				return
			}
			go func() { _, _ = io.Copy(a, b) }()
			go func() { _, _ = io.Copy(b, a) }()
		}
	}()
	client.elsewhere(forger.Addr().String()) // the kernel of this host knows nobody there for a moment
	server.cut()
	for range 2 {
		select {
		case <-attempts:
		case <-client.ended:
			t.Fatalf("the client has ended: %v", client.err)
		}
	}
	if _, err := m.Attendance(ctx); err != nil {
		t.Error(err)
	}
}
