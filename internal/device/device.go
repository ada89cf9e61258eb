// Package device moves frames between the protocol engine and a network. Two devices
// exist: AF_XDP sockets behind the classifier, and a UDP socket; both speak the same
// frames. Package memnet has a third one, for tests. Package poller drives the engine over
// any of them.
package device

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xdprma/xdprma/internal/device/tier"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/stats"
)

// The seam's types belong to the engine, which fills the slots.
type (
	// PathID names a way to a peer that a Device has resolved.
	PathID = engine.PathID
	// Out is one frame to send.
	Out = engine.Out
	// Slab is the memory of a device's transmit slots.
	Slab = engine.Slab
)

// NoPath marks the absence of a path.
const NoPath = engine.NoPath

// Frame is one received message: the UDP payload, and for a handshake frame the
// path on which an answer reaches the sender.
type Frame struct {
	Payload []byte // valid until Device.Release
	Path    PathID // NoPath unless the payload is a handshake
}

// Device moves frames between the engine and a network in batches. Its methods have
// these callers:
//
//   - the driver (one goroutine at a time, see package poller): Receive, Release, Sleep;
//   - whoever holds the engine's lock: Enqueue, Reap; neither makes a system call;
//   - anyone, at any time, holding no lock: Transmit, Wake, Path, SessionOpened, SessionClosed;
//   - anyone, at any time: Tier.
//
// A transmit slot belongs to the device from Enqueue until Reap returns it.
type Device interface {
	// Receive stores up to len(frames) messages and returns how many; it does not
	// block. Their payloads stay valid until Release.
	Receive(frames []Frame) int
	// Release gives the memory of all messages that Receive returned back to the device.
	Release()
	// Enqueue takes a prefix of outs for transmission and returns its length. It
	// takes fewer than all when its queue is full.
	Enqueue(outs []Out) int
	// Reap stores up to len(slots) transmit slots that the device no longer needs
	// and returns how many.
	Reap(slots []int32) int
	// Transmit hands what was enqueued to the kernel. It may be called when
	// nothing was enqueued, and then costs next to nothing.
	Transmit()
	// Sleep blocks until a message arrives, Wake is called, or d has passed.
	Sleep(d time.Duration)
	// Wake ends the current or the next Sleep.
	Wake()
	// Path resolves addr, of which the zone does not count: a link-local address is looked
	// for on the device's interface. It may take as long as neighbour discovery, at most
	// until ctx ends. Its errors have class mpierr.NoMem where nothing is wrong with
	// the peer.
	Path(ctx context.Context, addr netip.AddrPort) (PathID, error)
	// Peer returns the address that a path leads to. It may be called with the engine's
	// lock held.
	Peer(id PathID) netip.AddrPort
	// SessionOpened and SessionClosed tell the device which session ids to let
	// through, before the first frame with that id can arrive. slot is the session's
	// place in the tables of Tier, negative without one.
	SessionOpened(id uint64, slot int) error
	SessionClosed(id uint64)
	// OnLoss has lost called once the device is lost for good, with the reason, by a
	// goroutine that holds no lock; at once if it is already.
	OnLoss(lost func(error))
	// Tier returns what the device's XDP program executes requests with, nil if it does
	// not. It does not change, and stays after Close.
	Tier() *tier.Tier
	// Joins returns how many frames the device sends as one message by the way of
	// engine.Joined, and how many bytes of them it can hold for reading. Both are 0 if it has
	// no such way.
	Joins() (frames, room int)
	// Slab returns the transmit memory, the same at each call.
	Slab() *Slab
	// LocalAddr is where peers reach this device. It has no zone, which each host has for
	// itself.
	LocalAddr() netip.AddrPort
	// Mode names how frames travel: "xdp-native-zerocopy", "xdp-native", "xdp-generic" or "udp".
	// It becomes "udp" if no frame arrives by XDP although the program redirects them. It is
	// "udp" while the program is away from the interface, from where another tool has taken it.
	Mode() string
	// Stats adds the device's counters to s.
	Stats(s *stats.Device)
	// Close releases everything; no other method may be running or be called later.
	Close() error
}

// Interface returns the name of the interface that a device uses, and the number of its queues
// that XDP has: none over UDP.
func Interface(d Device) (name string, queues int) {
	switch d := d.(type) {
	case *XDP:
		return d.ifi.Name, len(d.sockets)
	case *UDP:
		return d.link.name, 0
	}
	return "", 0
}

// Trouble says, in words that follow the news that a peer is silent, what may have kept frames from a device
// meanwhile, and nothing if nothing is known to have. It may be called with the engine's lock held.
func Trouble(d Device, silent time.Duration) string {
	if x, ok := d.(*XDP); ok {
		return x.presence.trouble(silent)
	}
	return ""
}

// base is what all devices have, and those methods of Device that are the same for all.
type base struct {
	job     uint64 // whose handshakes are answered; 0: of any
	keyed   bool   // it has a key
	slab    *Slab
	tier    *tier.Tier // nil without an XDP program that executes requests
	sleeper sleeper
	link    link
	close   sync.Once
	err     error // of close

	unknownPaths atomic.Uint64 // handshakes whose sender was one too many
}

// Wake implements Device.
func (b *base) Wake() { b.sleeper.wake() }

// Tier implements Device.
func (b *base) Tier() *tier.Tier { return b.tier }

// OnLoss implements Device.
func (b *base) OnLoss(lost func(error)) { b.link.onLoss(lost) }

// Slab implements Device.
func (b *base) Slab() *Slab { return b.slab }
