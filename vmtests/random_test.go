package vmtests

import (
	"encoding/json"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/xdprma/xdprma/bpf/faults"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/program"
	"github.com/xdprma/xdprma/internal/lab/program/live"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
)

// The environment variables that a test sets for the program that carries out random programs.
const (
	envSeed  = "VMTESTS_SEED"  // the first
	envSeeds = "VMTESTS_SEEDS" // how many
)

var (
	randomFrom  = flag.Int("random.from", 0, "random programs: first seed, with -random.seeds")
	randomSeeds = flag.Int("random.seeds", 0, "random programs: number of seeds, the same for each kind of job; 0 for some of each kind's own")
)

// randomNext is the first seed that no kind of job has had: each has programs of its own.
var randomNext int

func init() { programs["random"] = random }

// randomRanks returns how many ranks carry out the program of a seed: as many as the
// seed says and there are.
func randomRanks(seed uint64, size int) int { return min(size, program.Ranks(seed)) }

// random carries out random programs, each on a communicator of its own with the
// ranks in another order, and prints what the test has to judge.
func random(s *self) error {
	number := func(name string) uint64 {
		text, _ := lookupEnv(name)
		n, _ := strconv.ParseUint(text, 10, 64)
		return n
	}
	for seed := number(envSeed); seed < number(envSeed)+number(envSeeds); seed++ {
		ranks, turned, color := randomRanks(seed, s.size), (s.rank+int(seed))%s.size, 0
		if turned >= ranks {
			color = comm.Undefined
		}
		c, err := s.world.Split(s.ctx, color, turned)
		if err != nil {
			return err
		}
		if c == nil {
			continue
		}
		records, err := live.Run(s.ctx, c, program.Generate(seed, ranks))
		if err != nil {
			return err
		}
		text, err := json.Marshal(records)
		if err != nil {
			return err
		}
		fmt.Printf("saw %d %d %s\n", seed, c.Rank(), text)
		if err := c.Free(); err != nil {
			return err
		}
	}
	return s.world.Barrier(s.ctx)
}

// runRandom carries out random programs on a job's ranks and judges them.
func runRandom(t *testing.T, lab *netlab.Lab, s spec) *job {
	t.Helper()
	return runSeeds(t, lab, s, testenv.Seeds(30, 8))
}

// runOff is runRandom for fewer programs where XDP programs execute no requests.
func runOff(t *testing.T, lab *netlab.Lab, s spec) *job {
	t.Helper()
	s.env = append(s.env, bootstrap.EnvExpress+"=off")
	j := runSeeds(t, lab, s, testenv.Seeds(12, 3))
	for _, r := range j.ranks {
		r.rewind()
		if n := j.counters(r).Exchanges; n != 0 {
			t.Errorf("rank %d sent %d requests to XDP programs", r.n, n)
		}
	}
	return j
}

// runSeeds is runRandom for the next n seeds, if no flag says which.
func runSeeds(t *testing.T, lab *netlab.Lab, s spec, n uint64) *job {
	t.Helper()
	first, seeds := *randomFrom, *randomSeeds
	if seeds == 0 && first != 0 {
		t.Fatal("-random.from needs -random.seeds")
	}
	if seeds == 0 {
		first, seeds = randomNext, int(n)
		randomNext += seeds
	}
	begin := time.Now()
	defer func() { t.Logf("programs %d to %d in %v", first, first+seeds-1, time.Since(begin)) }()
	s.program = "random"
	s.env = append(s.env, "GOGC=400") // ranks generate what they do, and would collect garbage half of the time
	s.env = append(s.env, fmt.Sprintf("%s=%d", envSeed, first), fmt.Sprintf("%s=%d", envSeeds, seeds))
	j := start(t, lab, s)
	j.finish()
	seen := map[uint64]map[int][]program.Record{}
	for _, r := range j.ranks {
		for line := range strings.Lines(r.output()) {
			fields := strings.Fields(line)
			if len(fields) != 4 || fields[0] != "saw" {
				continue
			}
			seed, _ := strconv.ParseUint(fields[1], 10, 64)
			rank, _ := strconv.Atoi(fields[2])
			var records []program.Record
			if err := json.Unmarshal([]byte(fields[3]), &records); err != nil {
				t.Fatal(err)
			}
			if seen[seed] == nil {
				seen[seed] = map[int][]program.Record{}
			}
			seen[seed][rank] = records
		}
	}
	for seed := uint64(first); seed < uint64(first+seeds); seed++ {
		p := program.Generate(seed, randomRanks(seed, len(j.ranks)))
		var records [][]program.Record
		for rank := range p.Ranks {
			if _, ok := seen[seed][rank]; !ok {
				t.Fatalf("rank %d of program %d says nothing", rank, seed)
			}
			records = append(records, seen[seed][rank])
		}
		if err := program.Judge(p, records); err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		t.Logf("run one again with: go test ./vmtests -run '^%s$' -random.from=SEED -random.seeds=1", t.Name())
	}
	return j
}

// Random programs come out as the model says, between real processes.
func TestRandomPrograms(t *testing.T) {
	for _, transports := range testenv.Cases([][]string{{"xdp-native", "udp", "xdp-generic"}}, []string{"xdp-native"}, []string{"udp"}, []string{"shared", "udp", "xdp-generic"}) {
		t.Run(strings.Join(transports, ","), func(t *testing.T) {
			lab := acceptAnswers(t, labtest.New(t, netlab.Config{Ranks: 6}), transports...)
			checkNothingLost(runRandom(t, lab, spec{transports: transports}))
			if len(transports) == 1 && transports[0] != "udp" {
				checkNothingLost(runOff(t, lab, spec{transports: transports}))
			}
		})
	}
	t.Run("two hosts of one interface", func(t *testing.T) {
		lab := labtest.New(t, netlab.Config{Ranks: 6, RanksPerHost: 3, Share: true})
		checkNothingLost(runRandom(t, lab, spec{transports: []string{"shared"}}))
		checkNothingLost(runRandom(t, lab, spec{transports: []string{"shared"}, env: []string{"XDPRMA_FRAMES=1"}}))
	})
}

// Also over a wire that loses, damages and repeats frames, and in checking mode,
// which finds no conflicts: the programs are in order.
func TestRandomProgramsOverFaults(t *testing.T) {
	for _, transport := range testenv.Cases([]string{"xdp-native", "shared"}, "udp") {
		t.Run(transport, func(t *testing.T) {
			lab := labtest.New(t, netlab.Config{Ranks: 3})
			both := relays(t, lab, transport != "xdp-native", rates{drop: 20, corrupt: 20, duplicate: 20})
			runSeeds(t, lab, spec{ranks: 2, transports: []string{transport}}, testenv.Seeds(50, 25)) // fewer do not meet enough faults
			if transport != "udp" {
				runOff(t, lab, spec{ranks: 2, transports: []string{transport}})
			}
			for _, relay := range both {
				if taken, err := relay.Taken(); err != nil || taken[faults.Drop] < 10 || taken[faults.Corrupt] < 10 {
					t.Errorf("faults: %v, %v", taken, err)
				}
			}
		})
	}
	t.Run("checking mode", func(t *testing.T) {
		lab := labtest.New(t, netlab.Config{Ranks: 4})
		j := runRandom(t, lab, spec{transports: []string{"xdp-native"}, env: []string{"XDPRMA_CHECK=1"}})
		for _, r := range j.ranks {
			r.rewind()
			if n := j.counters(r).Conflicts; n != 0 {
				t.Errorf("rank %d found %d conflicts", r.n, n)
			}
		}
	})
}
