package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// plan is what the seed decides before anything happens.
type plan struct {
	ranks, tasks, steps int
	loss, repeat        float64
	damage, stray       float64 // stray: delayed far beyond others
	slowDevice          float64 // chance that a frame leaves late, and its slot comes back late
	delay, jitter       int64
	joined              joined
	faultsEnd           int64 // from then on the network only delays, but for faults that last for good
	tier                tier
	hosts               int          // ranks are on that many hosts, and share the memory of one window there; 0: none do
	keyed               bool         // the job has a key
	level               secure.Level // of its frames
	renewal             renewal
	ordered             uint64 // bit i: all operations on window i of the tasks keep their order
	witnesses           bool   // each rank looks whether the others answer it in time
	notifies            bool   // ranks issue notified operations
	faults              []fault
}

// joined is what becomes of frames by the way of joined ones.
type joined struct {
	most   int     // frames of a message; 0: there is no such way
	late   int64   // how much later than others they come at most
	loss   float64 // of messages of several frames, until the faults end
	closed int64   // from then on nothing of several frames comes by that way
}

func (w *World) newJoined() joined {
	j := joined{most: w.between(3, 64), closed: math.MaxInt64}
	if w.chance(0.5) {
		j.late = w.span(0, 2*millisecond)
	}
	if w.chance(0.3) {
		j.loss = w.rng.Float64()
	}
	if w.chance(0.2) {
		j.closed = w.now + w.span(0, 50*millisecond)
	}
	return j
}

// sendJoined puts the frames of a message on their way, which belong to the network.
func (w *World) sendJoined(from, to int, frames [][]byte) {
	j := &w.plan.joined
	if len(frames) > 1 && (w.now >= j.closed || w.faulty() && w.chance(j.loss)) {
		return
	}
	late := w.span(0, j.late)
	w.queue.push(w.now+late, func() {
		for _, b := range frames {
			w.send(from, to, b)
		}
	})
}

func (p plan) String() string {
	s := fmt.Sprintf("%d ranks, %d tasks of %d steps, loss %.2f, repeat %.2f, damage %.2f, stray %.2f, delay %d+%d µs, joined %+v, %d hosts, programs reach %t, ordered %b, witnesses %t, notifies %t, key %t, level %v, renewal %+v",
		p.ranks, p.tasks, p.steps, p.loss, p.repeat, p.damage, p.stray, p.delay/microsecond, p.jitter/microsecond, p.joined, p.hosts, p.tier.windows != 0, p.ordered, p.witnesses, p.notifies, p.keyed, p.level, p.renewal)
	for i := range p.faults {
		s = p.faults[i].String() + ", " + s
	}
	return s
}

// ranksFail reports whether ranks crash, or may be given up.
func (p plan) ranksFail() bool {
	return slices.ContainsFunc(p.faults, func(f fault) bool { return f.lasts() })
}

func (w *World) newPlan() plan {
	p := plan{
		ranks: w.between(2, 6), tasks: w.between(1, 3), steps: w.between(4, 14),
		delay: w.span(2, 100) * microsecond, jitter: w.span(0, 100) * microsecond,
		witnesses: w.chance(0.4) && !w.cfg.Together,
	}
	if w.chance(0.8) {
		p.loss, p.repeat, p.damage, p.stray = w.rng.Float64()*0.2, w.rng.Float64()*0.2, w.rng.Float64()*0.1, w.rng.Float64()*0.2
	}
	if w.chance(0.3) {
		p.slowDevice = w.rng.Float64() * 0.1
	}
	if g := w.cfg.Program; g != nil {
		p.ranks, p.tasks, p.steps = g.Ranks, 0, 0
	}
	if w.chance(0.5) {
		p.hosts = w.between(1, max(1, p.ranks-1))
	}
	if w.chance(0.6) {
		p.joined = w.newJoined()
	}
	w.newFaults(&p)
	if !w.cfg.Together { // which is about messages alone
		w.newTier(&p)
	}
	if w.cfg.Tamper == nil { // which makes frames that look right
		p.keyed = w.cfg.Seed%4 > 1
		p.level = []secure.Level{secure.None, secure.Sign, secure.Seal}[w.cfg.Seed%3]
		p.renewal = w.newRenewal(&p)
	}
	p.ordered = w.cfg.Seed / 12 % (1 << numWindows)
	p.notifies = w.notifies()
	if w.cfg.shape != nil {
		w.cfg.shape(&p, w.now)
	}
	p.faultsEnd = w.now + 300*millisecond
	for i := range p.faults {
		f := &p.faults[i]
		if p.faultsEnd = max(p.faultsEnd, f.from); f.to != forGood {
			p.faultsEnd = max(p.faultsEnd, f.to)
		}
		p.witnesses = p.witnesses || f.kind == giveUp && !w.cfg.Together
	}
	return p
}

// replayedUntil is how long after a restart handshake frames of the old life come again.
const replayedUntil = 10 * millisecond

// network carries frames between ranks.
type network struct {
	calm bool // no more faults
}

func (w *World) faulty() bool { return !w.net.calm && w.now < w.plan.faultsEnd }

// send puts a frame on its way. The payload belongs to the network.
func (w *World) send(from, to int, payload []byte) {
	if w.cfg.Tamper == nil {
		w.carry(from, to, payload)
		return
	}
	for _, b := range w.cfg.Tamper(from, to, payload) {
		w.carry(from, to, b)
	}
}

func (w *World) carry(from, to int, payload []byte) {
	p := &w.plan
	if payload = w.through(from, to, payload); payload == nil {
		return
	}
	copies := 1
	if w.faulty() {
		if w.chance(p.loss) {
			return
		}
		for copies < 4 && w.chance(p.repeat) {
			copies++
		}
	}
	for i := range p.faults {
		if f := &p.faults[i]; f.kind == restart && w.now < f.from && f.victims[from] && wire.IsHandshake(payload) {
			// It comes again when the sender lives its next life.
			w.queue.push(f.to+w.span(0, replayedUntil), func() { w.arrive(from, to, payload, false) })
		}
	}
	for range copies {
		late := p.delay + w.span(0, p.jitter)
		b, damaged := bytes.Clone(payload), false // the receiver may decrypt it where it lies
		if w.faulty() {
			if w.chance(p.stray) {
				late += w.span(0, 3*millisecond)
				if w.chance(0.05) {
					late += w.span(0, 400*millisecond)
				}
			}
			if damaged = w.chance(p.damage); damaged {
				bit := w.rng.IntN(len(b) * 8)
				b[bit/8] ^= 1 << (bit % 8)
				if w.chance(0.3) {
					b = b[:w.rng.IntN(len(b))]
				}
			}
		}
		w.queue.push(w.now+late, func() { w.arrive(from, to, b, damaged) })
	}
}

// malformed counts the frames that an engine has taken for malformed.
func malformed(e *engine.Engine) (n uint64) {
	n = e.Stats.Unknown + e.Stats.Handshakes // where a code or tag is all that shows damage, it is looked at last
	for _, c := range e.Stats.Faults {
		n += c
	}
	return n
}

// arrive brings a frame to a rank's device.
func (w *World) arrive(from, to int, payload []byte, damaged bool) {
	l, r := w.nodes[to], received{from: from, payload: payload, damaged: damaged}
	switch {
	case !l.alive || l.stopped && l.unborn || w.toProgram(l, &r):
		return
	case l.stopped:
		if len(l.inbox) < l.cfg.RxFrames {
			l.inbox = append(l.inbox, r)
		}
		return
	}
	w.receive(l, r)
	w.run(l)
}

// received is a frame that a device has taken.
type received struct {
	from    int
	payload []byte
	damaged bool
	answer  bool // handed over by the program
}

// receive hands a frame to a rank's engine.
func (w *World) receive(l *life, r received) {
	w.frames++
	sum := uint32(0)
	if len(r.payload) >= wire.HeaderLen {
		sum = binary.LittleEndian.Uint32(r.payload[16:])
	}
	w.record(uint64(w.now), uint64(r.from)<<32|uint64(l.rank), uint64(sum))
	if w.cfg.Trace != nil {
		w.tracef("%d -> %d  %s", r.from, l.rank, describeFrame(r.payload))
	}
	if h, _, fault := express.Read(r.payload); fault == wire.OK && h.Fate > express.FateTaken {
		w.partly++
	}
	before := malformed(l.e)
	if r.answer {
		l.e.ReceiveHanded(r.payload)
	} else {
		l.e.Receive(r.payload, engine.PathID(r.from))
	}
	if r.damaged && malformed(l.e) != before+1 {
		w.failf("a damaged frame from %d to %d was not noticed", r.from, l.rank)
	}
	w.checkOrder(l)
	w.checkNotified(l)
}

func describeFrame(b []byte) string {
	if len(b) >= wire.HeaderLen && wire.Kind(b[5]) == wire.KindExpress {
		return describeExpress(b)
	}
	if wire.IsHandshake(b) && len(b) == wire.GreetingLen {
		return fmt.Sprintf("handshake of kind %d, code %x", b[5], b[len(b)-8:])
	}
	var h wire.Header
	f := h.Parse(b)
	if f == wire.OK && h.Checksum != 0 {
		f = h.Decode(b)
	}
	if f != wire.OK {
		return "damaged: " + f.String()
	}
	s := fmt.Sprintf("kind %d flags %x packet %d seq %d ack %d/%x applied %d/%d order %d", h.Kind, h.Flags, h.Packet, h.Sequence,
		h.AckLargest, h.AckBits, h.AckRequests, h.AckResponses, h.Order)
	if h.Kind != wire.KindData || h.Sequence == 0 {
		return s
	}
	var r wire.Record
	for body := b[wire.HeaderLen:]; len(body) > 0; { // and the trailer, if it is signed
		n := wire.NextRecord(body, &r)
		if n == 0 {
			return s + " BAD RECORD"
		}
		s += fmt.Sprintf(" | %s w%d t%x @%d %dB", r.Code, r.Window, r.Token, r.Disp, len(r.Data))
		body = body[n:]
	}
	return s
}
