package windows

import (
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/mpierr"
)

// Memory is the memory of a window, from whatever provider.
type Memory interface {
	// Bytes returns the memory; the slice is the same until Close, and nil after.
	Bytes() []byte
	// Close gives the memory back. Nobody may access it then or later: memory
	// outside the Go heap is unmapped, and an access is a fault. A second Close
	// does nothing.
	Close() error
}

// heap is memory that the garbage collector manages.
type heap struct{ bytes []byte }

// Slice returns b as window memory; b stays reachable until Close. Accumulates
// need addresses aligned to the element, which slices of that element's type
// have and which pieces of a []byte may not have; complex64 needs 8 bytes.
func Slice(b []byte) Memory { return &heap{b} }

func (h *heap) Bytes() []byte { return h.bytes }

func (h *heap) Close() error {
	h.bytes = nil
	return nil
}

// mapping is memory mapped outside the Go heap.
type mapping struct {
	bytes []byte // what the user asked for
	whole []byte // whole pages, as mapped
}

// MapAnonymous maps size bytes of zeroed memory outside the Go heap, in whole pages
// and at an address that is a multiple of align, a power of two or 0. An align beyond
// a page costs up to as many bytes more of address space, not of memory. Size 0 maps
// nothing. Errors: Size if size is negative, NoMem if the kernel refuses.
func MapAnonymous(size, align int) (Memory, error) {
	page := os.Getpagesize()
	if align <= page {
		align = 0
	}
	switch {
	case size < 0:
		return nil, mpierr.New("window allocate", mpierr.Size, mpierr.NoRank, "size %d is negative", size)
	case size == 0:
		return &mapping{}, nil
	case size > math.MaxInt-page-align:
		return nil, noMemory(size, unix.ENOMEM)
	}
	whole, err := unix.Mmap(-1, 0, (size+page-1)/page*page+align, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, noMemory(size, err)
	}
	at := 0
	if align > 0 {
		at = int(-Address(whole) & uint64(align-1))
	}
	return &mapping{bytes: whole[at : at+size : at+size], whole: whole}, nil
}

func noMemory(size int, err error) error {
	return mpierr.New("window allocate", mpierr.NoMem, mpierr.NoRank,
		"mapping %d bytes: %w; use a smaller window, or raise the process's limits (ulimit -v, the memory cgroup, vm.overcommit_memory)", size, err)
}

func (m *mapping) Bytes() []byte { return m.bytes }

func (m *mapping) Close() error {
	whole := m.whole
	m.bytes, m.whole = nil, nil
	if whole == nil {
		return nil
	}
	if err := unix.Munmap(whole); err != nil {
		return mpierr.New("window free", mpierr.Intern, mpierr.NoRank, "unmapping %d bytes: %w", len(whole), err)
	}
	return nil
}
