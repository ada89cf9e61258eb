package bootstrap

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
)

// maxGuests is how many connections may be without a hello at a time.
const maxGuests = 256

// lobby holds the connections that have not said hello. When it is full a newcomer takes
// the place of the oldest of the network address that holds most places: connections
// that say nothing keep nobody out, least of all those of other addresses. A connection of that
// address that has begun its handshake stays if another has not: that has cost something, and may be done soon.
type lobby struct {
	handshakes *handshakes

	mu     sync.Mutex
	closed bool
	guests []*guest // oldest first
}

type guest struct {
	conn  net.Conn
	from  netip.Prefix
	begun bool               // its handshake
	waits context.CancelFunc // ends its wait for a token; nil: it has not waited yet
}

// putOut closes the connection of a guest.
func (g *guest) putOut() {
	g.conn.Close()
	if g.waits != nil {
		g.waits()
	}
}

// enter takes conn in, and closes another connection, or conn, if there is no room.
func (l *lobby) enter(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		conn.Close()
		return
	}
	if len(l.guests) == maxGuests {
		i := l.victim()
		l.guests[i].putOut()
		l.guests = slices.Delete(l.guests, i, i+1)
	}
	l.guests = append(l.guests, &guest{conn: conn, from: network(conn.RemoteAddr())})
}

// leave takes conn out, and reports whether it was still there.
func (l *lobby) leave(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.find(conn)
	if i < 0 {
		return false
	}
	l.guests = slices.Delete(l.guests, i, i+1)
	return true
}

// find returns where conn is among the guests, or -1.
func (l *lobby) find(conn net.Conn) int {
	return slices.IndexFunc(l.guests, func(g *guest) bool { return g.conn == conn })
}

// begin blocks until conn may have its handshake, or ctx ends, or conn is put out. It returns where the
// handshake has its token from, which gets it back if that succeeds.
func (l *lobby) begin(ctx context.Context, conn net.Conn) (*bucket, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	l.mu.Lock()
	i := l.find(conn)
	if i < 0 {
		l.mu.Unlock()
		return nil, net.ErrClosed
	}
	g := l.guests[i]
	g.waits = cancel
	l.mu.Unlock()

	tokens := l.handshakes.of(g.from)
	if err := tokens.take(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.find(conn) < 0 { // it has been put out since
		tokens.give()
		return nil, net.ErrClosed
	}
	g.begun = true
	return tokens, nil
}

// close closes the connections of all guests, now and later.
func (l *lobby) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, g := range l.guests {
		g.putOut()
	}
	l.guests = nil
}

// victim returns the oldest guest of the address that has most of them, and of those the oldest that has
// not begun its handshake, if there is one.
func (l *lobby) victim() int {
	count := map[netip.Prefix]int{}
	for _, g := range l.guests {
		count[g.from]++
	}
	victim := 0
	for i, g := range l.guests {
		v := l.guests[victim]
		if count[g.from] > count[v.from] || g.from == v.from && v.begun && !g.begun {
			victim = i
		}
	}
	return victim
}

// network returns the address of a, or the network of 64 bits that a host with an IPv6
// address can have all of; for a unix socket, nothing.
func network(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap()
	p, _ := ip.Prefix(min(64, ip.BitLen())) // never fails
	return p
}
