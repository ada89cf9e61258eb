package link_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/credentials"
	"github.com/xdprma/xdprma/internal/lab/fabric"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

const (
	microsecond int64 = 1000
	millisecond       = 1000 * microsecond

	testJob   = 0x10b
	testLimit = 5000 * millisecond // Config.DeadAfter, unless a test says otherwise
)

// ranks are a few ranks that a fabric joins.
type ranks struct {
	*fabric.Fabric
	e     []*rank
	keyed bool // the job has a key
	level secure.Level
}

// rank is a link, below a layer that sends numbered records.
type rank struct {
	*link.Link
	Stats link.Stats
	life  uint64
}

// newRanks returns n ranks, of which none has a session yet.
func newRanks(t testing.TB, n int, change func(*link.Config)) *ranks {
	return begin(&ranks{Fabric: fabric.New(t, n), e: make([]*rank, n)}, n, change)
}

// newMembers is newRanks for a job with a key.
func newMembers(t testing.TB, n int, level secure.Level, change func(*link.Config)) *ranks {
	return begin(&ranks{Fabric: fabric.New(t, n), e: make([]*rank, n), keyed: true, level: level}, n, change)
}

func begin(f *ranks, n int, change func(*link.Config)) *ranks {
	f.Rank = func(r int) string { return fmt.Sprintf("%+v", f.e[r].Stats) }
	for r := range n {
		f.start(r, 1, n, change)
	}
	return f
}

// start gives a rank a new life.
func (f *ranks) start(r int, life uint64, size int, change func(*link.Config)) {
	id, k := uint64(r+1)<<32+life<<20, &rank{life: life}
	above := &layer{t: f.T}
	c := link.Config{
		Rank: r, Size: size, Job: testJob, Incarnation: life, Rand: func() uint64 { id++; return id },
		Slab: link.HeapSlab(64, 0, 1472), RxFrames: 1024, Parked: 2048, DeadAfter: testLimit,
		Congestion: func() reliable.Congestion { return reliable.NewAIMD() }, Seek: func(int) {}, Upper: above, Stats: &k.Stats,
	}
	if f.keyed {
		c.Credentials, c.Job = credentials.Of(r, life, f.level), credentials.Secrets.Job
	}
	if change != nil {
		change(&c)
	}
	c.Parked = max(c.Parked, 3*(size-1))
	k.Link = link.New(c)
	above.link, f.e[r] = k.Link, k
	f.Start(r, k.Link, c.Slab)
}

// peer is what a rank keeps about another.
type peer struct {
	link.Session
	l       *link.Link
	sent    uint32         // number of the last record to the peer
	last    uint64         // the bundle that it is in
	asked   map[uint32]int // bytes still to come of the answers to records, by their numbers
	applied []uint32       // numbers of the peer's records that took effect here, in that order
}

// layer is above the link of a rank. A record of it has its number as Disp, data that follow
// from that, and as Token how many bytes its answer has. The answer has the number as Token.
type layer struct {
	fabric.NoExchanges
	t    testing.TB
	link *link.Link
}

func (y *layer) Begin() *link.Session {
	p := &peer{l: y.link, asked: map[uint32]int{}}
	p.Upper = p
	return &p.Session
}

func (y *layer) Apply(b *link.Bundle) bool {
	s := b.Session.Upper.(*peer)
	for r := (wire.Record{}); b.At < len(b.Body); b.Done = 0 {
		n := wire.NextRecord(b.Body[b.At:], &r)
		if r.Code == wire.CodePut {
			if number := uint32(r.Disp); !s.answer(b, number, int(r.Token)) {
				return false
			} else if s.applied = append(s.applied, number); !bytes.Equal(r.Data, data(number, len(r.Data))) {
				y.t.Errorf("record %d is damaged", number)
			}
		}
		b.At += n
	}
	return true
}

// answer answers a record of b with n bytes, from where that stopped before.
func (p *peer) answer(b *link.Bundle, number uint32, n int) bool {
	for int(b.Done) < n {
		part := min(n-int(b.Done), p.Space(link.Response))
		if part <= 0 {
			p.CloseBundle(link.Response)
			part = min(n-int(b.Done), p.Space(link.Response))
		}
		i, _ := p.Reserve(&wire.Record{Code: wire.CodeResult, Token: number}, part)
		if i == link.None {
			return false
		}
		p.l.Commit(i, part)
		b.Done += uint32(part)
	}
	return true
}

func (y *layer) Answers(s *link.Session, body []byte) {
	p := s.Upper.(*peer)
	for r := (wire.Record{}); len(body) > 0; {
		body = body[wire.NextRecord(body, &r):]
		if p.asked[r.Token] -= len(r.Data); p.asked[r.Token] == 0 {
			delete(p.asked, r.Token)
			p.Owe(-1)
		}
	}
}

func (y *layer) Failed(s *link.Session) {
	p := s.Upper.(*peer)
	p.Owe(-int32(len(p.asked)))
	clear(p.asked)
}

func (y *layer) Ready(*link.Session)      {}
func (y *layer) Waits(*link.Session) bool { return false }
func (y *layer) Owes(*link.Session) bool  { return false }

func (y *layer) Inquire(*link.Session) (asked bool, fault error) { return false, nil }

func (y *layer) Sweep() {}

// data returns n bytes that follow from a number.
func data(number uint32, n int) []byte {
	return bytes.Repeat([]byte{byte(number), byte(number >> 8)}, n/2+1)[:n]
}

// transfer is some bytes for a peer, in as many records as they take.
type transfer struct {
	left  int
	flags uint8
}

// write writes as much of t as there is room for, and reports whether that is all.
func (p *peer) write(t *transfer) (done bool) {
	long := t.left >= 16<<10
	for range p.Batch(t.left, 32) {
		if t.left == 0 || p.Dead() {
			break
		}
		n := min(p.Space(link.Request), t.left)
		if n < 8 {
			n = min((p.MaxPayload()-wire.HeaderLen-wire.RecordLen)&^7, t.left)
		}
		if !p.put(n, 0, t.flags) {
			return false
		}
		t.left -= n
	}
	if t.left == 0 && long {
		p.CloseBundle(link.Request)
	}
	return t.left == 0 || p.Dead()
}

// put sends a record with n bytes of data, if there is room.
func (p *peer) put(n, answer int, flags uint8) bool {
	i := p.Room(link.Request, n)
	if i == link.None {
		return false
	}
	p.sent++
	r := wire.Record{Code: wire.CodePut, Token: uint32(answer), Disp: uint64(p.sent)}
	to, seq := p.l.Add(i, &r, n, flags)
	copy(to, data(p.sent, n))
	p.last = seq
	return true
}

// ask sends a record that is answered with n bytes, if there is room.
func (p *peer) ask(n int) bool { return p.request(n, 0) }

// request is ask with flags for the record's bundle.
func (p *peer) request(n int, flags uint8) bool {
	if p.Dead() || !p.put(8, n, flags) {
		return false
	}
	p.asked[p.sent] = n
	p.Owe(1)
	return true
}

// push has all that was sent leave, and acknowledged at once.
func (p *peer) push() { p.Push(p.last) }

// over reports whether everything sent has taken effect and is answered, or never will be.
func (p *peer) over() bool { return p.answered() && (p.Dead() || p.last < p.Acked(link.Request)) }

// answered reports whether all that was asked is answered, or never will be.
func (p *peer) answered() bool { return p.Dead() || len(p.asked) == 0 }

func (f *ranks) dial(from, to int) *peer {
	if f.keyed {
		return f.e[from].DialBy(link.PathID(to), credentials.Ticket(to, f.e[to].life, f.level)).Upper.(*peer)
	}
	return f.e[from].Dial(to, link.PathID(to), f.e[to].life).Upper.(*peer)
}

// at returns what a rank keeps about another, or nil.
func (f *ranks) at(rank, of int) *peer {
	if s := f.e[rank].Session(of); s != nil {
		return s.Upper.(*peer)
	}
	return nil
}

// open dials and waits until the session is open.
func (f *ranks) open(from, to int) *peer {
	p := f.dial(from, to)
	f.Until(1000*millisecond, p.Open)
	return p
}

// send sends n bytes. It waits for room.
func (f *ranks) send(p *peer, n int, flags uint8) {
	f.T.Helper()
	t := &transfer{n, flags}
	f.Until(10_000*millisecond, func() bool { return p.write(t) })
}

// ask sends a request that is answered with n bytes. It waits for room.
func (f *ranks) ask(p *peer, n int) {
	f.T.Helper()
	f.Until(1000*millisecond, func() bool { return p.ask(n) })
}

// flush waits until everything sent has taken effect and is answered.
func (f *ranks) flush(p *peer) error {
	f.T.Helper()
	p.push()
	f.Until(10_000*millisecond, p.over)
	return p.Err()
}

// transfer sends n bytes, waits until they have taken effect, and sees that all has, once.
func (f *ranks) transfer(p *peer, from, n int) {
	f.T.Helper()
	f.send(p, n, 0)
	if err := f.flush(p); err != nil {
		f.T.Fatal(err)
	}
	f.once(p, from)
}

// once fails the test unless each record that rank from has sent by p took effect once.
func (f *ranks) once(p *peer, from int) {
	f.T.Helper()
	seen := make([]bool, p.sent+1)
	applied := f.at(p.Rank(), from).applied
	for _, number := range applied {
		if int(number) >= len(seen) || seen[number] {
			f.T.Fatalf("record %d took effect twice, or was never sent", number)
		}
		seen[number] = true
	}
	if len(applied) != int(p.sent) {
		f.T.Fatalf("%d of %d records took effect", len(applied), p.sent)
	}
}

func kindOf(b []byte) wire.Kind { return wire.Kind(b[5]) }
