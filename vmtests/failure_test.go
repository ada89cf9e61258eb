package vmtests

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/rma"
)

func init() {
	programs["bereaved"] = bereaved
	programs["stranger"] = stranger
	programs["abandoned"] = abandoned
}

const (
	victim    = 3               // the rank that is killed
	deadAfter = 2 * time.Second // of these tests
)

// failed holds err to be the failure of the victim.
func failed(err error) error {
	var e *rma.Error
	if !errors.Is(err, rma.ErrProcFailed) || !errors.As(err, &e) || e.Rank != victim {
		return fmt.Errorf("got %v, want the failure of rank %d", err, victim)
	}
	return nil
}

// bereaved: the victim holds a lock at rank 0 and puts to all ranks until it is
// killed. The others wait for it in different ways, one each.
func bereaved(s *self) error {
	win, err := rma.Allocate(s.ctx, s.world, 1<<16, 1, nil)
	if err != nil {
		return err
	}
	locked, err := rma.Allocate(s.ctx, s.world, 8, 8, nil)
	if err != nil {
		return err
	}
	if err := win.LockAll(s.ctx, 0); err != nil {
		return err
	}
	if s.rank == victim {
		return untilKilled(s, win, locked)
	}
	if err := s.world.Barrier(s.ctx); err != nil {
		return err
	}
	fmt.Println("ready")
	waits := map[int]func() error{
		0: func() error { return failed(s.world.Barrier(s.ctx)) },
		1: func() error { return inheritLock(s, locked) },
		2: func() error { return putUntilFailed(s, win) },
	}
	if err := waits[s.rank](); err != nil {
		return err
	}
	fmt.Println("noticed")
	if err := s.listen("go on"); err != nil {
		return err
	}
	return afterwards(s, win, locked)
}

func untilKilled(s *self, win, locked *rma.Win) error {
	err := all(
		func() error { return locked.Lock(s.ctx, rma.LockExclusive, 0, 0) },
		func() error { return locked.Flush(s.ctx, 0) }, // now it is held
		func() error { return s.world.Barrier(s.ctx) },
	)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	data := make([]byte, 20000)
	for {
		for to := range s.size {
			if err := win.Put(buffer.Bytes(data), to, rma.At(0)); err != nil {
				return err
			}
		}
		if err := win.FlushAll(s.ctx); err != nil {
			return err
		}
	}
}

// inheritLock waits, at rank 0, for the lock that the victim takes into its grave.
func inheritLock(s *self, locked *rma.Win) error {
	one, old := []int64{1}, []int64{0}
	return all(
		func() error { return locked.Lock(s.ctx, rma.LockExclusive, 0, 0) },
		func() error { return locked.FetchAndOp(buffer.Of(one), buffer.Of(old), 0, rma.At(0), rma.Sum) },
		func() error { return locked.Unlock(s.ctx, 0) },
	)
}

func putUntilFailed(s *self, win *rma.Win) error {
	data := make([]byte, 3000)
	for {
		err := win.Put(buffer.Bytes(data), victim, rma.At(0))
		if err == nil {
			err = win.Flush(s.ctx, victim)
		}
		if err != nil {
			return failed(err)
		}
	}
}

// afterwards: every call that concerns the victim fails at once, and the living
// go on with each other.
func afterwards(s *self, win, locked *rma.Win) error {
	one, old := []int64{1}, []int64{0}
	if err := putUntilFailed(s, win); err != nil {
		return fmt.Errorf("put: %w", err)
	}
	err := locked.Lock(s.ctx, rma.LockExclusive, victim, 0)
	if err == nil {
		err = locked.Unlock(s.ctx, victim)
	}
	if err := failed(err); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	if err := failed(s.world.Barrier(s.ctx)); err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	_, err = rma.Allocate(s.ctx, s.world, 8, 8, nil)
	if err := failed(err); err != nil {
		return fmt.Errorf("allocate: %w", err)
	}
	for to := range victim {
		err := all(
			func() error { return locked.Lock(s.ctx, rma.LockExclusive, to, 0) },
			func() error { return locked.FetchAndOp(buffer.Of(one), buffer.Of(old), to, rma.At(0), rma.Sum) },
			func() error { return locked.Unlock(s.ctx, to) },
		)
		if err != nil {
			return fmt.Errorf("lock at living rank %d: %w", to, err)
		}
	}
	fmt.Println("done")
	return s.listen("leave") // peers may still want something of this rank
}

// A rank that is killed in the middle of its traffic is noticed by everyone who
// waits for it, its lock passes to the next, and its XDP program is gone.
func TestKilledRank(t *testing.T) {
	t.Parallel()
	for _, g := range append(grounds(), testenv.Cases(nil, ground{"xdp-generic", "xdp-generic", 1})...) {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			j := g.job(t, 4, spec{program: "bereaved", deadAfter: deadAfter})
			lab, transport := j.lab, g.transport
			for _, r := range j.ranks {
				j.await(r, "ready")
			}
			time.Sleep(50 * time.Millisecond) // traffic
			killed := time.Now()
			j.ranks[victim].kill()
			<-j.ranks[victim].done
			if attached(t, lab, victim) {
				t.Error("the XDP program of the killed rank is still attached")
			}
			living := j.ranks[:victim]
			for _, r := range living {
				j.await(r, "noticed")
			}
			t.Logf("all have noticed after %v", time.Since(killed))
			for _, r := range living {
				if transport != "udp" && !attached(t, lab, r.n) {
					t.Errorf("rank %d has lost its XDP program", r.n)
				}
				r.tell("go on")
			}
			for _, r := range living {
				j.await(r, "done")
			}
			for _, r := range living {
				r.tell("leave")
			}
			j.ranks = living
			j.finish()
		})
	}
}

// attached reports whether an XDP program is on a rank's interface.
func attached(t *testing.T, lab *netlab.Lab, rank int) (on bool) {
	t.Helper()
	err := lab.Do(rank, func() error {
		link, err := netlink.LinkByName(lab.Interface(rank))
		if err == nil {
			xdp := link.Attrs().Xdp
			on = xdp != nil && xdp.Attached
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return on
}

// A rank that is stopped for less than the limit is waited for.
func TestStoppedRank(t *testing.T) {
	t.Parallel()
	for _, transport := range testenv.Cases([]string{"xdp-native"}, "udp") {
		t.Run(transport, func(t *testing.T) {
			lab := labtest.New(t, netlab.Config{Ranks: 3})
			j := start(t, lab, spec{program: "sum", transports: []string{transport}, deadAfter: testenv.Limit})
			for _, r := range j.ranks {
				j.await(r, "running")
			}
			j.ranks[1].signal(unix.SIGSTOP)
			time.Sleep(deadAfter)
			j.ranks[1].signal(unix.SIGCONT)
			time.Sleep(50 * time.Millisecond)
			for _, r := range j.ranks {
				r.tell("stop")
			}
			j.finish()
		})
	}
}

// stranger: rank 1 is killed and started again. The new process must not be
// taken for the old one, whether or not it makes itself known to rank 0.
func stranger(s *self) error {
	if s.rank == 1 {
		if _, again := s.restarted(); again {
			return restartedRank(s)
		}
	}
	win, err := rma.Allocate(s.ctx, s.world, 4096, 1, nil)
	if err != nil {
		return err
	}
	data := make([]byte, 1000)
	err = all(
		func() error { return win.LockAll(s.ctx, 0) },
		func() error { return win.Put(buffer.Bytes(data), 1-s.rank, rma.At(0)) },
		func() error { return win.Flush(s.ctx, 1-s.rank) },
		func() error { return s.world.Barrier(s.ctx) },
	)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if err := s.listen("put"); err != nil {
		return err
	}
	for range 3 {
		err := win.Put(buffer.Bytes(data), 1, rma.At(0))
		if err == nil {
			err = win.Flush(s.ctx, 1)
		}
		if !errors.Is(err, rma.ErrProcFailed) && !errors.Is(err, rma.ErrWin) {
			return fmt.Errorf("a put to a rank that has restarted: %v", err)
		}
		fmt.Println("refused", err)
	}
	return nil
}

// restarted returns how the second process of a rank behaves.
func (s *self) restarted() (how string, again bool) { return lookupEnv("VMTESTS_AGAIN") }

func restartedRank(s *self) error {
	how, _ := s.restarted()
	if how == "talks" {
		go s.world.Barrier(s.ctx) // makes itself known to rank 0; it can never complete
		time.Sleep(100 * time.Millisecond)
	}
	fmt.Println("ready")
	return s.listen("leave")
}

func TestRestartedRank(t *testing.T) {
	t.Parallel()
	for _, transport := range testenv.Cases([]string{"xdp-native"}, "udp") {
		for _, how := range []string{"talks", "is silent"} {
			t.Run(transport+"/"+how, func(t *testing.T) {
				t.Parallel()
				lab := labtest.New(t, netlab.Config{Ranks: 2})
				j := start(t, lab, spec{program: "stranger", transports: []string{transport}, deadAfter: deadAfter})
				for _, r := range j.ranks {
					j.await(r, "ready")
				}
				old := j.ranks[1]
				old.kill()
				<-old.done
				j.spec.env = []string{"VMTESTS_AGAIN=" + how}
				j.ranks[1] = j.startRank(1)
				j.await(j.ranks[1], "ready")
				j.ranks[0].tell("put")
				for range 3 {
					t.Log(j.await(j.ranks[0], "refused"))
				}
				j.ranks[1].tell("leave")
				j.finish()
				if c := j.counters(j.ranks[1]); c.Bundles != 0 && how == "is silent" {
					t.Errorf("the new process took in %d bundles that were meant for the old one", c.Bundles)
				}
			})
		}
	}
}

// abandoned waits at a barrier that rank 1, which leaves at once, never enters.
func abandoned(s *self) error {
	if err := s.world.Barrier(s.ctx); err != nil {
		return err
	}
	if s.rank == 1 {
		return nil
	}
	if err := s.world.Barrier(s.ctx); !errors.Is(err, rma.ErrProcFailed) {
		return fmt.Errorf("a barrier without rank 1: %v", err)
	}
	return nil
}

// A rank that leaves in good order does not make others wait for it either.
func TestRankThatLeft(t *testing.T) {
	lab := labtest.New(t, netlab.Config{Ranks: 3})
	start(t, lab, spec{program: "abandoned", transports: []string{"xdp-native", "xdp-generic", "udp"}}).finish()
}

// The interface of a rank disappears: the rank learns of it by name, however long its
// peers may be silent, and its peers by its silence. All get errors, and end.
func TestLostInterfaceEndsRanksWithErrors(t *testing.T) {
	t.Parallel()
	for _, transport := range testenv.Cases([]string{"xdp-native"}, "udp") {
		t.Run(transport, func(t *testing.T) {
			lab := labtest.New(t, netlab.Config{Ranks: 3}) // two would be the ends of one veth pair
			j := start(t, lab, spec{program: "sum", transports: []string{transport}, deadAfter: deadAfter,
				change: func(rank int, _ *bootstrap.Config, cmd *exec.Cmd) {
					if rank == 0 {
						cmd.Env = append(cmd.Env, envDeadAfter+"="+testenv.Limit.String())
					}
				}})
			for _, r := range j.ranks {
				j.await(r, "running")
			}
			err := lab.Do(0, func() error {
				link, err := netlink.LinkByName(lab.Interface(0))
				if err != nil {
					return err
				}
				return netlink.LinkDel(link)
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range j.ranks {
				j.ended(r)
				isolated := strings.Contains(r.output(), "process failed: this rank has lost its interface "+lab.Interface(0))
				if r.cmd.ProcessState.ExitCode() != 1 || isolated != (r.n == 0) {
					t.Errorf("rank %d: %v", r.n, r.cmd.ProcessState)
				}
			}
		})
	}
}

// An interface that is down for less than the limit costs time and nothing else.
func TestInterfaceFlaps(t *testing.T) {
	t.Parallel()
	for _, transport := range testenv.Cases([]string{"xdp-native", "udp"}, "xdp-generic") {
		t.Run(transport, func(t *testing.T) {
			lab := labtest.New(t, netlab.Config{Ranks: 2})
			j := start(t, lab, spec{program: "sum", transports: []string{transport}, deadAfter: testenv.Limit})
			for _, r := range j.ranks {
				j.await(r, "running")
			}
			onLink(t, lab, netlink.LinkSetDown)
			time.Sleep(deadAfter / 2)
			onLink(t, lab, netlink.LinkSetUp)
			time.Sleep(deadAfter / 2)
			for _, r := range j.ranks {
				r.tell("stop")
			}
			j.finish()
			for _, r := range j.ranks {
				if strings.Contains(r.output(), "ERROR") {
					t.Errorf("rank %d gave its device up:\n%s", r.n, r.output())
				}
			}
		})
	}
}
