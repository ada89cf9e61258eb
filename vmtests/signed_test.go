package vmtests

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/rma"
)

// Tests of a job that signs its frames, with somebody on its path who reads all of them and
// sends what he likes, from whatever address.

var (
	attackFrames = flag.Int("attack.frames", 0, "attacks on a job that signs: frames of each attack; 0 for some thousands")
	attackRate   = flag.Int("attack.rate", 0, "attacks on a job that signs: frames a second, to measure how long calls take meanwhile; 0 for as many as possible")
	attackOnly   = flag.String("attack.only", "", "attacks on a job that signs: only those whose name begins so")
)

func init() { programs["besieged"] = besieged }

const (
	restarts     = 1                 // the rank that may be started again
	patternBytes = 20_000            // much enough for joined frames
	shareBytes   = 16 + patternBytes // of an origin in a window of besieged
)

// besieged works at all others until the test says "stop": it adds to a word, and puts and
// gets another word and a pattern, and looks at each result. Each origin has its share of a
// window. When the test says "count", the rank does two more rounds and prints its counters:
// whatever arrived before has been taken in. Its pulse is that of its calls to the last of the others.
func besieged(s *self) error {
	if _, again := s.restarted(); again && s.rank == restarts {
		return anew(s)
	}
	win, err := rma.Allocate(s.ctx, s.world, s.size*shareBytes, 1, rma.InClear()) // or XDP programs would have no part in a job that seals
	if err != nil {
		return err
	}
	if err := win.LockAll(s.ctx, 0); err != nil {
		return err
	}
	said := s.lines()
	living, left := []int{}, []byte(nil) // what a rank that has failed left here
	for to := range s.size {
		living = append(living, to)
	}
	p, timed := &pulse{}, s.size-1 // at the last of the others
	if s.rank == timed {
		timed--
	}
	rounds, report, stopped := int64(0), int64(-1), false
	for ; !stopped; rounds++ {
		for _, to := range slices.Clone(living) {
			if to == s.rank {
				continue
			}
			var beats *pulse
			if to == timed {
				beats = p
			}
			err := workAt(s, win, beats, to, rounds)
			if errors.Is(err, rma.ErrProcFailed) && to == restarts && left == nil {
				living = slices.DeleteFunc(living, func(n int) bool { return n == to })
				left = slices.Clone(win.Memory()[to*shareBytes:][:shareBytes])
				fmt.Println("noticed")
			} else if err != nil {
				return fmt.Errorf("round %d at rank %d: %w", rounds, to, err)
			}
		}
		switch rounds {
		case 10:
			fmt.Println("running")
		case report:
			p.tell(s)
		}
		select {
		case line := <-said:
			report, stopped = rounds+2, line == "stop"
		default:
		}
		time.Sleep(100 * time.Microsecond) // work, which leaves the processors to others
	}
	c := s.world
	if left != nil {
		if c, err = s.survive(); err != nil {
			return err
		}
	}
	blocks, err := c.AllgatherBytes(s.ctx, binary.LittleEndian.AppendUint64(nil, uint64(rounds)))
	if err != nil {
		return err
	}
	for i, from := range living {
		if from == s.rank {
			continue
		}
		if err := checkShare(s, win, from, int64(binary.LittleEndian.Uint64(blocks[i]))); err != nil {
			return fmt.Errorf("what rank %d did here: %w", from, err)
		}
	}
	if left != nil {
		return same(win.Memory()[restarts*shareBytes:][:shareBytes], left)
	}
	return errors.Join(win.UnlockAll(s.ctx), win.Free(s.ctx))
}

// workAt is what besieged does at one rank in a round.
func workAt(s *self, win *rma.Win, p *pulse, to int, round int64) error {
	at := int64(s.rank * shareBytes)
	old := int64(0)
	err := p.beat(func() (err error) {
		old, err = rma.Fetch(s.ctx, win, int64(1), to, rma.At(at), rma.Sum)
		return err
	})
	if err != nil {
		return err
	}
	word, gotWord := []int64{^round}, []int64{0}
	data, got := make([]byte, patternBytes), make([]byte, patternBytes)
	fill(data, s.rank, to, int(round))
	return all(
		func() error { return check(old == round, "the counter was %d, want %d", old, round) },
		func() error { return win.Put(buffer.Of(word), to, rma.At(at+8)) },
		func() error { return win.Flush(s.ctx, to) },
		func() error { return win.Get(buffer.Of(gotWord), to, rma.At(at+8)) },
		func() error { return win.Flush(s.ctx, to) },
		func() error { return check(gotWord[0] == word[0], "got %d, want %d", gotWord, word) },
		func() error { return win.Put(buffer.Bytes(data), to, rma.At(at+16)) },
		func() error { return win.Flush(s.ctx, to) },
		func() error { return win.Get(buffer.Bytes(got), to, rma.At(at+16)) },
		func() error { return win.Flush(s.ctx, to) },
		func() error { return same(got, data) },
	)
}

// checkShare compares the share of a rank that did so many rounds with what these make it.
func checkShare(s *self, win *rma.Win, from int, rounds int64) error {
	share := win.Memory()[from*shareBytes:][:shareBytes]
	words, pattern := rma.Slice[int64](share[:16]), make([]byte, patternBytes)
	fill(pattern, from, s.rank, int(rounds-1))
	return errors.Join(check(words[0] == rounds && words[1] == ^(rounds-1), "the words are %d after %d rounds", words, rounds),
		same(share[16:], pattern))
}

// anew is the second life of a rank: it knocks at the others, who do not take it up.
func anew(s *self) error {
	over := make(chan error, 1)
	go func() { over <- s.world.Barrier(s.ctx) }()
	fmt.Println("ready")
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return err
		}
		select {
		case err := <-over:
			return fmt.Errorf("the session with the others is over: %w", err)
		default:
		}
		if strings.TrimSpace(line) == "stop" {
			return nil
		}
		new(pulse).tell(s)
	}
}

// walls are what ranks stand on that are besieged.
type walls struct {
	transport string
	express   bool
	level     secure.Level
}

func (w walls) name() string {
	name := w.transport
	if !w.express && w.transport != "udp" {
		name += " without express"
	}
	return name + ", " + w.level.String()
}

func (w walls) env() []string {
	if w.express {
		return nil
	}
	return []string{bootstrap.EnvExpress + "=off"}
}

// kinds returns of which kinds there are frames.
func (w walls) kinds() []string {
	kinds := []string{"hello", "hello-ack", "request", "response", "ack"}
	if w.transport != "xdp-native" {
		kinds = append(kinds, "joined")
	}
	if w.express {
		kinds = append(kinds, "express request", "express answer")
	}
	return kinds
}

// Whoever is on the path of a job that signs or seals its frames can do nothing but have them lost.
func TestAttacksOnSignedJob(t *testing.T) {
	testenv.Only(t, testenv.Attacks)
	t.Parallel()
	for _, w := range testenv.Cases([]walls{{"xdp-native", true, secure.Sign}, {"udp", false, secure.Seal}},
		walls{"xdp-native", true, secure.Seal}, walls{"xdp-native", false, secure.Sign}, walls{"udp", false, secure.Sign}) {
		t.Run(w.name(), func(t *testing.T) {
			lab := acceptAnswers(t, labtest.New(t, netlab.Config{Ranks: 3}), w.transport)
			s, key := besiege(t, lab, 0), secure.NewKey()
			s.j = start(t, lab, spec{program: "besieged", ranks: 2, transports: []string{w.transport}, key: &key, level: w.level, overTCP: true, env: w.env()})
			for _, r := range s.j.ranks {
				s.j.await(r, "running")
			}
			s.await(w.kinds()...)
			sessions := maps.Clone(s.sessions)
			t.Logf("frames of the kinds %q have passed", s.kinds())
			if before := refused(s.j.now()); before["dropped"] == 0 {
				for name, n := range before {
					if n > 0 && (strings.HasPrefix(name, "fault") || strings.Contains(name, "bad")) { // others are of frames that come late
						t.Errorf("before the attacks, %d frames are counted as %s", n, name)
					}
				}
			}
			s.spy(w.level == secure.Seal)
			s.intrude()
			s.rest()
			for _, a := range slices.Concat(s.offPath(), s.forged(), s.changed()) {
				s.run(a)
			}
			for _, r := range s.j.ranks {
				r.tell("stop")
			}
			s.j.finish()
			for _, r := range s.j.ranks {
				checkUnmoved(t, r.n, s.j.counters(r))
			}
			if s.look(); !maps.Equal(s.sessions, sessions) {
				t.Errorf("the sessions are %x, and were %x", s.sessions, sessions)
			}
		})
	}
}

// checkUnmoved looks for signs that a rank has believed something.
func checkUnmoved(t *testing.T, rank int, c counters) {
	t.Helper()
	if c.PeersFailed+c.Resets+c.BadAcks+c.OutOfSpan+c.Overdrawn+c.BadAnswers+c.OneSided.Refused+c.Outsiders != 0 {
		t.Errorf("rank %d: %d peers failed, %d resets came, %+v, %+v, %+v", rank, c.PeersFailed, c.Resets, c.Link, c.Messages, c.OneSided)
	}
}

// intrude has processes come to the job's rendezvous that do not have its key, or that ask for
// another level of security. It admits none.
func (s *siege) intrude() {
	s.t.Helper()
	other := secure.NewKey()
	for name, with := range map[string]struct {
		key   *secure.Key
		level bootstrap.Security
	}{
		"no key": {nil, bootstrap.Auto}, "another key": {&other, bootstrap.Auto},
		"a lower level": {s.j.spec.key, bootstrap.Security((s.j.spec.level - 1).String())},
	} {
		s.j.spec.change = func(_ int, c *bootstrap.Config, _ *exec.Cmd) {
			c.Rank, c.Key, c.KeyFile, c.Security = restarts, nil, "", with.level
			if with.key != nil {
				c.Key, c.KeyFile = with.key, keyFile(s.t, with.key)
			}
		}
		r := s.j.startRank(s.lab.Ranks() - 1 - s.j.spec.host)
		s.j.ended(r)
		if why := r.output(); r.cmd.ProcessState.ExitCode() != 3 || !strings.Contains(why, "refused this process") {
			s.t.Errorf("with %s, a process at the rendezvous: %v, %s", name, r.cmd.ProcessState, why)
		} else {
			s.t.Logf("with %s: %s", name, strings.TrimSpace(why))
		}
	}
	s.j.spec.change = nil
}

// Frames to and from the earlier life of a rank are nothing to its present one, and nothing to
// those who have worked with the earlier one.
func TestAttacksOnRestartedRank(t *testing.T) {
	testenv.Only(t, testenv.Attacks)
	t.Parallel()
	for _, w := range testenv.Cases([]walls{{"xdp-native", true, secure.Sign}, {"udp", false, secure.Seal}}) {
		t.Run(w.name(), func(t *testing.T) {
			lab := acceptAnswers(t, labtest.New(t, netlab.Config{Ranks: 4}), w.transport)
			s, key := besiege(t, lab, restarts), secure.NewKey()
			s.j = start(t, lab, spec{program: "besieged", ranks: 3, transports: []string{w.transport}, deadAfter: deadAfter, key: &key, level: w.level, overTCP: true, env: w.env()})
			for _, r := range s.j.ranks {
				s.j.await(r, "running")
			}
			s.await(w.kinds()...)
			s.sated = true
			old := s.j.ranks[restarts]
			old.kill()
			<-old.done
			for _, r := range s.j.ranks {
				if r != old {
					s.j.await(r, "noticed")
				}
			}
			s.intrude()
			s.j.spec.env = append(s.j.spec.env, "VMTESTS_AGAIN=talks")
			s.j.ranks[restarts] = s.j.startRank(restarts)
			s.j.await(s.j.ranks[restarts], "ready")
			s.calm = s.j.now()
			for _, kind := range s.kinds() {
				s.run(attack{"earlier " + kind, everyRefusal(), true, func(int) shot { return s.any(kind) }})
			}
			for _, r := range s.j.ranks {
				r.tell("stop")
			}
			s.j.finish()
			if c := s.j.counters(s.j.ranks[restarts]); c.PeersFailed != 0 {
				t.Errorf("the second life of rank %d took %d peers for dead", restarts, c.PeersFailed)
			}
		})
	}
}
