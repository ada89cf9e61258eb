package windows

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/elements"
	"github.com/xdprma/xdprma/internal/words"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

// Config describes a window at its owner.
type Config struct {
	ID        uint32 // how requests name the window; the same at all ranks
	Flavor    window.Flavor
	Memory    Memory    // nil for a window without memory; the window closes it
	Size      int       // bytes exposed, from the start of Memory
	DispUnit  int       // bytes that displacement 1 stands for
	GroupSize int       // ranks of the communicator
	Members   Members   // those, in their present lives, and their rights; nil: all ranks may do all
	Checker   *Checker  // set in checking mode
	Attached  *Attached // to a dynamic window that this one duplicates; nil: nothing yet
	Host      *Host     // nil where no other process of the host maps the memory
	Counters  *Counters // of notifications; nil: there are none
}

// Window is a window at its owner, the target of requests. Its data path (Put,
// Get, Accumulate, GetAccumulate, CompareAndSwap) takes arguments as they came
// from the wire: each is checked, and a refusal is returned as the class that
// the origin is told. It allocates nothing and does not block.
type Window struct {
	id        uint32
	name      string
	flavor    window.Flavor
	dispUnit  int
	groupSize int
	members   Members
	freed     atomic.Bool
	mem       []byte // the exposed bytes, capacity included
	memory    Memory
	checker   *Checker
	host      *Host
	counters  *Counters
	attached  *Attached // to a dynamic window; nil once it is freed
}

// New checks c and returns the window. Errors: Size, Disp, RMAFlavor, Base if
// the memory is smaller than Size, Arg if the group is empty.
func New(c Config) (*Window, error) {
	fail := func(class mpierr.Class, format string, args ...any) (*Window, error) {
		return nil, mpierr.New("window create", class, mpierr.NoRank, format, args...)
	}
	var mem []byte
	if c.Memory != nil {
		mem = c.Memory.Bytes()
	}
	switch {
	case !c.Flavor.Valid():
		return fail(mpierr.RMAFlavor, "%d is not a flavour", c.Flavor)
	case c.Size < 0:
		return fail(mpierr.Size, "size %d is negative", c.Size)
	case c.Flavor == window.FlavorDynamic && c.Size != 0:
		return fail(mpierr.Size, "a dynamic window starts without memory, not with %d bytes", c.Size)
	case c.Size > len(mem):
		return fail(mpierr.Base, "size %d exceeds the memory of %d bytes", c.Size, len(mem))
	case c.DispUnit <= 0:
		return fail(mpierr.Disp, "displacement unit %d is not positive", c.DispUnit)
	case c.GroupSize <= 0:
		return fail(mpierr.Arg, "a group of %d ranks", c.GroupSize)
	}
	if c.Flavor == window.FlavorDynamic && c.Attached == nil {
		c.Attached = new(Attached)
	}
	return &Window{
		id: c.ID, flavor: c.Flavor, dispUnit: c.DispUnit, groupSize: c.GroupSize, members: c.Members,
		mem: mem[:c.Size:c.Size], memory: c.Memory, attached: c.Attached, checker: c.Checker, host: c.Host, counters: c.Counters,
	}, nil
}

// Rights returns what a rank of the job, in the given incarnation, may do with the window, and
// whether it is in the window's group.
func (w *Window) Rights(rank int, life uint64) (r window.Rights, isMember bool) {
	return w.members.Rights(rank, life)
}

// ID returns the id that requests carry.
func (w *Window) ID() uint32 { return w.id }

// Name returns what SetName has set, empty at first. The engine's lock is held, as for SetName.
func (w *Window) Name() string { return w.name }

// Title names the window in a sentence: by its name, or by its id if it has none.
func (w *Window) Title() string {
	if w.name != "" {
		return fmt.Sprintf("window %q", w.name)
	}
	return fmt.Sprintf("window %d", w.id)
}

// SetName gives the window a name for messages.
func (w *Window) SetName(name string) {
	w.name = name
	if w.checker != nil {
		w.checker.Name = name
	}
}

// Flavor returns how the window was created.
func (w *Window) Flavor() window.Flavor { return w.flavor }

// Model returns the memory model, which is unified.
func (w *Window) Model() window.Model { return window.ModelUnified }

// Bytes returns the exposed memory, nil once the window is freed.
func (w *Window) Bytes() []byte { return w.mem }

// Size returns the bytes exposed, 0 once the window is freed.
func (w *Window) Size() int { return len(w.mem) }

// DispUnit returns the bytes that displacement 1 stands for.
func (w *Window) DispUnit() int { return w.dispUnit }

// GroupSize returns the number of ranks that use the window.
func (w *Window) GroupSize() int { return w.groupSize }

// Checker returns what looks for conflicting accesses, nil unless the window is in
// checking mode.
func (w *Window) Checker() *Checker { return w.checker }

// Attached returns the memory that is attached to a dynamic window, nil once it is freed.
func (w *Window) Attached() *Attached { return w.attached }

// Host returns what the window has in common with other processes of the host, or nil.
func (w *Window) Host() *Host { return w.host }

// Counters returns those that notified operations count up, nil if there are none.
func (w *Window) Counters() *Counters { return w.counters }

// Free ends the window and closes its memory; a second call does nothing. No
// other method may be running; the data path then answers mpierr.Win.
func (w *Window) Free() error {
	if w.freed.Swap(true) {
		return nil
	}
	memory := w.memory
	w.mem, w.memory, w.attached = nil, nil, nil
	if memory == nil {
		return nil
	}
	return memory.Close()
}

// ByteDisp returns the bytes from the start of a window with the given
// displacement unit to targetDisp. The class is Disp if targetDisp is negative
// or dispUnit is not positive, and RMARange if no window can be that large.
func ByteDisp(targetDisp int64, dispUnit int) (uint64, mpierr.Class) {
	if targetDisp < 0 || dispUnit <= 0 {
		return 0, mpierr.Disp
	}
	high, low := bits.Mul64(uint64(targetDisp), uint64(dispUnit))
	if high != 0 || int64(low) < 0 {
		return 0, mpierr.RMARange
	}
	return low, mpierr.Success
}

// Slice returns n bytes of the window from byte disp on, which in a dynamic window
// is an address; the class is Win if the window was freed and RMARange if they
// are not all inside.
func (w *Window) Slice(disp uint64, n int) ([]byte, mpierr.Class) {
	if w.flavor == window.FlavorDynamic {
		return w.inAttached(disp, n)
	}
	if w.freed.Load() {
		return nil, mpierr.Win
	}
	size := uint64(len(w.mem))
	if uint64(n) > size || disp > size-uint64(n) { // a negative n is larger than any size
		return nil, mpierr.RMARange
	}
	return w.mem[disp : disp+uint64(n)], mpierr.Success
}

// Put copies data to byte disp of the window. Classes: Win, RMARange.
func (w *Window) Put(disp uint64, data []byte) mpierr.Class {
	mem, class := w.Slice(disp, len(data))
	if class == mpierr.Success {
		words.CopyIn(mem, data)
	}
	return class
}

// Get fills dst from byte disp of the window. Classes: Win, RMARange.
func (w *Window) Get(disp uint64, dst []byte) mpierr.Class {
	mem, class := w.Slice(disp, len(dst))
	if class == mpierr.Success {
		words.CopyOut(dst, mem)
	}
	return class
}

// elements is Slice for elements of type b, whose number must be whole (Count)
// and whose address must be aligned (Disp).
func (w *Window) elements(b datatype.Basic, disp uint64, n int) ([]byte, mpierr.Class) {
	if n&(b.Size()-1) != 0 {
		return nil, mpierr.Count
	}
	mem, class := w.Slice(disp, n)
	if class == mpierr.Success && !elements.Aligned(b, mem) {
		return nil, mpierr.Disp
	}
	return mem, class
}

// Accumulate combines data, elements of type b, into the window from byte disp
// on. Classes: Type if b is no datatype, Op if op is not defined for b or is
// NoOp, which only calls that return a value may use; Count if data is no whole
// number of elements; Win, RMARange; Disp if the address is not aligned for b.
func (w *Window) Accumulate(op datatype.Op, b datatype.Basic, disp uint64, data []byte) mpierr.Class {
	if class := op.Check(b); class != mpierr.Success {
		return class
	}
	if op == datatype.NoOp {
		return mpierr.Op
	}
	mem, class := w.elements(b, disp, len(data))
	if class == mpierr.Success {
		elements.Accumulate(op, b, mem, data)
	}
	return class
}

// GetAccumulate is Accumulate, and stores the former values in result, which
// must be as long as data (Count). With NoOp, data is not looked at and the
// length of result counts alone. On a refusal, result is left as it was.
func (w *Window) GetAccumulate(op datatype.Op, b datatype.Basic, disp uint64, data, result []byte) mpierr.Class {
	if class := op.Check(b); class != mpierr.Success {
		return class
	}
	if op != datatype.NoOp && len(data) != len(result) {
		return mpierr.Count
	}
	mem, class := w.elements(b, disp, len(result))
	if class == mpierr.Success {
		elements.GetAccumulate(op, b, mem, data, result)
	}
	return class
}

// CompareAndSwap replaces the element of type b at byte disp by swap if it
// equals compare, and stores its former value in result. Classes: Type if b is
// no datatype or compare-and-swap is not defined for it; Count if a slice is not
// one element long; Win, RMARange; Disp if the address is not aligned for b. On
// a refusal, result is left as it was.
func (w *Window) CompareAndSwap(b datatype.Basic, disp uint64, compare, swap, result []byte) mpierr.Class {
	if !b.Comparable() {
		return mpierr.Type
	}
	if size := b.Size(); len(compare) != size || len(swap) != size || len(result) != size {
		return mpierr.Count
	}
	mem, class := w.elements(b, disp, len(result))
	if class == mpierr.Success {
		elements.CompareAndSwap(b, mem, compare, swap, result)
	}
	return class
}
