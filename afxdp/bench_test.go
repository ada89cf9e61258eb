package afxdp

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// beside runs f over and over on a thread of its own until the returned
// function is called, which returns f's error.
func beside(f func() error) (stop func() error) {
	var over atomic.Bool
	var err error
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for !over.Load() && err == nil {
			err = f()
		}
	})
	return func() error {
		over.Store(true)
		wg.Wait()
		return err
	}
}

// BenchmarkEcho is the round trip of one frame between two namespaces, both
// sides spinning on their own core.
func BenchmarkEcho(b *testing.B) {
	for _, c := range []struct{ mtu, length int }{{1500, 64}, {1500, 1514}, {9000, 64}, {9000, 9014}} {
		b.Run(fmt.Sprintf("mtu=%d/bytes=%d", c.mtu, c.length), func(b *testing.B) {
			pair := newVethPair(b, c.mtu)
			config := Config{RxChunks: 256, TxChunks: 256, MultiBuffer: c.mtu > 3498}
			near, far := end(b, pair[0], config), end(b, pair[1], config)
			origin, mirror := newPort(near, c.length), newPort(far, c.length)
			for _, at := range origin.free {
				stamp(near.TxArea()[at:at+uint64(c.length)], at)
			}
			stop := beside(mirror.reflect)
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			trips := make([]time.Duration, 0, 1<<20)
			b.ReportAllocs()
			for b.Loop() {
				start := time.Now()
				if err := roundTrip(origin, c.length); err != nil {
					b.Fatal(err)
				}
				if len(trips) < cap(trips) {
					trips = append(trips, time.Since(start))
				}
			}
			if err := stop(); err != nil {
				b.Fatal(err)
			}
			slices.Sort(trips)
			b.ReportMetric(float64(trips[len(trips)/2].Nanoseconds()), "p50-ns")
			b.ReportMetric(float64(trips[len(trips)*99/100].Nanoseconds()), "p99-ns")
		})
	}
}

// roundTrip sends one frame and spins until one comes back, at most about a second.
func roundTrip(p *port, length int) error {
	if _, ok := p.slot(); !ok || !p.send(length) {
		return fmt.Errorf("no transmit slot")
	}
	p.Publish()
	if _, err := p.Kick(); err != nil {
		return err
	}
	for range 100_000_000 {
		if n := p.Receive(p.frames); n > 0 {
			p.Release()
			return nil
		}
	}
	return fmt.Errorf("the frame did not come back")
}

// BenchmarkStream is the time of one full-sized frame of a one-way stream, sent
// in batches of 32 with a window that the receiver's chunks cover.
func BenchmarkStream(b *testing.B) {
	for _, mtu := range []int{1500, 3498, 9000} {
		b.Run(fmt.Sprintf("mtu=%d", mtu), func(b *testing.B) {
			const window, batch = 512, 32
			length := mtu + 14
			pair := newVethPair(b, mtu)
			config := Config{MultiBuffer: mtu > 3498}
			sender, receiver := newPort(end(b, pair[0], config), length), newPort(end(b, pair[1], config), length)
			for _, at := range sender.free {
				stamp(sender.TxArea()[at:at+uint64(length)], at)
			}
			var received atomic.Uint64
			stop := beside(func() error {
				if n := receiver.Receive(receiver.frames); n > 0 {
					receiver.Release()
					received.Add(uint64(n))
				}
				return nil
			})
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			b.SetBytes(int64(length))
			b.ReportAllocs()
			sent, queued := uint64(0), 0
			for b.Loop() {
				for spins := 0; sent-received.Load() >= window; spins++ {
					if spins > 100_000_000 {
						b.Fatalf("%d frames sent, %d received, then nothing", sent, received.Load())
					}
				}
				if _, ok := sender.slot(); !ok || !sender.send(length) {
					b.Fatal("no transmit slot within the window")
				}
				sent++
				if queued++; queued == batch {
					queued = 0
					if err := flush(sender.Socket); err != nil {
						b.Fatal(err)
					}
				}
			}
			if err := flush(sender.Socket); err != nil {
				b.Fatal(err)
			}
			if err := stop(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(sent)*float64(length)*8/b.Elapsed().Seconds()/1e9, "Gbit/s")
		})
	}
}

// flush publishes and kicks until the kernel has everything.
func flush(s *Socket) error {
	s.Publish()
	for range 1000 {
		switch r, err := s.Kick(); r {
		case KickDone, KickFailed:
			return err
		}
	}
	return fmt.Errorf("the kernel does not take the frames")
}
