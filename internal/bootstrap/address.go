package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
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
		return "", "", fmt.Errorf("rendezvous address %q: want host:port or unix:/path: %w", addr, err)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", "", fmt.Errorf("rendezvous address %q: the port must be a number from 0 to 65535", addr)
	}
	return "tcp", address, nil
}

// Listen opens a listener at a rendezvous address: host:port, tcp:host:port or
// unix:/path. A unix socket is accessible to its owner only, and one that a
// dead process left behind is replaced. It does not block.
func Listen(addr string) (net.Listener, error) {
	network, address, err := splitAddress(addr)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen(network, address)
	if network == "unix" && errors.Is(err, unix.EADDRINUSE) && isDeadSocket(address) {
		if err := os.Remove(address); err != nil {
			return nil, fmt.Errorf("listen at %s: %w", addr, err)
		}
		l, err = net.Listen(network, address)
	}
	if err != nil {
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

// LocalAddress returns the address of this machine from which c.Rendezvous is
// reached, so that ranks on other machines reach it too; without a rendezvous, or
// with one on a unix socket, that is the loopback address. It sends nothing to the
// rendezvous, but blocks while a host name is looked up, at most until ctx ends.
func (c *Config) LocalAddress(ctx context.Context) (netip.Addr, error) {
	network, address, err := splitAddress(c.Rendezvous)
	if err != nil || network != "tcp" {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", address)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find the way to the rendezvous at %s: %w (%s names an address to use)", c.Rendezvous, err, EnvAddress)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}
