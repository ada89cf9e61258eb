package onesided

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

// scattered returns a datatype of single words in no pattern, whose encoding has
// three bytes or more a word.
func scattered(seed uint64, words int) *datatype.Type {
	r := rand.New(rand.NewPCG(seed, 5))
	disps, at := make([]int, words), 0
	for i := range disps {
		at += 1 + r.IntN(30)
		disps[i] = at
	}
	return committed(datatype.IndexedBlock(1, disps, datatype.Uint64))
}

// typedPut issues a put of random data to one entry of typ at disp, and returns a
// function that checks it.
func typedPut(f *ranks, a *Access, typ *datatype.Type, disp int) (check func()) {
	f.T.Helper()
	data := noise(typ.Size())
	f.issue(f.e[0], &Call{Access: a, Code: wire.CodePut, Disp: uint64(disp), Typed: f.e[0].Typed(&Local{Mem: data}, &Local{}, typ, 1, len(data))})
	return func() {
		f.T.Helper()
		got := (&Local{Mem: f.mem[1], Base: int64(disp), Type: typ, Count: 1}).gather()
		if !bytes.Equal(got, data) {
			f.T.Fatalf("put to %v: wrong bytes", typ)
		}
	}
}

func TestTypeIsDefinedOnce(t *testing.T) {
	f := newRanks(t, 2, 1<<16, nil)
	a := f.access(0, 1)
	typ := scattered(1, 50)
	for range 5 {
		check := typedPut(f, a, typ, 0)
		if err := f.flush(f.e[0], a); err != nil {
			t.Fatal(err)
		}
		check()
	}
	if n := f.e[1].Stats.Types; n != 1 {
		t.Errorf("defined %d times", n)
	}
	// It is forgotten with the session.
	f.e[1].Session(0).Fail(link.ErrReset)
	if n := f.e[1].Usage().TypeBytes; n != 0 {
		t.Errorf("%d bytes are kept for a dead peer", n)
	}
}

// Definitions of many frames, over a network that loses and reorders.
func TestLargeTypes(t *testing.T) {
	for seed := range uint64(20) {
		f := newRanks(t, 2, 1<<20, nil)
		a := f.access(0, 1)
		weather(rand.New(rand.NewPCG(seed, 1)), f)
		typ := scattered(seed, 4000)
		check := typedPut(f, a, typ, 0)
		back := make([]byte, typ.Size())
		if err := f.flush(f.e[0], a); err != nil {
			t.Fatal(err)
		}
		check()
		f.issue(f.e[0], &Call{Access: a, Code: wire.CodeGet, Typed: f.e[0].Typed(&Local{}, &Local{Mem: back}, typ, 1, typ.Size())})
		if err := f.flush(f.e[0], a); err != nil || !bytes.Equal(back, noise(typ.Size())) {
			t.Fatalf("the get brought something else; %v", err)
		}
		if s := f.e[1].Stats; s.Types != 1 || s.TypesRefused != 0 {
			t.Fatalf("%d definitions, %d refused", s.Types, s.TypesRefused)
		}
		f.Filter = nil
		f.atRest()
	}
}

// More datatypes than there are ids or bytes for: ids are used again, and what
// finds none goes without. None is told of in vain.
func TestManyTypes(t *testing.T) {
	for _, tt := range []struct{ types, words, flushEvery int }{
		{700, 5, 1}, {700, 5, 1000}, {30, 4000, 1}, {30, 4000, 1000}, {3, 30_000, 1},
	} {
		const room = 31 * 8 // for one word
		f := newRanks(t, 2, tt.types*tt.words*room, nil)
		a := f.access(0, 1)
		if tt.types == 700 {
			weather(rand.New(rand.NewPCG(3, 1)), f)
		}
		var checks []func()
		for i := range tt.types {
			checks = append(checks, typedPut(f, a, scattered(uint64(i), tt.words), i*tt.words*room))
			if i%tt.flushEvery == 0 {
				if err := f.flush(f.e[0], a); err != nil {
					t.Fatal(err)
				}
				checks[i]()
			}
			if g := a.session.types; len(g.byID) > wire.MaxTypes || len(g.byType) > wire.MaxTypes || g.bytes > wire.MaxTypeBytes {
				t.Fatalf("%d ids for %d bytes", len(g.byID), g.bytes)
			}
		}
		if err := f.flush(f.e[0], a); err != nil {
			t.Fatal(err)
		}
		for _, check := range checks {
			check()
		}
		s := f.e[1].Stats
		if s.TypesRefused != 0 || tt.flushEvery == 1 && tt.words < 30_000 && s.Types != uint64(tt.types) || tt.words == 30_000 && s.Types != 0 {
			t.Errorf("%+v: %d definitions, %d refused", tt, s.Types, s.TypesRefused)
		}
		if u := f.e[1].Usage(); u.TypeBytes > wire.MaxTypeBytes {
			t.Errorf("%d bytes of definitions", u.TypeBytes)
		}
		f.Filter = nil
		f.atRest()
	}
}

// Datatypes take the place of smaller ones, for which the target counts no bytes any more.
func TestLargerTypesTakeThePlaceOfSmaller(t *testing.T) {
	const room = 31 * 8
	f := newRanks(t, 2, 3000*room, nil)
	a := f.access(0, 1)
	weather(rand.New(rand.NewPCG(3, 2)), f)
	random := rand.New(rand.NewPCG(5, 1))
	for i := range 300 {
		words := 100 + 20*(i%100) + random.IntN(100)
		check := typedPut(f, a, scattered(uint64(i), words), 0)
		if err := f.flush(f.e[0], a); err != nil {
			t.Fatalf("datatype %d, of %d blocks: %v", i, words, err)
		}
		check()
		if given, taken := a.session.types.bytes, f.e[1].Usage().TypeBytes; taken > wire.MaxTypeBytes || given > taken {
			t.Fatalf("the origin counts %d bytes of definitions, the target %d", given, taken)
		}
	}
	if s := f.e[1].Stats; s.TypesRefused != 0 || s.Types != 300 {
		t.Errorf("%d definitions, %d refused", s.Types, s.TypesRefused)
	}
	f.Filter = nil
	f.atRest()
}

// A rank that defines more and more is made to wait, and nobody else.
func TestDefinitionsTakeTheirTime(t *testing.T) {
	const types, words, room = 40, 4000, 31 * 8
	f := newRanks(t, 3, types*words*room, nil)
	a, other := f.access(0, 1), f.access(2, 1)
	var checks []func()
	bytes, before, slowest := 0, f.Now, int64(0)
	for i := range types {
		typ := scattered(uint64(i), words)
		bytes += len(must(datatype.Encode(typ)))
		checks = append(checks, typedPut(f, a, typ, i*words*room))
		f.e[0].Flush(a)
		f.issue(f.e[2], &Call{Access: other, Code: wire.CodePut, Disp: 0, Origin: []byte{0}})
		began := f.Now
		if err := f.flush(f.e[2], other); err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, f.Now-began)
	}
	if err := f.flush(f.e[0], a); err != nil {
		t.Fatal(err)
	}
	for _, check := range checks {
		check()
	}
	least := decodeTime * int64(bytes-wire.MaxTypeBytes-datatype.MaxEncoded)
	if took := f.Now - before; took < least || took > 4*least || slowest > millisecond {
		t.Errorf("%d bytes of definitions took %d us, want %d; the other rank waited for up to %d us", bytes, took/1000, least/1000, slowest/1000)
	}
	if s := f.e[1].Stats; s.Types != types || s.TypesRefused != 0 {
		t.Errorf("%d definitions, %d refused", s.Types, s.TypesRefused)
	}
	f.atRest()
}

// Under a lock that another rank holds first, with a definition that cannot wait
// in the lock's queue, and with one that is there already.
func TestTypedUnderContendedLock(t *testing.T) {
	f := newRanks(t, 3, 1<<16, nil)
	a, b := f.access(0, 1), f.access(2, 1)
	free := f.e[0].OpenAccess(a.session, testWindow) // the same access: one a window
	if free != a {
		t.Fatal("two accesses to one window")
	}
	typ, other := scattered(1, 20), scattered(2, 20)
	for round, types := range [][]*datatype.Type{{typ}, {typ, other}, {other, typ}} {
		f.Until(1000*millisecond, func() bool { return f.e[2].Lock(b, true) })
		f.Until(1000*millisecond, (*LockWait)(b).Met)
		f.Until(1000*millisecond, func() bool { return f.e[0].Lock(a, true) })
		data := noise(160)
		calls, mine := make([]*Call, len(types)), bytes.Clone(data)
		clear(f.mem[1])
		for i, typ := range types {
			calls[i] = &Call{Access: a, Code: wire.CodePut, Typed: f.e[0].Typed(&Local{Mem: mine}, &Local{}, typ, 1, typ.Size())}
		}
		issue := func() bool {
			for len(calls) > 0 {
				if done, err := f.e[0].Issue(calls[0]); err != nil || !done {
					return false
				}
				calls = calls[1:]
			}
			return true
		}
		for range 10 { // with the lock, or kept back until it is granted
			issue()
			f.Settle()
		}
		if len(calls) > 0 {
			t.Fatalf("round %d: a call waits for the lock", round)
		}
		clear(mine) // it is the caller's again
		f.Pass(100 * millisecond)
		if !bytes.Equal(f.mem[1], make([]byte, len(f.mem[1]))) {
			t.Fatalf("round %d: a put took effect before its lock was granted", round)
		}
		f.Until(1000*millisecond, func() bool { return f.e[2].Unlock(b) })
		f.Until(1000*millisecond, func() bool { return f.e[0].Unlock(a) })
		f.Until(1000*millisecond, (*UnlockWait)(a).Met)
		a.Unlocked()
		if err := errors.Join(a.TakeError(), b.TakeError()); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		last := types[len(types)-1]
		if got := (&Local{Mem: f.mem[1], Type: last, Count: 1}).gather(); !bytes.Equal(got, data) {
			t.Fatalf("round %d: wrong bytes", round)
		}
	}
	f.atRest()
}

// A request that waits in a lock's queue counts as applied, but the id that it
// names is not given to another datatype.
func TestTypeInLockQueueKeepsItsID(t *testing.T) {
	other := make([]byte, 1<<16)
	f := newRanks(t, 3, 1<<16, func(c *setup) {
		if c.Rank != 1 {
			return
		}
		w, err := windows.New(windows.Config{ID: testWindow + 1, Flavor: window.FlavorCreate, Memory: windows.Slice(other), Size: len(other), DispUnit: 1, GroupSize: 3})
		if err == nil {
			err = c.Windows.Add(w)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	e := f.e[0]
	a, b := f.access(0, 1), f.access(2, 1)
	elsewhere := e.OpenAccess(a.session, testWindow+1)
	typ := scattered(1, 20)
	typedPut(f, elsewhere, typ, 0)
	if err := f.flush(e, elsewhere); err != nil {
		t.Fatal(err)
	}
	f.Until(1000*millisecond, func() bool { return f.e[2].Lock(b, true) })
	f.Until(1000*millisecond, (*LockWait)(b).Met)
	f.Until(1000*millisecond, func() bool { return e.Lock(a, true) })
	data := noise(typ.Size())
	if done, err := e.Issue(&Call{Access: a, Code: wire.CodePut, Typed: e.Typed(&Local{Mem: data}, &Local{}, typ, 1, len(data))}); err != nil || !done {
		t.Fatal("the put does not travel with the lock")
	}
	for i := range 2 * wire.MaxTypes {
		typedPut(f, elsewhere, scattered(uint64(i+2), 20), 0)
		if i%50 == 0 {
			if err := f.flush(e, elsewhere); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.Until(1000*millisecond, func() bool { return f.e[2].Unlock(b) })
	f.Until(1000*millisecond, func() bool { return e.Unlock(a) })
	f.Until(1000*millisecond, (*UnlockWait)(a).Met)
	a.Unlocked()
	if err := errors.Join(a.TakeError(), b.TakeError(), f.flush(e, elsewhere)); err != nil {
		t.Fatal(err)
	}
	if got := (&Local{Mem: f.mem[1], Type: typ, Count: 1}).gather(); !bytes.Equal(got, data) {
		t.Error("the put under the lock went elsewhere")
	}
	f.atRest()
}

// A request that is late finds the datatype that its id meant when it was sent.
func TestTypeOfLateRequestKeepsItsID(t *testing.T) {
	f := newRanks(t, 2, 1<<17, nil)
	a := f.access(0, 1)
	typ := scattered(1, 20)
	typedPut(f, a, typ, 1<<16)
	if err := f.flush(f.e[0], a); err != nil {
		t.Fatal(err)
	}
	check := typedPut(f, a, typ, 0)
	late, held := a.lastSeq, 0
	f.Filter = func(from, _ int, payload []byte) int {
		var h wire.Header
		if h.Decode(payload) == wire.OK && from == 0 && h.Kind == wire.KindData && h.Sequence == late {
			held++
			return 0
		}
		return 1
	}
	for i := range 2 * wire.MaxTypes {
		typedPut(f, a, scattered(uint64(i+2), 20), 1<<16)
	}
	if held == 0 || a.session.Acked(link.Request) > late {
		t.Fatal("nothing is late")
	}
	f.Filter = nil
	if err := f.flush(f.e[0], a); err != nil {
		t.Fatal(err)
	}
	check()
	f.atRest()
}

// A datatype that is freed in the middle of a transfer, at every place.
func TestTypeFreedDuringTransfer(t *testing.T) {
	f := newRanks(t, 2, 1<<21, nil)
	a := f.access(0, 1)
	for _, code := range []wire.Code{wire.CodePut, wire.CodeGet, wire.CodeGetAccumulate} {
		typ := committed(datatype.Vector(60_000, 1, 2, datatype.Uint64))
		mine := committed(datatype.Vector(60_000, 1, 3, datatype.Uint64))
		origin, result := local(rand.New(rand.NewPCG(1, 1)), mine, 1), local(rand.New(rand.NewPCG(1, 2)), mine, 1)
		want := (&Local{Mem: f.mem[1], Type: typ, Count: 1}).gather()
		sent := origin.gather()
		c := &Call{Access: a, Code: code, Op: datatype.Replace, Basic: datatype.BasicUint64}
		if code == wire.CodePut {
			result = &Local{}
		}
		c.Typed = f.e[0].Typed(origin, result, typ, 1, typ.Size())
		if done, _ := f.e[0].Issue(c); done && code != wire.CodeGet {
			t.Fatal("all was sent at once")
		}
		at, mineAt := places(typ, 1), places(mine, 1)
		if err := errors.Join(typ.Free(), mine.Free()); err != nil {
			t.Fatal(err)
		}
		if c.Typed != nil {
			f.issue(f.e[0], c)
		}
		if err := f.flush(f.e[0], a); err != nil {
			t.Fatal(err)
		}
		for i := range at {
			if code != wire.CodeGet && f.mem[1][at[i]] != sent[i] || code != wire.CodePut && result.Mem[result.Base+mineAt[i]] != want[i] {
				t.Fatalf("%v: byte %d of the data is wrong", code, i)
			}
		}
	}
	f.atRest()
}

// A faulty peer may send these instead of a definition or of a request that uses one.
func TestFaultyDefinitions(t *testing.T) {
	vector := must(datatype.Encode(committed(datatype.Vector(3, 1, 2, datatype.Uint64))))
	define := func(id, offset uint32, flags uint8, data []byte) wire.Record {
		r := wire.TypePiece{Window: testWindow, Type: id, Offset: offset, Last: flags&wire.FlagLast != 0}.Record()
		r.Data = data
		return r
	}
	whole := define(3, 0, wire.FlagLast, vector)
	use := func(code wire.Code, l wire.Layout, disp uint64, data ...byte) wire.Record {
		b := make([]byte, wire.LayoutLen+len(data))
		copy(l.Put(b), data)
		return wire.Record{Code: code, Basic: uint8(datatype.BasicUint64), Op: uint8(datatype.Sum), Flags: wire.FlagTyped, Window: testWindow, Disp: disp, Data: b}
	}
	word := make([]byte, 8)
	one := wire.Layout{Type: 3, Count: 1}
	part := func(want uint32) []byte {
		b := make([]byte, wire.PartLen)
		wire.PutPart(b, 0, want)
		return b
	}
	crooked := use(wire.CodePut, one, 0, word...)
	crooked.Data[5] = 1
	wrongBasic := use(wire.CodeAccumulate, one, 0, word...)
	wrongBasic.Basic = uint8(datatype.BasicInt64)
	noOp := use(wire.CodeAccumulate, one, 0, word...)
	noOp.Op = uint8(datatype.NoOp)
	for _, tt := range []struct {
		name    string
		records []wire.Record
		class   mpierr.Class
	}{
		{"whole", []wire.Record{whole, use(wire.CodePut, one, 0, word...)}, mpierr.Success},
		{"again", []wire.Record{whole, whole, use(wire.CodePut, one, 0, word...)}, mpierr.Success},
		{"in pieces", []wire.Record{define(3, 0, 0, vector[:2]), define(3, 2, wire.FlagLast, vector[2:]), use(wire.CodePut, one, 0, word...)}, mpierr.Success},
		{"no data at all", []wire.Record{whole, use(wire.CodePut, one, 0)}, mpierr.Success},
		{"unknown id", []wire.Record{use(wire.CodePut, one, 0, word...)}, mpierr.Type},
		{"id out of range", []wire.Record{define(wire.MaxTypes, 0, wire.FlagLast, vector)}, mpierr.Type},
		{"use of an id out of range", []wire.Record{whole, use(wire.CodePut, wire.Layout{Type: 1 << 31, Count: 1}, 0, word...)}, mpierr.Type},
		{"incomplete", []wire.Record{define(3, 0, 0, vector[:2]), use(wire.CodePut, one, 0, word...)}, mpierr.Type},
		{"piece missing", []wire.Record{define(3, 0, 0, vector[:2]), define(3, 3, wire.FlagLast, vector[3:])}, mpierr.Type},
		{"piece after the end", []wire.Record{whole, define(3, uint32(len(vector)), wire.FlagLast, vector)}, mpierr.Type},
		{"begins in the middle", []wire.Record{define(3, 2, wire.FlagLast, vector[2:])}, mpierr.Type},
		{"no encoding", []wire.Record{define(3, 0, wire.FlagLast, []byte{9, 9, 9})}, mpierr.Type},
		{"nothing", []wire.Record{define(3, 0, wire.FlagLast, nil)}, mpierr.Type},
		{"refused, then used", []wire.Record{define(3, 0, wire.FlagLast, []byte{9, 9, 9}), use(wire.CodePut, one, 0, word...)}, mpierr.Type},
		{"no layout", []wire.Record{whole, {Code: wire.CodePut, Flags: wire.FlagTyped, Window: testWindow, Data: word}}, mpierr.Intern},
		{"reserved field", []wire.Record{whole, crooked}, mpierr.Intern},
		{"compare and swap", []wire.Record{whole, use(wire.CodeCompareSwap, one, 0, make([]byte, 16)...)}, mpierr.Intern},
		{"count too large", []wire.Record{whole, use(wire.CodePut, wire.Layout{Type: 3, Count: 1 << 60}, 0, word...)}, mpierr.Count},
		{"count negative", []wire.Record{whole, use(wire.CodePut, wire.Layout{Type: 3, Count: 1 << 63}, 0, word...)}, mpierr.Count},
		{"no entries", []wire.Record{whole, use(wire.CodePut, wire.Layout{Type: 3}, 0, word...)}, mpierr.Count},
		{"position beyond", []wire.Record{whole, use(wire.CodePut, wire.Layout{Type: 3, Count: 1, Position: 25}, 0, word...)}, mpierr.Count},
		{"position far beyond", []wire.Record{whole, use(wire.CodePut, wire.Layout{Type: 3, Count: 1, Position: 1<<64 - 8}, 0, word...)}, mpierr.Count},
		{"data beyond", []wire.Record{whole, use(wire.CodePut, wire.Layout{Type: 3, Count: 1, Position: 24}, 0, word...)}, mpierr.Count},
		{"behind the window", []wire.Record{whole, use(wire.CodePut, one, 64-32, word...)}, mpierr.RMARange},
		{"far behind the window", []wire.Record{whole, use(wire.CodePut, one, 1<<64-16, word...)}, mpierr.RMARange},
		{"get behind the window", []wire.Record{whole, use(wire.CodeGet, one, 32, part(8)...)}, mpierr.RMARange},
		{"get of too much", []wire.Record{whole, use(wire.CodeGet, one, 0, part(25)...)}, mpierr.Count},
		{"get without a part", []wire.Record{whole, use(wire.CodeGet, one, 0)}, mpierr.Intern},
		{"accumulate of another type", []wire.Record{whole, wrongBasic}, mpierr.Type},
		{"accumulate inside an element", []wire.Record{whole, use(wire.CodeAccumulate, wire.Layout{Type: 3, Count: 1, Position: 4}, 0, word...)}, mpierr.Count},
		{"accumulate of half an element", []wire.Record{whole, use(wire.CodeAccumulate, one, 0, word[:4]...)}, mpierr.Count},
		{"accumulate off its alignment", []wire.Record{whole, use(wire.CodeAccumulate, one, 4, word...)}, mpierr.Disp},
		{"accumulate with no_op", []wire.Record{whole, noOp}, mpierr.Op},
		{"get_accumulate without a part", []wire.Record{whole, use(wire.CodeGetAccumulate, one, 0)}, mpierr.Intern},
		{"get_accumulate of more than a frame", []wire.Record{whole, use(wire.CodeGetAccumulate, one, 0, part(1<<20)...)}, mpierr.Size},
		{"get_accumulate with another operand", []wire.Record{whole, use(wire.CodeGetAccumulate, one, 0, append(part(16), word...)...)}, mpierr.Count},
	} {
		f := newRanks(t, 2, 64, nil)
		a := f.access(0, 1)
		e, s := f.e[0], a.session
		for _, r := range tt.records {
			data := r.Data
			if answered(r.Code) {
				o := e.newOp(a, make([]byte, 64))
				r.Token = e.token(o)
			}
			copy(e.add(a, s.Room(link.Request, len(data)), &r, len(data), 0), data)
		}
		if err := f.flush(e, a); mpierr.ClassOf(err) != tt.class {
			t.Errorf("%s: %v, want class %v", tt.name, err, tt.class)
		}
		if tt.class != mpierr.Success && f.e[1].Stats.Refused == 0 {
			t.Errorf("%s: not counted", tt.name)
		}
		if !bytes.Equal(f.mem[1], make([]byte, 64)) {
			t.Errorf("%s: the window has changed", tt.name)
		}
	}
}

// All peers together may define a bounded number of datatypes. A peer that finds no room
// is told once, and then goes without.
func TestTypesBeyondTargetsMemory(t *testing.T) {
	f := newRanks(t, 2, 1<<20, func(c *setup) { c.MaxTypeBytes = 1000 })
	a := f.access(0, 1)
	small, large := scattered(1, 10), scattered(2, 2000)
	if check := typedPut(f, a, small, 0); f.flush(f.e[0], a) == nil {
		check()
	}
	typedPut(f, a, large, 0)
	if err := f.flush(f.e[0], a); !errors.Is(err, mpierr.NoMem) {
		t.Errorf("a definition beyond the limit: %v", err)
	}
	for _, typ := range []*datatype.Type{small, large, small} {
		check := typedPut(f, a, typ, 0)
		if err := f.flush(f.e[0], a); err != nil {
			t.Fatal(err)
		}
		check()
	}
	if s := f.e[1].Stats; s.Types != 1 || s.TypesRefused == 0 || f.e[1].Usage().TypeBytes > 1000 {
		t.Errorf("%d definitions, %d pieces refused, %d bytes", s.Types, s.TypesRefused, f.e[1].Usage().TypeBytes)
	}
	f.atRest()
}
