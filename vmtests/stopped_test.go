package vmtests

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/rma"
)

func init() { programs["served"] = served }

// beyond is more bytes than the program executes a put of.
const beyond = 4096

// served: the victim is stopped, twice. First the others go on with it for longer than the
// silence after which a rank has failed, and then they take its lock.
func served(s *self) error {
	win, err := rma.Allocate(s.ctx, s.world, 128, 8, nil) // a counter, and a word for each origin
	if err != nil {
		return err
	}
	guarded, err := rma.Allocate(s.ctx, s.world, 2*beyond, 8, nil) // likewise, and room for a long put
	if err != nil {
		return err
	}
	if err := all(func() error { return s.awaitReach(win, victim) }, func() error { return s.awaitReach(guarded, victim) }); err != nil {
		return err
	}
	if s.rank == victim {
		fmt.Println("ready")
		if err := s.listen("say"); err != nil { // meanwhile it is stopped
			return err
		}
		fmt.Println("has", rma.Slice[int64](win.Memory())[:4], rma.Slice[int64](guarded.Memory())[:4])
		return s.listen("leave")
	}
	if err := win.LockAll(s.ctx, rma.ModeNoCheck); err != nil {
		return err
	}
	// When a long put is applied, the victim owes nothing: all that came before is too.
	if err := putLong(s, guarded); err != nil {
		return err
	}
	fmt.Println("ready")
	if err := s.listen("go"); err != nil {
		return err
	}
	rounds, before := int64(0), s.bundles()
	for begun := time.Now(); rounds < 10 || time.Since(begun) < 2*deadAfter; rounds++ {
		if err := servedRound(s, win, rounds); err != nil {
			if s.bundles() == before {
				return fmt.Errorf("round %d: %w", rounds, err)
			}
			fmt.Println("rounds", bundled, err)
			return s.listen("leave")
		}
		time.Sleep(deadAfter / 5) // after a pause, a first call is sent too early most often
	}
	fmt.Println("rounds", rounds)
	if err := s.listen("lock"); err != nil {
		return err
	}
	one, own := int64(1), rma.At(int64(1+s.rank))
	before = s.bundles()
	for n := range int64(epochs) {
		n++
		err := s.locked(guarded, rma.LockExclusive, victim,
			func() error { return guarded.Put(buffer.Value(&n), victim, own) },
			func() error { return guarded.Accumulate(buffer.Value(&one), victim, rma.At(0), rma.Sum) },
		)
		if err != nil {
			if s.bundles() == before {
				return fmt.Errorf("lock %d: %w", n, err)
			}
			fmt.Println("held", bundled, err)
			return s.listen("leave")
		}
		fmt.Println("held", n)
	}
	if err := s.listen("long"); err != nil {
		return err
	}
	fmt.Println("long", putLong(s, guarded))
	return s.listen("leave")
}

// bundled says that a call of an origin needed the process: the origin's background
// goroutine had sent a lock before its unlock, or one of the first calls after the long put before the
// origin waited for it. The busier the machine, the more often that happens.
const bundled = "bundled"

// bundles returns how many ordinary bundles this rank has sent.
func (s *self) bundles() uint64 {
	protocol := s.node.Stats()
	return protocol.Sent
}

// epochs is how often an origin takes the lock of the victim that is stopped.
const epochs = 20

// putLong makes a put that the program does not execute.
func putLong(s *self, win *rma.Win) error {
	return s.locked(win, rma.LockShared, victim, func() error {
		return win.Put(buffer.Bytes(make([]byte, beyond)), victim, rma.At(beyond/8-1))
	})
}

// servedRound makes small calls of every kind at the victim.
func servedRound(s *self, win *rma.Win, round int64) error {
	own, next := rma.At(int64(1+s.rank)), round+1
	old, got := int64(0), int64(0)
	flush := func() error { return win.Flush(s.ctx, victim) }
	return all(
		func() error { return win.Get(buffer.Value(&got), victim, own) }, flush,
		func() error { return check(got == round, "got %d", got) },
		func() error {
			return win.CompareAndSwap(buffer.Value(&round), buffer.Value(&next), buffer.Value(&old), victim, own)
		}, flush,
		func() error { return check(old == round, "swapped %d", old) },
		func() error { return win.Put(buffer.Value(&next), victim, own) }, flush,
		func() error {
			seen, err := rma.Fetch(s.ctx, win, int64(1), victim, rma.At(0), rma.Sum)
			return errors.Join(err, check(seen >= round, "fetched %d", seen))
		},
	)
}

// A rank whose process is stopped serves what its XDP program executes, for as long as
// others want, and is missed only by those who need the process. Where all of them needed
// it, they try again.
func TestStoppedRanksAreServed(t *testing.T) {
	testenv.NeedsRoot(t)
	t.Parallel()
	type kind struct {
		transport string
		v6        bool
	}
	for _, k := range testenv.Cases([]kind{{"xdp-native", false}, {"xdp-generic", true}, {"shared", false}}, kind{"shared", true}, kind{"xdp-generic", false}, kind{"xdp-native", true}) {
		t.Run(fmt.Sprintf("%s, IPv6 %v", k.transport, k.v6), func(t *testing.T) {
			t.Parallel()
			end := time.Now().Add(testenv.Limit)
			for again := true; again; {
				if time.Now().After(end) {
					t.Fatal("all origins needed the process, again and again")
				}
				again = false // unless a try says so at its end
				t.Run("try", func(t *testing.T) { again = !servedWhileStopped(t, k.transport, k.v6) })
			}
		})
	}
}

// servedWhileStopped has a rank serve while its process is stopped, and reports whether
// there was an origin that never needed the process.
func servedWhileStopped(t *testing.T, transport string, v6 bool) bool {
	lab := acceptAnswers(t, labtest.New(t, netlab.Config{Ranks: 4}), transport)
	j := start(t, lab, spec{program: "served", transports: []string{transport}, v6: v6, deadAfter: deadAfter})
	for _, r := range j.ranks {
		j.await(r, "ready")
	}
	stopped, origins := j.ranks[victim], []*rank{}
	j.stop(stopped)
	for _, r := range j.ranks[:victim] {
		r.tell("go")
	}
	var at [victim]int64 // what an origin's word is to be
	total := int64(0)
	for _, r := range j.ranks[:victim] {
		rounds := j.await(r, "rounds ")
		if strings.HasPrefix(rounds, bundled) {
			t.Logf("rank %d: %s", r.n, rounds)
			continue
		}
		n, err := strconv.ParseInt(rounds, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		at[r.n], total, origins = n, total+n, append(origins, r)
	}
	stopped.signal(unix.SIGCONT)

	// A lock that leaves without its unlock, since the scheduler was in between,
	// waits for the process. So not all epochs must end while it is stopped.
	j.stop(stopped)
	for _, r := range origins {
		r.tell("lock")
	}
	j.awaitEpochs(origins)
	stopped.signal(unix.SIGCONT)
	origins = slices.DeleteFunc(origins, func(r *rank) bool {
		held := ""
		for held != fmt.Sprint(epochs) && !strings.HasPrefix(held, bundled) {
			held = j.await(r, "held ")
		}
		t.Logf("rank %d held %s", r.n, held)
		return strings.HasPrefix(held, bundled)
	})
	if len(origins) == 0 {
		return false
	}

	j.stop(stopped)
	last := origins[len(origins)-1]
	last.tell("long")
	if long := j.await(last, "long "); !strings.Contains(long, "process failed") {
		t.Errorf("a call that needs the stopped process: %s", long)
	}
	stopped.signal(unix.SIGCONT)
	for _, r := range origins[:len(origins)-1] {
		r.tell("long")
		if long := j.await(r, "long "); long != "<nil>" {
			t.Errorf("rank %d, once the process goes on: %s", r.n, long)
		}
	}
	stopped.tell("say")
	got := strings.Fields(strings.NewReplacer("[", "", "]", "").Replace(j.await(stopped, "has ")))
	if len(got) != 2*(1+victim) {
		t.Fatalf("the rank that was stopped has %q", got)
	}
	for _, r := range origins {
		if word, guarded := got[1+r.n], got[2+victim+r.n]; word != fmt.Sprint(at[r.n]) || guarded != fmt.Sprint(epochs) {
			t.Errorf("rank %d has put %s and %s, want %d and %d", r.n, word, guarded, at[r.n], epochs)
		}
	}
	if len(origins) == victim && (got[0] != fmt.Sprint(total) || got[1+victim] != fmt.Sprint(epochs*len(origins))) {
		t.Errorf("the counters are %s and %s, want %d and %d", got[0], got[1+victim], total, epochs*len(origins))
	}
	for _, r := range j.ranks {
		r.tell("leave")
	}
	j.finish()
	for _, r := range origins[:len(origins)-1] {
		if c := j.counters(r); c.PeersFailed != 0 || c.AnswersLost != 0 {
			t.Errorf("rank %d gave up on peers: %+v", r.n, c.Link)
		}
	}
	return true
}

// awaitEpochs waits until origins have ended as many epochs together as one of them has to,
// or cannot go on.
func (j *job) awaitEpochs(origins []*rank) {
	j.t.Helper()
	testenv.Await(j.t, fmt.Sprint(epochs, " epochs"), func() bool {
		ended, waits := 0, 0
		for _, r := range origins {
			ended += strings.Count(r.output(), "\nheld ")
			waits += strings.Count(r.output(), "\nheld "+bundled)
		}
		return ended >= epochs || waits == len(origins)
	})
}

// stop stops a rank's process, and returns once it is stopped. It is killed with the job.
func (j *job) stop(r *rank) {
	j.t.Helper()
	r.signal(unix.SIGSTOP)
	for {
		err := unix.Waitid(unix.P_PID, r.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		if err == nil {
			return
		}
		if err != unix.EINTR {
			j.t.Fatalf("wait for rank %d to stop: %v", r.n, err)
		}
	}
}
