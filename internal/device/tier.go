package device

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/openfiles"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/mpierr"
)

// Tier is what a device offers whose XDP program executes small requests itself: the
// tables that the program and the engine share, and memory of windows that the program
// reaches.
//
// The program learns of memory, and forgets it, in the background: the kernel takes
// milliseconds for it. Until then the engine executes the requests that the program will.
// The methods may be called from any goroutine, also after the device was closed: then
// there is no more memory to be had.
type Tier struct {
	log    *slog.Logger
	kernel *loader.Tier
	graces func() error // Quiesce of kernel, but for tests
	tables *express.Tables
	gate   chan struct{} // holds a token for each goroutine that waits in the kernel
	work   sync.WaitGroup

	unreached atomic.Uint64 // windows that the program should reach

	mu     sync.Mutex // guards what follows, and what is said so of a Region
	closed bool
	chunks []bool                // indices in use
	places [express.Windows]bool // of windows in the tables, in use
}

const (
	waitsInKernel = 8                     // goroutines at a time; each has a thread
	quiesceAgain  = 10 * time.Millisecond // after the kernel failed
)

// newTier returns the tier of a program, nil if it has none.
func newTier(p *loader.Program, log *slog.Logger) *Tier {
	kernel, err := p.Tier()
	if err != nil {
		return nil
	}
	t := &Tier{
		log: log, kernel: kernel, graces: kernel.Quiesce, tables: express.NewTables(kernel.Slots(), kernel.Windows()),
		gate: make(chan struct{}, waitsInKernel), chunks: make([]bool, min(kernel.Most(), express.Chunks)),
	}
	// The engine may look at the tables after the device was closed.
	runtime.AddCleanup(t.tables, func(kernel *loader.Tier) { _ = kernel.Release() }, kernel)
	return t
}

// Tables returns the tables, which stay after the device was closed. The engine's lock
// guards what is changed in them.
func (t *Tier) Tables() *express.Tables { return t.tables }

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
// has begun before is over. It does not if the device is closed before.
func (t *Tier) Quiesce(done func()) {
	t.background(func() {
		if t.wait() {
			done()
		}
	})
}

// wait waits until every run of the program is over that has begun before; false if the
// device was closed.
func (t *Tier) wait() bool {
	for {
		if t.graces() == nil {
			return true
		}
		t.mu.Lock()
		closed := t.closed // then close waits for this
		t.mu.Unlock()
		if closed {
			return false
		}
		time.Sleep(quiesceAgain)
	}
}

// close ends the work in the background, and lets nobody begin more.
func (t *Tier) close() {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.work.Wait()
}

// Unreached notes that the program does not reach a window that it should, and why. The
// first time it warns; Stats counts all. It may block, as a logger does.
func (t *Tier) Unreached(reason error) {
	if t.unreached.Add(1) == 1 {
		t.log.Warn("the XDP program does not reach a window, whose requests this process executes; others of which that is true are counted",
			"reason", openfiles.Explain(reason))
	}
}

// Region is memory of one window that the program reaches.
type Region struct {
	chunk *chunk
	id    uint32 // of the window, if exposed
	place int    // of the window, if exposed

	// These are guarded by the tier's lock.
	exposed bool // has a place among the windows
	gone    bool // the window is freed
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
// kernel makes the memory, which takes about a millisecond for each MiB. The error has
// class mpierr.NoMem if there are too many windows, or size is more than a quarter of the
// memory that is left.
func (t *Tier) Allocate(size int) (file int, err error) {
	if size > alwaysLeft && size > memoryLeft(os.DirFS("/"))/shareOfRoom {
		return -1, mpierr.New("allocate", mpierr.NoMem, mpierr.NoRank, "%d bytes are more than a quarter of what is left", size)
	}
	i := t.lend()
	if i < 0 {
		return -1, t.full()
	}
	t.release(i)
	return t.kernel.NewChunk(size)
}

func (t *Tier) full() error {
	return mpierr.New("allocate", mpierr.NoMem, mpierr.NoRank, "the XDP program reaches at most %d pieces of memory, one for the windows of a host and one for each duplicate", len(t.chunks))
}

// Reach lets this rank's program reach the memory of a file that Allocate has returned, here
// or at another rank of the host. The file may be closed then. The error has class
// mpierr.NoMem if there are too many windows.
func (t *Tier) Reach(file int) (*Region, error) {
	i := t.lend()
	if i < 0 {
		return nil, t.full()
	}
	own, err := unix.FcntlInt(uintptr(file), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.release(i)
		return nil, fmt.Errorf("keep descriptor %d: %w", file, err)
	}
	c := &chunk{tier: t, file: own, index: i, regions: 1}
	if !t.background(c.install) {
		_ = unix.Close(own)
		return nil, mpierr.New("allocate", mpierr.Closed, mpierr.NoRank, "%w", net.ErrClosed)
	}
	return &Region{chunk: c}, nil
}

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
	return &Region{chunk: r.chunk}
}

// lend returns an index for a chunk, -1 if none is left.
func (t *Tier) lend() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, used := range t.chunks {
		if !used {
			t.chunks[i] = true
			return i
		}
	}
	return -1
}

func (t *Tier) release(i int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.chunks[i] = false
}

// Expose lets the program and the engine execute requests for a window in the memory, whose lock
// and counters are in that of sync, nil if w has none. r and sync say which chunks those are. It
// returns false if the window's places in the tables are taken. It is called with the engine's
// lock held.
func (r *Region) Expose(w express.Window, sync *Region) bool {
	t := r.chunk.tier
	t.mu.Lock()
	defer t.mu.Unlock()
	w.Chunk = r.chunk.index
	if sync != nil {
		w.Sync = sync.chunk.index
	}
	place := t.tables.Expose(w, func(place int) bool { return !t.places[place] })
	if place < 0 {
		if !t.closed { // a logger may block, which the engine's lock does not let it
			t.work.Go(func() { t.Unreached(errNoPlace) })
		}
		return false
	}
	t.places[place] = true
	r.id, r.place, r.exposed = w.ID, place, true
	return true
}

var errNoPlace = errors.New("its places are taken by other windows")

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

// remove takes the memory from the program. Then its index and the place of the last window can
// be used again: not before, since the program may still be at a request for it.
func (c *chunk) remove() {
	t := c.tier
	if c.installed {
		if err := t.kernel.Remove(c.index); err != nil {
			return // the device was closed
		}
	} else if !t.wait() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.chunks[c.index] = false
	c.last.vacate()
}

// vacate lets other windows have the place of r, at which the program is no more. It is called
// with the tier's lock held.
func (r *Region) vacate() {
	if r.exposed {
		r.chunk.tier.places[r.place] = false
	}
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
	shared, tried := c.regions > 0, c.tried
	t.mu.Unlock()
	switch {
	case shared:
		t.Quiesce(func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			r.vacate()
		})
	case tried: // otherwise install sees that the last window is gone
		t.background(c.remove)
	}
}
