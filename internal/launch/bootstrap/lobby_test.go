package bootstrap

import (
	"fmt"
	"net"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// TestIdleConnectionsKeepNoMemberOut joins while others hold connections to the
// rendezvous that say nothing, or begin with TLS and go no further.
func TestIdleConnectionsKeepNoMemberOut(t *testing.T) {
	key := secure.NewKey()
	for _, test := range []struct {
		idle int
		key  *secure.Key
	}{{512, nil}, {3000, nil}, {512, &key}, {3000, &key}} {
		t.Run(fmt.Sprint(test.idle, " ", test.key), func(t *testing.T) {
			s := serveAs(t, "127.0.0.1:0", &Config{Job: testJob, Key: test.key})
			for i := range test.idle {
				c, err := net.Dial("tcp", s.listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if test.key != nil && i%2 == 0 {
					_, _ = c.Write([]byte(tlsHandshake + "\x02\x00\x01\x00")) // the lobby may have closed it
				}
			}
			m, err := joinWith(t, s, 1, 2, test.key)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Publish(testContext(t), nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// caller is a connection from an address.
type caller struct {
	net.Conn
	from   net.Addr
	closed bool
}

func (c *caller) RemoteAddr() net.Addr { return c.from }
func (c *caller) Close() error         { c.closed = true; return nil }

// TestFullLobbyPutsOutTheBusiestAddress fills it from several addresses: newcomers take
// the places of those who came first from the address that has most.
func TestFullLobbyPutsOutTheBusiestAddress(t *testing.T) {
	var l lobby
	come := func(n int, ip string) (callers []*caller) {
		for range n {
			c := &caller{from: &net.TCPAddr{IP: net.ParseIP(ip)}}
			l.enter(c)
			callers = append(callers, c)
		}
		return callers
	}
	closed := func(callers []*caller) (n int) {
		for i, c := range callers {
			if c.closed {
				n++
			}
			if c.closed && i > 0 && !callers[i-1].closed {
				t.Error("a later one was put out before an earlier one")
			}
		}
		return n
	}
	quiet := come(20, "10.0.0.1")
	busy := come(maxGuests-20, "10.0.0.2")
	if closed(quiet)+closed(busy) != 0 {
		t.Error("somebody was put out although there was room")
	}
	others := come(30, "10.0.0.3")
	if q, b, o := closed(quiet), closed(busy), closed(others); q != 0 || b != 30 || o != 0 {
		t.Errorf("put out: %d of few, %d of many, %d newcomers", q, b, o)
	}
	// A host has all IPv6 addresses of its network.
	var wide []*caller
	for i := range 1000 {
		wide = append(wide, come(1, fmt.Sprintf("2001:db8::%x", i+1))...)
	}
	if q, o := closed(quiet), closed(others); q != 0 || o != 0 {
		t.Errorf("put out by one network: %d and %d of few", q, o)
	}
	if len(l.guests) != maxGuests {
		t.Errorf("%d guests", len(l.guests))
	}
	if last := wide[len(wide)-1]; !l.leave(last) || l.leave(last) || l.leave(wide[0]) {
		t.Error("the lobby is wrong about who is in it")
	}
	l.close()
	late := come(1, "10.0.0.9")
	if !late[0].closed || closed(quiet) != 20 {
		t.Error("open after close")
	}
}
