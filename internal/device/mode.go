package device

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Mode is how the frames of a device travel. Anyone may ask at any time, also after Close.
type Mode struct {
	opened string       // how they travel unless they pass to the kernel
	began  time.Time    // when the device was opened
	passes atomic.Bool  // the program leaves all frames to the kernel
	away   atomic.Bool  // the XDP program is not on the interface
	absent atomic.Int64 // when it was seen to be away last, after began; 0: never
}

// NewMode returns the mode of a device whose frames travel as name says.
func NewMode(name string) *Mode { return &Mode{opened: name, began: time.Now()} }

// String returns "xdp-native-zerocopy", "xdp-native", "xdp-generic", "udp", or what NewMode was told. It is
// "udp" once no frame has arrived by XDP although the program redirects them, and while the program
// is away from the interface, from where another tool has taken it.
func (m *Mode) String() string {
	if m.passes.Load() || m.away.Load() {
		return "udp"
	}
	return m.opened
}

// Trouble says, in words that follow the news that a peer is silent, what may have kept frames from the device
// meanwhile, and nothing if nothing is known to have. It may be called with the engine's lock held.
func (m *Mode) Trouble(silent time.Duration) string {
	at := m.absent.Load()
	ago := time.Duration(m.now() - at)
	switch {
	case m.away.Load():
		return "the XDP program of this rank was taken from its interface and is away, and frames to this rank may get lost meanwhile"
	case at != 0 && ago < silent:
		return fmt.Sprintf("the XDP program of this rank was taken from its interface until %.1f s ago, and frames to this rank may have got lost meanwhile", ago.Seconds())
	}
	return ""
}

func (m *Mode) now() int64 { return int64(time.Since(m.began)) }

// seenAway notes that the program is not on the interface at this moment.
func (m *Mode) seenAway() {
	m.absent.Store(m.now())
	m.away.Store(true)
}
