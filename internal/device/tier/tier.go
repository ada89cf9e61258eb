// Package tier lends memory to an XDP program that executes small requests itself, and takes
// it back.
package tier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/openfiles"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/stats"
)

// Tier is what a device offers whose XDP program executes small requests itself: the
// tables that the program and the engine share, and memory of windows that the program
// reaches.
//
// The program learns of memory, and forgets it, in the background: the kernel takes
// milliseconds for it. Until then the engine executes the requests that the program will.
// Places and memory of freed windows come back in the background, too: who lacks some waits for
// them. The methods may be called from any goroutine, also after the device was closed: then
// there is no more memory to be had.
type Tier struct {
	log    *slog.Logger
	kernel *loader.Tier
	graces func() error // Quiesce of kernel, but for tests
	tables *express.Tables
	gate   chan struct{} // holds a token for each goroutine that waits in the kernel
	work   sync.WaitGroup

	unreached atomic.Uint64 // windows that the program should reach
	toldLarge sync.Once
	ended     chan struct{} // closed once closed is true

	mu        sync.Mutex // guards what follows, and what is said so of a Region
	closed    bool
	chunks    []bool                // indices in use
	places    [express.Windows]bool // of windows in the tables, in use
	leaving   []*Region             // that are gone and still have something, the oldest first
	returned  int                   // how many were so before
	quiescing []func()              // what the next wait for runs of the program is for
}

const (
	waitsInKernel = 8                     // goroutines at a time; each has a thread
	quiesceAgain  = 10 * time.Millisecond // after the kernel failed
	longestReturn = 5 * time.Second       // that a window waits for what others give back; it takes some ten milliseconds
)

// New returns the tier of a program by what a rank shares with that.
func New(kernel *loader.Tier, log *slog.Logger) *Tier {
	t := &Tier{
		log: log, kernel: kernel, graces: kernel.Quiesce, tables: express.NewTables(kernel.Slots(), kernel.Windows()),
		gate: make(chan struct{}, waitsInKernel), chunks: make([]bool, min(kernel.Most(), express.Chunks)), ended: make(chan struct{}),
	}
	// The engine may look at the tables after the device was closed.
	runtime.AddCleanup(t.tables, func(kernel *loader.Tier) { _ = kernel.Release() }, kernel)
	return t
}

// Tables returns the tables, which stay after the device was closed. The engine's lock
// guards what is changed in them.
func (t *Tier) Tables() *express.Tables { return t.tables }

// Answers returns the answers that the program hands over. They go with the tables.
func (t *Tier) Answers() *loader.Answers { return t.kernel.Answers() }

// background runs f in a goroutine of its own, and returns false if the device is closed.
// Of those goroutines only a few are in the kernel at a time.
func (t *Tier) background(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.work.Go(func() {
		t.gate <- struct{}{}
		defer func() { <-t.gate }()
		f()
	})
	return true
}

// Quiesce calls done, in a goroutine that holds no lock, once every run of the program that
// has begun before is over. It does not if the device is closed before. One wait in the kernel is
// for all that came before it began.
func (t *Tier) Quiesce(done func()) {
	t.mu.Lock()
	t.quiescing = append(t.quiescing, done)
	first := len(t.quiescing) == 1
	t.mu.Unlock()
	if first {
		t.background(t.quiesce)
	}
}

func (t *Tier) quiesce() {
	t.mu.Lock()
	list := t.quiescing
	t.quiescing = nil
	t.mu.Unlock()
	if t.wait() {
		for _, done := range list {
			done()
		}
	}
}

// wait waits until every run of the program is over that has begun before; false if the
// device was closed.
func (t *Tier) wait() bool {
	for {
		if t.graces() == nil {
			return true
		}
		select {
		case <-t.ended: // then close waits for this
			return false
		case <-time.After(quiesceAgain):
		}
	}
}

// Close ends the work in the background, and lets nobody begin more. t may be nil.
func (t *Tier) Close() {
	if t == nil {
		return
	}
	t.mu.Lock()
	if !t.closed {
		t.closed = true
		close(t.ended)
	}
	t.mu.Unlock()
	t.work.Wait()
}

// insist calls try until it succeeds. Something may be lacking that is on the way back from windows
// which are freed, so try is called again with each of these that has given all back. Others may take that,
// and be freed in turn. Once no window is freed any more, or after longestReturn, insist returns the last error,
// and before if ctx ends or the device is closed.
func (t *Tier) insist(ctx context.Context, try func() error) error {
	var tired <-chan time.Time
	for {
		_, before := t.oldest()
		err := try()
		if err == nil {
			return nil
		}
		back := atOnce // what it lacked may have come back since it looked
		if leaving, returned := t.oldest(); leaving != nil {
			back = leaving.back
		} else if returned == before {
			return err
		}
		if tired == nil {
			tired = time.After(longestReturn)
		}
		select {
		case <-back:
		case <-tired:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.ended:
			return errTierClosed()
		}
	}
}

var atOnce = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// oldest returns the window that is freed and has not given all back for longest, nil if there is
// none, and how many have.
func (t *Tier) oldest() (leaving *Region, returned int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.leaving) > 0 {
		leaving = t.leaving[0]
	}
	return leaving, t.returned
}

func errTierClosed() error {
	return mpierr.New("allocate", mpierr.Closed, mpierr.NoRank, "%w", net.ErrClosed)
}

// Unreached notes that the program does not reach a window that it should, and why. The
// first time it warns; Stats counts all. It may block, as a logger does.
func (t *Tier) Unreached(reason error) {
	if t.unreached.Add(1) == 1 {
		t.log.Warn("the XDP program does not reach a window, whose requests this process executes; others of which that is true are counted",
			"reason", openfiles.Explain(reason))
	}
}

// Stats adds what t counts to s. t may be nil.
func (t *Tier) Stats(s *stats.Device) {
	if t != nil {
		s.Unreached += t.unreached.Load()
	}
}

// TooLarge notes that a window has more bytes than the program may reach. The first time it says
// so. It may block, as a logger does.
func (t *Tier) TooLarge(size, limit int) {
	t.toldLarge.Do(func() {
		t.log.Warn("the XDP program does not reach a window of so many bytes, whose requests the ranks' processes execute; others of which that is true are not told of",
			"bytes", size, "limit", limit, "hint", "Limits.ExpressWindow and the info key xdprma_express set another limit; with xdprma_express=false nothing is said")
	})
}

// Region is memory of one window that the program reaches.
type Region struct {
	chunk   *chunk
	place   int           // in the tables that Reserve has taken, -1 if none
	id      uint32        // of the window, if exposed
	exposed bool          // the window is in the tables
	gone    bool          // the window is freed; guarded by the tier's lock
	back    chan struct{} // closed when the region, which is gone, has given all back
}

// chunk is a file's memory in the table of the program. Windows on the same memory share it.
type chunk struct {
	tier  *Tier
	file  int
	index int

	// These are guarded by the tier's lock.
	regions   int     // that are not gone
	last      *Region // the last of them that went
	tried     bool    // to install it
	installed bool
}

// Allocate returns a file of at least size bytes of zeroed memory, which the programs of
// all ranks of the host can reach. The caller maps it, and closes it. It blocks while the
// kernel makes the memory, which takes about a millisecond for each MiB, and while memory
// of freed windows comes back without which there is not enough. The error has
// class mpierr.NoMem if there are too many windows, or size is more than a quarter of the
// memory that is left.
func (t *Tier) Allocate(ctx context.Context, size int) (file int, err error) {
	err = t.insist(ctx, func() (err error) {
		file, err = t.allocate(size)
		return err
	})
	return file, err
}

func (t *Tier) allocate(size int) (file int, err error) {
	if size > alwaysLeft && size > memoryLeft(os.DirFS("/"))/shareOfRoom {
		return -1, mpierr.New("allocate", mpierr.NoMem, mpierr.NoRank, "%d bytes are more than a quarter of what is left", size)
	}
	i, err := t.lend()
	if err != nil {
		return -1, err
	}
	t.release(i)
	return t.kernel.NewChunk(size)
}

// Reach lets this rank's program reach the memory of a file that Allocate has returned, here
// or at another rank of the host. The file may be closed then. It blocks while a freed window
// has to give up its memory first. The error has class mpierr.NoMem if there are too many windows.
func (t *Tier) Reach(ctx context.Context, file int) (r *Region, err error) {
	err = t.insist(ctx, func() (err error) {
		r, err = t.reach(file)
		return err
	})
	return r, err
}

func (t *Tier) reach(file int) (*Region, error) {
	i, err := t.lend()
	if err != nil {
		return nil, err
	}
	own, err := unix.FcntlInt(uintptr(file), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.release(i)
		return nil, fmt.Errorf("keep descriptor %d: %w", file, err)
	}
	c := &chunk{tier: t, file: own, index: i, regions: 1}
	if !t.background(c.install) {
		_ = unix.Close(own)
		return nil, errTierClosed()
	}
	return c.region(), nil
}

func (c *chunk) region() *Region { return &Region{chunk: c, place: -1, back: make(chan struct{})} }

// Share returns the same memory as r for another window, in the same place of the program's
// memory: it goes when both are closed. r is not closed, and may be nil: then so is the result.
func (r *Region) Share() *Region {
	if r == nil {
		return nil
	}
	t := r.chunk.tier
	t.mu.Lock()
	defer t.mu.Unlock()
	r.chunk.regions++
	return r.chunk.region()
}

// lend returns an index for a chunk.
func (t *Tier) lend() (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.chunks, false)
	if i < 0 {
		return -1, mpierr.New("allocate", mpierr.NoMem, mpierr.NoRank, "the XDP program reaches at most %d pieces of memory, one for the windows of a host and one for each duplicate", len(t.chunks))
	}
	t.chunks[i] = true
	return i, nil
}

func (t *Tier) release(i int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.chunks[i] = false
}

// Reserve takes a place in the tables for a window with an id, which is to be exposed in the memory.
// It blocks while all places for the id are taken and a freed window has one of them. It is called
// once, without the engine's lock.
func (r *Region) Reserve(ctx context.Context, id uint32) error {
	t := r.chunk.tier
	return t.insist(ctx, func() error {
		t.mu.Lock()
		defer t.mu.Unlock()
		if r.place = express.PlaceFor(id, func(place int) bool { return !t.places[place] }); r.place < 0 {
			return errNoPlace
		}
		t.places[r.place] = true
		return nil
	})
}

var errNoPlace = errors.New("its places are taken by other windows")

// Expose lets the program and the engine execute requests for a window in the memory, at the place
// that Reserve has taken for its id. The lock and counters of the window
// are in the memory of sync, nil if it has none. r and sync say which chunks those are. It is called
// with the engine's lock held.
func (r *Region) Expose(w express.Window, sync *Region) {
	w.Chunk = r.chunk.index
	if sync != nil {
		w.Sync = sync.chunk.index
	}
	if r.chunk.tier.tables.Expose(w, func(place int) bool { return place == r.place }) < 0 {
		panic("device: a window is exposed without a place that Reserve has taken for it")
	}
	r.id, r.exposed = w.ID, true
}

// Retract ends Expose. It is called with the engine's lock held.
func (r *Region) Retract() {
	if r != nil && r.exposed {
		r.chunk.tier.tables.Retract(r.id)
	}
}

// install lets the program reach the memory.
func (c *chunk) install() {
	t := c.tier
	t.mu.Lock()
	wanted := c.regions > 0 && !t.closed
	t.mu.Unlock()
	if wanted {
		if err := t.kernel.Install(c.index, c.file); err != nil {
			wanted = false
			t.Unreached(err)
		}
	}
	t.mu.Lock()
	c.tried, c.installed = true, wanted
	gone := c.regions == 0
	t.mu.Unlock()
	_ = unix.Close(c.file)
	if gone {
		c.remove()
	}
}

// remove takes the memory from the program, which may still be at a request for it, and then gives
// back what the last window had.
func (c *chunk) remove() {
	t := c.tier
	if !c.installed {
		t.Quiesce(c.giveBack)
		return
	}
	t.background(func() {
		if t.kernel.Remove(c.index) == nil { // else the device was closed
			c.giveBack()
		}
	})
}

// giveBack lets others have the index of the memory, and the place of the last window.
func (c *chunk) giveBack() {
	c.tier.release(c.index)
	c.last.vacate()
}

// vacate lets other windows have the place of r, at which the program is no more, and tells those
// who wait for what r had.
func (r *Region) vacate() {
	t := r.chunk.tier
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.place >= 0 {
		t.places[r.place] = false
	}
	t.leaving = slices.DeleteFunc(t.leaving, func(of *Region) bool { return of == r })
	t.returned++
	close(r.back)
}

// Close takes the memory from the program in the background, once no other window shares it;
// Retract was called before if the window was exposed. Until the program has forgotten it, the
// kernel keeps the memory. r may be nil. A second Close does nothing.
func (r *Region) Close() {
	if r == nil {
		return
	}
	c, t := r.chunk, r.chunk.tier
	t.mu.Lock()
	if r.gone {
		t.mu.Unlock()
		return
	}
	r.gone = true
	c.regions--
	c.last = r
	t.leaving = append(t.leaving, r)
	shared, tried := c.regions > 0, c.tried
	t.mu.Unlock()
	switch {
	case shared:
		t.Quiesce(r.vacate)
	case tried: // otherwise install sees that the last window is gone
		c.remove()
	}
}
