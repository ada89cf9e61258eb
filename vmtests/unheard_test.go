package vmtests

import (
	"encoding/binary"
	"fmt"
	"os/exec"
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

func init() { programs["unheard"] = unheard }

// deaf is the member to which no frames come.
const deaf = 2

// unheard works as besieged does, the ranks but the deaf one among themselves, and the deaf one
// issues at all others what it has room for, and waits for nothing.
func unheard(s *self) error {
	p := &pulse{}
	win, err := rma.Allocate(s.ctx, s.world, s.size*shareBytes, 1, rma.InClear())
	if err != nil {
		return err
	}
	honest, err := s.world.Split(s.ctx, s.rank/deaf, s.rank)
	if err != nil {
		return err
	}
	if err := win.LockAll(s.ctx, 0); err != nil {
		return err
	}
	for to := range s.size { // which opens the sessions
		if to != s.rank {
			if err := workAt(s, win, p, to, 0); err != nil {
				return err
			}
		}
	}
	if err := s.world.Barrier(s.ctx); err != nil {
		return err
	}
	fmt.Println("running")
	if err := s.listen("go"); err != nil {
		return err
	}
	said := s.lines()
	if s.rank == deaf {
		for to := range deaf {
			go func() { fmt.Println("over", to, pour(s, win, to)) }()
		}
		for range said { // until the test kills this rank
			p.tell(s)
		}
	}
	other := 1 - s.rank
	rounds, report, stopped := int64(1), int64(-1), false
	for ; !stopped; rounds++ {
		if err := workAt(s, win, p, other, rounds); err != nil {
			return fmt.Errorf("round %d at rank %d: %w", rounds, other, err)
		}
		if rounds == report {
			p.tell(s)
		}
		select {
		case line := <-said:
			report, stopped = rounds+2, line == "stop"
		default:
		}
		time.Sleep(100 * time.Microsecond) // work, which leaves the processors to others
	}
	blocks, err := honest.AllgatherBytes(s.ctx, binary.LittleEndian.AppendUint64(nil, uint64(rounds)))
	if err != nil {
		return err
	}
	return checkShare(s, win, other, int64(binary.LittleEndian.Uint64(blocks[other])))
}

// pour issues operations at a rank until one fails.
func pour(s *self, win *rma.Win, to int) error {
	at := int64(s.rank * shareBytes)
	for {
		err := all(
			func() error { return win.Put(buffer.Bytes(make([]byte, patternBytes)), to, rma.At(at+16)) },
			func() error { return win.Get(buffer.Bytes(make([]byte, patternBytes)), to, rma.At(at+16)) },
			func() error {
				return win.FetchAndOp(buffer.Of([]int64{1}), buffer.Of([]int64{0}), to, rma.At(at), rma.Sum)
			},
		)
		if err != nil {
			return err
		}
	}
}

// A member hears nothing, acknowledges nothing, and asks all others for more. They lose it, since
// it takes no answers, and nothing else: they go on together, and hold no more for it than there
// is room for.
func TestMemberThatAcknowledgesNothing(t *testing.T) {
	testenv.Only(t, testenv.Attacks)
	t.Parallel()
	for _, w := range testenv.Cases([]walls{{"xdp-native", true, secure.Sign}, {"udp", false, secure.Seal}}, walls{"xdp-native", false, secure.Sign}) {
		t.Run(w.name(), func(t *testing.T) {
			needsJoined(t, w)
			lab := acceptAnswers(t, labtest.New(t, netlab.Config{Ranks: 3}), w.transport)
			m, key := meddle(t, lab, deaf), secure.NewKey()
			j := start(t, lab, spec{program: "unheard", transports: []string{w.transport}, deadAfter: besideFloods, key: &key, level: w.level, overTCP: true, env: w.env(),
				change: func(rank int, _ *bootstrap.Config, cmd *exec.Cmd) {
					if rank == deaf { // it goes on though it hears nothing
						cmd.Env = append(cmd.Env, envDeadAfter+"="+testenv.Limit.String())
					}
				}})
			for _, r := range j.ranks {
				j.await(r, "running")
			}
			m.loses[deaf].Store(true)
			for _, r := range j.ranks {
				r.tell("go")
			}
			held := j.now()
			testenv.Await(t, "ranks that lose the one that acknowledges nothing", func() bool {
				all := j.now()
				return all[0].PeersFailed > 0 && all[1].PeersFailed > 0
			})
			for range mostAsked { // it goes on sending
				j.now()
			}
			j.checkMemory(held)
			for n, c := range j.now() {
				if n == deaf {
					c.PeersFailed++ // it may take nobody for dead
				}
				c.PeersFailed--
				checkUnmoved(t, n, c)
				t.Logf("rank %d: %+v", n, c.Link)
			}
			j.ranks[deaf].kill()
			<-j.ranks[deaf].done
			j.ranks = j.ranks[:deaf]
			for _, r := range j.ranks {
				r.tell("stop")
			}
			j.finish()
		})
	}
}
