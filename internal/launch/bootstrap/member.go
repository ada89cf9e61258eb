package bootstrap

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"
)

// drainTimeout bounds how long a rank that serves the rendezvous stays for the others.
const drainTimeout = 5 * time.Second

// Member is a rank's part in the exchange of its job.
type Member struct {
	Store
	// Incarnation numbers this process among those that have had its rank, one after the
	// other: it is larger than that of each earlier one, whatever became of the clocks.
	Incarnation uint64
	// Notice is what an operator should know of the rendezvous, or empty.
	Notice string
	// Rendezvous is the address at which it was reached or is served. It is not valid over a
	// unix socket, or where it is served at all addresses.
	Rendezvous netip.Addr
	// Place is the rank's, with what the launcher has told.
	Place Config

	attendance func(ctx context.Context) (string, error)
}

// Open joins the exchange that c names, as the rank that c says. It blocks until the
// rendezvous is reached, as Dial does, and passes to failed, unless that is nil, why an
// attempt has failed. Where a launcher speaks PMI it waits for all ranks as well. Its error
// wraps ErrRefused if another process has the rank, or if others were told of another size
// of the job.
func Open(ctx context.Context, c Config, failed func(error)) (*Member, error) {
	var l net.Listener
	if c.PMI.FD != 0 {
		var err error
		if l, err = thisProcess.complete(ctx, &c, failed); err != nil {
			return nil, fmt.Errorf("join over the launcher's PMI: %w", err)
		}
	}
	m, err := open(ctx, c, l, failed)
	if err != nil {
		return nil, err
	}
	m.Place = c
	return m, nil
}

// open is Open where the rendezvous is known, and l listens there unless that is nil.
func open(ctx context.Context, c Config, l net.Listener, failed func(error)) (*Member, error) {
	switch {
	case c.Rendezvous == "":
		members := newMembers()
		incarnation, _, _, err := members.tryEnter(c.Rank, c.Size, "")
		if err != nil {
			return nil, err
		}
		return &Member{Store: NewMemory(), Incarnation: incarnation, attendance: describer(members)}, nil
	case !c.Serve:
		client, err := Dial(ctx, &c, failed)
		if err != nil {
			return nil, err
		}
		return &Member{Store: client, Incarnation: client.incarnation, Rendezvous: host(client.conn.RemoteAddr()), attendance: client.attendance}, nil
	}
	if l == nil {
		var err error
		if l, err = Listen(c.Rendezvous); err != nil {
			return nil, err
		}
	}
	s := newServer(l, c.Token())
	incarnation, _, _, err := s.members.tryEnter(c.Rank, c.Size, "the rendezvous") // before all others
	if err != nil {
		l.Close()
		return nil, err
	}
	s.start()
	return &Member{Store: &serving{Memory: s.Store(), server: s}, Incarnation: incarnation, Rendezvous: host(l.Addr()),
		Notice: c.servedHere(l.Addr()), attendance: describer(s.members)}, nil
}

// host returns the address of one host in at, or none.
func host(at net.Addr) netip.Addr {
	tcp, ok := at.(*net.TCPAddr)
	if !ok || tcp.IP.IsUnspecified() {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap()
}

func describer(m *members) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return m.describe(), nil }
}

// Attendance returns in words which ranks of the job are there and which are not, and which
// process was last refused. It blocks for one round trip.
func (m *Member) Attendance(ctx context.Context) (string, error) { return m.attendance(ctx) }

// Publish makes known where this rank is: it sets what Find returns. It blocks for one
// round trip.
func (m *Member) Publish(ctx context.Context, place []byte) error {
	b := binary.LittleEndian.AppendUint64([]byte{valuePlace}, m.Incarnation)
	return m.Put(ctx, placeKey(m.Place.Rank), append(b, place...))
}

// Leave makes known that this rank has left the job: from then on, Find fails with ErrLeft,
// until another process publishes a place of the rank. It blocks for one round trip.
func (m *Member) Leave(ctx context.Context) error {
	return m.Put(ctx, placeKey(m.Place.Rank), binary.LittleEndian.AppendUint64([]byte{valueLeft}, m.Incarnation))
}

// ErrLeft is that a rank has left the job.
var ErrLeft = errors.New("it has left the job")

// Find returns what a rank has last published, and the incarnation of the process that
// did, blocking until there is something. It returns ErrLeft with the incarnation of one
// that has left. Once the rank's process is known to have ended, it returns an *EndedError.
func (m *Member) Find(ctx context.Context, rank int) (incarnation uint64, place []byte, err error) {
	b, err := m.Get(ctx, placeKey(rank))
	if err != nil {
		return 0, nil, err
	}
	return parsePlace(rank, b)
}

// FindNow is Find without waiting: found is false if the rank has published nothing yet.
func (m *Member) FindNow(ctx context.Context, rank int) (incarnation uint64, place []byte, found bool, err error) {
	b, found, err := m.Store.Look(ctx, placeKey(rank))
	if err != nil || !found {
		return 0, nil, false, err
	}
	incarnation, place, err = parsePlace(rank, b)
	return incarnation, place, true, err
}

// parsePlace reads the value of a rank's place.
func parsePlace(rank int, b []byte) (incarnation uint64, place []byte, err error) {
	switch {
	case len(b) > 0 && b[0] == valueEnded:
		return 0, nil, &EndedError{Rank: rank, Reason: string(b[1:])}
	case len(b) == placeHead && b[0] == valueLeft:
		return binary.LittleEndian.Uint64(b[1:]), nil, ErrLeft
	case len(b) < placeHead || b[0] != valuePlace:
		return 0, nil, fmt.Errorf("%w: the place of rank %d", errMalformed, rank)
	}
	return binary.LittleEndian.Uint64(b[1:]), b[placeHead:], nil
}

// isPlaceOf reports whether b is a place that the process with the given incarnation can
// publish.
func isPlaceOf(incarnation uint64, b []byte) bool {
	published, _, err := parsePlace(0, b)
	return (err == nil || errors.Is(err, ErrLeft)) && published == incarnation
}

// End returns the n-th end of a rank's process, counted from 0. It blocks until there is
// one. Only a launcher tells of ends.
func (m *Member) End(ctx context.Context, n int) (*EndedError, error) {
	b, err := m.Get(ctx, endKey(n))
	if err != nil {
		return nil, err
	}
	if len(b) < 4 {
		return nil, fmt.Errorf("%w: end number %d", errMalformed, n)
	}
	return &EndedError{Rank: int(binary.LittleEndian.Uint32(b)), Reason: string(b[4:])}, nil
}

// EndedError is that the process of a rank has ended, and that no other will have its
// rank.
type EndedError struct {
	Rank   int
	Reason string
}

// Error returns how the process ended.
func (e *EndedError) Error() string { return "its process has ended: " + e.Reason }

// The value of a rank's place begins with one of these.
const (
	valuePlace = 1 // the incarnation follows, u64, and what the rank has published
	valueEnded = 2 // the reason follows
	valueLeft  = 3 // the incarnation follows

	placeHead = 1 + 8
)

func placeKey(rank int) string { return Key(rank, "place") }

// endKey is of no rank.
func endKey(n int) string { return "end/" + strconv.Itoa(n) }

// serving is the store of the rank that serves the rendezvous itself.
type serving struct {
	*Memory
	server *Server
}

// Close waits until the other ranks have closed theirs, at most five seconds,
// because the exchange ends with this process.
func (s *serving) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	s.server.drain(ctx)
	return s.server.Close()
}
