package vmtests

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/inside"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/calls/collective"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/rma"
)

// Tests of a job with a key of which one member turns on the others. It has all keys that a
// member has, and sends what no honest rank would; see rogue_test.go.

func init() { programs["insider"] = insider }

const (
	rogueRank   = 2
	sharedBytes = 1 << 16
	// mostGrown bounds how much memory the heap of a rank takes more than before the attacks: the
	// garbage collector lets it grow to twice what is in use, and that is for one peer at most 10 MiB
	// of datatypes (128 KiB as encoded, eighty bytes for each), as much for one that is being read, 3 MiB of
	// bundles that wait (2048 of an MTU), and less than 1 MiB of messages.
	mostGrown = 64 << 20
	// besideRogue is how long a rank is silent before it is dead: an attack may keep it from others for
	// long. The honest ranks wait for so long for the locks of the rogue that is killed.
	besideRogue = 10 * time.Second
	asks        = 5 // of the honest ranks during an attack, each of them two rounds and more
)

// premises are what the ranks of insider work on.
type premises struct {
	pair     *comm.Comm // of the honest ranks
	shared   *rma.Win   // with which the rogue may do anything; the others do no work there
	readable *rma.Win   // which it may read
	own      *rma.Win   // of the honest ranks alone
	known
}

// known is what the rogue is told, as it might guess it.
type known struct {
	Shared, Readable, Own uint32   // ids of the windows
	Contexts              []uint32 // that are none of its
}

// insider makes three windows. Two ranks work at each other on two of them, and the third attacks.
func insider(s *self) error {
	p, err := enter(s)
	if err != nil {
		return err
	}
	if s.rank == rogueRank {
		return turn(s, p)
	}
	return workBeside(s, p)
}

// enter makes the windows.
func enter(s *self) (*premises, error) {
	p, color := &premises{}, 0
	if s.rank == rogueRank {
		color = 1
	}
	err := all(
		func() (err error) {
			p.shared, err = rma.Allocate(s.ctx, s.world, sharedBytes, 1, rma.InClear())
			return err
		},
		func() (err error) {
			access := rma.Access(rma.MayAll, map[int]rma.Rights{rogueRank: rma.MayRead})
			p.readable, err = rma.Allocate(s.ctx, s.world, s.size*shareBytes, 1, rma.InClear(), access)
			return err
		},
		func() (err error) { p.pair, err = s.world.Split(s.ctx, color, s.rank); return err },
		func() (err error) {
			p.own, err = rma.Allocate(s.ctx, p.pair, p.pair.Size()*shareBytes, 1, rma.InClear())
			return err
		},
	)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(p.look(s))
	if err != nil {
		return nil, err
	}
	if text, err = s.world.BcastBytes(s.ctx, text, 0); err != nil {
		return nil, err
	}
	return p, json.Unmarshal(text, &p.known)
}

// look returns what an honest rank can tell the rogue.
func (p *premises) look(s *self) (k known) {
	inside.Job(s.world).InEngine(func(e *engine.Engine) {
		e.Windows().All(func(w *windows.Window) {
			switch w.Size() {
			case p.shared.Size():
				k.Shared = w.ID()
			case p.readable.Size():
				k.Readable = w.ID()
			case p.own.Size():
				k.Own = w.ID()
			}
		})
		contexts := []uint32{collective.WindowContext | k.Own, collective.WindowContext | collective.SecondContext | k.Own}
		for c := range uint32(1 << 10) {
			contexts = append(contexts, c, c|collective.SecondContext)
		}
		for _, c := range contexts {
			if e.Outside(c, rogueRank) {
				k.Contexts = append(k.Contexts, c)
			}
		}
	})
	return k
}

// standing is how an honest rank fares.
type standing struct {
	counters
	Rounds int64
}

// workBeside works at the other honest rank, and looks at each result.
func workBeside(s *self, p *premises) error {
	other := 1 - s.rank
	err := errors.Join(p.shared.LockAll(s.ctx, 0), p.readable.LockAll(s.ctx, 0), p.own.LockAll(s.ctx, 0))
	if err != nil {
		return err
	}
	if _, err := rma.Load[int64](s.ctx, p.shared, other, rma.At(0)); err != nil { // which takes the lock
		return err
	}
	said, beats, locked := s.lines(), &pulse{}, make(chan error, 1)
	rounds, tell := int64(0), int64(-1)
	for stopped := false; !stopped; rounds++ {
		old, err := rma.Fetch(s.ctx, p.readable, int64(1), other, rma.At(int64(other*shareBytes)), rma.Sum)
		err = errors.Join(err, check(old == rounds, "the counter was %d, want %d", old, rounds),
			workAt(s, p.readable, beats, other, rounds), workAt(s, p.own, beats, other, rounds))
		if err != nil {
			return fmt.Errorf("round %d at rank %d: %w", rounds, other, err)
		}
		switch rounds {
		case 10:
			fmt.Println("running")
		case tell:
			if err := p.pair.Barrier(s.ctx); err != nil { // the other is asked, too
				return err
			}
			text, _ := json.Marshal(standing{beats.counters(s), rounds})
			fmt.Println("standing", string(text))
		}
		select {
		case line := <-said:
			switch line {
			case "count":
				tell = rounds + 2
			case "release":
				err = p.shared.UnlockAll(s.ctx)
				fmt.Println("released")
			case "lock":
				fmt.Println("asks")
				go func() { locked <- s.locked(p.shared, rma.LockExclusive, other) }()
			case "stop":
				stopped = true
			}
			if err != nil {
				return fmt.Errorf("%s: %w", line, err)
			}
		case err := <-locked:
			if err != nil {
				return fmt.Errorf("lock: %w", err)
			}
			fmt.Println("locked")
		default:
		}
		time.Sleep(100 * time.Microsecond) // work, which leaves the processors to others
	}
	blocks, err := p.pair.AllgatherBytes(s.ctx, binary.LittleEndian.AppendUint64(nil, uint64(rounds)))
	if err != nil {
		return err
	}
	did := int64(binary.LittleEndian.Uint64(blocks[other]))
	return errors.Join(
		checkShare(s, p.readable, other, did), checkShare(s, p.own, other, did), p.checkRest(s, did),
		p.own.UnlockAll(s.ctx), p.own.Free(s.ctx),
	)
}

// checkRest looks at the bytes that only the rogue could have changed.
func (p *premises) checkRest(s *self, rounds int64) error {
	mine := slices.Clone(p.readable.Memory()[s.rank*shareBytes:][:shareBytes])
	words := rma.Slice[int64](mine[:8])
	if err := check(words[0] == rounds, "the word of the fetches is %d after %d rounds", words[0], rounds); err != nil {
		return err
	}
	clear(mine[:8])
	nothing := make([]byte, shareBytes)
	return errors.Join(same(mine, nothing), same(p.readable.Memory()[rogueRank*shareBytes:], nothing), same(p.own.Memory()[s.rank*shareBytes:][:shareBytes], nothing))
}

// standings returns how the honest ranks fare.
func standings(j *job) (all [rogueRank]standing) {
	j.t.Helper()
	for _, r := range j.ranks[:rogueRank] {
		r.tell("count")
	}
	for i, r := range j.ranks[:rogueRank] {
		must(j.t, json.Unmarshal([]byte(j.await(r, "standing ")), &all[i]))
	}
	return all
}

// grown returns which counters of refusals have grown at an honest rank.
func grown(before, now standing) map[string]uint64 {
	m := map[string]uint64{}
	for name, n := range ofInsider(now) {
		if n -= ofInsider(before)[name]; n > 0 {
			m[name] = n
		}
	}
	return m
}

// ofInsider are the counters of what a rank refuses its peers.
func ofInsider(st standing) map[string]uint64 {
	m := refusals(st.counters)
	maps.Copy(m, map[string]uint64{"refused": st.OneSided.Refused, "denied": st.Denied, "outsiders": st.Outsiders, "bad answers": st.BadAnswers,
		"overdrawn": st.Overdrawn, "types": st.Types, "types refused": st.TypesRefused, "parked": st.Parked, "parking full": st.ParkingFull,
		"no slots": st.SlotsExhausted, "messages": st.Unexpected, "dropped messages": st.Dropped, "bundles": st.Bundles,
		"executed": st.Device.Filter["express_executed"], "no access": st.Device.Filter["express_no_access"]})
	return m
}

// A member of a job that turns on the others changes nothing that it has no right to, and the others
// go on, whatever it sends.
func TestAttacksByInsider(t *testing.T) {
	testenv.Only(t, testenv.Attacks)
	t.Parallel()
	for _, w := range testenv.Cases([]walls{{"xdp-native", true, secure.Sign}, {"udp", false, secure.Seal}},
		walls{"xdp-native", true, secure.Seal}, walls{"udp", false, secure.Sign}) {
		t.Run(w.name(), func(t *testing.T) {
			lab := acceptAnswers(t, labtest.New(t, netlab.Config{Ranks: 3}), w.transport)
			key := secure.NewKey()
			j := start(t, lab, spec{program: "insider", transports: []string{w.transport}, deadAfter: besideRogue, key: &key, level: w.level, overTCP: true, env: w.env()})
			for _, r := range j.ranks {
				j.await(r, "running")
			}
			first := standings(j)
			for i, st := range first {
				t.Logf("rank %d before: p99 %v, heap %d KiB, in use %d KiB", i, st.P99, st.Taken>>10, st.Heap>>10)
			}
			for _, a := range betrayals {
				if (strings.HasPrefix(a.name, *attackOnly) || a.name == lockForEver) && a.name != saysBye {
					withstand(j, a, first)
				}
			}
			endRogue(j, first, w.level == secure.Seal)
			for _, r := range j.ranks[:rogueRank] {
				r.tell("stop")
			}
			for _, r := range j.ranks[:rogueRank] {
				j.ended(r)
				if !r.cmd.ProcessState.Success() {
					t.Errorf("rank %d: %v", r.n, r.cmd.ProcessState)
				}
			}
		})
	}
}

// endRogue kills the rogue, which holds a lock that the others want; or has it say before that it
// leaves, and go on.
func endRogue(j *job, first [rogueRank]standing, leaves bool) {
	j.t.Helper()
	for _, r := range j.ranks[:rogueRank] {
		r.tell("lock")
		j.await(r, "asks")
	}
	for range asks {
		standings(j)
	}
	for _, r := range j.ranks[:rogueRank] {
		if strings.Contains(r.output(), "\nlocked") {
			j.t.Errorf("rank %d has a lock that the rogue holds", r.n)
		}
	}
	from := time.Now()
	if leaves {
		withstand(j, betrayals[len(betrayals)-1], first)
	} else {
		j.ranks[rogueRank].kill()
		<-j.ranks[rogueRank].done
	}
	for _, r := range j.ranks[:rogueRank] {
		r.rewind()
		j.await(r, "locked")
	}
	j.t.Logf("the locks of the rogue are free within %v", time.Since(from).Round(time.Millisecond))
	if leaves {
		j.ranks[rogueRank].kill()
		<-j.ranks[rogueRank].done
	}
}

// withstand has the rogue attack, and looks how the others fare.
func withstand(j *job, a betrayal, first [rogueRank]standing) {
	j.t.Helper()
	rogue := j.ranks[rogueRank]
	if a.name == lockForEver {
		for _, r := range j.ranks[:rogueRank] {
			r.tell("release")
			j.await(r, "released")
		}
	}
	before, began := standings(j), time.Now()
	rogue.tell(fmt.Sprint(frames(), " ", a.name))
	j.await(rogue, "attacks")
	if a.name == lockForEver {
		if err := j.await(rogue, "granted "); err != "<nil>" {
			j.t.Fatalf("the rogue has not got its locks: %s", err)
		}
	}
	now := standings(j)
	for range asks - 1 {
		now = standings(j)
	}
	rogue.tell("enough")
	var got haul
	must(j.t, json.Unmarshal([]byte(j.await(rogue, "done ")), &got))
	took := time.Since(began)
	after := standings(j)
	j.t.Logf("%s, %v: %+v", a.name, took.Round(time.Millisecond), got)
	if got.Answers == 0 && a.counts == nil || got.Got < got.Asked/2 { // some answers may still be under way
		j.t.Errorf("%s: it has not got what it asks for: %+v", a.name, got)
	}
	for i := range after {
		g := grown(before[i], after[i])
		j.t.Logf("  rank %d: p99 of %d calls %v, before of %d calls %v; %d rounds; heap %d KiB, in use %d KiB: %v",
			i, most(now[i], after[i]).Calls, most(now[i], after[i]).P99, first[i].Calls, first[i].P99, after[i].Rounds-before[i].Rounds, after[i].Taken>>10, after[i].Heap>>10, g)
		if after[i].PeersFailed != 0 || after[i].Resets != 0 || after[i].BadAcks != 0 {
			j.t.Errorf("%s: rank %d: %d peers failed, %d resets came: %+v", a.name, i, after[i].PeersFailed, after[i].Resets, after[i].Link)
		}
		if after[i].Taken > first[i].Taken+mostGrown {
			j.t.Errorf("%s: the heap of rank %d has grown from %d to %d KiB", a.name, i, first[i].Taken>>10, after[i].Taken>>10)
		}
		for _, name := range a.counts {
			if g[name] == 0 {
				j.t.Errorf("%s: rank %d has counted none as %s: %v", a.name, i, name, g)
			}
		}
	}
}

// most returns that of two standings which has timed more calls.
func most(a, b standing) standing {
	if a.Calls > b.Calls {
		return a
	}
	return b
}
