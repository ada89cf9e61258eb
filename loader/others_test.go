package loader

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/foreign"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/wire"
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
			for _, err := range []error{errEarly, late.attach(before, nil)} {
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

// dispatcherWithPlace puts a dispatcher on interface b, pinned as by libxdp where this thread alone
// sees it, with a program and a place for the classifier.
func (l *lab) dispatcherWithPlace(t *testing.T, mode link.XDPAttachFlags) *foreign.Program {
	t.Helper()
	testenv.NeedsFeature(t, testenv.Replacement)
	mounts, err := os.Open("/proc/thread-self/ns/mnt")
	must(t, err)
	dir := t.TempDir()
	must(t, unix.Unshare(unix.CLONE_NEWNS))
	t.Cleanup(func() {
		must(t, unix.Setns(int(mounts.Fd()), unix.CLONE_NEWNS)) // the mount goes with its namespace
		must(t, mounts.Close())
	})
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must(t, unix.Mount("bpf", dir, "bpf", 0, ""))
	t.Setenv("LIBXDP_BPFFS", dir)

	d, err := foreign.New(dispatcher, "filter", placeholder)
	must(t, err)
	t.Cleanup(func() { d.Close() })
	info, err := d.Info()
	must(t, err)
	id, _ := info.ID()
	l.inB(t, func() {
		nic, err := net.InterfaceByName("b")
		must(t, err)
		must(t, d.Pin(filepath.Join(dispatchers(), fmt.Sprintf("dispatch-%d-%d", nic.Index, id))))
		detach := attachForeign(t, d, mode)
		t.Cleanup(detach)
	})
	return d
}

// The classifier takes the place that a dispatcher keeps for it, in each mode, and leaves it free,
// as often as it comes. Nobody else has it meanwhile.
func TestPlaceInDispatcher(t *testing.T) {
	for mode, flags := range map[Mode]link.XDPAttachFlags{Native: link.XDPDriverMode, Generic: link.XDPGenericMode} {
		t.Run(mode.String(), func(t *testing.T) {
			l := newLab(t, shape{})
			d := l.dispatcherWithPlace(t, flags)
			for range 2 {
				p := l.attach(t, Options{Mode: mode})
				const with = `programs in it: 2, "filter", "` + programOfOurs + `"`
				if now := l.attached(t); now == nil || now.Name != dispatcher || !strings.Contains(now.Of, with) {
					t.Errorf("attached: %v, want %s", now, with)
				}
				hello := make([]byte, wire.HeaderLen)
				(&wire.Header{Kind: wire.KindHello}).Encode(hello)
				l.send(t, port, hello)
				testenv.Await(t, "the counter", func() bool {
					c, err := p.Counters()
					must(t, err)
					return c["no_socket"] == 1
				})
				l.ping(t)
				if err := p.CanAttachAgain(); !errors.Is(err, errDispatcher) {
					t.Errorf("it can be attached again: %v", err)
				}
				l.inB(t, func() {
					var used *InUseError
					if _, err := Attach(Options{Interface: "b", Address: at, Port: port, Mode: mode}); !errors.As(err, &used) || !strings.Contains(err.Error(), with) {
						t.Errorf("a second one: %v", err)
					}
				})
				must(t, p.Close())
				if now := l.attached(t); now == nil || !strings.HasSuffix(now.Of, `programs in it: 1, "filter"`) {
					t.Errorf("after Close: %v", now)
				}
				before, err := d.Frames()
				must(t, err)
				l.ping(t)
				if after, err := d.Frames(); err != nil || after <= before {
					t.Errorf("the dispatcher has had %d frames, and then %d: %v", before, after, err)
				}
			}
			l.inB(t, func() {
				const advice = "use the transport xdp-"
				if _, err := Attach(Options{Interface: "b", Address: at, Port: port, Mode: 1 - mode}); err == nil || !strings.Contains(err.Error(), advice+mode.String()) {
					t.Errorf("in the other mode: %v, want %q", err, advice)
				}
			})
		})
	}
}

// A killed process leaves its place free.
func TestKilledProcessLeavesItsPlace(t *testing.T) {
	l := newLab(t, shape{})
	l.dispatcherWithPlace(t, link.XDPDriverMode)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"=b")
	stdin, err := child.StdinPipe()
	must(t, err)
	defer stdin.Close()
	stdout, err := child.StdoutPipe()
	must(t, err)
	l.inB(t, func() { must(t, child.Start()) })
	out := bufio.NewScanner(stdout)
	for out.Scan() && out.Text() != "attached" {
		if !strings.HasPrefix(out.Text(), "chunk ") {
			t.Errorf("child: %s", out.Text())
		}
	}
	if now := l.attached(t); now == nil || !strings.Contains(now.Of, programOfOurs) {
		t.Errorf("attached: %v", now)
	}
	must(t, child.Process.Kill())
	_ = child.Wait() // it says that it was killed
	testenv.Await(t, "the place", func() bool { return !strings.Contains(l.attached(t).Of, programOfOurs) })
	l.ping(t)
	l.attach(t, Options{})
	l.ping(t)
}
