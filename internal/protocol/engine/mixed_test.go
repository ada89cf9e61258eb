package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/mpierr"
)

// mix is a few ranks that do anything to messages while frames are lost and repeated, with
// little room, and some of them leave, die, or break or free a communicator.
type mix struct {
	*ranks
	rng      *rand.Rand
	name     string
	gone     []bool
	quiet    bool // nobody leaves, dies, breaks or frees anything
	sends    []*mixedSend
	receives []*mixedReceive
}

type mixedSend struct {
	p                   *Sending
	context             uint32
	from, to, tag       int
	data                []byte
	over, given, gotten bool
	err                 bool
}

type mixedReceive struct {
	r               *Receive
	context         uint32
	at, source, tag int
	memory, after   []byte // with a margin; what it was when the receive was over
	message         int    // that it got, or -1
	over, given     bool
}

const margin = 8

var mixedLengths = []int{0, 1, 8, 100, 1128, 1129, 1368, 1369, 3000, 5000, 8191, 8192, 8193, 20_000, 100_000}

// TestMixedMessages has every message arrive once, whole, and in order; nothing is written
// to memory that a receive has given back, or read from that of a send; who is left has
// nothing left, and all credit.
func TestMixedMessages(t *testing.T) {
	for seed := range testenv.Seeds(60, 10) {
		rng := rand.New(rand.NewPCG(seed, 5))
		m := &mix{rng: rng, name: fmt.Sprintf("seed %d", seed), quiet: rng.IntN(3) > 0}
		ranks, loss := 2+rng.IntN(3), rng.IntN(3)*rng.IntN(15)
		slots, payload := []int{32, 64, 256}[rng.IntN(3)], []int{1232, 1472, 8972}[rng.IntN(3)]
		parked := []int{6, 512}[rng.IntN(2)]
		m.gone = make([]bool, ranks)
		m.ranks = newRanks(t, ranks, 8, func(c *Config) {
			c.Slab, c.Parked, c.MaxUnexpected, c.MaxOps = HeapSlab(slots, 0, payload), parked, 256<<10, 64
		})
		for a := range ranks {
			for b := range ranks {
				if a != b {
					m.dial(a, b)
				}
			}
		}
		m.Settle()
		m.Filter = func(_, _ int, _ []byte) int {
			if n := rng.IntN(100); n < loss {
				return 2 * (n & 1)
			}
			return 1
		}
		for range 150 + rng.IntN(300) {
			m.act()
			m.look()
			switch rng.IntN(5) {
			case 0, 1:
				m.Step()
			case 2:
				m.Settle()
			case 3:
				m.Pass(rng.Int64N(20 * millisecond))
			}
			m.look()
		}
		m.Filter = nil
		m.end()
		if t.Failed() {
			return
		}
	}
}

func (m *mix) somebody() int {
	for {
		if r := m.rng.IntN(len(m.gone)); !m.gone[r] {
			return r
		}
	}
}

func (m *mix) post(from, to int, context uint32, tag, length int) {
	data := content(len(m.sends), length)
	m.sends = append(m.sends, &mixedSend{p: m.send(from, to, context, tag, data), context: context, from: from, to: to, tag: tag, data: data})
}

func (m *mix) take(at, source int, context uint32, tag, length int) {
	memory := bytes.Repeat([]byte{0xa5}, margin+length+margin)
	r := &Receive{Context: context, Source: source, Tag: tag, Buffer: memory[margin : margin+length : margin+length]}
	m.e[at].PostReceive(r)
	m.receives = append(m.receives, &mixedReceive{r: r, context: context, at: at, source: source, tag: tag, memory: memory, message: -1})
}

// act does one thing at one rank.
func (m *mix) act() {
	rng := m.rng
	at, context, tag := m.somebody(), uint32(1+rng.IntN(3)), rng.IntN(3)
	if rng.IntN(4) == 0 {
		tag += MaxTag + 1
	}
	switch n := rng.IntN(100); {
	case n < 45:
		m.post(at, rng.IntN(len(m.gone)), context, tag, mixedLengths[rng.IntN(len(mixedLengths))])
	case n < 78:
		if rng.IntN(3) == 0 {
			tag = AnyTag
		}
		length := 100_000
		if rng.IntN(2) == 0 {
			length = 8 + rng.IntN(10_000) // enough for its number
		}
		m.take(at, rng.IntN(len(m.gone)+1)-1, context, tag, length)
	case n < 84 && len(m.receives) > 0:
		r := m.receives[rng.IntN(len(m.receives))]
		r.given = r.given || !r.over && !m.gone[r.at] && m.e[r.at].WithdrawReceive(r.r)
	case n < 92 && len(m.sends) > 0:
		p := m.sends[rng.IntN(len(m.sends))]
		p.given = p.given || !p.over && !m.gone[p.from] && m.e[p.from].Abandon(p.p, bytes.Clone(p.data))
	case m.quiet:
	case n < 93:
		m.e[at].FreeContext(context)
	case n == 93:
		m.e[at].Revoke(context, at)
	case n == 94 && at != 0:
		m.gone[at], m.Cut[at] = true, true
	case n == 95 && at != 0:
		m.take(0, at, context, AnyTag, 100_000)
		m.post(at, 0, context, 1, 50_000)
		m.e[at].Bye("")
		m.gone[at] = true
	}
}

// look finds out what is over. Its memory belongs to the program again, which uses it.
func (m *mix) look() {
	for _, p := range m.sends {
		if !p.over && p.p.Met() {
			p.over, p.err = true, p.p.Err() != nil
			for i := range p.data {
				p.data[i] = 0xee
			}
			*p.p = Sending{}
		}
	}
	for _, r := range m.receives {
		switch {
		case r.over:
			if !bytes.Equal(r.memory, r.after) {
				m.T.Fatalf("%s: the memory of a receive is written to after its end", m.name)
			}
			continue
		case !r.r.Met():
			continue
		case !r.given && (r.r.Err() == nil || errors.Is(r.r.Err(), mpierr.Truncate)):
			m.got(r)
		}
		r.over, r.after = true, bytes.Clone(r.memory)
		*r.r = Receive{}
	}
}

// got checks what r received.
func (m *mix) got(r *mixedReceive) {
	n := min(r.r.Length, len(r.r.Buffer))
	if r.source != AnySource && r.r.From != r.source || r.tag != AnyTag && r.r.Got != r.tag || r.tag == AnyTag && r.r.Got > MaxTag {
		m.T.Errorf("%s: a receive from %d with tag %#x got a message of %d with %#x", m.name, r.source, r.tag, r.r.From, r.r.Got)
	}
	if n < 4 {
		return // without a number
	}
	r.message = int(binary.LittleEndian.Uint32(r.r.Buffer))
	p := m.sends[r.message]
	if p.gotten || p.from != r.r.From || p.to != r.at || p.tag != r.r.Got || p.context != r.context || len(p.data) != r.r.Length || !bytes.Equal(r.r.Buffer[:n], content(r.message, r.r.Length)[:n]) {
		m.T.Errorf("%s: message %d of %d bytes from %d to %d is received by %d with %d bytes", m.name, r.message, len(p.data), p.from, p.to, r.at, r.r.Length)
	}
	p.gotten = true
}

// end receives what is left and checks that nothing is.
func (m *mix) end() {
	m.Pass(20_000 * millisecond) // the dead are known
	m.look()
	for again := true; again; {
		again = false
		for at := range m.gone {
			for context := uint32(1); context <= 3 && !m.gone[at]; context++ {
				for _, tag := range []int{AnyTag, MaxTag + 1, MaxTag + 2, MaxTag + 3} {
					probe := &Receive{Context: context, Source: AnySource, Tag: tag, Probe: true}
					if m.e[at].TryReceive(probe); probe.Err() == nil && probe.Met() {
						m.take(at, AnySource, context, tag, probe.Length)
						again = true
					}
				}
			}
		}
		m.Pass(50 * millisecond)
		m.look()
	}
	m.Pass(20_000 * millisecond) // of whom something was fetched until now too
	m.look()
	for _, r := range m.receives {
		if !r.over && !m.gone[r.at] {
			if r.given = m.e[r.at].WithdrawReceive(r.r); !r.given {
				m.T.Errorf("%s: a receive of %d from %d never ends", m.name, r.at, r.source)
			}
		}
	}
	for i, p := range m.sends {
		switch {
		case !m.gone[p.from] && !p.over:
			m.T.Errorf("%s: the send of message %d, %d bytes from %d to %d, never ends", m.name, i, len(p.data), p.from, p.to)
		case m.quiet && (p.err || !p.given && !p.gotten && len(p.data) >= 4):
			m.T.Errorf("%s: message %d from %d to %d was lost, or its send failed", m.name, i, p.from, p.to)
		}
	}
	m.inOrder()
	m.atPeace()
}

// inOrder finds two receives that have each other's message.
func (m *mix) inOrder() {
	for i, r := range m.receives {
		for _, later := range m.receives[i+1:] {
			if r.message < 0 || later.message < 0 || r.at != later.at || r.context != later.context || later.message > r.message {
				continue
			}
			if p := m.sends[later.message]; p.from == m.sends[r.message].from && (r.tag == p.tag || r.tag == AnyTag && p.tag <= MaxTag) {
				m.T.Errorf("%s: messages %d and %d are swapped", m.name, later.message, r.message)
			}
		}
	}
}

// atPeace checks that the ranks that are left hold nothing, and have all their credit.
func (m *mix) atPeace() {
	for a, e := range m.e {
		if m.gone[a] {
			continue
		}
		if u := e.Usage(); u.FreeSlots != u.Slots || u.Unexpected+u.Receives+u.Sends+u.Operations+u.Parked > 0 {
			m.T.Errorf("%s: rank %d still holds something: %+v", m.name, a, u)
		}
		if m.quiet && e.Stats.Overdrawn+e.Stats.BadAnswers+e.Stats.Refused > 0 {
			m.T.Errorf("%s: rank %d: %+v", m.name, a, e.Stats)
		}
		for b := range m.gone {
			if a == b || m.gone[b] {
				continue
			}
			s, peer := e.Session(b), m.e[b].Session(a)
			if !s.mail.AtRest() || s.ops.Waits() || s.Watched()+s.Owed() > 0 {
				m.T.Errorf("%s: rank %d has more to do for %d: %+v", m.name, a, b, s)
			}
			here, there := s.mail.Accounts(), peer.mail.Accounts()
			for i, l := range here {
				if l.SpentHere != l.PaidHere {
					m.T.Errorf("%s: rank %d keeps credit of %d: %+v", m.name, a, b, l)
				}
				if l.Spent != there[i].SpentHere || l.Credit != there[i].Granted {
					m.T.Errorf("%s: ranks %d and %d differ about credit: %+v, %+v", m.name, a, b, l, there[i])
				}
			}
		}
	}
}
