package vmtests

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/device/poller"
	"github.com/xdprma/xdprma/internal/inside"
	"github.com/xdprma/xdprma/internal/protocol/calls/collective"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/engine/message"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/rma"
)

// The rogue of TestAttacksByInsider attacks by the engine of its own rank.

// betrayal is an attack by a member of the job.
type betrayal struct {
	name   string
	counts []string // refusals of which an honest rank counts some; none: the rogue tells what it has achieved
	round  func(r *rogue, n int) error
}

const (
	lockForEver = "locks for ever"
	saysBye     = "farewell"
	longest     = 30 * time.Second // of an attack with many frames
	getsEach    = 4                // in a bundle; with many more the rogue takes its victims for dead, because their answers take so long
)

// betrayals are the attacks, in their order.
var betrayals = []betrayal{
	{"rights", []string{"denied", "outsiders", "refused"}, (*rogue).asksWhatIsRefused},
	{"unknown codes", []string{"fault record", "refused"}, (*rogue).unknownCode},
	{"requests at random", []string{"denied", "outsiders", "refused"}, (*rogue).anyRequest},
	{"responses", []string{"bad answers"}, (*rogue).response},
	{"about others", []string{"outsiders", "refused"}, (*rogue).aboutOthers},
	{"gets", nil, (*rogue).get},
	{"gets, and takes no answers", nil, (*rogue).getDeaf},
	{"waits", []string{"refused"}, (*rogue).waitForLock},
	{"datatypes", []string{"types"}, (*rogue).define},
	{"nested datatypes", []string{"types"}, (*rogue).defineNested},
	{"costly datatypes", []string{"types"}, (*rogue).defineCostly},
	{"small datatypes", []string{"types"}, (*rogue).defineSmall},
	{"small calls", []string{"denied"}, (*rogue).call},
	{"messages", []string{"overdrawn", "outsiders"}, (*rogue).message},
	{"fuzzed", []string{"fault record", "refused"}, (*rogue).fuzzed},
	{lockForEver, []string{"refused"}, (*rogue).lock}, // it holds the locks when it ends
	{saysBye, []string{"refused"}, (*rogue).farewell}, // after which no process does anything for it
}

// rogue is a rank that has turned on the others.
type rogue struct {
	*self
	*premises
	poller   *poller.Poller
	inEngine func(func(*engine.Engine))
	random   *rand.Rand
	large    []byte // an encoding of a datatype
	costly   []byte // another
	asked    uint64 // bytes of windows, in one attack
}

// haul is how an attack went for the rogue.
type haul struct {
	Times      int
	Took, Over time.Duration // until the last was sent, and until all were carried out
	Asked, Got uint64        // bytes that it asked for with gets, and that came to it
	Answers    uint64        // that came to it, of requests that its engine has not made
}

// turn does what the test says.
func turn(s *self, p *premises) error {
	job := inside.Job(s.world)
	r := &rogue{self: s, premises: p, poller: job.Poller(), inEngine: job.InEngine, random: rand.New(rand.NewPCG(3, 4))}
	err := errors.Join(p.shared.LockAll(s.ctx, rma.ModeNoCheck), p.readable.LockAll(s.ctx, rma.ModeNoCheck))
	if err != nil {
		return err
	}
	fmt.Println("running")
	said := s.lines()
	for line := range said {
		number, name, _ := strings.Cut(line, " ")
		least, err := strconv.Atoi(number)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(betrayals, func(a betrayal) bool { return a.name == name })
		if i < 0 {
			return fmt.Errorf("no attack %q", name)
		}
		fmt.Println("attacks")
		r.asked = 0
		before, n, began := s.node.Stats(), 0, time.Now()
		for enough := false; !enough || n < least && time.Since(began) < longest; n++ {
			if err := betrayals[i].round(r, n); err != nil {
				return fmt.Errorf("%s, the time %d: %w", name, n, err)
			}
			select {
			case <-said:
				enough = true
			default:
			}
		}
		took := time.Since(began)
		for to := range rogueRank { // what has been sent may take its time
			word := onesided.Call{Code: wire.CodeGetAccumulate, Op: datatype.NoOp, Basic: datatype.BasicInt64, Result: make([]byte, 8)}
			if err := r.issue(to, p.Shared, &word); errors.Is(err, rma.ErrProcFailed) && name != saysBye {
				return fmt.Errorf("%s: a call at rank %d afterwards: %w", name, to, err)
			}
		}
		now := s.node.Stats()
		text, _ := json.Marshal(haul{n, took, time.Since(began), r.asked, now.Device.RxBytes - before.Device.RxBytes, now.BadAnswers - before.BadAnswers})
		fmt.Println("done", string(text))
	}
	return nil
}

// send sends a bundle of one record, once there is room.
func (r *rogue) send(to int, c link.Class, flags uint8, rec wire.Record) error {
	return r.bundle(to, c, len(rec.Data), func(l *link.Link, i int32) {
		copy(l.Append(i, &rec, len(rec.Data)), rec.Data)
		l.Mark(i, flags)
	})
}

// sendRaw sends a bundle of a record without meaning and then of whatever b is, at least the length of a record.
func (r *rogue) sendRaw(to int, c link.Class, b []byte) error {
	first := wire.Record{Code: wire.CodePing}
	if c == link.Response {
		first.Code = wire.CodeWaits
	}
	return r.bundle(to, c, len(b), func(l *link.Link, i int32) {
		at := l.Append(i, &first, 0) // before the rest of the bundle's memory
		copy(at[:len(b)], b)
		l.Commit(i, len(b)-wire.RecordLen)
	})
}

// bundle sends a bundle with room for n bytes of data, which fill writes to.
func (r *rogue) bundle(to int, c link.Class, n int, fill func(l *link.Link, i int32)) error {
	for {
		sent, dead := false, error(nil)
		r.inEngine(func(e *engine.Engine) {
			s := e.Session(to)
			if dead = s.Err(); dead != nil {
				return
			}
			s.CloseBundle(c)
			if i := s.Room(c, n); i != link.None {
				fill(e.Link, i)
				s.CloseBundle(c)
				sent = true
			}
		})
		if sent || dead != nil {
			return dead
		}
		time.Sleep(20 * time.Microsecond)
	}
}

// ask sends a request.
func (r *rogue) ask(to int, rec wire.Record) error { return r.send(to, link.Request, 0, rec) }

func victimOf(n int) int { return n % rogueRank }

func pick[T any](r *rogue, of ...T) T { return of[r.random.IntN(len(of))] }

// hostile returns a record without data whose fields may be anything.
func (r *rogue) hostile(code wire.Code) wire.Record {
	return wire.Record{
		Code: code, Basic: uint8(r.random.IntN(256)), Op: uint8(r.random.IntN(256)), Flags: uint8(pick(r, 0, 0, 1, 2, 3, 4, 255)),
		Window: pick[uint32](r, r.Readable, r.Own, r.Own, 0, r.random.Uint32(), math.MaxUint32), Token: pick[uint32](r, 0, 1, r.random.Uint32()),
		Disp: pick[uint64](r, 0, 8, sharedBytes-4, math.MaxUint64, math.MaxUint64-7, 1<<63, 1<<32, r.random.Uint64()),
	}
}

// data returns bytes that may be what a record of some code has.
func (r *rogue) data() []byte {
	b := make([]byte, pick[int](r, 0, 1, 7, wire.PartLen, wire.LayoutLen, wire.LayoutLen+wire.PartLen, r.random.IntN(1000)))
	for i := range b {
		b[i] = byte(r.random.Uint32())
	}
	sizes := []uint32{0, 8, wire.MaxPart, wire.MaxPart + 1, math.MaxUint32, 1 << 31}
	if len(b) >= wire.PartLen && r.random.IntN(2) == 0 {
		wire.PutPart(b, pick(r, sizes...), pick(r, sizes...))
	}
	if len(b) >= wire.LayoutLen && r.random.IntN(2) == 0 {
		wire.Layout{Type: pick[uint32](r, 0, 1, wire.MaxTypes, r.random.Uint32()), Count: pick[uint64](r, 0, 1, math.MaxUint64, 1<<62), Position: pick[uint64](r, 0, 1, math.MaxUint64)}.Put(b)
	}
	return b
}

func (r *rogue) unknownCode(n int) error {
	rec := r.hostile(pick[wire.Code](r, 0, 21, 22, 23, 26, 31, 37, 64, 255))
	rec.Data = r.data()
	if err := r.send(victimOf(n), link.Response, 0, rec); err != nil {
		return err
	}
	return r.ask(victimOf(n), rec)
}

// askable are the codes of requests about windows and datatypes.
var askable = []wire.Code{
	wire.CodePut, wire.CodeGet, wire.CodeAccumulate, wire.CodeGetAccumulate, wire.CodeCompareSwap, wire.CodeLock, wire.CodeUnlock,
	wire.CodeType, wire.CodeTaken, wire.CodeWithdrawn, wire.CodeRest, wire.CodeMark, wire.CodeInquiry, wire.CodePost, wire.CodeComplete, wire.CodeGiven,
	wire.CodeResult, wire.CodeGranted, wire.CodeRefused, wire.CodeCredit, wire.CodeWaits,
}

func (r *rogue) anyRequest(n int) error {
	rec := r.hostile(pick(r, askable...))
	if rec.Data = r.data(); n%4 == 0 { // well formed, to where it may not
		rec.Window, rec.Disp, rec.Basic, rec.Op, rec.Flags = pick(r, r.Readable, r.Own), 8*r.random.Uint64N(100), uint8(datatype.BasicInt64), uint8(datatype.Sum), 0
	}
	return r.send(victimOf(n), link.Request, pick[uint8](r, 0, wire.FlagOrdered, wire.FlagAfterAll), rec)
}

func (r *rogue) response(n int) error {
	rec := r.hostile(pick(r, wire.CodeResult, wire.CodeGranted, wire.CodeRefused, wire.CodeCredit, wire.CodeWaits, wire.CodePut))
	if rec.Data = r.data(); n%2 == 0 {
		rec.Data = make([]byte, wire.RefusalLen)
		rec.Data[0] = byte(r.random.Uint32())
	}
	return r.send(victimOf(n), link.Response, 0, rec)
}

// aboutOthers says that ranks are gone which are not, and ends contexts of others.
func (r *rogue) aboutOthers(n int) error {
	to := victimOf(n)
	by, gone := pick(r, 0, 1, rogueRank, 3, r.random.Uint32()), pick[uint32](r, 0, 1, 3, math.MaxUint32)
	return errors.Join(
		r.ask(to, wire.Gone{By: by, Rank: gone, Life: pick[uint64](r, 0, 1, 2, math.MaxUint64)}.Record()),
		r.ask(to, wire.Revocation{Context: pick(r, r.Contexts...), Failed: uint64(pick(r, 0, 1, rogueRank, 1<<40))}.Record()),
		r.ask(to, wire.Revocation{Context: 1<<12 + r.random.Uint32N(1<<20), Failed: uint64(to)}.Record()),
	)
}

// get asks for as much of a window as a few records can.
func (r *rogue) get(n int) error {
	one := make([]byte, wire.RecordSize(wire.PartLen))
	id, win := r.Shared, r.shared
	if r.random.IntN(2) == 0 {
		id, win = r.Readable, r.readable
	}
	rec, size := wire.Record{Code: wire.CodeGet, Window: id, Token: r.random.Uint32()}, min(wire.MaxPart, win.Size())
	wire.PutPart(wire.PutRecord(one, &rec, wire.PartLen), 0, uint32(size))
	r.asked += getsEach * uint64(size)
	return r.sendRaw(victimOf(n), link.Request, slices.Repeat(one, getsEach))
}

func (r *rogue) getDeaf(n int) error {
	if n%64 == 63 {
		r.inEngine(func(*engine.Engine) { time.Sleep(50 * time.Millisecond) }) // nobody else uses the engine
	}
	return r.get(n)
}

// waitForLock asks for a lock that others hold, again and again.
func (r *rogue) waitForLock(n int) error {
	return r.ask(victimOf(n), wire.Lock{Window: r.Shared, Token: r.random.Uint32(), Exclusive: true}.Record())
}

// lock takes the lock at each victim, never gives it up, and asks again now and then.
func (r *rogue) lock(n int) error {
	switch {
	case n == 0:
		return r.takeLocks()
	case n%100 > 1:
		time.Sleep(100 * time.Microsecond) // it has nothing to do
		return nil
	}
	return r.waitForLock(n)
}

// takeLocks says so once it has been granted all locks.
func (r *rogue) takeLocks() error {
	err := r.shared.UnlockAll(r.ctx)
	for to := range rogueRank {
		err = errors.Join(err, r.ask(to, wire.Record{Code: wire.CodeUnlock, Window: r.Shared})) // it may hold what it has waited for
	}
	for to := range rogueRank {
		err = errors.Join(err, r.shared.Lock(r.ctx, rma.LockExclusive, to))
		if err == nil {
			_, err = rma.Load[int64](r.ctx, r.shared, to, rma.At(0)) // which needs the lock
		}
	}
	fmt.Println("granted", err)
	return err
}

// define defines a datatype of many blocks, in place of the one before.
func (r *rogue) define(n int) error {
	if r.large == nil || n%64 == 0 {
		disps, at := make([]int, 5000), 0
		for i := range disps {
			at += 2 + r.random.IntN(30)
			disps[i] = at
		}
		t, err := datatype.IndexedBlock(1, disps, datatype.Int64)
		if err == nil {
			err = t.Commit()
		}
		if err == nil {
			r.large, err = datatype.Encode(t)
		}
		if err != nil {
			return err
		}
	}
	return r.defineAs(victimOf(n), uint32(n%16), r.large)
}

// defineNested defines a datatype of loops in loops.
func (r *rogue) defineNested(n int) error {
	t, err := datatype.Int64, error(nil)
	for range 14 {
		if t, err = datatype.Vector(2, 1, 2+r.random.IntN(3), t); err != nil {
			return err
		}
	}
	return r.defineType(n, t)
}

// defineCostly defines a datatype as large as one may be, of what takes longest to decode: loops of short lists.
func (r *rogue) defineCostly(n int) error {
	if r.costly == nil {
		var err error
		if r.costly, err = costlyDatatype(); err != nil {
			return err
		}
	}
	return r.defineAs(victimOf(n), uint32(n%wire.MaxTypes), r.costly)
}

func costlyDatatype() ([]byte, error) {
	const least = 16 // bytes of an item's encoding
	var loops [2]*datatype.Type
	for i, pair := range [2][]*datatype.Type{{datatype.Int8, datatype.Byte}, {datatype.Byte, datatype.Int8}} {
		list, err := datatype.Struct([]int{1, 1}, []int{0, 8}, pair)
		if err == nil {
			loops[i], err = datatype.Hvector(2, 1, 60, list)
		}
		if err != nil {
			return nil, err
		}
	}
	for items := datatype.MaxEncoded / least; ; items-- {
		lengths, disps, types := slices.Repeat([]int{1}, items), make([]int, items), make([]*datatype.Type, items)
		for i, at := 0, 0; i < items; i++ {
			disps[i], types[i] = at, loops[i%2]
			at += 5000 + (i+1)%7
		}
		t, err := datatype.Commit(datatype.Struct(lengths, disps, types))
		if err != nil {
			return nil, err
		}
		b, err := datatype.Encode(t)
		switch {
		case errors.Is(err, rma.ErrSize): // a few bytes too long
			continue
		case err == nil && len(b) < datatype.MaxEncoded-2*least:
			return nil, fmt.Errorf("the encoding of %d items has %d bytes, which is not as large as it may be", items, len(b))
		}
		return b, err
	}
}

func (r *rogue) defineSmall(n int) error {
	t, err := datatype.Vector(2+n%1000, 1+n/1000%1000, 2000, datatype.Int64)
	return errors.Join(err, r.defineType(n, t))
}

func (r *rogue) defineType(n int, t *datatype.Type) error {
	if err := t.Commit(); err != nil {
		return err
	}
	b, err := datatype.Encode(t)
	if err != nil {
		return err
	}
	return r.defineAs(victimOf(n), uint32(n%wire.MaxTypes), b)
}

// defineAs defines a datatype with an encoding.
func (r *rogue) defineAs(to int, id uint32, encoding []byte) error {
	const piece = 1100
	for at := 0; at < len(encoding); at += piece {
		b := encoding[at:min(at+piece, len(encoding))]
		rec := wire.TypePiece{Window: r.Shared, Type: id, Offset: uint32(at), Last: at+len(b) == len(encoding)}.Record()
		rec.Data = b
		if err := r.send(to, link.Request, wire.FlagOrdered, rec); err != nil {
			return err
		}
	}
	return nil
}

// call has calls executed by the program, where there is one: to words that it may change, and to those that it may not.
func (r *rogue) call(n int) error {
	if _, err := rma.Fetch(r.ctx, r.shared, int64(1), victimOf(n), rma.At(8), rma.Sum); err != nil {
		return err
	}
	if _, err := rma.Fetch(r.ctx, r.readable, int64(1), victimOf(n), rma.At(int64(n%100*8)), rma.Sum); !errors.Is(err, rma.ErrAccess) {
		return fmt.Errorf("fetch_and_op in a window that it may read: %w", err)
	}
	_, err := rma.Load[int64](r.ctx, r.readable, victimOf(n), rma.At(int64(n%100*8)))
	return err
}

// message sends what nobody receives.
func (r *rogue) message(n int) error {
	to := victimOf(n)
	if foreign := (wire.Message{Context: pick(r, r.Contexts...), Tag: r.random.Uint32()}).Record(); n < 20 {
		return r.ask(to, foreign) // later its credit is used up, and nothing else is looked at
	}
	text := make([]byte, 1000)
	start := wire.Message{Context: collective.WorldContext, Tag: 9, Follow: pick[uint64](r, 1000, math.MaxUint64)}.Record()
	start.Data = text[:8]
	if rest := (wire.Record{Code: wire.CodeRest, Data: text}); n < 40 {
		return errors.Join(r.ask(to, start), r.ask(to, rest))
	}
	whole := wire.Message{Context: collective.WorldContext, Tag: r.random.Uint32()}.Record()
	whole.Data = text
	offer := wire.Offer{Context: collective.WorldContext, Tag: 7, Length: 1 << 40, ID: message.Offers + uint32(n)}
	offered := offer.Record()
	offered.Data = make([]byte, wire.OfferLen)
	offer.Put(offered.Data)
	return errors.Join(r.ask(to, whole), r.ask(to, offered))
}

// fuzzed sends known records of which some bits are others.
func (r *rogue) fuzzed(n int) error {
	rec := r.hostile(pick(r, askable...))
	rec.Data = r.data()
	b := make([]byte, wire.RecordSize(len(rec.Data)))
	copy(wire.PutRecord(b, &rec, len(rec.Data)), rec.Data)
	for range 1 + r.random.IntN(4) {
		at := r.random.IntN(8 * len(b))
		if n%2 == 0 {
			at %= 64 // the code, the operator, the length
		}
		b[at/8] ^= 1 << (at % 8)
	}
	for at, n := 0, 0; at < len(b); at += n {
		if n = wire.NextRecord(b[at:], &rec); n == 0 {
			break
		}
		if rec.Code == wire.CodeBye { // see farewell
			return nil
		}
	}
	return r.sendRaw(victimOf(n), pick(r, link.Request, link.Request, link.Response), b)
}

// farewell says that it leaves, and goes on.
func (r *rogue) farewell(n int) error {
	return errors.Join(r.ask(victimOf(n), wire.Record{Code: wire.CodeBye}), r.anyRequest(n))
}

// asksWhatIsRefused makes calls as a rank does that makes a mistake, and looks at the errors.
func (r *rogue) asksWhatIsRefused(n int) error {
	to, one := victimOf(n), []int64{1}
	err := errors.Join(r.readable.Put(buffer.Of(one), to, rma.At(0)), r.readable.Flush(r.ctx, to))
	if !errors.Is(err, rma.ErrAccess) {
		return fmt.Errorf("put into a window that it may read: %w", err)
	}
	places := []struct {
		window uint32
		disp   uint64
		want   mpierr.Class
	}{
		{r.Own, 0, mpierr.Group}, {1 << 20, 0, mpierr.Win}, {r.Readable, 0, mpierr.Access},
		{r.Shared, sharedBytes - 4, mpierr.RMARange}, {r.Shared, math.MaxUint64 - 3, mpierr.RMARange},
	}
	word := make([]byte, 8)
	calls := []onesided.Call{
		{Code: wire.CodePut, Origin: word},
		{Code: wire.CodeAccumulate, Op: datatype.Sum, Basic: datatype.BasicInt64, Origin: word},
		{Code: wire.CodeGetAccumulate, Op: datatype.Sum, Basic: datatype.BasicInt64, Origin: word, Result: make([]byte, 8)},
		{Code: wire.CodeCompareSwap, Basic: datatype.BasicInt64, Origin: word, Compare: word, Result: make([]byte, 8)},
	}
	place, call := places[n/rogueRank%len(places)], &calls[n/rogueRank/len(places)%len(calls)]
	call.Disp = place.disp
	if err := r.issue(to, place.window, call); mpierr.ClassOf(err) != place.want {
		return fmt.Errorf("%v in window %d at %d: %w, want class %v", call.Code, place.window, call.Disp, err, place.want)
	}
	return nil
}

// issue makes a call on whatever window, and returns its error.
func (r *rogue) issue(to int, window uint32, call *onesided.Call) error {
	var a *onesided.Access
	for done := false; !done; {
		var err error
		r.inEngine(func(e *engine.Engine) {
			a = e.OpenAccess(e.Session(to), window)
			call.Access = a
			if done, err = e.Issue(call); done && err == nil {
				e.FlushUnmarked(a)
			}
		})
		if err != nil {
			return err
		}
	}
	return errors.Join(r.poller.Wait(r.ctx, (*onesided.FlushWait)(a)), a.TakeError())
}
