package vmtests

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// pulse is how a rank fares: how long its calls take, and what memory it has.
type pulse struct{ took []time.Duration }

// beat carries out a call and notes how long it took. Without a pulse it takes no note.
func (p *pulse) beat(call func() error) error {
	began := time.Now()
	err := call()
	if p != nil {
		p.took = append(p.took, time.Since(began))
	}
	return err
}

// tell prints the counters of a rank, with its pulse since the last time.
func (p *pulse) tell(s *self) {
	text, _ := json.Marshal(p.counters(s))
	fmt.Println("now", string(text))
}

// counters returns the counters of a rank, with its pulse since the last time.
func (p *pulse) counters(s *self) counters {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	c := counters{Mode: s.node.Mode(), Stats: s.node.Stats(), Heap: m.HeapAlloc, Taken: m.HeapSys}
	if slices.Sort(p.took); len(p.took) > 0 {
		c.Calls, c.P50, c.P99 = len(p.took), p.took[len(p.took)/2], p.took[len(p.took)*99/100]
	}
	p.took = p.took[:0]
	return c
}

// now returns what all ranks have counted after two more rounds.
func (j *job) now() (all []counters) {
	j.t.Helper()
	for _, r := range j.ranks {
		r.tell("count")
	}
	for _, r := range j.ranks {
		var c counters
		must(j.t, json.Unmarshal([]byte(j.await(r, "now ")), &c))
		all = append(all, c)
	}
	return all
}

// checkMemory compares the memory of ranks with what it was.
func (j *job) checkMemory(before []counters) {
	j.t.Helper()
	for n, c := range j.now() {
		if was := before[n]; c.Taken > was.Taken+mostGrown {
			j.t.Errorf("the heap of rank %d takes %d bytes, and before anything happened %d", n, c.Taken, was.Taken)
		}
	}
}
