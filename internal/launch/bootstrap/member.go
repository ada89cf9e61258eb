package bootstrap

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// drainTimeout bounds how long a rank that serves the rendezvous stays for the others.
const drainTimeout = 5 * time.Second

// Member is a rank's part in the rendezvous of its job.
type Member struct {
	rendezvous
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
}

// Open joins the rendezvous that c names, as the rank that c says. It blocks until the
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
		return &Member{rendezvous: &local{newBoard(), members, c.Rank, c.Size, incarnation}, Incarnation: incarnation}, nil
	case !c.Serve:
		client, err := Dial(ctx, &c, failed)
		if err != nil {
			return nil, err
		}
		return &Member{rendezvous: client, Incarnation: client.incarnation, Rendezvous: host(client.conn.RemoteAddr())}, nil
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
	return &Member{rendezvous: &serving{local{s.board, s.members, c.Rank, c.Size, incarnation}, s}, Incarnation: incarnation,
		Rendezvous: host(l.Addr()), Notice: c.servedHere(l.Addr())}, nil
}

// host returns the address of one host in at, or none.
func host(at net.Addr) netip.Addr {
	tcp, ok := at.(*net.TCPAddr)
	if !ok || tcp.IP.IsUnspecified() {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap()
}

// Find returns what a rank has last published, and the incarnation of the process that
// did, blocking until there is something. It returns ErrLeft with the incarnation of one
// that has left. Once the rank's process is known to have ended, it returns an *EndedError.
func (m *Member) Find(ctx context.Context, rank int) (incarnation uint64, place []byte, err error) {
	incarnation, place, _, err = m.find(ctx, rank, true)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("waiting for the place of rank %d: %w", rank, err)
	}
	return incarnation, place, err
}

// FindNow is Find without waiting: found is false if the rank has published nothing yet.
func (m *Member) FindNow(ctx context.Context, rank int) (incarnation uint64, place []byte, found bool, err error) {
	return m.find(ctx, rank, false)
}

// serving is the part of the rank that serves the rendezvous itself.
type serving struct {
	local
	server *Server
}

// Close waits until the other ranks have closed theirs, at most five seconds,
// because the rendezvous ends with this process.
func (s *serving) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	s.server.drain(ctx)
	return s.server.Close()
}
