package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// The rendezvous answers so many questions of a rank at a time. Each has a turn, so that ranks
// which are there are found, however many are not.
const (
	looksAtOnce    = 16  // answered at once, if not too many ask
	searchesAtOnce = 256 // for ranks that are not there
	searchTurn     = time.Second
)

var errTurnOver = errors.New("its turn is over")

// seek looks in the background for the way to a rank that the engine has begun a session
// with, until the rank has published its address. It may be called with the engine's lock
// held.
func (j *Job) seek(rank int) { j.goBackground(func(ctx context.Context) { j.find(ctx, rank) }) }

// find looks for the way to a rank, and tells the engine of it.
func (j *Job) find(ctx context.Context, rank int) {
	var absent atomic.Bool // the rendezvous has said so; else it is what keeps this rank waiting
	stop := whileWaiting(func(ctx context.Context, waited time.Duration) {
		if absent.Load() && j.tellAbsent(ctx, rank, waited) {
			j.absent.begin(rank, time.Now().Add(-waited))
		} else {
			j.absent.end(rank)
		}
	})
	peer, path, ticket, err := j.way(ctx, rank, &absent)
	for errors.Is(err, errTurnOver) && time.Now().Before(j.joinBy) {
		peer, path, ticket, err = j.way(ctx, rank, &absent)
	}
	if errors.Is(err, errTurnOver) {
		err = j.tooLate(ctx, rank)
	}
	stop()
	j.absent.end(rank)
	// Of a rank that may come again nothing is kept, so that the next call looks for it.
	if ended := (*bootstrap.EndedError)(nil); errors.As(err, &ended) && ended.Incarnation == 0 {
		j.processEnded(ended)
	}
	e := j.poller.Lock()
	defer j.poller.Unlock()
	switch {
	case j.Closed(): // which ends what waits for the rank
		return
	case err != nil:
		e.NotFound(rank, err)
	case ticket != nil:
		e.DialBy(path, ticket)
	default:
		e.Dial(rank, path, peer.incarnation)
	}
	j.poller.Tick()
}

// way returns where a rank is, as it has last published, and the way there. It asks each time,
// because the rank may be started anew elsewhere. Hellos are judged by the answer. In a job with a
// key there is a ticket, too.
func (j *Job) way(ctx context.Context, rank int, absent *atomic.Bool) (peer peerAddress, path engine.PathID, ticket *secure.Ticket, err error) {
	p, err := j.question(ctx, rank, absent)
	if err == nil {
		peer, err = j.take(rank, p.Incarnation, p.Place)
	}
	if _, keyed := j.store.Secrets(); keyed && err == nil {
		ticket, err = j.ticketOf(rank, &p, peer.addr)
	}
	if err != nil {
		return peer, engine.NoPath, nil, err
	}
	if own := j.poller.Facts().Local.Addr(); own.Is4() != peer.addr.Addr().Is4() {
		return peer, engine.NoPath, nil, otherFamily(rank, peer.addr.Addr(), j.rank, own)
	}
	path, err = j.poller.Path(ctx, peer.addr)
	return peer, path, ticket, err
}

// question asks the rendezvous for a rank. A rank that is there takes no turn: where all ask for all, a
// turn would be over before the answer. absent is set if the rank is not there.
func (j *Job) question(ctx context.Context, rank int, absent *atomic.Bool) (p bootstrap.Published, err error) {
	found := false
	turnedAway := inTurn(ctx, j.looks, func() { p, found, err = j.store.FindNow(ctx, rank) })
	if found || turnedAway != nil || err != nil {
		return p, cmp.Or(turnedAway, err)
	}
	absent.Store(true)
	turnedAway = inTurn(ctx, j.searches, func() {
		turn, end := context.WithTimeout(ctx, searchTurn)
		defer end()
		if p, err = j.store.Find(turn, rank); err != nil && turn.Err() != nil && ctx.Err() == nil {
			err = errTurnOver
		}
	})
	return p, cmp.Or(turnedAway, err)
}

// inTurn calls f when there is room for one more in turns.
func inTurn(ctx context.Context, turns chan struct{}, f func()) error {
	select {
	case turns <- struct{}{}:
		defer func() { <-turns }()
		f()
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tooLate returns that a rank has not joined in time.
func (j *Job) tooLate(ctx context.Context, rank int) error {
	who, _ := j.attendance(ctx)
	return fmt.Errorf("rank %d has not joined the job in time (%s says how long ranks have for that): %s", rank, bootstrap.EnvJoin, who)
}

// attendance says which ranks have joined, or why the rendezvous cannot be asked.
func (j *Job) attendance(ctx context.Context) (who string, asked bool) {
	ctx, cancel := context.WithTimeout(ctx, searchTurn)
	defer cancel()
	who, err := j.store.Attendance(ctx)
	if err != nil {
		return err.Error(), false
	}
	return who, true
}

// tellAbsent has the log say that somebody waits for a rank which has not joined, and reports whether that
// is so. It is a warning where the rendezvous cannot be asked, which warns for all ranks.
func (j *Job) tellAbsent(ctx context.Context, rank int, waited time.Duration) (awaited bool) {
	s := j.poller.Lock().Session(rank)
	awaited = s != nil && s.Awaited()
	j.poller.UnlockQuiet()
	if awaited { // still
		who, asked := j.attendance(ctx)
		level := slog.LevelWarn
		if asked {
			level = slog.LevelInfo
		}
		j.log.Log(ctx, level, "a rank has not joined the job yet; this one waits for it", "rank", rank, "job", who, "waited", waited)
	}
	return awaited
}
