package afxdp

import (
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"net"
	"os"
	"time"
)

// Mode says whether frames are to be exchanged with the driver without a copy.
type Mode uint8

const (
	Auto  Mode = iota // zero-copy where the driver has it, else copy
	Force             // zero-copy, or Open fails
	Copy              // copy, even where the driver has zero-copy
)

const (
	defaultChunkSize = 4096
	defaultChunks    = 2048
	defaultMaxFrame  = 9216
	defaultPatience  = 10 * time.Second
	maxRing          = 1 << 20
	maxFrameLimit    = 1 << 16
	maxSharers       = 1 << 10
)

// Config describes a Socket. The zero value of a field means the default that
// the field states; Open copies the Config.
type Config struct {
	Interface string // name of the interface in the calling thread's network namespace
	IfIndex   int    // index of the interface; used instead of Interface when not 0
	Queue     int    // receive and transmit queue, from 0
	FD        int    // an AF_XDP socket, not yet configured, to take over; 0: create one

	// Sharers is how many further Sockets the packet memory has room for, each
	// on a queue of its own. They are opened with Share set to this one.
	Sharers int
	// Share is an open Socket whose packet memory and transmit area the new one
	// uses too, so that a frame may be sent through either. All sizes, ZeroCopy,
	// MultiBuffer, NoNeedWakeup, Patience and Logger are then those of Share, as is the
	// lock under which Enqueue, Publish and Reap are called. Share must be closed last.
	Share *Socket

	RxChunks  int // chunks of the receive area; 2048 by default
	TxChunks  int // chunks of the transmit area; 2048 by default
	ChunkSize int // bytes of a chunk: a power of two from 2048 to the page size; 4096 by default

	// Ring sizes in descriptors, powers of two. By default FillSize and RxSize
	// are the smallest that hold RxChunks, which FillSize must; TxSize the
	// smallest that holds TxChunks; CompletionSize is TxSize, which it must reach.
	FillSize, CompletionSize, RxSize, TxSize uint32

	ZeroCopy Mode // Auto by default

	// MultiBuffer lets a frame take several chunks in either direction (Linux
	// 6.6). The XDP program must support fragments.
	MultiBuffer bool
	// MaxFrame is the largest frame in bytes that Receive delivers out of several
	// chunks, at most 65536; 9216 by default. Longer ones are dropped and counted.
	MaxFrame int

	// NoNeedWakeup gives up the kernel's hints on when a wakeup is needed, which
	// every current driver implements.
	NoNeedWakeup bool
	// HugePages asks for the UMEM in huge pages; normal ones serve when there are
	// none. Info tells which.
	HugePages bool
	// SendBuffer is the memory in bytes that frames in flight may take in copy
	// mode (SO_SNDBUF); by default TxChunks*ChunkSize. Without CAP_NET_ADMIN the
	// system's limit holds; Info tells what was granted.
	SendBuffer int
	// TxBudget is how many descriptors one Kick hands over in copy mode, between
	// 32 and TxSize; 64 by default. Kernels before 6.17 keep to 32; Info tells.
	TxBudget int
	// Patience is how long Open waits for a queue that another socket is bound to; 10 s
	// by default, and with 1 it tries once. The kernel frees the queue of a socket after
	// Close, or after the death of its process, which takes a moment, and seconds on a
	// busy machine.
	Patience time.Duration
	Logger   *slog.Logger // told, as a warning, when Open has waited for that for a second; silent by default
}

// withDefaults returns the config with every default filled in, or what is
// wrong with it.
func (c Config) withDefaults() (Config, error) {
	if c.Share != nil {
		return c.sharing()
	}
	orDefault(&c.ChunkSize, defaultChunkSize)
	orDefault(&c.RxChunks, defaultChunks)
	orDefault(&c.TxChunks, defaultChunks)
	orDefault(&c.MaxFrame, defaultMaxFrame)
	orDefault(&c.Patience, defaultPatience)
	page := os.Getpagesize()
	switch {
	case c.Interface == "" && c.IfIndex == 0:
		return c, errors.New("afxdp: name an interface")
	case c.IfIndex < 0 || c.Queue < 0 || c.FD < 0:
		return c, fmt.Errorf("afxdp: negative interface index %d, queue %d or descriptor %d", c.IfIndex, c.Queue, c.FD)
	case c.Sharers < 0 || c.Sharers > maxSharers:
		return c, fmt.Errorf("afxdp: %d sharers, want 0 to %d", c.Sharers, maxSharers)
	case c.ChunkSize < 2048 || c.ChunkSize > page || c.ChunkSize&(c.ChunkSize-1) != 0:
		return c, fmt.Errorf("afxdp: chunk size %d is not a power of two from 2048 to the page size %d", c.ChunkSize, page)
	case c.RxChunks < 1 || c.RxChunks > maxRing || c.TxChunks < 1 || c.TxChunks > maxRing:
		return c, fmt.Errorf("afxdp: %d receive and %d transmit chunks, want 1 to %d of each", c.RxChunks, c.TxChunks, maxRing)
	case c.MaxFrame < c.ChunkSize || c.MaxFrame > maxFrameLimit:
		return c, fmt.Errorf("afxdp: largest frame of %d bytes is not within a chunk's %d and %d", c.MaxFrame, c.ChunkSize, maxFrameLimit)
	case c.ZeroCopy > Copy:
		return c, fmt.Errorf("afxdp: unknown zero-copy mode %d", c.ZeroCopy)
	case c.SendBuffer < 0 || c.TxBudget < 0:
		return c, fmt.Errorf("afxdp: negative send buffer %d or transmit budget %d", c.SendBuffer, c.TxBudget)
	case c.Patience < 0:
		return c, fmt.Errorf("afxdp: negative patience %v", c.Patience)
	}
	orDefault(&c.FillSize, powerOfTwo(c.RxChunks))
	orDefault(&c.RxSize, powerOfTwo(c.RxChunks))
	orDefault(&c.TxSize, max(powerOfTwo(c.TxChunks), 32))
	orDefault(&c.CompletionSize, c.TxSize)
	for _, n := range []uint32{c.FillSize, c.RxSize, c.TxSize, c.CompletionSize} {
		if n&(n-1) != 0 || n > maxRing {
			return c, fmt.Errorf("afxdp: ring size %d is not a power of two up to %d", n, maxRing)
		}
	}
	if int(c.FillSize) < c.RxChunks {
		return c, fmt.Errorf("afxdp: a fill ring of %d cannot hold %d receive chunks", c.FillSize, c.RxChunks)
	}
	if c.CompletionSize < c.TxSize {
		return c, fmt.Errorf("afxdp: a completion ring of %d is smaller than the transmit ring of %d", c.CompletionSize, c.TxSize)
	}
	orDefault(&c.SendBuffer, min(c.TxChunks*c.ChunkSize, 1<<30-1))
	orDefault(&c.TxBudget, 64)
	c.TxBudget = max(min(c.TxBudget, int(c.TxSize)), kernelTxBudget)
	if c.IfIndex == 0 {
		ifi, err := net.InterfaceByName(c.Interface)
		if err != nil {
			return c, fmt.Errorf("afxdp: interface %s: %w", c.Interface, err)
		}
		c.IfIndex = ifi.Index
	}
	return c, nil
}

// sharing returns the config of a Socket that shares another's packet memory.
func (c Config) sharing() (Config, error) {
	own := c.Share.config
	if c.Queue < 0 || c.FD < 0 {
		return c, fmt.Errorf("afxdp: negative queue %d or descriptor %d", c.Queue, c.FD)
	}
	if c.Share.sharers == own.Sharers {
		return c, fmt.Errorf("afxdp: the socket to share with has room for %d sharers, which are there already", own.Sharers)
	}
	own.Queue, own.FD, own.Share = c.Queue, c.FD, c.Share
	return own, nil
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// powerOfTwo returns the smallest power of two that is at least n.
func powerOfTwo(n int) uint32 { return 1 << bits.Len32(uint32(n-1)) }
