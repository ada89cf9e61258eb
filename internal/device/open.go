package device

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/device/agent"
	"github.com/xdprma/xdprma/internal/protocol/siphash"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/userspace"
)

// Config describes a device. Zero means the default that a field states.
type Config struct {
	userspace.Config // OpenXDP takes XDPGeneric, and native mode for other transports; Interface or Address is required

	Near     netip.Addr    // on the network that all ranks share, whose family the choice of an address prefers; need not be valid
	RxFrames int           // of XDP: frames that can be received and wait; 1024 by default
	Slots    int           // transmit slots; 1024 by default
	MTU      int           // bytes of the largest IP packet; by default the interface's MTU. UDP sends at most 8952 bytes of payload all the same
	Patience time.Duration // of XDP: how long Path waits for the network's answer; 5 s by default
	Job      uint64        // whose handshakes are answered; 0: of any job
	HelloKey *siphash.Key  // by which the handshakes of Job have codes; nil: they have none
	Sessions int           // of XDP: of which the program executes requests where it can, up to 4096; 0: of none
	Unnamed  bool          // nobody has named the interface: Auto puts no XDP program there, and means shared or UDP
	Logger   *slog.Logger  // told, as a warning, which better modes were not possible and why; silent by default

	tryOnce bool // OpenXDP does not wait for queues that other sockets have
}

// Factory opens a device of another kind.
type Factory func(Config) (Device, error)

type factoryKey struct{}

// WithFactory returns a context within which Open calls open, in place of looking for an
// interface. It is for jobs that no network carries.
func WithFactory(ctx context.Context, open Factory) context.Context {
	return context.WithValue(ctx, factoryKey{}, open)
}

// Open opens the best device that Transport allows. The goroutine must run in
// the network namespace of the interface. It blocks as OpenXDP does, and while the link of
// an interface that is up has no carrier, for up to 15 seconds. It fails with the error of
// ctx if that ends meanwhile. It uses duplicates of SocketFDs. Errors say what to do.
func Open(ctx context.Context, config Config) (Device, error) {
	if open, ok := ctx.Value(factoryKey{}).(Factory); ok {
		return open(config)
	}
	c := config
	if c.Transport == "" {
		c.Transport = userspace.Auto
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if !c.Transport.Valid() {
		return nil, openError(mpierr.Arg, fmt.Errorf("transport %q is not %s", c.Transport, userspace.TransportNames))
	}
	if c.External() && (c.Transport == userspace.UDP || c.Transport == userspace.Shared) {
		return nil, openError(mpierr.Arg, fmt.Errorf("a program or sockets from outside are of no use to the transport %s: choose one of XDP's", c.Transport))
	}
	if err := c.locate(ctx); err != nil {
		return nil, openError(mpierr.Arg, err)
	}
	features, err := loader.Probe(c.Interface)
	if err != nil {
		return nil, err
	}
	rungs := Ladder(c.Transport, features)
	if c.Transport == userspace.Auto && !c.External() {
		if c.Unnamed {
			rungs = Ladder(userspace.UDP, features)
		}
		if c.AgentPath() != "" && c.Sessions > 0 && !c.Address.IsLoopback() {
			rungs = slices.Insert(rungs, 0, userspace.Shared)
		}
	}
	if c.External() {
		rungs = rungs[:1]
		if c.SocketFDs, err = duplicates(c.SocketFDs); err != nil {
			return nil, openError(mpierr.Arg, err)
		}
	}
	d, err := c.climb(ctx, rungs, c.open)
	if err != nil {
		return nil, err
	}
	if err := awaitCarrier(ctx, c.Interface); err != nil {
		_ = d.Close()
		return nil, openError(mpierr.Unsupported, err)
	}
	return d, nil
}

// AgentPath returns where the agent's socket is that the device uses, or nothing where it uses none: the one that Agent
// names, or the one of this host, if there is one.
func (c *Config) AgentPath() string {
	switch c.Agent {
	case userspace.NoAgent:
		return ""
	case "":
		if _, err := os.Stat(agent.DefaultPath); err == nil {
			return agent.DefaultPath
		}
	}
	return c.Agent
}

// duplicates returns file descriptors of the same files.
func duplicates(fds []int) (copies []int, err error) {
	for _, fd := range fds {
		copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			_ = closeAll(copies)
			return nil, fmt.Errorf("file descriptor %d, a socket from outside: %w", fd, err)
		}
		copies = append(copies, copied)
	}
	return copies, nil
}

// Ladder returns the transports that Open tries for a transport on an interface, best first.
// Native XDP comes before generic but where loader.Features.GenericFirst says otherwise.
func Ladder(transport userspace.Transport, f loader.Features) []userspace.Transport {
	modes := []userspace.Transport{userspace.XDPNative, userspace.XDPGeneric}
	if f.GenericFirst() != "" {
		slices.Reverse(modes)
	}
	switch transport {
	case userspace.Auto:
		return append(modes, userspace.UDP)
	case userspace.XDP:
		return modes
	}
	return []userspace.Transport{transport}
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
type opener func(_ context.Context, transport userspace.Transport, tryOnce bool) (Device, error)

// climb opens the first device of rungs that can be opened, and tells why better ones
// cannot.
func (c *Config) climb(ctx context.Context, rungs []userspace.Transport, open opener) (Device, error) {
	var failed []string
	var reason string
	news := "a better transport is not possible here"
	busy := false // a queue stayed taken, which it is in all modes
	for i, transport := range rungs {
		d, err := open(ctx, transport, busy)
		switch {
		case err == nil && len(failed) > 0:
			c.Logger.Warn(news, "using", transport,
				"tried", strings.Join(failed, ", "), "interface", c.Interface, "reason", reason)
			return d, nil
		case err == nil:
			return d, nil
		case i == len(rungs)-1, ctx.Err() != nil && errors.Is(err, ctx.Err()):
			return nil, fmt.Errorf("transport %s on interface %s: %w", transport, c.Interface, err)
		}
		if used := (*loader.InUseError)(nil); errors.As(err, &used) {
			news = "another XDP program is on the interface and stays there: this rank does without XDP"
		}
		busy = errors.Is(err, unix.EBUSY)
		failed = append(failed, string(transport))
		if text := err.Error(); !strings.Contains(reason, text) { // often it is the same for both kinds of XDP
			reason = strings.TrimPrefix(reason+"; "+text, "; ")
		}
		if rungs[i+1] == userspace.UDP && !free(c.Address, c.Port) {
			// Another rank has the interface, and with it the port.
			reason += fmt.Sprintf("; UDP port %d of %v is taken as well, so the system chooses another", c.Port, c.Address)
			c.Port = 0
		}
	}
	panic("device: no transports to try")
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
func (c *Config) open(ctx context.Context, transport userspace.Transport, tryOnce bool) (d Device, err error) {
	rung := *c
	rung.Transport, rung.tryOnce = transport, tryOnce
	switch transport {
	case userspace.UDP:
		d, err = OpenUDP(rung)
	case userspace.Shared:
		d, err = OpenShared(ctx, rung)
	case userspace.XDPNative, userspace.XDPGeneric:
		d, err = OpenXDP(ctx, rung)
	default:
		err = openError(mpierr.Unsupported, fmt.Errorf("no device is of the transport %q", transport))
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
	least := LeastMTU(c.Address)
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

// LeastMTU returns the bytes of the largest IP packet that an interface must carry at least, for a
// device at an address like ip to open on it.
func LeastMTU(ip netip.Addr) int { return wire.MinPayload + udpLen + ipLen(ip) }

func orDefault(field *int, value int) {
	if *field == 0 {
		*field = value
	}
}

// locate completes the interface and the address by each other.
func (c *Config) locate(ctx context.Context) error {
	if c.Interface == "" && !c.Address.IsValid() {
		return fmt.Errorf("name an interface or one of this machine's addresses")
	}
	ifi, err := interfaceFor(&c.Config)
	if err != nil {
		return err
	}
	c.Interface = ifi.Name
	c.Address, err = addressOf(ctx, ifi, c.Address, c.Near)
	c.Address = zoned(c.Address, ifi.Index) // another interface may have the same
	return err
}
