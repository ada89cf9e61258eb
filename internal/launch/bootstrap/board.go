package bootstrap

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/xdprma/xdprma/internal/lastwords"
)

// board is what the ranks of a job and their launcher have said.
type board struct {
	mu    sync.Mutex
	ranks map[int]*notice
	news  []*End        // by their numbers; of each rank one suspicion at most
	last  uint32        // number
	more  chan struct{} // closed by the next ones
	over  chan struct{} // closed when err is set
	err   error
}

// notice is what has been said of one rank.
type notice struct {
	said        chan struct{} // closed once something has been
	found       bool          // likewise
	incarnation uint64
	place       []byte
	err         error // ErrLeft or an *EndedError
	parting     Parting

	ticket   []byte // what was last signed for a process of the rank
	ticketed uint64 // the incarnation of that process
}

// Parting is how a rank has begun to leave the job.
type Parting struct {
	incarnation uint64
	Joined      bool      // it has taken part before
	At          time.Time // zero: it has not begun to leave
	Why         string    // what it has said of a failure of its program; empty: nothing
}

func newBoard() *board {
	return &board{ranks: make(map[int]*notice), more: make(chan struct{}), over: make(chan struct{})}
}

// of returns what has been said of a rank. It is called with the lock held.
func (b *board) of(rank int) *notice {
	if b.ranks[rank] == nil {
		b.ranks[rank] = &notice{said: make(chan struct{})}
	}
	return b.ranks[rank]
}

// speaking returns what has been said of a rank that says something more, unless its process
// has ended for good. It is called with the lock held.
func (b *board) speaking(rank int) (*notice, error) {
	n := b.of(rank)
	if b.err != nil {
		return nil, b.err
	}
	if ended, ok := errors.AsType[*EndedError](n.err); ok && ended.Incarnation == 0 {
		return nil, fmt.Errorf("rank %d has ended, and says nothing any more", rank)
	}
	return n, nil
}

// say sets what is said of a rank, unless its process has ended for good.
func (b *board) say(rank int, incarnation uint64, place []byte, why error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.speaking(rank)
	if err == nil {
		n.set(incarnation, place, why)
	}
	if err == nil && why == nil {
		n.parting = Parting{Joined: true} // that of an earlier process is over
	}
	return err
}

// set says something of the rank. It is called with the board's lock held.
func (n *notice) set(incarnation uint64, place []byte, why error) {
	if !n.found {
		close(n.said)
	}
	n.found, n.incarnation, n.place, n.err = true, incarnation, slices.Clone(place), why
}

// keep sets the ticket of a rank, which belongs to what a process of the incarnation says. A process has one
// static key, and is at one place.
func (b *board) keep(rank int, incarnation uint64, ticket []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.speaking(rank)
	if err == nil && n.ticketed == incarnation && !bytes.Equal(n.ticket, ticket) {
		err = fmt.Errorf("this process of rank %d has a ticket already, with another key or address", rank)
	}
	if err == nil {
		n.ticket, n.ticketed = ticket, incarnation
	}
	return err
}

// part takes in that a process begins to leave the job. The first that is said of a rank counts.
func (b *board) part(rank int, incarnation uint64, why string) error {
	why = lastwords.Of(why)
	b.mu.Lock()
	n, err := b.speaking(rank)
	if err == nil && n.parting.At.IsZero() {
		n.parting.At, n.parting.Why, n.parting.incarnation = time.Now(), why, incarnation
	}
	b.mu.Unlock()
	if err == nil && why != "" {
		b.ended(&End{EndedError: EndedError{Rank: rank, Incarnation: incarnation, Reason: why}})
	}
	return err
}

// parted returns how a rank has begun to leave.
func (b *board) parted(rank int) Parting {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of(rank).parting
}

// ended says that a process takes no part in the job any more, unless it has left, or another
// has its rank. Members that have met it ask it themselves if that is no more than likely.
func (b *board) ended(e *End) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := b.taking(e); n != nil {
		n.set(e.Incarnation, nil, &e.EndedError)
		b.tell(e)
	}
}

// suspect has a process asked that may have ended.
func (b *board) suspect(e *End) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.taking(e) != nil {
		b.tell(e)
	}
}

// taking returns what was said of a rank, if the process whose end e is takes part in the job. It is called with the lock held.
func (b *board) taking(e *End) *notice {
	n, err := b.speaking(e.Rank)
	if err != nil || e.Incarnation != 0 && (n.incarnation > e.Incarnation || n.incarnation == e.Incarnation && n.err != nil) {
		return nil
	}
	return n
}

// tell adds to the news. An earlier suspicion of the rank is none any more. It is called with the lock held.
func (b *board) tell(e *End) {
	b.acquit(e.Rank)
	b.last++
	e.number = b.last
	b.news = append(b.news, e)
	close(b.more)
	b.more = make(chan struct{})
}

// acquit drops the suspicion of a rank. It is called with the lock held.
func (b *board) acquit(rank int) {
	b.news = slices.DeleteFunc(b.news, func(e *End) bool { return e.Suspected && e.Rank == rank })
}

// back takes in that a process has come again that may have been under suspicion.
func (b *board) back(rank int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acquit(rank)
}

// published reports whether a process has made known where it is.
func (b *board) published(rank int, incarnation uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.of(rank)
	return n.found && n.incarnation == incarnation
}

// await calls ready, with the lock held, until that returns nil. In between it waits for the
// channel that ready has returned.
func (b *board) await(ctx context.Context, ready func() <-chan struct{}) error {
	for {
		b.mu.Lock()
		err := b.err
		var happens <-chan struct{}
		if err == nil {
			happens = ready()
		}
		b.mu.Unlock()
		if err != nil || happens == nil {
			return err
		}
		select {
		case <-happens:
		case <-b.over:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// end makes every present and later call return err.
func (b *board) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
		close(b.over)
	}
}

// local is a rank's part in the rendezvous where the board is in this process: in that of the
// rank, or in the server's for a client.
type local struct {
	board       *board
	members     *members
	waits       *waits
	authority   *authority // nil: the job has no key
	rank, size  int
	incarnation uint64
	told        uint32 // the number of the last news
}

func (l *local) Publish(_ context.Context, place []byte) error {
	if err := checkPlace(place); err != nil {
		return err
	}
	return l.board.say(l.rank, l.incarnation, place, nil)
}

func (l *local) Part(_ context.Context, why string) error {
	return l.board.part(l.rank, l.incarnation, why)
}

func (l *local) Leave(context.Context) error {
	l.members.left(l.rank, l.incarnation)
	if l.board.parted(l.rank).Why != "" {
		return nil
	}
	return l.board.say(l.rank, l.incarnation, nil, ErrLeft)
}

func (l *local) Fail(_ context.Context, why string) error {
	l.members.left(l.rank, l.incarnation)
	return l.board.part(l.rank, l.incarnation, "it could not join the job: "+why)
}

func (l *local) Sign(_ context.Context, static [32]byte, at netip.AddrPort) ([]byte, error) {
	ticket, err := l.authority.ticket(l.rank, l.incarnation, static, at)
	if err != nil {
		return nil, err
	}
	return ticket, l.board.keep(l.rank, l.incarnation, ticket)
}

func (l *local) find(ctx context.Context, rank int, wait bool) (p Published, found bool, err error) {
	if rank < 0 || rank >= l.size {
		return p, false, fmt.Errorf("rank %d of a job of %d ranks was looked for", rank, l.size)
	}
	var n notice
	err = l.board.await(ctx, func() <-chan struct{} {
		if n = *l.board.of(rank); n.found || !wait {
			return nil
		}
		return n.said
	})
	p = Published{Incarnation: n.incarnation, Place: n.place}
	if n.err == nil && n.ticketed == n.incarnation {
		p.Ticket = n.ticket
	}
	return p, n.found, cmp.Or(err, n.err)
}

func (l *local) End(ctx context.Context) (*End, error) {
	e, err := l.end(ctx, l.told)
	if err == nil {
		l.told = e.number
	}
	return e, err
}

// end returns the next news after those with a number.
func (l *local) end(ctx context.Context, after uint32) (e *End, err error) {
	err = l.board.await(ctx, func() <-chan struct{} {
		i, _ := slices.BinarySearchFunc(l.board.news, after+1, func(e *End, n uint32) int { return cmp.Compare(e.number, n) })
		if i == len(l.board.news) {
			return l.board.more
		}
		e = l.board.news[i]
		return nil
	})
	return e, err
}

func (l *local) Asked(_ context.Context, e *End, lives bool) error {
	l.members.answer(l.rank, e.Rank, e.Incarnation, e.Question, lives)
	return nil
}

func (l *local) Waits(_ context.Context, list []Wait) error {
	l.waits.say(l.rank, list)
	return nil
}

func (l *local) Attendance(context.Context) (string, error) { return l.members.describe(), nil }

func (l *local) Close() error {
	l.board.end(fmt.Errorf("the rendezvous: %w", net.ErrClosed))
	return nil
}

// checkPlace returns why a place cannot be published, or nil.
func checkPlace(place []byte) error {
	if len(place) > MaxPlaceBytes {
		return fmt.Errorf("a place of %d bytes, the longest is %d: %w", len(place), MaxPlaceBytes, ErrLimit)
	}
	return nil
}

// truncate keeps a reason within the length of a message.
func truncate(reason string) string {
	const most = 1024
	return reason[:min(len(reason), most)]
}
