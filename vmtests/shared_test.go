package vmtests

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/rma"
)

func init() {
	programs["crowded"] = crowded
	programs["orphaned"] = orphaned
}

// The ranks of a host that share its interface.
const (
	sharers     = 8
	crowdRounds = 20
)

// crowded: the ranks of the second host are stopped, and those of the first one add to a word of each.
func crowded(s *self) error {
	win, err := rma.Allocate(s.ctx, s.world, 2*beyond, 8, nil)
	if err != nil {
		return err
	}
	var all []int
	for r := range s.size {
		all = append(all, r)
	}
	if err := s.awaitReach(win, all...); err != nil {
		return err
	}
	if s.rank >= sharers {
		fmt.Println("ready")
		if err := s.listen("say"); err != nil { // meanwhile it is stopped
			return err
		}
		fmt.Println("has", rma.Slice[int64](win.Memory())[0], s.inProgram())
		return win.Free(s.ctx)
	}
	for to := sharers; to < s.size; to++ { // when a long put is applied, the target owes nothing
		if err := s.locked(win, rma.LockShared, to, func() error { return win.Put(buffer.Bytes(make([]byte, beyond)), to, rma.At(beyond/8-1)) }); err != nil {
			return err
		}
	}
	if err := win.LockAll(s.ctx, rma.ModeNoCheck); err != nil {
		return err
	}
	fmt.Println("ready")
	if err := s.listen("go"); err != nil {
		return err
	}
	before := s.node.Stats().Executed
	for range crowdRounds {
		for to := sharers; to < s.size; to++ {
			if _, err := rma.Fetch(s.ctx, win, int64(1), to, rma.At(0), rma.Sum); err != nil {
				return err
			}
		}
	}
	fmt.Println("done", s.node.Stats().Executed-before)
	if err := s.listen("say"); err != nil {
		return err
	}
	if err := win.UnlockAll(s.ctx); err != nil {
		return err
	}
	return win.Free(s.ctx)
}

// Sixteen ranks on two hosts of one interface each are all served by the program of their host while their
// processes are stopped, each for itself.
func TestRanksOfOneInterfaceAreServed(t *testing.T) {
	lab := labtest.New(t, netlab.Config{Ranks: 2 * sharers, RanksPerHost: sharers, Share: true})
	areServed(t, start(t, lab, spec{program: "crowded", transports: []string{"shared"}}))
}

// areServed has the ranks of the second host stopped, and served.
func areServed(t *testing.T, j *job) {
	t.Helper()
	for _, r := range j.ranks {
		j.await(r, "ready")
	}
	origins, targets := j.ranks[:sharers], j.ranks[sharers:]
	for _, r := range targets {
		j.stop(r)
	}
	for _, r := range origins {
		r.tell("go")
	}
	for _, r := range origins {
		if n, want := j.await(r, "done "), strconv.Itoa(sharers*crowdRounds); n != want {
			t.Errorf("programs have executed %s requests of rank %d, want %s", n, r.n, want)
		}
	}
	for _, r := range targets {
		r.signal(unix.SIGCONT)
	}
	for _, r := range j.ranks {
		r.tell("say")
	}
	for _, r := range targets {
		var word, executed uint64
		if _, err := fmt.Sscan(j.await(r, "has "), &word, &executed); err != nil {
			t.Fatal(err)
		}
		if word != sharers*crowdRounds || executed < word {
			t.Errorf("rank %d has %d of %d, and its program has executed %d requests", r.n, word, sharers*crowdRounds, executed)
		}
	}
	j.finish()
	for _, r := range j.ranks {
		if c := j.counters(r); !strings.HasPrefix(c.Mode, "shared-") || c.PeersFailed != 0 {
			t.Errorf("rank %d: mode %s, %+v", r.n, c.Mode, c.Link)
		}
	}
}

// orphaned: ranks go on adding to each other's words until they are told to stop.
func orphaned(s *self) error {
	win, err := rma.Allocate(s.ctx, s.world, 8, 8, nil)
	if err != nil {
		return err
	}
	if err := win.LockAll(s.ctx, 0); err != nil {
		return err
	}
	fmt.Println("ready")
	told, done := make(chan error, 1), false
	go func() { told <- s.listen("stop") }()
	sums, mode := make([]int64, s.size), ""
	for !done {
		if now := s.node.Mode(); now != mode {
			mode = now
			fmt.Println("now", mode, s.inProgram())
		}
		for to := range s.size {
			if _, err := rma.Fetch(s.ctx, win, int64(1), to, rma.At(0), rma.Sum); err != nil {
				return err
			}
			sums[to]++
		}
		select {
		case err := <-told:
			if done = true; err != nil {
				return err
			}
		default:
		}
	}
	fmt.Println("mode", s.node.Mode(), s.inProgram())
	if err := win.UnlockAll(s.ctx); err != nil {
		return err
	}
	all := make([]int64, s.size)
	if err := comm.Allreduce(s.ctx, s.world, sums, all, rma.Sum); err != nil {
		return err
	}
	if got := rma.Slice[int64](win.Memory())[0]; got != all[s.rank] {
		return fmt.Errorf("%d were added, and %d are there", all[s.rank], got)
	}
	return win.Free(s.ctx)
}

// When the agent goes, ranks go on over their sockets, and lose nothing. Each says so once.
func TestRanksOutliveTheirAgent(t *testing.T) {
	lab := labtest.New(t, netlab.Config{Ranks: 4, RanksPerHost: 2, Share: true})
	j := start(t, lab, spec{program: "orphaned", transports: []string{"shared"}})
	for _, r := range j.ranks {
		j.await(r, "ready")
	}
	time.Sleep(200 * time.Millisecond) // they are at it
	if err := j.agent.Close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond)
	for _, r := range j.ranks {
		r.tell("stop")
	}
	for _, r := range j.ranks {
		if mode, _, _ := strings.Cut(j.await(r, "mode "), " "); mode != "udp" {
			t.Errorf("rank %d without an agent has mode %s", r.n, mode)
		}
	}
	j.finish()
	for _, r := range j.ranks {
		if n := strings.Count(r.output(), "WARN"); n != 1 || !strings.Contains(r.output(), "is gone") {
			t.Errorf("rank %d has %d warnings", r.n, n)
		}
		if c := j.counters(r); c.PeersFailed != 0 || c.Device.Filter["express_executed"] == 0 {
			t.Errorf("rank %d: %+v, %d executed", r.n, c.Link, c.Device.Filter["express_executed"])
		}
	}
}

// Switches that somebody takes away are put back, and meanwhile ranks go on over their sockets.
func TestSwitchesAreTakenAndPutBack(t *testing.T) {
	testenv.NeedsRoot(t)
	testenv.NeedsFeature(t, testenv.TCX)
	lab := labtest.New(t, netlab.Config{Ranks: 4, RanksPerHost: 2, Share: true})
	j := start(t, lab, spec{program: "orphaned", transports: []string{"shared"}})
	for _, r := range j.ranks {
		j.await(r, "ready")
	}
	for range 3 {
		for host := range 2 {
			if err := lab.TakeSwitch(2 * host); err != nil {
				t.Fatal(err)
			}
		}
		for host := range 2 {
			testenv.Await(t, "the switch to be put back", func() bool {
				ids, err := lab.Switches(2 * host)
				if err != nil {
					t.Fatal(err)
				}
				return len(ids) == 1
			})
		}
	}
	for _, r := range j.ranks {
		r.tell("stop")
	}
	for _, r := range j.ranks {
		if mode, _, _ := strings.Cut(j.await(r, "mode "), " "); mode != "shared-tcx" {
			t.Errorf("rank %d has mode %s", r.n, mode)
		}
	}
	j.finish()
	for _, r := range j.ranks {
		if c := j.counters(r); c.PeersFailed != 0 {
			t.Errorf("rank %d: %+v", r.n, c.Link)
		}
	}
}
