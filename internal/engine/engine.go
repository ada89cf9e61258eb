// Package engine is the protocol of one-sided communication as a pure state
// machine: frames, calls and the time come in; frames, changes of memory and the
// next deadline come out. It has no goroutine, lock, clock, system call or source
// of randomness of its own, so the same code runs over AF_XDP, over UDP sockets
// and in a deterministic simulation. Its caller serialises all calls.
//
// A rank is at once origin and target. Files follow a frame's way: slots and
// session (who is there), send and ack (reliability outwards), receive and parking
// (inwards), target (requests take effect), origin (calls and their answers). Beside
// them are access, locks, shared, exposure and deferred (epochs, and calls that wait
// for one), direct (calls that need no frame), types, typed and typed_target (derived
// datatypes), evict (memory that goes), match, messages_out, messages_in, rest, revoke, gone and freed (messages),
// check (checking mode), and life (death and leaving).
package engine

import (
	"math"

	"github.com/xdprma/xdprma/internal/reliable"
	"github.com/xdprma/xdprma/internal/wire"
	"github.com/xdprma/xdprma/window"
)

// Never is the deadline of an engine that waits for nothing.
const Never int64 = math.MaxInt64

const (
	microsecond int64 = 1000
	millisecond       = 1000 * microsecond

	ackDelay = 200 * microsecond // how long an acknowledgement may wait for company
)

// Config holds what an engine is told at the start. Times are in nanoseconds, on
// a clock that has passed zero: 0 stands for no time at all.
type Config struct {
	Rank        int           // of this process in the job
	Size        int           // ranks in the job
	Job         uint64        // shared by all ranks of the job, unknown to others
	Incarnation uint64        // larger for each restart of this rank; not 0
	Rand        func() uint64 // session ids
	Slab        *Slab         // transmit memory of the device
	Windows     *window.Table // what this rank exposes

	RxFrames      int   // frames that the device can hold for reading; 0: 1024
	Parked        int   // bundles held while they wait for order or room; 0: 2048
	MaxOps        int   // operations awaiting an answer, a power of two up to 65536; 0: 8192
	MaxTypeBytes  int   // bytes of the datatypes that all peers have defined here, as encoded; 0: 64 MiB
	MaxUnexpected int   // bytes of messages between two ranks without a receive, beyond a small share of each sender's; 0: 16 MiB
	DeadAfter     int64 // silence after which a peer that owes an answer is dead; 0: 5 s

	// OnConflict, if not nil, is told of conflicting accesses to windows in checking
	// mode. It is called within a call of the engine, and must not call it.
	OnConflict func(window.Conflict)
}

func (c *Config) setDefaults() {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&c.RxFrames, 1024)
	def(&c.Parked, 2048)
	def(&c.MaxOps, 8192)
	def(&c.MaxTypeBytes, 64<<20)
	def(&c.MaxUnexpected, 16<<20)
	if c.DeadAfter == 0 {
		c.DeadAfter = 5000 * millisecond
	}
}

// Engine is one rank's end of the protocol.
type Engine struct {
	cfg   Config
	now   int64 // of the current call
	Stats Stats

	slotShare  share
	slots      []slot
	freeHead   int32
	freeSlots  int32
	ackReserve int32             // slots that only acknowledgements may use
	held       [numClasses]int32 // slots of the bundles of all sessions
	out        []Out

	own      []*Access // to this rank's own windows
	byRank   map[int]*Session
	byID     map[uint64]*Session
	recent   [recentSessions]*Session // by the low bits of the id, in front of byID
	opened   []uint64                 // ids to announce to the device
	closed   []uint64
	active   []*Session // those with anything outstanding
	silent   int        // of them, those not heard of lately
	dirty    []*Session // those with something to send
	late     []*Session // those of which something lost is still in the device
	stalled  []*Session // those with something to send that there was no room for
	deadline int64

	deferredPool []*deferred

	opShare   share
	ops       []op
	pending   int32 // of ops
	freeOp    int32
	parked    parkingLot
	revoked   revocations
	gone      gone
	freed     freed
	match     matching
	offers    map[uint32]*Sending // what others may get from this rank, by id
	lastOffer uint32
	locks     map[uint32]*lock // of the windows, by id
	waits     map[lockKey]*lockWait
	wordsAt   int64                    // when to look at the words that somebody waits for; 0: nobody does
	granted   []window.Grant[struct{}] // scratch
	walks     walks                    // scratch
	turn      uint64                   // bundles of requests, and local calls, that have acted
	direct    *Direct                  // scratch

	typedPool   []*Typed
	scatterPool []*scatter

	typeBytes int // of the datatypes that peers have defined here, as encoded
}

// New returns an engine. It panics if cfg contradicts itself, which is the
// caller's bug.
func New(cfg Config) *Engine {
	cfg.setDefaults()
	switch {
	case cfg.Size < 1 || cfg.Rank < 0 || cfg.Rank >= cfg.Size:
		panic("engine: rank outside the job")
	case cfg.Incarnation == 0:
		panic("engine: incarnation 0")
	case cfg.Slab.MaxPayload < wire.MinPayload:
		panic("engine: transmit slots smaller than the smallest payload")
	case cfg.Slab.Slots < 32:
		panic("engine: fewer than 32 transmit slots")
	case cfg.MaxOps&(cfg.MaxOps-1) != 0 || cfg.MaxOps > maxOps:
		panic("engine: MaxOps is not a power of two up to 65536")
	}
	e := &Engine{
		cfg:      cfg,
		slots:    make([]slot, cfg.Slab.Slots),
		out:      make([]Out, 0, cfg.Slab.Slots),
		byRank:   map[int]*Session{},
		byID:     map[uint64]*Session{},
		locks:    map[uint32]*lock{},
		offers:   map[uint32]*Sending{},
		waits:    map[lockKey]*lockWait{},
		deadline: Never,
		freeOp:   none,
		freeHead: none,
	}
	for i := len(e.slots) - 1; i >= 0; i-- {
		e.freeSlot(int32(i))
	}
	e.ackReserve = int32(cfg.Slab.Slots) / 16
	e.slotShare, e.opShare = shareOf(cfg.Slab.Slots), shareOf(cfg.MaxOps)
	e.parked.split(cfg.Parked)
	return e
}

// Windows returns the table of the windows that this rank exposes.
func (e *Engine) Windows() *window.Table { return e.cfg.Windows }

// Deadline returns when Tick must run again at the latest.
func (e *Engine) Deadline() int64 { return e.deadline }

// Announcements returns the session ids that became valid and those that ceased
// to be since the last call. The device must know them before it sends any of
// Output. Both slices are nil nearly always.
func (e *Engine) Announcements() (opened, closed []uint64) {
	if len(e.opened)+len(e.closed) == 0 {
		return nil, nil
	}
	opened, closed = e.opened, e.closed
	e.opened, e.closed = nil, nil
	return opened, closed
}

func (e *Engine) wakeBy(t int64) {
	if t < e.deadline {
		e.deadline = t
	}
}

// Tick sends what is ready and does what is due at now.
func (e *Engine) Tick(now int64) {
	e.now = now
	if now >= e.deadline {
		e.expire() // first: the death of a peer hands its locks to bundles that wait
	}
	if e.parked.n > 0 {
		e.retryParked()
	}
	if len(e.stalled) > 0 {
		e.unstall()
	}
	for i := 0; i < len(e.dirty); i++ {
		s := e.dirty[i]
		s.isDirty = false
		e.service(s)
	}
	e.dirty = e.dirty[:0]
}

// expire looks at every session with something outstanding and finds the next
// deadline. It runs when a deadline has passed, not once a packet.
func (e *Engine) expire() {
	e.deadline, e.silent = Never, 0
	e.sweep()
	e.lookAtWords()
	for i := 0; i < len(e.active); {
		s := e.active[i]
		e.timers(s)
		if s.idle() {
			s.isActive = false
			last := len(e.active) - 1
			e.active[i] = e.active[last]
			e.active[last] = nil
			e.active = e.active[:last]
			continue
		}
		if e.now-s.heard > reliable.MaxTimeout {
			e.silent++
		}
		i++
	}
}

// markDirty has s serviced by the next Tick, which is due soon even if nobody waits.
func (e *Engine) markDirty(s *Session) {
	if !s.isDirty {
		s.isDirty = true
		e.dirty = append(e.dirty, s)
		e.wakeBy(e.now + ackDelay)
	}
	e.markActive(s)
}

func (e *Engine) markActive(s *Session) {
	if !s.isActive {
		s.isActive = true
		e.active = append(e.active, s)
	}
}
