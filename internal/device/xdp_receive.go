package device

// Receive implements Device.
func (x *XDP) Receive(frames []Frame) int {
	if n := x.answers.take(frames); n > 0 {
		return n
	}
	n, malformed := 0, 0
	queue := x.next
	most := len(frames)
	if x.stack.listens() {
		most -= most / 2 // the rest is for what came by the kernel's stack
	}
	for range x.sockets {
		got := x.sockets[queue].Receive(x.raw[:min(batch, most-n)])
		for _, raw := range x.raw[:got] {
			if !x.deliver(raw, queue, &frames[n]) {
				malformed++
				continue
			}
			n++
		}
		if n == most {
			break
		}
		if queue++; queue == len(x.sockets) {
			queue = 0
		}
	}
	n += x.stack.receive(frames[n:], n == 0, &x.base)
	if n == 0 && malformed == 0 {
		return 0
	}
	if x.next++; x.next == len(x.sockets) { // no queue shall always be the last
		x.next = 0
	}
	if malformed > 0 {
		x.rxMalformed.Add(uint64(malformed))
	}
	if x.held += n + malformed; n == 0 {
		x.Release() // a driver that got nothing has nothing to release
	}
	return n
}

// deliver makes a frame of the bytes that arrived on a queue, or reports that
// they are none for this device.
func (x *XDP) deliver(raw []byte, queue int, frame *Frame) bool {
	var d datagram
	if !parseFrame(raw, &d) { // the program lets through only what is for this device
		return false
	}
	*frame = Frame{Payload: d.payload, Path: NoPath}
	if x.teaches(d.payload) && d.plausible() {
		frame.Path = x.learn(&d, queue)
	}
	return true
}

// learn returns the path back to the sender of d.
func (x *XDP) learn(d *datagram, queue int) PathID {
	path := x.pathTo(d.origin(), queue%x.senders, maxLearned)
	id := x.paths.intern(&path, maxLearned)
	if id == NoPath {
		x.unknownPaths.Add(1)
	}
	return id
}

// Release implements Device.
func (x *XDP) Release() {
	x.answers.release()
	if x.held == 0 {
		return
	}
	x.held = 0
	for _, s := range x.sockets {
		s.Release()
		s.Refill()
	}
	x.stack.rx.release()
}
