package onesided

import (
	"fmt"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/fabric"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

// setup says how a rank is made.
type setup struct {
	Rank, Size           int
	Job, Incarnation     uint64
	Rand                 func() uint64
	Slab                 *link.Slab
	Windows              *windows.Table
	RxFrames, Parked     int
	Joins, JoinedRoom    int
	MaxOps, MaxTypeBytes int
	DeadAfter            int64
	Congestion           func() reliable.Congestion
	OnConflict           func(window.Conflict)
}

// rank is a link that carries one-sided operations and nothing else.
type rank struct {
	*link.Link
	*Operations
	cfg   setup
	Stats struct {
		link.Stats
		Totals
	}
}

// newRank returns a rank with the defaults of an engine.
func newRank(c setup) *rank {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&c.RxFrames, 1024)
	def(&c.Parked, 2048)
	def(&c.MaxOps, 8192)
	def(&c.MaxTypeBytes, 64<<20)
	if c.Parked = max(c.Parked, 3*(c.Size-1)); c.DeadAfter == 0 {
		c.DeadAfter = testLimit
	}
	if c.Congestion == nil {
		c.Congestion = func() reliable.Congestion { return reliable.NewAIMD() }
	}
	k := &rank{cfg: c}
	k.Link = link.New(link.Config{
		Rank: c.Rank, Size: c.Size, Job: c.Job, Incarnation: c.Incarnation, Rand: c.Rand, Slab: c.Slab,
		RxFrames: c.RxFrames, Joins: c.Joins, JoinedRoom: c.JoinedRoom, Parked: c.Parked, DeadAfter: c.DeadAfter, Congestion: c.Congestion, Seek: func(int) {},
		Upper: (*upper)(k), Stats: &k.Stats.Stats,
	})
	k.Operations = New(k.Link, Config{
		Rank: c.Rank, Size: c.Size, DeadAfter: c.DeadAfter, Windows: c.Windows, MaxOps: c.MaxOps, MaxTypeBytes: c.MaxTypeBytes,
		OnConflict: c.OnConflict, Others: nobody{}, Totals: &k.Stats.Totals, Frames: &k.Stats.Stats, Peer: peerOf,
	})
	return k
}

func peerOf(s *link.Session) *Peer { return s.Upper.(*Peer) }

func (k *rank) Session(rank int) *Peer { return k.peer(rank) }

func (k *rank) Dial(rank int, path link.PathID, incarnation uint64) *Peer {
	return peerOf(k.Link.Dial(rank, path, incarnation))
}

func (k *rank) Connect(rank int) *Peer { return peerOf(k.Link.Connect(rank)) }

// usage is what a rank holds.
type usage struct {
	Slots, FreeSlots, Parked, LockWaits, Operations, TypeBytes, Active, Sessions int
}

func (k *rank) Usage() usage {
	l, u := k.Link.Usage(), k.Operations.Usage()
	return usage{l.Slots, l.FreeSlots, l.Parked, l.Kept, u.Operations, u.TypeBytes, l.Active, l.Sessions}
}

// upper is what the link of a rank calls.
type upper rank

func (u *upper) Begin() *link.Session {
	s := &link.Session{}
	p := NewPeer(s)
	s.Upper = &p
	return s
}

func (u *upper) Apply(b *link.Bundle) bool            { return u.Operations.Apply(peerOf(b.Session), b) }
func (u *upper) Answers(s *link.Session, body []byte) { u.Operations.Answers(peerOf(s), body) }
func (u *upper) Ready(s *link.Session)                { u.Operations.Ready(peerOf(s)) }
func (u *upper) Waits(s *link.Session) bool           { return peerOf(s).Waits() }
func (u *upper) Owes(s *link.Session) bool            { return u.Operations.Owes(peerOf(s)) }

func (u *upper) Inquire(s *link.Session) (asked bool, fault error) {
	return u.Operations.Inquire(peerOf(s))
}

func (u *upper) Failed(s *link.Session)   { u.Fail(peerOf(s)) }
func (u *upper) Quiesced(s *link.Session) { u.Operations.Release(peerOf(s)) }
func (u *upper) Served()                  { u.LookAtLocks() }
func (u *upper) Sweep()                   { u.Operations.Sweep() }

func (u *upper) Express(s *link.Session, records []byte) (n, results int) {
	return u.Operations.Express(peerOf(s), records)
}

func (u *upper) Executed(s *link.Session, records, results []byte, refused uint8) {
	u.Operations.Executed(peerOf(s), records, results, refused)
}

// offer is the id of what every rank offers: one byte more than a get may ask for.
const offer = 1 << 31

// nobody is the other services.
type nobody struct{}

func (nobody) Request(*link.Session, wire.Record) mpierr.Class { return mpierr.Intern }
func (nobody) Response(*link.Session, wire.Record) bool        { return false }
func (nobody) Fetched(_ *link.Session, _ uint32, what any, err *mpierr.Error) {
	*what.(*[]*mpierr.Error) = append(*what.(*[]*mpierr.Error), err)
}

func (nobody) Offered(_ *link.Session, id uint32) (data []byte, ok bool) {
	return make([]byte, wire.MaxPart+1), id == offer
}

// ranks are a few ranks that a fabric joins.
type ranks struct {
	*fabric.Fabric
	e   []*rank
	mem [][]byte
}

const (
	microsecond int64 = 1000

	testWindow = 7
	testJob    = 0x10b
	testLimit  = 5000 * millisecond // setup.DeadAfter by default
)

func newRanks(t testing.TB, n, memory int, change func(*setup)) *ranks {
	f := &ranks{Fabric: fabric.New(t, n), e: make([]*rank, n), mem: make([][]byte, n)}
	f.Rank = func(r int) string { return fmt.Sprintf("%+v %+v", f.e[r].Usage(), f.e[r].Stats) }
	for r := range n {
		f.start(r, 1, n, memory, change)
	}
	return f
}

// start gives rank a new life.
func (f *ranks) start(rank int, incarnation uint64, size, memory int, change func(*setup)) {
	f.mem[rank] = make([]byte, memory)
	w, err := windows.New(windows.Config{
		ID: testWindow, Flavor: window.FlavorCreate, Memory: windows.Slice(f.mem[rank]),
		Size: memory, DispUnit: 1, GroupSize: size,
	})
	if err != nil {
		f.T.Fatal(err)
	}
	windows := &windows.Table{}
	if err := windows.Add(w); err != nil {
		f.T.Fatal(err)
	}
	id := uint64(rank+1)<<32 + incarnation<<20
	c := setup{
		Rank: rank, Size: size, Job: testJob, Incarnation: incarnation, Windows: windows,
		Slab: link.HeapSlab(64, 0, 1472), Rand: func() uint64 { id++; return id },
	}
	if change != nil {
		change(&c)
	}
	f.e[rank] = newRank(c)
	f.Start(rank, f.e[rank].Link, c.Slab)
}

func (f *ranks) dial(from, to int) *Peer {
	return f.e[from].Dial(to, link.PathID(to), f.e[to].cfg.Incarnation)
}

// access dials and returns from's access to the window at to.
func (f *ranks) access(from, to int) *Access {
	a := f.e[from].OpenAccess(f.dial(from, to), testWindow)
	f.Until(1000*millisecond, func() bool { return a.session.Open() })
	return a
}

func (f *ranks) issue(e *rank, c *Call) {
	f.T.Helper()
	f.Until(10_000*millisecond, func() bool {
		done, err := e.Issue(c)
		if err != nil {
			f.T.Fatal(err)
		}
		return done
	})
}

func (f *ranks) flush(e *rank, a *Access) error {
	f.T.Helper()
	e.Flush(a)
	f.Until(10_000*millisecond, (*FlushWait)(a).Met)
	return a.TakeError()
}

// atRest fails the test unless no rank holds anything. Ranks that are cut off
// are left out.
func (f *ranks) atRest() {
	f.T.Helper()
	f.AtRest()
	for r, e := range f.e {
		if u := e.Usage(); !f.Cut[r] && (u.Operations+u.LockWaits != 0 || e.waiting != 0) {
			f.T.Errorf("rank %d still holds something: %+v, and counts %d requests that wait for its locks\n%s", r, u, e.waiting, f.Describe())
		}
	}
}

func kindOfFrame(b []byte) wire.Kind { return wire.Kind(b[5]) }
