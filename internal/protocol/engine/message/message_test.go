package message

import (
	"bytes"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/fabric"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// rank is a rank that has messages and nothing else. Nobody leaves, and no context ends.
type rank struct {
	fabric.NoExchanges
	*Messages
	gets []get
}

// get is a message that was asked for.
type get struct {
	from  *Peer
	offer uint32
	into  []byte
	r     *Receive
}

// peer is what a rank keeps about another.
type peer struct {
	link.Session
	mail Peer
}

func peerOf(s *link.Session) *Peer { return &s.Upper.(*peer).mail }

func (k *rank) Begin() *link.Session {
	p := &peer{}
	p.Upper, p.mail = p, NewPeer(&p.Session)
	return &p.Session
}

func (k *rank) Apply(b *link.Bundle) bool {
	for s := peerOf(b.Session); b.At < len(b.Body); {
		var r wire.Record
		b.At += wire.NextRecord(b.Body[b.At:], &r)
		switch r.Code {
		case wire.CodeMessage, wire.CodeOffer:
			k.TakeMessage(s, &r)
		case wire.CodeTaken:
			k.TakeTaken(s, r.Window)
		}
	}
	return true
}

func (k *rank) Answers(*link.Session, []byte) {}
func (k *rank) Ready(s *link.Session)         { k.Messages.Ready(peerOf(s)) }
func (k *rank) Waits(s *link.Session) bool    { return peerOf(s).Waits() }
func (k *rank) Owes(s *link.Session) bool     { return peerOf(s).Owes() }

func (k *rank) Inquire(*link.Session) (asked bool, fault error) { return false, nil }

func (k *rank) Failed(s *link.Session) { k.EndPeer(peerOf(s), s.Failure()) }
func (k *rank) Sweep()                 { k.Messages.Sweep() }

func (k *rank) Left(*link.Session) *mpierr.Error           { return nil }
func (k *rank) Culprit([]int) *mpierr.Error                { return nil }
func (k *rank) LostMember([]int) (err, left *mpierr.Error) { return nil, nil }
func (k *rank) Revoked(uint32) (int, bool)                 { return 0, false }
func (k *rank) Outside(context uint32, rank int) bool      { return false }
func (k *rank) ForgetContext(uint32)                       {}

// newPair returns two ranks, of which the first has a session with the second, and a
// function that lets frames pass between them until there are none.
func newPair(t *testing.T) (ranks [2]*rank, settle func()) {
	f := fabric.New(t, 2)
	for i := range ranks {
		k, id, slab := &rank{}, uint64(0), link.HeapSlab(64, 0, 1472)
		l := link.New(link.Config{
			Rank: i, Size: 2, Job: 1, Incarnation: 1, Rand: func() uint64 { id++; return id },
			Slab: slab, RxFrames: 64, Parked: 64, DeadAfter: 1e9,
			Congestion: func() reliable.Congestion { return reliable.NewAIMD() }, Upper: k, Stats: &link.Stats{},
		})
		f.Start(i, l, slab)
		k.Messages = New(l, Config{
			Rank: i, Size: 2, DeadAfter: 1e9, MaxUnexpected: 1 << 20, Members: k, Counts: &Counts{}, Peer: peerOf,
			Get: func(from *link.Session, offer uint32, into []byte, r *Receive) {
				k.gets = append(k.gets, get{peerOf(from), offer, into, r})
			},
		})
		ranks[i] = k
	}
	ranks[0].link.Dial(1, 1, 1)
	return ranks, f.Settle
}

// TestMessagesNeedNoWindow sends a short and a long message over links that carry nothing
// else: the short one travels at once. The layer above is asked for the long one when a
// receive wants it, and the sender waits until it has been got.
func TestMessagesNeedNoWindow(t *testing.T) {
	ranks, settle := newPair(t)
	settle()
	to := ranks[0].peer(1)
	short := &Sending{To: to, Context: 1, Tag: 1, Data: []byte("at once")}
	long := &Sending{To: to, Context: 1, Tag: 2, Data: bytes.Repeat([]byte{7}, MaxWhole+1)}
	ranks[0].PostSend(short)
	ranks[0].PostSend(long)
	settle()
	if u := ranks[1].Usage(); !short.Met() || long.Met() || u.Unexpected == 0 || len(ranks[1].gets) > 0 {
		t.Fatalf("before a receive: %v, %v, %+v, %d gets", short.Met(), long.Met(), u, len(ranks[1].gets))
	}
	first, second := &Receive{Context: 1, Source: 0, Tag: 1, Buffer: make([]byte, 100)}, &Receive{Context: 1, Source: AnySource, Tag: AnyTag, Buffer: make([]byte, MaxWhole+1)}
	ranks[1].PostReceive(first)
	ranks[1].PostReceive(second)
	if string(first.Buffer[:first.Length]) != "at once" || !first.Met() || second.Met() || !second.Matched() || len(ranks[1].gets) != 1 {
		t.Fatalf("the receives: %v, %v, %d gets", first.Met(), second.Met(), len(ranks[1].gets))
	}
	g := ranks[1].gets[0]
	data, ok := ranks[0].Offered(to, g.offer)
	if !ok || copy(g.into, data) != MaxWhole+1 {
		t.Fatalf("of the offer there are %d bytes", len(data))
	}
	ranks[1].Got(g.r, g.from, g.offer, nil, false)
	settle()
	if !second.Met() || second.Err() != nil || !long.Met() || !bytes.Equal(second.Buffer, long.Data) {
		t.Errorf("the long message: received %v, %v, sent %v", second.Met(), second.Err(), long.Met())
	}
	for i, k := range ranks {
		if u := k.Usage(); u != (Usage{}) {
			t.Errorf("rank %d still holds %+v", i, u)
		}
	}
}
