package perf

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// load is what a target's process does while it is measured, beside the library.
type load struct {
	name  string
	about string // for people
	stops bool   // the process does not run at all for a while
	paced bool   // it is measured with a pause between operations only
	work  func(*loaded) error
}

// loads lists all loads.
func loads() (all []load) {
	for _, busy := range slices.Compact([]int{0, 1, runtime.NumCPU()}) {
		all = append(all, load{name: fmt.Sprintf("%d-busy", busy), work: computing(busy),
			about: fmt.Sprintf("goroutines that compute at the target: %d", busy)})
	}
	return append(all,
		load{name: "gc", about: "the target collects garbage all the time", paced: true, work: collecting},
		load{name: "stopped", about: fmt.Sprintf("the target is stopped for %v, and only what was under way then counts", stopTime),
			paced: true, stops: true, work: stopping})
}

// findLoad returns the load of that name.
func findLoad(name string) (load, error) {
	all := loads()
	i := slices.IndexFunc(all, func(l load) bool { return l.name == name })
	if i < 0 {
		return load{}, fmt.Errorf("there is no load %q of a target", name)
	}
	return all[i], nil
}

// loaded is this process under a load.
type loaded struct {
	begun   chan struct{} // closed when the measurement begins
	over    atomic.Bool
	worked  chan error
	stop    time.Duration // for how long the process is stopped, if it is
	stopped func(from, to int64)
}

// start puts a load on this process. If the load stops the process, it does so for the
// time stop, once the measurement has begun, and before that it calls stopped with the
// bounds of that time on the machine's clock.
func (l *load) start(stop time.Duration, stopped func(from, to int64)) *loaded {
	p := &loaded{begun: make(chan struct{}), worked: make(chan error, 1), stop: stop, stopped: stopped}
	go func() { p.worked <- l.work(p) }()
	return p
}

// begin says that the measurement begins. It is called once.
func (p *loaded) begin() { close(p.begun) }

// finish takes the load off, after begin.
func (p *loaded) finish() error {
	p.over.Store(true)
	return <-p.worked
}

// computing is the load of so many goroutines that compute.
func computing(busy int) func(*loaded) error {
	return func(p *loaded) error {
		var workers sync.WaitGroup
		for range busy {
			workers.Go(func() {
				for x := uint64(1); !p.over.Load(); {
					for range 1000 {
						x = x*6364136223846793005 + 1442695040888963407
					}
					spent.Store(x)
				}
			})
		}
		workers.Wait()
		return nil
	}
}

// spent keeps the compiler from leaving the computing out.
var spent atomic.Uint64

func collecting(p *loaded) error {
	for !p.over.Load() {
		runtime.GC()
	}
	return nil
}

func stopping(p *loaded) error {
	<-p.begun
	return stopSelf(p.stop, p.stopped)
}
