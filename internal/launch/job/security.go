package job

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"runtime"

	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/siphash"
)

// frameJob returns what frames name the job by, and the key of the codes of handshakes, nil in a
// job without a key.
func (j *Job) frameJob(p *bootstrap.Config) (job uint64, hello *siphash.Key) {
	if s, ok := j.store.Secrets(); ok {
		return s.Job, (*siphash.Key)(&s.Hello)
	}
	return p.FrameJob(), nil
}

// credentials returns those of this process, whose device is at an address; nil in a job without a
// key. The static key is of this process alone, and ends with it.
func (j *Job) credentials(ctx context.Context, at netip.AddrPort) (*engine.Credentials, error) {
	secrets, keyed := j.store.Secrets()
	if !keyed {
		return nil, nil
	}
	static := freshKey()
	ticket, err := j.store.Sign(ctx, [32]byte(static.PublicKey().Bytes()), at)
	if err != nil {
		return nil, fmt.Errorf("have the rendezvous sign who this rank is: %w", err)
	}
	return &engine.Credentials{
		Level: j.store.Level(), Secrets: secrets, Static: static, Ticket: ticket, Signer: j.store.SigningKey(), Fresh: freshKey,
		AES: computesAES(),
	}, nil
}

// Security returns how far the frames of the job are protected.
func (j *Job) Security() secure.Level { return j.store.Level() }

func freshKey() *ecdh.PrivateKey {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		panic(err) // the system's randomness never fails
	}
	return key
}

var errTicket = errors.New("the rendezvous has given out a ticket of it that is not signed, or of another rank, life or address: is it of another build?")

// ticketOf returns the ticket in what a rank has published, which is at an address.
func (j *Job) ticketOf(rank int, p *bootstrap.Published, at netip.AddrPort) (*secure.Ticket, error) {
	t, ok := secure.ParseTicket(p.Ticket)
	if !ok || !secure.VerifyTicket(p.Ticket, j.store.SigningKey()) || int(t.Rank) != rank || t.Incarnation != p.Incarnation ||
		t.Address != netip.AddrPortFrom(at.Addr().WithZone(""), at.Port()) { // which names the zone of its own host
		return nil, fmt.Errorf("rank %d: %w", rank, errTicket)
	}
	return &t, nil
}

// task is work that takes too long to be done with the engine's lock held, and what follows with
// the lock.
type task struct{ work, done func() }

const (
	mostTasks   = 1024 // that wait; a handshake that finds more comes again
	tasksAtOnce = 8    // between two uses of the engine, which may have to be waited for
)

// offload has a task done in the background. It is called with the engine's lock held, does not
// block, and returns false if too many wait.
func (j *Job) offload(work, done func()) bool {
	select {
	case j.tasks <- task{work, done}:
		return true
	default:
		return false
	}
}

// compute does tasks, in turn, until Close.
func (j *Job) compute(ctx context.Context) {
	var worked []task
	for {
		select {
		case <-ctx.Done():
			return
		case t := <-j.tasks:
			t.work()
			worked = append(worked, t)
		}
		if len(worked) < tasksAtOnce && len(j.tasks) > 0 {
			continue
		}
		j.poller.Lock()
		if !j.poller.Closed() {
			for _, t := range worked {
				t.done()
			}
			j.poller.Tick()
		}
		j.poller.Unlock()
		clear(worked)
		worked = worked[:0]
		runtime.Gosched() // frames come first, also those of other ranks of the process
	}
}

// route finds the way to the address in a ticket, in the background, and calls done with it, or with
// NoPath. It is called with the engine's lock held, and done is. The way is the one that this host's
// tables know, and not that by which a frame came: others can send a captured one.
func (j *Job) route(t *secure.Ticket, done func(engine.PathID)) {
	at := t.Address
	if own := j.poller.Facts().Local.Addr(); at.Addr().IsLinkLocalUnicast() {
		at = netip.AddrPortFrom(at.Addr().WithZone(own.Zone()), at.Port())
	}
	j.goBackground(func(ctx context.Context) {
		path, err := j.poller.Path(ctx, at)
		if err != nil {
			path = engine.NoPath // its next hello tries again
		}
		j.poller.Lock()
		defer j.poller.Unlock()
		if !j.poller.Closed() {
			done(path)
			j.poller.Tick()
		}
	})
}
