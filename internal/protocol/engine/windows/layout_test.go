package windows_test

import (
	"bytes"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

func vector(t *testing.T, count, block, stride int, old *datatype.Type) *datatype.Type {
	typ, err := datatype.Vector(count, block, stride, old)
	if err == nil {
		err = typ.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	return typ
}

// Blocks of a layout that lie in regions attached apart, with memory in between
// that is not attached, and a block that is not.
func TestLayoutOverRegions(t *testing.T) {
	w, err := windows.New(windows.Config{Flavor: window.FlavorDynamic, DispUnit: 1, GroupSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	memory := make([]byte, 256)
	for _, at := range []int{0, 64, 192} {
		if err := w.Attach(memory[at : at+16 : at+16]); err != nil {
			t.Fatal(err)
		}
	}
	two, four := vector(t, 2, 1, 8, datatype.Uint64), vector(t, 4, 1, 8, datatype.Uint64)
	l := windows.Layout{Disp: windows.Address(memory), Type: two, Count: 1}
	var it datatype.Iter
	data := []byte("twelve bytes and")
	if class := l.Put(w, &it, 0, data); class != mpierr.Success {
		t.Fatal(class)
	}
	if !bytes.Equal(memory[:8], data[:8]) || !bytes.Equal(memory[64:72], data[8:]) {
		t.Error("put: wrong bytes")
	}
	got := make([]byte, 10)
	if class := l.Get(w, &it, 6, got); class != mpierr.Success || !bytes.Equal(got, data[6:]) {
		t.Errorf("get: %v, %q", class, got)
	}
	clear(memory)
	one := []byte{1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}
	old := make([]byte, 16)
	for range 2 {
		if class := l.GetAccumulate(w, &it, datatype.Sum, datatype.BasicUint64, 0, one, old); class != mpierr.Success {
			t.Fatal(class)
		}
	}
	if !bytes.Equal(old, one) || memory[0] != 2 || memory[64] != 4 {
		t.Error("get_accumulate: wrong bytes")
	}
	before := bytes.Clone(memory)
	l.Type = four // its third block is not attached, its fourth is
	long := make([]byte, 32)
	for name, class := range map[string]mpierr.Class{
		"put":            l.Put(w, &it, 0, append(one, one...)),
		"get":            l.Get(w, &it, 0, long),
		"accumulate":     l.Accumulate(w, &it, datatype.Sum, datatype.BasicUint64, 0, append(one, one...)),
		"get_accumulate": l.GetAccumulate(w, &it, datatype.Sum, datatype.BasicUint64, 8, append(one, one...)[:24], long[:24]),
	} {
		if class != mpierr.RMARange {
			t.Errorf("%s: %v", name, class)
		}
	}
	if !bytes.Equal(memory, before) {
		t.Error("a refused call has changed memory")
	}
	if class := l.Put(w, &it, 24, one[:8]); class != mpierr.Success || memory[192] != 1 {
		t.Errorf("a part that is attached: %v", class)
	}
	if err := w.Free(); err != nil {
		t.Fatal(err)
	}
	if class := l.Put(w, &it, 24, one[:8]); class != mpierr.Win {
		t.Errorf("after free: %v", class)
	}
}
