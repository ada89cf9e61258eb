package poller

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xdprma/xdprma/internal/device"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/stats"
)

// stage is a device without a network. Tests stop it at the calls that they set,
// and it notes every call that the contract of Device does not allow.
type stage struct {
	t       *testing.T
	facts   device.Facts
	full    error // AllowSession's, where not nil
	lose    context.CancelCauseFunc
	woken   chan struct{}
	inCalls atomic.Int32
	closed  atomic.Bool

	opening, enqueueing, transmitting, resolving, receiving, sleeping, waking, closing func() // called by the methods, where not nil

	mu      sync.Mutex
	arrived [][]byte        // for Receive
	flood   bool            // so that there is always something
	known   map[uint64]bool // sessions that are allowed
	done    []int32
}

func newStage(t *testing.T) *stage {
	d := &stage{t: t, woken: make(chan struct{}, 1), known: map[uint64]bool{}}
	d.facts = device.Facts{Slab: engine.HeapSlab(32, 0, wire.MinPayload), Mode: device.NewMode("stage"), Filter: d}
	d.facts.Alive, d.lose = context.WithCancelCause(context.Background())
	return d
}

// enter notes the begin of a call and returns what notes its end.
func (d *stage) enter(name string) func() {
	d.inCalls.Add(1)
	if d.closed.Load() {
		d.t.Errorf("%s of a device that was closed", name)
	}
	return func() { d.inCalls.Add(-1) }
}

func at(f func()) {
	if f != nil {
		f()
	}
}

func (d *stage) Receive(frames []device.Frame) int {
	defer d.enter("Receive")()
	at(d.receiving)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.flood && len(d.arrived) == 0 {
		d.arrived = append(d.arrived, []byte("no frame"))
	}
	n := min(len(frames), len(d.arrived))
	for i := range frames[:n] {
		frames[i] = device.Frame{Payload: d.arrived[i], Path: device.NoPath}
	}
	d.arrived = d.arrived[n:]
	return n
}

func (d *stage) Release() { d.enter("Release")() }

func (d *stage) Enqueue(outs []device.Out) int {
	defer d.enter("Enqueue")()
	at(d.enqueueing)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range outs {
		var h wire.Header
		var hello wire.Hello
		b := d.facts.Slab.Payload(o.Slot)[:o.Len]
		if h.Decode(b) == wire.OK && h.Kind == wire.KindHello && hello.Decode(b[wire.HeaderLen:]) && !d.known[hello.Session] && !d.refuses() {
			d.t.Errorf("a hello tells rank %d of a session that the device does not know", hello.Target)
		}
		d.done = append(d.done, o.Slot)
	}
	return len(outs)
}

func (d *stage) Reap(slots []int32) int {
	defer d.enter("Reap")()
	d.mu.Lock()
	defer d.mu.Unlock()
	n := copy(slots, d.done)
	d.done = d.done[n:]
	return n
}

func (d *stage) Transmit() {
	defer d.enter("Transmit")()
	at(d.transmitting)
}

func (d *stage) Sleep(limit time.Duration) {
	defer d.enter("Sleep")()
	at(d.sleeping)
	select {
	case <-d.woken:
	case <-time.After(limit):
	}
}

func (d *stage) Wake() {
	defer d.enter("Wake")()
	at(d.waking)
	select {
	case d.woken <- struct{}{}:
	default:
	}
}

func (d *stage) AllowSession(id uint64, _ int) error {
	defer d.enter("AllowSession")()
	at(d.opening)
	if d.full != nil {
		return d.full
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known[id] = true
	return nil
}

// refuses reports whether a session that the engine has begun may be unknown to the device.
func (d *stage) refuses() bool { return d.full != nil || d.facts.Alive.Err() != nil }

func (d *stage) ForgetSession(id uint64) {
	defer d.enter("ForgetSession")()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.known[id] && !d.refuses() {
		d.t.Errorf("session %d is forgotten, which the device does not know", id)
	}
	delete(d.known, id)
}

// forgotten checks that the device knows no session but those that p has.
func (d *stage) forgotten(p *Poller) {
	d.t.Helper()
	e := p.Lock()
	defer p.UnlockQuiet()
	d.mu.Lock()
	defer d.mu.Unlock()
	has := map[uint64]bool{}
	for rank := range stageRanks {
		if s := e.Session(rank); s != nil {
			has[s.ID()] = true
		}
	}
	for id := range d.known {
		if !has[id] {
			d.t.Errorf("the device is not told to forget session %d, which is over", id)
		}
	}
}

func (d *stage) Path(context.Context, netip.AddrPort) (device.PathID, error) {
	defer d.enter("Path")()
	at(d.resolving)
	return 0, nil
}

func (d *stage) Facts() *device.Facts              { return &d.facts }
func (d *stage) Peer(device.PathID) netip.AddrPort { return netip.AddrPort{} }

func (d *stage) Stats(s *stats.Device) {
	defer d.enter("Stats")()
	s.RxFrames += 7
}

func (d *stage) Close() error {
	at(d.closing)
	d.closed.Store(true)
	if d.inCalls.Load() > 0 {
		d.t.Error("the device was closed during a call")
	}
	return nil
}

// stageRanks is how many ranks the job of a staged Poller has.
const stageRanks = 8

func newStaged(t *testing.T, d *stage, c Config) *Poller {
	id := uint64(0)
	p := New(d, engine.New(engine.Config{
		LinkConfig: engine.LinkConfig{Size: stageRanks, Job: 1, Incarnation: 1, Slab: d.facts.Slab, Rand: func() uint64 { id++; return id }},
		Windows:    &windows.Table{},
	}), c)
	t.Cleanup(func() {
		d.forgotten(p)
		_ = p.Close()
	})
	return p
}

// dial starts a session with the first life of a rank, as comm does.
func dial(p *Poller, rank int) { dialLife(p, rank, 1) }

func dialLife(p *Poller, rank int, life uint64) {
	e := p.Lock()
	e.Dial(rank, 0, life)
	p.Tick()
	p.Unlock()
}

// is reports whether the seat's state says what.
func (p *Poller) is(what string) bool { return strings.Contains(p.state().String(), what) }

type flag struct{ atomic.Bool }

func (f *flag) Met() bool { return f.Load() }

// The device stays open while it is told of a session, which happens with the
// engine unlocked.
func TestCloseDuringAnnouncement(t *testing.T) {
	d := newStage(t)
	in, out := make(chan bool), make(chan bool)
	d.opening = func() { in <- true; <-out }
	p := newStaged(t, d, Config{})
	dialed := testenv.Start(func() error { dial(p, 1); return nil })
	<-in
	closed := testenv.Start(p.Close)
	<-p.done
	time.Sleep(time.Millisecond) // lets Close go wrong
	close(out)
	_ = testenv.Ends(t, "dial", dialed)
	if err := testenv.Ends(t, "Close", closed); err != nil {
		t.Error(err)
	}
}

// The device forgets a session once one with another life of the rank takes its place.
func TestReplacedSessionIsForgotten(t *testing.T) {
	d := newStage(t)
	p := newStaged(t, d, Config{})
	dial(p, 2)
	for life := uint64(1); life <= 3; life++ {
		dialLife(p, 1, life)
		d.forgotten(p)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.known) != 2 {
		t.Errorf("the device knows %d sessions with two ranks", len(d.known))
	}
}

// A session that the device cannot take fails at once, and says why.
func TestSessionRefusedByDevice(t *testing.T) {
	d := newStage(t)
	d.full = errors.New("the map of sessions is full")
	p := newStaged(t, d, Config{})
	dial(p, 1)
	e := p.Lock()
	err := e.Session(1).Err()
	p.Unlock()
	if !errors.Is(err, d.full) || !errors.Is(err, mpierr.ProcFailed) {
		t.Errorf("the session ended with %v", err)
	}
}

// When Close returns to a second caller that came while the first was closing, the
// device is closed.
func TestCloseWaitsForAnotherClose(t *testing.T) {
	d := newStage(t)
	in, out := make(chan bool), make(chan bool)
	d.closing = func() { in <- true; <-out }
	p := newStaged(t, d, Config{})
	first := testenv.Start(p.Close)
	<-in
	second := testenv.Start(func() error {
		err := p.Close()
		if !d.closed.Load() {
			t.Error("Close returned before the device was closed")
		}
		return err
	})
	time.Sleep(time.Millisecond) // lets the second go wrong
	close(out)
	if err := errors.Join(testenv.Ends(t, "Close", first), testenv.Ends(t, "another Close", second)); err != nil {
		t.Error(err)
	}
}

// A caller that takes its turn at the device while Close is at its end is not
// locked out.
func TestCloseDuringTurn(t *testing.T) {
	d := newStage(t)
	in, out := make(chan bool, 1), make(chan bool)
	var p *Poller
	var armed atomic.Bool
	var once sync.Once
	d.enqueueing = func() { once.Do(func() { in <- true; <-out }) }
	d.transmitting = func() {
		for range 100 { // until Close has the lock
			if !armed.Load() || !p.mu.TryLock() {
				return
			}
			p.mu.Unlock()
			time.Sleep(10 * time.Microsecond)
		}
	}
	p = newStaged(t, d, Config{})
	e := p.Lock()
	e.Dial(1, 0, 1)
	e.Tick()
	p.calls = callsATurn - 1
	armed.Store(true)
	called := testenv.Start(func() error { p.Unlock(); return nil })
	<-in
	closed := testenv.Start(p.Close)
	<-p.done // it has nothing to do, so it does not ask for the lock
	d.mu.Lock()
	d.arrived = [][]byte{make([]byte, wire.HeaderLen)}
	d.mu.Unlock()
	close(out)
	_ = testenv.Ends(t, "Unlock", called)
	_ = testenv.Ends(t, "Close", closed)
}

// Sessions that begin while the device is told of another one are announced
// before a frame speaks of them.
func TestAnnouncementsComeFirst(t *testing.T) {
	d := newStage(t)
	in, out := make(chan bool), make(chan bool)
	var once sync.Once
	d.opening = func() { once.Do(func() { in <- true; <-out }) }
	p := newStaged(t, d, Config{})
	dialed := testenv.Start(func() error { dial(p, 1); return nil })
	<-in
	dial(p, 2)
	close(out)
	_ = testenv.Ends(t, "dial", dialed)
	testenv.Await(t, "both sessions announced", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.known) == 2
	})
}

// A parked caller that is offered the seat just when it gives up leaves it to the
// next one.
func TestSeatIsPassedOn(t *testing.T) {
	p := newStaged(t, newStage(t), Config{Spin: 10 * time.Millisecond, Wake: 5 * time.Millisecond})
	for range 50 {
		var never, last flag
		driving, stop := context.WithCancel(context.Background())
		impatient, giveUp := context.WithCancel(context.Background())
		driver := testenv.Start(func() error { return p.Wait(driving, &never) })
		testenv.Await(t, "a caller drives", func() bool { return p.is("a caller drives") })
		patient := testenv.Start(func() error { return p.Wait(context.Background(), &last) })
		testenv.Await(t, "a caller is parked", func() bool { return p.is(" 1 parked") })
		quitter := testenv.Start(func() error { return p.Wait(impatient, &never) })
		testenv.Await(t, "two callers are parked", func() bool { return p.is(" 2 parked") })
		time.Sleep(50 * time.Microsecond) // lets them come to rest
		p.mu.Lock()
		stop()
		for begin := time.Now(); p.is("a caller drives") && time.Since(begin) < 20*time.Millisecond; {
		}
		giveUp()
		p.mu.Unlock()
		if err := testenv.Ends(t, "the driver", driver); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if err := testenv.Ends(t, "the caller that gives up", quitter); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		last.Store(true)
		if err := testenv.Ends(t, "the caller that stays", patient); err != nil {
			t.Fatal(err)
		}
	}
}

// Calls without pause keep the background goroutine away, so they serve peers
// themselves, whatever calls they are.
func TestCallsWithoutPauseServePeers(t *testing.T) {
	var always flag
	always.Store(true)
	for name, call := range map[string]func(p *Poller){
		"quiet": func(p *Poller) { p.Lock(); p.UnlockQuiet() },
		"met":   func(p *Poller) { _ = p.Wait(context.Background(), &always) },
		"sends": func(p *Poller) { p.Lock(); p.Unlock() },
	} {
		t.Run(name, func(t *testing.T) {
			d := newStage(t)
			p := newStaged(t, d, Config{})
			for range 100 {
				call(p)
			}
			for range 20 {
				d.mu.Lock()
				d.arrived = [][]byte{make([]byte, wire.HeaderLen)}
				d.mu.Unlock()
				calls := 0
				for waiting := true; waiting; calls++ {
					if calls == 1e5 {
						t.Fatalf("a frame is not taken in %d calls", calls)
					}
					call(p)
					d.mu.Lock()
					waiting = len(d.arrived) > 0
					d.mu.Unlock()
				}
			}
		})
	}
}

func TestWaitEndsWithClose(t *testing.T) {
	p := newStaged(t, newStage(t), Config{})
	var never flag
	var waiters []<-chan error
	for range 4 {
		waiters = append(waiters, testenv.Start(func() error { return p.Wait(context.Background(), &never) }))
	}
	testenv.Await(t, "all wait", func() bool { return p.state().Inside() == 4 })
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	for _, w := range waiters {
		if err := testenv.Ends(t, "a waiter", w); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}
	if err := p.Wait(context.Background(), &never); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// A wait ends with its context, and with Close, though frames come without a pause.
func TestWaitEndsInFlood(t *testing.T) {
	d := newStage(t)
	d.flood = true
	p := newStaged(t, d, Config{})
	var never flag
	ctx, cancel := context.WithCancel(context.Background())
	first := testenv.Start(func() error { return p.Wait(ctx, &never) })
	testenv.Await(t, "it drives", func() bool { return p.is("a caller drives") })
	cancel()
	if err := testenv.Ends(t, "a wait whose context has ended", first); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	second := testenv.Start(func() error { return p.Wait(context.Background(), &never) })
	testenv.Await(t, "it drives", func() bool { return p.is("a caller drives") })
	closing := testenv.Start(p.Close)
	if err := testenv.Ends(t, "a wait at Close", second); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if err := testenv.Ends(t, "Close", closing); err != nil {
		t.Error(err)
	}
}

// The device stays open while it resolves an address, and nothing uses it later.
func TestPathAndStatsAroundClose(t *testing.T) {
	d := newStage(t)
	in, out := make(chan bool), make(chan bool)
	d.resolving = func() { in <- true; <-out }
	p := newStaged(t, d, Config{})
	resolved := testenv.Start(func() error { _, err := p.Path(t.Context(), netip.AddrPort{}); return err })
	<-in
	closed := testenv.Start(p.Close)
	<-p.done
	time.Sleep(time.Millisecond) // lets Close go wrong
	close(out)
	if err := errors.Join(testenv.Ends(t, "Path", resolved), testenv.Ends(t, "Close", closed)); err != nil {
		t.Error(err)
	}
	if _, err := p.Path(t.Context(), netip.AddrPort{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Path after Close: %v", err)
	}
	if s := p.Stats(); s.RxFrames != 7 {
		t.Errorf("after Close, %d frames are left of 7", s.RxFrames)
	}
}

// A caller that sleeps on the device is woken with the engine free, because that
// is a system call.
func TestWakeHoldsNoLock(t *testing.T) {
	d := newStage(t)
	var p *Poller
	var mine flag
	d.waking = func() {
		for end := time.Now().Add(testenv.Limit); time.Now().Before(end); time.Sleep(10 * time.Microsecond) {
			if !mine.Load() {
				return
			}
			if p.mu.TryLock() {
				p.mu.Unlock()
				return
			}
		}
		t.Error("Wake with the engine locked")
	}
	p = newStaged(t, d, Config{MaxSleep: testenv.Limit})
	waiter := testenv.Start(func() error { return p.Wait(context.Background(), &mine) })
	testenv.Await(t, "the caller sleeps", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.waiters != nil && p.waiters.asleep
	})
	p.Lock()
	mine.Store(true)
	p.Unlock()
	if err := testenv.Ends(t, "the caller", waiter); err != nil {
		t.Error(err)
	}
}

// TestTickTakesBackBeforeADeadline has a caller find a deadline passed before anybody else does, as one
// that calls without pause always does: what is due again is no longer with the device.
func TestTickTakesBackBeforeADeadline(t *testing.T) {
	d := newStage(t)
	p := newStaged(t, d, Config{})
	dial(p, 1)
	e := p.Lock()
	defer p.Unlock()
	for p.Now() <= e.Deadline() {
	}
	e.Now = p.Now()
	p.Tick()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.done) > 0 {
		t.Errorf("the slots %v were not taken back", d.done)
	}
}
