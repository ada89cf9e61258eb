package device

import (
	"context"
	"net/netip"

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

// reservePort binds that socket. It keeps other processes from the port, and the
// kernel from answering that the port is unreachable.
func (x *XDP) reservePort() error {
	fd, port, err := udpSocket(netip.AddrPortFrom(zoned(x.local.addr.Addr(), x.ifi.Index), x.local.addr.Port()))
	if err != nil {
		return err
	}
	x.local.addr = netip.AddrPortFrom(x.local.addr.Addr(), port)
	x.stack = &UDP{base: base{job: x.job, keyed: x.keyed}, fd: fd, local: x.local.addr, zone: x.ifi.Index}
	return nil
}

// openLocal makes that socket a device of its own, which shares the slab.
func (x *XDP) openLocal() error {
	if err := x.stack.setOptions(); err != nil {
		return err
	}
	x.stack.facts.Slab = x.facts.Slab
	x.stack.initialize(x.log) // it asks how large the buffer is that was set
	return nil
}

// pathLocal is Path for an address of this machine.
func (x *XDP) pathLocal(addr netip.AddrPort) (PathID, error) {
	id, err := x.stack.Path(context.Background(), addr)
	if err != nil {
		return id, err
	}
	x.locals.Store(true)
	return localPath + id, nil
}

// pathTo returns the path to a peer, with the one of that socket for joined frames. limit is
// that of intern.
func (x *XDP) pathTo(peer endpoint, queue, limit int) xdpPath {
	path := newPath(x.local, peer, queue)
	if !x.joins {
		return path
	}
	if to, err := encode(netip.AddrPortFrom(zoned(peer.addr.Addr(), x.ifi.Index), peer.addr.Port())); err == nil {
		path.stack = x.stack.paths.intern(&to, limit)
	}
	return path
}

// joined returns the facts Joins and Room. In native mode an AF_XDP socket is the faster way for all frames: the
// kernel cuts what it would carry joined to an interface with such a program. It is the
// faster way out, too, where the kernel cuts what leaves the interface, as it did when the
// device was opened.
func (x *XDP) joined() (frames, room int) {
	if !x.joins {
		return 0, 0
	}
	if frames, room = x.stack.segments, x.stack.room; x.cuts {
		frames = 0
	}
	return frames, room
}

// emptyLooks is how many looks at that socket follow the doorbell or a frame: the program
// rings before the kernel has brought the frame to the socket.
const emptyLooks = 32

// listens reports whether that socket is worth a look, since frames come to it.
func (x *XDP) listens() bool {
	if x.doorbell != nil {
		if rings := x.doorbell.Load(); rings != x.rung {
			x.rung, x.listen = rings, emptyLooks
		}
	}
	return x.listen > 0
}

// receiveStack is Receive for that socket, if it is worth a look.
func (x *XDP) receiveStack(frames []Frame, idle bool) int {
	if len(frames) == 0 {
		return 0
	}
	heard := x.heard.Load()
	if x.turns++; x.turns < localEvery && x.listen == 0 && !heard && !(idle && x.locals.Load()) {
		return 0
	}
	if x.turns = 0; heard {
		x.heard.Store(false)
	}
	n := x.stack.rx.receive(x.stack.fd, frames)
	x.stack.learn(frames[:n])
	switch {
	case n > 0:
		x.listen = emptyLooks
	case x.listen > 0:
		x.listen--
	}
	if x.stack.rx.pending() {
		x.heard.Store(true)
		x.sleeper.wake()
	}
	for i := range frames[:n] {
		if by := frames[i].Path; by != NoPath {
			x.detours.intern(&by, maxLearned)
			frames[i].Path += localPath
			x.locals.Store(true)
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
