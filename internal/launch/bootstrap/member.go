package bootstrap

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// How long a rank that serves the rendezvous stays for the others.
const (
	drainTimeout = 5 * time.Second        // until they have left
	failTimeout  = 2 * time.Second        // until all have come, if it cannot join itself
	tellTimeout  = 250 * time.Millisecond // until they have heard of that
)

// Member is a rank's part in the rendezvous of its job.
type Member struct {
	rendezvous
	// Incarnation numbers this process among those that have had its rank, one after the
	// other: it is larger than that of each earlier one, whatever became of the clocks.
	Incarnation uint64
	// Notices are what an operator should know of the rendezvous and the environment.
	Notices []string
	// Rendezvous is the address at which it was reached or is served, whose family that of the rank
	// follows. It is not valid over a unix socket, or where it is served at all addresses, unless
	// 0.0.0.0 or :: says so.
	Rendezvous netip.Addr
	// Place is the rank's, with what the launcher has told.
	Place Config

	credentials *credentials // nil: the job has no key
}

// Secrets returns what the members of this run of the job derive from its key; ok is false if
// the job has none.
func (m *Member) Secrets() (s secure.Secrets, ok bool) {
	if m.credentials == nil {
		return s, false
	}
	return m.credentials.key.Secrets(m.credentials.run), true
}

// SigningKey returns the public key of the rendezvous, by which tickets are verified; nil if
// the job has no key.
func (m *Member) SigningKey() ed25519.PublicKey {
	if m.credentials == nil {
		return nil
	}
	return m.credentials.signing
}

// Level returns how far the frames of the job are protected.
func (m *Member) Level() secure.Level {
	if m.credentials == nil {
		return secure.None
	}
	return m.credentials.level
}

// Open joins the rendezvous that c names, as the rank that c says. It blocks until the
// rendezvous is reached, or its name is known where this rank serves it, as Dial does, and passes to failed, unless that is nil, why an
// attempt has failed. Log, or without one c.Logger, is told of processes that the rendezvous turns away,
// if this rank serves it. Where a launcher speaks PMI it waits for all ranks as well. Its error
// wraps ErrRefused if another process has the rank, or if others were told of another size
// of the job.
func Open(ctx context.Context, c Config, log *slog.Logger, failed func(error)) (*Member, error) {
	if log == nil {
		log = c.Logger()
	}
	var l net.Listener
	if c.PMI.FD != 0 {
		var err error
		if l, err = thisProcess.complete(ctx, &c, failed); err != nil {
			_ = thisProcess.end(err)
			return nil, fmt.Errorf("join over the launcher's PMI: %w", err)
		}
	}
	m, err := open(ctx, c, l, log, failed)
	if err != nil {
		_ = thisProcess.end(err)
		return nil, err
	}
	if m.credentials != nil {
		c.Key = &m.credentials.key
	}
	m.Place = c
	m.Notices = append(m.Notices, c.Warnings...)
	return m, nil
}

// open is Open where the rendezvous is known, and l listens there unless that is nil.
func open(ctx context.Context, c Config, l net.Listener, log *slog.Logger, failed func(error)) (*Member, error) {
	switch {
	case c.Rendezvous == "":
		authority, err := c.newAuthority(nil)
		if err != nil {
			return nil, err
		}
		members := newMembers(log, c.silence(), c.Rank)
		incarnation, _, err := members.tryEnter(c.Rank, c.Size, identity{}, &visit{})
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", c.Rank, err)
		}
		return &Member{rendezvous: &local{board: newBoard(), members: members, waits: newWaits(log, members), authority: authority, rank: c.Rank, size: c.Size, incarnation: incarnation},
			Incarnation: incarnation, credentials: authority.credentials()}, nil
	case !c.Serve:
		client, err := connect(ctx, &c, log, failed)
		if err != nil {
			return nil, err
		}
		at := client.remote
		return &Member{rendezvous: client, Incarnation: client.welcome.incarnation, credentials: client.welcome.credentials,
			Rendezvous: host(at), Notices: c.notices(at)}, nil
	}
	if l == nil {
		var err error
		if l, err = c.listenPatiently(ctx, failed); err != nil {
			return nil, err
		}
	}
	s, err := newServer(l, &c, log, c.Rank)
	if err != nil {
		return nil, err
	}
	incarnation, _, err := s.members.tryEnter(c.Rank, c.Size, identity{}, &visit{from: "the rendezvous"}) // before all others
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("rank %d: %w", c.Rank, err)
	}
	s.start()
	return &Member{rendezvous: &serving{local{board: s.board, members: s.members, waits: s.waits, authority: s.authority, rank: c.Rank, size: c.Size, incarnation: incarnation}, s}, Incarnation: incarnation,
		credentials: s.authority.credentials(), Rendezvous: c.servedAt(l.Addr()), Notices: append(c.notices(l.Addr()), c.servedHere(l.Addr())...)}, nil
}

// notices returns what an operator should know of a rendezvous at an address. Rank 0 says it for all, which
// know the same.
func (c *Config) notices(at net.Addr) []string {
	if c.environment && c.Rank == 0 && c.Key == nil && c.meeting == nil && c.Size > 1 && !withinHost(at) {
		return []string{unauthenticated}
	}
	return nil
}

// host returns the address of one host in at, or none.
func host(at net.Addr) netip.Addr {
	tcp, ok := at.(*net.TCPAddr)
	if !ok || tcp.IP.IsUnspecified() {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap()
}

// servedAt returns the address at which this rank serves the rendezvous, as Member.Rendezvous has it,
// where its listener is at an address.
func (c *Config) servedAt(at net.Addr) netip.Addr {
	if network, address, err := splitAddress(c.Rendezvous); err == nil && network == "tcp" {
		if everywhere, family := servedEverywhere(address); everywhere {
			return family
		}
	}
	return host(at)
}

// Joined tells the launcher, if it speaks PMI, that this process takes part. From now on it takes
// the end of the process for one in good order if its exit status is 0.
func (m *Member) Joined() error {
	if err := thisProcess.end(nil); err != nil {
		return fmt.Errorf("join over the launcher's PMI: %w", err)
	}
	return nil
}

// Fail tells the others why this process does not join, and has a launcher that speaks PMI end
// the job. It ends the rank's part in the rendezvous.
func (m *Member) Fail(ctx context.Context, why error) {
	_ = m.rendezvous.Fail(ctx, why.Error()) // without it they see the connection end
	_ = m.Close()
	_ = thisProcess.end(why) // which may end this process
}

// Find returns what a rank has last published, blocking until there is something. It returns
// ErrLeft with the incarnation of one that has left. Once the rank's process is known to have
// ended, it returns an *EndedError.
func (m *Member) Find(ctx context.Context, rank int) (p Published, err error) {
	p, _, err = m.find(ctx, rank, true)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("waiting for the place of rank %d: %w", rank, err)
	}
	return p, err
}

// FindNow is Find without waiting: found is false if the rank has published nothing yet.
func (m *Member) FindNow(ctx context.Context, rank int) (p Published, found bool, err error) {
	return m.find(ctx, rank, false)
}

// serving is the part of the rank that serves the rendezvous itself.
type serving struct {
	local
	server *Server
}

// Fail tells the others that this rank does not join, also those that come a little later: once
// the rendezvous is closed they learn no more than that.
func (s *serving) Fail(ctx context.Context, why string) error {
	s.server.Ended(s.rank, "it could not join the job: "+why)
	ctx, cancel := context.WithTimeout(ctx, failTimeout)
	defer cancel()
	for !s.members.complete() && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(tellTimeout) // in which they ask
	return s.server.Close()
}

// Close waits until the other ranks have closed theirs, at most five seconds,
// because the rendezvous ends with this process.
func (s *serving) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	s.server.drain(ctx)
	s.farewell()
	return s.server.Close()
}

// errClosing ends the rendezvous in good order.
var errClosing = errors.New("served the rendezvous, and has left the job")

// farewell tells the ranks that are still there that this one has left.
func (s *serving) farewell() {
	ctx, cancel := context.WithTimeout(context.Background(), tellTimeout)
	defer cancel()
	why := fmt.Errorf("rank %d %w", s.rank, errClosing)
	if words := s.board.parted(s.rank).Why; words != "" {
		why = fmt.Errorf("%w: %s", why, words)
	}
	s.server.farewell(ctx, why)
}
