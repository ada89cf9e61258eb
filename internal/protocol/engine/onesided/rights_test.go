package onesided

import (
	"bytes"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

// TestRightsOfOperations has a rank with each set of rights ask for everything that can be done
// to a window. A request that it has no right to make is refused, with class Access, and changes
// nothing; one that needs no right is done.
func TestRightsOfOperations(t *testing.T) {
	for rights := window.MayNothing; rights <= window.MayAll; rights++ {
		t.Run(rights.String(), func(t *testing.T) { testRights(t, rights) })
	}
}

func testRights(t *testing.T, rights window.Rights) {
	const id = 9
	f := newRanks(t, 2, 64, nil)
	mem := make([]byte, 64)
	for i := range mem {
		mem[i] = 0xaa
	}
	w, err := windows.New(windows.Config{
		ID: id, Flavor: window.FlavorCreate, Memory: windows.Slice(mem), Size: 64, DispUnit: 1, GroupSize: 2,
		Members: windows.NewMembers([]int{0, 1}, nil, []window.Rights{window.MayAll, rights}),
	})
	if err == nil {
		err = f.e[0].Windows().Add(w)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.access(1, 0)
	e, target := f.e[1], f.e[0]
	a := e.OpenAccess(f.dial(1, 0), id)
	denied := uint64(0)
	// expect checks the outcome of something that needs rights.
	expect := func(what string, needs window.Rights, before []byte, err error) {
		t.Helper()
		want := mpierr.Success
		if needs&^rights != 0 {
			want = mpierr.Access
			denied++
		}
		if mpierr.ClassOf(err) != want {
			t.Errorf("%s: %v", what, err)
		}
		if want != mpierr.Success && before != nil && !bytes.Equal(mem, before) {
			t.Errorf("%s was refused, and the memory has changed", what)
		}
		if target.Stats.Denied != denied {
			t.Errorf("%s: %d requests were counted as denied, want %d", what, target.Stats.Denied, denied)
		}
	}
	for _, exclusive := range []bool{false, true} {
		e.Lock(a, exclusive)
		f.Settle()
		err := a.TakeError()
		if a.Held() != (rights&window.MayLock != 0) {
			t.Errorf("the lock is held: %v", a.Held())
		}
		expect("a lock", window.MayLock, nil, err)
		f.Until(1000*millisecond, func() bool { return e.Unlock(a) })
		if err := f.flush(e, a); err != nil {
			t.Errorf("the unlock: %v", err)
		}
		a.Unlocked()
	}
	typ := committed(datatype.Vector(2, 1, 2, datatype.Byte))
	words := committed(datatype.Vector(2, 1, 2, datatype.Int64))
	bytes16 := &Local{Mem: make([]byte, 16)}
	for _, test := range []struct {
		name  string
		needs window.Rights
		call  Call
	}{
		{"put", window.MayWrite, Call{Code: wire.CodePut, Origin: word(1)}},
		{"get", window.MayRead, Call{Code: wire.CodeGet, Result: make([]byte, 8)}},
		{"sum", window.MayAccumulate, Call{Code: wire.CodeAccumulate, Op: datatype.Sum, Basic: datatype.BasicInt64, Origin: word(1)}},
		{"replace", window.MayWrite, Call{Code: wire.CodeAccumulate, Op: datatype.Replace, Basic: datatype.BasicInt64, Origin: word(1)}},
		{"fetch and sum", window.MayRead | window.MayAccumulate,
			Call{Code: wire.CodeGetAccumulate, Op: datatype.Sum, Basic: datatype.BasicInt64, Origin: word(1), Result: make([]byte, 8)}},
		{"fetch and replace", window.MayRead | window.MayWrite,
			Call{Code: wire.CodeGetAccumulate, Op: datatype.Replace, Basic: datatype.BasicInt64, Origin: word(1), Result: make([]byte, 8)}},
		{"fetch", window.MayRead, Call{Code: wire.CodeGetAccumulate, Op: datatype.NoOp, Basic: datatype.BasicInt64, Result: make([]byte, 8)}},
		{"compare and swap", window.MayRead | window.MayWrite,
			Call{Code: wire.CodeCompareSwap, Basic: datatype.BasicInt64, Origin: word(1), Compare: word(0), Result: make([]byte, 8)}},
		{"typed put", window.MayWrite, Call{Code: wire.CodePut, Typed: e.Typed(bytes16, &Local{}, typ, 1, 2)}},
		{"typed get", window.MayRead, Call{Code: wire.CodeGet, Typed: e.Typed(&Local{}, bytes16, typ, 1, 2)}},
		{"typed sum", window.MayAccumulate, Call{Code: wire.CodeAccumulate, Op: datatype.Sum, Basic: datatype.BasicInt64, Typed: e.Typed(bytes16, &Local{}, words, 1, 16)}},
	} {
		before := bytes.Clone(mem)
		c := test.call
		c.Access = a
		f.issue(e, &c)
		expect(test.name, test.needs, before, f.flush(e, a))
	}
	e.Post(a, false)
	f.Settle()
	expect("a post", window.MayNothing, nil, f.flush(e, a))
	if !target.OpenAccess(f.dial(0, 1), id).open() {
		t.Error("the post has not arrived")
	}
	f.atRest()
}

// TestRefusedLockTakesItsCallsAlong issues calls that travel with a lock which is not given. All
// are refused with its class, also those that the rank has the right to.
func TestRefusedLockTakesItsCallsAlong(t *testing.T) {
	const id = 9
	f := newRanks(t, 2, 64, nil)
	mem := make([]byte, 64)
	w, err := windows.New(windows.Config{
		ID: id, Flavor: window.FlavorCreate, Memory: windows.Slice(mem), Size: 64, DispUnit: 1, GroupSize: 2,
		Members: windows.NewMembers([]int{0, 1}, nil, []window.Rights{window.MayAll, window.MayAll &^ window.MayLock}),
	})
	if err == nil {
		err = f.e[0].Windows().Add(w)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.access(1, 0)
	a := f.e[1].OpenAccess(f.dial(1, 0), id)
	e := f.e[1]
	e.Lock(a, true)
	for _, c := range []Call{{Code: wire.CodePut, Origin: word(7)}, {Code: wire.CodeGet, Result: make([]byte, 8)}} {
		c.Access = a
		if done, err := e.Issue(&c); !done || err != nil {
			t.Fatalf("%v has not gone with the lock: %v", c.Code, err)
		}
	}
	err = f.flush(e, a)
	c := Call{Access: a, Code: wire.CodePut, Origin: word(8)}
	if _, late := e.Issue(&c); mpierr.ClassOf(late) != mpierr.Access {
		t.Errorf("a later call: %v", late)
	}
	e.Unlock(a)
	a.Unlocked()
	if mpierr.ClassOf(err) != mpierr.Access || le.Uint64(mem) != 0 {
		t.Errorf("%v, memory %x", err, mem[:8])
	}
	if s := f.e[0].Stats; s.Denied == 0 || s.Denied != s.Refused || s.Outsiders != 0 {
		t.Errorf("%d refused, %d denied, %d of outsiders", s.Refused, s.Denied, s.Outsiders)
	}
	// Without a lock the same calls are done.
	f.issue(e, &Call{Access: a, Code: wire.CodePut, Origin: word(7)})
	if err := f.flush(e, a); err != nil || le.Uint64(mem) != 7 {
		t.Errorf("%v, memory %x", err, mem[:8])
	}
	f.atRest()
}
