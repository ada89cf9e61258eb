package device

import (
	"fmt"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/userspace"
)

// joinedMessages returns n messages of a length that are for the peer's UDP socket.
func joinedMessages(n, length int) [][]byte {
	sent := messages(n, length)
	for _, b := range sent {
		h := wire.Header{Kind: wire.KindData, Flags: wire.FlagJoined, Session: testSession}
		h.Encode(b)
	}
	return sent
}

// Joined frames go from socket to socket although both ends have AF_XDP sockets, however few
// there are and however short, and come in order. Others do not.
func TestXDPCarriesJoinedFrames(t *testing.T) {
	for _, mtu := range []int{1500, 9000} {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("MTU %d, IPv6 %v", mtu, v6), func(t *testing.T) {
				if mtu == 9000 {
					testenv.NeedsFeature(t, testenv.MultiBuffer)
				}
				l := labtest.New(t, netlab.Config{Ranks: 2, MTU: mtu})
				a, b := openEnd(t, l, 0, userspace.XDPGeneric, v6), openEnd(t, l, 1, userspace.XDPGeneric, v6)
				to := a.path(b.dev.Facts().Local)
				full := a.dev.Facts().Slab.MaxPayload
				for _, n := range []int{1, 2, 7, 44, 100} {
					for _, length := range []int{wire.HeaderLen, full} {
						joined, others := joinedMessages(n, length), messages(3, length)
						a.joins, a.way = true, engine.Joined
						a.send(to, joined...)
						sameOrder(t, b.receive(n), joined)
						a.joins, a.way = false, engine.Single
						a.send(to, others...)
						sameMessages(t, b.receive(3), others)
					}
				}
				s := b.stats()
				if want := uint64(2 * 5 * 3); s.RxDropped+s.RxMalformed > 0 || s.Filter["redirected"] != want || s.Filter["joined"] == 0 || s.Filter["joined"] > 2*154 {
					t.Errorf("%+v", s)
				}
			})
		}
	}
}

// Much that comes by AF_XDP does not keep what comes by the UDP socket waiting, and the other
// way round: each has its share of a call.
func TestXDPReceivesFromBothWays(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2, MTU: 1500})
	a, b := openEnd(t, l, 0, userspace.XDPGeneric, false), openEnd(t, l, 1, userspace.XDPGeneric, false)
	to := a.path(b.dev.Facts().Local)
	joined, others := joinedMessages(60, 1000), messages(60, 1000)
	a.joins, a.way = true, engine.Joined
	a.send(to, joined...)
	a.joins, a.way = false, engine.Single
	a.send(to, others...)
	frames := make([]Frame, 16)
	for got := [2]int{}; got[0]+got[1] < 120; {
		n := b.dev.Receive(frames)
		now := [2]int{}
		for _, f := range frames[:n] {
			if f.Payload[6]&wire.FlagJoined != 0 {
				now[1]++
			} else {
				now[0]++
			}
		}
		if n < 16 && got[0]+got[1]+n < 120 || now[0] == 0 && got[0] < 60 || now[1] == 0 && got[1] < 60 {
			t.Fatalf("after %v, one call brings %v", got, now)
		}
		got[0], got[1] = got[0]+now[0], got[1]+now[1]
		b.dev.Release()
	}
}

// A device says how it sends joined frames and how many it has room for: as much as its
// socket was given.
func TestJoins(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2})
	for _, c := range []struct {
		transport userspace.Transport
		joins     bool
	}{{userspace.XDPNative, false}, {userspace.XDPGeneric, true}, {userspace.UDP, true}} {
		e := openEnd(t, l, 0, c.transport, false)
		frames, room := e.dev.Facts().Joins, e.dev.Facts().Room
		if c.joins && (frames != 64 || room != socketBuffer) || !c.joins && (frames != 0 || room != 0) {
			t.Errorf("%s: %d frames, room for %d bytes", c.transport, frames, room)
		}
		e.dev.Close()
	}
}

// A device sends nothing joined over an interface that has the kernel cut it, and takes in what
// others send.
func TestJoinsWithoutSegmentation(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2})
	native := openEnd(t, l, 1, userspace.XDPNative, false) // turns it off at the other end
	e := openEnd(t, l, 0, userspace.XDPGeneric, false)
	if frames, room := e.dev.Facts().Joins, e.dev.Facts().Room; frames != 0 || room != socketBuffer {
		t.Errorf("%d frames, room for %d bytes", frames, room)
	}
	native.dev.Close()
}
