package job

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/xdprma/xdprma/internal/launch/bootstrap"
)

// openStore joins the rendezvous, completes o.Place with what the launcher has told, and has
// the log say what it waits for.
func openStore(ctx context.Context, o *Config) (*bootstrap.Member, error) {
	address, rank := cmp.Or(o.Place.Rendezvous, "told over PMI"), o.Place.Rank
	var cause atomic.Pointer[string]
	none := "it does not answer"
	cause.Store(&none)
	stop := whileWaiting(func(_ context.Context, waited time.Duration) {
		o.Logger.Warn("the rendezvous cannot be reached yet", "address", address, "rank", rank,
			"cause", *cause.Load(), "waited", waited)
	})
	store, err := bootstrap.Open(ctx, o.Place, o.Logger, func(err error) {
		text := err.Error()
		cause.Store(&text)
	})
	stop()
	if err != nil {
		return nil, err
	}
	for _, notice := range store.Notices {
		o.Logger.Warn(notice)
	}
	o.Place = store.Place
	return store, nil
}

// checkFamily warns of an address of this rank that is not of the family in which it has reached the
// rendezvous, and others take theirs.
func (j *Job) checkFamily(own netip.Addr) {
	at := j.store.Rendezvous
	if j.size > 1 && at.IsValid() && !at.IsUnspecified() && at.Is4() != own.Is4() {
		j.log.Warn("the address of this rank is not of the family of the rendezvous's, which ranks without "+bootstrap.EnvAddress+
			" follow, and IPv4 does not reach IPv6: set it at all ranks to addresses of one family", "rank", j.rank, "address", own, "rendezvous", at)
	}
}

// otherFamily says that two ranks have no address of one family.
func otherFamily(rank int, at netip.Addr, self int, own netip.Addr) error {
	return fmt.Errorf("rank %d is at %v and rank %d at %v, and IPv4 does not reach IPv6: set %s to an address of the same family at all ranks",
		rank, at, self, own, bootstrap.EnvAddress)
}

// onTheWay is how long a frame of a process that has ended may still be on its way here,
// or wait to be received.
const onTheWay = 100 * time.Millisecond

// watchEnds has the peers whose processes end, as the rendezvous tells, counted as failed
// without waiting for their silence; nor does Close wait for them. It has peers asked that may have ended. It ends with the
// rendezvous.
func (j *Job) watchEnds(ctx context.Context) {
	for {
		end, err := j.store.End(ctx)
		if err != nil {
			if ctx.Err() == nil && j.life.Err() == nil {
				j.log.Info("the rendezvous tells of no more deaths; from now on silence does", "rank", j.rank, "error", err)
			}
			return
		}
		if end.Suspected {
			j.ask(end)
			continue
		}
		j.ends.Go(func() {
			select {
			case <-time.After(onTheWay):
				j.processEnded(&end.EndedError)
			case <-ctx.Done():
			}
		})
	}
}

// processEnded fails what waits for a rank whose process has ended.
func (j *Job) processEnded(why *bootstrap.EndedError) {
	e := j.poller.Lock()
	defer j.poller.Unlock()
	if !j.poller.Closed() {
		e.Ended(why.Rank, why.Incarnation, why)
		j.poller.Tick()
	}
}

// ask has a process asked that may have ended. It may be this one.
func (j *Job) ask(end *bootstrap.End) {
	e := j.poller.Lock()
	defer j.poller.Unlock()
	if !j.poller.Closed() {
		j.asked[end.Rank] = end
		e.Suspected(end.Rank, end.Incarnation, end.Asker == j.rank, &end.EndedError)
		j.poller.Tick()
	}
}

const mostVerdicts = 1024 // that wait to be told

// verdict is whether a process has answered that was asked.
type verdict struct {
	on    *bootstrap.End
	lives bool
}

// answered takes in whether a process lives that was asked. It is called with the engine's lock held.
func (j *Job) answered(rank int, incarnation uint64, lives bool) {
	if end := j.asked[rank]; end != nil && end.Incarnation == incarnation {
		delete(j.asked, rank)
		select {
		case j.verdicts <- verdict{end, lives}:
		default: // it is asked again
		}
	}
}

// tellVerdicts makes known which processes have answered.
func (j *Job) tellVerdicts(ctx context.Context) {
	for {
		select {
		case v := <-j.verdicts:
			_ = j.store.Asked(ctx, v.on, v.lives) // without it the process is asked again
		case <-ctx.Done():
			return
		}
	}
}

// LongWait is how long a rank waits for others in silence. It tells of a longer wait
// again each time that this has become twice as long, or LongestSilence longer.
var (
	LongWait       = 5 * time.Second
	LongestSilence = time.Minute
)

// whileWaiting calls tell from time to time until stop is called, which returns when no
// call of tell goes on. The context of tell ends by stop.
func whileWaiting(tell func(ctx context.Context, waited time.Duration)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	begin, silence := time.Now(), LongWait
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ; ; silence = min(2*silence, LongestSilence) {
			select {
			case <-time.After(silence):
				tell(ctx, time.Since(begin).Round(time.Millisecond))
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
