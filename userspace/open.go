package userspace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/mpierr"
)

// The transports that Config.Transport names.
const (
	TransportAuto       = "auto"        // the better mode of XDP that works, else UDP
	TransportXDP        = "xdp"         // the better mode of XDP that works
	TransportXDPNative  = "xdp-native"  // XDP in the driver
	TransportXDPGeneric = "xdp-generic" // XDP on any Ethernet interface
	TransportUDP        = "udp"         // an ordinary UDP socket
)

// Config describes a device. Zero means the default that a field states.
type Config struct {
	Transport string        // one of the constants above; TransportAuto by default. OpenXDP takes TransportXDPGeneric, and native mode for others
	Interface string        // by default the one that has Address
	Address   netip.Addr    // by default the one of Interface that hostaddr.Choose prefers; one of the two is required
	Near      netip.Addr    // on the network that all ranks share, whose family that choice prefers; need not be valid
	Port      uint16        // UDP port; by default the system chooses
	Queues    int           // of XDP: at most so many are used; by default all receive queues of the interface
	RxFrames  int           // of XDP: frames that can be received and wait; 1024 by default
	Slots     int           // transmit slots; 1024 by default
	MTU       int           // bytes of the largest IP packet; by default the interface's MTU. UDP sends at most 8952 bytes of payload all the same
	Patience  time.Duration // of XDP: how long Path waits for the network's answer; 5 s by default
	Job       uint64        // whose handshakes are answered; 0: of any job
	Sessions  int           // of XDP: of which the program executes requests where it can, up to 4096; 0: of none, as with IPv6
	Logger    *slog.Logger  // told, as a warning, which better modes were not possible and why; silent by default

	// Program, of OpenXDP, is a classifier that somebody else attached, for the device's address and
	// Port, which is then required, and for at least as many queues; its mode counts. It
	// belongs to the device once OpenXDP was successful.
	Program *loader.Program
	// SocketFDs, of OpenXDP, are AF_XDP sockets on which nothing was set up, one a queue, for
	// a process that may not make them. They belong to OpenXDP whether or not it
	// succeeds.
	SocketFDs []int

	tryOnce bool // OpenXDP does not wait for queues that other sockets have
}

// Open opens the best device that Transport allows. The goroutine must run in
// the network namespace of the interface. It blocks as OpenXDP does, and while the link of
// an interface that is up has no carrier, for up to 15 seconds. It fails with the error of
// ctx if that ends meanwhile. Errors say what to do.
func Open(ctx context.Context, config Config) (Device, error) {
	c := config
	if c.Transport == "" {
		c.Transport = TransportAuto
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if all := []string{TransportAuto, TransportXDP, TransportXDPNative, TransportXDPGeneric, TransportUDP}; !slices.Contains(all, c.Transport) {
		return nil, openError(mpierr.Arg, fmt.Errorf("transport %q is none of %s", c.Transport, strings.Join(all, ", ")))
	}
	if err := c.locate(ctx); err != nil {
		return nil, openError(mpierr.Arg, err)
	}
	features, err := loader.Probe(c.Interface)
	if err != nil {
		return nil, err
	}
	d, err := c.climb(ctx, Ladder(c.Transport, features), c.open)
	if err != nil {
		return nil, err
	}
	if err := awaitCarrier(ctx, c.Interface); err != nil {
		_ = d.Close()
		return nil, openError(mpierr.Unsupported, err)
	}
	return d, nil
}

// Ladder returns the transports that Open tries for a transport on an interface, best first.
// Native XDP comes before generic but where loader.Features.GenericFirst says otherwise.
func Ladder(transport string, f loader.Features) []string {
	modes := []string{TransportXDPNative, TransportXDPGeneric}
	if f.GenericFirst() != "" {
		slices.Reverse(modes)
	}
	switch transport {
	case TransportAuto:
		return append(modes, TransportUDP)
	case TransportXDP:
		return modes
	}
	return []string{transport}
}

// carrierPatience is how long Open waits for a link without a carrier. Some interfaces
// reset it when XDP begins, and need some seconds to find it again. Peers that knew of the
// rank meanwhile would take its silence for its death.
var carrierPatience = 15 * time.Second

const carrierPause = 20 * time.Millisecond // between looks at the link

// awaitCarrier waits until an interface that is up has a carrier, at most for
// carrierPatience or until ctx ends. The watch of the link says that it has none.
func awaitCarrier(ctx context.Context, name string) error {
	for begun := time.Now(); ; {
		ifi, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("look at interface %s: %w", name, err)
		}
		if ifi.Attrs().RawFlags&(unix.IFF_UP|unix.IFF_LOWER_UP) != unix.IFF_UP || time.Since(begun) >= carrierPatience {
			return nil
		}
		select {
		case <-time.After(carrierPause):
		case <-ctx.Done():
			return fmt.Errorf("%w, while the link of interface %s was down", ctx.Err(), name)
		}
	}
}

// opener opens one kind of device; with tryOnce it waits for no queue.
type opener func(_ context.Context, transport string, tryOnce bool) (Device, error)

// climb opens the first device of rungs that can be opened, and tells why better ones
// cannot.
func (c *Config) climb(ctx context.Context, rungs []string, open opener) (Device, error) {
	var failed []string
	var reason string
	busy := false // a queue stayed taken, which it is in all modes
	for i, transport := range rungs {
		d, err := open(ctx, transport, busy)
		switch {
		case err == nil && len(failed) > 0:
			c.Logger.Warn("a better transport is not possible here", "using", transport,
				"tried", strings.Join(failed, ", "), "interface", c.Interface, "reason", reason)
			return d, nil
		case err == nil:
			return d, nil
		case i == len(rungs)-1, ctx.Err() != nil && errors.Is(err, ctx.Err()):
			return nil, fmt.Errorf("transport %s on interface %s: %w", transport, c.Interface, err)
		}
		busy = errors.Is(err, unix.EBUSY)
		failed = append(failed, transport)
		if text := err.Error(); !strings.Contains(reason, text) { // often it is the same for both kinds of XDP
			reason = strings.TrimPrefix(reason+"; "+text, "; ")
		}
		if rungs[i+1] == TransportUDP && !free(c.Address, c.Port) {
			// Another rank has the interface, and with it the port.
			c.Logger.Warn("the UDP port is taken, the system chooses another", "address", c.Address, "port", c.Port)
			c.Port = 0
		}
	}
	panic("userspace: no transports to try")
}

// free reports whether nobody has a UDP port.
func free(ip netip.Addr, port uint16) bool {
	fd, _, err := udpSocket(netip.AddrPortFrom(ip, port))
	if err == nil {
		_ = unix.Close(fd)
	}
	return !errors.Is(err, unix.EADDRINUSE)
}

// open is the opener of what c describes.
func (c *Config) open(ctx context.Context, transport string, tryOnce bool) (d Device, err error) {
	rung := *c
	rung.Transport, rung.tryOnce = transport, tryOnce
	if transport == TransportUDP {
		d, err = OpenUDP(rung)
	} else {
		d, err = OpenXDP(ctx, rung)
	}
	if err != nil {
		return nil, err // not d: an interface that holds a nil pointer is not nil
	}
	return d, nil
}

// normalize fills in the defaults that all devices on an interface have, and reports what is
// wrong. c has its address.
func (c *Config) normalize(ifi *net.Interface) error {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	orDefault(&c.Slots, defaultSlots)
	orDefault(&c.MTU, ifi.MTU)
	least := wire.MinPayload + udpLen + ipLen(c.Address)
	switch {
	case c.Slots < 1 || c.Slots > maxSlots:
		return openError(mpierr.Arg, fmt.Errorf("%d transmit slots are not within 1 and %d", c.Slots, maxSlots))
	case ifi.MTU < least:
		return openError(mpierr.Arg, fmt.Errorf("the MTU of interface %s is %d, which is less than %d: raise it (ip link set %s mtu 1500)", ifi.Name, ifi.MTU, least, ifi.Name))
	case c.MTU < least || c.MTU > ifi.MTU:
		return openError(mpierr.Arg, fmt.Errorf("an MTU of %d is not within %d and the interface's %d", c.MTU, least, ifi.MTU))
	}
	return nil
}

func orDefault(field *int, value int) {
	if *field == 0 {
		*field = value
	}
}

// locate completes the interface and the address by each other.
func (c *Config) locate(ctx context.Context) (err error) {
	var ifi *net.Interface
	switch {
	case c.Interface == "" && !c.Address.IsValid():
		return fmt.Errorf("name an interface or one of this machine's addresses")
	case c.Interface == "":
		ifi, err = interfaceOf(c.Address)
	default:
		if ifi, err = net.InterfaceByName(c.Interface); err != nil {
			err = fmt.Errorf("interface %s: %w (`ip link` lists those there are)", c.Interface, err)
		}
	}
	if err != nil {
		return err
	}
	c.Interface = ifi.Name
	c.Address, err = addressOf(ctx, ifi, c.Address, c.Near)
	c.Address = zoned(c.Address, ifi.Index) // another interface may have the same
	return err
}
