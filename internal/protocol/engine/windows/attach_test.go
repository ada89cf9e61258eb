package windows

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

func newDynamic(t interface{ Fatal(...any) }) *Window {
	w, err := New(Config{ID: 7, Flavor: window.FlavorDynamic, DispUnit: 1, GroupSize: 2})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestAttach(t *testing.T) {
	w := newDynamic(t)
	mem, other := make([]byte, 96), make([]byte, 64)
	base := Address(mem)
	check := func(what string, err error, want mpierr.Class) {
		t.Helper()
		if want == mpierr.Success && err != nil || want != mpierr.Success && !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	access := func(what string, at uint64, n int, want mpierr.Class) {
		t.Helper()
		if got := w.Put(at, make([]byte, n)); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	access("nothing attached", base, 1, mpierr.RMARange)
	access("no address", 0, 0, mpierr.RMARange)
	check("attach the middle", w.Attach(mem[32:64]), 0)
	check("attach another", w.Attach(other), 0)
	check("attach nothing", w.Attach(nil), 0)
	for _, part := range [][]byte{mem[32:64], mem, mem[63:64], mem[:33], mem[40:41], mem[63:]} {
		check("attach an overlap", w.Attach(part), mpierr.RMAAttach)
	}
	access("all", base+32, 32, 0)
	access("one byte too many", base+32, 33, mpierr.RMARange)
	access("one byte too early", base+31, 2, mpierr.RMARange)
	access("the end, nothing", base+64, 0, 0)
	access("beyond the end, nothing", base+65, 0, mpierr.RMARange)
	access("the last address", ^uint64(0), 8, mpierr.RMARange)
	if _, class := w.Slice(base+40, -1); class != mpierr.RMARange {
		t.Errorf("a negative length: %v", class)
	}
	check("attach what is before", w.Attach(mem[:32]), 0)
	check("attach what is after", w.Attach(mem[64:]), 0)
	access("across three regions of one slice", base, 96, 0)
	access("across three regions and beyond", base, 97, mpierr.RMARange)
	if class := w.Accumulate(datatype.Sum, datatype.BasicInt64, base+1, make([]byte, 8)); class != mpierr.Disp {
		t.Errorf("an unaligned element: %v", class)
	}
	check("detach from the middle of a region", w.Detach(mem[33:]), mpierr.Base)
	check("detach the middle region", w.Detach(mem[32:33]), 0)
	check("detach it again", w.Detach(mem[32:64]), mpierr.Base)
	check("detach nothing", w.Detach(nil), 0)
	access("across the hole", base, 96, mpierr.RMARange)
	access("before the hole", base, 32, 0)
	access("after the hole", base+64, 32, 0)
	check("free", w.Free(), 0)
	access("freed", base, 1, mpierr.Win)
	check("attach to a freed window", w.Attach(mem), mpierr.Win)
	check("detach from a freed window", w.Detach(mem), mpierr.Win)

	static := newWindow(t, 8)
	check("attach to an allocated window", static.Attach(mem), mpierr.RMAFlavor)
	check("detach from an allocated window", static.Detach(mem), mpierr.RMAFlavor)
}

// TestAttachSeparateSlices attaches neighbours that were not cut from one slice
// with room: an access may not go from one to the other.
func TestAttachSeparateSlices(t *testing.T) {
	w := newDynamic(t)
	mem := make([]byte, 64)
	if err := errors.Join(w.Attach(mem[:32:32]), w.Attach(mem[32:])); err != nil {
		t.Fatal(err)
	}
	if class := w.Put(Address(mem), make([]byte, 33)); class != mpierr.RMARange {
		t.Errorf("across two slices: %v", class)
	}
}

func TestAttachTooMany(t *testing.T) {
	w := newDynamic(t)
	mem := make([]byte, 2*MaxAttached+2)
	for i := range MaxAttached {
		if err := w.Attach(mem[2*i : 2*i+1]); err != nil {
			t.Fatal(err)
		}
	}
	last := mem[2*MaxAttached:]
	if err := w.Attach(last); !errors.Is(err, mpierr.RMAAttach) {
		t.Errorf("one too many: %v", err)
	}
	if err := errors.Join(w.Detach(mem), w.Attach(last)); err != nil {
		t.Errorf("after a detach: %v", err)
	}
}

// TestAttachModel attaches and detaches pieces of one array and compares every
// access with an array of what is attached.
func TestAttachModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 40
		w := newDynamic(t)
		mem := make([]byte, size)
		var owner [size]int // the start of the region that holds a byte, plus one
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			at := rapid.IntRange(0, size-1).Draw(t, "at")
			n := rapid.IntRange(1, size-at).Draw(t, "n")
			free := true
			for i := at; i < at+n; i++ {
				free = free && owner[i] == 0
			}
			if rapid.Bool().Draw(t, "attach") {
				if err := w.Attach(mem[at : at+n]); (err == nil) != free {
					t.Fatalf("attach %d+%d: %v", at, n, err)
				}
				for i := at; free && i < at+n; i++ {
					owner[i] = at + 1
				}
			} else {
				if err := w.Detach(mem[at:]); (err == nil) != (owner[at] == at+1) {
					t.Fatalf("detach %d: %v", at, err)
				}
				for i := at; i < size; i++ {
					if owner[i] == at+1 {
						owner[i] = 0
					}
				}
			}
			from := rapid.IntRange(0, size-1).Draw(t, "from")
			length := rapid.IntRange(1, size-from).Draw(t, "length")
			inside := true
			for i := from; i < from+length; i++ {
				inside = inside && owner[i] != 0
			}
			got, class := w.Slice(Address(mem)+uint64(from), length)
			if (class == mpierr.Success) != inside || inside && (&got[0] != &mem[from] || len(got) != length) {
				t.Fatalf("access %d+%d: %v, attached %v", from, length, class, owner)
			}
		}
	})
}
