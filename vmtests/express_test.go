package vmtests

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/rma"
)

func init() {
	programs["exclusive"] = exclusive
	programs["unanswered"] = unanswered
	programs["widowed"] = widowed
}

// Tests of requests that the target's XDP program executes. The rank that something
// happens to is the victim.

// acceptAnswers lets the answers of XDP programs in native mode pass a lab's bridge, if a
// rank has such a program. Answers in generic mode pass it as they are.
func acceptAnswers(t *testing.T, lab *netlab.Lab, transports ...string) *netlab.Lab {
	t.Helper()
	if !slices.Contains(transports, "xdp-native") {
		return lab
	}
	if err := lab.AcceptAnswers(); err != nil {
		t.Fatal(err)
	}
	return lab
}

// inProgram returns how many requests this rank's XDP program has executed.
func (s *self) inProgram() uint64 {
	device := s.node.Stats().Device
	return device.Filter["express_executed"]
}

// awaitReach returns once the XDP programs of all targets execute requests for win. All
// ranks call it. A target says so in the window's last word.
func (s *self) awaitReach(win *rma.Win, targets ...int) error {
	words := rma.Slice[int64](win.Memory())
	last := len(words) - 1
	reached, before := &words[last], s.inProgram()
	for ready := false; !ready; {
		ready = true
		for _, to := range targets {
			seen := atomic.LoadInt64(reached)
			if to == s.rank {
				if seen == 0 && s.inProgram() > before {
					atomic.StoreInt64(reached, 1)
				}
			} else {
				err := s.locked(win, rma.LockShared, to, func() error { return win.Get(buffer.Value(&seen), to, rma.At(int64(last))) })
				if err != nil {
					return err
				}
			}
			ready = ready && seen != 0
		}
		time.Sleep(time.Millisecond)
	}
	return s.world.Barrier(s.ctx)
}

// locked runs steps under a lock.
func (s *self) locked(win *rma.Win, kind rma.LockType, to int, steps ...func() error) error {
	return errors.Join(win.Lock(s.ctx, kind, to, 0), all(steps...), win.Unlock(s.ctx, to))
}

// exclusive: ranks count under exclusive locks, in two words at once. Some locks are taken
// and given up by one small request, others are held for longer by the target's engine.
func exclusive(s *self) error {
	const alone, together = 100, 60
	win, err := rma.Allocate(s.ctx, s.world, 64, 8, nil)
	if err != nil {
		return err
	}
	var targets []int
	for to := range s.size {
		targets = append(targets, to)
	}
	if err := s.awaitReach(win, targets...); err != nil {
		return err
	}
	before := s.inProgram()
	if err := s.world.Barrier(s.ctx); err != nil {
		return err
	}
	// Each at the next rank, where nobody else wants the lock: the program takes them all,
	// but for frames that get lost on the way.
	for n := range int64(alone) {
		if err := addTwo(s, win, (s.rank+1)%s.size, n); err != nil {
			return err
		}
	}
	if err := s.world.Barrier(s.ctx); err != nil {
		return err
	}
	n := s.inProgram() - before
	if err := errors.Join(check(n >= alone/2 && n <= alone, "the program has executed %d of %d requests", n, alone), s.world.Barrier(s.ctx)); err != nil {
		return err
	}
	for n := range together {
		to := n / 30 % s.size // one lock for all, and another one later
		add := func() error { return addTwo(s, win, to, -1) }
		if n%4 == s.rank%4 {
			add = func() error { return addSlowly(s, win, to) }
		}
		if err := add(); err != nil {
			return err
		}
	}
	if err := s.world.Barrier(s.ctx); err != nil {
		return err
	}
	want := int64(alone)
	for n := range together {
		if n/30%s.size == s.rank {
			want += int64(s.size)
		}
	}
	words := rma.Slice[int64](win.Memory())
	if err := check(words[0] == want && words[1] == want, "rank %d has counted %d, want %d", s.rank, words[:2], want); err != nil {
		return err
	}
	return win.Free(s.ctx)
}

// addTwo adds to two words by a lock, two fetch_and_ops and an unlock, which are one
// request. Under the lock both words must be equal, and want if that is not negative.
func addTwo(s *self, win *rma.Win, to int, want int64) error {
	one, a, b := int64(1), int64(0), int64(0)
	err := s.locked(win, rma.LockExclusive, to,
		func() error { return win.FetchAndOp(buffer.Value(&one), buffer.Value(&a), to, rma.At(0), rma.Sum) },
		func() error { return win.FetchAndOp(buffer.Value(&one), buffer.Value(&b), to, rma.At(1), rma.Sum) },
	)
	return errors.Join(err, check(a == b && (want < 0 || a == want), "fetched %d and %d, want %d", a, b, want))
}

// addSlowly reads both words and writes them, while it holds the lock.
func addSlowly(s *self, win *rma.Win, to int) error {
	var v [2]int64
	return s.locked(win, rma.LockExclusive, to,
		func() error { return win.Get(buffer.Of(v[:]), to, rma.At(0)) },
		func() error { return win.Flush(s.ctx, to) },
		func() error { return check(v[0] == v[1], "an exclusive holder got %d", v) },
		func() error { v[0]++; v[1]++; return win.Put(buffer.Of(v[:1]), to, rma.At(0)) },
		func() error { return win.Flush(s.ctx, to) },
		func() error { return win.Put(buffer.Of(v[1:]), to, rma.At(1)) },
	)
}

// XDP programs take locks, and nobody else has them meanwhile.
func TestTheProgramTakesLocks(t *testing.T) {
	for _, transport := range testenv.Cases([]string{"xdp-native"}, "xdp-generic") {
		t.Run(transport, func(t *testing.T) {
			lab := acceptAnswers(t, labtest.New(t, netlab.Config{Ranks: 5}), transport)
			j := start(t, lab, spec{program: "exclusive", transports: []string{transport}})
			j.finish()
			checkNothingLost(j)
		})
	}
}

// unanswered: every rank adds to words of its own at the others, until it has left the tier
// of a peer at least twice.
func unanswered(s *self) error {
	win, err := rma.Allocate(s.ctx, s.world, 8*s.size, 8, nil)
	if err != nil {
		return err
	}
	if err := win.LockAll(s.ctx, 0); err != nil {
		return err
	}
	rounds := int64(0)
	for left := uint64(0); rounds < 100 || left < uint64(s.size); rounds++ {
		for to := range s.size {
			if to == s.rank {
				continue
			}
			old, err := rma.Fetch(s.ctx, win, int64(1), to, rma.At(int64(s.rank)), rma.Sum)
			if err := errors.Join(err, check(old == rounds, "rank %d had %d after %d additions", to, old, rounds)); err != nil {
				return err
			}
		}
		protocol := s.node.Stats()
		left = protocol.AnswersLost
		time.Sleep(time.Millisecond)
	}
	if err := win.UnlockAll(s.ctx); err != nil {
		return err
	}
	return win.Free(s.ctx)
}

// Where the other end of a veth drops what XDP programs answer, the process answers, and the
// log says what to do.
func TestAnswersThatNeverArrive(t *testing.T) {
	lab := labtest.New(t, netlab.Config{Ranks: 3}) // without a program at the bridge's ports
	j := start(t, lab, spec{program: "unanswered", transports: []string{"xdp-native"}})
	j.finish()
	checkNothingLost(j)
	for _, r := range j.ranks {
		r.rewind()
		c := j.counters(r)
		if c.Device.Filter["express_executed"] == 0 {
			t.Errorf("the program of rank %d has executed nothing", r.n)
		}
		for _, words := range []string{"answers get lost", "attach an XDP program that passes all frames"} {
			if n := strings.Count(r.output(), words); n != 1 {
				t.Errorf("rank %d says %q %d times", r.n, words, n)
			}
		}
	}
}

// widowed: the victim is killed while the others exchange small requests with it.
func widowed(s *self) error {
	win, err := rma.Allocate(s.ctx, s.world, 64, 8, nil)
	if err != nil {
		return err
	}
	if err := s.awaitReach(win, victim); err != nil {
		return err
	}
	if s.rank == victim {
		return s.listen("nothing")
	}
	if err := win.LockAll(s.ctx, rma.ModeNoCheck); err != nil {
		return err
	}
	for n := 0; ; n++ {
		if n == 100 {
			fmt.Println("running")
		}
		if _, err := rma.Fetch(s.ctx, win, int64(1), victim, rma.At(0), rma.Sum); err != nil {
			fmt.Println("noticed", failed(err), err)
			break
		}
	}
	return s.listen("leave")
}

// The XDP program of a rank ends with its process, and so do the calls of those who used
// it. The place is free for another job.
func TestKilledWhileItsProgramServes(t *testing.T) {
	t.Parallel()
	for _, transport := range testenv.Cases([]string{"xdp-native"}, "xdp-generic") {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			lab := acceptAnswers(t, labtest.New(t, netlab.Config{Ranks: 4}), transport)
			j := start(t, lab, spec{program: "widowed", transports: []string{transport}, deadAfter: deadAfter})
			origins := j.ranks[:victim]
			for _, r := range origins {
				j.await(r, "running")
			}
			j.ranks[victim].kill()
			<-j.ranks[victim].done
			if attached(t, lab, victim) {
				t.Error("the XDP program of the killed rank is still attached")
			}
			for _, r := range origins {
				if noticed := j.await(r, "noticed "); !strings.HasPrefix(noticed, "<nil> ") {
					t.Errorf("rank %d: %s", r.n, noticed)
				}
				r.tell("leave")
			}
			j.ranks = origins
			j.finish()
			again := start(t, lab, spec{program: "exclusive", transports: []string{transport}})
			again.finish()
			checkNothingLost(again)
		})
	}
}
