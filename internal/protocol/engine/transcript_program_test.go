package engine_test

import (
	"fmt"
	"strings"

	"github.com/xdprma/xdprma/internal/lab/twin"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// program is the XDP program of a rank on the stage.
type program struct {
	tables *twin.Program
	slots  map[uint64]int32 // by session
	mute   bool             // its answers vanish
}

// newProgram gives a rank a program that reaches its memory.
func newProgram(rank, size int, memory []byte, counters *windows.Counters) (*program, *windows.Host) {
	p := &program{tables: twin.New(express.HeapTables(size)), slots: map[uint64]int32{}}
	lock := windows.LockWordIn(make([]byte, windows.LockWordLen))
	p.tables.Expose(express.Window{ID: stageWindow}, memory, lock, counters)
	return p, &windows.Host{Lock: lock, Ranks: []int{rank, windows.InKernel}}
}

// announced takes in what a rank's engine tells its device.
func (s *stage) announced(rank int) {
	opened, quiescing, _ := s.ranks[rank].Announcements()
	p := s.programs[rank]
	for _, o := range opened {
		if p != nil && o.Slot >= 0 {
			p.slots[o.ID] = o.Slot
		}
	}
	for _, id := range quiescing {
		delete(p.slots, id)
		s.ranks[rank].Quiesced(id)
	}
}

// meetsProgram shows a frame to the program of its receiver, and reports whether it goes
// no further.
func (s *stage) meetsProgram(f *frame) bool {
	p := s.programs[f.to]
	if p == nil || !f.express() {
		return false
	}
	h, _, _ := express.Decode(f.payload, nil)
	b := append([]byte(nil), f.payload...)
	n, verdict, why := p.tables.Serve(int(p.slots[h.Session]), b)
	does := map[twin.Verdict]string{twin.Answer: "answers", twin.Drop: "drops", twin.ToUser: "passes on", twin.Hand: "hands over the answer to"}[verdict]
	if verdict == twin.Hand {
		s.say("      program of rank %d %s exchange %d", f.to, does, h.Exchange)
		s.ranks[f.to].ReceiveHanded(b)
		return true
	}
	if verdict == twin.Answer && p.mute {
		does = "answers in vain"
	}
	s.say("      program of rank %d %s exchange %d: %s", f.to, does, h.Exchange, why)
	if verdict == twin.Answer && !p.mute {
		a := s.frame(f.to, f.from, b[:n])
		s.flying = append(s.flying, a)
		s.say("%s", &a)
	}
	return verdict != twin.ToUser
}

// express reports whether f is an express frame.
func (f *frame) express() bool { return wire.Kind(f.payload[5]) == wire.KindExpress }

// number returns which transmission f is.
func (f *frame) number() uint64 {
	if f.express() {
		h, _, _ := express.Decode(f.payload, nil)
		return h.Try
	}
	if f.greeting() {
		return 0
	}
	return f.header().Packet
}

// exchange describes an express frame.
func exchange(payload []byte) string {
	h, body, fault := express.Decode(payload, nil)
	if fault != wire.OK {
		panic("an engine has sent a malformed express frame: " + fault.String())
	}
	s := fmt.Sprintf("exchange %d, try %d", h.Exchange, h.Try)
	switch {
	case h.Flags != wire.FlagResponse:
		requests, _ := express.Records(body, h.Records)
		if h.Flags == wire.FlagUser {
			s += ", for user space"
		}
		return s + ": " + records(requests)
	case h.Fate == express.FateTaken:
		return s + ": taken as a bundle"
	}
	var results []string
	for ; len(body) > 0; body = body[8:] {
		results = append(results, value(body[:8]))
	}
	if results == nil {
		return s + ": executed"
	}
	return s + ": executed, results " + strings.Join(results, "; ")
}

// tellExchanges says what became of a rank's exchanges.
func (s *stage) tellExchanges(rank int) {
	x := &s.ranks[rank].Stats
	s.say("      rank %d: exchanges %d, executed %d, taken as bundles %d, frames repeated %d, answers found lost %d",
		rank, x.Exchanges, x.Executed, x.Taken, x.Repeated, x.AnswersLost)
}
