package loader

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/xdprma/xdprma/internal/lab/foreign"
	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// attachForeign, called in namespace b, puts a foreign program on its interface until the returned
// function is called.
func attachForeign(t *testing.T, p *foreign.Program, flags link.XDPAttachFlags) (detach func()) {
	t.Helper()
	nic, err := net.InterfaceByName("b")
	must(t, err)
	theirs, err := link.AttachXDP(link.XDPOptions{Program: p.Program, Interface: nic.Index, Flags: flags})
	must(t, err)
	return func() { must(t, theirs.Close()) }
}

// Another's program is named and stays, also if it came after our look.
func TestForeignProgram(t *testing.T) {
	l := newLab(t, shape{})
	for _, c := range []struct {
		name string
		mode link.XDPAttachFlags
		says string // after its name
	}{
		{"stranger", link.XDPDriverMode, " in native mode of process "},
		{"stranger", link.XDPGenericMode, " in generic mode of process "},
		{"cil_xdp_entry", link.XDPDriverMode, " in native mode (of Cilium) of process "},
		{"bpf_xdp_entry", link.XDPGenericMode, " in generic mode (of Cilium) of process "},
		{dispatcher, link.XDPGenericMode, " in generic mode (libxdp's dispatcher; programs in it: 0) of process "},
	} {
		stranger, err := foreign.New(c.name)
		must(t, err)
		l.inB(t, func() {
			o, err := Options{Interface: "b", Address: at, Port: port}.withDefaults()
			must(t, err)
			before, err := Probe("b")
			must(t, err)
			late, err := load(o)
			must(t, err)
			defer late.Close()

			defer attachForeign(t, stranger, c.mode)()
			_, errEarly := Attach(o)
			for _, err := range []error{errEarly, late.attach(before)} {
				var used *InUseError
				if !errors.As(err, &used) || used.Program.Name != c.name || !strings.Contains(err.Error(), `"`+c.name+`"`+c.says) {
					t.Errorf("error %v, want %q", err, c.says)
				}
			}
			if now, err := Probe("b"); err != nil || now.Program == nil || now.Program.Name != c.name {
				t.Errorf("now attached: %v, %v", now.Program, err)
			}
		})
		must(t, stranger.Close())
	}
}

// The programs in a dispatcher are named in their order, and it is unharmed.
func TestDispatcherNamesItsPrograms(t *testing.T) {
	l := newLab(t, shape{})
	testenv.NeedsFeature(t, testenv.Replacement)
	d, err := foreign.New(dispatcher, "filter", "balancer")
	must(t, err)
	defer d.Close()
	l.inB(t, func() {
		detach := attachForeign(t, d, link.XDPGenericMode)
		t.Cleanup(detach)
		_, err := Attach(Options{Interface: "b", Address: at, Port: port})
		const want = `"xdp_dispatcher" in generic mode (libxdp's dispatcher; programs in it: 2, "filter", "balancer") of process `
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	})
	before, err := d.Frames()
	must(t, err)
	l.ping(t)
	if after, err := d.Frames(); err != nil || after <= before {
		t.Errorf("the dispatcher has had %d frames, and then %d: %v", before, after, err)
	}
}

// A program of ours stays, too, when another tool attaches, by a link or without one.
func TestOursStays(t *testing.T) {
	l := newLab(t, shape{})
	stranger, err := foreign.New("stranger")
	must(t, err)
	defer stranger.Close()
	for _, mode := range []Mode{Native, Generic} {
		p := l.attach(t, Options{Mode: mode})
		id := l.attached(t).ID
		l.inB(t, func() {
			b, err := netlink.LinkByName("b")
			must(t, err)
			for _, flags := range []link.XDPAttachFlags{link.XDPDriverMode, link.XDPGenericMode} {
				if theirs, err := link.AttachXDP(link.XDPOptions{Program: stranger.Program, Interface: b.Attrs().Index, Flags: flags}); err == nil {
					theirs.Close()
					t.Errorf("ours in %v mode: another program is attached by a link with flags %v", mode, flags)
				}
				if err := netlink.LinkSetXdpFdWithFlags(b, stranger.FD(), int(flags)); err == nil {
					t.Errorf("ours in %v mode: another program is attached by netlink with flags %v", mode, flags)
				}
				_ = netlink.LinkSetXdpFdWithFlags(b, -1, int(flags)) // nil of the mode in which nothing is attached
			}
		})
		if now := l.attached(t); now == nil || now.ID != id || now.Mode != mode.String() {
			t.Errorf("attached: %v, want program %d in %v mode", now, id, mode)
		}
		l.ping(t)
		must(t, p.Close())
	}
}
