package loader

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/mpierr"
)

// Chunks is the memory of windows that a program reaches for a rank. Its methods may be called from any
// goroutine. They are system calls, and some wait for all that runs in the kernel's network code, which takes
// milliseconds: no lock should be held meanwhile.
type Chunks interface {
	// NewChunk makes zeroed memory of at least the given size, in whole pages of a
	// chunk, and returns it as a file that its caller maps and closes. It is memory of the
	// kernel: all of it is there at once, is charged to the process that makes it, and is never swapped. It
	// stays while a process maps it, or a program reaches it. The error has class mpierr.NoMem
	// if there is not so much.
	NewChunk(size int) (file int, err error)
	// Most returns how many chunks can be installed at a time.
	Most() int
	// Install lets the program reach a chunk by an index below Most that is not in use. file
	// is of this process's NewChunk, or was passed here by another process. It waits as Quiesce
	// does.
	Install(i, file int) error
	// Remove ends Install. When it returns, nothing that the program does uses the chunk.
	Remove(i int) error
	// Quiesce waits until every run of the program that has begun before is over. Then none uses
	// an entry of the tables that was cleared before.
	Quiesce() error
}

// chunkMap is Chunks of a rank whose program this process has loaded: its part of a map.
type chunkMap struct {
	use          func(func() error) error // runs something unless the program is closed
	outer, spare *ebpf.Map
	base, most   int // the rank's first index, and how many it has
	page         int // bytes of a page of a chunk

	mu    sync.Mutex
	there map[int]bool // the entries of the rank's
}

// installed returns the entries of the map that the rank has.
func (c *chunkMap) installed() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.there))
}

// note notes that the rank has an entry of the map, or has it no more.
func (c *chunkMap) note(i int, there bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.there == nil {
		c.there = map[int]bool{}
	}
	if delete(c.there, i); there {
		c.there[i] = true
	}
}

// newSpare makes the chunk that Quiesce puts into the last entry of a map of chunks.
func newSpare(spec *ebpf.CollectionSpec, outer string) (*ebpf.Map, error) {
	inner := spec.Maps[outer].InnerMap.Copy()
	inner.Name, inner.MaxEntries = "xdprma_window", 1
	return ebpf.NewMap(inner)
}

// NewChunk implements Chunks.
func (c *chunkMap) NewChunk(size int) (file int, err error) {
	file = -1
	err = c.use(func() error {
		pages := max(1, (size+c.page-1)/c.page)
		if err := needsFiles(2); err != nil { // the map, and its copy
			return err
		}
		m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "xdprma_window", Type: c.spare.Type(), KeySize: c.spare.KeySize(),
			ValueSize: c.spare.ValueSize(), Flags: c.spare.Flags(), MaxEntries: uint32(pages)})
		if err != nil {
			return mpierr.New("allocate", mpierr.NoMem, mpierr.NoRank, "make a map of %d pages: %w", pages, plain{err})
		}
		defer m.Close()
		if file, err = unix.FcntlInt(uintptr(m.FD()), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return fmt.Errorf("keep a map of %d pages: %w", pages, err)
		}
		return nil
	})
	return file, err
}

// Most implements Chunks.
func (c *chunkMap) Most() int { return c.most }

// Install implements Chunks.
func (c *chunkMap) Install(i, file int) error {
	if i < 0 || i >= c.most {
		return mpierr.New("install memory", mpierr.Arg, mpierr.NoRank, "index %d is not within 0 and %d", i, c.most-1)
	}
	return c.use(func() error {
		c.note(c.base+i, true) // before, so that who ends the rank's service knows of it
		return c.outer.Put(uint32(c.base+i), uint32(file))
	})
}

// Remove implements Chunks.
func (c *chunkMap) Remove(i int) error {
	if i < 0 || i >= c.most {
		return mpierr.New("remove memory", mpierr.Arg, mpierr.NoRank, "index %d is not within 0 and %d", i, c.most-1)
	}
	return c.use(func() error {
		err := c.outer.Delete(uint32(c.base + i))
		if err == nil {
			c.note(c.base+i, false)
		}
		return err
	})
}

// Quiesce implements Chunks.
//
// A program of XDP or tc runs within an RCU read-side critical section, so a grace period is to
// be waited for. The kernel does that whenever a map in a map is replaced. The system call
// membarrier would do as well, but not on a machine with CPUs without tick (nohz_full).
func (c *chunkMap) Quiesce() error {
	return c.use(func() error {
		if err := c.outer.Put(c.outer.MaxEntries()-1, c.spare); err != nil {
			return fmt.Errorf("wait for running programs: %w", err)
		}
		return nil
	})
}
