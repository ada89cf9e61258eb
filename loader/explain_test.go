package loader

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/mpierr"
)

func TestExplain(t *testing.T) {
	all := Caps{NetRaw: true, NetAdmin: true, BPF: true, Kernel: "6.6.1"}
	nic := failure{ifname: "eth0", driver: "tg3", mtu: 1500, rxQueues: 4, mode: Native, caps: all}
	poor, jumbo, nameless := nic, nic, nic
	poor.caps.BPF = false
	jumbo.mtu = 9000
	nameless.driver = ""
	tests := []struct {
		err   error
		f     failure
		class mpierr.Class
		want  string
	}{
		{netlink.LinkNotFoundError{}, nic, mpierr.Arg, `no interface "eth0"`},
		{unix.ENODEV, nic, mpierr.Arg, `no interface "eth0"`},
		{unix.EPERM, poor, mpierr.Unsupported, "missing CAP_BPF: run as root, grant cap_bpf,cap_net_admin,cap_net_raw, or use the UDP transport"},
		{unix.EACCES, poor, mpierr.Unsupported, "missing CAP_BPF"},
		{unix.EPERM, nic, mpierr.Unsupported, "user namespace"},
		{unix.EMFILE, nic, mpierr.Unsupported, "raise the limit, ulimit -n, now "},
		{unix.ENFILE, nic, mpierr.Unsupported, "raise the limit, sysctl fs.file-max"},
		{unix.ENOSYS, nic, mpierr.Unsupported, "kernel 6.6.1 has no BPF"},
		{ebpf.ErrNotSupported, nic, mpierr.Unsupported, "too old"},
		{unix.ENOMEM, nic, mpierr.NoMem, "no memory"},
		{unix.ENOSPC, nic, mpierr.Unsupported, "has 4 receive queues"},
		{unix.ERANGE, nic, mpierr.Unsupported, "the MTU of interface eth0 (1500)"},
		{unix.EINVAL, jumbo, mpierr.Unsupported, "the MTU of interface eth0 (9000)"},
		{unix.EINVAL, nic, mpierr.Unsupported, "driver tg3 of interface eth0 refuses native mode"},
		{unix.EOPNOTSUPP, jumbo, mpierr.Unsupported, "driver tg3 of interface eth0 refuses native mode"},
		{unix.EOPNOTSUPP, nameless, mpierr.Unsupported, "driver (unknown)"},
		{unix.EIO, nic, mpierr.Unsupported, "interface eth0: attach: input/output error"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.err, tt.f.mtu), func(t *testing.T) {
			cause := fmt.Errorf("attach: %w", tt.err)
			got := explain("attach", cause, tt.f)
			if !strings.Contains(got.Error(), tt.want) || mpierr.ClassOf(got) != tt.class || !errors.Is(got, cause) {
				t.Errorf("class %v: %v", mpierr.ClassOf(got), got)
			}
		})
	}
}

func TestInUseError(t *testing.T) {
	for _, tt := range []struct {
		p       ProgramInfo
		process string
		want    string
	}{
		{ProgramInfo{ID: 7, Name: "katran"}, "", `interface eth0 already has XDP program 7 "katran"; stop what attached it`},
		{ProgramInfo{ID: 7, Name: "katran", Mode: "native"}, "12 (lb)", `program 7 "katran" in native mode of process 12 (lb); stop what attached it, or give this rank an interface of its own`},
		{ProgramInfo{ID: 7, Name: "cil_xdp_entry", Mode: "native", Of: "of Cilium"}, "", `"cil_xdp_entry" in native mode (of Cilium); Cilium attaches it again when it is gone: give this rank`},
		{ProgramInfo{ID: 7, Name: dispatcher, Mode: "generic", Of: dispatcherOf([]string{"filter", "lb"})}, "",
			`"xdp_dispatcher" in generic mode (libxdp's dispatcher; programs in it: 2, "filter", "lb"); ` + "have it keep a place for a rank"},
		{ProgramInfo{ID: 7, Name: dispatcher, Of: dispatcherOf(nil)}, "", `(libxdp's dispatcher; programs in it: 0);`},
		{ProgramInfo{ID: 7, Name: "one", Mode: "several modes"}, "", `7 "one" and others, one in each of several modes; stop`},
		{ProgramInfo{ID: 7, Name: programOfOurs}, "12 (hello)", `"xdprma_classify" of process 12 (hello); an interface serves one rank over XDP, which is another one: ` +
			"give this rank another interface, or the UDP transport at any port (XDPRMA_TRANSPORT=udp with XDPRMA_PORT=0)"},
		{ProgramInfo{ID: 7}, "", "XDP program 7 (name unknown)"},
	} {
		if got := (&InUseError{"eth0", tt.p, tt.process}).Error(); !strings.Contains(got, tt.want) {
			t.Errorf("%s", got)
		}
	}
}

// The BPF library's names of its own parts, and its advice to programmers, do not reach operators.
func TestErrorsSpeakToOperators(t *testing.T) {
	const field = "assign values: field XdprmaClassify: program xdprma_classify: "
	for text, want := range map[string]string{
		field + "map config_map: map create: %w (MEMLOCK may be too low, consider rlimit.RemoveMemlock)": "the kernel does not make the map config_map of the XDP program xdprma_classify: operation not permitted",
		field + "load program: %w (MEMLOCK may be too low, consider rlimit.RemoveMemlock)":               "the kernel does not load the XDP program xdprma_classify: operation not permitted",
		"map create: %w": "map create: operation not permitted",
	} {
		got := explain("attach", fmt.Errorf(text, unix.EPERM), failure{ifname: "eth0"})
		advice := "missing CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW: run as root, grant cap_bpf,cap_net_admin,cap_net_raw, or use the UDP transport: "
		if !errors.Is(got, unix.EPERM) || got.Error() != "attach: unsupported: "+advice+want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// A refusal by the verifier names the line of its log that says why, and no privilege that
// is missing.
func TestRefusalIsNamed(t *testing.T) {
	const access, register = "invalid access to map value, value_size=1280 off=64 size=0", "R3 min value is outside of the allowed memory range"
	caps := Caps{NetRaw: true, NetAdmin: true, BPF: true, Kernel: "6.1.0"}
	end := []string{"verification time 1200 usec", "stack depth 64+0+32", "subprog 0 (<unknown>) main insns_self 1 insns_total 1 stack 0", "processed 46044 insns (limit 1000000) max_states_per_insn 4 total_states 2 peak_states 2 mark_read 1"}
	for want, log := range map[string][]string{
		access + ": " + register: slices.Concat([]string{"57: (85) call bpf_xdp_store_bytes#190", access, register}, end),
		register:                 {register, ""},
		"BPF program is too large. Processed 1000001 insn": slices.Concat([]string{"from 9 to 10: R0=0", "BPF program is too large. Processed 1000001 insn"}, end),
		"": end,
	} {
		err := fmt.Errorf("load: %w", &ebpf.VerifierError{Cause: unix.EACCES, Log: log})
		if got := refusal(err); got != want {
			t.Errorf("refused because of %q, want %q", got, want)
		}
		says := []string{"kernel 6.1.0", "the kernel's verifier refuses the program: " + want}
		if want == "" {
			says = []string{"user namespace", "permission denied"}
		}
		got := explain("attach", err, failure{ifname: "eth0", caps: caps})
		for _, text := range says {
			if !strings.Contains(got.Error(), text) || !errors.Is(got, unix.EACCES) {
				t.Errorf("no %q in %v", text, got)
			}
		}
	}
	if why := refusal(unix.EACCES); why != "" {
		t.Errorf("a missing privilege is taken for a refusal: %s", why)
	}
}

// The reason why requests are not executed in a dispatcher names the libxdp that helps.
func TestOldDispatcherIsNamed(t *testing.T) {
	err := &ebpf.VerifierError{Cause: unix.EINVAL, Log: []string{"Extension program changes packet data, while original does not", "processed 0 insns"}}
	if got := whyNoTier(err).Error(); !strings.Contains(got, "libxdp before 1.5.5") || !strings.Contains(got, err.Log[0]) {
		t.Error(got)
	}
}

func TestOptions(t *testing.T) {
	good := Options{Interface: "eth0", Address: netip.MustParseAddr("10.8.0.2"), Port: 4791}
	o, err := good.withDefaults()
	if err != nil || o.Queues != 1 || o.HelloRate != 1000 || o.HelloBurst != 1024 || o.Logger == nil {
		t.Errorf("defaults %+v, %v", o, err)
	}
	if c := o.hellos(); c.HelloInterval != 1e6 || c.HelloBurst != 1024e6 {
		t.Errorf("limits %+v", c)
	}
	if c := o.config(); c.Ports.Base != 4791 || c.Ports.Count != 1 || addressOf(c.Address) != good.Address {
		t.Errorf("config %+v", c)
	}
	keyed := good
	keyed.HelloKey = &[16]byte{0: 1, 15: 2}
	if keyed, err = keyed.withDefaults(); err != nil {
		t.Fatal(err)
	}
	if c := keyed.hellos(); c.Keyed != 1 || c.HelloKey != [2]uint64{1, 2 << 56} || c.HelloInterval != 5e4 || c.HelloBurst != 8192*5e4 || c.ValueInterval != 1e8 || c.ValueBurst != 8e8 {
		t.Errorf("config with a key %+v", c)
	}
	if c := o.hellos(); c.Keyed != 0 || c.HelloKey != [2]uint64{} {
		t.Errorf("config without one %+v", c)
	}
	for name, change := range map[string]func(*Options){
		"no interface":    func(o *Options) { o.Interface = "" },
		"no address":      func(o *Options) { o.Address = netip.Addr{} },
		"any address":     func(o *Options) { o.Address = netip.IPv6Unspecified() },
		"a group":         func(o *Options) { o.Address = netip.MustParseAddr("224.0.0.1") },
		"port 0":          func(o *Options) { o.Port = 0 },
		"negative queues": func(o *Options) { o.Queues = -1 },
		"queues":          func(o *Options) { o.Queues = 1<<16 + 1 },
		"mode":            func(o *Options) { o.Mode = 3 },
		"negative rate":   func(o *Options) { o.HelloRate = -1 },
		"rate":            func(o *Options) { o.HelloRate = 1e9 + 1 },
		"longest":         func(o *Options) { o.Longest = 1 << 16 },
		"negative burst":  func(o *Options) { o.HelloBurst = -1 },
		"burst":           func(o *Options) { o.HelloBurst = 1<<20 + 1 },
	} {
		bad := good
		change(&bad)
		if _, err := bad.withDefaults(); mpierr.ClassOf(err) != mpierr.Arg {
			t.Errorf("%s: %v", name, err)
		}
	}
	for in, want := range map[string]string{"::ffff:10.8.0.2": "10.8.0.2", "fe80::1%eth0": "fe80::1", "fd77::2": "fd77::2"} {
		o := good
		o.Address = netip.MustParseAddr(in)
		o, err := o.withDefaults()
		if got := addressOf(o.config().Address); err != nil || got.String() != want {
			t.Errorf("the program is told %v of %s, want %s: %v", got, in, want, err)
		}
	}
	last := Options{Interface: "eth0", Address: good.Address, Port: 65535, HelloRate: 1, HelloBurst: 1 << 20}
	if _, err := last.withDefaults(); err != nil {
		t.Errorf("the limits themselves: %v", err)
	}
}
