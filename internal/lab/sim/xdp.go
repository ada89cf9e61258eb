package sim

import (
	"bytes"
	"fmt"

	"github.com/xdprma/xdprma/internal/lab/twin"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// tier says how the ranks' XDP programs behave in a run.
type tier struct {
	windows   uint64  // bit i: programs reach the windows with that id modulo 64; 0: there are no programs
	serves    float64 // chance that an express frame meets the program, and not user space
	interrupt float64 // chance that a record is interrupted, and that user space gets no frame
}

// newTier draws how programs behave, and perhaps the fault that some answer in vain.
func (w *World) newTier(p *plan) {
	if w.chance(0.4) {
		return
	}
	t := &p.tier
	t.windows, t.serves = w.rng.Uint64()|w.rng.Uint64(), []float64{0.3, 0.9, 1}[w.rng.IntN(3)]
	if w.chance(0.5) {
		t.interrupt = w.rng.Float64() * 0.3
	}
	if w.chance(0.2) {
		f := fault{kind: mute, victims: w.newVictims(p.ranks, mute), from: w.now + w.span(0, 15*millisecond), to: forGood}
		if w.chance(0.5) {
			f.to = f.from + w.span(millisecond, shortFault)
		}
		p.faults = append(p.faults, f)
	}
}

// reached reports whether programs reach the windows with an id.
func (t *tier) reached(id uint32) bool { return t.windows>>(id%64)&1 != 0 }

// xdp is the program of a life, and what the device knows of sessions for it.
type xdp struct {
	twin      *twin.Program    // nil: there is no program
	slots     map[uint64]int32 // by session
	quiescing []uint64         // sessions that were quiesced while the rank was stopped
}

// tables returns what the program shares with the engine, or nil.
func (x *xdp) tables() *express.Tables {
	if x.twin == nil {
		return nil
	}
	return x.twin.Tables
}

// newXDP gives a life a program. It may have too few places for all peers.
func (l *life) newXDP() {
	w := l.w
	if w.plan.tier.windows == 0 {
		return
	}
	l.xdp = xdp{twin: twin.New(express.HeapTables(max(1, w.plan.ranks-w.rng.IntN(3)))), slots: map[uint64]int32{}}
	l.xdp.twin.SetInterrupt(func() bool { return w.faulty() && w.chance(w.plan.tier.interrupt) })
}

// show lets the life's program reach a window, if the plan has it so.
func (l *life) show(c *windows.Config, mem []byte) {
	if mem == nil || l.xdp.twin == nil || !l.w.plan.tier.reached(c.ID) {
		return
	}
	ranks := []int{l.rank, windows.InKernel}
	if c.Host != nil {
		ranks = append(ranks, c.Host.Ranks[1:]...)
	}
	c.Host = &windows.Host{Lock: windows.LockWordIn(make([]byte, windows.LockWordLen)), Ranks: ranks}
	if l.w.chance(0.1) { // there is no room for it
		return
	}
	if l.xdp.twin.Expose(express.Window{ID: c.ID}, mem, c.Host.Lock, c.Counters) < 0 {
		panic("sim: two windows in one place")
	}
}

// access is Engine.OpenAccess.
func (l *life) access(s *engine.Session, id uint32) *onesided.Access {
	a := l.e.OpenAccess(s, id)
	a.SetReach(l.w.plan.tier.reached(id))
	return a
}

// announced takes in what a rank's engine tells its device.
func (w *World) announced(l *life) {
	opened, quiescing, _ := l.e.Announcements()
	for _, s := range opened {
		if s.Slot >= 0 {
			l.xdp.slots[s.ID] = s.Slot
		}
	}
	for _, id := range quiescing {
		delete(l.xdp.slots, id)
		w.queue.push(w.now+w.span(0, 20*millisecond), func() {
			if l.xdp.quiescing = append(l.xdp.quiescing, id); l.alive && !l.stopped {
				l.quiesced()
				w.run(l)
			}
		})
	}
}

// quiesced tells the engine of the sessions that the device has quiesced.
func (l *life) quiesced() {
	for _, id := range l.xdp.quiescing {
		l.e.Quiesced(id)
	}
	l.xdp.quiescing = nil
}

// toProgram lets a rank's program look at a frame, whether the rank is stopped or not,
// and reports whether the frame goes no further. It notes in r that the program hands it over.
func (w *World) toProgram(l *life, r *received) bool {
	if l.xdp.twin == nil || len(r.payload) < wire.HeaderLen || wire.Kind(r.payload[5]) != wire.KindExpress ||
		!w.chance(w.serves(r.from, l.rank)) {
		return false
	}
	slot, ok := l.xdp.slots[le.Uint64(r.payload[8:])]
	if !ok {
		return false
	}
	frame := bytes.Clone(r.payload)
	n, verdict, why := l.xdp.twin.Serve(int(slot), frame)
	w.record(uint64(w.now), uint64(l.rank), uint64(why))
	w.reasons[why]++
	w.tracef("%d -> %d  %s: %s", r.from, l.rank, describeFrame(r.payload), why)
	if r.damaged && (verdict == twin.Answer || verdict == twin.Hand) {
		w.failf("the program of rank %d took a damaged frame: %s", l.rank, why)
	}
	if r.payload[6]&wire.FlagResponse != 0 {
		r.answer = verdict == twin.Hand
		return verdict == twin.Drop
	}
	w.checkOrder(l)
	w.servedNotified(l, verdict)
	w.freePassing(l, why)
	w.noteInterruption(r.from, l.rank, why, verdict)
	switch verdict {
	case twin.ToUser:
		return w.faulty() && w.chance(w.plan.tier.interrupt) // the socket has no room
	case twin.Answer:
		if w.during(mute, l.rank) != nil {
			w.hit(mute)
		} else {
			w.send(l.rank, r.from, frame[:n])
		}
	}
	return true
}

// serves returns the chance that an express frame meets the program. Nothing but the program ends
// an exchange that it was interrupted at, and most repeats meet it, as all do outside of here: or
// a few unlucky ones in a row would look like a peer that acknowledges nothing.
func (w *World) serves(from, to int) float64 {
	if w.interruptions[[2]int{from, to}].lasts {
		return max(w.plan.tier.serves, 0.9)
	}
	return w.plan.tier.serves
}

// interruption is what became of the last exchange of two ranks that a program was
// interrupted at. It goes on at a repeat that meets the program, which may take a while.
type interruption struct {
	lasts bool
	until int64 // when it was over
}

func (w *World) noteInterruption(from, to int, why twin.Reason, v twin.Verdict) {
	i := w.interruptions[[2]int{from, to}]
	switch {
	case why == twin.Interrupted:
		i.lasts = true
	case i.lasts && v == twin.Answer:
		i = interruption{until: w.now}
	}
	w.interruptions[[2]int{from, to}] = i
}

// interrupted reports whether an exchange from one rank to another has been interrupted since
// a time.
func (w *World) interrupted(from, to int, since int64) bool {
	i := w.interruptions[[2]int{from, to}]
	return i.lasts || since < i.until
}

func describeExpress(b []byte) string {
	h, body, fault := express.Read(b)
	if fault != wire.OK {
		return "damaged: " + fault.String()
	}
	s := fmt.Sprintf("express %d try %d flags %x", h.Exchange, h.Try, h.Flags)
	if h.Flags == wire.FlagResponse {
		return s + fmt.Sprintf(" fate %d %x", h.Fate, body)
	}
	var r wire.Record
	for range h.Records {
		body = body[wire.NextRecord(body, &r):]
		s += fmt.Sprintf(" | %s w%d t%x @%d %dB", r.Code, r.Window, r.Token, r.Disp, len(r.Data))
	}
	return s
}
