package rma_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cilium/ebpf/link"

	"github.com/xdprma/xdprma/internal/lab/foreign"
	"github.com/xdprma/xdprma/internal/lab/logs"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/userspace"
)

// strangers are programs of others that a rank finds on its interface.
var strangers = []struct {
	name  string
	parts []string
	mode  link.XDPAttachFlags
	says  string
}{
	{"stranger", nil, link.XDPDriverMode, `\"stranger\" in native mode `},
	{"cil_xdp_entry", nil, link.XDPGenericMode, `\"cil_xdp_entry\" in generic mode (of Cilium) `},
	{"xdp_dispatcher", nil, link.XDPGenericMode, `\"xdp_dispatcher\" in generic mode (libxdp's dispatcher; programs in it: 0) `},
	{"xdp_dispatcher", []string{"filter", "balancer"}, link.XDPDriverMode,
		`\"xdp_dispatcher\" in native mode (libxdp's dispatcher; programs in it: 2, \"filter\", \"balancer\") `},
}

// TestAutoGivesWayToOtherPrograms has a rank join where another program is on its interface. It says
// so in one line, takes UDP and works, and the program goes on.
func TestAutoGivesWayToOtherPrograms(t *testing.T) {
	for _, o := range strangers {
		t.Run(fmt.Sprint(o.name, len(o.parts)), func(t *testing.T) {
			lab := newLab(t, 2)
			program := attachedAt(t, lab, o.name, o.parts, o.mode)
			var log logs.Log
			j := joined(t, placesIn(t, lab, userspace.Auto), lab.Do, rma.Config{Logger: log.Logger()})
			if mode := j.nodes[1].Mode(); mode != "udp" {
				t.Errorf("mode %s", mode)
			}
			if n := log.Lines("level=WARN"); n != 1 || log.Lines("another XDP program is on the interface and stays there: this rank does without XDP", "using=udp", "interface=xr1",
				o.says, "an interface of its own") != 1 {
				t.Errorf("%d warnings, want one with %s:\n%s", n, o.says, log.String())
			}
			worksBeside(t, j, lab, program)
		})
	}
}

// TestMacvlanBesideOtherPrograms has a rank join over XDP on a macvlan above an interface that has
// another program, which gets the rank's frames before it.
func TestMacvlanBesideOtherPrograms(t *testing.T) {
	for _, o := range strangers {
		t.Run(fmt.Sprint(o.name, len(o.parts)), func(t *testing.T) {
			lab := newLab(t, 2)
			program := attachedAt(t, lab, o.name, o.parts, o.mode)
			places := placesIn(t, lab, userspace.Auto)
			places[1].Interface, places[1].Address = "xrm", netip.MustParseAddr("10.77.0.20")
			if err := lab.Do(1, func() (err error) {
				for _, command := range []string{
					"link add xrm link xr1 type macvlan mode bridge",
					"address add 10.77.0.20/24 dev xrm",
					"link set xrm up",
					"route replace 10.77.0.0/24 dev xrm src 10.77.0.20",
				} {
					out, failed := exec.Command("ip", strings.Fields(command)...).CombinedOutput()
					if failed != nil {
						err = errors.Join(err, fmt.Errorf("ip %s: %w: %s", command, failed, out))
					}
				}
				// Or it would answer for the macvlan's address, with its own.
				return errors.Join(err, os.WriteFile("/proc/sys/net/ipv4/conf/xr1/arp_ignore", []byte("1"), 0))
			}); err != nil {
				t.Fatal(err)
			}
			j := joined(t, places, lab.Do, rma.Config{})
			if mode := j.nodes[1].Mode(); mode != "xdp-generic" {
				t.Errorf("mode %s", mode)
			}
			worksBeside(t, j, lab, program)
			if device := j.nodes[1].Stats().Device; device.RxFrames == 0 {
				t.Errorf("no frames came by the socket: %+v", device)
			}
		})
	}
}

// attachedAt puts a program on the interface of rank 1, until the end of the test.
func attachedAt(t *testing.T, lab *netlab.Lab, name string, parts []string, mode link.XDPAttachFlags) *foreign.Program {
	t.Helper()
	if parts != nil {
		testenv.NeedsFeature(t, testenv.Replacement)
	}
	program, err := foreign.New(name, parts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	if err := lab.Do(1, func() error {
		nic, err := net.InterfaceByName(lab.Interface(1))
		if err != nil {
			return err
		}
		theirs, err := link.AttachXDP(link.XDPOptions{Program: program.Program, Interface: nic.Index, Flags: mode})
		if err == nil {
			t.Cleanup(func() { _ = theirs.Close() })
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return program
}

// worksBeside has rank 0 count at rank 1, whose interface has the program: it gets the frames of
// that, and is still there.
func worksBeside(t *testing.T, j *job, lab *netlab.Lab, program *foreign.Program) {
	t.Helper()
	const rounds = 20
	before, err := program.Frames()
	j.must(err)
	wins := j.windows(64, 8)
	j.each(func(n *rma.Node) error {
		w := rma.View[int64](wins[n.Rank()])
		err := w.LockAll(j.ctx)
		for range rounds {
			_, failed := w.Fetch(j.ctx, 1, 1-n.Rank(), rma.At(0), rma.Sum)
			err = errors.Join(err, failed)
		}
		counted, failed := w.Load(j.ctx, 1-n.Rank(), rma.At(0))
		if counted != rounds {
			t.Errorf("rank %d counted %d, want %d", n.Rank(), counted, rounds)
		}
		return errors.Join(err, failed, w.UnlockAll(j.ctx), n.World().Barrier(j.ctx))
	})
	freeAll(j, wins)
	info, err := program.Info()
	j.must(err)
	if after, err := program.Frames(); err != nil || after < before+rounds {
		t.Errorf("the program had %d frames, and then %d: %v", before, after, err)
	}
	id, _ := info.ID()
	j.must(lab.Do(1, func() error {
		f, err := loader.Probe(lab.Interface(1))
		if err == nil && (f.Program == nil || f.Program.ID != uint32(id)) {
			err = fmt.Errorf("on the interface is %v, want program %d", f.Program, id)
		}
		return err
	}))
}
