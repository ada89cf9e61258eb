// Package memnet is a network in the memory of one process: a device for each rank of a job,
// and a switch between them that loses, doubles and delays frames as it is told. It takes no
// socket, no port and no privilege.
package memnet

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/xdprma/xdprma/internal/device"
	"github.com/xdprma/xdprma/internal/protocol/engine"
)

// Faults says what becomes of frames. Chances are from 0 to 1.
type Faults struct {
	Seed        uint64        // each draws its fate from it
	Loss        float64       // the chance that a frame is lost
	Duplication float64       // the chance that one arrives twice
	Reordering  float64       // the chance that one is held back, so that later ones overtake it
	Delay       time.Duration // the most that one takes; each takes a part of it
}

// heldBack is the most that reordering delays a frame.
const heldBack = time.Millisecond

// port is the UDP port of all ranks, which have an address each.
const port = 7770

// Network joins the devices of a job.
type Network struct {
	faults  Faults
	devices []*Device
	begin   time.Time
}

// New returns a network for so many ranks. Nobody is there yet.
func New(size int, f Faults) *Network {
	n := &Network{faults: f, begin: time.Now()}
	for rank := range size {
		n.devices = append(n.devices, newDevice(n, rank))
	}
	return n
}

// Address returns the address of a rank.
func Address(rank int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(rank >> 16), byte(rank >> 8), byte(rank)})
}

// rankAt returns the rank that has an address, -1 if none has.
func (n *Network) rankAt(addr netip.AddrPort) int {
	if b := addr.Addr().Unmap(); b.Is4() && addr.Port() == port {
		a := b.As4()
		if rank := int(a[1])<<16 | int(a[2])<<8 | int(a[3]); a[0] == 10 && rank < len(n.devices) {
			return rank
		}
	}
	return -1
}

// Open opens the device of a rank, once.
func (n *Network) Open(rank int, c device.Config) (device.Device, error) {
	d := n.devices[rank]
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.facts.Slab != nil {
		return nil, fmt.Errorf("the device of rank %d was opened before", rank)
	}
	slots := c.Slots
	if slots == 0 {
		slots = defaultSlots
	}
	d.facts.Slab = engine.HeapSlab(slots, 0, maxPayload)
	d.done = make([]int32, 0, slots)
	return d, nil
}

// Stop stops a rank, as a process that is stopped: from now on it neither receives nor sends.
// It does nothing for one that is stopped or killed. It waits for no other goroutine for long.
func (n *Network) Stop(rank int) {
	d := n.devices[rank]
	d.control.Lock()
	defer d.control.Unlock()
	d.mu.Lock()
	dead := d.reason != nil
	d.mu.Unlock()
	if !d.stopped && !dead { // Kill resumes what it finds stopped after this look
		d.stopped = true
		d.gate.Lock()
	}
}

// Resume has a rank go on that Stop has stopped. Of what was sent to it meanwhile it finds as
// much as a socket holds.
func (n *Network) Resume(rank int) {
	d := n.devices[rank]
	d.control.Lock()
	defer d.control.Unlock()
	if d.stopped {
		d.stopped = false
		d.gate.Unlock()
	}
}

// Silence has nothing reach a rank any more, and nothing that it sends arrive. It is the first half
// of Kill, and the rank is not told yet.
func (n *Network) Silence(rank int, reason error) {
	d := n.devices[rank]
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reason == nil {
		d.reason = reason
		d.inbox.clear()
	}
}

// Kill takes the device of a rank away for good, for a reason that the rank is told. Alive has
// ended when Kill returns; a Poller hears so in a goroutine of its own, and perhaps later.
func (n *Network) Kill(rank int, reason error) {
	n.Silence(rank, reason)
	n.Resume(rank) // so that its goroutines come to an end
	n.devices[rank].end(reason)
}

// fate draws what becomes of the frames from one rank to another, in their order. So the n-th
// frame between two ranks meets the same in each run of a seed, whatever the others send.
type fate struct {
	mu     sync.Mutex
	random *rand.Rand
}

func (n *Network) fate(from, to int) *fate {
	return &fate{random: rand.New(rand.NewPCG(n.faults.Seed, uint64(from)<<32|uint64(to)))}
}

// draw returns how many copies of the next frame arrive, and how much later each does. It
// draws as much whatever the faults are, so that one kind of fault does not change another.
func (f *fate) draw(faults *Faults) (copies int, delays [2]time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	lost, doubled := f.random.Float64() < faults.Loss, f.random.Float64() < faults.Duplication
	for i := range delays {
		back, part, way := f.random.Float64() < faults.Reordering, f.random.Float64(), f.random.Float64()
		delays[i] = time.Duration(way * float64(faults.Delay))
		if back {
			delays[i] += time.Duration(part * float64(heldBack))
		}
	}
	switch {
	case lost:
		return 0, delays
	case doubled:
		return 2, delays
	}
	return 1, delays
}
