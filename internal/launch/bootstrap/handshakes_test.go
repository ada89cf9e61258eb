package bootstrap

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/secure"
)

func prefix(n int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 32)
}

// drain takes all tokens of an address, and returns how many there were.
func (h *handshakes) drain(from netip.Prefix) (n int) {
	for h.of(from).tryTake() == 0 {
		n++
	}
	return n
}

// TestFailedHandshakesAreLimited has an address take tokens for as long as it can.
func TestFailedHandshakesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandshakes()
		if n := h.drain(prefix(1)); n != handshakeBurst {
			t.Errorf("%d at once, want %d", n, handshakeBurst)
		}
		if n := h.drain(prefix(2)); n != handshakeBurst {
			t.Errorf("%d of another address, want %d", n, handshakeBurst)
		}
		time.Sleep(time.Second)
		if n := h.drain(prefix(1)); n != handshakeRate {
			t.Errorf("%d in a second, want %d", n, handshakeRate)
		}
		time.Sleep(time.Hour)
		if n := h.drain(prefix(1)); n != handshakeBurst {
			t.Errorf("%d after an hour, want %d", n, handshakeBurst)
		}
	})
}

// TestHandshakesWaitInLine has more come at once than an address has tokens. Each that succeeds lets
// the first in the line go on, and the others come with time, or give up.
func TestHandshakesWaitInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandshakes()
		b := h.of(prefix(1))
		h.drain(prefix(1))
		ctx, cancel := context.WithCancel(t.Context())
		const waiting = 10
		order, failed := make(chan int, waiting), make(chan error, waiting)
		for i := range waiting {
			go func() {
				if err := b.take(ctx); err != nil {
					failed <- err
					return
				}
				order <- i
			}()
			synctest.Wait()
		}
		begun := time.Now()
		for i := range 3 {
			b.give()
			synctest.Wait()
			if len(order) != 1 || <-order != i || time.Now() != begun {
				t.Fatalf("a token that was given back did not reach number %d", i)
			}
		}
		for i := 3; i < 6; i++ {
			if n := <-order; n != i {
				t.Errorf("number %d came before %d", n, i)
			}
		}
		if took, want := time.Since(begun), 3*time.Second/handshakeRate; took < want || took > want+time.Millisecond {
			t.Errorf("three tokens came in %v, want %v", took, want)
		}
		cancel()
		for range waiting - 6 {
			if err := <-failed; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		for range 2 * handshakeBurst {
			b.give()
		}
		if n := h.drain(prefix(1)); n != handshakeBurst {
			t.Errorf("%d tokens, want %d", n, handshakeBurst)
		}
	})
}

// TestBucketsAreBounded has very many addresses take tokens: those that took the last ones share them,
// and one that has all its tokens is forgotten.
func TestBucketsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandshakes()
		for n := range maxBuckets {
			h.of(prefix(n)).tryTake()
		}
		for n := maxBuckets; n < 2*maxBuckets; n++ {
			h.of(prefix(n)).tryTake()
		}
		if len(h.buckets) != maxBuckets+1 {
			t.Errorf("%d buckets, want %d", len(h.buckets), maxBuckets+1)
		}
		if n := h.drain(prefix(1)); n != handshakeBurst-1 {
			t.Errorf("an address that came in time has %d tokens, want %d", n, handshakeBurst-1)
		}
		if n := h.drain(prefix(maxBuckets)); n != 0 {
			t.Errorf("one that came late has %d tokens", n)
		}
		time.Sleep(time.Second / handshakeRate)
		if n := h.drain(prefix(maxBuckets)); n != handshakeBurst || len(h.buckets) != 3 { // with those that lack tokens
			t.Errorf("a newcomer has %d tokens of its own, want %d; there are %d buckets", n, handshakeBurst, len(h.buckets))
		}
	})
}

// serveWithoutRefill serves a job whose tokens for handshakes never come with time.
func serveWithoutRefill(t *testing.T, key *secure.Key) *Server {
	t.Helper()
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Config{Job: testJob, Key: key}
	s, err := newServer(l, c, c.Logger(), noRank)
	if err != nil {
		t.Fatal(err)
	}
	s.lobby.handshakes.rate = 0
	s.start()
	t.Cleanup(func() { s.Close() })
	return s
}

// joinAtOnce has many ranks join at once.
func joinAtOnce(t *testing.T, s *Server, ranks int, key *secure.Key) {
	t.Helper()
	ctx := testContext(t)
	var all sync.WaitGroup
	for rank := range ranks {
		all.Go(func() {
			place := rankAt(s.Addr(), rank, ranks)
			place.Key = key
			c, err := Dial(ctx, place, nil)
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
				return
			}
			t.Cleanup(func() { c.Close() })
		})
	}
	all.Wait()
}

// TestFloodOfHandshakesKeepsNoRankOut has an address begin handshakes without the key, one after the other
// and many at a time, while ranks of another address join.
func TestFloodOfHandshakesKeepsNoRankOut(t *testing.T) {
	key, other := secure.NewKey(), secure.NewKey()
	s := serveWithoutRefill(t, &key)
	config, err := pinned(&other)
	if err != nil {
		t.Fatal(err)
	}
	config.VerifyConnection = nil // it goes as far as the server lets it
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: testenv.Limit}
	const attempts, atOnce = 600, 50
	var left, computed atomic.Int32
	left.Store(attempts)
	var flood sync.WaitGroup
	ctx, over := context.WithCancel(t.Context())
	defer over()
	for range atOnce {
		flood.Go(func() {
			for left.Add(-1) >= 0 {
				raw, err := from.DialContext(ctx, "tcp", s.listener.Addr().String())
				if ctx.Err() != nil {
					return
				} else if err != nil {
					t.Error(err)
					return
				}
				c := tls.Client(raw, config)
				stop := context.AfterFunc(ctx, func() { raw.Close() }) // or it would wait in line
				if c.Handshake() == nil {
					computed.Add(1)
				}
				stop()
				raw.Close()
			}
		})
	}
	joinAtOnce(t, s, 50, &key)
	tokens := s.lobby.handshakes.of(network(from.LocalAddr))
	testenv.Await(t, "the flood to stand in line", func() bool { return left.Load() < 0 || computed.Load() >= handshakeBurst && len(tokens.first) > 0 })
	over()
	flood.Wait()
	if n := computed.Load(); n != handshakeBurst {
		t.Errorf("the server computed %d handshakes for one without the key, want %d", n, handshakeBurst)
	}
}

// TestRanksOfAHostJoinAtOnce has more ranks join than the address has tokens, and the lobby places. Each
// gives its token back, and none is put out with one.
func TestRanksOfAHostJoinAtOnce(t *testing.T) {
	key := secure.NewKey()
	s := serveWithoutRefill(t, &key)
	joinAtOnce(t, s, maxGuests+handshakeBurst, &key)
	if n := s.lobby.handshakes.drain(network(s.listener.Addr())); n != handshakeBurst {
		t.Errorf("%d tokens are left, want %d", n, handshakeBurst)
	}
}
