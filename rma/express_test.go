package rma_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/lab/logs"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/userspace"
)

// executed returns how many requests a rank's XDP program has executed.
func executed(n *rma.Node) uint64 {
	device := n.Stats().Device
	return device.Filter["express_executed"]
}

// handedOn returns how many requests the node's program has executed, and then handed on since
// somebody waits for what they do.
func handedOn(n *rma.Node) uint64 { return n.Stats().Device.Filter["express_awaited"] }

// awaitReach reads from rank 1 until its program answers, which learns of the window in
// the background.
func awaitReach(j *job, w *rma.Win) {
	j.t.Helper()
	var got int64
	for before := executed(j.nodes[1]); executed(j.nodes[1]) == before; {
		j.must(w.Lock(j.ctx, rma.LockShared, 1, 0), w.Get(buffer.Value(&got), 1, rma.At(0)), w.Unlock(j.ctx, 1))
	}
}

// TestCallsAreExecutedInXDP makes each kind of small call, under a lock of its own and
// under one that is held, at a target whose program reaches the window. The answers come past the sockets.
func TestCallsAreExecutedInXDP(t *testing.T) {
	for _, test := range []struct {
		transport userspace.Transport
		v6        bool
	}{
		{userspace.XDPNative, false}, {userspace.XDPGeneric, false},
		{userspace.XDPNative, true}, {userspace.XDPGeneric, true},
	} {
		t.Run(fmt.Sprintf("%s, IPv6 %v", test.transport, test.v6), func(t *testing.T) {
			lab := newLab(t, 2)
			places := placesIn(t, lab, test.transport)
			for rank := range places {
				if test.v6 {
					places[rank].Address = lab.Addr6(rank)
				}
			}
			j := joined(t, places, lab.Do, rma.Config{})
			wins := j.windows(64, 8)
			for r, w := range wins {
				if !w.Unattended(0) || !w.Unattended(1) || w.Unattended(2) || w.Info()["xdprma_express"] != "true" {
					t.Errorf("rank %d: the window is not in reach, info %v", r, w.Info())
				}
			}
			w := wins[0]
			var old, got int64
			one, two, put := int64(1), int64(2), []int64{7, 8, 9}
			calls := func(again int64) {
				j.must(w.FetchAndOp(buffer.Value(&one), buffer.Value(&old), 1, rma.At(0), rma.Sum), w.Flush(j.ctx, 1))
				if old != again {
					t.Fatalf("fetched %d, not %d", old, again)
				}
				j.must(w.CompareAndSwap(buffer.Value(&two), buffer.Value(&one), buffer.Value(&old), 1, rma.At(0)), w.Flush(j.ctx, 1))
				j.must(w.Put(buffer.Of(put), 1, rma.At(3)), w.Flush(j.ctx, 1))
				j.must(w.Get(buffer.Value(&got), 1, rma.At(5)), w.Flush(j.ctx, 1))
				if got != 9 {
					t.Fatalf("got %d", got)
				}
			}
			awaitReach(j, w)
			before := executed(j.nodes[1])
			j.must(w.Lock(j.ctx, rma.LockExclusive, 1, 0))
			calls(0)
			j.must(w.Unlock(j.ctx, 1), w.LockAll(j.ctx, 0))
			// The first call of an epoch travels with its lock, in a bundle, and so does
			// what is issued while a bundle is under way.
			for again := int64(2); again == 2 || executed(j.nodes[1])-before < 6; again++ {
				calls(again)
			}
			j.must(w.UnlockAll(j.ctx))
			s := j.nodes[0].Stats()
			if s.AnswersLost != 0 {
				t.Errorf("the answers got lost %d times", s.AnswersLost)
			}
			if handed := s.Device.Filter["express_handed"]; handed < s.Executed || s.Executed == 0 {
				t.Errorf("the origin's program handed %d answers over, of at least %d", handed, s.Executed)
			}
			freeAll(j, wins)
		})
	}
}

// TestReachHasLimits asks for windows that no program is to reach.
func TestReachHasLimits(t *testing.T) {
	j := newLabJob(t, 2, userspace.XDPNative, rma.Limits{ExpressWindow: 4096})
	for _, test := range []struct {
		name  string
		size  int
		info  rma.Info
		reach bool
	}{
		{"within the limit", 4096, nil, true},
		{"beyond the limit", 4097, nil, false},
		{"asked for", 100_000, rma.Info{"xdprma_express": "true"}, true},
		{"refused", 8, rma.Info{"xdprma_express": "false"}, false},
		{"within its own limit", 5000, rma.Info{"xdprma_express": "5000"}, true},
		{"beyond its own limit", 9, rma.Info{"xdprma_express": "8"}, false},
		{"checked", 8, rma.Info{"xdprma_check_conflicts": "true"}, false},
		{"without bytes", 0, nil, false},
		{"aligned further", 8, rma.Info{"mpi_minimum_memory_alignment": "65536"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			// Rank 1 alone has what is tested: each target decides for itself.
			wins := make([]*rma.Win, 2)
			j.each(func(n *rma.Node) (err error) {
				size, info := 8, rma.Info(nil)
				if n.Rank() == 1 {
					size, info = test.size, test.info
				}
				wins[n.Rank()], err = rma.Allocate(j.ctx, n.World(), size, 1, info)
				return err
			})
			if wins[0].Unattended(1) != test.reach || (wins[1].Info()["xdprma_express"] == "true") != test.reach {
				t.Errorf("in reach %v, info %v", wins[0].Unattended(1), wins[1].Info())
			}
			if checked := test.name == "checked"; wins[1].Unattended(0) == checked {
				t.Error("the window of rank 0 follows that of rank 1, or is checked and in reach")
			}
			if len(wins[1].Memory()) != test.size {
				t.Errorf("%d bytes", len(wins[1].Memory()))
			}
			freeAll(j, wins)
		})
	}
	j.each(func(n *rma.Node) error {
		w, err := rma.Create(j.ctx, n.World(), make([]byte, 8), 1, nil)
		if err == nil && w.Unattended(1-n.Rank()) {
			err = errors.New("memory of the program is in reach")
		}
		return errors.Join(err, w.Free(j.ctx))
	})
	for _, err := range j.outcomes(func(n *rma.Node) error {
		_, err := rma.Allocate(j.ctx, n.World(), 8, 1, rma.Info{"xdprma_express": "-1"})
		return err
	}) {
		if !errors.Is(err, rma.ErrArg) {
			t.Errorf("a negative limit: %v", err)
		}
	}
}

// TestLargeWindowIsTold makes windows that are beyond a limit. The first beyond that of all windows is
// told of, and none for which the program says that it is not to be in reach.
func TestLargeWindowIsTold(t *testing.T) {
	var log logs.Log
	j := newJobIn(t, newLab(t, 2), userspace.XDPNative, rma.Config{Logger: log.Logger(), Limits: rma.Limits{ExpressWindow: 4096}})
	large := func(int) (int, int) { return 4097, 1 }
	for _, info := range []rma.Info{
		{"xdprma_express": "false"}, {"xdprma_express": "4096"}, {"xdprma_express": "true"}, {"xdprma_check_conflicts": "true"},
	} {
		freeAll(j, j.windowsOf(large, info))
	}
	freeAll(j, j.windows(4096, 1))
	if n := log.Lines("of so many bytes"); n > 0 {
		t.Errorf("%d windows too many are told of: %s", n, log.String())
	}
	for range 2 {
		freeAll(j, j.windowsOf(large, nil))
	}
	if n := log.Lines("level=WARN", "of so many bytes", "bytes=4097", "limit=4096"); n != 1 {
		t.Errorf("%d windows are told of: %s", n, log.String())
	}
}

// withAndWithout calls test with ranks whose XDP programs execute requests, and with ranks
// whose programs pass all on.
func withAndWithout(t *testing.T, size int, test func(*testing.T, *job)) {
	for _, without := range []bool{false, true} {
		t.Run(map[bool]string{false: "executed in XDP", true: "in user space"}[without], func(t *testing.T) {
			lab := newLab(t, size)
			if err := lab.AcceptAnswers(); err != nil {
				t.Fatal(err)
			}
			places := placesIn(t, lab, userspace.XDPNative)
			for i := range places {
				places[i].NoExpress = without
			}
			j := joined(t, places, lab.Do, rma.Config{})
			test(t, j)
			exchanges := uint64(0)
			for _, n := range j.nodes {
				protocol := n.Stats()
				exchanges += protocol.Exchanges
			}
			if (exchanges == 0) != without {
				t.Errorf("%d requests to XDP programs", exchanges)
			}
		})
	}
}

// Elements are whole where the program, user space and the owner are at them at once.
func TestElementsAreWholeInReach(t *testing.T) {
	elementsAreWhole(t, newLabJob(t, 4, userspace.XDPNative, rma.Limits{}), 4, 200, 2)
	withAndWithout(t, 4, func(t *testing.T, j *job) { elementsAreWhole(t, j, 8, 100, 1) })
}

// A window that is freed while frames for it arrive refuses them, in the program and
// outside it.
func TestFreeWhileFramesArrive(t *testing.T) {
	withAndWithout(t, 2, freeWhileFramesArrive)
}

func freeWhileFramesArrive(_ *testing.T, j *job) {
	for range 5 {
		wins := j.windows(4096, 8)
		var puts atomic.Int32
		j.each(func(n *rma.Node) error {
			w := wins[n.Rank()]
			if n.Rank() == 1 {
				for puts.Load() < 100 {
					if err := j.ctx.Err(); err != nil {
						return err
					}
				}
				given, giveUp := context.WithCancel(j.ctx)
				giveUp() // the other rank is not waited for
				if err := w.Free(given); !errors.Is(err, context.Canceled) {
					return err
				}
				return nil
			}
			err := w.LockAll(j.ctx, 0)
			for v := uint64(1); err == nil; v++ {
				puts.Add(1)
				err = errors.Join(w.Put(buffer.Value(&v), 1, rma.At(int64(v%512))), w.Flush(j.ctx, 1))
			}
			if !errors.Is(err, rma.ErrWin) {
				return err
			}
			given, giveUp := context.WithCancel(j.ctx)
			giveUp()
			_ = w.UnlockAll(j.ctx)
			_ = w.Free(given)
			return nil
		})
	}
}

// Answers of a program get lost where the other end of its veth has none. Then the process
// answers, and one warning says what to do.
func TestLostAnswersAreGotRound(t *testing.T) {
	var log logs.Log
	j := newJobIn(t, newLab(t, 3), userspace.XDPNative, rma.Config{Logger: log.Logger()})
	wins := j.windows(8, 8)
	w, one, old := wins[0], int64(1), int64(0)
	j.must(w.LockAll(j.ctx, 0))
	if !w.Unattended(1) {
		t.Fatal("the window is not in reach")
	}
	for i := int64(0); i < 300 || log.Lines("get lost") == 0; i++ {
		j.must(w.FetchAndOp(buffer.Value(&one), buffer.Value(&old), 1, rma.At(0), rma.Sum), w.Flush(j.ctx, 1))
		if old != i {
			t.Fatalf("fetched %d, not %d", old, i)
		}
	}
	j.must(w.UnlockAll(j.ctx))
	if protocol := j.nodes[0].Stats(); protocol.AnswersLost == 0 {
		t.Error("nothing was counted")
	}
	if w.Unattended(1) {
		t.Error("calls are said to do without the target's process, whose program's answers get lost")
	}
	if n := log.Lines("get lost"); n != 1 {
		t.Errorf("%d warnings", n)
	}
	freeAll(j, wins)
}

// TestLostAnswersWhereSomebodyWaits is the same for a target that waits for each second notification. Its
// process answers that, unasked, which says nothing of the program's answers.
func TestLostAnswersWhereSomebodyWaits(t *testing.T) {
	const most = 2000
	j := newJobIn(t, newLab(t, 3), userspace.XDPNative, rma.Config{})
	wins := j.windowsOf(func(int) (int, int) { return 8, 8 }, rma.Counters(1))
	waits := make(chan error)
	ctx, stop := context.WithCancel(j.ctx)
	go func() {
		var err error
		for n := uint64(0); err == nil; {
			n, err = wins[1].WaitNotified(ctx, 0, n+2)
		}
		waits <- err
	}()
	w, one := wins[0], int64(1)
	j.must(w.LockAll(j.ctx, 0), w.Flush(j.ctx, 1))
	calls := 0
	for ; calls < most && j.nodes[0].Stats().AnswersLost == 0; calls++ {
		j.must(w.Accumulate(buffer.Value(&one), 1, rma.At(0).Notify(0), rma.Sum), w.Flush(j.ctx, 1))
		time.Sleep(time.Millisecond) // so that the target sleeps
	}
	if calls == most || w.Unattended(1) {
		t.Errorf("after %d calls the program's answers are not said to get lost", calls)
	}
	j.must(w.UnlockAll(j.ctx))
	stop()
	if err := <-waits; !errors.Is(err, rma.ErrTimeout) {
		t.Error(err)
	}
	if n, err := wins[1].Notified(0); n != uint64(calls) || err != nil {
		t.Errorf("notified %d times by %d calls: %v", n, calls, err)
	}
	freeAll(j, wins)
}

// The lock of an origin that is not heard of any more goes to another one, after the
// target has seen to it that its program does nothing for the first.
func TestLockOfALostOriginIsHandedOn(t *testing.T) {
	t.Parallel()
	lab := newLab(t, 3)
	if err := lab.AcceptAnswers(); err != nil {
		t.Fatal(err)
	}
	j := newJobIn(t, lab, userspace.XDPNative, rma.Config{Limits: soon})
	wins := j.windows(8, 8)
	awaitReach(j, wins[0])
	awaitReach(j, wins[2])
	one, old := int64(1), int64(0)
	j.must(wins[2].Lock(j.ctx, rma.LockExclusive, 1, 0),
		wins[2].FetchAndOp(buffer.Value(&one), buffer.Value(&old), 1, rma.At(0), rma.Sum), wins[2].Flush(j.ctx, 1))
	j.must(lab.Do(2, func() error {
		nic, err := netlink.LinkByName(lab.Interface(2))
		if err != nil {
			return err
		}
		return netlink.LinkSetDown(nic)
	}))
	j.must(wins[0].Lock(j.ctx, rma.LockExclusive, 1, 0),
		wins[0].FetchAndOp(buffer.Value(&one), buffer.Value(&old), 1, rma.At(0), rma.Sum), wins[0].Unlock(j.ctx, 1))
	if old != 1 {
		t.Errorf("fetched %d", old)
	}
}

// A window of a part of the job's ranks admits those, whatever their ranks are in it.
func TestWindowOfFewRanksIsInReach(t *testing.T) {
	j := newLabJob(t, 3, userspace.XDPNative, rma.Limits{})
	j.each(func(n *rma.Node) error {
		color := comm.Undefined
		if n.Rank() > 0 {
			color = 0
		}
		few, err := n.World().Split(j.ctx, color, -n.Rank()) // rank 2 is the first
		if err != nil || few == nil {
			return err
		}
		w, err := rma.Allocate(j.ctx, few, 8, 8, nil)
		if err != nil {
			return err
		}
		one, old := int64(1), int64(0)
		if few.Rank() == 0 {
			for before := executed(j.nodes[1]); executed(j.nodes[1]) < before+3; {
				err := errors.Join(w.Lock(j.ctx, rma.LockExclusive, 1, 0),
					w.FetchAndOp(buffer.Value(&one), buffer.Value(&old), 1, rma.At(0), rma.Sum), w.Unlock(j.ctx, 1))
				if err != nil {
					return err
				}
			}
			if device := j.nodes[1].Stats().Device; device.Filter["express_no_access"] != 0 {
				return fmt.Errorf("members were taken for outsiders: %v", device.Filter)
			}
		}
		return w.Free(j.ctx)
	})
}

// Ranks of one host that use frames have memory of the kernel each, and give it back.
func TestFramesWithinAHostLeaveNoKernelMemory(t *testing.T) {
	j := newLabJobAt(t, []string{"one", "one"}, true, rma.Limits{})
	mapped := func() int {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(maps), "bpf-map")
	}
	before := mapped()
	wins := j.windows(8, 8)
	freeAll(j, wins)
	if after := mapped(); after != before {
		t.Errorf("%d mappings of memory of the kernel, %d before", after, before)
	}
}
