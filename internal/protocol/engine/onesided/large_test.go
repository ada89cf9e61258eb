package onesided

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/window"
)

// sparse returns memory that costs nothing until it is touched.
func sparse(t *testing.T, n int) []byte {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		testenv.Lacks(t, "this machine does not give out so much address space: "+err.Error())
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b
}

// The bytes of a result beyond 4 GiB land where they belong, not at its start.
// The test leaves out what lies before the last steps.
func TestResultLargerThanRecordsCount(t *testing.T) {
	const size, tail = 2*maxResult + 1<<16, 1 << 16
	for _, code := range []wire.Code{wire.CodeGet, wire.CodeGetAccumulate} {
		memory := sparse(t, size)
		for i := range memory[size-tail:] {
			memory[size-tail+i] = byte(i%251) + 1
		}
		f := newRanks(t, 2, 8, func(c *setup) {
			w, err := windows.New(windows.Config{ID: testWindow + 1, Flavor: window.FlavorCreate,
				Memory: windows.Slice(memory), Size: size, DispUnit: 1, GroupSize: 2})
			if err == nil {
				err = c.Windows.Add(w)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
		e := f.e[0]
		s := e.Dial(1, 1, 1)
		for f.Step() {
		}
		result := sparse(t, size)
		c := Call{Access: e.OpenAccess(s, testWindow+1), Code: code, Op: datatype.NoOp, Basic: datatype.BasicInt64, Result: result}
		for _, from := range []int{maxResult - 8, 2*maxResult - 8} {
			c.at = from
			for done, calls := false, 0; !done && (from > maxResult || c.base == 0); calls++ {
				var err error
				if done, err = e.Issue(&c); err != nil || calls == 1000 {
					t.Fatalf("%v after %d calls", err, calls)
				}
				for f.Step() {
				}
			}
		}
		for f.Step() {
		}
		if !bytes.Equal(result[size-tail:], memory[size-tail:]) {
			t.Errorf("%v: the end of the result is not what the window holds", code)
		}
		if !bytes.Equal(result[:tail], make([]byte, tail)) {
			t.Errorf("%v: the end of the result has overwritten its start", code)
		}
		if err := c.Access.TakeError(); err != nil {
			t.Error(err)
		}
	}
}

// The same for a result with gaps, of elements that do not divide what one
// operation can bring.
func TestTypedResultLargerThanRecordsCount(t *testing.T) {
	const entry = 24 << 10
	inner := must(datatype.Struct([]int{1, 1}, []int{0, 16}, []*datatype.Type{datatype.Complex128, datatype.Int64}))
	block := must(datatype.Contiguous(entry/24, inner))
	mine := committed(datatype.Resized(block, 0, entry+64))
	theirs := committed(block, nil)
	const count = (2*maxResult + 1<<16) / entry
	const size = count * entry
	memory := sparse(t, size)
	const tail = 2 * entry
	copy(memory[size-tail:], noise(tail))
	f := newRanks(t, 2, 8, func(c *setup) {
		w, err := windows.New(windows.Config{ID: testWindow + 1, Flavor: window.FlavorCreate,
			Memory: windows.Slice(memory), Size: size, DispUnit: 1, GroupSize: 2})
		if err == nil {
			err = c.Windows.Add(w)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	e := f.e[0]
	s := e.Dial(1, 1, 1)
	for f.Step() {
	}
	result := sparse(t, count*(entry+64))
	c := Call{Access: e.OpenAccess(s, testWindow+1), Code: wire.CodeGet}
	c.Typed = e.Typed(&Local{}, &Local{Mem: result, Type: mine, Count: count}, theirs, count, size)
	for _, from := range []int{maxResult - 1024, 2*maxResult - 4096} {
		c.at = from / 8 * 8
		for done, calls := false, 0; !done && (from > maxResult || c.base == 0); calls++ {
			var err error
			if done, err = e.Issue(&c); err != nil || calls == 1000 {
				t.Fatalf("%v after %d calls", err, calls)
			}
			for f.Step() {
			}
		}
	}
	for f.Step() {
	}
	for i := range 2 {
		theirs, mine := memory[size-(i+1)*entry:][:entry], result[(count-1-i)*(entry+64):][:entry]
		if !bytes.Equal(mine, theirs) {
			t.Errorf("entry %d from the end is not what the window holds", i)
		}
	}
	if !bytes.Equal(result[:1<<16], make([]byte, 1<<16)) {
		t.Error("the end of the result has overwritten its start")
	}
	if err := c.Access.TakeError(); err != nil {
		t.Error(err)
	}
}
