package engine_test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/window"
)

var flagUpdate = flag.Bool("update", false, "write what the engines do into the transcripts")

// TestTranscripts carries out the commands of each transcript, and compares what the
// engines do with what stands there. A transcript is text: lines that start with # are
// for the reader; commands are followed by a line of four hyphens, what comes of them,
// and an empty line.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/transcripts/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got := perform(t, string(text))
			if *flagUpdate {
				if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("%s: the engines do something else; compare after go test ./internal/protocol/engine -run TestTranscripts -update\n%s",
					name, difference(string(text), got))
			}
		})
	}
}

// difference returns the first lines in which two texts differ.
func difference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d says\n  %s\nand the engines do\n  %s", i+1, a[i], b[i])
		}
	}
	return fmt.Sprintf("the transcript has %d lines, and the engines make %d", len(a), len(b))
}

// perform returns a transcript with what the engines do now.
func perform(t *testing.T, text string) string {
	var out strings.Builder
	s := &stage{t: t, out: &out, now: int64(time.Second), cut: map[int]bool{}}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		out.WriteString(line + "\n")
		switch {
		case line == "" || line[0] == '#':
		case line == "----":
			s.act()
			for i+1 < len(lines) && lines[i+1] != "" {
				i++
			}
		default:
			s.command(line)
		}
	}
	return out.String()
}

// stage is where a transcript is performed: the ranks, the frames that are on their way
// between them, and the calls that have not ended.
type stage struct {
	t      *testing.T
	out    *strings.Builder
	now    int64
	ranks  []*engine.Engine
	slabs  []*engine.Slab
	memory [][]byte

	programs map[int]*program // nil: none has one
	flying   []frame
	cut      map[int]bool // ranks that no frame reaches or leaves
	payload  int          // that ranks send and receive
	narrow   int          // the longest payload that gets through, if not 0
	calls    []*call
	pending  []func() // what the commands of this paragraph do
	members           // in a job with a key
}

// call is a call that waits.
type call struct {
	name  string
	again func() bool // asks again until it returns true; nil: asked
	met   func() bool
	end   func() string // what came of it
}

const (
	stageWindow   = 1
	stageMemory   = 4096
	stageCounters = 4
	stageJob      = 7

	travelTime = 10_000 // of a frame, in nanoseconds
)

func (s *stage) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// start gives a rank a life.
func (s *stage) start(rank, size int, incarnation uint64) {
	memory, counters := make([]byte, stageMemory), windows.NewCounters(stageCounters)
	var tables *express.Tables
	var host *windows.Host
	if s.programs != nil {
		s.programs[rank], host = newProgram(rank, size, memory, counters)
		tables = s.programs[rank].tables.Tables
	}
	w, err := windows.New(windows.Config{
		ID: stageWindow, Flavor: window.FlavorCreate, Memory: windows.Slice(memory), Size: stageMemory, DispUnit: 1, GroupSize: size, Host: host,
		Counters: counters,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	windows, slab := &windows.Table{}, engine.HeapSlab(64, 0, s.payload)
	if err := windows.Add(w); err != nil {
		s.t.Fatal(err)
	}
	id := uint64(rank+1)<<32 + incarnation<<16
	cfg := engine.Config{
		LinkConfig: engine.LinkConfig{
			Rank: rank, Size: size, Job: stageJob, Incarnation: incarnation, Slab: slab, Express: tables,
			Rand: func() uint64 { id++; return id },
		},
		Windows: windows,
	}
	s.join(&cfg)
	e := engine.New(cfg)
	e.Now = s.now
	if rank == len(s.ranks) {
		s.ranks, s.slabs, s.memory = append(s.ranks, e), append(s.slabs, slab), append(s.memory, memory)
		return
	}
	s.ranks[rank], s.slabs[rank], s.memory[rank] = e, slab, memory
}

// act does what the commands ask for, and shows the frames that leave.
func (s *stage) act() {
	for _, do := range s.pending {
		do()
	}
	s.pending = nil
	s.transmit(true)
}

// transmit has every rank send what it has, and tells of the calls that are over.
func (s *stage) transmit(show bool) {
	for moved := true; moved; {
		moved = false
		for rank, e := range s.ranks {
			for _, c := range s.calls {
				if c.again != nil && c.again() {
					c.again, moved = nil, true
				}
			}
			e.Tick()
			s.announced(rank)
			for len(e.Output()) > 0 {
				o := e.Output()[0]
				f := s.frame(rank, int(o.Path), append([]byte(nil), s.slabs[rank].Payload(o.Slot)[:o.Len]...))
				if s.flying = append(s.flying, f); show {
					s.say("%s", &f)
				}
				e.Took(1)
				e.Reaped([]int32{o.Slot})
				moved = true
			}
		}
		left := s.calls[:0]
		for _, c := range s.calls {
			if c.again != nil || !c.met() {
				left = append(left, c)
				continue
			}
			s.say("      %s: %s", c.name, c.end())
		}
		s.calls = left
	}
}

// await adds a call that waits.
func (s *stage) await(name string, met func() bool, end func() string) *call {
	c := &call{name: name, met: met, end: end}
	s.calls = append(s.calls, c)
	return c
}

// result says what a call has come to.
func result(err error) string {
	if err != nil {
		return err.Error()
	}
	return "done"
}

// access returns the access of one rank to the window of another.
func (s *stage) access(from, to int) *onesided.Access {
	e := s.ranks[from].Session(to)
	if e == nil {
		s.t.Fatalf("rank %d has not dialled rank %d", from, to)
	}
	a := s.ranks[from].OpenAccess(e, stageWindow)
	a.SetReach(s.programs != nil)
	return a
}

// advance sets the time.
func (s *stage) advance(t int64) {
	s.now = t
	for _, e := range s.ranks {
		if e != nil {
			e.Now = t
		}
	}
}

// pass lets time go by, deadline by deadline; what is sent is shown, or delivered.
func (s *stage) pass(d int64, deliver bool) {
	count := map[string]int{}
	s.passCounting(d, deliver, count)
	s.tell(count, true)
}

func (s *stage) passCounting(d int64, deliver bool, count map[string]int) {
	for end := s.now + d; ; {
		for deliver && len(s.flying) > 0 {
			s.deliver(func(*frame) bool { return true }, count)
			s.transmit(false)
		}
		next := end
		for _, e := range s.ranks {
			next = min(next, e.Deadline())
		}
		s.advance(max(s.now, next)) // a delivery may have taken longer
		if s.transmit(!deliver); next >= end && (!deliver || len(s.flying) == 0) {
			return
		}
		s.advance(min(s.now+1, end))
	}
}

// tell says how many frames arrived each way, and how many did not.
func (s *stage) tell(count map[string]int, arrived bool) {
	for way := range len(s.ranks) * len(s.ranks) {
		key := fmt.Sprintf("%d->%d", way/len(s.ranks), way%len(s.ranks))
		if n := count[key]; n > 0 && arrived {
			s.say("%s  frames: %d", key, n)
		}
		if n := count[key+" cut"]; n > 0 {
			s.say("%s  frames that nobody received: %d", key, n)
		}
	}
}

// deliver brings those frames to their receivers that are wanted, in order.
func (s *stage) deliver(wanted func(*frame) bool, count map[string]int) {
	s.advance(s.now + travelTime)
	var rest []frame
	flying := s.flying
	s.flying = nil
	for _, f := range flying {
		way := fmt.Sprintf("%d->%d", f.from, f.to)
		switch {
		case !wanted(&f):
			rest = append(rest, f)
		case s.cut[f.from] || s.cut[f.to] || s.narrow > 0 && len(f.payload) > s.narrow:
			count[way+" cut"]++
		case s.meetsProgram(&f):
			count[way]++
		default:
			count[way]++
			s.arrived = append(s.arrived, f)
			s.ranks[f.to].Receive(f.payload, engine.PathID(f.from))
		}
	}
	s.flying = append(rest, s.flying...)
}

// wantedFrames reads "0->1 packet 3", "0->1 hello", or less of it.
func (s *stage) wantedFrames(words []string) func(*frame) bool {
	way, packet, hello := "", uint64(0), len(words) == 2 && words[1] == "hello"
	if len(words) > 0 {
		way = words[0]
	}
	if len(words) == 3 && words[1] == "packet" {
		packet = uint64(s.number(words[2]))
	}
	return func(f *frame) bool {
		return (way == "" || way == fmt.Sprintf("%d->%d", f.from, f.to)) && (packet == 0 || f.number() == packet) && (!hello || wire.Kind(f.payload[5]) == wire.KindHello)
	}
}

func (s *stage) number(word string) int {
	n, err := strconv.Atoi(word)
	if err != nil {
		s.t.Fatalf("%q is not a number", word)
	}
	return n
}

func (s *stage) duration(word string) int64 {
	d, err := time.ParseDuration(word)
	if err != nil {
		s.t.Fatal(err)
	}
	return int64(d)
}

// words splits a command, leaving quoted text whole.
func (s *stage) words(line string) (list []string) {
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		if quoted, err := strconv.QuotedPrefix(line); err == nil {
			text, _ := strconv.Unquote(quoted)
			list, line = append(list, text), line[len(quoted):]
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		list, line = append(list, word), rest
	}
	return list
}

func word64(n int) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(n)) }

// command takes in one line. It acts once all lines of its paragraph have been read, so
// calls that follow each other can share a frame.
func (s *stage) command(line string) {
	w := s.words(line)
	do := commands[w[0]]
	if do == nil {
		s.t.Fatalf("%q is no command", line)
	}
	s.pending = append(s.pending, func() { do(s, w[1:]) })
}

// option returns the value of "name=value" among the words.
func (s *stage) option(w []string, name string) int {
	for _, x := range w {
		if v, ok := strings.CutPrefix(x, name+"="); ok {
			return s.number(v)
		}
	}
	return 0
}

// data returns what a command puts: its last word, or as many bytes as size says.
func (s *stage) data(w []string) []byte {
	if n := s.option(w, "size"); n > 0 {
		return make([]byte, n)
	}
	return []byte(w[len(w)-1])
}

var commands map[string]func(s *stage, w []string)

func init() {
	commands = map[string]func(s *stage, w []string){
		"ranks": func(s *stage, w []string) {
			s.payload = max(wire.MinPayload, s.option(w, "payload")) // with more, a session begins with a probe of it
			if w[len(w)-1] == "programs" {
				s.programs = map[int]*program{}
			}
			s.takeKey(w)
			for r := range s.number(w[0]) {
				s.start(r, s.number(w[0]), 1)
			}
		},
		"restart": func(s *stage, w []string) {
			s.start(s.number(w[0]), len(s.ranks), uint64(s.option(w, "incarnation")))
		},
		"cut":    func(s *stage, w []string) { s.cut[s.number(w[0])] = true },
		"narrow": func(s *stage, w []string) { s.narrow = s.number(w[0]) },
		"mend":   func(s *stage, w []string) { delete(s.cut, s.number(w[0])) },
		"deliver": func(s *stage, w []string) {
			count := map[string]int{}
			s.deliver(s.wantedFrames(w), count)
			s.tell(count, false)
		},
		"drop": func(s *stage, w []string) {
			wanted, rest := s.wantedFrames(w), s.flying[:0]
			for _, f := range s.flying {
				if !wanted(&f) {
					rest = append(rest, f)
				}
			}
			if len(rest) == len(s.flying) {
				s.t.Errorf("there is no frame to drop: %v", w)
			}
			s.flying = rest
		},
		"repeat": func(s *stage, w []string) {
			for _, f := range s.flying {
				if s.wantedFrames(w)(&f) {
					s.flying = append(s.flying, f)
				}
			}
		},
		"tick":          func(s *stage, w []string) { s.pass(s.duration(w[0]), false) },
		"run":           func(s *stage, w []string) { s.pass(s.duration(w[0]), true) },
		"memory":        func(s *stage, w []string) { s.memoryAt(s.number(w[0]), s.option(w, "disp"), s.option(w, "len")) },
		"notified":      func(s *stage, w []string) { s.tellNotified(s.number(w[0]), w[1:]) },
		"wait_notified": func(s *stage, w []string) { s.waitNotified(s.number(w[0]), w[1:]) },
		"usage": func(s *stage, w []string) {
			u := s.ranks[s.number(w[0])].Usage()
			s.say("      rank %s holds: slots %d, operations %d, bundles parked %d, bundles in the queue of a lock %d",
				w[0], u.Slots-u.FreeSlots, u.Operations, u.Parked, u.LockWaits)
		},
		"mute":      func(s *stage, w []string) { s.programs[s.number(w[0])].mute = true },
		"exchanges": func(s *stage, w []string) { s.tellExchanges(s.number(w[0])) },
		"bye":       func(s *stage, w []string) { s.ranks[s.number(w[0])].Bye("") },
		"alter":     func(s *stage, w []string) { s.alter(w) },
		"replay":    func(s *stage, w []string) { s.replay(w) },
		"faults":    func(s *stage, w []string) { s.tellFaults(s.number(w[0])) },
	}
	for name, do := range map[string]func(s *stage, from, to int, w []string){
		"dial": func(s *stage, from, to int, w []string) { s.dial(from, to, uint64(s.option(w, "incarnation"))) },
		"put": func(s *stage, from, to int, w []string) {
			s.issue(from, to, &onesided.Call{Code: wire.CodePut, Disp: uint64(s.option(w, "disp")), Origin: s.data(w), Notify: s.counter(w)})
		},
		"add": func(s *stage, from, to int, w []string) {
			s.issue(from, to, &onesided.Call{
				Code: wire.CodeAccumulate, Op: datatype.Sum, Basic: datatype.BasicInt64, Disp: uint64(s.option(w, "disp")), Origin: word64(s.option(w, "value")),
			})
		},
		"notify": func(s *stage, from, to int, w []string) {
			s.issue(from, to, &onesided.Call{Code: wire.CodeNotify, Notify: s.counter(w)})
		},
		"get":          (*stage).get,
		"fetch_and_op": (*stage).fetch,
		"chat":         (*stage).chat,
		"flush":        (*stage).flush,
		"lock":         (*stage).lock,
		"unlock":       (*stage).unlock,
		"post":         (*stage).post,
		"start":        func(s *stage, from, to int, _ []string) { s.ranks[from].Start(s.access(from, to)) },
		"complete": func(s *stage, from, to int, _ []string) {
			s.issue(from, to, &onesided.Call{Code: wire.CodeComplete})
			a := s.access(from, to)
			s.await(fmt.Sprintf("complete at rank %d", from), (*onesided.LocalWait)(a).Met, func() string { return result(a.TakeError()) })
		},
		"wait": func(s *stage, from, to int, _ []string) {
			x := (*onesided.ExposureWait)(s.access(from, to))
			s.await(fmt.Sprintf("wait at rank %d", from), x.Met, func() string { return "done" })
		},
	} {
		commands[name] = func(s *stage, w []string) { do(s, s.number(w[0]), s.number(w[1]), w[2:]) }
	}
}

// issue begins a call, which may have to wait for room.
func (s *stage) issue(from, to int, c *onesided.Call) {
	c.Access = s.access(from, to)
	if done, err := s.ranks[from].Issue(c); !done || err != nil {
		s.say("      %s at rank %d: %v", c.Code, from, err)
	}
}

func (s *stage) get(from, to int, w []string) {
	var r onesided.Request
	into := make([]byte, s.option(w, "len"))
	s.issue(from, to, &onesided.Call{Code: wire.CodeGet, Disp: uint64(s.option(w, "disp")), Result: into, Request: &r, Notify: s.counter(w)})
	s.await(fmt.Sprintf("get at rank %d", from), r.Met, func() string {
		if r.Err() != nil {
			return r.Err().Error()
		}
		return value(into)
	})
}

func (s *stage) fetch(from, to int, w []string) {
	var r onesided.Request
	old := make([]byte, 8)
	s.issue(from, to, &onesided.Call{
		Code: wire.CodeGetAccumulate, Op: datatype.Sum, Basic: datatype.BasicInt64, Disp: uint64(s.option(w, "disp")),
		Origin: word64(s.option(w, "value")), Result: old, Request: &r,
	})
	s.await(fmt.Sprintf("fetch_and_op at rank %d", from), r.Met, func() string {
		if r.Err() != nil {
			return r.Err().Error()
		}
		return "the value was " + value(old)
	})
}

func (s *stage) flush(from, to int, _ []string) {
	a := s.access(from, to)
	s.ranks[from].Flush(a)
	s.await(fmt.Sprintf("flush at rank %d", from), (*onesided.FlushWait)(a).Met, func() string { return result(a.TakeError()) })
}

// chat has one rank put a little, again and again for a while.
func (s *stage) chat(from, to int, w []string) {
	const pause = 100 * int64(time.Millisecond)
	a, count := s.access(from, to), map[string]int{}
	for end := s.now + s.duration(w[0]); s.now < end; {
		s.issue(from, to, &onesided.Call{Code: wire.CodePut, Origin: word64(0)})
		s.ranks[from].Flush(a)
		s.passCounting(pause, true, count)
	}
	s.tell(count, true)
}

func (s *stage) lock(from, to int, w []string) {
	e, a := s.ranks[from], s.access(from, to)
	c := s.await(fmt.Sprintf("lock at rank %d", from), (*onesided.LockWait)(a).Met, func() string { return "held" })
	c.again = func() bool { return (*onesided.LockOrderWait)(e.Operations).Met() && e.Lock(a, w[0] == "exclusive") }
	if c.again() {
		c.again = nil
	}
}

func (s *stage) unlock(from, to int, _ []string) {
	a := s.access(from, to)
	c := s.await(fmt.Sprintf("unlock at rank %d", from), (*onesided.UnlockWait)(a).Met, func() string { a.Unlocked(); return result(a.TakeError()) })
	c.again = func() bool { return s.ranks[from].Unlock(a) }
	if c.again() {
		c.again = nil
	}
}

func (s *stage) post(from, to int, _ []string) {
	if !s.ranks[from].Expose(stageWindow, true) {
		s.t.Fatal("the window cannot be posted")
	}
	s.ranks[from].Post(s.access(from, to), false)
}

// memoryAt shows a rank's window.
func (s *stage) memoryAt(rank, disp, n int) {
	s.say("      rank %d has %s at %d", rank, value(s.memory[rank][disp:disp+n]), disp)
}
