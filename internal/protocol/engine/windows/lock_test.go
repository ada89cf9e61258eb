package windows

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

// model is the lock as the standard and fairness want it, without cleverness: a
// list of all requests in the order they came, of which a prefix holds the lock.
type model []struct {
	holder uint64
	kind   window.LockType
	ticket int
	holds  bool
}

func (m model) find(holder uint64) int {
	for i := range m {
		if m[i].holder == holder {
			return i
		}
	}
	return -1
}

// settle grants what must be granted and returns the tickets, in order.
func (m model) settle() (tickets []int) {
	for i := range m {
		if m[i].kind == window.LockExclusive && i > 0 || i > 0 && m[0].kind == window.LockExclusive {
			break
		}
		if !m[i].holds {
			m[i].holds = true
			tickets = append(tickets, m[i].ticket)
		}
	}
	return tickets
}

// held returns how holder holds the lock; ok is false if it does not, or waits.
func held(l *Lock[int], holder uint64) (kind window.LockType, ok bool) {
	n := l.nodes[holder]
	if n == nil || n.waits {
		return 0, false
	}
	return n.kind, true
}

func TestLockAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Lock[int]
		var m model
		ticket := 0
		same := func(got []Grant[int], want []int) {
			if len(got) != len(want) {
				t.Fatalf("granted %v, want tickets %v", got, want)
			}
			for i := range got {
				if at := m.find(got[i].Holder); got[i].Ticket != want[i] || at < 0 || m[at].ticket != want[i] {
					t.Fatalf("granted %v, want tickets %v", got, want)
				}
			}
		}
		anyone := rapid.Uint64Range(1, 6)
		t.Repeat(map[string]func(*rapid.T){
			"acquire": func(t *rapid.T) {
				holder, kind := anyone.Draw(t, "holder"), rapid.SampledFrom([]window.LockType{window.LockExclusive, window.LockShared, 0}).Draw(t, "kind")
				ticket++
				granted, class := l.Acquire(holder, kind, ticket)
				switch {
				case kind == 0:
					if class != mpierr.Locktype {
						t.Fatalf("invalid type: %v", class)
					}
					return
				case m.find(holder) >= 0:
					if class != mpierr.RMASync {
						t.Fatalf("second request: %v", class)
					}
					return
				}
				m = append(m, model{{holder: holder, kind: kind, ticket: ticket}}...)
				if want := len(m.settle()) == 1; granted != want || class != mpierr.Success {
					t.Fatalf("granted %v (%v), want %v", granted, class, want)
				}
			},
			"pass": func(t *rapid.T) { // it comes after those who hold the lock, before all others
				holder := anyone.Draw(t, "holder")
				ticket++
				granted, class := l.Pass(holder, ticket)
				if m.find(holder) >= 0 {
					if class != mpierr.RMASync {
						t.Fatalf("second request: %v", class)
					}
					return
				}
				at := 0
				for at < len(m) && m[at].holds {
					at++
				}
				m = slices.Insert(m, at, model{{holder: holder, kind: window.LockShared, ticket: ticket}}...)
				if want := len(m.settle()) == 1; granted != want || class != mpierr.Success {
					t.Fatalf("granted %v (%v), want %v", granted, class, want)
				}
			},
			"release": func(t *rapid.T) {
				holder := anyone.Draw(t, "holder")
				at := m.find(holder)
				granted, class := l.Release(holder, nil)
				if at < 0 || !m[at].holds {
					if class != mpierr.RMASync || granted != nil {
						t.Fatalf("release without hold: %v %v", class, granted)
					}
					return
				}
				m = append(m[:at:at], m[at+1:]...)
				same(granted, m.settle())
			},
			"drop": func(t *rapid.T) {
				holder := anyone.Draw(t, "holder")
				granted := l.Drop(holder, nil)
				if at := m.find(holder); at >= 0 {
					m = append(m[:at:at], m[at+1:]...)
				}
				same(granted, m.settle())
			},
			"": func(t *rapid.T) {
				holders, exclusive := 0, false
				for i := range m {
					kind, ok := held(&l, m[i].holder)
					if ok != m[i].holds || ok && kind != m[i].kind {
						t.Fatalf("request %+v: holds %v %v", m[i], ok, kind)
					}
					if ok {
						holders++
						exclusive = exclusive || kind == window.LockExclusive
					}
				}
				if l.Holders() != holders || l.Waiting() != len(m)-holders {
					t.Fatalf("%d holders and %d waiting, want %d and %d", l.Holders(), l.Waiting(), holders, len(m)-holders)
				}
				var holding, waiting, wantHolding, wantWaiting []int
				l.EachHolder(func(ticket *int) { holding = append(holding, *ticket) })
				l.EachWaiter(func(ticket *int) { waiting = append(waiting, *ticket) })
				for i := range m {
					if w := l.Waiter(m[i].holder); m[i].holds != (w == nil) || w != nil && *w != m[i].ticket {
						t.Fatalf("request %+v: waits with ticket %v", m[i], w)
					}
					if m[i].holds {
						wantHolding = append(wantHolding, m[i].ticket)
					} else {
						wantWaiting = append(wantWaiting, m[i].ticket)
					}
				}
				slices.Sort(holding) // one that passes holds later, and stands earlier in the model
				slices.Sort(wantHolding)
				if !slices.Equal(holding, wantHolding) || !slices.Equal(waiting, wantWaiting) {
					t.Fatalf("tickets %v hold and %v wait, want %v and %v", holding, waiting, wantHolding, wantWaiting)
				}
				if exclusive && holders > 1 {
					t.Fatal("exclusion violated")
				}
				if holders == 0 && len(m) > 0 {
					t.Fatal("requests wait for a free lock")
				}
			},
		})
		// Everyone who waits is granted once those before have released.
		for len(m) > 0 {
			if kind, ok := held(&l, m[0].holder); !ok || kind != m[0].kind {
				t.Fatalf("the first request does not hold the lock: %+v", m[0])
			}
			granted, _ := l.Release(m[0].holder, nil)
			m = m[1:]
			same(granted, m.settle())
		}
		if l.Holders() != 0 || l.Waiting() != 0 || len(l.nodes) != 0 {
			t.Fatal("something is left behind")
		}
	})
}

func TestLockDoesNotAllocate(t *testing.T) {
	var l Lock[int]
	granted := make([]Grant[int], 0, 64)
	round := func() {
		for h := range uint64(40) {
			kind := window.LockShared
			if h%7 == 0 {
				kind = window.LockExclusive
			}
			l.Acquire(h, kind, 1)
		}
		for h := range uint64(40) {
			if h%5 == 0 {
				granted = l.Drop(h, granted[:0])
			} else {
				granted, _ = l.Release(h, granted[:0])
			}
		}
	}
	round()
	if n := testing.AllocsPerRun(200, round); n != 0 {
		t.Errorf("%v allocations a round", n)
	}
	if len(l.nodes) != 0 {
		t.Errorf("%d requests left", len(l.nodes))
	}
}

func TestEpochDoesNotAllocate(t *testing.T) {
	e := NewEpoch(0, 8, false)
	var err error
	n := testing.AllocsPerRun(100, func() {
		for _, f := range []error{e.Lock(3, window.LockShared, 0), e.Access(3), e.Flush(3), e.Unlock(3), e.LockAll(0), e.Access(7), e.UnlockAll()} {
			if f != nil {
				err = f
			}
		}
	})
	if n != 0 || err != nil {
		t.Errorf("%v allocations, error %v", n, err)
	}
}

func BenchmarkEpochAccess(b *testing.B) {
	e := NewEpoch(0, 8, false)
	if err := e.Lock(3, window.LockShared, 0); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if e.Access(3) != nil {
			b.Fatal()
		}
	}
}

func BenchmarkLock(b *testing.B) {
	var l Lock[int]
	var granted []Grant[int]
	for b.Loop() {
		l.Acquire(1, window.LockExclusive, 0)
		l.Acquire(2, window.LockExclusive, 0)
		granted, _ = l.Release(1, granted[:0])
		granted, _ = l.Release(2, granted[:0])
	}
}
