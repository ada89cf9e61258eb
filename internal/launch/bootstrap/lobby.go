package bootstrap

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// maxGuests is how many connections may be without a hello at a time.
const maxGuests = 256

// lobby holds the connections that have not said hello. When it is full a newcomer takes
// the place of the oldest of the network address that holds most places: connections
// that say nothing keep nobody out, least of all those of other addresses.
type lobby struct {
	mu     sync.Mutex
	closed bool
	guests []guest // oldest first
}

type guest struct {
	conn net.Conn
	from netip.Prefix
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
		l.guests[i].conn.Close()
		l.guests = slices.Delete(l.guests, i, i+1)
	}
	l.guests = append(l.guests, guest{conn, network(conn.RemoteAddr())})
}

// leave takes conn out, and reports whether it was still there.
func (l *lobby) leave(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.guests, func(g guest) bool { return g.conn == conn })
	if i < 0 {
		return false
	}
	l.guests = slices.Delete(l.guests, i, i+1)
	return true
}

// close closes the connections of all guests, now and later.
func (l *lobby) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, g := range l.guests {
		g.conn.Close()
	}
	l.guests = nil
}

// victim returns the oldest guest of the address that has most of them.
func (l *lobby) victim() int {
	count := map[netip.Prefix]int{}
	for _, g := range l.guests {
		count[g.from]++
	}
	victim := 0
	for i, g := range l.guests {
		if count[g.from] > count[l.guests[victim].from] {
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
