package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/xdprma/xdprma/internal/engine"
	"github.com/xdprma/xdprma/internal/wire"
)

// plan is what the seed decides before anything happens.
type plan struct {
	ranks, tasks, steps int
	loss, repeat        float64
	damage, stray       float64 // stray: delayed far beyond others
	slowDevice          float64 // chance that a frame leaves late, and its slot comes back late
	delay, jitter       int64
	scenario            string
	faultsEnd           int64 // from then on the network only delays
	cutFrom, cutTo      int64 // partition
	crashAt, restartAt  int64 // 0: not
	victim              int
	hosts               int // ranks are on that many hosts, and share the memory of one window there; 0: none do
}

func (p plan) String() string {
	return fmt.Sprintf("%s, %d ranks, %d tasks of %d steps, loss %.2f, repeat %.2f, damage %.2f, stray %.2f, delay %d+%d µs, %d hosts",
		p.scenario, p.ranks, p.tasks, p.steps, p.loss, p.repeat, p.damage, p.stray, p.delay/microsecond, p.jitter/microsecond, p.hosts)
}

// ranksFail reports whether ranks crash, or are given up.
func (p plan) ranksFail() bool { return p.crashAt != 0 || p.cutTo-p.cutFrom > deadAfter }

func (w *World) newPlan() plan {
	p := plan{
		ranks: w.between(2, 5), tasks: w.between(1, 3), steps: w.between(4, 14),
		delay: w.span(2, 100) * microsecond, jitter: w.span(0, 100) * microsecond,
		faultsEnd: w.now + 300*millisecond,
	}
	if w.chance(0.8) {
		p.loss, p.repeat, p.damage, p.stray = w.rng.Float64()*0.2, w.rng.Float64()*0.2, w.rng.Float64()*0.1, w.rng.Float64()*0.2
	}
	if w.chance(0.3) {
		p.slowDevice = w.rng.Float64() * 0.1
	}
	scenarios := 10
	if g := w.cfg.Program; g != nil {
		p.ranks, p.tasks, p.steps, scenarios = g.Ranks, 0, 0, 6
	}
	p.victim = w.rng.IntN(p.ranks)
	at := w.now + w.span(0, 15*millisecond)
	switch n := w.rng.IntN(scenarios); {
	case n < 4:
		p.scenario = "no fault of ranks"
	case n < 6:
		p.scenario = "partition that heals"
		p.cutFrom, p.cutTo = at, at+w.span(10*millisecond, 3*second)
	case n < 7:
		p.scenario = "partition that does not heal in time"
		p.cutFrom, p.cutTo = at, at+w.span(2*deadAfter, 4*deadAfter)
	case n < 8:
		p.scenario = "crash"
		p.crashAt = at
	default:
		p.scenario = "crash and restart"
		p.crashAt = at
		p.restartAt = at + w.span(millisecond, 500*millisecond)
		if w.chance(0.3) {
			p.restartAt = at + w.span(deadAfter/2, 2*deadAfter)
		}
	}
	if w.chance(0.5) {
		p.hosts = w.between(1, max(1, p.ranks-1))
	}
	p.faultsEnd = max(p.faultsEnd, p.cutTo, p.crashAt, p.restartAt)
	return p
}

// replayedUntil is how long after a restart handshake frames of the old life come again.
const replayedUntil = 10 * millisecond

// network carries frames between ranks.
type network struct {
	calm bool // no more faults
}

func (w *World) faulty() bool { return !w.net.calm && w.now < w.plan.faultsEnd }

// separated reports whether the partition runs between two ranks: the victim is
// alone on its side.
func (w *World) separated(a, b int) bool { return (a == w.plan.victim) != (b == w.plan.victim) }

func (w *World) cut(a, b int) bool {
	return w.now >= w.plan.cutFrom && w.now < w.plan.cutTo && w.separated(a, b)
}

// mayFail returns since when a session between two lives may be given up.
func (w *World) mayFail(a, b *life) (since int64, ok bool) {
	switch {
	case !b.alive:
		if again := w.plan.restartAt + replayedUntil; w.plan.restartAt != 0 && w.now > again {
			return again, true // until then, hellos of the old life looked like signs of life
		}
		return b.diedAt, true
	case w.plan.ranksFail() && w.plan.crashAt == 0 && w.now > w.plan.cutFrom && w.separated(a.rank, b.rank):
		return w.plan.cutFrom, true
	}
	return 0, false
}

func (w *World) scheduleFaults() {
	p := &w.plan
	if p.crashAt != 0 {
		w.queue.push(p.crashAt, func() { w.crash(w.nodes[p.victim]) })
	}
	if p.restartAt != 0 {
		w.queue.push(p.restartAt, func() { w.start(p.victim, 2) })
	}
}

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
	if w.cut(from, to) {
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
	if w.now < p.crashAt && from == p.victim && wire.IsHandshake(payload) {
		// It comes again when the sender lives its next life.
		w.queue.push(p.restartAt+w.span(0, replayedUntil), func() { w.arrive(from, to, payload, false) })
	}
	for range copies {
		late := p.delay + w.span(0, p.jitter)
		b, damaged := payload, false
		if w.faulty() {
			if w.chance(p.stray) {
				late += w.span(0, 3*millisecond)
				if w.chance(0.05) {
					late += w.span(0, 400*millisecond)
				}
			}
			if damaged = w.chance(p.damage); damaged {
				b = bytes.Clone(payload)
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

func faults(e *engine.Engine) (n uint64) {
	for _, c := range e.Stats.Faults {
		n += c
	}
	return n
}

func (w *World) arrive(from, to int, payload []byte, damaged bool) {
	l := w.nodes[to]
	if !l.alive {
		return
	}
	w.frames++
	sum := uint32(0)
	if len(payload) >= wire.HeaderLen {
		sum = binary.LittleEndian.Uint32(payload[16:])
	}
	w.record(uint64(w.now), uint64(from)<<32|uint64(to), uint64(sum))
	if w.cfg.Trace != nil {
		w.tracef("%d -> %d  %s", from, to, describeFrame(payload))
	}
	before := faults(l.e)
	l.e.Receive(w.now, payload, engine.PathID(from))
	if damaged && faults(l.e) != before+1 {
		w.failf("a damaged frame from %d to %d was not noticed", from, to)
	}
	w.checkOrder(l)
	w.run(l)
}

func describeFrame(b []byte) string {
	var h wire.Header
	if f := h.Decode(b); f != wire.OK {
		return "damaged: " + f.String()
	}
	s := fmt.Sprintf("kind %d flags %x packet %d seq %d ack %d/%x applied %d/%d order %d", h.Kind, h.Flags, h.Packet, h.Sequence,
		h.AckLargest, h.AckBits, h.AckRequests, h.AckResponses, h.Order)
	if h.Kind != wire.KindData {
		return s
	}
	var r wire.Record
	for body := b[wire.HeaderLen:]; len(body) > 0; {
		n := wire.NextRecord(body, &r)
		if n == 0 {
			return s + " BAD RECORD"
		}
		s += fmt.Sprintf(" | %s w%d t%x @%d %dB", r.Code, r.Window, r.Token, r.Disp, len(r.Data))
		body = body[n:]
	}
	return s
}
