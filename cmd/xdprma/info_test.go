package main

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/loader"
)

func TestModeIsTheBestThatWorks(t *testing.T) {
	all := loader.Caps{NetRaw: true, NetAdmin: true, BPF: true, IPCLock: true}
	refused := all
	refused.BPFError = errors.New("locked down")
	driver := func(features ...string) loader.Features {
		return loader.Features{Driver: "drv", XDP: loader.FeatureSet{Known: true, Names: features}}
	}
	modest, poor := all, all
	modest.IPCLock, modest.MemLock = false, 8<<20
	poor.IPCLock, poor.MemLock = false, 64<<10
	taken := driver("basic", "redirect")
	bond := driver("basic", "redirect", "xsk-zerocopy")
	bond.Kind = "bond"
	veth := driver("basic", "redirect", "rx-sg")
	veth.Kind = "veth"
	taken.Program = &loader.ProgramInfo{ID: 5, Name: "lb"}
	for name, test := range map[string]struct {
		loopback     bool
		caps         loader.Caps
		features     loader.Features
		mode, reason string
	}{
		"short frames":     {caps: all, features: loader.Features{Interface: "nic", MTU: 1000}, mode: "none", reason: "its MTU is 1000, and a rank at it cannot join below 1260, with an address of IPv6 below 1280: raise it (ip link set nic mtu"},
		"no capabilities":  {caps: loader.Caps{}, features: driver("basic", "redirect"), mode: "udp", reason: "CAP_BPF"},
		"no BPF":           {caps: refused, features: driver("basic", "redirect"), mode: "udp", reason: "locked down"},
		"program there":    {caps: all, features: taken, mode: "udp", reason: `5 "lb"`},
		"loopback":         {loopback: true, caps: all, features: driver(), mode: "udp", reason: "loopback"},
		"loopback, nobody": {loopback: true, features: driver(), mode: "udp", reason: "loopback"},
		"little memory":    {caps: poor, features: driver("basic", "redirect"), mode: "udp", reason: "ulimit -l"},
		"enough memory":    {caps: modest, features: driver("basic", "redirect"), mode: "xdp-native", reason: "no zero-copy"},
		"unknown":          {caps: all, features: loader.Features{}, mode: "xdp", reason: "does not say"},
		"no XDP":           {caps: all, features: driver(), mode: "xdp-generic", reason: "drv"},
		"no redirect":      {caps: all, features: driver("basic"), mode: "xdp-generic", reason: "cannot redirect"},
		"bond":             {caps: all, features: bond, mode: "xdp-generic", reason: "reaches no socket"},
		"veth":             {caps: all, features: veth, mode: "xdp-generic", reason: "nothing of the far end"},
		"veth, old kernel": {caps: all, features: loader.Features{Kind: "veth"}, mode: "xdp-generic", reason: "nothing of the far end"},
		"no zero-copy":     {caps: all, features: driver("basic", "redirect", "rx-sg"), mode: "xdp-native", reason: "no zero-copy"},
		"copy first":       {caps: all, features: loader.Features{Driver: "virtio_net", XDP: driver("basic", "redirect", "xsk-zerocopy").XDP}, mode: "xdp-native", reason: "virtio_net drops the answers of an XDP program that executes requests; XDPRMA_EXPRESS=off"},
		"zero-copy":        {caps: all, features: driver("basic", "redirect", "xsk-zerocopy"), mode: "xdp-native-zerocopy", reason: "zero-copy"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.features.MTU == 0 {
				test.features.MTU = 1500
			}
			mode, reason := choose(test.loopback, test.caps, test.features)
			if mode != test.mode || !strings.Contains(reason, test.reason) {
				t.Errorf("got %s: %s", mode, reason)
			}
		})
	}
}

func TestInterfaceThatIsDown(t *testing.T) {
	const advice = "ip link set nic up"
	for _, up := range []bool{false, true} {
		link := &netlink.LinkAttrs{Name: "nic"}
		if up {
			link.RawFlags = unix.IFF_UP
		}
		if p := describe(link, loader.Caps{}, loader.Features{}); strings.Contains(p.Reason, advice) == up {
			t.Errorf("up is %v: got %s", up, p.Reason)
		}
	}
}

func TestInfoSaysTheSecurity(t *testing.T) {
	for _, c := range []struct {
		place bootstrap.Config
		err   error
		want  string
	}{
		{bootstrap.Config{}, nil, "nothing is authenticated"},
		{bootstrap.Config{Key: &secure.Key{}, KeyFile: "job.key"}, nil, "auto, with the job key of job.key"},
		{bootstrap.Config{Key: &secure.Key{}, Security: "sign"}, nil, "sign, with the job key of XDPRMA_KEY"},
		{bootstrap.Config{}, errors.New("too many readers"), "unknown: too many readers"},
	} {
		if got := securityOf(&c.place, c.err); !strings.Contains(got, c.want) {
			t.Errorf("%q, want %q in it", got, c.want)
		}
	}
}

func TestReadHugePages(t *testing.T) {
	var m machine
	m.readHugePages(strings.NewReader("MemTotal: 1 kB\nHugePages_Total:      12\nHugePages_Free: 7\nHugePages_Rsvd: x\nHugepagesize:       2048 kB\n\nodd\n"))
	if m.HugePagesTotal != 12 || m.HugePagesFree != 7 || m.HugePageBytes != 2<<20 {
		t.Errorf("got %+v", m)
	}
}

func TestInfo(t *testing.T) {
	for _, asNobody := range []bool{false, true} {
		for _, args := range [][]string{{"info"}, {"info", "--json"}} {
			c := command(t, args...)
			if asNobody {
				nobody(c)
			}
			if s := c.run(t); s != 0 || c.stderr.Len() > 0 {
				t.Fatalf("status %d: %s", s, &c.stderr)
			}
			if len(args) == 1 {
				if !strings.Contains(c.stdout.String(), "\nlo: ") {
					t.Errorf("got %s", &c.stdout)
				}
				continue
			}
			var m machine
			if err := json.Unmarshal(c.stdout.Bytes(), &m); err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(m.Interfaces, func(p port) bool { return p.Name == "lo" })
			if m.Kernel == "" || i < 0 || m.Interfaces[i].Mode != "udp" || m.Interfaces[i].Express || m.Interfaces[i].ExpressNote == "" {
				t.Errorf("got %+v", m)
			}
			if asNobody && (m.RunInNamespaces || m.Capabilities["CAP_BPF"] || m.RunInNamespacesNote == "") {
				t.Errorf("without privileges: %+v", m)
			}
		}
	}
	c := command(t, "info", "lo")
	if s := c.run(t); s != 0 || strings.Count(c.stdout.String(), ", kind ") != 1 || !strings.Contains(c.stdout.String(), "addresses     127.0.0.1/8") {
		t.Errorf("of lo: status %d: %s%s", s, &c.stdout, &c.stderr)
	}
	c = command(t, "info", "nowhere0")
	if s := c.run(t); s != statusUsage || !strings.Contains(c.stderr.String(), "nowhere0") {
		t.Errorf("of an interface that is not there: status %d: %s", s, &c.stderr)
	}
}

// The program in native mode of a rank at the far end has the kernel cut joined frames.
func TestInfoSaysWhetherJoinedFramesStayWhole(t *testing.T) {
	testenv.NeedsRoot(t)
	for _, native := range []bool{false, true} {
		lab := labtest.New(t, netlab.Config{Ranks: 2})
		mode := map[bool]loader.Mode{true: loader.Native, false: loader.Generic}[native]
		if err := lab.Do(1, func() error {
			p, err := loader.Attach(loader.Options{Interface: "xr1", Address: lab.Addr(1), Port: 4000, Mode: mode})
			if err == nil {
				t.Cleanup(func() { p.Close() })
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		var m *machine
		if err := lab.Do(0, func() (err error) {
			m, err = inspect(t.Context(), []string{"xr0"})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := m.print(&text); err != nil {
			t.Fatal(err)
		}
		want := map[bool]string{false: "joined frames yes: ", true: "joined frames no: "}[native]
		if p := m.Interfaces[0]; p.UDPSegmentation == nil || *p.UDPSegmentation == native || !strings.Contains(text.String(), want) {
			t.Errorf("the far end in native mode: %v; got %+v\n%s", native, p, &text)
		}
	}
}

func TestInfoWithinRank(t *testing.T) {
	testenv.NeedsRoot(t)
	c := command(t, "run", "-n", "2", "--queues", "3", "--mtu", "3000", "--", binary, "info")
	if s := c.run(t); s != 0 || !strings.Contains(c.stdout.String(), "[1] xr1: up, kind veth, driver veth, MTU 3000, queues 3 rx 3 tx\n") ||
		!strings.Contains(c.stdout.String(), "[1]   mode          xdp-generic: on veth") ||
		!strings.Contains(c.stdout.String(), "[1]   XDP executes  yes: small requests, whatever the other end of this veth has") ||
		!strings.Contains(c.stdout.String(), "[1]   joined frames yes: ") {
		t.Errorf("status %d: %s%s", s, &c.stdout, &c.stderr)
	}
}

// The ports of the bridge between ranks have programs in native mode where a rank asks for
// native mode, and not where it comes to generic mode by itself.
func TestRunLeavesUDPSegmentationOn(t *testing.T) {
	testenv.NeedsRoot(t)
	for list, want := range map[string]string{"auto,xdp,udp": "yes: ", "auto,xdp-generic,xdp-native": "no: "} {
		c := command(t, "run", "-n", "3", "--transports", list, "--", binary, "info")
		if s := c.run(t); s != 0 || strings.Count(c.stdout.String(), "  joined frames "+want) != 3 {
			t.Errorf("%s: status %d: %s%s", list, s, &c.stdout, &c.stderr)
		}
	}
}

// Where an agent serves ranks, info says so, and the agent whom it serves.
func TestInfoBesideAnAgent(t *testing.T) {
	testenv.NeedsRoot(t)
	c := command(t, "run", "-n", "2", "--ranks-per-host", "2", "--", binary, "info")
	if s := c.run(t); s != 0 || !strings.Contains(c.stdout.String(), ": an agent serves the ranks of this interface\n") ||
		!regexp.MustCompile(`\[1\]   mode +shared-(tcx|generic): `).MatchString(c.stdout.String()) ||
		!regexp.MustCompile(`\[1\] agent +/.*: it serves 0 ranks\n`).MatchString(c.stdout.String()) {
		t.Errorf("status %d: %s%s", s, &c.stdout, &c.stderr)
	}
	c = command(t, "run", "-n", "2", "--ranks-per-host", "2", "--", "sh", "-c", binary+` agent --status --socket "$XDPRMA_AGENT"; `+binary+` agent --status --json --socket "$XDPRMA_AGENT"`)
	if s := c.run(t); s != 0 || strings.Count(c.stdout.String(), "USER  NETWORK NAMESPACE  MEMORY  INTERFACE  ADDRESS  MODE  EXECUTED") != 2 {
		t.Errorf("status %d: %s%s", s, &c.stdout, &c.stderr)
	}
	c = command(t, "agent", "--status", "--socket", filepath.Join(t.TempDir(), "none"))
	if s := c.run(t); s != statusFailed || !strings.Contains(c.stderr.String(), "reach the agent at ") {
		t.Errorf("status %d: %s%s", s, &c.stdout, &c.stderr)
	}
}
