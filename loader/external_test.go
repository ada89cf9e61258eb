package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/bpf"
	"github.com/xdprma/xdprma/mpierr"
)

// onThread runs f on a thread of its own that dies afterwards, so that f may
// give up rights or change namespaces. F must not end the test.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

// keepOnly gives up all of the thread's capabilities but these.
func keepOnly(caps ...int) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	for _, c := range caps {
		data[c/32].Effective |= 1 << (c % 32)
		data[c/32].Permitted |= 1 << (c % 32)
	}
	return unix.Capset(&header, &data[0])
}

func TestAttachNeedsCapabilities(t *testing.T) {
	l := newLab(t, shape{})
	for _, tt := range []struct {
		name string
		keep []int
		want string // in the error; empty: success
	}{
		{"enough", []int{unix.CAP_BPF, unix.CAP_NET_ADMIN, unix.CAP_NET_RAW}, ""},
		{"none", nil, "missing CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW: run as root, grant cap_bpf,cap_net_admin,cap_net_raw, or use the UDP transport"},
		{"no BPF", []int{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW}, "missing CAP_BPF: "},
		{"no admin", []int{unix.CAP_BPF, unix.CAP_NET_RAW}, "missing CAP_NET_ADMIN: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var caps Caps
			err := onThread(func() error {
				if err := netns.Set(l.b); err != nil {
					return err
				}
				if err := keepOnly(tt.keep...); err != nil {
					return err
				}
				var err error
				if caps, err = Capabilities(); err != nil {
					return err
				}
				p, err := Attach(Options{Interface: "b", Address: at, Port: port})
				if err != nil {
					return err
				}
				return p.Close()
			})
			if tt.want == "" {
				must(t, err)
			} else if mpierr.ClassOf(err) != mpierr.Unsupported || !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v", err)
			}
			if len(caps.Missing()) != 3-len(tt.keep) {
				t.Errorf("kept %v, missing %v", tt.keep, caps.Missing())
			}
		})
	}
}

// A process without any capability controls a program that another attached.
func TestFromMaps(t *testing.T) {
	l := newLab(t, shape{})
	p := l.attach(t, Options{})
	socket := xdpSocket(t)
	must(t, onThread(func() error {
		if err := keepOnly(); err != nil {
			return err
		}
		q, err := FromMaps(p.Maps(), p.Mode())
		if err != nil {
			return err
		}
		_, err = q.Counters()
		if q.Mode() != p.Mode() || q.LocalAddr() != netip.AddrPortFrom(at, port) {
			err = errors.Join(err, fmt.Errorf("mode %v, address %v", q.Mode(), q.LocalAddr()))
		}
		err = errors.Join(err, q.SetSocket(0, socket), q.AllowSession(9, NoSlot), q.SetJob(5, &[16]byte{6}))
		q.ForgetSession(9)
		return errors.Join(err, q.Close(), q.Close())
	}))
	if l.attached(t) == nil {
		t.Error("Close detached a program that it had not attached")
	}
	if _, err := p.Counters(); err != nil {
		t.Errorf("the maps were closed: %v", err)
	}
	var told bpf.ClassifierHelloConfig
	want := Options{Job: 5, HelloKey: &[16]byte{6}}.withHelloLimits().hellos()
	if err := p.Maps().Hellos.Lookup(uint32(0), &told); err != nil || told != want {
		t.Errorf("the program was told of hellos %+v, %v, want %+v", told, err, want)
	}
	if err := p.Maps().Config.Put(uint32(0), make([]byte, p.Maps().Config.ValueSize())); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("whoever has the maps can have the program take other frames: %v", err)
	}
	swapped := p.Maps()
	swapped.Sessions, swapped.Counters = swapped.Counters, swapped.Sessions
	blind := p.Maps()
	blind.Config = nil
	for _, m := range []Maps{{}, {Sockets: p.Maps().Sockets}, swapped, blind} {
		if _, err := FromMaps(m, Native); mpierr.ClassOf(err) != mpierr.Arg {
			t.Errorf("wrong maps: %v", err)
		}
	}
}

func TestFromPinned(t *testing.T) {
	l := newLab(t, shape{})
	p := l.attach(t, Options{})
	dir := t.TempDir()
	must(t, onThread(func() error {
		// A mount namespace of its own, so that nothing stays mounted.
		if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS),
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("bpf", dir, "bpf", 0, "")); err != nil {
			return err
		}
		if _, err := FromPinned(dir, Native); mpierr.ClassOf(err) != mpierr.Arg {
			return errors.Join(errors.New("an empty directory was accepted"), err)
		}
		m := p.Maps()
		if err := errors.Join(m.Sockets.Pin(filepath.Join(dir, bpf.ClassifierMapXsks)),
			m.Sessions.Pin(filepath.Join(dir, bpf.ClassifierMapSessions)),
			m.Counters.Pin(filepath.Join(dir, bpf.ClassifierMapCounters)),
			m.Config.Pin(filepath.Join(dir, bpf.ClassifierMapConfigMap)),
			m.Hellos.Pin(filepath.Join(dir, bpf.ClassifierMapHelloMap))); err != nil {
			return err
		}
		q, err := FromPinned(dir, Native)
		if err != nil {
			return err
		}
		return errors.Join(q.AllowSession(3, NoSlot), q.Close())
	}))
	var value uint32
	if err := p.Maps().Sessions.Lookup(uint64(3), &value); err != nil {
		t.Errorf("the session did not arrive in the program's map: %v", err)
	}
}
