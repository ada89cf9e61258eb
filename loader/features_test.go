package loader

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/mpierr"
)

func TestProbe(t *testing.T) {
	l := newLab(t, shape{mtu: 1400, rxQueues: 3, peerTxQueues: 2})
	l.inB(t, func() {
		f, err := Probe("b")
		must(t, err)
		if f.Kind != "veth" || f.Driver != "veth" || f.MTU != 1400 || f.Index == 0 || f.Program != nil {
			t.Errorf("%+v", f)
		}
		if f.RxQueues != 3 || f.TxQueues != 1 {
			t.Errorf("queues %d and %d", f.RxQueues, f.TxQueues)
		}
		header := struct { // with the two bytes that the one of package nl lacks
			nl.Genlmsg
			_ [2]byte
		}{Genlmsg: nl.Genlmsg{Command: nl.GENL_CTRL_CMD_GETFAMILY, Version: nl.GENL_CTRL_VERSION}}
		req := nl.NewNetlinkRequest(nl.GENL_ID_CTRL, 0)
		req.AddData(&header.Genlmsg)
		req.AddData(nl.NewRtAttr(nl.GENL_CTRL_ATTR_FAMILY_NAME, nl.ZeroTerminated("netdev")))
		if _, err := req.Execute(unix.NETLINK_GENERIC, 0); (err == nil) != f.XDP.Known {
			t.Errorf("XDP features %v, although the kernel's netdev family: %v", f.XDP, err)
		}
		if f.XDP.Known && (!f.XDP.Has("redirect") || f.XDP.Has("xsk-zerocopy")) {
			t.Errorf("XDP features of a veth: %v", f.XDP)
		}
		lo, err := Probe("lo")
		must(t, err)
		if lo.Kind != "device" || lo.XDP.Known && lo.XDP.Has("basic") {
			t.Errorf("loopback: %+v", lo)
		}
		if _, err := Probe("absent"); mpierr.ClassOf(err) != mpierr.Arg {
			t.Errorf("absent interface: %v", err)
		}
	})
}

// A program in native mode turns the far end's UDP segmentation off, one in generic mode
// leaves it on.
func TestProbeSeesUDPSegmentation(t *testing.T) {
	for _, mode := range []Mode{Native, Generic} {
		l := newLab(t, shape{})
		segments := func() bool {
			var f Features
			l.in(t, l.a, func() {
				var err error
				f, err = Probe("a")
				must(t, err)
			})
			if !f.Offloads.Known {
				t.Error("the kernel does not say which offloads are on")
			}
			return f.Offloads.Has("tx-udp-segmentation")
		}
		if !segments() {
			t.Error("off without a program")
		}
		l.attach(t, Options{Mode: mode})
		if got := segments(); got != (mode == Generic) {
			t.Errorf("with a program in %v mode at the far end: %v", mode, got)
		}
	}
}

func TestFeatureSet(t *testing.T) {
	a := attributes{1: binary.NativeEndian.AppendUint64(nil, 1<<1|1<<9), 2: binary.NativeEndian.AppendUint64(nil, 0), 3: {1, 2}}
	names := []string{"one", "two"}
	for _, tt := range []struct {
		kind uint16
		want string
	}{{1, "two bit-9"}, {2, "none"}, {3, "unknown"}, {4, "unknown"}} {
		if got := a.set(tt.kind, names).String(); got != tt.want {
			t.Errorf("attribute %d: %q, want %q", tt.kind, got, tt.want)
		}
	}
}

func TestCapabilities(t *testing.T) {
	c, err := Capabilities()
	if err != nil || c.Kernel == "" {
		t.Fatalf("%+v, %v", c, err)
	}
	if got := (Caps{NetRaw: true}).Missing(); len(got) != 2 || got[0] != "CAP_BPF" || got[1] != "CAP_NET_ADMIN" {
		t.Errorf("missing %v", got)
	}
}

// Where a program in native mode would drop what it redirects, it is not attached.
func TestNativeOfNoUse(t *testing.T) {
	set := func(names ...string) FeatureSet { return FeatureSet{Known: true, Names: names} }
	for _, tt := range []struct {
		f   Features
		why error
	}{
		{Features{Kind: "bond", XDP: set("basic", "redirect")}, errBond},
		{Features{Kind: "device", XDP: set("basic")}, errNoRedirect},
		{Features{Kind: "veth", XDP: set("basic", "redirect")}, nil},
		{Features{Kind: "device"}, nil}, // the kernel does not say
	} {
		if got := tt.f.NoNative(); got != tt.why {
			t.Errorf("%+v: %v, want %v", tt.f, got, tt.why)
		}
		if tt.why == nil {
			continue
		}
		err := (&Program{mode: Native}).attach(tt.f, nil)
		if !errors.Is(err, mpierr.Unsupported) || !errors.Is(err, tt.why) || !strings.Contains(err.Error(), "use generic mode") {
			t.Errorf("%+v: attach: %v", tt.f, err)
		}
	}
}
