package memnet

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xdprma/xdprma/internal/device"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/stats"
)

const (
	defaultSlots = 256
	maxPayload   = 1472 // as in a frame of 1500 bytes, so that long transfers take several
)

// Device is the end of the network at one rank.
type Device struct {
	network *Network
	rank    int
	facts   device.Facts            // without a slab until it is opened
	end     context.CancelCauseFunc // of facts.Alive
	fates   []*fate                 // of the frames to each rank, made when the first is sent; guarded by fating
	fating  sync.Mutex

	// The gate is held for writing while the rank is stopped. Whoever moves frames holds it
	// for reading, so that the rank stands still as a stopped process does.
	gate    sync.RWMutex
	control sync.Mutex // guards stopped
	stopped bool

	mu     sync.Mutex // guards the fields below
	closed bool
	reason error // why the rank is dead, or nil
	inbox  inbox
	done   []int32  // slots to be reaped
	held   [][]byte // with the driver
	spare  [][]byte

	wake  chan struct{} // of capacity 1
	timer *time.Timer   // of whoever sleeps

	rxFrames, rxBytes, txFrames, txBytes, dropped, sleeps atomic.Uint64
}

var _ device.Device = (*Device)(nil)

func newDevice(n *Network, rank int) *Device {
	d := &Device{network: n, rank: rank, wake: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	d.timer.Stop()
	d.facts = device.Facts{Local: netip.AddrPortFrom(Address(rank), port), Mode: device.NewMode("memory")}
	d.facts.Alive, d.end = context.WithCancelCause(context.Background())
	return d
}

// now returns the time since the network began.
func (d *Device) now() time.Duration { return time.Since(d.network.begin) }

// Receive implements device.Device.
func (d *Device) Receive(frames []device.Frame) int {
	n := d.receive(frames)
	if n == 0 {
		runtime.Gosched() // a driver that polls would keep its peer, which lives in this process, from the processor
	}
	return n
}

func (d *Device) receive(frames []device.Frame) int {
	d.gate.RLock()
	defer d.gate.RUnlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for ; n < len(frames); n++ {
		l, ok := d.inbox.take(d.now)
		if !ok {
			break
		}
		frames[n] = device.Frame{Payload: l.payload, Path: device.NoPath}
		if wire.IsHandshake(l.payload) {
			frames[n].Path = device.PathID(l.from)
		}
		d.held = append(d.held, l.payload)
		d.rxBytes.Add(uint64(len(l.payload)))
	}
	d.rxFrames.Add(uint64(n))
	return n
}

// Release implements device.Device.
func (d *Device) Release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spare = append(d.spare, d.held...)
	d.held = d.held[:0]
}

// Enqueue implements device.Device. Frames are with their receivers when it returns: there is
// no system call to put off.
func (d *Device) Enqueue(outs []device.Out) int {
	d.gate.RLock()
	defer d.gate.RUnlock()
	d.mu.Lock()
	dead := d.reason != nil
	n := min(len(outs), d.facts.Slab.Slots-len(d.done))
	d.mu.Unlock()
	for _, out := range outs[:n] {
		payload := d.facts.Slab.Payload(out.Slot)[:out.Len]
		d.txFrames.Add(1)
		d.txBytes.Add(uint64(out.Len))
		if !dead {
			d.send(payload, int(out.Path))
		}
	}
	d.mu.Lock()
	for _, out := range outs[:n] {
		d.done = append(d.done, out.Slot)
	}
	d.mu.Unlock()
	return n
}

// send hands a frame to a rank, as often and as late as fate will have it.
func (d *Device) send(payload []byte, to int) {
	copies, delays := d.fateTo(to).draw(&d.network.faults)
	for _, delay := range delays[:copies] {
		due := time.Duration(0)
		if delay > 0 {
			due = d.now() + delay
		}
		d.network.devices[to].arrive(payload, d.rank, due)
	}
}

func (d *Device) fateTo(to int) *fate {
	d.fating.Lock()
	defer d.fating.Unlock()
	if d.fates == nil {
		d.fates = make([]*fate, len(d.network.devices))
	}
	if d.fates[to] == nil {
		d.fates[to] = d.network.fate(d.rank, to)
	}
	return d.fates[to]
}

// arrive takes in a frame for the rank. One that finds the inbox full, or nobody, is lost.
func (d *Device) arrive(payload []byte, from int, due time.Duration) {
	d.mu.Lock()
	if d.closed || d.facts.Slab == nil || d.reason != nil || d.inbox.len() == mostWaiting {
		d.mu.Unlock()
		d.dropped.Add(1)
		return
	}
	var copied []byte
	if n := len(d.spare); n > 0 {
		copied, d.spare = d.spare[n-1], d.spare[:n-1]
	}
	d.inbox.put(letter{payload: append(copied[:0], payload...), from: from, due: due})
	d.mu.Unlock()
	d.Wake()
}

// Reap implements device.Device.
func (d *Device) Reap(slots []int32) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := copy(slots, d.done)
	d.done = d.done[:copy(d.done, d.done[n:])]
	return n
}

// Transmit implements device.Device: Enqueue has left nothing to do.
func (d *Device) Transmit() {}

// Sleep implements device.Device.
func (d *Device) Sleep(limit time.Duration) {
	d.mu.Lock()
	if due, ok := d.inbox.next(); ok {
		limit = min(limit, due-d.now())
	}
	d.mu.Unlock()
	if limit <= 0 {
		return
	}
	d.sleeps.Add(1)
	d.timer.Reset(limit)
	select {
	case <-d.wake:
	case <-d.timer.C:
	}
	d.timer.Stop()
}

// Wake implements device.Device.
func (d *Device) Wake() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Path implements device.Device.
func (d *Device) Path(_ context.Context, addr netip.AddrPort) (device.PathID, error) {
	if rank := d.network.rankAt(addr); rank >= 0 {
		return device.PathID(rank), nil
	}
	return device.NoPath, mpierr.New("resolve "+addr.String(), mpierr.Arg, mpierr.NoRank, "%w",
		fmt.Errorf("it is not the address of one of the %d ranks on this network", len(d.network.devices)))
}

// Peer implements device.Device.
func (d *Device) Peer(id device.PathID) netip.AddrPort {
	return netip.AddrPortFrom(Address(int(id)), port)
}

// Facts implements device.Device. Network.Kill ends Alive.
func (d *Device) Facts() *device.Facts { return &d.facts }

// Stats implements device.Device. RxDropped counts what found no room or nobody. Frames that
// were lost on the way are counted nowhere, as on a wire.
func (d *Device) Stats(s *stats.Device) {
	s.RxFrames += d.rxFrames.Load()
	s.RxBytes += d.rxBytes.Load()
	s.TxFrames += d.txFrames.Load()
	s.TxBytes += d.txBytes.Load()
	s.RxDropped += d.dropped.Load()
	s.Sleeps += d.sleeps.Load()
}

// Close implements device.Device.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.inbox.clear()
	d.spare, d.held = nil, nil
	return nil
}
