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
	Answer  bool   // the XDP program has taken it for an express answer of a session's peer; nobody may write to Payload
}

// Device moves frames between the engine and a network in batches. Its methods have
// these callers:
//
//   - the driver (one goroutine at a time, see package poller): Receive, Release;
//   - the sleeper (one goroutine at a time), beside a driver: Sleep;
//   - whoever holds the engine's lock: Enqueue, Reap; neither makes a system call;
//   - anyone, at any time, holding no lock: Transmit, Wake, Path, Stats;
//   - anyone, at any time: Peer, Facts.
//
// A transmit slot belongs to the device from Enqueue until Reap returns it.
type Device interface {
	// Receive stores up to len(frames) messages and returns how many; it does not
	// block. Their payloads stay valid until Release. A device that holds 16 payloads may
	// return no more before that.
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
	// Facts returns what the device is, the same at each call, and after Close.
	Facts() *Facts
	// Stats adds the device's counters to s.
	Stats(s *stats.Device)
	// Close releases everything; no other method but Facts may be running or be called later.
	// A second Close does nothing, and returns the same.
	Close() error
}

// Facts are what a device is from its opening on. Nobody changes them.
type Facts struct {
	Slab      *Slab           // the transmit memory
	Local     netip.AddrPort  // where peers reach the device; it has no zone, which each host has for itself
	Interface string          // its name; empty without one
	Queues    int             // those of the interface that XDP has; 0 without XDP
	Mode      *Mode           // how frames travel
	Alive     context.Context // ends once the device is lost for good, for the reason that is its cause
	Filter    Filter          // lets sessions through; nil: all are
	Tier      *tier.Tier      // what the XDP program executes requests with; nil: it does not
	Joins     int             // how many frames go as one message by the way of engine.Joined; 0: there is no such way
	Room      int             // bytes of joined frames that the device holds for reading
}

// Filter lets frames of sessions through, and no others but handshakes. Its methods are called by anyone,
// at any time, holding no lock.
type Filter interface {
	// AllowSession is called before the first frame with the session's id can arrive. slot is the session's place in the tables of the Tier, or loader.NoSlot.
	AllowSession(id uint64, slot int) error
	// ForgetSession ends what AllowSession began.
	ForgetSession(id uint64)
}

// base is what all devices have, and those methods of Device that are the same for all.
type base struct {
	job     uint64 // whose handshakes are answered; 0: of any
	keyed   bool   // it has a key
	facts   Facts
	sleeper sleeper
	link    link
	close   sync.Once
	err     error // of close

	unknownPaths atomic.Uint64 // handshakes whose sender was one too many
}

// Wake implements Device.
func (b *base) Wake() { b.sleeper.wake() }

// Facts implements Device.
func (b *base) Facts() *Facts { return &b.facts }
