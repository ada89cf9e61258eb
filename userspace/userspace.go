// Package userspace says what a rank uses of the network, and what a process with more
// privileges hands over to it: an XDP program, known by maps that may be pinned, and AF_XDP
// sockets. rma.Config.Network is a Config, and rma.Config.Limits are Limits. Without
// a Network the environment of the process says what to use, unless the program gives a Place.
//
// # A rank without privileges
//
// A process without CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF takes part in a job over XDP in
// this way: a privileged one attaches a program with loader.Attach, pins its maps or sends
// them, and makes a socket for each queue with socket(AF_XDP, SOCK_RAW, 0). The rank makes a
// loader.Program of the maps with loader.FromPinned or loader.FromMaps, and joins with both
// in its Config. The example shows both sides. `xdprma lend` is such a privileged process, for any
// rank that takes its network from the environment.
package userspace

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/xdprma/xdprma/loader"
)

// Transport says how frames travel.
type Transport string

// The transports.
const (
	Auto       Transport = "auto"        // shared where there is an agent, the better mode of XDP that works, else UDP
	XDP        Transport = "xdp"         // the better mode of XDP that works
	XDPNative  Transport = "xdp-native"  // XDP in the driver
	XDPGeneric Transport = "xdp-generic" // XDP on any Ethernet interface
	Shared     Transport = "shared"      // a UDP socket, beside XDP or tc that an agent shares among ranks
	UDP        Transport = "udp"         // an ordinary UDP socket
)

// Transports returns all transports. Auto and XDP choose among those that follow them.
func Transports() []Transport { return []Transport{Auto, XDP, XDPNative, XDPGeneric, Shared, UDP} }

// TransportNames are what ParseTransport takes.
const TransportNames = "auto, xdp, xdp-native, xdp-generic, shared or udp"

// ParseTransport returns the transport called s.
func ParseTransport(s string) (Transport, error) {
	if t := Transport(s); t.Valid() {
		return t, nil
	}
	return "", fmt.Errorf("transport %q is not %s", s, TransportNames)
}

// Valid reports whether t is one of the transports.
func (t Transport) Valid() bool {
	return slices.Contains(Transports(), t)
}

// NoAgent is an Agent that is none.
const NoAgent = "off"

// Bounds of a Config and of Limits, where they are not 0.
const (
	MaxQueues   = 64
	MinRxFrames = 64
	MinTxFrames = 32
	MaxFrames   = 1 << 16 // of either
)

// Config is the network of a rank. Zero fields mean what they say as the default.
type Config struct {
	Transport Transport  // Auto by default, which without an interface and an address other than loopback's is UDP
	Interface string     // by default the one that has Address
	Address   netip.Addr // by default the best of Interface's, else that from which the rendezvous is reached
	Port      uint16     // UDP port; by default the system chooses
	Queues    int        // of XDP: at most so many are used, up to 64; by default all receive queues of the interface

	// Agent is the path of the Unix socket of an agent, which has XDP or tc execute small requests for several ranks of
	// an interface. It serves the transports shared and auto. By default it is that of this host, at
	// /run/xdprma/agent.sock, if there is one; NoAgent: none.
	Agent string

	// Program is a classifier that somebody else attached, for Address and Port, which are
	// then required, and for at least as many queues. Its mode counts. It belongs to the
	// library once the rank has joined. If that fails, the caller closes it.
	Program *loader.Program
	// SocketFDs are AF_XDP sockets on which nothing was set up, one for each of Queues. The
	// library uses duplicates: the caller closes its own once the rank has joined, or they keep
	// the interface's queues after the rank has left.
	SocketFDs []int

	// With a Program or SocketFDs Transport is Auto or one of XDP's; only its first choice is tried.
}

// External reports whether a program or sockets are handed over.
func (c *Config) External() bool { return c.Program != nil || c.SocketFDs != nil }

// Limits bounds what a process keeps for the others; zero values mean the
// defaults. Everything is allocated when the rank joins.
type Limits struct {
	RxFrames  int           // frames held for reading, from 64 to 65536; 0: 1024
	TxFrames  int           // frames held until acknowledged, from 32 to 65536; 0: 1024
	DeadAfter time.Duration // silence after which a peer that owes an answer has failed; 0: 5 s

	// Spin is how long a call that waits may poll after each frame, with a processor to itself, before
	// it sleeps; 0: 200 µs, or five times what it takes to wake a thread, if that is more. By polling a call
	// learns of a frame sooner, by what it takes to wake its thread. It polls for about twice as
	// long as it usually waits for a frame. If that is likely to be longer than Spin, it soon sleeps;
	// unless Spin is set, it then tries four times as long now and then, and ever more rarely in vain.
	// Beside a thread that computes on the same processor it polls for 20 µs, and for up to 150 µs
	// if the frame usually comes by half of that, but never for longer than Spin. All calls of the rank go by what one of them has found
	// out about such a thread, for 0.64 s at most.
	Spin time.Duration

	// ExpressWindow is the size in bytes of the largest window that is placed in memory of
	// the kernel, in which the XDP program executes small requests; 0: 64 MiB.
	ExpressWindow int
}
