package loader

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/mpierr"
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
		p    ProgramInfo
		want string
	}{
		{ProgramInfo{7, "katran"}, `interface eth0 already has XDP program 7 "katran"; stop what attached it`},
		{ProgramInfo{7, programOfOurs}, "another process uses this interface"},
		{ProgramInfo{7, ""}, "XDP program 7 (name unknown)"},
	} {
		if got := (&InUseError{"eth0", tt.p}).Error(); !strings.Contains(got, tt.want) {
			t.Errorf("%s", got)
		}
	}
}

// The BPF library's advice to programmers does not reach operators.
func TestErrorsSpeakToOperators(t *testing.T) {
	err := fmt.Errorf("map create: %w (MEMLOCK may be too low, consider rlimit.RemoveMemlock)", unix.EPERM)
	got := explain("attach", err, failure{ifname: "eth0"})
	if !errors.Is(got, unix.EPERM) || strings.Contains(got.Error(), "rlimit") || !strings.Contains(got.Error(), "map create: operation not permitted") {
		t.Errorf("%v", got)
	}
}

func TestOptions(t *testing.T) {
	good := Options{Interface: "eth0", Port: 4791}
	o, err := good.withDefaults()
	if err != nil || o.Queues != 1 || o.HelloRate != 1000 || o.HelloBurst != 1024 || o.Logger == nil {
		t.Errorf("defaults %+v, %v", o, err)
	}
	if c := o.config(); c.HelloInterval != 1e6 || c.HelloBurst != 1024e6 || c.Ports.Base != 4791 || c.Ports.Count != 1 {
		t.Errorf("config %+v", c)
	}
	for name, change := range map[string]func(*Options){
		"no interface":    func(o *Options) { o.Interface = "" },
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
	last := Options{Interface: "eth0", Port: 65535, HelloRate: 1, HelloBurst: 1 << 20}
	if _, err := last.withDefaults(); err != nil {
		t.Errorf("the limits themselves: %v", err)
	}
}

func TestParseMode(t *testing.T) {
	for _, m := range []Mode{Auto, Native, Generic} {
		if got, err := ParseMode(m.String()); err != nil || got != m {
			t.Errorf("%v: %v, %v", m, got, err)
		}
	}
	if _, err := ParseMode("offload"); mpierr.ClassOf(err) != mpierr.Arg {
		t.Errorf("%v", err)
	}
}
