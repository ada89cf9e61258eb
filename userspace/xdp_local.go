package userspace

import (
	"context"
	"net/netip"
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
	x.stack = &UDP{fd: fd, job: x.job, local: x.local.addr, zone: x.ifi.Index}
	return nil
}

// openLocal makes that socket a device of its own, which shares the slab.
func (x *XDP) openLocal() error {
	x.stack.slab = x.slab
	x.stack.initialize(x.log)
	return x.stack.setOptions()
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

// receiveLocal is Receive for that socket, if it is worth a look.
func (x *XDP) receiveLocal(frames []Frame, idle bool) int {
	if len(frames) == 0 {
		return 0
	}
	heard := x.heard.Load()
	if x.turns++; x.turns < localEvery && !heard && !(idle && x.locals.Load()) {
		return 0
	}
	if x.turns = 0; heard {
		x.heard.Store(false)
	}
	n := x.stack.Receive(frames)
	if x.stack.rx.pending() {
		x.heard.Store(true)
		x.sleeper.wake()
	}
	if n > 0 && !x.locals.Load() {
		x.locals.Store(true)
	}
	for i := range frames[:n] {
		if frames[i].Path != NoPath {
			frames[i].Path += localPath
		}
	}
	return n
}

// enqueueLocal enqueues the frames at the start of outs that go through the loopback
// socket, and returns how many it took.
func (x *XDP) enqueueLocal(outs []Out) int {
	for i, out := range outs {
		if out.Path < localPath {
			return i
		}
		out.Path -= localPath
		if x.stack.Enqueue([]Out{out}) == 0 {
			return i
		}
	}
	return len(outs)
}
