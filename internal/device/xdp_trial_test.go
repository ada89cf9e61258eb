package device

import (
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xdprma/xdprma/internal/lab/logs"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/userspace"
)

// address20 is that of the macvlan of trialLab.
var address20 = netip.MustParseAddr("10.77.0.20")

// ipCommands carries out commands of ip in the namespace of a rank.
func ipCommands(t *testing.T, l *netlab.Lab, rank int, commands ...string) {
	t.Helper()
	err := l.Do(rank, func() error {
		for _, c := range commands {
			if out, err := exec.Command("ip", strings.Fields(c)...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %w\n%s", c, err, out)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// trialLab is a lab of two ranks where rank 1 has a macvlan, upper, above its interface.
func trialLab(t *testing.T) *netlab.Lab {
	t.Helper()
	l := labtest.New(t, netlab.Config{Ranks: 2})
	ipCommands(t, l, 1, "link add link xr1 name upper type macvlan mode bridge", "link set dev upper up", "address add 10.77.0.20/24 dev upper")
	return l
}

// openApart opens a device of rank 1 on one interface whose program runs on another one.
func openApart(t *testing.T, l *netlab.Lab, mode loader.Mode, device, program string, addr netip.Addr, log *logs.Log) *end {
	t.Helper()
	var dev Device
	err := l.Do(1, func() error {
		p, err := loader.Attach(loader.Options{Interface: program, Address: addr, Port: 4000, Mode: mode})
		if err != nil {
			return err
		}
		if dev, err = OpenXDP(t.Context(), Config{Config: userspace.Config{Interface: device, Address: addr, Port: 4000, Program: p}, Slots: 128, Logger: log.Logger()}); err != nil {
			_ = p.Close() // it is not the device's
		}
		return err
	})
	return newEnd(t, dev, err)
}

// insist sends handshakes from a to b until one arrives, and returns the path.
func insist(t *testing.T, a, b *end) PathID {
	t.Helper()
	path := a.path(b.dev.Facts().Local)
	receive := func(wait time.Duration) bool {
		b.dev.Sleep(wait)
		var frames [16]Frame
		n := b.dev.Receive(frames[:])
		b.dev.Release()
		return n > 0
	}
	testenv.Await(t, "a handshake", func() bool {
		a.send(path, message(wire.KindHello, 300))
		return receive(50 * time.Millisecond)
	})
	for receive(time.Millisecond) { // the others
	}
	return path
}

// A lower interface runs the program, as it does for a bond in native mode: what it redirects
// is lost. The device notices, says so once, and receives the frames through the kernel.
func TestRedirectedFramesAreLost(t *testing.T) {
	for _, mode := range []loader.Mode{loader.Native, loader.Generic} {
		t.Run(mode.String(), func(t *testing.T) {
			l := trialLab(t)
			var log logs.Log
			b := openApart(t, l, mode, "upper", "xr1", address20, &log)
			if got := b.dev.Facts().Mode.String(); got != "xdp-"+mode.String() {
				t.Errorf("mode %s at first", got)
			}
			a := openEnd(t, l, 0, userspace.XDPNative, false)
			comesAndIsAnswered(t, a, b, insist(t, a, b))
			if got := b.dev.Facts().Mode.String(); got != "udp" {
				t.Errorf("mode %s in the end", got)
			}
			<-b.dev.(*XDP).watch.tried
			if text := log.String(); log.Lines("level=WARN") != 1 || !strings.Contains(text, "reach no socket") {
				t.Errorf("log:\n%s", text)
			}
		})
	}
}

// Frames come by an interface that has no program, and the UDP socket receives them. The
// device says so once.
func TestFramesComeAnotherWay(t *testing.T) {
	l := trialLab(t)
	var log logs.Log
	b := openApart(t, l, loader.Generic, "xr1", "upper", l.Addr(1), &log)
	a := openEnd(t, l, 0, userspace.UDP, false)
	exchange(t, a, b)
	told := func() int { return log.Lines("level=WARN") }
	testenv.Await(t, "a warning", func() bool { return told() > 0 })
	if text := log.String(); !strings.Contains(text, "none by XDP") || !strings.Contains(text, a.dev.Facts().Local.String()) {
		t.Errorf("log:\n%s", text)
	}
	x := b.dev.(*XDP)
	x.watch.stop()
	for range 10 {
		x.watch.trial.look()
	}
	if told() != 1 {
		t.Errorf("log:\n%s", log.String())
	}
}

// bond makes a bond with one lower interface.
var bond = []string{"link add upper type bond mode active-backup", "link set dev xr1 down", "link set xr1 master upper"}

// The trial ends once a frame has arrived, also on an interface above another one.
func TestFramesArriveByXDP(t *testing.T) {
	for _, c := range []struct {
		transport userspace.Transport
		upper     []string // the commands that make an interface above xr1, if any
		opened    string   // as
	}{
		{userspace.XDPNative, nil, "xdp-native"},
		{userspace.XDPGeneric, nil, "xdp-generic"},
		{userspace.XDP, []string{"link add link xr1 name upper type macvlan mode bridge"}, "xdp-generic"},
		{userspace.XDP, []string{"link add upper type bridge", "link set xr1 master upper"}, "xdp-generic"},
		{userspace.XDP, bond, "xdp-generic"},
	} {
		t.Run(fmt.Sprint(c.transport, c.upper), func(t *testing.T) {
			l := labtest.New(t, netlab.Config{Ranks: 2})
			if slices.Equal(c.upper, bond) {
				testenv.NeedsFeature(t, testenv.Bonding)
			}
			name, addr := "xr1", l.Addr(1)
			if c.upper != nil {
				name, addr = "upper", address20
				ipCommands(t, l, 1, append(c.upper, "link set dev upper up", "address add 10.77.0.20/24 dev upper")...)
			}
			var log logs.Log
			var dev Device
			err := l.Do(1, func() (err error) {
				dev, err = Open(t.Context(), Config{Config: userspace.Config{Transport: c.transport, Interface: name, Address: addr}, Slots: 128, Logger: log.Logger()})
				return err
			})
			b := newEnd(t, dev, err)
			before := log.Lines("level=WARN") // native mode may not have been possible
			a := openEnd(t, l, 0, userspace.UDP, false)
			exchange(t, a, b)
			<-b.dev.(*XDP).watch.tried
			if b.dev.Facts().Mode.String() != c.opened || log.Lines("level=WARN") != before || b.stats().Filter["no_socket"] != 0 {
				t.Errorf("mode %s, want %s; log:\n%s", b.dev.Facts().Mode.String(), c.opened, log.String())
			}
		})
	}
}
