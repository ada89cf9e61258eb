package bootstrap

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

// A handshake of TLS costs the server about a millisecond of a processor, whoever asks for it.
const (
	handshakeBurst = 128  // handshakes of a network address that are under way or have failed
	handshakeRate  = 100  // a second: so many failed ones are forgotten
	maxBuckets     = 1024 // network addresses that are told apart
)

// handshakes limits those of each network address that do not succeed: somebody without the key must
// not use the server's processor up. A handshake takes a token, and gives it back if it succeeds.
type handshakes struct {
	rate float64 // tokens a second

	mu      sync.Mutex
	buckets map[netip.Prefix]*bucket
}

func newHandshakes() *handshakes {
	return &handshakes{rate: handshakeRate, buckets: map[netip.Prefix]*bucket{}}
}

// of returns the bucket of a network address. While too many others lack tokens, those that have none
// yet share one.
func (h *handshakes) of(from netip.Prefix) *bucket {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.buckets[from] == nil && len(h.buckets) >= maxBuckets {
		for p, b := range h.buckets {
			if b.full() {
				delete(h.buckets, p)
			}
		}
		if len(h.buckets) >= maxBuckets {
			from = netip.Prefix{}
		}
	}
	b := h.buckets[from]
	if b == nil {
		b = &bucket{rate: h.rate, tokens: handshakeBurst, at: time.Now(), first: make(chan struct{}, 1), given: make(chan struct{}, 1)}
		h.buckets[from] = b
	}
	return b
}

// bucket holds the tokens of a network address.
type bucket struct {
	rate  float64
	first chan struct{} // holds something while somebody is first in the line for a token
	given chan struct{} // tells the first in the line

	mu     sync.Mutex
	tokens float64
	at     time.Time // when there were so many
}

// take takes a token, and waits in line for one until ctx ends.
func (b *bucket) take(ctx context.Context) error {
	select {
	case b.first <- struct{}{}: // the runtime keeps the order
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-b.first }()
	for ctx.Err() == nil {
		wait := b.tryTake()
		if wait == 0 {
			return nil
		}
		select {
		case <-time.After(wait):
		case <-b.given:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// tryTake takes a token, or returns how long there will be none if none is given back.
func (b *bucket) tryTake() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill()
	if b.tokens < 1 {
		const longest = helloTimeout // nobody waits for longer
		return time.Duration(min((1-b.tokens)/b.rate*float64(time.Second)+1, float64(longest)))
	}
	b.tokens--
	return 0
}

// give gives a token back.
func (b *bucket) give() {
	b.mu.Lock()
	b.tokens = min(b.tokens+1, handshakeBurst)
	b.mu.Unlock()
	select {
	case b.given <- struct{}{}:
	default: // the first in the line has yet to see the last one
	}
}

func (b *bucket) full() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill()
	return b.tokens == handshakeBurst
}

// refill adds the tokens that have come with time. Its caller holds the lock.
func (b *bucket) refill() {
	now := time.Now()
	b.tokens = min(b.tokens+b.rate*now.Sub(b.at).Seconds(), handshakeBurst)
	b.at = now
}
