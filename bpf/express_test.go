package bpf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/bpf"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/lab/twin"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/siphash"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/window"
)

const xdpTX = 3

// The ranks and windows of the tests, the same for the program and its twin.
const (
	numSlots    = 6
	memberRank  = 3
	strangeRank = 70
	peerSession = 0x0102030405060708

	wideWindow  = 5                  // of two pages less a bit, with a lock
	smallWindow = 7 + 256            // of one that is not full, without a lock
	nextWindow  = wideWindow ^ 0x101 // in the memory of smallWindow; its first place is that of wideWindow
	goneWindow  = 9
	wideBase    = 4096
	wideLen     = 2*express.PageLen - 40
	wideLock    = 2*express.PageLen + 8192 // behind it
	smallLen    = 4096 + 20

	// The counters of wideWindow end with the chunk.
	numCounting = 32
	wideCounts  = 3*express.PageLen - numCounting*windows.CounterLen
	smallCounts = wideCounts - 4*windows.CounterLen // of smallWindow, in another chunk than its memory
)

var le = binary.LittleEndian

// sessionOf is the session of slot i. The slots of the last two differ: one belongs to a
// rank that may not use smallWindow and has some rights to wideWindow, one is closed.
func sessionOf(i int) uint64 { return session + uint64(i) }

// keysOf are the keys of slot i: each second one has some.
func keysOf(i int) *express.Keys {
	if i%2 == 0 {
		return nil
	}
	return &express.Keys{Requests: siphash.Key{byte(i), 1}, Answers: siphash.Key{byte(i), 2}, Answered: siphash.Key{byte(i), 3}}
}

// keyOf is the key of requests of slot i.
func keyOf(i int) *siphash.Key {
	if keys := keysOf(i); keys != nil {
		return &keys.Requests
	}
	return nil
}

// answeredKeyOf is the key of answers that come for slot i.
func answeredKeyOf(i int) *siphash.Key {
	if keys := keysOf(i); keys != nil {
		return &keys.Answered
	}
	return nil
}

// side is the memory of one of the twins.
type side struct {
	tables         *twin.Program
	slots, windows []byte
	chunks         [2][]byte
}

func (s *side) open() {
	for i := range numSlots {
		rank := uint32(memberRank)
		if i == numSlots-2 {
			rank = strangeRank
		}
		s.tables.OpenSlot(i, express.Slot{Session: sessionOf(i), PeerSession: peerSession, Rank: rank, Keys: keysOf(i)})
	}
	s.tables.CloseSlot(numSlots - 1)
	both := windows.NewMembers([]int{memberRank, strangeRank}, nil, []window.Rights{window.MayAll, window.MayRead | window.MayAccumulate}).Bits
	member := windows.NewMembers([]int{memberRank}, nil, nil).Bits
	wide := express.Window{ID: wideWindow, Chunk: 0, Base: wideBase, LockAt: wideLock, CountersAt: wideCounts, Rights: both}
	s.tables.Expose(wide, s.chunks[0][wideBase:][:wideLen], windows.LockWordIn(s.chunks[0][wideLock:]), windows.CountersIn(s.chunks[0][wideCounts:]))
	s.tables.Expose(express.Window{ID: smallWindow, Chunk: 1, CountersAt: smallCounts, Rights: member},
		s.chunks[1][:smallLen], nil, windows.CountersIn(s.chunks[0][smallCounts:wideCounts]))
	s.tables.Expose(express.Window{ID: nextWindow, Chunk: 1, Rights: member}, s.chunks[1][:smallLen], nil, nil)
	for _, c := range s.chunks {
		for i := range c {
			c[i] = byte(i*7 + i>>8)
		}
	}
	clear(s.chunks[0][wideLock:][:windows.LockWordLen])
	clear(s.chunks[0][smallCounts:])
}

// heapSide is that of the twin in Go.
func heapSide() *side {
	s := &side{slots: make([]byte, numSlots*express.SlotLen), windows: make([]byte, express.Windows*express.WindowLen)}
	for i := range s.chunks {
		s.chunks[i] = make([]byte, (3-2*i)*express.PageLen)
	}
	s.tables = twin.New(express.NewTables(s.slots, s.windows))
	s.open()
	return s
}

// tier is the loaded program with its memory.
type tier struct {
	*classifier
	side
	answers *ringbuf.Reader
	runs    int // of both
}

// handed returns the answer that the program has put into the ring, nil if there is none.
func (p *tier) handed(t testing.TB) []byte {
	t.Helper()
	p.answers.SetDeadline(time.Unix(1, 0))
	r, err := p.answers.Read()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return r.RawSample[8:][:le.Uint64(r.RawSample)]
}

// mapped returns the memory of an array.
func mapped(t testing.TB, m *ebpf.Map) []byte {
	t.Helper()
	page := os.Getpagesize()
	n := int(m.ValueSize()) * int(m.MaxEntries())
	b, err := unix.Mmap(m.FD(), 0, (n+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatalf("map %v: %v", m, err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	return b[:n:n]
}

// withoutPerfmon calls f on a thread that has neither CAP_PERFMON nor CAP_SYS_ADMIN, which includes it.
func withoutPerfmon(f func()) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		defer close(done)
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&header, &data[0]); err != nil {
			done <- err
			return
		}
		for _, c := range []int{unix.CAP_PERFMON, unix.CAP_SYS_ADMIN} {
			data[c/32].Effective &^= 1 << (c % 32)
			data[c/32].Permitted &^= 1 << (c % 32)
		}
		if err := unix.Capset(&header, &data[0]); err != nil {
			done <- err
			return
		}
		f()
	}()
	return <-done
}

func loadTier(t testing.TB) *tier {
	t.Helper()
	return loadForm(t, true)
}

// loadForm loads the form of the program for processes with CAP_PERFMON, or the other one without it.
func loadForm(t testing.TB, perfmon bool) *tier {
	t.Helper()
	testenv.NeedsRoot(t)
	read := bpf.LoadExpress
	if !perfmon {
		testenv.NeedsFeature(t, testenv.LongPrograms)
		read = bpf.LoadUnrolled
	}
	spec, err := read()
	if err != nil {
		t.Fatal(err)
	}
	spec.Maps[bpf.ClassifierMapSlots].MaxEntries = numSlots
	spec.Maps[bpf.ClassifierMapAnswers].MaxEntries = 1 << 16
	p := &tier{}
	if perfmon {
		p.classifier = loadSpec(t, spec)
	} else if err := withoutPerfmon(func() { p.classifier = loadSpec(t, spec) }); err != nil || p.classifier == nil {
		t.Fatalf("not loaded without CAP_PERFMON: %v", err)
	}
	p.begin(t, spec.Maps[bpf.ClassifierMapChunks].InnerMap, 0)
	return p
}

// begin gives the program its memory, whose chunks are at an index.
func (p *tier) begin(t testing.TB, chunk *ebpf.MapSpec, at int) {
	t.Helper()
	for i := range p.chunks {
		inner := chunk.Copy()
		inner.MaxEntries = uint32(3 - 2*i)
		m, err := ebpf.NewMap(inner)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		p.chunks[i] = mapped(t, m)
		if err := p.Chunks.Put(uint32(at+i), m); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if p.answers, err = ringbuf.NewReader(p.Answers); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.answers.Close() })
	p.slots, p.windows = mapped(t, p.Slots), mapped(t, p.Windows)
	p.tables = twin.New(express.NewTables(p.slots, p.windows))
	p.open()
	for i := range numSlots {
		if err := p.Sessions.Put(sessionOf(i), uint32(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Sessions.Put(sessionOf(numSlots), uint32(0)); err != nil {
		t.Fatal(err)
	}
}

// record is one record of a request, and its data.
type record struct {
	wire.Record
	data []byte
}

// request returns the payload of a request that is well formed.
func request(h express.Header, list ...record) []byte { return signed(nil, h, list...) }

// signed returns one with the code by a key.
func signed(key *siphash.Key, h express.Header, list ...record) []byte {
	b, results := make([]byte, wire.HeaderLen, express.MaxPayload), 0
	for _, r := range list {
		at := len(b)
		b = append(b, make([]byte, wire.RecordSize(len(r.data)))...)
		copy(wire.PutRecord(b[at:], &r.Record, len(r.data)), r.data)
		r.Data = r.data
		_, n, _ := onesided.Form(&r.Record)
		results += (n + 7) &^ 7
	}
	if n := min(express.PayloadLen(len(b)-wire.HeaderLen, results), express.MaxPayload); n > len(b) {
		b = append(b, make([]byte, n-len(b))...)
	}
	h.Records = len(list)
	express.Request(b, h, key)
	return b
}

// counted returns how often a counter advanced.
func (c *classifier) counted(t testing.TB, which bpf.ClassifierCounter) (sum uint64) {
	t.Helper()
	var perCPU []uint64
	if err := c.Counters.Lookup(uint32(which), &perCPU); err != nil {
		t.Fatal(err)
	}
	for _, n := range perCPU {
		sum += n
	}
	return sum
}

// exec runs a frame through the program, and returns its verdict and what it made of it.
func (c *classifier) exec(t testing.TB, frame []byte) (uint32, []byte) {
	t.Helper()
	o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64), Repeat: 1}
	verdict, err := c.XdprmaClassify.Run(&o)
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	return verdict, o.DataOut
}

// counterOf is the counter that stands for what Serve says.
func counterOf(why twin.Reason) bpf.ClassifierCounter {
	return bpf.ClassifierCounterCOUNTER_EXPRESS_EXECUTED + bpf.ClassifierCounter(why)
}

// verdicts are what a program returns for what Serve says, by that.
type verdicts [4]uint32

var alone = verdicts{twin.Answer: xdpTX, twin.Drop: xdpDrop, twin.ToUser: xdpRedirect, twin.Hand: xdpDrop}

// compare checks that the program and its twin have the same memory.
func (p *tier) compare(t testing.TB, other *side, whole bool) {
	t.Helper()
	if !bytes.Equal(p.slots, other.slots) {
		for at := range p.slots {
			if p.slots[at] != other.slots[at] {
				t.Errorf("slot %d, byte %d: %#x, want %#x", at/express.SlotLen, at%express.SlotLen, p.slots[at], other.slots[at])
				return
			}
		}
	}
	if got, want := p.chunks[0][wideLock:][:windows.LockWordLen], other.chunks[0][wideLock:][:windows.LockWordLen]; !bytes.Equal(got, want) {
		t.Errorf("lock %x, want %x", got, want)
	}
	if !whole {
		return
	}
	if !bytes.Equal(p.windows, other.windows) {
		t.Error("the windows differ")
	}
	for c := range p.chunks {
		for i := range p.chunks[c] {
			if p.chunks[c][i] != other.chunks[c][i] {
				t.Errorf("chunk %d, byte %d: %#x, want %#x", c, i, p.chunks[c][i], other.chunks[c][i])
				return
			}
		}
	}
}

// both has the program and its twin serve a request of slot i, and checks that they do
// the same. The frames have all shapes in turn. It returns what both say.
func (p *tier) both(t testing.TB, other *side, i int, payload []byte, times *[numCounters]uint64) (twin.Verdict, twin.Reason) {
	t.Helper()
	p.runs++
	shape := shapes[p.runs%len(shapes)]
	p.at(t, shape.v6)
	shape.payload = payload
	frame := shape.bytes()
	verdict, out := p.exec(t, frame)
	again := bytes.Clone(payload)
	n, v, why := other.tables.Serve(i, again)
	counter := counterOf(why)
	times[counter]++
	if got := p.counted(t, counter); got != times[counter] || verdict != p.verdicts[v] {
		t.Fatalf("verdict %d, want %d; counter %d went to %d, want %d (%v, %v)\n%x", verdict, p.verdicts[v], counter, got, times[counter], v, why, payload)
	}
	if v == twin.Answer {
		compareAnswer(t, shape.parts(frame), shape.parts(out), again[:n])
		var key *siphash.Key
		if keys := keysOf(i); keys != nil {
			key = &keys.Answers
		}
		if _, _, fault := express.Decode(again[:n], key); fault != wire.OK {
			t.Fatalf("the answer has the fault %v: %x", fault, again[:n])
		}
	}
	got, want := p.handed(t), []byte(nil)
	if v == twin.Hand {
		want = payload
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("handed %x, want %x", got, want)
	}
	if p.compare(t, other, false); t.Failed() {
		t.Fatalf("%v, %v\n%x", v, why, payload)
	}
	return v, why
}

// The program executes of a rank what its owner gives it the right to, and nothing else, whatever
// rights its neighbours have.
func TestRightsOfRecords(t *testing.T) {
	p := loadTier(t)
	one, part := []byte{1, 0, 0, 0, 0, 0, 0, 0}, make([]byte, wire.PartLen)
	wire.PutPart(part, 0, 8)
	asked := slices.Concat(part, one)
	of := func(c wire.Code, op datatype.Op, data []byte) record {
		return record{wire.Record{Code: c, Window: wideWindow, Basic: uint8(datatype.BasicUint64), Op: uint8(op)}, data}
	}
	tests := []struct {
		needs window.Rights
		record
	}{
		{window.MayWrite, of(wire.CodePut, 0, one)},
		{window.MayRead, of(wire.CodeGet, 0, part)},
		{window.MayAccumulate, of(wire.CodeAccumulate, datatype.Sum, one)},
		{window.MayWrite, of(wire.CodeAccumulate, datatype.Replace, one)},
		{window.MayRead, of(wire.CodeGetAccumulate, datatype.NoOp, part)},
		{window.MayRead | window.MayAccumulate, of(wire.CodeGetAccumulate, datatype.Prod, asked)},
		{window.MayRead | window.MayWrite, of(wire.CodeGetAccumulate, datatype.Replace, asked)},
		{window.MayRead | window.MayWrite, of(wire.CodeCompareSwap, 0, slices.Concat(one, one))},
	}
	for rights := window.MayNothing; rights <= window.MayAll; rights++ {
		p.tables.Retract(wideWindow)
		others := ^rights & window.MayAll
		given := windows.NewMembers([]int{memberRank - 1, memberRank, memberRank + 1}, nil, []window.Rights{others, rights, others})
		p.tables.Expose(express.Window{ID: wideWindow, Base: wideBase, Rights: given.Bits, Locks: true, LockAt: wideLock},
			p.chunks[0][wideBase:][:wideLen], windows.LockWordIn(p.chunks[0][wideLock:]), nil)
		for i, test := range tests {
			for _, locked := range []bool{false, true} {
				list, needs := []record{test.record}, test.needs
				if locked {
					lock, unlock := of(wire.CodeLock, 0, nil), of(wire.CodeUnlock, 0, nil)
					lock.Basic, unlock.Basic = 0, 0
					list, needs = []record{lock, test.record, unlock}, needs|window.MayLock
				}
				want := bpf.ClassifierCounterCOUNTER_EXPRESS_EXECUTED
				if needs&^rights != 0 {
					want = bpf.ClassifierCounterCOUNTER_EXPRESS_NO_ACCESS
				}
				p.tables.OpenSlot(0, express.Slot{Session: session, PeerSession: peerSession, Rank: memberRank})
				before, mem := p.counted(t, want), bytes.Clone(p.chunks[0])
				p.exec(t, packet{payload: request(express.Header{Session: session, Exchange: 1, Try: 1}, list...)}.bytes())
				if p.counted(t, want) != before+1 {
					t.Errorf("rights %v, record %d, under a lock %t: counter %d did not advance", rights, i, locked, want)
				}
				if want != executed && !bytes.Equal(p.chunks[0], mem) {
					t.Errorf("rights %v, record %d, under a lock %t: the memory has changed", rights, i, locked)
				}
			}
		}
	}
}

// A request that was interrupted between two records is gone on with: each record is executed
// once, and refused if its window is gone. User space neither takes it nor answers.
func TestInterruptedExchange(t *testing.T) {
	p := loadTier(t)
	sum := record{wire.Record{Code: wire.CodeAccumulate, Window: wideWindow, Basic: uint8(datatype.BasicUint64), Op: uint8(datatype.Sum)}, []byte{1, 0, 0, 0, 0, 0, 0, 0}}
	gone := sum
	gone.Window = goneWindow
	for _, test := range []struct {
		name string
		list []record
		fate uint8
		sum  uint64
	}{
		{"all windows are left", []record{sum, sum, sum}, 0, 1},
		{"the window of the rest is gone", []record{sum, sum, gone, sum}, 1 << 2, 1},
		{"that of what is done is gone", []record{gone, gone, sum}, 0, 1},
	} {
		payload := request(express.Header{Session: session, Exchange: 1, Try: 1}, test.list...)
		p.tables.OpenSlot(0, express.Slot{Session: session, PeerSession: peerSession, Rank: memberRank})
		slot := p.tables.Place(0)
		slot.Word, slot.Outcome = express.WordOf(1, express.StateInterrupted), express.Outcome{Done: 2}.Pack()
		clear(p.chunks[0][wideBase:][:8])
		if p.tables.Claim(0, 1) || p.tables.Answer(0, make([]byte, express.MaxPayload), &express.Header{Exchange: 1, Try: 1}, true) != 0 {
			t.Errorf("%s: taken or answered in user space", test.name)
		}
		verdict, out := p.exec(t, packet{payload: payload}.bytes())
		if h, _, fault := express.Decode(packet{}.parts(out).payload, nil); verdict != xdpTX || fault != wire.OK || h.Fate != test.fate {
			t.Errorf("%s: verdict %d, %v, fate %#b", test.name, verdict, fault, h.Fate)
		}
		if n := le.Uint64(p.chunks[0][wideBase:]); n != test.sum {
			t.Errorf("%s: added %d times", test.name, n)
		}
	}
}

// The same requests, on two processors at once, and by the twin beside them, are executed
// once.
func TestDuplicatesOnTwoProcessors(t *testing.T) {
	p := loadTier(t)
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	var cpus []int
	for cpu := 0; cpu < 1024 && len(cpus) < 2; cpu++ {
		if all.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	const exchanges = 2000
	clear(p.chunks[0][wideBase:][:8])
	part := make([]byte, wire.PartLen, 2*wire.PartLen)
	wire.PutPart(part, 0, 8)
	fetch := record{wire.Record{Code: wire.CodeGetAccumulate, Window: wideWindow, Basic: uint8(datatype.BasicUint64), Op: uint8(datatype.Sum)}, append(part, 3, 0, 0, 0, 0, 0, 0, 0)}
	var group sync.WaitGroup
	serve := func(try uint64, run func(payload []byte) []byte) {
		for n := uint64(1); n <= exchanges; n++ {
			for {
				out := run(request(express.Header{Session: session, Exchange: n, Try: try}, fetch))
				if out == nil { // under way, or the other side is ahead
					if le.Uint64(p.slots)>>2 > n {
						break
					}
					runtime.Gosched()
					continue
				}
				if _, body, fault := express.Decode(out, nil); fault != wire.OK || le.Uint64(body) != 3*(n-1) {
					t.Errorf("exchange %d fetched %d, want %d (%v)", n, le.Uint64(body), 3*(n-1), fault)
					return
				}
				break
			}
		}
	}
	for _, cpu := range cpus {
		group.Go(func() {
			runtime.LockOSThread() // and it ends with the goroutine
			var set unix.CPUSet
			set.Set(cpu)
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				t.Error(err)
			}
			serve(uint64(cpu+1), func(payload []byte) []byte {
				o := ebpf.RunOptions{Data: packet{payload: payload}.bytes(), DataOut: make([]byte, 256), Repeat: 1}
				verdict, err := p.XdprmaClassify.Run(&o)
				if err != nil {
					t.Error(err)
				}
				if verdict != xdpTX {
					return nil
				}
				return packet{}.parts(o.DataOut).payload
			})
		})
	}
	group.Go(func() {
		serve(99, func(payload []byte) []byte {
			if n, v, _ := p.tables.Serve(0, payload); v == twin.Answer {
				return payload[:n]
			}
			return nil
		})
	})
	group.Wait()
	if got := le.Uint64(p.chunks[0][wideBase:]); got != 3*exchanges {
		t.Errorf("%d after %d exchanges that add 3", got, exchanges)
	}
}

// The kernel's verifier refuses a program for which it looks at a million instructions.
// Older kernels look at more of the same program: so ours stays far below.
func TestVerifierEffort(t *testing.T) {
	info, err := loadTier(t).XdprmaClassify.Info()
	if err != nil {
		t.Fatal(err)
	}
	n, ok := info.VerifiedInstructions()
	if t.Logf("%d instructions verified (%v)", n, ok); n > 150_000 {
		t.Errorf("%d instructions were verified", n)
	}
}
