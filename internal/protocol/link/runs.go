package link

import (
	"cmp"

	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// Long transfers leave as runs: frames of one length, of which the last may be shorter, that
// the device hands to the kernel as one message. The kernel may carry it to the peer's UDP
// socket uncut, which costs a fraction of what as many frames do. Small bundles, and those that
// are sent again, go by themselves.
//
// So there are two ways to a peer, and frames of one overtake those of the other. Each way
// numbers its packets, and is acknowledged, for itself. Something on the way may lose what
// it does not take for frames, or let only one of the ways pass: a run goes by itself until
// the peer has acknowledged a probe that was joined, and again for a while after too many of
// a run's bundles were lost. None of that says anything of frames that go by themselves.

const (
	leastRun   = 2                 // frames, and of a probe
	leastBytes = 12 << 10          // that leave at once: fewer arrive sooner one by one
	maxRun     = 1<<16 - 1 - 48    // bytes: of a UDP datagram of IPv6
	leastPause = 100 * millisecond // without runs, the first time
	mostPause  = leastPause << 12

	// Runs become half as long when at least so many of their bundles were lost since they
	// last changed, and more than one of so many; and twice as long, when so many arrived.
	leastLost  = 8
	oneLostOf  = 4
	calmFrames = 1024

	mostSilent = 2 // timeouts in a row

	mostBatch     = 192 << 10 // bytes of a batch
	aloneBatch    = 64 << 10  // bytes of one that goes frame by frame
	fewestBundles = 8         // of that
)

// runs is what an origin knows of the way of joined frames to a peer.
type runs struct {
	room    int    // bytes that may be in flight for each credit; 0: the peer or the device has no such way
	most    int    // frames that share a message; below leastRun: none do now
	bytes   int    // in flight
	arrived int    // bundles, since most changed
	missing int    // bundles lost since then
	counted uint64 // losses of packets below it have been counted
	silent  int    // timeouts in a row that nothing was acknowledged between
	probe   uint64 // packet number of the first frame of the probe that is out, or 0
	until   int64  // for how long no probe is sent, or that one is waited for
	pause   int64  // the next one
}

// openRuns takes in what a peer says of its end of the way.
func (l *Link) openRuns(s *Session, h *wire.Terms) {
	s.runs = runs{pause: leastPause}
	if l.cfg.Joins >= leastRun {
		s.runs.room = int(min(h.Joined, 1<<24))
	}
}

// longestRun returns how many frames to s a message holds.
func (l *Link) longestRun(s *Session) int { return min(l.cfg.Joins, maxRun/(s.maxPayload+l.trailer)) }

// landed takes in that a bundle of a run has arrived. A message may have limit frames.
func (r *runs) landed(limit int) {
	if r.arrived++; r.arrived < calmFrames || r.most < leastRun {
		return
	}
	r.arrived, r.missing = 0, 0
	if r.most = min(2*r.most, limit); r.most == limit {
		r.pause = leastPause
	}
}

// lost takes in that a packet of a run was lost, since later ones have arrived; next is the
// packet that will be sent next. All that is on its way when runs become shorter counts as
// one loss: a message is lost as a whole.
func (r *runs) lost(packet, next uint64, now int64) {
	if packet < r.counted {
		return
	}
	if r.missing++; r.missing < leastLost || r.missing*oneLostOf < r.arrived || r.most < leastRun {
		return
	}
	r.arrived, r.missing, r.counted = 0, 0, next
	if r.most /= 2; r.most < leastRun {
		r.leave(now)
	}
}

// leave has nothing go by the way of runs for a while.
func (r *runs) leave(now int64) {
	r.most, r.silent = 0, 0
	r.until, r.pause = now+r.pause, min(2*r.pause, mostPause)
}

// loseRuns takes all for lost that was sent by the way of runs until then: the peer has
// acknowledged nothing of it for long. It may have paused. If that comes again before it
// acknowledges anything, the way is left.
func (l *Link) loseRuns(s *Session, until int64) {
	next := None
	for i := s.ways[Joined].flight.head; i != None; i = next {
		p := &l.slots[i]
		if next = p.next; !p.inDevice && p.sentAt <= until {
			l.lose(s, i)
		}
	}
	if r := &s.runs; r.most >= leastRun {
		if r.silent++; r.silent == mostSilent {
			r.leave(l.Now)
		}
	}
}

// leave has bundle i sent by the next call of Output, which knows what leaves with it.
func (l *Link) leave(s *Session, i int32) {
	if s.leaving.n == 0 {
		l.leaving = append(l.leaving, s)
		l.WakeBy(l.Now + s.rtt.Probe()) // the timer of its way begins then
	}
	l.pushBack(&s.leaving, i)
	s.departing += int(l.slots[i].length)
	if !l.isSmall(i) {
		s.longer++
	}
}

// depart sends what is to leave.
func (l *Link) depart() {
	for _, s := range l.leaving {
		long, ran := s.departing >= l.leastJoined(), false
		most := int32(max(leastRun, min(s.runs.most, l.longestRun(s))))
		s.departing = 0
		for s.leaving.n > 0 {
			n, bytes := l.nextRun(s, evenRun(s.longer, most))
			way := Single
			if ran = long && l.mayRun(s, n, bytes, ran); ran {
				way = Joined
				s.runs.bytes += bytes
			}
			for ; n > 0; n-- {
				i := s.leaving.head
				l.remove(&s.leaving, i)
				if !l.isSmall(i) {
					s.longer--
				}
				if way == Joined && s.leaving.n == 0 {
					l.askPromptly(s, i)
				}
				l.launch(s, i, way, way == Joined && n > 1)
			}
		}
	}
	l.leaving = l.leaving[:0]
}

// leastJoined returns how many bytes are to leave at once for them to go joined.
func (l *Link) leastJoined() int { return cmp.Or(l.cfg.JoinsFrom, leastBytes) }

// Batch returns how many bundles of a transfer, of which so many bytes are left, are to be
// written before they leave: at least so many, and half of what is left if that is more. The
// target works on that while the rest is written. Where the end would go frame by frame, it
// is part of the batch. The more bytes a batch has, the longer do others wait for the engine.
// Without runs a batch has at most least, and fewer where frames are long and take long to seal.
func (s *Session) Batch(left, least int) int {
	each := s.maxPayload - wire.HeaderLen - wire.RecordLen
	if s.runs.most < leastRun {
		return min(least, max(fewestBundles, aloneBatch/each))
	}
	n := max(least, left/each/2)
	if left-n*each < s.link.leastJoined() {
		n = max(n, left/each+1)
	}
	return min(n, max(least, mostBatch/each))
}

// askPromptly has bundle i, the last of those that leave, acknowledged at once: later ones may
// overtake it, and be acknowledged first.
func (l *Link) askPromptly(s *Session, i int32) {
	p := &l.slots[i]
	p.flags |= wire.FlagAckNow
	if p.class == Request {
		s.promptSeq = max(s.promptSeq, p.seq)
	}
}

// left returns how many bytes may still be in flight by the way of runs.
func (s *Session) left() int { return s.runs.room*int(s.credits) - s.runs.bytes }

// evenRun returns how many of n frames share the next message, where one holds most. Its
// successors have as many, or one less: the peer works on one while the next is sent.
func evenRun(n, most int32) int {
	messages := max(1, (n+most-1)/most) // none: they are small, or the session has ended
	return int((n + messages - 1) / messages)
}

// nextRun returns how many of the bundles that are to leave first can share a message, at
// most so many, and their bytes.
func (l *Link) nextRun(s *Session, most int) (n, bytes int) {
	i := s.leaving.head
	length := l.slots[i].length
	room := min(maxRun, s.left())
	n, bytes = 1, int(length)
	for i = l.slots[i].next; i != None && n < most; i = l.slots[i].next {
		p := &l.slots[i]
		if p.length > length || bytes+int(p.length) > room || l.isSmall(i) {
			break
		}
		bytes += int(p.length)
		if n++; p.length < length {
			break
		}
	}
	return n, bytes
}

// mayRun reports whether the n frames to s that are to leave first, of so many bytes, go by the
// way of runs. A few follow a run that left just before, but for a small bundle.
func (l *Link) mayRun(s *Session, n, bytes int, follows bool) bool {
	r := &s.runs
	if n < leastRun && (!follows || l.isSmall(s.leaving.head)) {
		return false
	}
	if r.most < leastRun {
		l.probeRuns(s)
		return false
	}
	return bytes <= s.left()
}

// probeRuns finds out whether the peer gets joined frames.
func (l *Link) probeRuns(s *Session) {
	r := &s.runs
	if l.Now < r.until || l.freeSlots < l.ackReserve+leastRun || l.longestRun(s) < leastRun {
		return
	}
	if r.probe != 0 { // in vain
		r.probe, r.until, r.pause = 0, l.Now+r.pause, min(2*r.pause, mostPause)
		return
	}
	due := s.acks
	r.probe, r.until = s.ways[Joined].nextPacket, l.Now+reliable.MaxTimeout
	for range leastRun {
		i := l.allocSlot()
		clear(l.cfg.Slab.Payload(i)[wire.HeaderLen:s.maxPayload])
		l.loose(s, i, s.maxPayload, wire.FlagAckNow, 0, Joined)
		l.out[len(l.out)-1].More = true
	}
	l.out[len(l.out)-1].More = false
	s.acks = due // the probe may not arrive
}

// proven takes in an acknowledgement of joined frames while a probe is out.
func (l *Link) proven(s *Session, h *wire.Header) {
	r := &s.runs
	for n := range uint64(leastRun) {
		if !reliable.Has(h.AckLargest, h.AckBits, r.probe+n) {
			return
		}
	}
	r.probe, r.until, r.most, r.arrived, r.missing = 0, 0, l.longestRun(s), 0, 0
}
