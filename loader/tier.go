package loader

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/bpf"
	"github.com/xdprma/xdprma/mpierr"
)

// MaxSlots is how many sessions a program executes requests of at most.
const MaxSlots = 4096

// Tier is what a process shares with a program that executes small requests itself: the
// tables that say which requests it may execute for whom, and the memory of windows, in
// chunks. It serves the library alone: bpf/express.h and docs/wire.md say what is in the
// tables. Its methods may be called from any goroutine. They are system calls, and some wait for all that runs in the kernel's
// network code, which takes milliseconds: no lock should be held meanwhile.
type Tier struct {
	program        *Program
	slots, windows []byte
	answers        *Answers
	chunks, spare  *ebpf.Map
	page, most     int // bytes of a page of a chunk; chunks that there can be
}

// Tier returns what p shares, or says why p executes no requests.
func (p *Program) Tier() (*Tier, error) { return p.tier, p.noTier }

var (
	errNotAsked = errors.New("it was not asked to")
	errForeign  = errors.New("the program was attached by another process")
)

// newTier maps the tables of a program that was loaded to execute requests.
func newTier(p *Program, o *bpf.ClassifierObjects) (*Tier, error) {
	spec, err := bpf.LoadClassifier()
	if err != nil {
		return nil, err
	}
	inner := spec.Maps[bpf.ClassifierMapChunks].InnerMap
	t := &Tier{program: p, chunks: o.Chunks, page: int(inner.ValueSize), most: int(o.Chunks.MaxEntries()) - 1}
	t.slots, err = mapShared(o.Slots, int(o.Slots.MaxEntries()*o.Slots.ValueSize()))
	if err == nil {
		t.windows, err = mapShared(o.Windows, int(o.Windows.MaxEntries()*o.Windows.ValueSize()))
	}
	if err == nil {
		t.answers, err = newAnswers(o.Answers, o.Asleep)
	}
	if err == nil {
		t.spare, err = newChunkMap(inner, 1)
	}
	if err == nil {
		err = t.Quiesce() // it must work later on, when nothing can be done about it
	}
	if err != nil {
		return nil, errors.Join(err, t.close(), t.Release())
	}
	return t, nil
}

// mapShared maps the first n bytes of a map's memory.
func mapShared(m *ebpf.Map, n int) ([]byte, error) {
	mem, err := unix.Mmap(m.FD(), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of %v: %w", n, m, err)
	}
	return mem, nil
}

func newChunkMap(inner *ebpf.MapSpec, pages int) (*ebpf.Map, error) {
	spec := inner.Copy()
	spec.Name, spec.MaxEntries = "xdprma_window", uint32(pages)
	return ebpf.NewMap(spec)
}

// Slots returns the table of the sessions that have a slot, until Release.
func (t *Tier) Slots() []byte { return t.slots }

// Windows returns the table of the windows, until Release.
func (t *Tier) Windows() []byte { return t.windows }

// Answers returns the answers that the program hands over, until Release.
func (t *Tier) Answers() *Answers { return t.answers }

// NewChunk makes zeroed memory of at least the given size, in whole pages of a
// chunk, and returns it as a file that its caller maps and closes. It is memory of the
// kernel: all of it is there at once, is charged to the process, and is never swapped. It
// stays while a process maps it, or a program reaches it. The error has class mpierr.NoMem
// if there is not so much.
func (t *Tier) NewChunk(size int) (file int, err error) {
	file = -1
	err = t.program.use(func() error {
		pages := max(1, (size+t.page-1)/t.page)
		if err := needsFiles(2); err != nil { // the map, and its copy
			return err
		}
		m, err := newChunkMap(t.inner(), pages)
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

// inner describes the map of a chunk but for its size.
func (t *Tier) inner() *ebpf.MapSpec {
	return &ebpf.MapSpec{Type: t.spare.Type(), KeySize: t.spare.KeySize(), ValueSize: t.spare.ValueSize(), Flags: t.spare.Flags()}
}

// Most returns how many chunks can be installed at a time.
func (t *Tier) Most() int { return t.most }

// Install lets the program reach a chunk by an index below Most that is not in use. file
// is of this process's NewChunk, or was passed here by another process. It waits as Quiesce
// does.
func (t *Tier) Install(i, file int) error {
	return t.program.use(func() error { return t.chunks.Put(uint32(i), uint32(file)) })
}

// Remove ends Install. When it returns, nothing that the program does uses the chunk.
func (t *Tier) Remove(i int) error {
	return t.program.use(func() error { return t.chunks.Delete(uint32(i)) })
}

// Quiesce waits until every run of the program that has begun before is over. Then none uses
// an entry of the tables that was cleared before.
//
// An XDP program runs within an RCU read-side critical section, so a grace period is to
// be waited for. The kernel does that whenever a map in a map is replaced. The system call
// membarrier would do as well, but not on a machine with CPUs without tick (nohz_full).
func (t *Tier) Quiesce() error {
	return t.program.use(func() error {
		if err := t.chunks.Put(uint32(t.most), t.spare); err != nil {
			return fmt.Errorf("wait for running programs: %w", err)
		}
		return nil
	})
}

// close gives up what Program.Close does not know of.
func (t *Tier) close() error {
	if t == nil || t.spare == nil {
		return nil
	}
	return t.spare.Close()
}

// Release unmaps the tables. It may be called after the program's Close, which leaves
// them mapped, since others may still look at them.
func (t *Tier) Release() error {
	errs := []error{t.answers.unmap()}
	for _, mem := range []*[]byte{&t.slots, &t.windows} {
		if *mem != nil {
			errs = append(errs, unix.Munmap(*mem))
			*mem = nil
		}
	}
	return errors.Join(errs...)
}

// CanExecute returns nil if this process can load a program that executes requests on this
// machine, or says why not. It attaches nothing.
func CanExecute() error {
	o, err := Options{Interface: "none", Address: netip.IPv6Loopback(), Port: 1, Slots: 1}.withDefaults()
	if err != nil {
		return err
	}
	p, err := loadFor(o, nil)
	if err != nil {
		return whyNoTier(err)
	}
	return errors.Join(p.tier.Release(), p.Close())
}
