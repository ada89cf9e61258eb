package device

import (
	"log/slog"
	"net/netip"
	"sync/atomic"

	"github.com/xdprma/xdprma/internal/protocol/engine"
)

// Frames to an address of this machine never leave it, so they reach no AF_XDP socket:
// other ranks of the job in the same network namespace, whatever their device, are
// spoken to through the kernel's stack, by the UDP socket that keeps the port. The rank
// reads there, too, frames of the job that come to that port in other ways: by a queue
// without an AF_XDP socket, by another interface, or as fragments. Peers that are heard
// there first are answered there.

// localPath is the first PathID of the paths of that socket.
const localPath PathID = 1 << 30

// localEvery is how many calls of Receive pass before one looks at that socket, as long
// as no peer is known to be behind it.
const localEvery = 1024

// stack is the way of an XDP device through the kernel's stack: that socket, and when it is worth a
// look.
type stack struct {
	socket
	locals   atomic.Bool       // there are peers behind it
	heard    atomic.Bool       // it has something to read; see XDP.Sleep
	joins    bool              // long transfers go through it
	cuts     bool              // the kernel cuts joined frames before they leave the interface
	doorbell *atomic.Uint64    // rung for what comes to it; nil if the program is from outside
	detours  pathTable[PathID] // its paths that peers were heard on

	// The driver's.
	turns  int    // calls of Receive since it was looked at
	rung   uint64 // doorbell, when it was looked at last
	listen int    // looks that are left since something came
}

// reservePort binds that socket. It keeps other processes from the port, and the
// kernel from answering that the port is unreachable.
func (x *XDP) reservePort() error {
	err := x.stack.bind(x.local.addr, x.ifi.Index)
	if err == nil {
		x.local.addr = x.stack.local
	}
	return err
}

// open makes that socket ready, over the slab of the device.
func (k *stack) open(slab *Slab, log *slog.Logger) error {
	if err := k.setOptions(); err != nil {
		return err
	}
	k.prepare(slab, log) // it asks how large the buffer is that was set
	return nil
}

// carries reports whether frames leave by that socket.
func (k *stack) carries() bool { return k.joins || k.locals.Load() }

// pathLocal is Path for an address of this machine.
func (x *XDP) pathLocal(addr netip.AddrPort) (PathID, error) {
	id, err := x.stack.path(addr)
	if err != nil {
		return id, err
	}
	x.stack.locals.Store(true)
	return localPath + id, nil
}

// pathTo returns the path to a peer, with the one of that socket for joined frames. limit is
// that of intern.
func (x *XDP) pathTo(peer endpoint, queue, limit int) xdpPath {
	path := newPath(x.local, peer, queue)
	if !x.stack.joins {
		return path
	}
	if to, err := x.stack.encode(peer.addr); err == nil {
		path.stack = x.stack.paths.intern(&to, limit)
	}
	return path
}

// joined returns the facts Joins and Room. In native mode an AF_XDP socket is the faster way for all frames: the
// kernel cuts what it would carry joined to an interface with such a program. It is the
// faster way out, too, where the kernel cuts what leaves the interface, as it did when the
// device was opened.
func (k *stack) joined() (frames, room int) {
	if !k.joins {
		return 0, 0
	}
	if frames, room = k.segments, k.room; k.cuts {
		frames = 0
	}
	return frames, room
}

// emptyLooks is how many looks at that socket follow the doorbell or a frame: the program
// rings before the kernel has brought the frame to the socket.
const emptyLooks = 32

// listens reports whether that socket is worth a look, since frames come to it.
func (k *stack) listens() bool {
	if k.doorbell != nil {
		if rings := k.doorbell.Load(); rings != k.rung {
			k.rung, k.listen = rings, emptyLooks
		}
	}
	return k.listen > 0
}

// receive is Receive of a device for that socket, if it is worth a look.
func (k *stack) receive(frames []Frame, idle bool, by *base) int {
	if len(frames) == 0 {
		return 0
	}
	heard := k.heard.Load()
	if k.turns++; k.turns < localEvery && k.listen == 0 && !heard && !(idle && k.locals.Load()) {
		return 0
	}
	if k.turns = 0; heard {
		k.heard.Store(false)
	}
	n, more := k.read(frames, by)
	switch {
	case n > 0:
		k.listen = emptyLooks
	case k.listen > 0:
		k.listen--
	}
	if more {
		k.heard.Store(true)
		by.sleeper.wake()
	}
	for i := range frames[:n] {
		if from := frames[i].Path; from != NoPath {
			k.detours.intern(&from, maxLearned)
			frames[i].Path += localPath
			k.locals.Store(true)
		}
	}
	return n
}

// byStack returns the path of that socket by which a frame goes, or NoPath if it goes by an
// AF_XDP socket.
func (x *XDP) byStack(out Out) PathID {
	switch {
	case out.Path >= localPath:
		return out.Path - localPath
	case out.Way == engine.Joined:
		return x.paths.get(out.Path).stack
	}
	return NoPath
}

// enqueueStack enqueues the frames at the start of outs that go through that socket, and
// returns how many it took.
func (x *XDP) enqueueStack(outs []Out) int {
	n := 0
	for n < len(outs) {
		m := 0
		for m < len(x.detour) && n+m < len(outs) {
			out := outs[n+m]
			if out.Path = x.byStack(out); out.Path == NoPath {
				break
			}
			x.detour[m] = out
			m++
		}
		took := x.stack.tx.enqueue(x.detour[:m])
		if n += took; took == 0 || took < m {
			break
		}
	}
	return n
}
