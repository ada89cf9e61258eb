package testenv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// MissingFeature begins the reason of a test that is skipped because the running kernel
// is too old for it. CI accepts such a test, and no other that is skipped.
const MissingFeature = "this kernel lacks a feature: "

// Feature is something that newer kernels have and that some tests need.
type Feature struct {
	name, since string // since is the first version of Linux that has it
	missing     func() bool
}

// The features that tests ask for. Each is tried once, whatever the kernel's version
// says: distributions take features over into older kernels.
var (
	// MultiBuffer is frames of several chunks on AF_XDP sockets (XDP_USE_SG).
	MultiBuffer = &Feature{"AF_XDP frames of several buffers, XDP_USE_SG", "6.6", sync.OnceValue(lacksMultiBuffer)}
	// TxBudget is more than 32 frames a system call in copy mode (XDP_MAX_TX_SKB_BUDGET).
	TxBudget = &Feature{"XDP_MAX_TX_SKB_BUDGET", "6.17", sync.OnceValue(lacksTxBudget)}
	// Bonding is bonds of network interfaces.
	Bonding = &Feature{"bonds, CONFIG_BONDING", "2.2", sync.OnceValue(lacksBonding)}
	// VLANs is VLAN interfaces.
	VLANs = &Feature{"VLAN interfaces, CONFIG_VLAN_8021Q", "2.4", sync.OnceValue(lacksVLANs)}
	// FUSE is file systems in user space.
	FUSE = &Feature{"file systems in user space, CONFIG_FUSE_FS", "2.6", sync.OnceValue(lacksFUSE)}
	// JoinedDatagrams is UDP datagrams that the kernel carries joined, as a packet socket with
	// PACKET_VNET_HDR reads them.
	JoinedDatagrams = &Feature{"joined UDP datagrams on packet sockets, VIRTIO_NET_HDR_GSO_UDP_L4", "6.2", sync.OnceValue(lacksJoinedDatagrams)}
	// Replacement is programs that take the place of a function of another one (BPF_PROG_TYPE_EXT).
	Replacement = &Feature{"BPF programs that replace a function of another", "5.7", sync.OnceValue(lacksReplacement)}
	// LongPrograms is that the verifier comes to an end with the program that executes requests in
	// its form without loops, for a process without CAP_PERFMON. That of Linux 6.1 does not.
	LongPrograms = &Feature{"a verifier that ends on long programs without CAP_PERFMON", "6.12", sync.OnceValue(lacksLongPrograms)}
	// SplitTestRun is a test run of an XDP program on a frame that is split where the
	// test says.
	SplitTestRun = &Feature{"test runs of XDP programs on a frame split at a chosen place", "6.18", sync.OnceValue(lacksSplitTestRun)}
)

// TCX is programs where tc sees a frame first, attached by links.
var TCX = &Feature{"tcx", "6.6", sync.OnceValue(lacksTCX)}

// NeedsFeature skips a test that the running kernel is too old for, even where
// XDPRMA_REQUIRE_ROOT is 1. The kernel is asked as root only: call NeedsRoot before.
func NeedsFeature(t testing.TB, f *Feature) {
	t.Helper()
	if f.missing() {
		t.Skip(MissingFeature + f.name + " (Linux " + f.since + ")")
	}
}

// A feature is missing if the kernel says that it does not know it. After any other
// failure the test goes on, and fails for what is wrong.

// lacksLongPrograms goes by the version: to try it takes the program itself.
func lacksLongPrograms() bool {
	var kernel unix.Utsname
	var major, minor int
	if err := unix.Uname(&kernel); err != nil {
		return false
	}
	n, _ := fmt.Sscanf(unix.ByteSliceToString(kernel.Release[:]), "%d.%d", &major, &minor)
	return n == 2 && (major < 6 || major == 6 && minor < 12)
}

// lacksTCX attaches to an interface that does not exist.
func lacksTCX() bool {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, AttachType: ebpf.AttachTCXIngress, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		return true
	}
	defer p.Close()
	_, err = link.AttachTCX(link.TCXOptions{Interface: math.MaxInt32, Program: p, Attach: ebpf.AttachTCXIngress})
	return errors.Is(err, ebpf.ErrNotSupported)
}

// lacksMultiBuffer binds to an interface that does not exist: a kernel looks at the flags
// before it looks for the interface.
func lacksMultiBuffer() bool {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return errors.Is(unix.Bind(fd, &unix.SockaddrXDP{Flags: unix.XDP_USE_SG, Ifindex: 1<<31 - 1}), unix.EINVAL)
}

// lacksTxBudget sets the budget that a socket has anyway.
func lacksTxBudget() bool {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	const budget = 32
	return errors.Is(unix.SetsockoptInt(fd, unix.SOL_XDP, unix.XDP_MAX_TX_SKB_BUDGET, budget), unix.ENOPROTOOPT)
}

// inNamespace calls try in a network namespace that nobody else sees. Its thread, and the
// namespace with it, ends with the goroutine, which stays locked to it.
func inNamespace(try func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = try()
		}
		result <- err
	}()
	return <-result
}

// lacksBonding makes a bond.
func lacksBonding() bool {
	return errors.Is(inNamespace(func() error {
		return netlink.LinkAdd(netlink.NewLinkBond(netlink.LinkAttrs{Name: "bond"}))
	}), unix.EOPNOTSUPP)
}

// lacksVLANs makes a VLAN interface on a veth: the loopback interface carries no tags.
func lacksVLANs() bool {
	return errors.Is(inNamespace(func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth"}, PeerName: "peer"}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("%v", err) // which says nothing of the feature
		}
		return netlink.LinkAdd(&netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "tagged", ParentIndex: veth.Attrs().Index}, VlanId: 7})
	}), unix.EOPNOTSUPP)
}

func lacksFUSE() bool {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV)
}

// lacksJoinedDatagrams sends two datagrams at once over the loopback interface, and reads them
// there as one frame. An error of what comes before the reading says nothing of the feature.
func lacksJoinedDatagrams() bool {
	lacks := false
	_ = inNamespace(func() error {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err != nil {
			return err
		}
		tap, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			return err
		}
		defer unix.Close(tap)
		from, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		defer unix.Close(from)
		ip := binary.NativeEndian.Uint16([]byte{unix.ETH_P_IP >> 8, unix.ETH_P_IP & 0xff})
		err = errors.Join(
			unix.SetsockoptInt(tap, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
			unix.SetsockoptTimeval(tap, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(Limit.Seconds())}),
			unix.Bind(tap, &unix.SockaddrLinklayer{Protocol: ip, Ifindex: lo.Attrs().Index}),
			unix.SetsockoptInt(from, unix.SOL_UDP, unix.UDP_SEGMENT, 100),
			unix.Sendto(from, make([]byte, 200), 0, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{127, 0, 0, 1}}),
		)
		if err == nil {
			_, err = unix.Read(tap, make([]byte, 1<<16))
			lacks = errors.Is(err, unix.EINVAL)
		}
		return err
	})
	return lacks
}

// lacksSplitTestRun runs a program that passes everything on a frame of which only the
// first part is in the first buffer.
func lacksSplitTestRun() bool {
	const flagFrags = 1 << 5 // BPF_F_XDP_HAS_FRAGS
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, Flags: flagFrags, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	if err != nil {
		return false
	}
	defer p.Close()
	context := struct{ Data, DataEnd, DataMeta, Ingress, RxQueue, Egress uint32 }{DataEnd: 64}
	_, err = p.Run(&ebpf.RunOptions{Data: make([]byte, 256), Context: context, Repeat: 1})
	return errors.Is(err, unix.EINVAL)
}

// lacksReplacement loads such a program. Some kernels refuse it to everybody, as if a privilege were
// missing.
func lacksReplacement() bool {
	err := features.HaveProgramType(ebpf.Extension)
	return errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EPERM) && features.HaveProgramType(ebpf.XDP) == nil
}
