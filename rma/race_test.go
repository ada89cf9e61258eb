//go:build race

package rma_test

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/rma"
)

const envRace = "RMA_TEST_RACE"

// races are programs without order, and whether the race detector reports them.
var races = []struct {
	name     string
	reported bool
	run      func(j *job)
}{
	{"load of created memory", true, func(j *job) {
		wins, mem := j.created(1)
		putOne(j, wins[0])
		_ = mem[1][0] // nothing of rank 1 has come between
	}},
	{"store to created memory", true, func(j *job) {
		wins, mem := j.created(1)
		putOne(j, wins[0])
		mem[1][0] = 2
	}},
	{"load of allocated memory", false, func(j *job) {
		wins := j.windows(8, 8)
		mem := rma.Slice[int64](wins[1].Memory())
		putOne(j, wins[0])
		_ = mem[0]
		mem[0] = 2
	}},
	{"result that is not complete", true, func(j *job) {
		wins, mem := j.created(1)
		mem[1][0] = 1
		result := int64(0)
		j.must(wins[1].Sync(), wins[0].LockAll(j.ctx, 0), wins[0].Get(buffer.Value(&result), 1, rma.At(0)))
		for result == 0 && j.ctx.Err() == nil {
			runtime.Gosched()
		}
	}},
	{"neighbour in a word", true, func(j *job) {
		wins, mem := j.created(1)
		bytes, one := rma.Slice[int8](rma.BytesOf(mem[1])), int8(1)
		j.must(wins[0].LockAll(j.ctx, 0), wins[0].Accumulate(buffer.Value(&one), 1, rma.At(0), rma.Sum), wins[0].UnlockAll(j.ctx))
		bytes[1] = 2
	}},
	{"own put beside another rank's", true, func(j *job) {
		wins, _ := j.created(100)
		data := make([]int64, 100)
		put := func(w *rma.Win) error { return w.Put(buffer.Of(data), 1, rma.At(0)) }
		j.must(wins[0].LockAll(j.ctx, 0), wins[1].LockAll(j.ctx, 0), put(wins[1]), wins[1].Flush(j.ctx, 1))
		j.must(put(wins[1]), put(wins[0]), wins[0].Flush(j.ctx, 1)) // rank 1 has made no call between
	}},
	{"conflicting puts", false, func(j *job) {
		wins, _ := j.created(100)
		j.each(func(n *rma.Node) error {
			w, err := wins[n.Rank()], wins[n.Rank()].LockAll(j.ctx, 0)
			for range 100 {
				if n.Rank() != 1 {
					err = errors.Join(err, w.Put(buffer.Of(make([]int64, 100)), 1, rma.At(0)))
				}
			}
			return errors.Join(err, w.UnlockAll(j.ctx))
		})
	}},
}

// putOne puts into rank 1's window and completes it.
func putOne(j *job, w *rma.Win) {
	one := int64(1)
	j.must(w.LockAll(j.ctx, 0), w.Put(buffer.Value(&one), 1, rma.At(0)), w.UnlockAll(j.ctx))
}

// TestRaceDetector runs each of the programs in a process of its own, which the
// race detector ends at its first report.
func TestRaceDetector(t *testing.T) {
	for _, r := range races {
		if os.Getenv(envRace) == r.name {
			j := newJob(t, 3, rma.Limits{})
			r.run(j)
			for r.reported && j.ctx.Err() == nil { // some runs have an order by chance
				r.run(j)
			}
			return
		}
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range races {
		cmd := exec.Command(exe, "-test.run=^TestRaceDetector$")
		cmd.Env = append(os.Environ(), envRace+"="+r.name, "GORACE=halt_on_error=1 exitcode=66 atexit_sleep_ms=0")
		out, err := cmd.CombinedOutput()
		reported := cmd.ProcessState.ExitCode() == 66 && strings.Contains(string(out), "WARNING: DATA RACE")
		if reported != r.reported || err != nil && !reported {
			t.Errorf("%s: reported %v, want %v (%v)\n%s", r.name, reported, r.reported, err, out)
		}
	}
}
