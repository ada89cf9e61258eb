package bpf_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/bpf"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/twin"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// The program and its twin in Go do the same with the same frames: they say the same,
// give the same answers, and leave the same memory behind.
func TestTwinsAgree(t *testing.T) {
	for name, load := range map[string]func(*testing.T) *tier{
		"with CAP_PERFMON":    func(t *testing.T) *tier { return loadForm(t, true) },
		"without CAP_PERFMON": func(t *testing.T) *tier { return loadForm(t, false) },
		"shared by XDP":       func(t *testing.T) *tier { return loadShared(t, bpf.LoadShared) },
		"shared at tcx":       func(t *testing.T) *tier { return loadShared(t, bpf.LoadSharedTCX) },
	} {
		t.Run(name, func(t *testing.T) { twinsAgree(t, load(t)) })
	}
}

func twinsAgree(t *testing.T, p *tier) {
	other := heapSide()
	seed, frames := rand.Uint64(), 100_000
	if testing.Short() {
		frames = 10_000
	}
	t.Logf("seed %#x", seed)
	f := source{rand.New(rand.NewPCG(seed, 0))}
	var times [numCounters]uint64
	missing := func() (list []string) {
		for why := twin.None; why < twin.NumReasons; why++ {
			// Nothing interrupts the twins, neither knows another path, and the ring has room.
			if why != twin.Interrupted && why != twin.Path && why != twin.NoRoom && times[counterOf(why)] == 0 {
				list = append(list, why.String())
			}
		}
		return list
	}
	for n := 0; n < frames || n < 1_000_000 && len(missing()) > 0; n++ { // some outcomes are rare
		i := f.below(numSlots + 1)
		if f.IntN(3) > 0 {
			i = f.IntN(2) // without keys, or with
		}
		if i < numSlots {
			f.disturb(i, &p.side, other)
		}
		p.both(t, other, i, f.next(i, other), &times)
		if n%256 == 0 {
			p.compare(t, other, true)
		}
	}
	p.compare(t, other, true)
	for c := range numCounters {
		if got := p.counted(t, c); got != times[c] {
			t.Errorf("counter %d: %d, want %d", c, got, times[c])
		}
	}
	if list := missing(); len(list) > 0 {
		t.Errorf("no frame met with: %q", list)
	}
	for _, why := range []twin.Reason{twin.Interrupted, twin.Path, twin.NoRoom} {
		if n := times[counterOf(why)]; n > 0 {
			t.Errorf("%v: %d times", why, n)
		}
	}
}

// The twins agree on the frames of which a fuzzer found that they take another way through
// the one in Go.
func TestTwinsAgreeOnTheCorpus(t *testing.T) {
	files, err := filepath.Glob("../internal/lab/twin/testdata/fuzz/FuzzServe/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	p, other := loadTier(t), heapSide()
	var times [numCounters]uint64
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		quoted := strings.TrimSuffix(strings.TrimPrefix(string(text), "go test fuzz v1\n[]byte("), ")\n")
		b, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		frame := append([]byte(b), make([]byte, max(0, wire.HeaderLen-len(b)))...)
		head := request(express.Header{Session: session, Exchange: 1, Try: 1})
		copy(frame[:6], head)
		copy(frame[8:16], head[8:16])
		if len(frame) > 1400 {
			continue // longer than a frame is
		}
		copy(frame[32:40], head[32:40])
		for i := range 2 { // without keys, and with
			for _, s := range []*side{&p.side, other} {
				s.tables.OpenSlot(i, express.Slot{Session: sessionOf(i), PeerSession: peerSession, Rank: memberRank, Keys: keysOf(i)})
			}
			le.PutUint64(frame[8:], sessionOf(i))
			again := bytes.Clone(frame)
			express.Sign(again, keyOf(i))
			for range 2 {
				p.both(t, other, i, again, &times)
			}
		}
	}
	p.compare(t, other, true)
}

// source makes frames that are valid, hostile or damaged.
type source struct{ *rand.Rand }

func (f source) below(n int) int { return f.IntN(n) }
func (f source) one(n int) bool  { return f.IntN(n) == 0 }

// disturb changes the state of slot i and of the lock, on both sides alike, as another
// processor or process would.
func (f source) disturb(i int, sides ...*side) {
	at := i * express.SlotLen
	word := le.Uint64(sides[0].slots[at:])
	lock, change := wideLock, f.IntN(60)
	for _, s := range sides {
		switch change {
		case 0: // under way
			le.PutUint64(s.slots[at:], word|3^1)
		case 1: // interrupted before its first record, or later
			le.PutUint64(s.slots[at:], (word>>2+1)<<2)
			le.PutUint64(s.slots[at+40:], word>>6%2<<48|word>>2%4<<40|word>>5%2<<33)
			le.PutUint64(s.slots[at+48:], word>>4%2*(wideWindow+1)) // whose lock it holds
		case 2: // taken as a bundle, or executed but for some records
			fate := uint64(express.FateTaken)
			if word>>2%2 == 0 {
				fate = word >> 2 & 0xfe
			}
			le.PutUint64(s.slots[at:], (word>>2+1)<<2|3)
			le.PutUint64(s.slots[at+40:], word>>6%2<<48|fate<<32)
		case 3: // done at last
			le.PutUint64(s.slots[at:], word|3)
		case 4: // held by another
			le.PutUint64(s.chunks[0][lock:], 1<<3)
		case 5: // exclusively
			le.PutUint64(s.chunks[0][lock:], 1<<3|1<<62)
		case 6: // held by the program, and awaited
			le.PutUint64(s.chunks[0][lock:], 1<<1|1<<63)
		case 13: // held by the program on another processor
			le.PutUint64(s.chunks[0][lock:], 1<<1)
		case 14: // awaited
			le.PutUint64(s.chunks[0][lock:], 1<<63)
		case 7:
			le.PutUint64(s.chunks[0][lock+64:], 1)
		case 15: // somebody waits for a notification
			at := smallCounts + int(word>>2%(numCounting+4))*windows.CounterLen
			le.PutUint64(s.chunks[0][at+8:], le.Uint64(s.chunks[0][at:])+word>>8%4)
		case 8, 9, 10, 11, 12:
			le.PutUint64(s.chunks[0][lock:], 0)
			le.PutUint64(s.chunks[0][lock+64:], 0)
		}
	}
}

// next makes a frame for slot i, whose state is that of other.
func (f source) next(i int, other *side) []byte {
	h := express.Header{Session: sessionOf(i), Try: 1 + uint64(f.IntN(3)), Ordered: f.one(2), Exchange: 1}
	if i < numSlots {
		word := le.Uint64(other.slots[i*express.SlotLen:])
		h.Exchange = word >> 2
		if word&3 == 3 {
			h.Exchange++
		}
		if f.one(8) {
			h.Exchange += uint64(f.IntN(4)) - 2
		}
	}
	if f.one(40) {
		h.Flags = wire.FlagUser
	}
	if f.one(10) {
		return f.answer(i, h)
	}
	var list []record
	locked := f.one(4)
	if locked {
		list = append(list, record{wire.Record{Code: wire.CodeLock, Window: wideWindow, Flags: uint8(f.IntN(2))}, nil})
	}
	for range 1 + f.IntN(2)*f.IntN(4) {
		list = append(list, f.record())
		if r := &list[len(list)-1]; r.Code == wire.CodeCompareSwap && f.one(2) {
			f.expect(r, other)
		}
	}
	if locked {
		r := record{wire.Record{Code: wire.CodeUnlock, Window: wideWindow}, nil}
		if f.one(30) {
			r.Window = smallWindow
		}
		list = append(list, r)
	}
	if f.one(60) {
		f.Shuffle(len(list), func(a, b int) { list[a], list[b] = list[b], list[a] })
	}
	b := signed(keyOf(i), h, list[:min(len(list), express.MaxRecords)]...)
	if len(b) > express.MaxPayload {
		b = b[:express.MaxPayload]
	}
	return f.forge(f.damage(b, i), i)
}

// answer makes an answer to a request of this rank in the session of slot i.
func (f source) answer(i int, h express.Header) []byte {
	h.Flags, h.Fate, h.User, h.Ordered = wire.FlagResponse, uint8(f.IntN(8)/7*f.IntN(256)), f.one(2), false
	b := make([]byte, wire.HeaderLen+8*f.IntN(1+f.IntN(2)*f.IntN(express.MaxResults/8+1)))
	for at := wire.HeaderLen; at < len(b); at++ {
		b[at] = byte(f.Uint32())
	}
	express.Request(b, h, answeredKeyOf(i))
	return f.forge(f.damage(b, i), i)
}

// expect makes a compare_and_swap compare with the value that is there.
func (f source) expect(r *record, other *side) {
	chunk := other.chunks[0]
	if r.Window == smallWindow {
		chunk = other.chunks[1]
	}
	if n := uint64(len(r.data) / 2); r.Disp <= uint64(len(chunk))-n {
		copy(r.data[:n], chunk[r.Disp:])
	}
}

// forge gives some frames of slot i a code or checksum that is not the sender's.
func (f source) forge(b []byte, i int) []byte {
	if !f.one(20) {
		return b
	}
	sum, code := b[16:20], b[40:48]
	switch f.IntN(8) {
	case 7: // of an answer to this rank
		express.Sign(b, &keysOf(i|1).Answered)
	case 0: // of the other level
		if keyOf(i) != nil {
			express.Sign(b, nil)
		} else {
			express.Sign(b, keyOf(1))
		}
	case 1: // of another session
		express.Sign(b, keyOf((i|1)+2))
	case 2: // of an answer
		express.Sign(b, &keysOf(i|1).Answers)
	case 3:
		clear(code)
	case 4:
		code[f.IntN(8)] ^= 1 << f.IntN(8)
	case 5: // a code, and a checksum
		le.PutUint32(sum, express.Checksum(b))
	case 6:
		sum[f.IntN(4)] ^= 1 << f.IntN(8)
	}
	return b
}

// damage changes some frames, and makes the checksum or code of some of them right again.
func (f source) damage(b []byte, i int) []byte {
	if !f.one(5) {
		return b
	}
	switch f.IntN(4) {
	case 0:
		b = b[:wire.HeaderLen+f.IntN(len(b)-wire.HeaderLen+1)]
	case 1:
		b = append(b, make([]byte, f.IntN(17))...)
	}
	for range f.IntN(3) {
		at := 6 + f.IntN(min(len(b)-6, 160))
		if at >= 8 && at < 16 { // the session is that of the slot
			continue
		}
		b[at] ^= 1 << f.IntN(8)
	}
	if !f.one(5) {
		key := keyOf(i)
		if b[6]&wire.FlagResponse != 0 {
			key = answeredKeyOf(i)
		}
		express.Sign(b, key)
	}
	return b
}

// By the table, the datatypes of which the program combines elements, and the operators by which
// it combines one, and several.
var (
	combined  = twin.Codes(func(b datatype.Basic) bool { return wire.TierSize(b) > 0 })
	combining = twin.Codes(func(o datatype.Op) bool { return wire.TierElements(o, 8) > 0 })
	several   = twin.Codes(func(o datatype.Op) bool { return wire.TierElements(o, 8) > 1 })
)

// record makes a record, most often one that is executed.
func (f source) record() record {
	r := wire.Record{Window: wideWindow, Token: f.Uint32()}
	size, limit := 1<<f.IntN(4), wideLen
	if f.one(4) {
		r.Window, limit = smallWindow, smallLen
	}
	if f.one(50) {
		r.Window = []uint32{goneWindow, nextWindow, 7, 1<<32 - 1}[f.IntN(4)]
	}
	r.Basic = uint8(combined[f.IntN(len(combined))])
	if f.one(50) {
		r.Basic = uint8(f.IntN(24))
	}
	basic := max(datatype.Basic(r.Basic).Size(), 1)
	r.Op = uint8(combining[f.IntN(len(combining))])
	if f.one(50) {
		r.Op = uint8(f.IntN(20))
	}
	n := basic
	if f.one(3) {
		n *= 1 + f.IntN(17)
		r.Op = uint8(several[f.IntN(len(several))])
	}
	data := f.data(n)
	part := func(want int, data []byte) []byte {
		b := make([]byte, wire.PartLen, wire.PartLen+len(data))
		wire.PutPart(b, uint32(f.IntN(60)/59), uint32(want))
		return append(b, data...)
	}
	moved := []int{1, 2, 4, 8, 8 * (1 + f.IntN(4)), 1 + f.IntN(60), 1 + f.IntN(express.MaxResults+8)}[f.IntN(7)]
	align := basic
	switch f.IntN(5) {
	case 0:
		r.Code, data, align = wire.CodePut, f.data(min(moved, 1128)), 8
	case 1:
		r.Code, data, align = wire.CodeGet, part(moved, nil), 8
	case 2:
		r.Code = wire.CodeAccumulate
	case 3:
		r.Code = wire.CodeGetAccumulate
		if datatype.Op(r.Op) == datatype.NoOp {
			data = nil
		}
		data = part(n, data)
	case 4:
		r.Code, data = wire.CodeCompareSwap, f.data(2*basic)
	}
	if f.one(50) {
		r.Code = wire.Code(f.IntN(40))
	}
	if f.one(10) {
		r = wire.Record{Code: wire.CodeNotify, Window: r.Window, Flags: uint8(f.IntN(2)), Token: r.Token}
		data = f.data(f.IntN(30) / 29)
	}
	if f.one(3) {
		r.Token = uint32(f.IntN(numCounting + 1))
		if r.Window == smallWindow {
			r.Token %= 5
		}
		if r.Code != wire.CodeNotify && !f.one(20) {
			r.Flags = wire.FlagNotify
		}
	}
	if f.one(100) {
		r.Flags = uint8(f.IntN(16))
	}
	r.Disp = f.place(limit)
	switch {
	case align == 8 && (r.Code == wire.CodePut || r.Code == wire.CodeGet) && f.one(2):
		r.Disp = r.Disp / uint64(size) * uint64(size)
	case !f.one(30):
		r.Disp = r.Disp / uint64(align) * uint64(align)
	}
	return record{r, data}
}

// data is random, often of small numbers.
func (f source) data(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(f.Uint32())
		if n <= 16 && f.one(2) {
			b[i] = 0
		}
	}
	return b
}

// place is a displacement: often one of few, near an end of a page or of the window, or
// outside.
func (f source) place(limit int) uint64 {
	switch f.IntN(12) {
	case 0:
		return uint64(limit - 24 + f.IntN(48))
	case 1:
		return uint64(express.PageLen - wideBase - 32 + f.IntN(64))
	case 2:
		return uint64(express.PageLen - wideBase - express.MaxResults - 8 + f.IntN(32))
	case 3:
		return uint64(f.IntN(limit))
	case 4:
		if f.one(4) {
			return f.Uint64() >> f.IntN(64)
		}
	}
	return uint64(f.IntN(64))
}
