package bpf_test

import (
	"math/bits"
	"net"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/bpf"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/lab/twin"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
)

// The verdicts of tc.
const (
	tcNext     = 0xffffffff
	tcDrop     = 2
	tcRedirect = 7
)

// The programs for several ranks return these.
var (
	sharedXDP = verdicts{twin.Answer: xdpTX, twin.Drop: xdpDrop, twin.ToUser: xdpPass, twin.Hand: xdpDrop}
	sharedTCX = verdicts{twin.Answer: tcRedirect, twin.Drop: tcDrop, twin.ToUser: tcNext, twin.Hand: tcDrop}
)

// The rank of the tests among those that share the program.
const (
	sharedRanks = 3
	sharedRank  = 1
)

// place is an address and port as a switch looks for them.
func place(protocol uint16, ip net.IP, port uint16) (p bpf.SharedPlace) {
	var b [16]byte
	copy(b[:], ip)
	p.Address.Words, p.Address.Protocol, p.Port = [2]uint64{le.Uint64(b[:8]), le.Uint64(b[8:])}, protocol, bits.ReverseBytes16(port)
	return p
}

// loadShared loads the program for several ranks, as that of one of them, whose classifier is the switch.
func loadShared(t testing.TB, read func() (*ebpf.CollectionSpec, error)) *tier {
	t.Helper()
	testenv.NeedsRoot(t)
	spec, err := read()
	if err != nil {
		t.Fatal(err)
	}
	if spec.Programs[bpf.SharedProgXdprmaSwitch].Type == ebpf.SchedCLS {
		testenv.NeedsFeature(t, testenv.TCX)
	}
	for _, m := range spec.Maps {
		if m.Type == ebpf.ArrayOfMaps || m.Name == bpf.SharedMapSockets || m.Name == bpf.SharedMapPlaces {
			m.MaxEntries = sharedRanks
		}
	}
	spec.Maps[bpf.SharedMapChunks].MaxEntries = sharedRanks * express.Chunks
	var o bpf.SharedObjects
	if err := spec.LoadAndAssign(&o, nil); err != nil {
		t.Fatalf("load: %+v", err)
	}
	t.Cleanup(func() { o.Close() })
	p := &tier{classifier: &classifier{verdicts: sharedXDP}}
	if o.XdprmaSwitch.Type() == ebpf.SchedCLS {
		p.verdicts = sharedTCX
	}
	p.XdprmaClassify, p.Chunks = o.XdprmaSwitch, o.Chunks
	if err := o.Executor.Put(uint32(0), o.XdprmaExecute); err != nil {
		t.Fatal(err)
	}
	for _, m := range []struct {
		outer, name string
		in          *ebpf.Map
		to          **ebpf.Map
		length      uint32
	}{
		{"counters", bpf.SharedMapCounters, o.Counters, &p.Counters, 0},
		{"sessions", bpf.SharedMapSessions, o.Sessions, &p.Sessions, numSlots + 1},
		{"slots", bpf.SharedMapSlots, o.Slots, &p.Slots, numSlots},
		{"windows", bpf.SharedMapWindows, o.Windows, &p.Windows, 0},
		{"answers", bpf.SharedMapAnswers, o.Answers, &p.Answers, 1 << 16},
		{"bell", bpf.SharedMapBell, o.Bell, &p.Bell, 0},
	} {
		inner := spec.Maps[m.name].InnerMap.Copy()
		if m.length > 0 {
			inner.MaxEntries = m.length
		}
		made, err := ebpf.NewMap(inner)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { made.Close() })
		if err := m.in.Put(uint32(sharedRank), made); err != nil {
			t.Fatal(err)
		}
		*m.to = made
	}
	if err := o.Sockets.Put(uint32(sharedRank), uint64(socketAt(t, portBase))); err != nil {
		t.Fatal(err)
	}
	for protocol, ip := range map[uint16]net.IP{unix.ETH_P_IP: own4.AsSlice(), unix.ETH_P_IPV6: own6.AsSlice()} {
		if err := o.Places.Put(place(protocol, ip, portBase), uint32(sharedRank)); err != nil {
			t.Fatal(err)
		}
	}
	p.begin(t, spec.Maps[bpf.SharedMapChunks].InnerMap, sharedRank*express.Chunks)
	return p
}

// socketAt returns a UDP socket with a port, which other tests may have at a time.
func socketAt(t testing.TB, port int) (fd int) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	return fd
}
