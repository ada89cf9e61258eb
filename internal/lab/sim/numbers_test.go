package sim

import (
	"bytes"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/calls/collective"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
)

// A crowd is many ranks over a network without faults, in which each frame takes oneDelay. A
// World would look at all ranks after each event.
type crowd struct {
	now   int64
	queue eventQueue
	ranks []*resident
	left  int // calls that go on
}

const oneDelay = 10 * microsecond

// resident is a rank of a crowd.
type resident struct {
	crowd  *crowd
	e      *engine.Engine
	slab   *engine.Slab
	comm   collective.Comm
	call   collective.Machine // nil: it has ended
	need   collective.Need    // of call
	tickAt int64
	finds  int // questions for the rendezvous: where a rank is
	frames int // that it has sent
}

func newCrowd(n int) *crowd {
	c := &crowd{now: second}
	ids := rand.New(rand.NewPCG(1, uint64(n)))
	for rank := range n {
		r := &resident{crowd: c, slab: engine.HeapSlab(32, 0, 1400), comm: collective.New(collective.WorldContext, nil, rank, n), tickAt: engine.Never}
		r.e = engine.New(engine.Config{
			LinkConfig: engine.LinkConfig{
				Rank: rank, Size: n, Job: simJob, Incarnation: 1, Slab: r.slab, Rand: ids.Uint64,
				Seek: func(to int) {
					r.finds++
					c.queue.push(c.now+2*oneDelay, func() {
						r.e.Now = c.now
						r.e.Dial(to, engine.PathID(to), 1)
						r.run()
					})
				},
			},
			Windows: &windows.Table{},
		})
		c.ranks = append(c.ranks, r)
	}
	return c
}

// run lets a rank act until it waits for the network or the time.
func (r *resident) run() {
	c := r.crowd
	r.e.Now = c.now
	for busy := true; busy; {
		busy = r.step()
		r.e.Tick()
		r.e.Announcements()
		for len(r.e.Output()) > 0 {
			o := r.e.Output()[0]
			frame, from := bytes.Clone(r.slab.Payload(o.Slot)[:o.Len]), r.comm.Rank
			to := c.ranks[o.Path]
			r.frames++
			c.queue.push(c.now+oneDelay, func() {
				to.e.Now = c.now
				to.e.Receive(frame, engine.PathID(from))
				to.run()
			})
			r.e.Took(1)
			r.e.Reaped([]int32{o.Slot})
			busy = true
		}
	}
	if at := r.e.Deadline(); at < r.tickAt {
		r.tickAt = at
		c.queue.push(at, func() {
			if at == r.tickAt {
				r.tickAt = engine.Never
			}
			r.run()
		})
	}
}

// step carries the rank's call on, and reports whether it has moved.
func (r *resident) step() (moved bool) {
	for r.call != nil {
		switch r.need {
		case collective.Wait, collective.Last, collective.Finish:
			if !r.call.Met() {
				return moved
			}
		case collective.Work:
			r.call.Work()
		}
		moved = true
		if r.need = r.call.Step(r.e); r.need == collective.Done {
			r.call = nil
			r.crowd.left--
		}
	}
	return moved
}

// cost is what a collective takes.
type cost struct {
	frames, finds float64 // a rank, on average
	most          int     // frames of the rank that sends most
	delays        float64 // time, as times oneDelay
}

// all has all ranks make a call, and counts until nothing moves any more.
func (c *crowd) all(t *testing.T, call func(*resident) *collective.Call) (sum cost) {
	t.Helper()
	start, end := c.now, int64(0)
	c.left = len(c.ranks)
	var calls []*collective.Call
	for _, r := range c.ranks {
		k := call(r)
		calls = append(calls, k)
		r.call, r.need, r.finds, r.frames = k, k.Step(r.e), 0, 0
		c.queue.push(c.now, r.run)
	}
	for {
		if c.left == 0 && end == 0 {
			end = c.now
		}
		ev, ok := c.queue.pop(start + 10*second)
		if !ok {
			break
		}
		c.now = max(c.now, ev.at)
		ev.do()
	}
	if c.left > 0 {
		t.Fatalf("%d of %d ranks still wait", c.left, len(c.ranks))
	}
	n := float64(len(c.ranks))
	for i, r := range c.ranks {
		if err := calls[i].Err(); err != nil {
			t.Fatalf("rank %d: %v", i, err)
		}
		if s := &r.e.Stats; s.Resent+s.PeersFailed+s.Parked > 0 {
			t.Fatalf("rank %d lost something in a network that loses nothing: %+v", i, *s)
		}
		sum.frames, sum.finds, sum.most = sum.frames+float64(r.frames)/n, sum.finds+float64(r.finds)/n, max(sum.most, r.frames)
	}
	c.now = start + 10*second
	sum.delays = float64(end-start) / float64(oneDelay)
	return sum
}

// TestNumbersOfRanks counts what collectives take while the number of ranks grows: frames,
// time, questions for the rendezvous and sessions grow as its logarithm.
func TestNumbersOfRanks(t *testing.T) {
	sizes := []int{16, 256, 4096}
	if testing.Short() {
		sizes = sizes[:2]
	}
	one := datatype.BasicUint64
	barrier := func(r *resident) *collective.Call { return r.comm.Barrier("barrier") }
	reduced := func(r *resident) *collective.Call {
		return r.comm.Allreduce(make([]byte, 8), make([]byte, 8), datatype.Sum, one)
	}
	t.Log("| ranks | call | frames a rank | of one rank, at most | time, one-way delays | questions a rank | sessions a rank | KB a rank |")
	for _, n := range sizes {
		log := bits.Len(uint(n - 1))
		c := newCrowd(n)
		empty := heap()
		for _, s := range []struct {
			name          string
			call          func(*resident) *collective.Call
			frames, delay int // of a rank, and in all, for each doubling of the ranks
		}{
			// Before the message a session is opened: by hellos of both ranks, whose ways they
			// ask for, and the answers.
			{"first barrier", barrier, 9, 4},
			{"barrier", barrier, 2, 1},
			{"bcast, 8 bytes", func(r *resident) *collective.Call { return r.comm.Bcast(make([]byte, 8), 0) }, 1, 1},
			{"reduce, 8 bytes", func(r *resident) *collective.Call {
				return r.comm.Reduce(make([]byte, 8), make([]byte, 8), datatype.Sum, one, 0)
			}, 1, 1},
			{"allreduce, 8 bytes", reduced, 2, 1},
		} {
			got := c.all(t, s.call)
			sessions := c.ranks[0].e.Usage().Sessions
			bytes := int(heap()-empty) / n
			t.Logf("| %d | %s | %.1f | %d | %.0f | %.0f | %d | %.1f |", n, s.name, got.frames, got.most, got.delays, got.finds, sessions, float64(bytes)/1000)
			if got.most > s.frames*log || got.delays > float64(s.delay*log) || got.finds > float64(2*log) || sessions > 2*log {
				t.Errorf("%s of %d ranks: %d frames of a rank, %.1f delays, %.1f questions and %d sessions; at most %d, %d, %d and %d are in order",
					s.name, n, got.most, got.delays, got.finds, sessions, s.frames*log, s.delay*log, 2*log, 2*log)
			}
			if most := 4096 * sessions; bytes > most {
				t.Errorf("%s of %d ranks: sessions take %d bytes of a rank, more than %d", s.name, n, bytes, most)
			}
		}
		runtime.KeepAlive(c)
	}
}

// heap returns the bytes that are in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
