package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/engine/message"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// content is what message number id of a given length says.
func content(id, length int) []byte {
	b := make([]byte, length)
	for i := range b {
		b[i] = byte(id + i*7 + i>>8)
	}
	if length >= 4 {
		binary.LittleEndian.PutUint32(b, uint32(id))
	}
	return b
}

// send posts a message at rank from.
func (f *ranks) send(from, to int, context uint32, tag int, data []byte) *Sending {
	p := &Sending{Context: context, Tag: tag, Data: data}
	if from != to {
		p.To = f.dial(from, to).Peer()
	}
	f.e[from].PostSend(p)
	return p
}

func (f *ranks) receive(at, source int, context uint32, tag, length int) *Receive {
	if source != AnySource && source != at {
		f.dial(at, source)
	}
	r := &Receive{Context: context, Source: source, Tag: tag, Buffer: make([]byte, length)}
	f.e[at].PostReceive(r)
	return r
}

// modelMessage and modelReceive are what the model of matching keeps: two plain lists a
// rank, searched from the start.
type modelMessage struct {
	id, from, tag, length int
	context               uint32
	send                  *Sending
}

type modelReceive struct {
	source, tag int
	context     uint32
	r           *Receive
	want        *modelMessage
}

func (r *modelReceive) matches(m *modelMessage) bool {
	return r.context == m.context && (r.source == m.from || r.source == AnySource) && (r.tag == m.tag || r.tag == AnyTag)
}

// TestMatching sends and receives at random, with wildcards, probes and withdrawals, and compares
// who gets what with the model: everything arrives in the order of the calls.
func TestMatching(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		matchAtRandom(t, rng, fmt.Sprintf("seed %d", seed))
	}
}

func matchAtRandom(t *testing.T, rng *rand.Rand, name string) {
	const ranks = 3
	f := newRanks(t, ranks, 8, nil)
	for a := range ranks {
		for b := range ranks {
			if a != b {
				f.dial(a, b)
			}
		}
	}
	f.Settle()
	lengths := []int{0, 1, 8, 100, 1024, 1368, 1369, 5000, 40_000}
	messages, receives := make([][]*modelMessage, ranks), make([][]*modelReceive, ranks)
	var done []*modelReceive
	tagOr := func(wild int) int {
		if rng.IntN(4) == 0 {
			return wild
		}
		return rng.IntN(3)
	}
	for id := range 150 {
		at, context := rng.IntN(ranks), uint32(rng.IntN(2)+1)
		switch rng.IntN(9) {
		case 0, 1, 2, 3:
			m := &modelMessage{id: id, from: rng.IntN(ranks), tag: rng.IntN(3), context: context, length: lengths[rng.IntN(len(lengths))]}
			m.send = f.send(m.from, at, context, m.tag, content(id, m.length))
			i := slices.IndexFunc(receives[at], func(r *modelReceive) bool { return r.matches(m) })
			if i < 0 {
				messages[at] = append(messages[at], m)
				break
			}
			receives[at][i].want = m
			done = append(done, receives[at][i])
			receives[at] = slices.Delete(receives[at], i, i+1)
		case 4, 5, 6, 7:
			r := &modelReceive{source: rng.IntN(ranks+1) - 1, tag: tagOr(AnyTag), context: context}
			i := slices.IndexFunc(messages[at], r.matches)
			probe := &Receive{Context: context, Source: r.source, Tag: r.tag, Probe: true}
			if found := f.e[at].TryReceive(probe); found != (i >= 0) || found && (probe.From != messages[at][i].from || probe.Got != messages[at][i].tag || probe.Length != messages[at][i].length) {
				t.Fatalf("%s, call %d: the probe found %v, message %d of rank %d is expected", name, id, probe, i, at)
			}
			r.r = f.receive(at, r.source, context, r.tag, lengths[rng.IntN(len(lengths))])
			if i < 0 {
				receives[at] = append(receives[at], r)
				break
			}
			r.want = messages[at][i]
			done = append(done, r)
			messages[at] = slices.Delete(messages[at], i, i+1)
		case 8:
			if n := len(receives[at]); n > 0 {
				i := rng.IntN(n)
				if !f.e[at].WithdrawReceive(receives[at][i].r) {
					t.Fatalf("%s, call %d: a receive without a message was not withdrawn", name, id)
				}
				receives[at] = slices.Delete(receives[at], i, i+1)
			}
		}
		f.Settle()
	}
	f.Pass(5 * millisecond)
	for _, r := range done {
		m := r.want
		n := min(m.length, len(r.r.Buffer))
		if !r.r.Met() || r.r.From != m.from || r.r.Got != m.tag || r.r.Length != m.length || !bytes.Equal(r.r.Buffer[:n], content(m.id, m.length)[:n]) {
			t.Fatalf("%s: a receive from %d with tag %d got %d bytes of tag %d from %d (%v), not message %+v", name, r.source, r.tag, r.r.Length, r.r.Got, r.r.From, r.r.Err(), *m)
		}
		if truncated := errors.Is(r.r.Err(), mpierr.Truncate); truncated != (m.length > len(r.r.Buffer)) || !truncated && r.r.Err() != nil {
			t.Fatalf("%s: %d bytes in a buffer of %d: %v", name, m.length, len(r.r.Buffer), r.r.Err())
		}
		if !m.send.Met() || m.send.Err() != nil {
			t.Fatalf("%s: %d bytes were received, and the send does not know: %v", name, m.length, m.send.Err())
		}
	}
	// The receives that are left over match the messages that are left to send.
	for at := range ranks {
		for _, r := range receives[at] {
			if r.r.Met() || !f.e[at].WithdrawReceive(r.r) {
				t.Fatalf("%s: a receive has a message that is not there: %+v", name, r.r)
			}
		}
		for _, m := range messages[at] {
			if r := f.receive(at, m.from, m.context, m.tag, m.length); r.Length != m.length || r.Got != m.tag {
				t.Fatalf("%s: the message %+v is gone", name, *m)
			}
		}
	}
	f.atRest()
}

// TestMessagesThroughLoss loses, repeats and delays frames while all ranks send to all:
// every message arrives once, whole, and in the order of its sender.
func TestMessagesThroughLoss(t *testing.T) {
	for seed := range testenv.Seeds(8, 2) {
		rng := rand.New(rand.NewPCG(seed, 2))
		const ranks, each = 3, 40
		f := newRanks(t, ranks, 8, nil)
		f.Filter = func(_, _ int, _ []byte) int {
			switch rng.IntN(10) {
			case 0, 1:
				return 0
			case 2:
				return 2
			}
			return 1
		}
		length := func(from, to, i int) int { return []int{0, 3, 1024, 1500, 30_000, 100_000}[(from+to*5+i*7)%6] }
		var sends []*Sending
		receives := make([][]*Receive, ranks)
		for i := range each {
			for a := range ranks {
				for b := range ranks {
					context, source := uint32(1), AnySource
					if i%2 == 0 { // half of the receives name their source
						context, source = 2, a
					}
					sends = append(sends, f.send(a, b, context, i, content(i, length(a, b, i))))
					receives[b] = append(receives[b], f.receive(b, source, context, AnyTag, 100_000))
				}
			}
		}
		f.Until(60_000*millisecond, func() bool {
			return !slices.ContainsFunc(sends, func(p *Sending) bool { return !p.Met() }) &&
				!slices.ContainsFunc(slices.Concat(receives...), func(r *Receive) bool { return !r.Met() })
		})
		for b := range ranks {
			next := [ranks][2]int{}
			for at := range ranks {
				next[at][1] = 1
			}
			for _, r := range receives[b] {
				due := &next[r.From][r.Got%2]
				if r.Err() != nil || r.Got != *due || !bytes.Equal(r.Buffer[:r.Length], content(r.Got, length(r.From, b, r.Got))) {
					t.Fatalf("seed %d: rank %d got %d bytes with tag %d from %d (%v), not message %d", seed, b, r.Length, r.Got, r.From, r.Err(), *due)
				}
				*due += 2
			}
		}
		f.Filter = nil
		f.atRest()
	}
}

// TestFlood sends far more than a rank keeps that receives nothing. The sender's messages
// wait, collectives pass, and a receive finds the last of them.
func TestFlood(t *testing.T) {
	for _, test := range []struct{ count, length int }{
		{5000, 1000}, {5000, 0}, {3000, 1500}, {40, 8 << 10},
	} {
		f := newRanks(t, 2, 8, nil)
		var sends []*Sending
		for i := range test.count {
			sends = append(sends, f.send(0, 1, 1, i, content(i, test.length)))
		}
		f.Pass(2000 * millisecond)
		if n := f.e[1].Usage().Unexpected; n > wire.MessageWindow {
			t.Errorf("%d bytes of messages are kept for a rank that receives nothing", n)
		}
		f.send(0, 1, 1, MaxTag+1, nil) // of a collective
		f.Until(1000*millisecond, func() bool {
			return f.e[1].TryReceive(&Receive{Context: 1, Source: 0, Tag: MaxTag + 1})
		})
		last := f.receive(1, AnySource, 1, test.count-1, test.length)
		f.Until(10_000*millisecond, last.Met)
		for i := range test.count - 1 {
			r := f.receive(1, 0, 1, AnyTag, test.length)
			f.Until(10_000*millisecond, r.Met)
			if r.Got != i || !bytes.Equal(r.Buffer, content(i, test.length)) {
				t.Fatalf("message %d is %d", i, r.Got)
			}
		}
		f.Until(1000*millisecond, func() bool {
			return !slices.ContainsFunc(sends, func(p *Sending) bool { return !p.Met() })
		})
		f.atRest()
	}
}

// TestFloodLimit has a rank wait for a message that lies behind more than it keeps. The
// rank keeps a bounded number of messages, and each that it then receives makes room for
// others.
func TestFloodLimit(t *testing.T) {
	const limit = 256 << 10
	f := newRanks(t, 3, 8, func(c *Config) { c.MaxUnexpected = limit })
	const count = 1000
	for i := range count {
		for from := range 2 {
			f.send(from, 2, 1, i, content(i, 1000))
		}
	}
	last := f.receive(2, 0, 1, count-1, 1000)
	f.Pass(1000 * millisecond)
	if n := f.e[2].Usage().Unexpected; n > limit || n < limit/2 {
		t.Errorf("%d bytes are kept, of at most %d", n, limit)
	}
	if last.Met() {
		t.Fatal("there was room for everything")
	}
	for i := range count {
		r := f.receive(2, 1, 1, i, 1000)
		f.Until(1000*millisecond, r.Met)
	}
	for i := range count - 1 {
		r := f.receive(2, 0, 1, i, 1000)
		f.Until(1000*millisecond, r.Met)
	}
	f.Until(1000*millisecond, last.Met)
	f.atRest()
}

// TestMessageEnds lets a peer die, leave, or break the communicator: whoever waits for it is
// told, and what it has sent whole can still be received unless the communicator is broken.
func TestMessageEnds(t *testing.T) {
	for _, how := range []string{"dies", "leaves", "breaks"} {
		f := newRanks(t, 3, 8, nil)
		f.dial(0, 2)
		f.Settle()
		big := make([]byte, 200_000)
		f.send(1, 0, 1, 0, []byte("whole"))
		f.send(1, 0, 1, 0, big)
		f.send(1, 0, 1, 0, []byte("later"))
		f.Settle()
		calls := map[string]interface {
			Met() bool
			Err() error
		}{
			"a receive":                 f.receive(0, 1, 1, 7, 8),
			"a receive from any source": f.receive(0, AnySource, 1, 8, 8),
			"an offer":                  f.send(0, 1, 1, 1, big),
			"a last offer":              f.send(0, 1, 1, 1, big),
		}
		probe := &Receive{Context: 1, Source: 1, Tag: 3, Probe: true}
		f.e[0].PostReceive(probe)
		calls["a probe"] = probe
		for i := range 100 {
			calls[fmt.Sprint("queued send ", i)] = f.send(0, 1, 1, 2, content(i, 1000))
		}
		f.Settle()
		other := f.receive(0, AnySource, 2, 8, 8)
		switch how {
		case "dies":
			f.Cut[1] = true
			f.Pass(20_000 * millisecond)
		case "leaves":
			f.e[1].Bye("")
			f.Pass(1000 * millisecond)
		case "breaks":
			f.e[1].Revoke(1, 1)
			f.Pass(1000 * millisecond)
		}
		for name, c := range calls {
			sent := c.Met() && c.Err() == nil // what had credit is gone
			if p, ok := c.(*Sending); ok && sent && len(p.Data) <= message.MaxWhole {
				continue
			}
			if how == "leaves" && name == "a receive from any source" {
				if c.Met() {
					t.Errorf("rank 1 %s: %s ended, and rank 2 is still there: %v", how, name, c.Err())
				}
				continue
			}
			if !errors.Is(c.Err(), mpierr.ProcFailed) {
				t.Errorf("rank 1 %s: %s: %v (met %v)", how, name, c.Err(), c.Met())
			}
		}
		whole := f.receive(0, 1, 1, 0, 8)
		if how == "breaks" {
			if !errors.Is(whole.Err(), mpierr.ProcFailed) || other.Met() {
				t.Errorf("a receive on the broken context: %v; on another: %v", whole.Err(), other.Met())
			}
			continue
		}
		if !whole.Met() || whole.Err() != nil || string(whole.Buffer[:whole.Length]) != "whole" {
			t.Errorf("rank 1 %s: what it had sent before is %q, %v", how, whole.Buffer, whole.Err())
		}
		for i, r := range []*Receive{f.receive(0, 1, 1, 0, 200_000), f.receive(0, 1, 1, 0, 8), f.receive(0, 1, 1, AnyTag, 8)} {
			what := []string{"what it had offered", "what it had sent later", "what it had not sent"}[i]
			if !r.Met() || (i != 1) != errors.Is(r.Err(), mpierr.ProcFailed) {
				t.Errorf("rank 1 %s: a receive of %s: %v", how, what, r.Err())
			}
		}
		if p := f.send(0, 1, 1, 0, nil); !errors.Is(p.Err(), mpierr.ProcFailed) {
			t.Errorf("rank 1 %s: a send after it: %v", how, p.Err())
		}
		if how == "leaves" {
			f.e[2].Bye("")
			f.Pass(1000 * millisecond)
			if !errors.Is(other.Err(), mpierr.ProcFailed) {
				t.Errorf("everybody has left, and a receive from any source waits: %v", other.Err())
			}
		}
	}
}

// TestDeathWhilePulled cuts a sender off while its message is on its way.
func TestDeathWhilePulled(t *testing.T) {
	f := newRanks(t, 2, 8, nil)
	p := f.send(1, 0, 1, 0, make([]byte, 4<<20))
	r := f.receive(0, 1, 1, 0, 4<<20)
	for range 6 {
		f.Step()
	}
	if !r.Matched() || r.Met() || f.e[0].WithdrawReceive(r) {
		t.Fatalf("the receive is not under way: %v", r.Met())
	}
	f.Cut[1] = true
	f.Until(20_000*millisecond, r.Met)
	if !errors.Is(r.Err(), mpierr.ProcFailed) {
		t.Errorf("the receive: %v", r.Err())
	}
	f.Until(20_000*millisecond, p.Met)
	if !errors.Is(p.Err(), mpierr.ProcFailed) {
		t.Errorf("the send: %v", p.Err())
	}
	f.atRest()
}

// TestRevokedWhilePulled breaks the communicator while a message is fetched. The receiver
// learns that the message is gone before it learns why.
func TestRevokedWhilePulled(t *testing.T) {
	for skip := range 12 {
		f := newRanks(t, 2, 8, nil)
		f.dial(0, 1)
		f.dial(1, 0)
		f.Settle()
		f.send(0, 1, 5, MaxTag+1, make([]byte, 1<<20))
		r := f.receive(1, 0, 5, MaxTag+1, 1<<20)
		frames, revoked, lost := 0, false, false
		f.Filter = func(from, to int, b []byte) int {
			switch {
			case from != 0 || kindOfFrame(b) != wire.KindData:
			case !revoked:
				if frames++; frames > skip {
					revoked = true
					f.e[0].Revoke(5, 0)
				}
			case !lost:
				lost = true
				return 0
			}
			return 1
		}
		f.Until(10_000*millisecond, r.Met)
		if !lost || !errors.Is(r.Err(), mpierr.ProcFailed) {
			t.Errorf("after %d frames: %v (lost a frame: %v)", skip, r.Err(), lost)
		}
	}
}

// TestForgedMessages has a peer break the rules: it is refused and counted, and takes
// nothing from this rank.
func TestForgedMessages(t *testing.T) {
	f := newRanks(t, 3, 8, nil)
	s := sessionAt(f.access(0, 1))
	f.dial(0, 2)
	f.Settle()
	e := f.e[0]
	id := func(n uint32) []byte { return binary.LittleEndian.AppendUint32(nil, n) }
	p := f.send(0, 2, 1, 0, make([]byte, 20_000)) // not rank 1's
	f.Settle()
	for _, test := range []struct {
		r    wire.Record
		want mpierr.Class
	}{
		{wire.Record{Code: wire.CodeRevoke, Window: 1, Disp: 3}, mpierr.Rank},
		{wire.Gone{By: 1, Rank: 3}.Record(), mpierr.Rank},
		{wire.Gone{By: 3, Rank: 0}.Record(), mpierr.Rank},
		{wire.Gone{By: 0, Rank: 2}.Record(), mpierr.Rank}, // rank 1 speaks for another
		{wire.Gone{By: 0, Rank: 0}.Record(), mpierr.Rank},
		{wire.Gone{By: 2, Rank: 2}.Record(), mpierr.Rank},
		{wire.Record{Code: wire.CodeOffer, Window: 1, Disp: 9, Data: id(5)}, mpierr.Intern},
		{wire.Record{Code: wire.CodeOffer, Window: 1, Disp: 0, Data: id(message.Offers + 5)}, mpierr.Intern},
		{wire.Record{Code: wire.CodeOffer, Window: 1, Disp: 1 << 63, Data: id(message.Offers + 5)}, mpierr.Intern},
		{wire.Record{Code: wire.CodeOffer, Window: 1, Disp: 5, Data: id(message.Offers + 5)[:3]}, mpierr.Intern},
		{wire.Record{Code: wire.CodeTaken, Window: p.Offer()}, mpierr.Arg},
		{wire.Record{Code: wire.CodeTaken, Window: 3}, mpierr.Arg},
		{wire.Record{Code: wire.CodeWithdrawn, Window: 3}, mpierr.Arg},
	} {
		if got := (*others)(e).Request(&s.Session, test.r); got != test.want {
			t.Errorf("%v of %#x: %v, want %v", test.r.Code, test.r.Window, got, test.want)
		}
	}
	if e.Usage().Unexpected != 0 || p.Met() {
		t.Errorf("%+v, %+v, %v", e.Stats, e.Usage(), p.Met())
	}
	for range wire.MessageWindow / wire.MessageCost(message.MaxWhole) {
		if got := (*others)(e).Request(&s.Session, wire.Record{Code: wire.CodeMessage, Window: 2, Data: make([]byte, message.MaxWhole)}); got != mpierr.Success {
			t.Errorf("a message that there is credit for: %v", got)
		}
	}
	if got := (*others)(e).Request(&s.Session, wire.Record{Code: wire.CodeMessage, Window: 2, Data: make([]byte, message.MaxWhole)}); got != mpierr.NoMem || e.Stats.Overdrawn != 1 {
		t.Errorf("a message that there is no credit for: %v, %d", got, e.Stats.Overdrawn)
	}
	// The receiver of the offer may read it, and nobody else. See onesided for writes.
	for rank, may := range map[int]bool{1: false, 2: true} {
		if _, ok := (*others)(e).Offered(e.Link.Session(rank), p.Offer()); ok != may {
			t.Errorf("rank %d may read a message: %v", rank, ok)
		}
	}
	// A peer that offers what it does not have has failed, as far as the receive knows.
	r := f.receive(0, 1, 1, 0, 100)
	if got := (*others)(e).Request(&s.Session, wire.Record{Code: wire.CodeOffer, Window: 1, Disp: 50, Data: id(message.Offers + 5)}); got != mpierr.Success {
		t.Errorf("an offer: %v", got)
	}
	f.Until(1000*millisecond, r.Met)
	if !errors.Is(r.Err(), mpierr.ProcFailed) {
		t.Errorf("a message that is not there: %v", r.Err())
	}
}

// TestCollectiveNeedsAll has a rank wait in a collective for another that never comes, while
// a third one dies, or leaves in good order: all must be there until the end, unless they
// have done their part.
func TestCollectiveNeedsAll(t *testing.T) {
	const tag = MaxTag + 1
	for _, dies := range []bool{true, false} {
		f := newRanks(t, 4, 8, nil)
		for to := 1; to < 4; to++ {
			f.dial(0, to)
			f.dial(to, 0)
		}
		f.Settle()
		wait := func(members []int, collective bool) (*Receive, *Sending) {
			r := &Receive{Context: 1, Source: 1, Tag: tag, Members: members, Collective: collective, Buffer: make([]byte, 8)}
			f.e[0].PostReceive(r)
			p := &Sending{To: f.dial(0, 1).Peer(), Context: 1, Tag: tag, Members: members, Collective: collective, Data: make([]byte, 20_000)}
			f.e[0].PostSend(p)
			return r, p
		}
		r, p := wait(nil, true)
		others, theirs := wait([]int{0, 1, 3}, true)
		message, sent := wait(nil, false)
		f.Settle()
		if dies {
			f.Cut[2] = true
			f.Until(20_000*millisecond, func() bool { return r.Met() && p.Met() })
			for _, err := range []error{r.Err(), p.Err()} {
				if !errors.Is(err, mpierr.ProcFailed) || rankOf(err) != 2 {
					t.Errorf("ended with %v", err)
				}
			}
			if r, p := wait(nil, true); !r.Met() || !p.Met() || rankOf(r.Err()) != 2 || rankOf(p.Err()) != 2 {
				t.Errorf("the next collective: %v, %v", r.Err(), p.Err())
			}
		} else {
			f.e[2].Bye("")
			f.Pass(20_000 * millisecond)
			if r.Met() || p.Met() {
				t.Errorf("ended by one that has left: %v, %v", r.Err(), p.Err())
			}
		}
		if others.Met() || theirs.Met() || message.Met() || sent.Met() {
			t.Errorf("dies %v: what does not need rank 2 has ended: %v, %v, %v, %v", dies, others.Err(), theirs.Err(), message.Err(), sent.Err())
		}
	}
}

// TestAnySourceWatched has a receive from any source end when a rank dies that this one
// has never heard of since.
func TestAnySourceWatched(t *testing.T) {
	f := newRanks(t, 3, 8, nil)
	f.access(0, 1)
	f.access(0, 2)
	f.Pass(1000 * millisecond)
	in := f.receive(0, AnySource, 1, 0, 8)
	out := &Receive{Context: 1, Source: AnySource, Tag: 0, Members: []int{0, 1}}
	f.e[0].PostReceive(out)
	f.Cut[2] = true
	f.Pass(20_000 * millisecond)
	if !errors.Is(in.Err(), mpierr.ProcFailed) || out.Met() {
		t.Errorf("with the dead rank: %v; without: %v", in.Err(), out.Met())
	}
	if !f.e[0].WithdrawReceive(out) {
		t.Error("the other receive is gone")
	}
	f.atRest()
}

// TestMessageAllocations sends and receives messages of one frame, of several, and such as
// are fetched, which allocates nothing once there is memory from before.
func TestMessageAllocations(t *testing.T) {
	for _, n := range []int{8, 5000, 50_000} {
		f := newRanks(t, 2, 8, nil)
		s := sessionAt(f.access(0, 1))
		f.access(1, 0)
		var p Sending
		var r, any Receive
		data, buf := make([]byte, n), make([]byte, n)
		round := func() {
			p = Sending{To: s.Peer(), Context: 1, Data: data}
			f.e[0].PostSend(&p)
			f.Settle()
			r = Receive{Context: 1, Tag: AnyTag, Source: 0, Buffer: buf}
			f.e[1].PostReceive(&r)
			any = Receive{Context: 1, Tag: AnyTag, Source: AnySource, Buffer: buf}
			f.e[1].PostReceive(&any)
			f.Settle()
			p = Sending{To: s.Peer(), Context: 1, Data: data}
			f.e[0].PostSend(&p)
			f.Settle()
			f.Advance(f.Now + millisecond)
			f.Settle()
			if !r.Met() || !any.Met() {
				t.Fatal("nothing arrived")
			}
		}
		round()
		if got := testing.AllocsPerRun(500, round); got != 0 {
			t.Errorf("%d bytes: %v allocations", n, got)
		}
	}
}

// rankOf returns the rank that err blames.
func rankOf(err error) int {
	var blames *mpierr.Error
	if !errors.As(err, &blames) {
		return mpierr.NoRank
	}
	return blames.Rank
}
