package afxdp

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// vethName is the name of both ends of a test's veth pair.
const vethName = "xr0"

// vethPair is two network namespaces without names, joined by a veth pair. They
// vanish when the test and its sockets let go of them.
type vethPair [2]netns.NsHandle

func newVethPair(t testing.TB, mtu int) vethPair {
	t.Helper()
	return newWideVethPair(t, mtu, 1)
}

// newWideVethPair makes a pair of so many queues in each direction.
func newWideVethPair(t testing.TB, mtu, queues int) vethPair {
	t.Helper()
	testenv.NeedsRoot(t)
	var p vethPair
	t.Cleanup(func() {
		for i := range p {
			if p[i].IsOpen() {
				_ = p[i].Close()
			}
		}
	})
	for i := range p {
		p[i] = netns.None()
		inNamespace(t, netns.None(), func() (err error) {
			if p[i], err = netns.New(); err != nil {
				return err
			}
			// No neighbour discovery: only the test's frames cross the pair.
			err = os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
			if errors.Is(err, os.ErrNotExist) {
				err = nil
			}
			return err
		})
	}
	inNamespace(t, p[0], func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU, attrs.NumTxQueues, attrs.NumRxQueues = vethName, mtu, queues, queues
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: attrs, PeerName: vethName, PeerNamespace: netlink.NsFd(p[1]),
			PeerMTU: uint32(mtu), PeerNumTxQueues: uint32(queues), PeerNumRxQueues: uint32(queues),
		})
	})
	for _, ns := range p {
		inNamespace(t, ns, func() error {
			l, err := netlink.LinkByName(vethName)
			if err != nil {
				return err
			}
			return netlink.LinkSetUp(l)
		})
	}
	return p
}

// inNamespace runs f on a thread of its own in ns, or in the test's namespace
// for netns.None. The thread ends with f.
func inNamespace(t testing.TB, ns netns.NsHandle, f func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread
		if ns.IsOpen() {
			if err := netns.Set(ns); err != nil {
				done <- err
				return
			}
		}
		done <- f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// openIn opens a socket on the veth in ns.
func openIn(t testing.TB, ns netns.NsHandle, c Config) (s *Socket, err error) {
	t.Helper()
	c.Interface = vethName
	inNamespace(t, ns, func() error {
		s, err = Open(t.Context(), c)
		return nil
	})
	return s, err
}

// end opens a socket on the veth in ns with a program in the driver that
// redirects to it, and closes everything after the test.
func end(t testing.TB, ns netns.NsHandle, c Config) *Socket {
	t.Helper()
	return endIn(t, ns, c, link.XDPDriverMode)
}

// needs skips a test that a socket so configured asks too much of the kernel for.
func needs(t testing.TB, c Config) {
	t.Helper()
	if c.MultiBuffer {
		testenv.NeedsFeature(t, testenv.MultiBuffer)
	}
}

// endIn is end with a choice of where the program runs.
func endIn(t testing.TB, ns netns.NsHandle, c Config, mode link.XDPAttachFlags) *Socket {
	t.Helper()
	needs(t, c)
	s, err := openIn(t, ns, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	attach(t, ns, mode, s)
	return s
}

// attach makes a program redirect to sockets on the veth in ns, one a queue,
// until the end of the test.
func attach(t testing.TB, ns netns.NsHandle, mode link.XDPAttachFlags, sockets ...*Socket) {
	t.Helper()
	xsks, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: uint32(len(sockets))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = xsks.Close() })
	for queue, s := range sockets {
		if err := xsks.Put(uint32(queue), uint32(s.FD())); err != nil {
			t.Fatal(err)
		}
	}
	program, err := ebpf.NewProgram(redirectProgram(xsks))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	inNamespace(t, ns, func() error {
		ifi, err := net.InterfaceByName(vethName)
		if err != nil {
			return err
		}
		l, err := link.AttachXDP(link.XDPOptions{Program: program, Interface: ifi.Index, Flags: mode})
		if err != nil {
			return fmt.Errorf("attach: %w", err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return nil
	})
}

// redirectProgram hands each frame to the socket of its receive queue, and to
// the kernel where there is none.
func redirectProgram(xsks *ebpf.Map) *ebpf.ProgramSpec {
	const rxQueueIndex = 16 // offset in struct xdp_md
	return &ebpf.ProgramSpec{
		Name: "xr_redirect", Type: ebpf.XDP, License: "MIT", Flags: unix.BPF_F_XDP_HAS_FRAGS,
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, rxQueueIndex, asm.Word),
			asm.LoadMapPtr(asm.R1, xsks.FD()),
			asm.Mov.Imm(asm.R3, 2), // XDP_PASS
			asm.FnRedirectMap.Call(),
			asm.Return(),
		},
	}
}

// changeLink sets the veth of the thread's namespace down or removes it.
func changeLink(how string) error {
	l, err := netlink.LinkByName(vethName)
	if err != nil {
		return err
	}
	switch how {
	case "removed":
		return netlink.LinkDel(l)
	case "down":
		return netlink.LinkSetDown(l)
	}
	return netlink.LinkSetUp(l)
}
