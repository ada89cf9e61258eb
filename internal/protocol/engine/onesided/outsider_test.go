package onesided

import (
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

// TestOutsidersAreRefused has a rank that is not in the window's group ask for everything
// that can be done to a window: it is refused, with an answer, and nothing changes.
func TestOutsidersAreRefused(t *testing.T) {
	const id, outsider = 9, 2
	f := newRanks(t, 3, 64, nil)
	mem := make([]byte, 64)
	w, err := windows.New(windows.Config{ID: id, Flavor: window.FlavorCreate, Memory: windows.Slice(mem), Size: 64, DispUnit: 1, GroupSize: 2, Members: windows.NewMembers([]int{0, 1}, nil, nil)})
	if err == nil {
		err = f.e[0].Windows().Add(w)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.access(outsider, 0)
	a, e := f.e[outsider].OpenAccess(f.dial(outsider, 0), id), f.e[outsider]
	e.Lock(a, true)
	f.Settle()
	if err := a.TakeError(); a.Held() || mpierr.ClassOf(err) != mpierr.Group {
		t.Errorf("the lock: held %v, %v", a.Held(), err)
	}
	a.Unlocked()
	typ := committed(datatype.Vector(2, 1, 2, datatype.Byte))
	for _, c := range []*Call{
		{Code: wire.CodePut, Origin: word(1)},
		{Code: wire.CodeGet, Result: make([]byte, 8)},
		{Code: wire.CodeAccumulate, Op: datatype.Sum, Basic: datatype.BasicInt64, Origin: word(1)},
		{Code: wire.CodeGetAccumulate, Op: datatype.Sum, Basic: datatype.BasicInt64, Origin: word(1), Result: make([]byte, 8)},
		{Code: wire.CodeCompareSwap, Basic: datatype.BasicInt64, Origin: word(1), Compare: word(0), Result: make([]byte, 8)},
		{Code: wire.CodePut, Typed: e.Typed(&Local{Mem: []byte{1, 2}}, &Local{}, typ, 1, 2)},
	} {
		c.Access = a
		f.issue(e, c)
		if err := f.flush(e, a); mpierr.ClassOf(err) != mpierr.Group {
			t.Errorf("%v: %v", c.Code, err)
		}
	}
	e.Post(a, false)
	f.Settle()
	if n := f.e[0].Stats.Outsiders; n != 8 || f.e[0].Session(outsider).access[id] != nil {
		t.Errorf("%d requests of outsiders were refused, want 8", n)
	}
	member := f.e[1].OpenAccess(f.dial(1, 0), id)
	if err := f.locked(f.e[1], member, &Call{Access: member, Code: wire.CodePut, Origin: word(7)}); err != nil || le.Uint64(mem) != 7 {
		t.Errorf("a member: %v, %d", err, le.Uint64(mem))
	}
}
