package loader

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Features is what an interface and its driver can do, as far as the kernel says.
type Features struct {
	Interface string // its name
	Index     int    // by which the kernel knows it
	Kind      string // "veth", "bond", ...; "device" for hardware
	Driver    string // empty if unknown
	MTU       int    // bytes
	// RxQueues and TxQueues are the queues in use; if the driver does not say,
	// those that the kernel has allocated.
	RxQueues, TxQueues int

	XDP        FeatureSet // "basic", "redirect", "ndo-xmit", "xsk-zerocopy", "hw-offload", "rx-sg", "ndo-xmit-sg"
	RxMetadata FeatureSet // "timestamp", "hash", "vlan-tag"
	XSK        FeatureSet // "tx-timestamp", "tx-checksum", "tx-launch-time-fifo"
	// ZeroCopySegments is the most buffers that a frame may have in zero-copy
	// mode; 0 if the kernel does not say, as without zero-copy.
	ZeroCopySegments int
	Offloads         FeatureSet // that are on, by ethtool's names: "tx-udp-segmentation", ...

	Program *ProgramInfo // the XDP program that is attached, or nil
}

var (
	errNoRedirect = errors.New("the driver cannot redirect in native mode")
	errBond       = errors.New("the interfaces of the bond would run the program, and what they redirect reaches no socket of the bond")
)

// NoNative returns why native mode is of no use on the interface, where the kernel attaches
// a program and drops what it redirects to a socket. It returns nil if nothing of the kind is
// known.
func (f Features) NoNative() error {
	switch {
	case f.Kind == "bond":
		return errBond
	case f.XDP.Has("basic") && !f.XDP.Has("redirect"):
		return errNoRedirect
	}
	return nil
}

// GenericFirst returns why generic mode is tried before native mode on the interface. It is
// empty where native mode comes first.
func (f Features) GenericFirst() string {
	if f.Kind == "veth" {
		return "on veth it executes small requests as fast as native XDP, needs nothing of the far end, and leaves UDP segmentation whole"
	}
	return ""
}

// CopyFirst returns why a program that executes requests goes with sockets in copy mode on the
// interface, though the driver has zero-copy. It is empty where zero-copy does no harm.
func (f Features) CopyFirst() string {
	if f.Driver == "virtio_net" {
		// It sends nothing that has no room for its header in front, and what comes by zero-copy has none:
		// xdp_convert_zc_to_xdp_frame in net/core/xdp.c.
		return "with zero-copy virtio_net drops the answers of an XDP program that executes requests"
	}
	return ""
}

// ZeroCopyRoom returns how many bytes a frame may have that the driver receives by zero-copy into
// a buffer with the given room.
func (f Features) ZeroCopyRoom(room int) int {
	switch f.Driver {
	case "igb", "igc", "ixgbe":
		return room &^ 1023 // they tell the NIC the room in whole KiB (SRRCTL.BSIZEPACKET), the last for 82599 alone
	}
	return room
}

// FeatureSet is a set of features by the kernel's names, or not Known.
type FeatureSet struct {
	Known bool     // whether the kernel has said anything
	Names []string // of the features that are there
}

// Has reports whether the feature is known to be there.
func (s FeatureSet) Has(name string) bool { return slices.Contains(s.Names, name) }

// String lists the features with spaces between, or is "unknown" or "none".
func (s FeatureSet) String() string {
	switch {
	case !s.Known:
		return "unknown"
	case len(s.Names) == 0:
		return "none"
	}
	return strings.Join(s.Names, " ")
}

// The netdev family of generic netlink: command, attributes and the names of bits.
const (
	netdevCmdDevGet       = 1
	netdevAttrIfindex     = 1
	netdevAttrXDPFeatures = 3
	netdevAttrZCMaxSegs   = 4
	netdevAttrRxMetadata  = 5
	netdevAttrXSKFeatures = 6
	netlinkAttrTypeMask   = 0x3fff
	firstChannelsCount    = unix.ETHTOOL_A_CHANNELS_RX_COUNT
	combinedChannelsCount = unix.ETHTOOL_A_CHANNELS_COMBINED_COUNT
	ethtoolHeader         = 1 // the attribute that names the interface, of all requests
)

var (
	xdpFeatureNames = []string{"basic", "redirect", "ndo-xmit", "xsk-zerocopy", "hw-offload", "rx-sg", "ndo-xmit-sg"}
	rxMetadataNames = []string{"timestamp", "hash", "vlan-tag"}
	xskFeatureNames = []string{"tx-timestamp", "tx-checksum", "tx-launch-time-fifo"}
)

// Probe asks the kernel about an interface of the caller's network namespace. It takes
// no privilege. Features that the kernel does not report are left unknown. An error
// means that there is no such interface or that the kernel cannot be asked.
func Probe(ifname string) (Features, error) {
	l, err := netlink.LinkByName(ifname)
	if err != nil {
		return Features{}, explain("probe", err, failure{ifname: ifname})
	}
	a := l.Attrs()
	f := Features{
		Interface: ifname, Index: a.Index, Kind: l.Type(), MTU: a.MTU,
		RxQueues: a.NumRxQueues, TxQueues: a.NumTxQueues,
		Driver: driver(ifname),
	}
	if a.Xdp != nil && a.Xdp.Attached {
		f.Program = inspect(a.Index, a.Xdp.ProgId, a.Xdp.AttachMode)
	}
	f.readChannels()
	f.readOffloads()
	f.readNetdev()
	return f, nil
}

// driver returns the driver's name, or nothing if the device does not tell.
func driver(ifname string) string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, ifname)
	if err != nil {
		return ""
	}
	return unix.ByteSliceToString(info.Driver[:])
}

// readChannels replaces the allocated queues by those in use.
func (f *Features) readChannels() {
	attrs, err := f.ethtool(unix.ETHTOOL_MSG_CHANNELS_GET)
	if err != nil {
		return
	}
	var count [combinedChannelsCount + 1]int
	for kind := firstChannelsCount; kind <= combinedChannelsCount; kind++ {
		n, _ := attrs.uint(uint16(kind))
		count[kind] = int(n)
	}
	both := count[combinedChannelsCount]
	if rx := count[unix.ETHTOOL_A_CHANNELS_RX_COUNT] + both; rx > 0 {
		f.RxQueues = rx
	}
	if tx := count[unix.ETHTOOL_A_CHANNELS_TX_COUNT] + both; tx > 0 {
		f.TxQueues = tx
	}
}

// readOffloads asks which offloads are on (Linux 5.7 and later). The answer lists these and
// no others, each with its name.
func (f *Features) readOffloads() {
	attrs, err := f.ethtool(unix.ETHTOOL_MSG_FEATURES_GET)
	if err != nil {
		return
	}
	active, err := parseAttributes(attrs[unix.ETHTOOL_A_FEATURES_ACTIVE])
	if err != nil {
		return
	}
	bits, err := nl.ParseRouteAttr(active[unix.ETHTOOL_A_BITSET_BITS])
	if err != nil {
		return
	}
	f.Offloads.Known = true
	for _, b := range bits {
		if bit, err := parseAttributes(b.Value); err == nil {
			f.Offloads.Names = append(f.Offloads.Names, unix.ByteSliceToString(bit[unix.ETHTOOL_A_BITSET_BIT_NAME]))
		}
	}
}

// ethtool asks ethtool's family of generic netlink about the interface.
func (f *Features) ethtool(command uint8) (attributes, error) {
	header := nl.NewRtAttr(ethtoolHeader|unix.NLA_F_NESTED, nil)
	header.AddRtAttr(unix.ETHTOOL_A_HEADER_DEV_INDEX, nl.Uint32Attr(uint32(f.Index)))
	return genericRequest(unix.ETHTOOL_GENL_NAME, command, header)
}

// readNetdev asks for what the driver says about XDP (Linux 6.3 and later).
func (f *Features) readNetdev() {
	attrs, err := genericRequest("netdev", netdevCmdDevGet,
		nl.NewRtAttr(netdevAttrIfindex, nl.Uint32Attr(uint32(f.Index))))
	if err != nil {
		return
	}
	f.XDP = attrs.set(netdevAttrXDPFeatures, xdpFeatureNames)
	f.RxMetadata = attrs.set(netdevAttrRxMetadata, rxMetadataNames)
	f.XSK = attrs.set(netdevAttrXSKFeatures, xskFeatureNames)
	segments, _ := attrs.uint(netdevAttrZCMaxSegs)
	f.ZeroCopySegments = int(segments)
}

// attributes are the attributes of a netlink answer by type.
type attributes map[uint16][]byte

// uint returns an attribute of 4 or 8 bytes.
func (a attributes) uint(kind uint16) (uint64, bool) {
	switch v := a[kind]; len(v) {
	case 4:
		return uint64(binary.NativeEndian.Uint32(v)), true
	case 8:
		return binary.NativeEndian.Uint64(v), true
	}
	return 0, false
}

// set returns an attribute as a set of named bits; a bit without a name is
// called by its number.
func (a attributes) set(kind uint16, names []string) FeatureSet {
	bits, known := a.uint(kind)
	s := FeatureSet{Known: known}
	for i := range 64 {
		if bits&(1<<i) == 0 {
			continue
		}
		if i < len(names) {
			s.Names = append(s.Names, names[i])
		} else {
			s.Names = append(s.Names, fmt.Sprintf("bit-%d", i))
		}
	}
	return s
}

// genericHeader is the header of a generic netlink message: command, version, and
// two bytes that new families require to be zero. The one of package nl has two bytes of
// its own, and sends what lies behind them in memory.
type genericHeader [nl.SizeofGenlmsg]byte

// Len returns the header's length in bytes.
func (h genericHeader) Len() int { return len(h) }

// Serialize returns the header's bytes.
func (h genericHeader) Serialize() []byte { return h[:] }

// genericRequest asks a family of generic netlink for one answer.
func genericRequest(family string, command uint8, attr *nl.RtAttr) (attributes, error) {
	name := nl.NewRtAttr(nl.GENL_CTRL_ATTR_FAMILY_NAME, nl.ZeroTerminated(family))
	found, err := genericAsk(nl.GENL_ID_CTRL, nl.GENL_CTRL_CMD_GETFAMILY, name)
	if err != nil {
		return nil, err
	}
	id := found[nl.GENL_CTRL_ATTR_FAMILY_ID]
	if len(id) != 2 {
		return nil, fmt.Errorf("the kernel gives the netlink family %s no number", family)
	}
	return genericAsk(int(binary.NativeEndian.Uint16(id)), command, attr)
}

// genericAsk is genericRequest for a family that is known by its number.
func genericAsk(family int, command uint8, attr *nl.RtAttr) (attributes, error) {
	req := nl.NewNetlinkRequest(family, 0)
	req.AddData(genericHeader{command, 1})
	req.AddData(attr)
	answers, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return nil, err
	}
	if len(answers) != 1 || len(answers[0]) < nl.SizeofGenlmsg {
		return nil, errors.New("the netlink answer is malformed")
	}
	return parseAttributes(answers[0][nl.SizeofGenlmsg:])
}

// parseAttributes reads attributes that follow each other.
func parseAttributes(b []byte) (attributes, error) {
	parsed, err := nl.ParseRouteAttr(b)
	if err != nil {
		return nil, err
	}
	attrs := attributes{}
	for _, p := range parsed {
		attrs[p.Attr.Type&netlinkAttrTypeMask] = p.Value
	}
	return attrs, nil
}
