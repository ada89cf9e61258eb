package sim

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// TestTogetherOraclesBite breaks promises that collectives rest on: a few seeds are enough
// to notice.
func TestTogetherOraclesBite(t *testing.T) {
	const seeds = 400
	for name, tamper := range map[string]func(code wire.Code, record []byte){
		"nobody is told that a communicator is broken": func(code wire.Code, record []byte) {
			if code == wire.CodeRevoke {
				record[0] = byte(wire.CodePing)
			}
		},
		"messages are damaged before the checksum": func(code wire.Code, record []byte) {
			if code == wire.CodeMessage && len(record) > wire.RecordLen {
				record[wire.RecordLen] ^= 1
			}
		},
		"nobody is told who is gone": func(code wire.Code, record []byte) {
			if code == wire.CodeGone {
				record[0] = byte(wire.CodePing)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(seeds) {
				r := Run(Config{Seed: seed, Together: true, Tamper: func(_, _ int, b []byte) [][]byte { return [][]byte{eachRecord(b, tamper)} }})
				if r.Err != nil {
					t.Logf("seed %d: %.160s", seed, r.Err)
					return
				}
			}
			t.Errorf("%d seeds noticed nothing", seeds)
		})
	}
}

// TestLiarEvictsNobody has one rank say, again and again, that it has lost another, while
// ranks fail, restart and are given up. No oracle notices anything: no rank that lives is
// taken for gone, and all that are left come to one group.
func TestLiarEvictsNobody(t *testing.T) {
	t.Parallel()
	lies := 0
	for seed := range testenv.Seeds(400, 90) {
		rng := rand.New(rand.NewPCG(seed, 1))
		liar := rng.IntN(8)
		r := Run(Config{Seed: seed, Together: true, Tamper: func(from, _ int, b []byte) [][]byte {
			if from != liar {
				return [][]byte{b}
			}
			return [][]byte{eachRecord(b, func(code wire.Code, record []byte) {
				if code == wire.CodePing {
					lie := wire.Gone{By: uint32(liar), Rank: uint32(rng.IntN(liar + 2))}
					if rng.IntN(2) == 0 {
						lie.By = uint32(rng.IntN(liar + 2))
					}
					if lie.By != uint32(liar) || lie.Rank != uint32(liar) { // else it would leave
						r := lie.Record()
						wire.PutRecord(record, &r, 0)
						lies++
					}
				}
			})}
		}})
		if r.Err != nil {
			t.Fatalf("seed %d, liar %d: %v", seed, liar, r.Err)
		}
	}
	if t.Log(lies, "lies"); lies < 100 {
		t.Error("there are too few lies to hurt anybody")
	}
}

// eachRecord returns a frame of requests whose records f has changed.
func eachRecord(b []byte, f func(code wire.Code, record []byte)) []byte {
	if !isRequest(b) {
		return b
	}
	c := bytes.Clone(b)
	var r wire.Record
	for at := wire.HeaderLen; at < len(c); {
		n := wire.NextRecord(c[at:], &r)
		if n == 0 {
			return b // damaged on the way
		}
		f(r.Code, c[at:at+wire.RecordLen+len(r.Data)])
		at += n
	}
	return resignDamaged(c)
}

// TestTogetherSameSeedSameRun runs seeds twice, frame by frame.
func TestTogetherSameSeedSameRun(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		a, b := Run(Config{Seed: seed, Together: true}), Run(Config{Seed: seed, Together: true})
		if a.Hash != b.Hash || a.Frames != b.Frames || a.Elapsed != b.Elapsed {
			t.Errorf("seed %d: %+v and %+v", seed, a, b)
		}
	}
}
