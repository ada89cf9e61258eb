package express

import (
	"math/bits"
	"sync/atomic"

	"github.com/xdprma/xdprma/internal/protocol/siphash"
)

// Tables are the memory that a rank shares with its program: a slot for each session,
// and the windows that the program reaches. The program reads it at any time, so that
// an entry's id is written last when it begins and cleared first when it ends.
type Tables struct {
	places  []Place
	windows []Exposed
	rights  [Windows]func(rank int, life uint64) uint8 // to the windows
	lives   map[uint32]uint64                          // by rank: the incarnation of the last session that got a slot
}

// NewTables returns the tables in memory that is aligned to 8 bytes and zero at first:
// any number of slots of SlotLen bytes, and Windows windows of WindowLen bytes.
func NewTables(slots, windows []byte) *Tables {
	t := &Tables{places: slotsIn(slots), windows: windowsIn(windows), lives: map[uint32]uint64{}}
	if len(t.windows) != Windows {
		panic("express: memory for too few windows, or too many")
	}
	for i := range t.windows {
		t.windows[i].clear()
	}
	return t
}

// HeapTables returns tables on the heap with the given number of slots, which no program
// shares.
func HeapTables(slots int) *Tables {
	return NewTables(bytesOf(make([]uint64, slots*SlotLen/8)), bytesOf(make([]uint64, Windows*WindowLen/8)))
}

// Len returns the number of slots.
func (t *Tables) Len() int { return len(t.places) }

// Place returns the memory of slot i.
func (t *Tables) Place(i int) *Place { return &t.places[i] }

// Endpoint is an address with a port. Its zero value stands for any.
type Endpoint struct {
	IP   [16]byte // as in a frame: of IPv4 the first four bytes, the rest is 0
	Port uint16
}

// words returns e as the program reads it from a frame.
func (e Endpoint) words() (ip [2]uint64, port uint16) {
	return [2]uint64{le.Uint64(e.IP[:8]), le.Uint64(e.IP[8:])}, bits.ReverseBytes16(e.Port)
}

// Slot describes the session that a slot is for.
type Slot struct {
	Session     uint64 // id that its requests carry; not 0
	PeerSession uint64 // id that its answers carry
	Rank        uint32 // of the origin in the job
	Life        uint64 // its incarnation
	// Where its requests come from and arrive. If neither is zero, the program passes
	// those of other places on to user space.
	Peer, Local Endpoint
	Keys        *Keys // by which its frames have codes; nil: they have checksums
}

// Keys are those by which the program signs, and judges, express frames of a session.
type Keys struct {
	Requests siphash.Key // of the peer
	Answers  siphash.Key // to them
	Answered siphash.Key // of the answers to requests of this rank
}

// OpenSlot begins slot i, in which no exchange has been made.
func (t *Tables) OpenSlot(i int, s Slot) {
	p := &t.places[i]
	atomic.StoreUint64(&p.Session, 0)
	atomic.StoreUint64(&p.Word, WordOf(0, StateDone))
	atomic.StoreUint64(&p.PeerSession, s.PeerSession)
	atomic.StoreUint32(&p.Rank, s.Rank)
	p.PeerPort = 0
	if (s.Peer != Endpoint{}) && (s.Local != Endpoint{}) {
		p.PeerIP, p.PeerPort = s.Peer.words()
		p.LocalIP, p.LocalPort = s.Local.words()
	}
	p.Keyed, p.Keys = 0, [numKeys]siphash.Key{}
	if s.Keys != nil {
		p.Keyed, p.Keys = 1, [numKeys]siphash.Key{s.Keys.Requests, s.Keys.Answers, s.Keys.Answered}
	}
	atomic.StoreUint64(&p.Outcome, 0)
	atomic.StoreUint64(&p.Locked, 0)
	t.greet(s.Rank, s.Life)
	atomic.StoreUint64(&p.Session, s.Session)
}

// RequestKey returns the key of the requests of slot i, nil if they have checksums.
func (t *Tables) RequestKey(i int) *siphash.Key { return t.places[i].key(ofRequests) }

// AnsweredKey returns the key of the answers to requests of this rank to the peer of slot i, nil if
// they have checksums.
func (t *Tables) AnsweredKey(i int) *siphash.Key { return t.places[i].key(ofAnswered) }

func (p *Place) key(i int) *siphash.Key {
	if p.Keyed == 0 {
		return nil
	}
	return &p.Keys[i]
}

// greet gives a rank the rights of its present life. For the program, a rank has one place in a
// window: it stands for the life whose session has a slot.
func (t *Tables) greet(rank uint32, life uint64) {
	if rank >= MaxRank || t.lives[rank] == life {
		return
	}
	t.lives[rank] = life
	for i := range t.windows {
		if t.windows[i].ID == 0 {
			continue
		}
		word, at := &t.windows[i].Rights[rank/perWord], rank%perWord*rightsLen
		atomic.AndUint64(word, ^(uint64(allRights) << at))
		atomic.OrUint64(word, uint64(t.rights[i](int(rank), life)&allRights)<<at)
	}
}

// CloseSlot ends slot i: no request of its session is claimed any more. A program that
// has claimed one before may still be at it, until the device has quiesced the session;
// only then may Abandon be called, and OpenSlot again.
func (t *Tables) CloseSlot(i int) { atomic.StoreUint64(&t.places[i].Session, 0) }

// WipeSlot overwrites the keys of slot i, whose session the device has quiesced.
func (t *Tables) WipeSlot(i int) { clear(t.places[i].Keys[:]) }

// Abandon returns the window whose lock an exchange of the closed slot i left held when it
// was interrupted, for the caller to give up.
func (t *Tables) Abandon(i int) (id uint32, ok bool) {
	v := atomic.SwapUint64(&t.places[i].Locked, 0)
	return uint32(v - 1), v != 0
}

// Holds returns the window whose lock an exchange of slot i holds, which is under way or was
// interrupted.
func (t *Tables) Holds(i int) (id uint32, ok bool) {
	v := atomic.LoadUint64(&t.places[i].Locked)
	return uint32(v - 1), v != 0
}

// Window is a window that the program reaches.
type Window struct {
	ID         uint32
	Chunk      int                               // index of the chunk in which it lies
	Base       uint64                            // where in the chunk, a multiple of 8
	Size       uint64                            // bytes
	Rights     func(rank int, life uint64) uint8 // what a rank may do in one of its lives, as bits that records need; nil: all
	Locks      bool                              // the program may take its lock
	LockAt     uint64                            // where in the chunk Sync that is
	Counters   int                               // of notifications
	CountersAt uint64                            // where in the chunk Sync they are, a multiple of 16
	Sync       int                               // index of the chunk in which the lock and the counters lie
}

// tries is how many places there are for a window.
const tries = 8

// placeOf returns one of the places for a window with an id. The ids of a rank's windows
// mostly step by the number of ranks. The first place, all bytes of the id in one, is then
// another for each of them, if that number is a power of two. The distance to the next is odd,
// so that all are different, and other for windows with the same first place.
func placeOf(id uint32, try int) int {
	place, step := id^id>>16, id*0x9e3779b1>>24|1
	place ^= place >> 8
	return int((place + uint32(try)*step) % Windows)
}

// PlaceFor returns the first of the places for a window with an id that may be used, -1 if there is
// none.
func PlaceFor(id uint32, may func(place int) bool) int {
	for try := range tries {
		if place := placeOf(id, try); may(place) {
			return place
		}
	}
	return -1
}

// Expose lets the program reach a window. may says of a place whether it may be used; nil: all
// may. Expose returns the place, -1 if none of those for the window is free.
func (t *Tables) Expose(w Window, may func(place int) bool) (place int) {
	place = PlaceFor(w.ID, func(place int) bool {
		return atomic.LoadUint64(&t.windows[place].ID) == 0 && (may == nil || may(place))
	})
	if place >= 0 {
		t.expose(place, &w)
	}
	return place
}

func (t *Tables) expose(place int, w *Window) {
	e := &t.windows[place]
	atomic.StoreUint64(&e.Base, w.Base)
	atomic.StoreUint64(&e.Size, w.Size)
	atomic.StoreUint32(&e.Chunk, uint32(w.Chunk))
	flags := uint32(0)
	if w.Locks {
		flags = FlagLock
	}
	atomic.StoreUint32(&e.Flags, flags)
	atomic.StoreUint64(&e.Lock, w.LockAt)
	atomic.StoreUint64(&e.Counters, w.CountersAt)
	atomic.StoreUint32(&e.Counts, uint32(w.Counters))
	atomic.StoreUint32(&e.Sync, uint32(w.Sync))
	rights := w.Rights
	if rights == nil {
		rights = func(int, uint64) uint8 { return allRights }
	}
	for i := range e.Rights {
		var word uint64
		for k := range perWord {
			rank := i*perWord + k
			word |= uint64(rights(rank, t.lives[uint32(rank)])&allRights) << (k * rightsLen)
		}
		atomic.StoreUint64(&e.Rights[i], word)
	}
	t.rights[place] = rights
	atomic.StoreUint64(&e.ID, uint64(w.ID)+1)
}

// Retract ends Expose: no request for the window is claimed any more. A program that has
// claimed one before may still be at it until the device has quiesced the window.
func (t *Tables) Retract(id uint32) {
	for try := range tries {
		place := placeOf(id, try)
		if e := &t.windows[place]; atomic.CompareAndSwapUint64(&e.ID, uint64(id)+1, 0) {
			e.clear()
		}
	}
}

// clear clears every field: a processor may read them before the id, and combine them with
// the next window's id.
func (e *Exposed) clear() {
	atomic.StoreUint64(&e.Base, noBase)
	atomic.StoreUint64(&e.Size, 0)
	atomic.StoreUint32(&e.Chunk, noChunk)
	atomic.StoreUint32(&e.Flags, 0)
	atomic.StoreUint32(&e.Counts, 0)
	atomic.StoreUint32(&e.Sync, noChunk)
	for i := range e.Rights {
		atomic.StoreUint64(&e.Rights[i], 0)
	}
}

// Find returns the window with an id, nil if none is exposed.
func (t *Tables) Find(id uint32) *Exposed {
	for try := range tries {
		if e := &t.windows[placeOf(id, try)]; atomic.LoadUint64(&e.ID) == uint64(id)+1 {
			return e
		}
	}
	return nil
}
