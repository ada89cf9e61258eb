package twin

import (
	"bytes"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/window"
)

// with returns r changed.
func with(r record, change func(*record)) record {
	change(&r)
	return r
}

func flagged(r record, flags uint8) record { return with(r, func(r *record) { r.Flags = flags }) }
func at(r record, disp uint64) record      { return with(r, func(r *record) { r.Disp = disp }) }
func of(r record, window uint32) record    { return with(r, func(r *record) { r.Window = window }) }

func accumulate(b datatype.Basic, op datatype.Op, n int) record {
	return record{wire.Record{Code: wire.CodeAccumulate, Window: id, Basic: uint8(b), Op: uint8(op)}, make([]byte, n)}
}

func swap(b datatype.Basic, n int) record {
	return record{wire.Record{Code: wire.CodeCompareSwap, Window: id, Basic: uint8(b)}, make([]byte, n)}
}

// The first record that is not executed here decides, and nothing is claimed or changed.
func TestRequestsForUserSpace(t *testing.T) {
	const last = express.PageLen - express.MaxResults
	list := func(r ...record) []record { return r }
	for _, c := range []struct {
		name string
		list []record
		want Reason
	}{
		{"put", list(put(0, "12345678")), None},
		{"put to the end", list(put(size-8, "12345678")), None},
		{"put beyond the end", list(put(size, "12345678")), Bounds},
		{"put across the end", list(put(size-8, "123456789")), Bounds},
		{"put far away", list(put(1<<63, "x")), Bounds},
		{"put of nothing", list(put(0, "")), Operation},
		{"put not aligned", list(put(4, "12345678")), Operation},
		{"put of 4 not aligned", list(put(2, "1234")), Operation},
		{"put of 4", list(put(4, "1234")), None},
		{"put of 2", list(put(6, "12")), None},
		{"put of 1", list(put(7, "1")), None},
		{"put of 3", list(put(8, "123")), None},
		{"put of 3 not aligned", list(put(4, "123")), Operation},
		{"typed", list(flagged(put(0, "12345678"), wire.FlagTyped)), Operation},
		{"8 bytes at the end of a page", list(put(express.PageLen-8, "12345678")), None},
		{"9 bytes late in a page", list(put(last+8, "123456789")), Bounds},
		{"9 bytes at the last place for them", list(put(last, "123456789")), None},
		{"get late in a page", list(get(last+8, 16)), Bounds},
		{"get", list(get(last, express.MaxResults)), None},
		{"get of nothing", list(get(0, 0)), Operation},
		{"get of too much", list(get(0, express.MaxResults+1)), Operation},
		{"get from an offset", list(with(get(0, 8), func(r *record) { r.data[0] = 8 })), Operation},
		{"get without a part", list(with(get(0, 8), func(r *record) { r.data = r.data[:4] })), Operation},
		{"get with more", list(with(get(0, 8), func(r *record) { r.data = append(r.data, 0) })), Operation},
		{"no such window", list(of(put(0, "x"), id+1)), NoWindow},
		{"window in the same place", list(of(put(0, "x"), id^0x101)), NoWindow},
		{"accumulate", list(accumulate(datatype.BasicInt64, datatype.Prod, 8)), None},
		{"accumulate across pages", list(at(accumulate(datatype.BasicInt64, datatype.Sum, 16), express.PageLen-8)), Bounds},
		{"accumulate late in a page", list(at(accumulate(datatype.BasicInt64, datatype.Sum, 16), express.PageLen-16)), None},
		{"16 elements", list(accumulate(datatype.BasicInt64, datatype.Replace, 128)), None},
		{"17 elements", list(accumulate(datatype.BasicInt64, datatype.Replace, 136)), Operation},
		{"several products", list(accumulate(datatype.BasicInt64, datatype.Prod, 16)), Operation},
		{"several of 2 bytes", list(accumulate(datatype.BasicInt16, datatype.Sum, 4)), Operation},
		{"part of an element", list(accumulate(datatype.BasicInt64, datatype.Sum, 12)), Operation},
		{"not aligned", list(at(accumulate(datatype.BasicInt64, datatype.Sum, 8), 4)), Operation},
		{"float", list(accumulate(datatype.BasicFloat64, datatype.Sum, 8)), Operation},
		{"bool", list(accumulate(datatype.BasicBool, datatype.LOr, 1)), Operation},
		{"no type", list(accumulate(0, datatype.Sum, 8)), Operation},
		{"no operator", list(accumulate(datatype.BasicInt8, 0, 1)), Operation},
		{"minloc", list(accumulate(datatype.BasicInt8, datatype.MinLoc, 1)), Operation},
		{"fetch", list(fetch(datatype.Min, 1)), None},
		{"fetch without an operand", list(with(fetch(datatype.Min, 1), func(r *record) { r.data = r.data[:8] })), Operation},
		{"atomic read", list(with(fetch(datatype.NoOp, 1), func(r *record) { r.data = r.data[:8] })), None},
		{"atomic read with an operand", list(fetch(datatype.NoOp, 1)), Operation},
		{"compare and swap", list(swap(datatype.BasicInt16, 4)), None},
		{"compare and swap of a float", list(swap(datatype.BasicFloat64, 16)), Operation},
		{"compare and swap without a value", list(swap(datatype.BasicInt16, 2)), Operation},
		{"compare and swap not aligned", list(at(swap(datatype.BasicInt16, 4), 1)), Operation},
		{"8 records", []record{put(0, "1"), put(0, "2"), put(0, "3"), put(0, "4"), put(0, "5"), put(0, "6"), put(0, "7"), put(0, "8")}, None},
		{"the last is bad", list(put(0, "x"), put(0, "x"), put(size, "x")), Bounds},
		{"message", list(record{wire.Record{Code: wire.CodeMessage, Window: id}, nil}), Operation},
		{"response", list(record{wire.Record{Code: wire.CodeResult, Window: id}, nil}), Operation},
		{"code 0", list(record{wire.Record{Window: id}, nil}), Operation},
		{"lock without unlock", list(lock(0), put(0, "x")), Operation},
		{"unlock without lock", list(put(0, "x"), unlock()), Operation},
		{"lock alone", list(lock(0)), Operation},
		{"unlock alone", list(unlock()), Operation},
		{"lock in the middle", list(put(0, "x"), lock(0), unlock()), Operation},
		{"unlock in the middle", list(lock(0), unlock(), put(0, "x")), Operation},
		{"unlock of another window", list(lock(0), of(unlock(), id+1)), NoWindow},
		{"lock and unlock", list(lock(0), unlock()), None},
		{"passing lock", list(lock(wire.FlagPassing), unlock()), Operation},
		{"lock with data", list(with(lock(0), func(r *record) { r.data = []byte{1} }), unlock()), Operation},
		{"unlock with a flag", list(lock(0), flagged(unlock(), 1)), Operation},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := ToUser
			if c.want == None {
				v = Answer
			}
			tt := newTarget()
			tt.expect(t, request(1, c.list...), v, c.want)
			if c.want != None && tt.Place(0).Word != express.WordOf(0, express.StateDone) {
				t.Errorf("the slot is %#x", tt.Place(0).Word)
			}
		})
	}
	tt := newTarget()
	tt.OpenSlot(0, express.Slot{Session: session, PeerSession: peerSession, Rank: rank + 1})
	tt.expect(t, request(1, put(0, "x")), ToUser, NoAccess)
	tt.OpenSlot(0, express.Slot{Session: session, PeerSession: peerSession, Rank: express.MaxRank})
	tt.expect(t, request(1, put(0, "x")), ToUser, NoAccess)
	tt.CloseSlot(0)
	tt.expect(t, request(1, put(0, "x")), ToUser, NoSlot)
	if _, v, why := tt.Serve(-1, request(1, put(0, "x"))); v != ToUser || why != NoSlot {
		t.Errorf("%v, %v without a slot", v, why)
	}
}

// A frame that contradicts itself is dropped.
func TestMalformedRequests(t *testing.T) {
	for name, change := range map[string]func(b []byte) []byte{
		"longer than needed":     func(b []byte) []byte { return append(b, make([]byte, 8)...) },
		"no room for the answer": func(b []byte) []byte { return b[:len(b)-8] },
		"not a multiple of 8":    func(b []byte) []byte { return b[:len(b)-1] },
		"cut in a record":        func(b []byte) []byte { return b[:wire.HeaderLen+16] },
		"too many records":       func(b []byte) []byte { b[20] = 9; return b },
		"no records":             func(b []byte) []byte { b[20] = 0; return b },
		"more records than sent": func([]byte) []byte { b := request(1, put(0, "x")); b[20] = 2; return b },
		"a length beyond":        func(b []byte) []byte { b[wire.HeaderLen+5] = 0xff; return b },
		"a length that wraps":    func(b []byte) []byte { copy(b[wire.HeaderLen+4:], "\xff\xff\xff\xff"); return b },
		"a fate":                 func(b []byte) []byte { b[7] = 1; return b },
		"an unknown flag":        func(b []byte) []byte { b[6] = 1; return b },
		"acknowledgement":        func(b []byte) []byte { b[56] = 1; return b },
		"refusals":               func(b []byte) []byte { b[76] = 1; return b },
		"order":                  func(b []byte) []byte { b[72] = 2; return b },
		"no number":              func(b []byte) []byte { clear(b[24:32]); return b },
		"another version":        func(b []byte) []byte { b[4]++; return b },
		"another kind":           func(b []byte) []byte { b[5]--; return b },
		"another magic":          func(b []byte) []byte { b[0]++; return b },
	} {
		t.Run(name, func(t *testing.T) {
			b := change(request(1, get(0, 100)))
			le.PutUint32(b[16:], express.Checksum(b))
			newTarget().expect(t, b, Drop, BadForm)
		})
	}
	newTarget().expect(t, make([]byte, wire.HeaderLen-1), Drop, BadForm)
	long := append(request(1, get(0, express.MaxResults)), make([]byte, 8)...)
	newTarget().expect(t, long, Drop, BadForm)
	tt := newTarget()
	for i := range 8 * len(request(1, put(0, "x"))) {
		b := request(1, put(0, "x"))
		b[i/8] ^= 1 << (i % 8)
		if _, v, _ := tt.Serve(0, b); v == Answer || !bytes.Equal(tt.mem, make([]byte, len(tt.mem))) {
			t.Errorf("bit %d was changed and not noticed", i)
		}
	}
	tt = newTarget()
	tt.expect(t, request(1, get(0, 100)), Answer, None)
	tt.expect(t, request(1, put(0, "x")), Drop, BadForm) // too short for the answer
	tt.expect(t, requestOf(express.Header{Exchange: 2, Try: 1, Flags: wire.FlagUser}, put(0, "x")), ToUser, User)
	tt.expect(t, requestOf(express.Header{Exchange: 2, Try: 1, Flags: wire.FlagResponse}, put(0, "x")), Drop, BadForm)
}

// A window admits a member in the life that it was made with: whichever comes first, the
// session or the window.
func TestMembersAreLives(t *testing.T) {
	const early, life, late = 5, 6, 7
	tt, exchange := newTarget(), uint64(0)
	expose := func(group []int, lives []uint64) {
		tt.Retract(id)
		tt.Expose(express.Window{ID: id, Rights: windows.NewMembers(group, lives, nil).Bits}, tt.mem[:size], nil, nil)
	}
	greet := func(l uint64) {
		tt.CloseSlot(0)
		tt.OpenSlot(0, express.Slot{Session: session, PeerSession: peerSession, Rank: rank, Life: l})
		exchange = 0
	}
	expect := func(v Verdict, why Reason) {
		t.Helper()
		tt.expect(t, request(exchange+1, put(0, "x")), v, why)
		if v == Answer {
			exchange++
		}
	}
	expose([]int{rank}, []uint64{life}) // before any session
	greet(early)
	expect(ToUser, NoAccess)
	greet(life)
	expect(Answer, None)
	expose([]int{rank}, []uint64{life}) // during the session
	expect(Answer, None)
	greet(late)
	expect(ToUser, NoAccess)
	expose([]int{rank}, []uint64{life}) // during the session of another life
	expect(ToUser, NoAccess)
	expose([]int{rank + 1}, []uint64{late})
	expect(ToUser, NoAccess)
	expose([]int{rank + 1, rank}, []uint64{life, late})
	expect(Answer, None)
}

// TestRightsOfRecords has a rank with each set of rights ask for each kind of record, under a
// lock and without: what it has no right to goes to user space, and its neighbours in the
// window's table have other rights.
func TestRightsOfRecords(t *testing.T) {
	accumulate := func(op datatype.Op) record {
		return record{wire.Record{Code: wire.CodeAccumulate, Window: id, Basic: uint8(datatype.BasicUint64), Op: uint8(op)}, make([]byte, 8)}
	}
	noOp := record{wire.Record{Code: wire.CodeGetAccumulate, Window: id, Basic: uint8(datatype.BasicUint64), Op: uint8(datatype.NoOp)}, asked(8)}
	swap := record{wire.Record{Code: wire.CodeCompareSwap, Window: id, Basic: uint8(datatype.BasicUint64)}, make([]byte, 16)}
	tests := []struct {
		needs window.Rights
		record
	}{
		{window.MayWrite, put(0, "x")}, {window.MayRead, get(0, 8)}, {window.MayRead, noOp},
		{window.MayAccumulate, accumulate(datatype.Sum)}, {window.MayWrite, accumulate(datatype.Replace)},
		{window.MayRead | window.MayAccumulate, fetch(datatype.BXor, 1)}, {window.MayRead | window.MayWrite, fetch(datatype.Replace, 1)},
		{window.MayRead | window.MayWrite, swap},
	}
	for rights := window.MayNothing; rights <= window.MayAll; rights++ {
		tt, exchange := newTarget(), uint64(0)
		tt.Retract(id)
		others := ^rights & window.MayAll
		tt.Expose(express.Window{ID: id, Rights: windows.NewMembers([]int{rank - 1, rank, rank + 1}, nil, []window.Rights{others, rights, others}).Bits, Locks: true},
			tt.mem[:size], windows.LockWordIn(tt.words), nil)
		for _, test := range tests {
			for _, locked := range []bool{false, true} {
				list, needs := []record{test.record}, test.needs
				if locked {
					list, needs = []record{lock(0), test.record, unlock()}, needs|window.MayLock
				}
				if needs&^rights != 0 {
					tt.expect(t, request(exchange+1, list...), ToUser, NoAccess)
					continue
				}
				exchange++
				tt.expect(t, request(exchange, list...), Answer, None)
			}
		}
		if tt.held() != 0 {
			t.Errorf("rights %v: the lock is held: %x", rights, tt.held())
		}
	}
}
