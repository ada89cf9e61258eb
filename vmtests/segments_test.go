package vmtests

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/rma"
)

// Tests of a job whose connections to the rendezvous somebody disturbs who reads them and has no key.

func init() { programs["undisturbed"] = undisturbed }

// early is how many ranks of undisturbed there are from the beginning.
const early = 2

// undisturbed: two ranks count at each other until the test says "meet". Then all ranks of the job meet,
// of which others may have come meanwhile, and none may have failed.
func undisturbed(s *self) error {
	said := s.lines()
	if s.rank < early {
		if err := countUntilTold(s, said); err != nil {
			return err
		}
	}
	switch word := []int64{7}; s.rank { // the earlier one has to look the later one up
	case early - 1:
		if err := comm.Send(s.ctx, s.world, word, early, 0); err != nil {
			return err
		}
	case early:
		if _, err := comm.Recv(s.ctx, s.world, word, early-1, 0); err != nil {
			return err
		}
	}
	sum := []int64{0}
	if err := comm.Allreduce(s.ctx, s.world, []int64{int64(s.rank)}, sum, rma.Sum); err != nil {
		return err
	}
	if want := int64(s.size * (s.size - 1) / 2); sum[0] != want || s.world.Failed().Size() != 0 {
		return fmt.Errorf("the sum is %d, want %d, and %d ranks have failed", sum[0], want, s.world.Failed().Size())
	}
	fmt.Println("met")
	<-said // "leave"
	return nil
}

// countUntilTold is what the early ranks do.
func countUntilTold(s *self, said <-chan string) error {
	g, err := s.world.Group().Incl([]int{0, 1})
	if err != nil {
		return err
	}
	c, err := s.world.CreateGroup(s.ctx, g, 1)
	if err != nil {
		return err
	}
	win, err := rma.Allocate(s.ctx, c, 8, 1, nil)
	if err != nil {
		return err
	}
	if err := win.LockAll(s.ctx, 0); err != nil {
		return err
	}
	for n := int64(0); ; n++ {
		old, err := rma.Fetch(s.ctx, win, int64(1), 1-s.rank, rma.At(0), rma.Sum)
		if err := errors.Join(err, check(old == n, "the counter was %d, want %d", old, n)); err != nil {
			return fmt.Errorf("call %d: %w", n, err)
		}
		if n == 10 {
			fmt.Println("running")
		}
		select {
		case line := <-said:
			if line == "meet" {
				return errors.Join(win.UnlockAll(s.ctx), win.Free(s.ctx))
			}
			fmt.Println("counted", n)
		default:
		}
		time.Sleep(100 * time.Microsecond) // work, which leaves the processors to others
	}
}

const (
	rendezvousPort = 7771 // where rank 0 of a job by hand serves the rendezvous
	segmentsEach   = 50   // that are sent of each kind, one after the other
	segmentPause   = 5 * time.Millisecond
)

// disturbed is a job whose connections to the rendezvous somebody disturbs.
type disturbed struct {
	level  secure.Level
	byHand bool // rank 0 serves the rendezvous, and not a launcher
}

func (d disturbed) name() string {
	if d.byHand {
		return "by hand, " + d.level.String()
	}
	return "by a launcher, " + d.level.String()
}

// TestForgedSegmentsHarmNoRank has somebody who reads the connections to the rendezvous send segments in
// them. The ranks go on, no member gets the place of one, and another rank joins later.
func TestForgedSegmentsHarmNoRank(t *testing.T) {
	testenv.Only(t, testenv.Attacks)
	for _, d := range testenv.Cases([]disturbed{{secure.Seal, true}}, disturbed{secure.Sign, true}, disturbed{secure.None, true}, disturbed{secure.Seal, false}) {
		for _, a := range netlab.Forgeries {
			for to, toRendezvous := range map[string]bool{"to": true, "from": false} {
				t.Run(fmt.Sprintf("%s/%s %s the rendezvous", d.name(), a.Name, to), func(t *testing.T) {
					t.Parallel()
					d.forge(t, a, toRendezvous)
				})
			}
		}
	}
}

func (d disturbed) forge(t *testing.T, a netlab.Forgery, toRendezvous bool) {
	lab := labtest.New(t, netlab.Config{Ranks: 4})
	key := secure.NewKey()
	var forger *netlab.Forger
	place := func(rank int, c *bootstrap.Config, _ *exec.Cmd) {
		c.Size = early + 1
		if d.byHand {
			c.Rendezvous, c.Serve = "tcp:"+netip.AddrPortFrom(lab.Addr(0), rendezvousPort).String(), rank == 0
		}
		if forger == nil { // no rank has been started
			served, err := netip.ParseAddrPort(strings.TrimPrefix(c.Rendezvous, "tcp:"))
			must(t, err)
			forger, err = lab.Forge(0, served.Port())
			must(t, err)
			t.Cleanup(func() { forger.Close() })
		}
	}
	j := start(t, lab, spec{program: "undisturbed", ranks: early, transports: []string{"udp"}, deadAfter: besideFloods, key: &key, level: d.level, overTCP: true, change: place})
	for _, r := range j.ranks {
		j.await(r, "running")
	}
	sent := 0
	for n := range cmp.Or(*attackFrames, segmentsEach) {
		more, err := forger.Send(a, n, toRendezvous)
		must(t, err)
		sent += more
		time.Sleep(segmentPause) // so that what has been closed may be opened again
	}
	if sent == 0 {
		t.Error("no segment was sent")
	}
	for _, r := range j.ranks {
		r.tell("count")
		j.await(r, "counted ")
	}
	d.impose(j, 1, lab.Ranks()-1)
	j.ranks = append(j.ranks, j.startRank(early))
	for _, r := range j.ranks[:early] {
		r.tell("meet")
	}
	for _, r := range j.ranks {
		j.await(r, "met")
	}
	for _, r := range j.ranks {
		r.tell("leave")
	}
	j.finish()
	for _, r := range j.ranks {
		if c := j.counters(r); c.PeersFailed+c.Resets != 0 {
			t.Errorf("rank %d has counted %d ranks as failed, and %d resets", r.n, c.PeersFailed, c.Resets)
		}
	}
}

// impose has a member of the job on a host of the lab ask to join as a rank that lives.
func (d disturbed) impose(j *job, as, host int) {
	j.t.Helper()
	place := j.spec.change
	j.spec.change = func(rank int, c *bootstrap.Config, cmd *exec.Cmd) {
		place(rank, c, cmd)
		c.Rank = as
	}
	r := j.startRank(host)
	j.spec.change = place
	defer r.kill()
	testenv.Await(j.t, "an answer to a member that asks for another's place", func() bool {
		select {
		case <-r.done:
			return true
		default:
			return strings.Contains(r.output(), "joined")
		}
	})
	if why := r.output(); !strings.Contains(why, "refused this process") {
		j.t.Errorf("a member asked for the place of rank %d: %s", as, why)
	}
}
