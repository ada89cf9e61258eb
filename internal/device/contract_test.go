package device_test

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/device"
	"github.com/xdprma/xdprma/internal/device/agent"
	"github.com/xdprma/xdprma/internal/device/devicetest"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/userspace"
)

func TestContractOnLoopback(t *testing.T) {
	devicetest.Run(t, devicetest.Network{Open: func(t *testing.T) (a, b device.Device) {
		open := func() device.Device {
			dev, err := device.OpenUDP(device.Config{Config: userspace.Config{Address: netip.AddrFrom4([4]byte{127, 0, 0, 1})}, Slots: devicetest.Slots})
			if err != nil {
				t.Fatal(err)
			}
			return dev
		}
		return open(), open()
	}})
}

func TestContract(t *testing.T) {
	for _, transport := range userspace.Transports() {
		if transport == userspace.Auto || transport == userspace.XDP { // which are one of the others
			continue
		}
		t.Run(string(transport), func(t *testing.T) {
			l, path := labtest.New(t, netlab.Config{Ranks: 2}), agentOf(t, transport)
			devicetest.Run(t, devicetest.Network{
				Open: func(t *testing.T) (a, b device.Device) {
					return openIn(t, l, 0, transport, path), openIn(t, l, 1, transport, path)
				},
				Lose: func(t *testing.T) {
					if out, err := l.Command(0, "ip", "link", "delete", l.Interface(0)).CombinedOutput(); err != nil {
						t.Fatal(fmt.Errorf("%w: %s", err, out))
					}
				},
			})
		})
	}
}

func openIn(t *testing.T, l *netlab.Lab, rank int, transport userspace.Transport, path string) (dev device.Device) {
	t.Helper()
	if err := l.Do(rank, func() (err error) {
		dev, err = device.Open(t.Context(), device.Config{
			Config: userspace.Config{Transport: transport, Interface: l.Interface(rank), Address: l.Addr(rank), Agent: path}, Slots: devicetest.Slots,
		})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if mode := dev.Facts().Mode.String(); !strings.HasPrefix(mode, string(transport)) {
		t.Errorf("the device of transport %s has mode %s", transport, mode)
	}
	return dev
}

// agentOf serves ranks that share interfaces, until the test ends.
func agentOf(t *testing.T, transport userspace.Transport) (path string) {
	t.Helper()
	if transport != userspace.Shared {
		return ""
	}
	path = filepath.Join(t.TempDir(), "agent")
	s, err := agent.Serve(agent.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return path
}
