package sim

import (
	"bytes"
	"iter"
	"slices"

	"github.com/xdprma/xdprma/internal/lab/program"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
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
	stopped     bool
	unborn      bool       // stopped because it has not begun: its device does not exist
	inbox       []received // frames that came while it was stopped
	reaped      []int32    // slots that came back meanwhile
	cfg         engine.Config
	e           *engine.Engine
	mem         [numWindows][]byte
	views       [numWindows]*windows.Window
	ring        []byte
	ringSync    *epochsOf
	notified    notified
	tickAt      int64
	tasks       []*task
	links       map[*life]*link
	model       targetModel
	answersLate bool // to calls that were given up may come answers
	scratch     onesided.Direct
	windows     *windows.Table

	generated [][]byte         // the windows of a generated program
	freed     map[int]bool     // those of them that have been freed
	records   []program.Record // what it saw
	receive   *engine.Receive  // what the receiver waits for, or nil
	quiet     bool             // it waits no more

	lockWaits int   // requests in the queues of the rank's locks
	lockMoved int64 // when their number last changed

	xdp     xdp
	passing []*passing // the last is there
	witness witness
	sends   map[bundleID]*sends
	numbers map[uint64]uint64 // of signed frames, by session: one more than the last
}

func (w *World) start(rank int, incarnation uint64) {
	l := &life{w: w, rank: rank, incarnation: incarnation, alive: true, tickAt: engine.Never, links: map[*life]*link{}, freed: map[int]bool{}, sends: map[bundleID]*sends{}, numbers: map[uint64]uint64{}}
	l.windows = &windows.Table{}
	l.newXDP()
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
		l.exposeNotified()
	}
	l.witness.mem = make([]byte, witnessLength)
	l.expose(witnessWindow, l.witness.mem, 1)
	l.makePassing()
	l.cfg = engine.Config{
		LinkConfig: engine.LinkConfig{
			Rank: rank, Size: w.plan.ranks, Job: simJob, Incarnation: incarnation, Rand: w.rng.Uint64,
			Slab:    engine.HeapSlab(w.slots(), 0, w.between(1232, 1500)),
			Express: l.xdp.tables(), RxFrames: w.between(8, 1024), Joins: w.plan.joined.most, JoinsFrom: w.between(1, 8000), JoinedRoom: int(w.span(0, 1<<20)),
			Parked: max(w.between(3, 64), 3*(w.plan.ranks-1)), DeadAfter: deadAfter,
		},
		Earlier: incarnation - 1, Windows: l.windows, MaxOps: 64 << w.rng.IntN(4), MaxUnexpected: w.between(2048, 1<<20),
	}
	l.cfg.Seek = l.seek
	l.join()
	if !w.cfg.unordered {
		l.cfg.OnConflict = func(c window.Conflict) { w.failf("the programs are in order, and yet: %v", c.Err()) }
	}
	l.e = engine.New(l.cfg)
	l.e.Now = l.w.now
	l.model.init()
	w.nodes[rank] = l
	w.lives = append(w.lives, l)
	w.tracef("rank %d starts life %d", rank, incarnation)
	switch {
	case w.cfg.Program != nil:
		l.spawn(0, false, (*task).generated)
	case w.cfg.Together:
		l.spawn(0, false, (*task).together)
	default:
		l.spawnWorkload()
	}
	if w.plan.witnesses {
		l.spawn(witnessTask, true, (*task).bearWitness)
		l.spawn(mailTask, true, (*task).readMail)
	}
	w.queue.push(w.now, func() { w.run(l) })
}

// seek finds the way to a rank, as its rendezvous would tell, at once or after a while.
func (l *life) seek(to int) {
	w := l.w
	w.queue.push(w.now+w.span(0, []int64{0, 100 * microsecond, 5 * millisecond}[w.rng.IntN(3)]), func() {
		if l.alive {
			l.dial(w.nodes[to])
			w.run(l)
		}
	})
}

func (l *life) expose(id uint32, mem []byte, unit int) *windows.Window {
	return l.exposeWindow(windows.Config{ID: id, Flavor: window.FlavorCreate, Memory: windows.Slice(mem), Size: len(mem), DispUnit: unit}, mem)
}

// exposeWindow adds a window, in checking mode unless others or programs reach its memory,
// which is nil if nobody can.
func (l *life) exposeWindow(c windows.Config, mem []byte) *windows.Window {
	c.GroupSize = l.w.plan.ranks
	if mem != nil {
		c.Host = l.sharing(c.ID)
	}
	l.show(&c, mem)
	if c.Host == nil {
		c.Checker = windows.NewChecker(c.ID, l.rank)
	}
	win, err := windows.New(c)
	if err == nil {
		err = l.windows.Add(win)
	}
	if err != nil {
		panic(err)
	}
	return win
}

// sharedWindow is the window whose memory the ranks of a host share, of generated
// programs too. So is that of notified operations.
const sharedWindow = numWindows

// sharing returns what a window has in common with the processes of the rank's
// host, nil if nothing. The windows of a second life are mapped by nobody.
func (l *life) sharing(id uint32) *windows.Host {
	if id != sharedWindow && (id != notifiedWindow || l.w.cfg.Program != nil) || l.w.plan.hosts == 0 || l.incarnation > 1 {
		return nil
	}
	h := &windows.Host{Lock: windows.LockWordIn(make([]byte, windows.LockWordLen)), Ranks: []int{l.rank}}
	for r := range l.w.plan.ranks {
		if r != l.rank && l.w.sameHost(r, l.rank) {
			h.Ranks = append(h.Ranks, r)
		}
	}
	return h
}

// maps reports whether a rank maps the memory of a window.
func (w *World) maps(rank int, there *windows.Window) bool {
	h := there.Host()
	return h != nil && w.plan.hosts > 0 && h.IndexOf(rank) >= 0
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
	if !l.alive {
		return
	}
	w.tracef("rank %d crashes", l.rank)
	w.hit(w.death(l.rank))
	l.alive, l.diedAt = false, w.now
	l.stopTasks()
}

// death returns the kind of fault that kills a rank.
func (w *World) death(rank int) faultKind {
	for _, k := range []faultKind{restart, absent} {
		if w.during(k, rank) != nil {
			return k
		}
	}
	return crash
}

// stop has a rank do nothing. Its device goes on to receive, unless the rank has not
// begun.
func (w *World) stop(l *life, unborn bool) {
	w.tracef("rank %d stops", l.rank)
	if w.hit(stop); unborn {
		w.hit(late)
	}
	l.stopped, l.unborn = true, unborn
}

// resume has a rank go on. It finds everything at once that has come meanwhile.
func (w *World) resume(l *life) {
	w.tracef("rank %d goes on, with %d frames", l.rank, len(l.inbox))
	if !l.alive {
		return
	}
	l.stopped, l.unborn = false, false
	reaped, inbox := l.reaped, l.inbox
	l.reaped, l.inbox = nil, nil
	l.e.Reaped(reaped)
	l.quiesced()
	if w.chance(0.5) {
		w.run(l) // it looks at the time first
	}
	for _, r := range inbox {
		w.receive(l, r)
	}
	w.run(l)
}

// run lets a rank act until it waits for the network or the time.
func (w *World) run(l *life) {
	if l.stopped {
		return
	}
	if l.alive && w.chance(0.3) {
		l.runTasks() // calls come at any time, also between a frame and what is made of it
	}
	for range 10_000 {
		if !l.alive {
			return
		}
		l.e.Tick()
		w.checkNotified(l)
		if n := l.e.Usage().LockWaits; n != l.lockWaits {
			l.lockWaits, l.lockMoved = n, w.now
		}
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
	for out := l.e.Output(); len(out) > 0; {
		n := 1
		for out[n-1].More {
			n++
		}
		message := slices.Clone(out[:n])
		out = out[n:]
		for _, o := range message {
			w.countSend(l, l.cfg.Slab.Payload(o.Slot)[:o.Len])
			l.checkNumber(l.cfg.Slab.Payload(o.Slot)[:o.Len])
		}
		delay := w.span(0, 10*microsecond)
		if w.chance(w.plan.slowDevice) {
			delay = w.span(0, 20*millisecond)
		}
		keep := delay
		if f := w.during(silentDevice, l.rank); f != nil {
			w.hit(silentDevice)
			delay += f.to - w.now
			keep = delay
		}
		if f := w.during(keptSlots, l.rank); f != nil {
			w.hit(keptSlots)
			keep += f.to - w.now
		}
		leave := func() { w.leave(l, message) }
		if keep > delay {
			w.queue.push(w.now+delay, leave)
			leave = func() {}
		}
		w.queue.push(w.now+keep, func() {
			if !l.alive {
				return
			}
			leave()
			for _, o := range message {
				w.reap(l, o.Slot)
			}
		})
	}
	l.e.Took(len(l.e.Output()))
	w.announced(l)
}

// leave sends the frames of a message, whose bytes are read now.
func (w *World) leave(l *life, message []engine.Out) {
	var frames [][]byte
	for _, o := range message {
		frames = append(frames, bytes.Clone(l.cfg.Slab.Payload(o.Slot)[:o.Len]))
	}
	if message[0].Way == engine.Joined {
		w.sendJoined(l.rank, int(message[0].Path), frames)
		return
	}
	w.send(l.rank, int(message[0].Path), frames[0])
}

// reap gives a slot back to a rank's engine.
func (w *World) reap(l *life, slot int32) {
	if l.stopped {
		l.reaped = append(l.reaped, slot)
		return
	}
	l.e.Reaped([]int32{slot})
	w.run(l)
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

// patience stands for a context: it ends at a time.
type patience struct{ until int64 }

// endless is a patience that never ends.
var endless = patience{forGood}

// patience returns how long a call of the task goes on before it is given up: endlessly,
// unless the plan has calls given up.
func (t *task) patience() patience {
	if f := t.w.during(giveUp, t.l.rank); f == nil || t.w.chance(0.5) {
		return endless
	}
	return patience{t.w.now + t.w.span(0, []int64{100 * microsecond, 5 * millisecond, second}[t.w.rng.IntN(3)])}
}

// awaitAt is awaitWith for what was issued on an access, and so for its lock.
func (t *task) awaitAt(a interface{ Waiting(calls int32) }, p patience, ready func() bool) bool {
	a.Waiting(1)
	defer a.Waiting(-1)
	return t.awaitWith(p, ready)
}

// awaitWith is await that p may end first: then it reports false.
func (t *task) awaitWith(p patience, ready func() bool) bool {
	if p == endless {
		t.await(ready)
		return true
	}
	t.w.queue.push(p.until, func() { t.w.run(t.l) })
	t.await(func() bool { return ready() || t.w.now >= p.until })
	if ready() {
		return true
	}
	t.w.hit(giveUp)
	return false
}
