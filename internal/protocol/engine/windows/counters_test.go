package windows

import (
	"math/rand/v2"
	"sync"
	"testing"
)

// TestCountersTellWhoWaits arms and disarms waits at random while others count. Whoever gets a
// counter to a number that is waited for must be told to look.
func TestCountersTellWhoWaits(t *testing.T) {
	c, r := NewCounters(5), rand.New(rand.NewPCG(1, 2))
	var armed []*CounterWait
	for range 20_000 {
		switch r.IntN(3) {
		case 0:
			w := &CounterWait{Counters: c}
			w.Name(r.Perm(5)[:1+r.IntN(4)])
			w.AtLeast = c.Read(w.Which[0]) + 1 + uint64(r.IntN(4))
			w.Arm()
			armed = append(armed, w)
		case 1:
			if n := len(armed); n > 0 {
				i := r.IntN(n)
				armed[i].Disarm()
				armed[i] = armed[n-1]
				armed = armed[:n-1]
			}
		default:
			i := r.IntN(5)
			told := c.Count(uint32(i))
			want := false
			for _, w := range armed {
				for _, which := range w.Which {
					want = want || which == i && c.Read(i) >= w.AtLeast
				}
			}
			if told != want {
				t.Fatalf("counter %d is %d: told %v, want %v", i, c.Read(i), told, want)
			}
			if r.IntN(20) == 0 {
				c.Reset(i)
			}
		}
	}
	for _, w := range armed {
		w.Disarm()
	}
	for i := range c.all {
		if c.all[i].awaited != 0 {
			t.Errorf("nobody waits, and counter %d tells at %d", i, c.all[i].awaited)
		}
	}
}

// TestNoWaitIsMissed has several count to a number while one arms itself for it: either that one
// sees the number, or the last of them is told to look.
func TestNoWaitIsMissed(t *testing.T) {
	const counts = 4
	for range 20_000 {
		c := NewCounters(1)
		told := make([]bool, counts)
		var all sync.WaitGroup
		for i := range counts {
			all.Go(func() { told[i] = c.Count(0) })
		}
		w := CounterWait{Counters: c, AtLeast: counts}
		w.Name([]int{0})
		w.Arm()
		done := w.Done() >= 0
		all.Wait()
		for _, yes := range told {
			done = done || yes
		}
		if !done {
			t.Fatal("nobody has noticed that the number is there")
		}
	}
}
