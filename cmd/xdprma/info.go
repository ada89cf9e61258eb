package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/urfave/cli/v3"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/device"
	"github.com/xdprma/xdprma/internal/device/agent"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/loader"
)

func infoCommand() *cli.Command {
	return &cli.Command{
		Name:        "info",
		Usage:       "say what this machine and its interfaces can do",
		ArgsUsage:   "[interface...]",
		Description: "Lists what the kernel, this process and each network interface, or those named,\ncan do, and the transport that --transport auto would choose on it. Changes nothing.",
		Flags:       []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print JSON"}},
		Action: func(ctx context.Context, c *cli.Command) error {
			m, err := inspect(ctx, c.Args().Slice())
			if err != nil {
				return err
			}
			if c.Bool("json") {
				e := json.NewEncoder(os.Stdout)
				e.SetIndent("", "  ")
				return e.Encode(m)
			}
			return m.print(os.Stdout)
		},
	}
}

// machine is what `xdprma info` reports. The names of its JSON form stay.
type machine struct {
	Version             string          `json:"version"`
	Kernel              string          `json:"kernel"`
	Architecture        string          `json:"architecture"`
	CPUs                int             `json:"cpus"`
	Capabilities        map[string]bool `json:"capabilities"`
	BPFError            string          `json:"bpf_error,omitempty"`
	MemlockBytes        *uint64         `json:"memlock_bytes"` // null: unlimited
	HugePagesFree       uint64          `json:"huge_pages_free"`
	HugePagesTotal      uint64          `json:"huge_pages_total"`
	HugePageBytes       uint64          `json:"huge_page_bytes"`
	Security            string          `json:"security"`          // of the ranks that this environment starts
	RunInNamespaces     bool            `json:"run_in_namespaces"` // whether `xdprma run` makes namespaces
	RunInNamespacesNote string          `json:"run_in_namespaces_note,omitempty"`
	Agent               string          `json:"agent"`      // the path of its socket; empty: none
	AgentNote           string          `json:"agent_note"` // how many ranks of this user it serves, or why it serves none
	Interfaces          []port          `json:"interfaces"`
}

// port is one network interface.
type port struct {
	Name             string   `json:"name"`
	State            string   `json:"state"`
	Kind             string   `json:"kind"`
	Driver           string   `json:"driver"`
	Addresses        []string `json:"addresses"`
	MTU              int      `json:"mtu"`
	RxQueues         int      `json:"rx_queues"`
	TxQueues         int      `json:"tx_queues"`
	XDPFeatures      []string `json:"xdp_features"` // null: unknown
	ZeroCopySegments int      `json:"zero_copy_segments"`
	Program          string   `json:"program,omitempty"` // XDP program that is attached already
	Mode             string   `json:"mode"`
	Reason           string   `json:"reason"`
	Express          bool     `json:"express"` // the XDP program executes small requests
	ExpressNote      string   `json:"express_note"`
	UDPSegmentation  *bool    `json:"udp_segmentation"` // joined frames leave whole; null: unknown
}

// inspect looks everything up, about the interfaces of these names, or all.
func inspect(ctx context.Context, names []string) (*machine, error) {
	caps, err := loader.Capabilities()
	if err != nil {
		return nil, err
	}
	m := &machine{
		Version: version(), Kernel: caps.Kernel, Architecture: runtime.GOARCH, CPUs: runtime.NumCPU(),
		Capabilities: map[string]bool{
			"CAP_NET_RAW": caps.NetRaw, "CAP_NET_ADMIN": caps.NetAdmin, "CAP_BPF": caps.BPF, "CAP_PERFMON": caps.Perfmon, "CAP_IPC_LOCK": caps.IPCLock,
			"CAP_SYS_ADMIN": caps.SysAdmin,
		},
		RunInNamespaces: true,
		Interfaces:      []port{},
	}
	if caps.BPFError != nil {
		m.BPFError = caps.BPFError.Error()
	}
	if caps.MemLock != math.MaxUint64 {
		m.MemlockBytes = &caps.MemLock
	}
	if err := netlab.Supported(); err != nil {
		m.RunInNamespaces, m.RunInNamespacesNote = false, err.Error()
	}
	if f, err := os.Open("/proc/meminfo"); err == nil {
		m.readHugePages(f)
		f.Close()
	}
	place, err := bootstrap.FromEnvironment()
	m.Security = securityOf(&place, err)
	m.askAgent(ctx, &device.Config{Config: place.Config})
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list the network interfaces: %w", err)
	}
	for _, name := range names {
		if !slices.ContainsFunc(links, func(l netlink.Link) bool { return l.Attrs().Name == name }) {
			return nil, usageError("there is no interface %q (`ip link` lists those there are)", name)
		}
	}
	for _, link := range links {
		if len(names) > 0 && !slices.Contains(names, link.Attrs().Name) {
			continue
		}
		f, err := loader.Probe(link.Attrs().Name)
		if err != nil { // it may have gone meanwhile
			m.Interfaces = append(m.Interfaces, port{Name: link.Attrs().Name, Mode: "udp", Reason: err.Error()})
			continue
		}
		p := describe(link.Attrs(), caps, f)
		p.Express, p.ExpressNote = canExecute(p)
		if addrs, err := netlink.AddrList(link, netlink.FAMILY_ALL); err == nil {
			for _, a := range addrs {
				p.Addresses = append(p.Addresses, a.IPNet.String())
			}
			p.askAgent(ctx, m.Agent, link.Attrs().Index, addrs)
		}
		m.Interfaces = append(m.Interfaces, p)
	}
	return m, nil
}

// askAgent looks for the agent that ranks of this environment would use.
func (m *machine) askAgent(ctx context.Context, place *device.Config) {
	path := place.AgentPath()
	if path == "" {
		m.AgentNote = "none: `xdprma agent`, which root starts, has the kernel execute small requests to all ranks of this host"
		return
	}
	ranks, err := agent.Status(ctx, path)
	if err != nil {
		m.AgentNote = err.Error()
		return
	}
	m.Agent, m.AgentNote = path, fmt.Sprintf("it serves %d ranks of this user", len(ranks))
	if os.Geteuid() == 0 {
		m.AgentNote = fmt.Sprintf("it serves %d ranks", len(ranks))
	}
}

// askAgent asks an agent, if there is one, whether it would serve a rank at the interface.
func (p *port) askAgent(ctx context.Context, path string, index int, addrs []netlink.Addr) {
	if path == "" || len(addrs) == 0 || addrs[0].IP.IsLoopback() || p.Mode == noMode {
		return
	}
	ip, _ := netip.AddrFromSlice(addrs[0].IP)
	mode, err := device.ProbeShared(ctx, path, ip.Unmap(), index)
	if err != nil {
		p.Reason += "; the agent does not serve a rank here: " + err.Error()
		return
	}
	p.Mode, p.Reason = mode, "an agent serves the ranks of this interface"
	p.Express, p.ExpressNote = true, "small requests"
}

// securityOf says how the ranks would be protected that an environment places, which could not be
// read for the reason err, unless that is nil.
func securityOf(place *bootstrap.Config, err error) string {
	switch {
	case err != nil:
		return "unknown: " + err.Error()
	case place.Key == nil:
		return "none, and nothing is authenticated: the environment names no job key (`xdprma key job.key` makes one, and " + bootstrap.EnvKeyFile +
			" names it); `xdprma run` makes one for each job"
	}
	return fmt.Sprintf("%s, with the job key of %s", cmp.Or(place.Security, bootstrap.Auto), cmp.Or(place.KeyFile, bootstrap.EnvKey))
}

// readHugePages reads the lines of /proc/meminfo that concern huge pages.
func (m *machine) readHugePages(r io.Reader) {
	for s := bufio.NewScanner(r); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) < 2 {
			continue
		}
		n, err := strconv.ParseUint(fields[1], 10, 64)
		if err != nil {
			continue
		}
		switch fields[0] {
		case "HugePages_Total:":
			m.HugePagesTotal = n
		case "HugePages_Free:":
			m.HugePagesFree = n
		case "Hugepagesize:":
			m.HugePageBytes = n << 10
		}
	}
}

func describe(link *netlink.LinkAttrs, caps loader.Caps, f loader.Features) port {
	p := port{
		Name: link.Name, State: link.OperState.String(), Kind: f.Kind, Driver: f.Driver, MTU: f.MTU,
		RxQueues: f.RxQueues, TxQueues: f.TxQueues, ZeroCopySegments: f.ZeroCopySegments,
	}
	if f.XDP.Known {
		p.XDPFeatures = append([]string{}, f.XDP.Names...)
	}
	if f.Offloads.Known {
		p.UDPSegmentation = new(f.Offloads.Has("tx-udp-segmentation"))
	}
	if f.Program != nil {
		p.Program = f.Program.String()
	}
	p.Mode, p.Reason = choose(link.RawFlags&unix.IFF_LOOPBACK != 0, caps, f)
	if link.RawFlags&unix.IFF_UP == 0 {
		p.Reason += "; it is down: set it up first (ip link set " + link.Name + " up)"
	}
	return p
}

// canExecute says whether the XDP program of an interface executes small requests itself.
func canExecute(p port) (can bool, note string) {
	switch p.Mode {
	case noMode:
		return false, "no rank can join at it"
	case "udp":
		return false, "without XDP the process executes all requests"
	}
	if err := loadExecutor(); err != nil {
		return false, "the kernel or this process cannot have the program: " + err.Error()
	}
	if p.Kind == "veth" {
		return true, "small requests, whatever the other end of this veth has; with the transport xdp-native, if it has an XDP program in native mode too"
	}
	return true, "small requests"
}

// loadExecutor tries the program once.
var loadExecutor = sync.OnceValue(loader.CanExecute)

// noMode is the mode of an interface at which no rank can join.
const noMode = "none"

// choose predicts how frames travel with the transport auto, and says why.
func choose(isLoopback bool, caps loader.Caps, f loader.Features) (mode, reason string) {
	memory := uint64(device.PacketMemory(f, 1))
	least := device.LeastMTU(netip.IPv4Unspecified())
	switch missing := caps.Missing(); {
	case f.MTU < least:
		return noMode, fmt.Sprintf("its MTU is %d, and a rank at it cannot join below %d, with an address of IPv6 below %d: raise it (ip link set %s mtu 1500)",
			f.MTU, least, device.LeastMTU(netip.IPv6Unspecified()), f.Interface)
	case isLoopback:
		return "udp", "it is the loopback interface"
	case len(missing) > 0:
		return "udp", "this process lacks " + strings.Join(missing, ", ") + ": run as root"
	case caps.BPFError != nil:
		return "udp", "the kernel refuses XDP programs or AF_XDP: " + caps.BPFError.Error()
	case !caps.IPCLock && caps.MemLock < memory:
		return "udp", fmt.Sprintf("this process may lock %d KiB of memory, and frames take %d: raise the limit (ulimit -l), or grant CAP_IPC_LOCK",
			caps.MemLock>>10, memory>>10)
	case f.Program != nil:
		if used := (*loader.InUseError)(nil); errors.As(f.Free(), &used) {
			return "udp", used.Error()
		}
		const place = "libxdp's dispatcher keeps a place for it"
		if f.Program.Mode == loader.Native.String() {
			mode, why := native(f)
			return mode, place + "; " + why
		}
		return "xdp-" + f.Program.Mode, place
	case f.NoNative() != nil:
		return "xdp-generic", f.NoNative().Error()
	case f.GenericFirst() != "":
		return "xdp-generic", f.GenericFirst()
	case !f.XDP.Known:
		return "xdp", "the kernel does not say whether the driver has native XDP: native is tried first, then generic"
	case !f.XDP.Has("basic") || !f.XDP.Has("redirect"):
		return "xdp-generic", "driver " + f.Driver + " has no native XDP with redirect"
	}
	return native(f)
}

// native says how frames travel in native mode.
func native(f loader.Features) (mode, reason string) {
	switch {
	case !f.XDP.Has("xsk-zerocopy"):
		return "xdp-native", "driver " + f.Driver + " has native XDP, but no zero-copy"
	case f.CopyFirst() != "":
		return "xdp-native", f.CopyFirst() + "; XDPRMA_EXPRESS=off has ranks use it"
	}
	return "xdp-native-zerocopy", "driver " + f.Driver + " has native XDP and zero-copy"
}

// joinedFrames says what becomes of frames that the UDP socket sends as one message by a veth.
func joinedFrames(whole bool) string {
	if whole {
		return "yes: UDP segmentation is on (tx-udp-segmentation), they leave as one packet"
	}
	return "no: UDP segmentation is off (tx-udp-segmentation), the kernel cuts them; an XDP program in native mode at the other end turns it off"
}

// print writes the report for people.
func (m *machine) print(w io.Writer) error {
	b := &strings.Builder{}
	line := func(name, format string, args ...any) {
		fmt.Fprintf(b, "%-14s "+format+"\n", append([]any{name}, args...)...)
	}
	line("xdprma", "%s", m.Version)
	line("kernel", "%s, %s, %d CPUs", m.Kernel, m.Architecture, m.CPUs)
	for _, name := range []string{"CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_BPF", "CAP_PERFMON", "CAP_IPC_LOCK", "CAP_SYS_ADMIN"} {
		line(name, "%s", yesNo(m.Capabilities[name]))
	}
	if m.BPFError != "" {
		line("BPF", "not usable: %s", m.BPFError)
	}
	if m.MemlockBytes == nil {
		line("memory lock", "unlimited")
	} else {
		line("memory lock", "%d KiB", *m.MemlockBytes>>10)
	}
	line("huge pages", "%d free of %d, %d KiB each", m.HugePagesFree, m.HugePagesTotal, m.HugePageBytes>>10)
	line("security", "%s", m.Security)
	line("agent", "%s", strings.TrimPrefix(m.Agent+": "+m.AgentNote, ": "))
	if m.RunInNamespaces {
		line("xdprma run", "gives each rank a network namespace")
	} else {
		line("xdprma run", "ranks share the loopback interface: %s", m.RunInNamespacesNote)
	}
	for _, p := range m.Interfaces {
		features := "unknown"
		if p.XDPFeatures != nil {
			features = strings.Join(p.XDPFeatures, " ")
		}
		fmt.Fprintf(b, "\n%s: %s, kind %s, driver %s, MTU %d, queues %d rx %d tx\n", p.Name, p.State, p.Kind, cmp.Or(p.Driver, "unknown"), p.MTU, p.RxQueues, p.TxQueues)
		fmt.Fprintf(b, "  addresses     %s\n", cmp.Or(strings.Join(p.Addresses, " "), "none"))
		fmt.Fprintf(b, "  XDP features  %s\n", cmp.Or(features, "none"))
		fmt.Fprintf(b, "  XDP program   %s\n", cmp.Or(p.Program, "none"))
		fmt.Fprintf(b, "  mode          %s: %s\n", p.Mode, p.Reason)
		fmt.Fprintf(b, "  XDP executes  %s: %s\n", yesNo(p.Express), p.ExpressNote)
		if p.Kind == "veth" && p.UDPSegmentation != nil {
			fmt.Fprintf(b, "  joined frames %s\n", joinedFrames(*p.UDPSegmentation))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
