package sim

import (
	"bytes"
	"iter"

	"github.com/xdprma/xdprma/internal/engine"
	"github.com/xdprma/xdprma/internal/program"
	"github.com/xdprma/xdprma/window"
)

const (
	numWindows = 2
	simJob     = 0x51
)

// life is one rank from its start to its end or crash.
type life struct {
	w           *World
	rank        int
	incarnation uint64
	alive       bool
	diedAt      int64
	cfg         engine.Config
	e           *engine.Engine
	mem         [numWindows][]byte
	views       [numWindows]*window.Window
	ring        []byte
	ringSelf    *engine.Access
	tickAt      int64
	tasks       []*task
	links       map[*life]*link
	model       targetModel
	windows     *window.Table

	generated [][]byte         // the windows of a generated program
	records   []program.Record // what it saw
	receive   *engine.Receive  // what the receiver waits for, or nil
	quiet     bool             // it waits no more
}

func (w *World) start(rank int, incarnation uint64) {
	l := &life{w: w, rank: rank, incarnation: incarnation, alive: true, tickAt: engine.Never, links: map[*life]*link{}}
	l.windows = &window.Table{}
	if p := w.cfg.Program; p != nil {
		l.exposeProgram(p)
	} else {
		size := windowSize(w.plan.ranks, w.plan.tasks)
		for i := range numWindows {
			l.mem[i] = make([]byte, size)
			l.views[i] = l.expose(uint32(i+1), l.mem[i], 1)
		}
		l.ring = make([]byte, ringLength)
		l.expose(ringWindow, l.ring, 1)
	}
	l.cfg = engine.Config{
		Rank: rank, Size: w.plan.ranks, Job: simJob, Incarnation: incarnation, Rand: w.rng.Uint64, Windows: l.windows,
		Slab:     engine.HeapSlab(w.slots(), 0, w.between(1232, 1500)),
		RxFrames: w.between(8, 1024), Parked: w.between(3, 64), MaxOps: 64 << w.rng.IntN(4), MaxUnexpected: w.between(2048, 1<<20), DeadAfter: deadAfter,
	}
	l.cfg.OnConflict = func(c window.Conflict) { w.failf("the programs are in order, and yet: %v", c.Err()) }
	l.e = engine.New(l.cfg)
	l.model.init()
	w.nodes[rank] = l
	w.lives = append(w.lives, l)
	w.tracef("rank %d starts life %d", rank, incarnation)
	if w.cfg.Program != nil {
		l.spawn(0, false, (*task).generated)
	} else {
		l.spawnPrograms()
	}
	w.queue.push(w.now, func() { w.run(l) })
}

func (l *life) expose(id uint32, mem []byte, unit int) *window.Window {
	return l.exposeWindow(window.Config{ID: id, Flavor: window.FlavorCreate, Memory: window.Slice(mem), Size: len(mem), DispUnit: unit})
}

// exposeWindow adds a window, in checking mode unless others map its memory.
func (l *life) exposeWindow(c window.Config) *window.Window {
	c.GroupSize = l.w.plan.ranks
	if c.Flavor != window.FlavorDynamic {
		c.Host = l.sharing(c.ID)
	}
	if c.Host == nil {
		c.Checker = window.NewChecker(c.ID, l.rank)
	}
	win, err := window.New(c)
	if err == nil {
		err = l.windows.Add(win)
	}
	if err != nil {
		panic(err)
	}
	return win
}

// sharedWindow is the window whose memory the ranks of a host share, of generated
// programs too.
const sharedWindow = numWindows

// sharing returns what a window has in common with the processes of the rank's
// host, nil if nothing. The windows of a second life are mapped by nobody.
func (l *life) sharing(id uint32) *window.Host {
	if id != sharedWindow || l.w.plan.hosts == 0 || l.incarnation > 1 {
		return nil
	}
	h := &window.Host{Lock: window.LockWordIn(make([]byte, window.LockWordLen)), Ranks: []int{l.rank}}
	for r := range l.w.plan.ranks {
		if r != l.rank && l.w.sameHost(r, l.rank) {
			h.Ranks = append(h.Ranks, r)
		}
	}
	return h
}

func (w *World) sameHost(a, b int) bool { return w.plan.hosts > 0 && a%w.plan.hosts == b%w.plan.hosts }

// slots is often as few as an engine can do with.
func (w *World) slots() int {
	if w.chance(0.5) {
		return 32
	}
	return w.between(32, 128)
}

func (w *World) crash(l *life) {
	w.tracef("rank %d crashes", l.rank)
	l.alive, l.diedAt = false, w.now
	l.stopTasks()
}

// run lets a rank act until it waits for the network or the time.
func (w *World) run(l *life) {
	if l.alive && w.chance(0.3) {
		l.runTasks() // calls come at any time, also between a frame and what is made of it
	}
	for range 10_000 {
		if !l.alive {
			return
		}
		l.e.Tick(w.now)
		w.transmit(l)
		if !l.runTasks() && l.e.Deadline() > w.now && len(l.e.Output()) == 0 {
			if d := l.e.Deadline(); d < l.tickAt {
				l.tickAt = d
				w.queue.push(d, func() {
					if d == l.tickAt {
						l.tickAt = engine.Never
					}
					w.run(l)
				})
			}
			return
		}
	}
	w.failf("rank %d is busy without end", l.rank)
}

// transmit hands the engine's output to a device that takes a while: a frame's
// bytes are read when it leaves, so a slot that is written too early shows.
func (w *World) transmit(l *life) {
	for _, o := range l.e.Output() {
		delay := w.span(0, 10*microsecond)
		if w.chance(w.plan.slowDevice) {
			delay = w.span(0, 20*millisecond)
		}
		w.queue.push(w.now+delay, func() {
			if !l.alive {
				return
			}
			w.send(l.rank, int(o.Path), bytes.Clone(l.cfg.Slab.Payload(o.Slot)[:o.Len]))
			l.e.Reaped([]int32{o.Slot})
			w.run(l)
		})
	}
	l.e.Took(len(l.e.Output()))
	l.e.Announcements()
}

// task is a program on a rank: straight code that gives up control where it
// waits. Exactly one runs at a time.
type task struct {
	l      *life
	w      *World
	index  int
	daemon bool // runs as long as the rank
	done   bool
	doing  string
	ready  func() bool
	yield  func(struct{}) bool
	resume func() (struct{}, bool)
	stop   func()
}

// stopped unwinds the task of a rank that has crashed.
type stopped struct{}

func (l *life) spawn(index int, daemon bool, body func(*task)) {
	t := &task{l: l, w: l.w, index: index, daemon: daemon, ready: func() bool { return true }}
	t.resume, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if r := recover(); r != nil && r != (stopped{}) {
				panic(r)
			}
		}()
		t.yield = yield
		body(t)
	})
	l.tasks = append(l.tasks, t)
}

func (l *life) runTasks() (ran bool) {
	for _, t := range l.tasks {
		if !t.done && t.ready() {
			ran = true
			if _, more := t.resume(); !more {
				t.done = true
			}
		}
	}
	return ran
}

func (l *life) stopTasks() {
	for _, t := range l.tasks {
		t.done = true
		t.stop()
	}
}

// await gives up control until ready.
func (t *task) await(ready func() bool) {
	if ready() {
		return
	}
	t.ready = ready
	if !t.yield(struct{}{}) {
		panic(stopped{})
	}
}

func (t *task) sleep(d int64) {
	at := t.w.now + d
	t.w.queue.push(at, func() { t.w.run(t.l) })
	t.await(func() bool { return t.w.now >= at })
}
