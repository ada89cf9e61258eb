package rma_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/program"
	"github.com/xdprma/xdprma/internal/lab/program/live"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/rma"
)

var (
	randomSeed = flag.Int64("random.seed", -1, "TestRandomPrograms: run this seed alone, and print its program if -v is given")
	randomFrom = flag.Uint64("random.from", 0, "TestRandomPrograms: first seed")
	randomRuns = flag.Uint64("random.seeds", 60, "TestRandomPrograms: number of seeds")
)

func generated(seed uint64) *program.Program {
	return program.Generate(seed, program.Ranks(seed))
}

// TestRandomPrograms carries out random programs and compares what comes of them
// with the model.
func TestRandomPrograms(t *testing.T) {
	if *randomSeed >= 0 {
		p := generated(uint64(*randomSeed))
		if testing.Verbose() {
			t.Log(p)
		}
		runProgram(t, p)
		return
	}
	for i := range testenv.Seeds(*randomRuns, (*randomRuns+5)/6) {
		seed := *randomFrom + i
		runProgram(t, generated(seed))
		if t.Failed() {
			t.Fatalf("run it again with: go test ./rma -run TestRandomPrograms -random.seed=%d -v", seed)
		}
	}
}

// TestRandomProgramsBite changes one thing that the model says, or that a rank saw,
// and wants it noticed.
func TestRandomProgramsBite(t *testing.T) {
	spoilt, judged := 0, 0
	for seed := range testenv.Seeds(15, 3) {
		p := generated(seed)
		spoil(p, rand.New(rand.NewPCG(seed, 7)))
		if _, err := outcome(t, p); err == nil {
			t.Errorf("seed %d: the model was changed, and nobody noticed", seed)
		}
		spoilt++
		p = generated(seed)
		records, err := outcome(t, p)
		if err != nil {
			t.Fatal(err)
		}
		for rank := range records {
			for i := range records[rank] {
				s := &p.Scripts[rank][records[rank][i].Step]
				at := uint64(1) << (10 * rank) // it has made one change less, or more
				if s.Code == program.Transfer && p.Shared[s.Call.Shared].Kind == program.Swapped {
					at = 1 << 61 // a value that no swap stores: another one can be right
				}
				values := records[rank][i].Values
				for k := range values {
					values[k] ^= at
					if program.Judge(p, records) == nil {
						t.Errorf("seed %d: rank %d, %v: word %d was changed, and Judge agrees", seed, rank, s, k)
					}
					values[k] ^= at
					judged++
				}
			}
		}
	}
	t.Logf("%d programs and %d words", spoilt, judged)
}

// spoil changes a byte of what the model says of a window or of a result.
func spoil(p *program.Program, random *rand.Rand) {
	var all [][]byte
	for _, script := range p.Scripts {
		for _, s := range script {
			switch {
			case s.Code == program.Check && len(s.Memory) > 0 && len(s.Shared) == 0:
				all = append(all, s.Memory)
			case s.Code == program.Transfer && len(s.Call.Want) > 0:
				all = append(all, s.Call.Want)
			case s.Talk != nil && len(s.Talk.Want) > 0:
				all = append(all, s.Talk.Want)
			}
		}
	}
	b := all[random.IntN(len(all))]
	b[random.IntN(len(b))] ^= 1 << random.IntN(8)
}

func runProgram(t *testing.T, p *program.Program) {
	if _, err := outcome(t, p); err != nil {
		t.Error(err)
	}
}

// outcome carries out a program on ranks of its own, and returns what they saw and
// what is wrong with it.
func outcome(t *testing.T, p *program.Program) ([][]program.Record, error) {
	hosts := make([]string, p.Ranks)
	for rank := range hosts {
		if p.Seed%3 == 1 { // some share memory
			hosts[rank] = []string{"", "a", "b"}[(p.Seed>>rank+uint64(rank))%3]
		}
	}
	j := newJobOf(t, hosts, rma.Config{})
	defer j.close()
	ctx, cancel := context.WithCancel(j.ctx)
	defer cancel()
	records := make([][]program.Record, p.Ranks)
	err := errors.Join(j.outcomes(func(n *rma.Node) (err error) {
		records[n.Rank()], err = live.Run(ctx, n.World(), p)
		if err != nil {
			cancel() // the others would wait
		}
		return err
	})...)
	if err == nil {
		err = program.Judge(p, records)
	}
	return records, err
}
