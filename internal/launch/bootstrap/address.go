package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/launch/hostaddr"
)

// splitAddress returns the network and address that net.Dial and net.Listen
// take for a rendezvous address.
func splitAddress(addr string) (network, address string, err error) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		if path == "" || len(path) > 107 || strings.ContainsRune(path, 0) {
			return "", "", fmt.Errorf("rendezvous address %q: a unix path has 1 to 107 bytes", addr)
		}
		return "unix", path, nil
	}
	address = strings.TrimPrefix(addr, "tcp:")
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		if meant := bracketed(address); meant != "" {
			return "", "", fmt.Errorf("rendezvous address %q: an IPv6 address takes brackets: %s", addr, meant)
		}
		return "", "", fmt.Errorf("rendezvous address %q: want host:port or unix:/path: %w", addr, err)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", "", fmt.Errorf("rendezvous address %q: the port must be a number from 0 to 65535", addr)
	}
	return "tcp", address, nil
}

// bracketed returns the form that an address lacks which is that of an IPv6 host and a port, or of the
// host alone; empty: it is none.
func bracketed(address string) string {
	at := strings.LastIndexByte(address, ':')
	if at < 0 {
		return ""
	}
	host, port := address[:at], address[at+1:]
	if _, err := strconv.ParseUint(port, 10, 16); err == nil && isIPv6(host) {
		return net.JoinHostPort(host, port)
	}
	if isIPv6(address) {
		return net.JoinHostPort(address, "PORT")
	}
	return ""
}

func isIPv6(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Is6()
}

// Listen opens a listener at a rendezvous address: host:port, tcp:host:port or
// unix:/path. A unix socket is accessible to its owner only, and one that a
// dead process left behind is replaced. It blocks while a host name is looked up.
func Listen(addr string) (net.Listener, error) { return listen(context.Background(), addr) }

// listen is Listen, until ctx ends.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	network, address, err := splitAddress(addr)
	if err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, network, address)
	if network == "unix" && errors.Is(err, unix.EADDRINUSE) && isDeadSocket(address) {
		if err := os.Remove(address); err != nil {
			return nil, fmt.Errorf("listen at %s: %w", addr, err)
		}
		l, err = net.Listen(network, address)
	}
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return nil, fmt.Errorf("cannot serve the rendezvous at %s: %w (another job has the place, or another process is rank 0 of this one)", addr, err)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return nil, fmt.Errorf("rank 0 serves the rendezvous at %s, and this host does not have that address: is %s=0 right here? Start rank 0 on the host that has it, or set %s to an address of this host for all ranks: %w",
			addr, EnvRank, EnvRendezvous, err)
	case err != nil:
		return nil, fmt.Errorf("cannot serve the rendezvous at %s: %w", addr, err)
	}
	if network == "unix" {
		if err := os.Chmod(address, 0o600); err != nil {
			l.Close()
			return nil, fmt.Errorf("listen at %s: %w", addr, err)
		}
	}
	return l, nil
}

// listenPatiently is Listen at c.Rendezvous for the rank that serves it. A name may become known
// only when the host runs, so while it is not, listenPatiently tries again for as long as Dial does
// at the other ranks, and passes to failed, unless that is nil, why an attempt has failed.
func (c *Config) listenPatiently(ctx context.Context, failed func(error)) (net.Listener, error) {
	ctx, cancel := c.patient(ctx)
	defer cancel()
	var reason error // of the last attempt that nothing has cut short
	for pause := dialPauseMin; ; pause = min(2*pause, dialPauseMax) {
		l, err := listen(ctx, c.Rendezvous)
		if _, unknown := errors.AsType[*net.DNSError](err); !unknown {
			return l, err
		}
		if reason == nil || ctx.Err() == nil {
			reason = err
		}
		if failed != nil && ctx.Err() == nil {
			failed(reason)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			_, address, _ := splitAddress(c.Rendezvous) // it has been split before
			name, port, _ := net.SplitHostPort(address)
			return nil, fmt.Errorf("rank 0 serves the rendezvous at %s, and the name %s is unknown here (%s says how long to try; at 0.0.0.0:%s rank 0 serves at all addresses, whatever name the others have): %w; the last attempt: %w",
				c.Rendezvous, name, EnvPatience, port, ctx.Err(), reason)
		}
	}
}

// isDeadSocket reports whether path is a unix socket at which nobody listens.
func isDeadSocket(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return false
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
	}
	return errors.Is(err, unix.ECONNREFUSED)
}

// debianHost is the address that Debian gives each host's name on the host itself.
var debianHost = netip.AddrFrom4([4]byte{127, 0, 1, 1})

// servedHere returns a warning, and only one, if what is likely to be meant for the address of this
// host, which serves there, is loopback's.
func (c *Config) servedHere(at net.Addr) []string {
	tcp, ok := at.(*net.TCPAddr)
	if !ok || c.Size == 1 || !tcp.IP.IsLoopback() {
		return nil
	}
	_, address, _ := splitAddress(c.Rendezvous) // it is listened at
	host, port, _ := net.SplitHostPort(address)
	if ip, err := netip.ParseAddr(host); host == "localhost" || err == nil && ip != debianHost {
		return nil // said on purpose; members tell, should ranks not come
	}
	return []string{fmt.Sprintf("the rendezvous is at %s, which means %v on this host: no other host reaches it; with ranks on others set %s to 0.0.0.0:%s at rank 0, or to its IP address",
		host, tcp.IP, EnvRendezvous, port)}
}

// LocalAddress returns the address of this machine from which the rendezvous is reached, or a
// lasting one in place of a temporary one, so that ranks on other machines reach it too;
// without a rendezvous, or with one on a unix socket, that is the loopback address. At a
// rendezvous that is served at all addresses (0.0.0.0 or ::), or under a name that means
// loopback here, it is the address from which this machine reaches others. Reached is the address
// to which c.Rendezvous has led, whose name may have others; without it the name is looked up. It
// sends nothing, but blocks while a host name is looked up, at most until ctx ends.
func (c *Config) LocalAddress(ctx context.Context, reached netip.Addr) (netip.Addr, error) {
	network, address, err := splitAddress(c.Rendezvous)
	if err != nil || network != "tcp" {
		return loopback, nil
	}
	if everywhere, family := servedEverywhere(address); everywhere {
		return outwardAddress(ctx, family), nil
	}
	host, port, _ := net.SplitHostPort(address) // it has been split before
	if reached.IsValid() {
		address = net.JoinHostPort(reached.String(), port)
	}
	local, err := sourceAddress(ctx, address)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find the way to the rendezvous at %s: %w (%s names an address to use)", c.Rendezvous, err, EnvAddress)
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "localhost" && local.IsLoopback() {
		return outwardAddress(ctx, local), nil // it is this host's own name, which Debian gives the address 127.0.1.1
	}
	return local, nil
}

// servedEverywhere reports whether a rendezvous at an address, a host and port, is served at all
// addresses of its host, which are of both families. Said by 0.0.0.0 or ::, family is that address,
// and else not valid.
func servedEverywhere(address string) (everywhere bool, family netip.Addr) {
	host, _, _ := net.SplitHostPort(address) // it has been split before
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified(), ip
}

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// sourceAddress returns the address from which this machine sends to another: the kernel's
// choice, or a lasting address in place of a temporary one.
func sourceAddress(ctx context.Context, to string) (netip.Addr, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", to)
	if ended := ctx.Err(); err != nil && ended != nil && !errors.Is(err, ended) {
		return netip.Addr{}, fmt.Errorf("%w: %w", ended, err) // the lookup failed as the context ended
	}
	if err != nil {
		return netip.Addr{}, err
	}
	defer conn.Close()
	local := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	list, err := hostaddr.List()
	if err != nil {
		return netip.Addr{}, err
	}
	return hostaddr.Lasting(list, local), nil
}

// examples are addresses of no host, one of each family.
var examples = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:9"), netip.MustParseAddrPort("[2001:db8::1]:9")}

// outwardAddress returns the address that this machine uses on its default route.
// Without such a route it returns the one that hostaddr.Choose prefers among those that
// others may reach it at, and without such an address that of the loopback interface. It is of
// the family of near, if that is valid and the machine has one.
func outwardAddress(ctx context.Context, near netip.Addr) netip.Addr {
	for _, to := range examples {
		if near.IsValid() && near.Is4() != to.Addr().Is4() {
			continue
		}
		if local, err := sourceAddress(ctx, to.String()); err == nil && !local.IsLoopback() {
			return local
		}
	}
	list, _ := hostaddr.List() // none is the answer then
	a := choose(list, near)
	switch {
	case near.IsValid() && (!a.IsValid() || a.Is4() != near.Is4()):
		return outwardAddress(ctx, netip.Addr{})
	case a.IsValid():
		return a
	}
	return loopback
}

// choose returns the address of a list that other hosts may reach, whatever they call
// the link to it, or none. It prefers the family of near, if that is valid.
func choose(list []hostaddr.Address, near netip.Addr) netip.Addr {
	a, _ := hostaddr.Choose(slices.DeleteFunc(list, func(a hostaddr.Address) bool { return !a.IP.IsGlobalUnicast() }), near)
	return a.IP
}
