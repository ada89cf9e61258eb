package afxdp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Socket is an AF_XDP socket bound to one queue of one interface.
type Socket struct {
	rx   *receiver
	tx   *transmitter
	kick *kicker
	info Info

	fd      int
	config  Config   // with defaults
	area    int      // which of the packet memory's receive areas is this socket's
	sharers int      // sockets that were opened to share the packet memory
	memory  []byte   // the packet memory
	umem    []byte   // its mapping, unless that is another socket's
	rings   [][]byte // mappings of the four rings
	close   sync.Once
	err     error // of close
}

// Info says what a Socket got, which may be less than its Config asked for.
type Info struct {
	IfIndex     int  // index of the interface
	Queue       int  // receive and transmit queue, from 0
	ChunkSize   int  // bytes
	RxChunks    int  // of the receive area
	TxChunks    int  // of the transmit area
	TxSize      int  // descriptors that may be in flight
	MaxFrame    int  // bytes of the largest frame that can be received
	ZeroCopy    bool // whether the driver and the socket exchange frames without a copy
	MultiBuffer bool // whether a frame may take several chunks
	NeedWakeup  bool // whether the kernel says when a wakeup is needed
	HugePages   bool // whether the UMEM is in huge pages
	SendBuffer  int  // bytes as the kernel accounts them, twice what was set
	TxBudget    int  // descriptors a system call sends in copy mode
}

// Open creates a socket, or takes over Config.FD, gives the kernel all receive
// chunks, and binds it to its queue. The calling goroutine must be in the
// network namespace of the interface. It blocks while another socket has the queue, as
// one that was closed an instant ago still does: until ctx ends, with its error, and at
// most for Config.Patience, with EBUSY.
//
// From a successful Open on, Config.FD belongs to the Socket. Sockets that share
// packet memory are opened one after the other.
func Open(ctx context.Context, config Config) (*Socket, error) {
	c, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Socket{fd: c.FD, config: c}
	if at, err := s.open(ctx, &c); err != nil {
		if c.FD != 0 {
			s.fd = -1
		}
		_ = s.Close() // the first error is the one to tell
		return nil, explain(at, err, &c)
	}
	return s, nil
}

// open runs the stages of Open and says at which one it failed.
func (s *Socket) open(ctx context.Context, c *Config) (at step, err error) {
	if c.FD != 0 {
		if err = isXDP(s.fd); err != nil {
			return stepAdopt, err
		}
	} else if s.fd, err = unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		s.fd = -1
		return stepSocket, err
	}
	if at, err = s.setUpMemory(c); err != nil {
		return at, err
	}
	if err = s.setUpRings(c); err != nil {
		return stepRings, err
	}
	if s.info.SendBuffer, err = raiseSendBuffer(s.fd, c.SendBuffer); err != nil {
		return stepRings, err
	}
	s.info.TxBudget = raiseTxBudget(s.fd, c.TxBudget)
	if err = s.bind(ctx, c); err != nil {
		return stepBind, err
	}
	if c.Share != nil {
		c.Share.sharers++
	}
	return "", nil
}

// setUpMemory maps and registers the packet memory, or takes a part of that of
// Share.
func (s *Socket) setUpMemory(c *Config) (at step, err error) {
	if c.Share != nil {
		s.area, s.memory, s.info.HugePages = c.Share.sharers+1, c.Share.memory, c.Share.info.HugePages
		return "", nil
	}
	if s.umem, s.info.HugePages, err = mapUMEM(c.umemSize(), c.HugePages); err != nil {
		return stepMemory, err
	}
	s.memory = s.umem
	region := unix.XDPUmemReg{Addr: address(s.umem), Len: uint64(c.umemSize()), Size: uint32(c.ChunkSize)}
	if err = setsockopt(s.fd, unix.XDP_UMEM_REG, &region); err != nil {
		if c.FD != 0 && errors.Is(err, unix.EBUSY) {
			return stepAdopt, err
		}
		return stepRegister, err
	}
	return "", nil
}

// setUpRings sizes and maps the rings and fills the fill ring: some drivers
// never start if it is empty at bind.
func (s *Socket) setUpRings(c *Config) error {
	for _, ring := range []struct {
		option int
		size   uint32
	}{
		{unix.XDP_UMEM_FILL_RING, c.FillSize},
		{unix.XDP_UMEM_COMPLETION_RING, c.CompletionSize},
		{unix.XDP_RX_RING, c.RxSize},
		{unix.XDP_TX_RING, c.TxSize},
	} {
		if err := setsockopt(s.fd, ring.option, &ring.size); err != nil {
			return err
		}
	}
	var at unix.XDPMmapOffsets
	if err := getsockopt(s.fd, unix.XDP_MMAP_OFFSETS, &at); err != nil {
		return err
	}
	fill, err := keepRing[uint64](s, unix.XDP_UMEM_PGOFF_FILL_RING, c.FillSize, at.Fr)
	if err != nil {
		return err
	}
	completion, err := keepRing[uint64](s, unix.XDP_UMEM_PGOFF_COMPLETION_RING, c.CompletionSize, at.Cr)
	if err != nil {
		return err
	}
	rx, err := keepRing[desc](s, unix.XDP_PGOFF_RX_RING, c.RxSize, at.Rx)
	if err != nil {
		return err
	}
	tx, err := keepRing[desc](s, unix.XDP_PGOFF_TX_RING, c.TxSize, at.Tx)
	if err != nil {
		return err
	}
	s.rx = newReceiver(fill, rx, s.memory, c, s.area)
	s.tx = newTransmitter(tx, completion, s.memory, c)
	if c.Share != nil {
		s.tx.chunks = c.Share.tx.chunks // a chunk has one owner among all sockets
	}
	return nil
}

// keepRing maps a ring and remembers the mapping for Close.
func keepRing[T uint64 | desc](s *Socket, pageOffset int64, size uint32, at unix.XDPRingOffset) (shared[T], error) {
	ring, mem, err := mapRing[T](s.fd, pageOffset, size, at)
	if err == nil {
		s.rings = append(s.rings, mem)
	}
	return ring, err
}

const (
	bindPause = 100 * time.Millisecond // the longest between attempts to bind to a queue
	warnAfter = time.Second            // of waiting for it
)

// bind binds the socket and reads back what the kernel made of it.
func (s *Socket) bind(ctx context.Context, c *Config) error {
	addr := unix.SockaddrXDP{Ifindex: uint32(c.IfIndex), QueueID: uint32(c.Queue), Flags: c.bindFlags()}
	if c.Share != nil {
		// The kernel takes the other flags from the socket shared with, and refuses them here.
		addr.Flags, addr.SharedUmemFD = unix.XDP_SHARED_UMEM, uint32(c.Share.fd)
	}
	if err := s.bindTo(ctx, c, &addr); err != nil {
		return err
	}
	var options uint32
	if err := getsockopt(s.fd, unix.XDP_OPTIONS, &options); err != nil {
		return err
	}
	s.info.IfIndex, s.info.Queue = c.IfIndex, c.Queue
	s.info.ChunkSize, s.info.RxChunks, s.info.TxChunks = c.ChunkSize, c.RxChunks, c.TxChunks
	s.info.TxSize = int(c.TxSize)
	s.info.ZeroCopy = options&unix.XDP_OPTIONS_ZEROCOPY != 0
	s.info.MultiBuffer = c.MultiBuffer
	s.info.NeedWakeup = !c.NoNeedWakeup
	s.info.MaxFrame = c.ChunkSize - unix.XDP_PACKET_HEADROOM
	if c.MultiBuffer {
		s.info.MaxFrame = c.MaxFrame
	}
	s.kick = newKicker(s.tx, s.info.ZeroCopy && s.info.NeedWakeup, s.fd)
	return nil
}

// bindTo binds the socket to its queue. While another one has that, it tries again, ever
// more rarely: each attempt takes the lock of all network devices, which the kernel needs
// to free a queue.
func (s *Socket) bindTo(ctx context.Context, c *Config, addr *unix.SockaddrXDP) error {
	told := c.Logger == nil
	begin := time.Now()
	for pause := bindPause / 64; ; pause = min(2*pause, bindPause) {
		err := unix.Bind(s.fd, addr)
		waited := time.Since(begin)
		if !errors.Is(err, unix.EBUSY) || waited >= c.Patience {
			return err
		}
		if !told && waited >= warnAfter {
			told = true
			c.Logger.Warn("waiting for a queue of the interface: another AF_XDP socket has it, or had it and the kernel has not freed it yet",
				"interface", c.name(), "queue", c.Queue, "waits_at_most", c.Patience)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%w, while another AF_XDP socket had the queue", ctx.Err())
		}
	}
}

// bindFlags returns the flags of bind. Without a mode the kernel tries
// zero-copy first.
func (c *Config) bindFlags() (flags uint16) {
	switch c.ZeroCopy {
	case Force:
		flags |= unix.XDP_ZEROCOPY
	case Copy:
		flags |= unix.XDP_COPY
	}
	if c.MultiBuffer {
		flags |= unix.XDP_USE_SG
	}
	if !c.NoNeedWakeup {
		flags |= unix.XDP_USE_NEED_WAKEUP
	}
	return flags
}

// umemSize returns the bytes of the UMEM: the transmit area, then a receive area
// for each socket.
func (c *Config) umemSize() int { return (c.TxChunks + (1+c.Sharers)*c.RxChunks) * c.ChunkSize }

// FD returns the socket's file descriptor, for an XSKMAP or a poll set. It is
// valid until Close.
func (s *Socket) FD() int { return s.fd }

// Info returns what the socket got; it does not change.
func (s *Socket) Info() Info { return s.info }

// ZeroCopy reports whether the kernel exchanges frames with the driver without a copy.
func (s *Socket) ZeroCopy() bool { return s.info.ZeroCopy }

// TxArea returns the transmit area, TxChunks*ChunkSize bytes. Offsets into it
// are what Enqueue takes and Reap returns.
func (s *Socket) TxArea() []byte { return s.tx.area }

// Receive stores up to len(frames) received frames in frames and returns their
// number; it does not block. They stay valid until Release, and may be written
// to. A frame out of several chunks is copied into one buffer, and at most
// MaxLinear of those are delivered before a Release.
func (s *Socket) Receive(frames [][]byte) int { return s.rx.receive(frames) }

// Release gives the memory of all frames that Receive returned back to the kernel.
func (s *Socket) Release() { s.rx.releaseHeld() }

// Enqueue puts the frame of length bytes at offset of the transmit area in the
// transmit ring and reports whether there was room. The chunks that it touches
// belong to the kernel until Reap returns offset. It panics if the frame is
// shorter than an Ethernet header, not inside the transmit area, touches a chunk
// that is still in flight, or more chunks than one (MaxSegments with
// MultiBuffer).
func (s *Socket) Enqueue(offset uint64, length int) bool { return s.tx.enqueue(offset, length) }

// Publish makes the enqueued frames visible to the kernel; Kick then sends them.
func (s *Socket) Publish() { s.tx.publish() }

// Reap stores the offsets of up to len(offsets) frames that the kernel is done
// with and returns their number. The order need not be that of Enqueue, and a
// frame that the kernel dropped is among them.
func (s *Socket) Reap(offsets []uint64) int { return s.tx.reap(offsets) }

// Kick makes the kernel send what was published, with a system call if one is
// needed. It does not block. The error is not nil exactly with KickFailed, and
// then stays.
func (s *Socket) Kick() (KickResult, error) { return s.kick.kick() }

// Close unbinds the socket and unmaps its memory, which TxArea and Receive gave
// out. No other method may be running or be called later, save Close, which
// returns the same error again.
func (s *Socket) Close() error {
	s.close.Do(func() {
		// The mappings of the rings keep the socket alive, so the UMEM goes last.
		if s.fd >= 0 {
			s.err = unix.Close(s.fd)
		}
		for _, mem := range s.rings {
			s.err = errors.Join(s.err, unix.Munmap(mem))
		}
		if s.umem != nil {
			s.err = errors.Join(s.err, unix.Munmap(s.umem))
		}
	})
	return s.err
}
