// Package link carries bundles of records between one rank and each of its peers: it
// opens sessions, sends and sends again, acknowledges, keeps what came before its turn, and
// notices who is gone. It knows nothing of what the records mean: that is the layer
// above, which it calls through Upper. It is a pure state machine: frames, calls and the
// time come in, frames and the next deadline come out.
//
// A bundle goes this way:
//
//  1. Room finds a transmit slot for its first record (send.go, share.go, slots.go).
//  2. It is closed when it is full, or by the next Tick, and sent as far as the window
//     allows (send.go), whole or in pieces (pieces.go, length.go).
//     By which way it goes is decided last (runs.go).
//  3. The peer takes it in once, has it applied when it is its turn, and parks it until
//     then (receive.go, parking.go).
//  4. The peer's acknowledgement frees the slot, or shows what was lost (ack.go).
//
// A small bundle that is waited for may go another way, which the peer's XDP program serves:
// exchange.go is its origin's part, with express.Origin, served.go what is left to the target's user
// space.
//
// Beside these ways are session.go and hello.go (who is there) and life.go (who is gone).
package link

import (
	"math"
	"slices"

	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// Never is the deadline of a link that waits for nothing.
const Never int64 = math.MaxInt64

const (
	microsecond int64 = 1000
	millisecond       = 1000 * microsecond

	ackDelay = 200 * microsecond // how long an acknowledgement may wait for company
)

// Config holds what a link is told at the start. Times are in nanoseconds, on a clock
// that has passed zero: 0 stands for no time at all.
type Config struct {
	Rank        int                                         // of this process in the job
	Size        int                                         // ranks in the job
	Job         uint64                                      // names the job in frames, the same at all its ranks
	Incarnation uint64                                      // larger for each restart of this rank; not 0
	Rand        func() uint64                               // session ids
	Slab        *Slab                                       // transmit memory of the device
	RxFrames    int                                         // frames that the device can hold for reading
	Joins       int                                         // frames that the device sends as one message by the way of Joined; below 2: it has no such way
	JoinsFrom   int                                         // bytes that are to leave at once for them to go joined; 0: 12 KiB
	JoinedRoom  int                                         // bytes of frames that it holds for reading, if they come that way; 0: none may
	Parked      int                                         // bundles held while they wait for order or room; three for each peer, or more
	DeadAfter   int64                                       // silence after which a peer that owes an answer is dead
	Congestion  func() reliable.Congestion                  // of a session
	Seek        func(rank int)                              // looks for the way to a rank that Connect has begun a session with
	Address     func(PathID) string                         // where a path leads, for errors; may be nil
	Trouble     func(silent int64) string                   // what may have kept frames from this rank meanwhile, for errors, or nothing; may be nil
	Published   func(int, uint64, PathID) Verdict           // on a rank that claims to be of an incarnation, and at the end of a path; nil: all are confirmed
	Express     *express.Tables                             // what this rank shares with its XDP program; nil: it serves no exchanges
	Peer        func(PathID) (peer, local express.Endpoint) // of a path, for the program; may be nil
	Credentials *Credentials                                // of this rank, in a job with a key; nil: it has none
	Offload     func(work, done func()) bool                // runs work elsewhere, and then done as a call of the link; false: it has no time; nil: both run at once
	Route       func(*secure.Ticket, func(PathID))          // finds the way to the address in a ticket, and calls the function with it or NoPath, as a call of the link; nil: it is the way that a frame came by
	AnswersLost func(rank int)                              // told when the answers of a peer's program get lost; may be nil
	Asked       func(rank int, life uint64, lives bool)     // told how a question of Suspect was answered; may be nil
	Upper       Upper
	Stats       *Stats
}

// Upper is the layer above a link. The link calls it within calls of its own.
type Upper interface {
	// Begin returns a new session, with its Upper set.
	Begin() *Session
	// Apply lets the records of a bundle of requests take effect. It returns false, and is
	// called again, if there is no room for an answer now, or it is too early: At and Done say how
	// far it came. In the latter case Apply has asked for a Tick.
	Apply(b *Bundle) bool
	// Answers takes in the records of a bundle of responses.
	Answers(s *Session, body []byte)
	// Express returns how many records there are in the body of a bundle of requests to s,
	// and how many bytes of results, each padded to 8. It returns 0 records unless the
	// peer's program can execute them all.
	Express(s *Session, records []byte) (n, results int)
	// Executed takes in that the peer has executed the records of a bundle at once, but for
	// those whose bits are set in refused, since their window is gone.
	Executed(s *Session, records, results []byte, refused uint8)
	// Served looks after locks that the program may have given up.
	Served()
	// Quiesced hands on what s, which has failed, held here: nothing that it has sent can
	// take effect any more.
	Quiesced(s *Session)
	// Ready sends what waits for s, as far as there is room. It is called before every
	// frame to s, and whenever room may have come about.
	Ready(s *Session)
	// Waits reports whether something waits for s that Ready would send.
	Waits(s *Session) bool
	// Owes reports whether s owes something that the link does not know of.
	Owes(s *Session) bool
	// Inquire is called now and then while s, which lives, owes something. It may ask s about
	// that, and judges the answer. It reports whether it has asked, or why s will never
	// bring what it owes.
	Inquire(s *Session) (asked bool, fault error)
	// Failed ends everything that waits for s, which has ended. Quiesced follows.
	Failed(s *Session)
	// Sweep looks after what waits for no session in particular, and sets the deadline.
	Sweep()
}

// Link is one rank's end of the link to all others.
type Link struct {
	// Now is the time. It stays the same until the driver sets it, before its next calls.
	Now int64

	cfg   Config
	stats *Stats

	slotShare  Share
	slots      []slot
	freeHead   int32
	freeSlots  int32
	ackReserve int32             // slots that only acknowledgements may use
	held       [NumClasses]int32 // slots of the bundles of all sessions
	out        []Out
	leaving    []*Session // those with bundles that the next call of Output sends
	parked     parkingLot
	arriving   Bundle // scratch

	trailer    int                  // bytes behind the payload of each frame, of which the checksums are apart
	minPayload int                  // what every path carries, without them
	answers    map[int]*answered    // by rank: the hello of it that was answered, of which no frame has come
	waiting    map[uint64]*answered // by id: likewise
	answering  map[int]*answered    // by rank: the hello of it that is verified now, and its answer computed
	calls      int                  // sessions that have a turn to be dialed
	callers    []*Session           // those that wait for one

	claims    map[int]claim // by rank: the last hello without a verdict
	byRank    map[int]*Session
	byID      map[uint64]*Session
	recent    [recentSessions]*Session // by the low bits of the id, in front of byID
	opened    []Opened                 // to announce to the device
	closed    []uint64
	toQuiesce []uint64
	active    []*Session             // those with anything outstanding
	silent    int                    // of them, those not heard of lately
	dirty     []*Session             // those with something to send
	late      []*Session             // those of which something lost is still in the device
	stalled   []*Session             // those with something to send that there was no room for
	timelines [numTimelines]timeline // those with a key that is to go
	deadline  int64
	expiredAt int64 // when the timers were last looked at

	served served

	// credits is how many bundles of each class a peer may have in flight: an equal
	// share of the frames that the device can hold for reading. Half of it is kept back,
	// because peers go on with their old share until they hear of a smaller one. A
	// silent peer sends nothing, and takes no share.
	credits uint32
	rtt     reliable.RTT // over all sessions
}

// New returns a link. It panics if cfg contradicts itself, which is the caller's bug.
func New(cfg Config) *Link {
	switch {
	case cfg.Size < 1 || cfg.Rank < 0 || cfg.Rank >= cfg.Size:
		panic("link: rank outside the job")
	case cfg.Incarnation == 0:
		panic("link: incarnation 0")
	case cfg.Slab.MaxPayload < wire.MinPayload:
		panic("link: transmit slots smaller than the smallest payload")
	case cfg.Slab.Slots < 32:
		panic("link: fewer than 32 transmit slots")
	}
	l := &Link{
		cfg:       cfg,
		stats:     cfg.Stats,
		slotShare: ShareOf(cfg.Slab.Slots),
		slots:     make([]slot, cfg.Slab.Slots),
		out:       make([]Out, 0, cfg.Slab.Slots),
		trailer:   cfg.trailer(),
		answers:   map[int]*answered{},
		waiting:   map[uint64]*answered{},
		answering: map[int]*answered{},
		claims:    map[int]claim{},
		byRank:    map[int]*Session{},
		byID:      map[uint64]*Session{},
		deadline:  Never,
		freeHead:  None,
	}
	l.minPayload = wire.MinPayload - l.trailer
	if cfg.Express != nil {
		l.served = newServed(cfg.Express.Len())
	}
	for i := len(l.slots) - 1; i >= 0; i-- {
		l.freeSlot(int32(i))
	}
	l.ackReserve = int32(cfg.Slab.Slots) / 16
	l.parked.split(cfg.Parked, cfg.Size-1)
	l.reshare()
	return l
}

// Deadline returns when Tick must run again at the latest.
func (l *Link) Deadline() int64 { return l.deadline }

// Announcements returns the sessions that became valid and the ids of those that ceased
// to be since the last call. The device must know them before it sends any of Output.
// Quiescing has the ids of sessions that have ended: when no frame of one is on its way
// through the program any more, and none will be, the caller says so by Quiesced. All are nil
// nearly always.
func (l *Link) Announcements() (opened []Opened, quiescing, closed []uint64) {
	if len(l.opened)+len(l.toQuiesce)+len(l.closed) == 0 {
		return nil, nil, nil
	}
	opened, quiescing, closed = l.opened, l.toQuiesce, l.closed
	l.opened, l.toQuiesce, l.closed = nil, nil, nil
	return opened, quiescing, closed
}

// LookAhead finds the deadline anew for somebody who is about to sleep until then: what has been sent
// meanwhile may have made the old one void. It leaves the deadline alone while something waits for
// Tick or Output, which is in no session's timers.
func (l *Link) LookAhead() {
	if l.Now < l.deadline && len(l.dirty)+len(l.stalled)+len(l.leaving)+len(l.out)+int(l.parked.n) == 0 {
		l.expire()
	}
}

// WakeBy sees to it that Tick runs at time t, or before.
func (l *Link) WakeBy(t int64) {
	if t < l.deadline {
		l.deadline = t
	}
}

// Tick sends what is ready and does what is due.
func (l *Link) Tick() {
	if l.Now >= l.deadline {
		l.expire() // first: the end of a session may let bundles of others go on
	}
	if l.parked.n > 0 {
		l.retryParked()
	}
	if len(l.stalled) > 0 {
		l.unstall()
	}
	for i := 0; i < len(l.dirty); i++ {
		s := l.dirty[i]
		s.isDirty = false
		l.service(s)
	}
	l.dirty = l.dirty[:0]
}

// expire looks at every session with something outstanding and finds the next
// deadline. It runs when a deadline has passed or ends a sleep early, not once a packet.
func (l *Link) expire() {
	late := min(l.Now-l.deadline, (l.Now-l.expiredAt)*excusable/100)
	l.deadline, l.silent, l.expiredAt = Never, 0, l.Now
	l.cfg.Upper.Sweep()
	l.seekRest()
	for i := 0; i < len(l.active); {
		s := l.active[i]
		if late > excused {
			s.excuse(late)
		}
		l.timers(s)
		if s.Idle() {
			s.isActive = false
			last := len(l.active) - 1
			l.active[i] = l.active[last]
			l.active[last] = nil
			l.active = l.active[:last]
			continue
		}
		if s.liveness.Silence(l.Now) > reliable.MaxTimeout {
			l.silent++
		}
		i++
	}
	l.reshare()
}

// Active returns the sessions with anything outstanding, until the next call.
func (l *Link) Active() []*Session { return l.active }

// MarkDirty has s serviced by the next Tick, which is due soon even if nobody waits.
func (s *Session) MarkDirty() {
	if l := s.link; !s.isDirty {
		s.isDirty = true
		l.dirty = append(l.dirty, s)
		l.WakeBy(l.Now + ackDelay)
	}
	s.markActive()
}

func (s *Session) markActive() {
	if l := s.link; !s.isActive {
		s.isActive = true
		l.active = append(l.active, s)
		l.reshare()
	}
}

// Stall has s serviced as soon as there is room for a request to it.
func (s *Session) Stall() {
	if l := s.link; !slices.Contains(l.stalled, s) {
		l.stalled = append(l.stalled, s)
	}
}

// unstall has the sessions serviced that had no room, if there is some again.
func (l *Link) unstall() {
	l.stalled = slices.DeleteFunc(l.stalled, func(s *Session) bool {
		room := s.SendRoom()
		if room {
			s.MarkDirty()
		}
		return room
	})
}
