package onesided

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

// forgery is a data frame that only somebody who has seen frames of the session can make.
func forgery(s *Peer, r *wire.Record, data []byte, change func(*wire.Header)) []byte {
	h := wire.Header{Kind: wire.KindData, Session: s.PeerID(), Packet: 1, Sequence: s.Next(link.Request)}
	if change != nil {
		change(&h)
	}
	b := make([]byte, wire.HeaderLen+wire.RecordSize(len(data)))
	copy(wire.PutRecord(b[wire.HeaderLen:], r, len(data)), data)
	h.Encode(b)
	return b
}

// lockAndGet asks for a lock, and has a get travel with it.
func lockAndGet(f *ranks, a *Access) {
	f.T.Helper()
	f.e[0].Lock(a, true)
	if done, err := f.e[0].Issue(&Call{Access: a, Code: wire.CodeGet, Result: make([]byte, 8)}); !done || err != nil {
		f.T.Fatal(done, err)
	}
}

// TestForgedFrameHangsNoCall has a forged frame take the sequence of a genuine one, which then
// counts as received: the call on it ends with an error within the limit, though the peer
// lives and answers all else.
func TestForgedFrameHangsNoCall(t *testing.T) {
	far := func(h *wire.Header) { h.Packet = 1 << 20 } // further than any that was sent
	for name, issue := range map[string]func(f *ranks, a *Access){
		"get": func(f *ranks, a *Access) {
			f.issue(f.e[0], &Call{Access: a, Code: wire.CodeGet, Result: make([]byte, 8)})
		},
		"lock":         func(f *ranks, a *Access) { f.e[0].Lock(a, true) },
		"lock and get": lockAndGet,
	} {
		t.Run(name, func(t *testing.T) {
			for _, change := range []func(*wire.Header){nil, far} {
				f := newRanks(t, 2, 64, nil)
				a := f.access(0, 1)
				f.Pass(millisecond)
				f.e[1].Receive(forgery(a.session, &wire.Record{Code: wire.CodePing}, nil, change), 0)
				issue(f, a)
				f.e[0].Flush(a)
				f.Pass(f.e[0].cfg.DeadAfter)
				if change != nil { // the peer's acknowledgements make no sense any more
					f.Pass(1000 * millisecond)
				}
				if err := a.TakeError(); !a.session.Dead() || !errors.Is(err, mpierr.ProcFailed) || change == nil && !errors.Is(err, errUnknown) {
					t.Errorf("the call has not ended: %v, %s", err, f.Describe())
				}
			}
		})
	}
}

// TestPeerThatAnswersNothingIsGivenUp has a peer apply all that it is sent, and lose its
// answers.
func TestPeerThatAnswersNothingIsGivenUp(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a := f.access(0, 1)
	f.Pass(millisecond)
	f.Filter = func(from, _ int, b []byte) int {
		var h wire.Header
		if from == 1 && h.Decode(b) == wire.OK && h.Kind == wire.KindData {
			h.Kind = wire.KindAck
			clear(b[wire.HeaderLen:])
			h.Encode(b[:wire.HeaderLen])
			f.e[0].Receive(b[:wire.HeaderLen], 1)
			return 0
		}
		return 1
	}
	f.issue(f.e[0], &Call{Access: a, Code: wire.CodeGet, Result: make([]byte, 8)})
	f.e[0].Flush(a)
	f.Pass(f.e[0].cfg.DeadAfter * 5 / 4)
	if err := a.TakeError(); !a.session.Dead() || !errors.Is(err, mpierr.ProcFailed) {
		t.Errorf("the call has not ended: %v, %s", err, f.Describe())
	}
}

// TestForgedRefusalsHangNoFlush has a forged frame say that the peer has refused more
// requests than it has.
func TestForgedRefusalsHangNoFlush(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a := f.access(0, 1)
	f.Pass(millisecond)
	f.e[0].Receive(forgery(f.e[1].Session(0), &wire.Record{Code: wire.CodePing}, nil, func(h *wire.Header) { h.Refusals = 7 }), 1)
	f.issue(f.e[0], &Call{Access: a, Code: wire.CodePut, Origin: word(1)})
	f.e[0].Flush(a)
	f.Pass(f.e[0].cfg.DeadAfter)
	if err := a.TakeError(); !(*FlushWait)(a).Met() || !errors.Is(err, errUntold) {
		t.Errorf("the flush has not ended: %v, %s", err, f.Describe())
	}
}

// TestQueuedLocksAreKnown has locks wait as long as others hold them, with operations behind
// them, while the peer is asked about them again and again.
func TestQueuedLocksAreKnown(t *testing.T) {
	f := newRanks(t, 3, 64, nil)
	held, a := f.access(2, 1), f.access(0, 1)
	f.e[2].Lock(held, true)
	f.e[2].Flush(held)
	f.Pass(millisecond)
	lockAndGet(f, a)
	f.issue(f.e[0], &Call{Access: a, Code: wire.CodeGet, Result: make([]byte, 8)}) // kept back
	f.e[0].Flush(a)
	for range 60 {
		f.Pass(1000 * millisecond)
	}
	if a.session.Dead() || a.lock != locking {
		t.Fatalf("the lock is not waited for: %v, %s", a.TakeError(), f.Describe())
	}
	f.e[2].Unlock(held)
	f.e[2].Flush(held)
	f.Pass(10_000 * millisecond)
	if err := a.TakeError(); !(*FlushWait)(a).Met() || a.lock != locked || err != nil {
		t.Errorf("the lock was not granted: %v, %s", err, f.Describe())
	}
}

// inQueue returns a fabric whose rank 0 waits for the lock of rank 1, which rank 2 holds, with
// a get behind it.
func inQueue(t *testing.T, change func(*setup)) (*ranks, *Access) {
	f := newRanks(t, 3, 64, change)
	held, a := f.access(2, 1), f.access(0, 1)
	f.e[2].Lock(held, true)
	f.e[2].Flush(held)
	f.Pass(millisecond)
	lockAndGet(f, a)
	f.e[0].Flush(a)
	f.Pass(millisecond)
	return f, a
}

// TestTrafficBesideALockEndsNoSession has a lock wait while requests and answers of others are
// under way whenever the origin looks, so that it can hardly ask.
func TestTrafficBesideALockEndsNoSession(t *testing.T) {
	for name, traffic := range map[string]func(f *ranks, back *Access){
		"requests of the origin": func(f *ranks, back *Access) {
			s := f.e[0].Session(1)
			if i := s.Room(link.Request, 0); i != link.None {
				f.e[0].Link.Append(i, &wire.Record{Code: wire.CodePing}, 0)
			}
			f.e[0].Tick()
		},
		"requests of the target": func(f *ranks, back *Access) {
			if done, err := f.e[1].Issue(&Call{Access: back, Code: wire.CodeGet, Result: make([]byte, 8)}); !done || err != nil {
				f.T.Fatal(done, err)
			}
			f.e[1].Flush(back)
			for e := f.e[1]; ; { // rank 0 answers, and its frame is under way
				if e.Tick(); len(e.Output()) == 0 {
					break
				}
				o := e.Output()[0]
				f.Deliver(1, int(o.Path), e.cfg.Slab.Payload(o.Slot)[:o.Len])
				e.Took(1)
				e.Reaped([]int32{o.Slot})
			}
			f.e[0].Tick()
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, a := inQueue(t, nil)
			back := f.access(1, 0)
			for range 1500 {
				traffic(f, back)
				f.Advance(f.Now + 10*millisecond)
				f.e[0].Tick()
				f.Settle()
			}
			f.Pass(6000 * millisecond)
			if a.session.Dead() {
				t.Errorf("a healthy session ended: %v", a.TakeError())
			}
		})
	}
}

// TestManyLocksInQueues has a rank wait for the locks of more targets than it has slots, and be
// stopped meanwhile, so that all of them are to be asked at once.
func TestManyLocksInQueues(t *testing.T) {
	const targets = 200
	f := newRanks(t, targets+1, 64, nil)
	var all []*Access
	for r := 1; r <= targets; r++ {
		f.e[r].Lock(f.e[r].OpenLocal(f.e[r].Windows().Lookup(testWindow)), true)
		all = append(all, f.access(0, r))
	}
	for _, a := range all {
		f.Until(1000*millisecond, func() bool { return f.e[0].LockPassing(a, f.Now) })
		f.Pass(millisecond)
	}
	f.Advance(f.Now + 2000*millisecond)
	f.Pass(20_000 * millisecond)
	for _, a := range all {
		if a.session.Dead() {
			t.Fatalf("a healthy session ended: %v", a.TakeError())
		}
	}
}

// TestManyLocksAtOneTarget has an origin wait for more locks of a target than a frame can ask
// about.
func TestManyLocksAtOneTarget(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	s := f.dial(0, 1)
	f.Until(1000*millisecond, s.Open)
	for id := range uint32(100) {
		w, a := f.expose(1000+id, 8)
		f.e[1].Lock(f.e[1].OpenLocal(w), true)
		f.Until(1000*millisecond, func() bool { return f.e[0].LockPassing(a, f.Now) })
		f.Pass(millisecond)
	}
	f.Pass(30_000 * millisecond)
	if s.Dead() {
		t.Errorf("a healthy session ended: %v", s.Failure())
	}
}

// TestForgedFrameBesideOthers has a forged frame take the sequence of one get while others are
// answered: that one ends with an error, too.
func TestForgedFrameBesideOthers(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a := f.access(0, 1)
	f.Pass(millisecond)
	f.e[1].Receive(forgery(a.session, &wire.Record{Code: wire.CodePing}, nil, nil), 0)
	var lost Request
	f.issue(f.e[0], &Call{Access: a, Code: wire.CodeGet, Result: make([]byte, 8), Request: &lost})
	f.e[0].Flush(a)
	begin := f.Now
	for !lost.Met() && f.Now-begin < f.e[0].cfg.DeadAfter {
		if done, err := f.e[0].Issue(&Call{Access: a, Code: wire.CodeGet, Result: make([]byte, 8), Request: &Request{}}); !done || err != nil {
			t.Fatal(done, err)
		}
		f.e[0].Tick()
		f.Advance(f.Now + 10*millisecond)
		f.e[0].Tick()
		f.Settle()
	}
	if !errors.Is(lost.Err(), errUnknown) {
		t.Errorf("the call has not ended: %v", lost.Err())
	}
}

// expose gives rank 1 another window, and returns the access of rank 0 to it.
func (f *ranks) expose(id uint32, size int) (w *windows.Window, a *Access) {
	f.T.Helper()
	w, err := windows.New(windows.Config{ID: id, Flavor: window.FlavorCreate, Memory: windows.Slice(make([]byte, size)), Size: size, DispUnit: 1, GroupSize: len(f.e)})
	if err == nil {
		err = f.e[1].Windows().Add(w)
	}
	if err != nil {
		f.T.Fatal(err)
	}
	return w, f.e[0].OpenAccess(f.dial(0, 1), id)
}

// TestInquiriesOnBadPaths has a lock wait, and gets go on, while frames take long, are lost,
// doubled and overtake each other. Much is asked about and all is answered.
func TestInquiriesOnBadPaths(t *testing.T) {
	type late struct {
		at       int64
		from, to int
		b        []byte
	}
	for delay, most := range map[int64]int{1: 100_000, 30: 100_000, 100: 10_000, 200: 10_000} {
		f, a := inQueue(t, func(c *setup) { c.DeadAfter = 2000 * millisecond })
		_, free := f.expose(1000, most)
		random := rand.New(rand.NewPCG(1, uint64(delay)))
		var under []late
		arrives := false
		f.Filter = func(from, to int, b []byte) int {
			if arrives || from == 2 || to == 2 {
				return 1
			}
			for range (random.IntN(8) + 5) / 6 { // now and then none: it is lost; or two
				under = append(under, late{f.Now + (delay+random.Int64N(delay))*millisecond/2, from, to, bytes.Clone(b)})
			}
			return 0
		}
		var calls []*Call
		for n := range 6000 {
			f.Pass(10 * millisecond)
			for i := 0; i < len(under); i++ {
				if l := under[i]; l.at <= f.Now {
					under = append(under[:i], under[i+1:]...)
					arrives = true
					f.Deliver(l.from, l.to, l.b)
					arrives = false
					i--
				}
			}
			if n%30 == 0 {
				calls = append(calls, &Call{Access: free, Code: wire.CodeGet, Result: make([]byte, 1+random.IntN(most))})
			}
			for len(calls) > 0 {
				done, err := f.e[0].Issue(calls[0])
				if err != nil {
					t.Fatalf("delay %d ms: a healthy session ended: %v", delay, err)
				}
				if !done {
					break
				}
				calls = calls[1:]
			}
		}
		if a.session.Dead() {
			t.Errorf("delay %d ms: a healthy session ended: %v", delay, a.TakeError())
		}
		if q := &free.session.inquiry; q.number < 10 {
			t.Errorf("delay %d ms: %d inquiries are too few to show anything", delay, q.number)
		}
	}
}

// TestOperationsByTarget has operations at several targets begin and end in any order. Each
// target must know its own, the newest first.
func TestOperationsByTarget(t *testing.T) {
	f := newRanks(t, 4, 64, nil)
	e := f.e[0]
	random := rand.New(rand.NewPCG(1, 2))
	accesses := []*Access{f.access(0, 1), f.access(0, 2), f.access(0, 3)}
	all := make([][]int32, len(accesses))
	for range 10_000 {
		to := random.IntN(len(accesses))
		if mine := all[to]; len(mine) > random.IntN(20) {
			n := random.IntN(len(mine))
			e.finish(mine[n], nil)
			all[to] = slices.Delete(mine, n, n+1)
		} else {
			all[to] = slices.Insert(mine, 0, e.newOp(accesses[to], nil))
		}
		for to, a := range accesses {
			var got []int32
			for i := a.session.newest; i != link.None && len(got) <= len(all[to]); i = e.ops[i].next {
				got = append(got, i)
			}
			if !slices.Equal(got, all[to]) {
				t.Fatalf("target %d has %v, want %v", to+1, got, all[to])
			}
		}
	}
}

// BenchmarkInquiries takes the time of a Tick in which an origin looks after all targets at
// once. It waits for a lock of each.
func BenchmarkInquiries(b *testing.B) {
	for _, targets := range []int{20, 200, 2000} {
		b.Run(fmt.Sprint(targets, " targets"), func(b *testing.B) {
			f := newRanks(b, targets+1, 8, func(c *setup) {
				slots := 16
				if c.Rank == 0 {
					slots = 2 * targets
				}
				c.Slab = link.HeapSlab(max(64, slots), 0, 1472)
			})
			e := f.e[0]
			for to := 1; to <= targets; to++ {
				f.e[to].Lock(f.e[to].OpenLocal(f.e[to].Windows().Lookup(testWindow)), true)
				if !e.Lock(e.OpenAccess(f.dial(0, to), testWindow), true) {
					b.Fatal("no room")
				}
			}
			f.Pass(1000 * millisecond)
			ticks := 0
			for b.Loop() {
				b.StopTimer()
				f.Settle()
				f.Advance(f.Now + e.cfg.DeadAfter/4)
				b.StartTimer()
				e.Tick()
				ticks++
			}
			if q := e.Session(1).inquiry.number; q < uint64(ticks/4) {
				b.Errorf("%d inquiries in %d ticks are too few to show anything", q, ticks)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(ticks*targets), "ns/target")
		})
	}
}
