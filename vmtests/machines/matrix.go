package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/xdprma/xdprma/vmtests/machines/plan"
)

// machine boots once, and carries out its steps.
type machine struct {
	name     string
	kernel   *kernel
	nic      nic
	perftest bool // it has these programs, too
	steps    []plan.Step
}

// limit is how long it may take.
func (m *machine) limit() time.Duration {
	const start = 5 * time.Minute
	limit := start
	for _, s := range m.steps {
		limit += s.Limit
	}
	return limit
}

// nic is a kind of network interface, of which a machine has two that are joined.
type nic struct {
	name   string
	driver string   // the kernel's module; empty: the machine has no NIC
	device string   // how QEMU makes one; # is its number
	before []string // what else QEMU needs for that
	newest bool     // it is tried on the newest kernel alone
	links  []way    // over it, or over veth pairs if the machine has no NIC
}

// devices returns QEMU's options.
func (n nic) devices() (options []string) {
	if n.driver == "" {
		return nil
	}
	options = slices.Clone(n.before)
	for i := range 2 {
		options = append(options, "-netdev", fmt.Sprintf("hubport,id=n%d,hubid=0", i),
			"-device", fmt.Sprintf("%s,netdev=n%d,mac=02:00:00:00:00:%02x", strings.ReplaceAll(n.device, "#", strconv.Itoa(i)), i, i+1))
	}
	return options
}

// nics are the kinds.
var nics = []nic{
	{name: "virtio_net", driver: "virtio_net", device: "virtio-net-pci,romfile=,mrg_rxbuf=on", links: append(slices.Clone(bare), inDriver)},
	{
		// Zero-copy takes addresses of devices from the kernel (VIRTIO_F_ACCESS_PLATFORM).
		name: "virtio_net with IOMMU", driver: "virtio_net", newest: true, links: bare,
		device: "virtio-net-pci,romfile=,mrg_rxbuf=on,iommu_platform=on,disable-legacy=on",
	},
	{
		// It has several queues. QEMU needs a bus for each, for their virtual functions.
		name: "igb", driver: "igb", device: "igb,romfile=,bus=port#", links: bare,
		before: []string{"-M", "q35", "-device", "pcie-root-port,id=port0,chassis=1", "-device", "pcie-root-port,id=port1,chassis=2"},
	},
	{name: "vmxnet3", driver: "vmxnet3", device: "vmxnet3,romfile=", links: bare},
	{name: "veth", links: dispatched},
}

// drivers are modules that tests need: kinds of interfaces and what is at them. The kernel cannot
// load them itself when it needs them, because the machine has no modprobe.
var drivers = []string{
	"crc32c_generic", "crc32_generic", "virtio_pci", "af_packet", "veth", "bridge", "8021q", "macvlan", "bonding", "dummy", "tun", "vxlan", "sch_ingress", "cls_bpf",
	"act_bpf", "act_mirred", "sch_netem", "sch_fq_codel", "xsk_diag", "udp_diag", "nf_tables", "rdma_rxe", "ib_uverbs",
}

// Where the guest finds the project, and its programs.
const (
	sources  = "/src"
	commands = "/programs"

	slotObject = "xdprma_slot.o" // among the commands
)

// suites are the packages whose tests run on every kernel. They make their own interfaces.
var suites = []string{"bpf", "loader", "afxdp", "userspace", "vmtests"}

// testSteps run the tests.
func testSteps(full bool, tests string) (steps []plan.Step) {
	for _, s := range suites {
		args := []string{commands + "/" + s + ".test", "-test.v", "-test.timeout=45m"}
		if !full {
			args = append(args, "-test.short")
		}
		if tests != "" {
			args = append(args, "-test.run", tests)
		}
		steps = append(steps, plan.Step{
			Name: s, Args: [][]string{args}, Dir: sources + "/" + s, Limit: 50 * time.Minute,
			Env: []string{"XDPRMA_REQUIRE_ROOT=1", "XDPRMA_TEST_PROGRAMS=" + commands},
		})
	}
	return steps
}

// way is how two ranks of a machine are tried over its NICs.
type way struct {
	name      string
	mtu, vlan int
	env       string
	within    []string // a command that has each rank run between what it sets up and takes down; nil: none
}

var (
	bare = []way{
		{"plain", 1500, 0, "XDPRMA_TRANSPORT=auto", nil},
		{"no program executes", 1500, 0, "XDPRMA_EXPRESS=off", nil},
		{"generic", 1500, 0, "XDPRMA_TRANSPORT=xdp-generic", nil},
		{"VLAN", 1500, 7, "XDPRMA_TRANSPORT=auto", nil},
		{"MTU 9000", 9000, 0, "XDPRMA_TRANSPORT=auto", nil},
		{"agent", 1500, 0, "XDPRMA_TRANSPORT=shared", agent()},
		{"agent, MTU 9000", 9000, 0, "XDPRMA_TRANSPORT=shared", agent()},
	}
	inDriver   = way{"agent, native", 1500, 0, "XDPRMA_TRANSPORT=shared", agent("--native", plan.Interface)}
	dispatched = []way{
		{"dispatcher, generic", 1500, 0, "XDPRMA_TRANSPORT=xdp-generic", dispatcher("skb")},
		{"dispatcher, native", 1500, 0, "XDPRMA_TRANSPORT=xdp-native", dispatcher("native")},
	}
)

// dispatcher has xdp-loader put a program on the interface, in a mode, that keeps the rank's place.
func dispatcher(mode string) []string {
	const script = `xdp-loader load --mode "$0" "$1" "$2" && shift 2 && "$@" && xdp-loader unload ` + plan.Interface + ` --all`
	return []string{"/bin/sh", "-c", script, mode, plan.Interface, commands + "/" + slotObject}
}

// agent has an agent serve the rank, which has no privilege.
func agent(flags ...string) []string {
	const script = `` +
		`export XDPRMA_AGENT=/tmp/agent-$XDPRMA_RANK; "$0" agent --socket $XDPRMA_AGENT FLAGS & agent=$!; ` +
		`until [ -S $XDPRMA_AGENT ] || ! kill -0 $agent; do sleep 0.1; done; ` +
		`setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set -all "$@"; status=$?; kill $agent; wait $agent && exit $status`
	return []string{"/bin/sh", "-c", strings.Replace(script, "FLAGS", strings.Join(flags, " "), 1), commands + "/xdprma"}
}

// jobs are for two ranks over each link.
var jobs = []struct {
	name string
	args []string
}{
	{"chapter", []string{commands + "/chapter", "all"}},
	{"wordcount", []string{commands + "/wordcount", sources + "/docs"}},
	{"stopped", []string{commands + "/xdprma", "perf", "--json", "--duration", "200ms", "--rounds", "1", "progress-stopped-paced"}},
}

// linkSteps run programs of two ranks over the machine's NICs.
func linkSteps(n nic) (steps []plan.Step) {
	for _, l := range n.links {
		for _, j := range jobs {
			args := slices.Concat(l.within, j.args)
			steps = append(steps, plan.Step{
				Name: stepName(l.name, j.name), Pair: &plan.Pair{Veth: n.driver == "", MTU: l.mtu, VLAN: l.vlan}, Args: [][]string{args, args},
				Env: []string{l.env}, Dir: sources, Limit: 5 * time.Minute,
			})
		}
	}
	return steps
}

// matrix returns all machines, for kernels from the oldest to the newest of each kind of processor.
func matrix(kernels []*kernel, full bool, tests string) (all []*machine) {
	for i, k := range kernels {
		newest := i == len(kernels)-1 || kernels[i+1].arch != k.arch
		all = append(all, &machine{name: k.release + " tests", kernel: k, steps: testSteps(full, tests)})
		for _, n := range nics {
			if n.newest && !newest || k.arch.onlyNewest && n.driver != "virtio_net" {
				continue
			}
			all = append(all, &machine{name: k.release + " " + n.name, kernel: k, nic: n, steps: linkSteps(n)})
		}
		if newest && !k.arch.onlyNewest {
			all = append(all, &machine{name: k.release + " beside Soft-RoCE", kernel: k, perftest: true, steps: contestSteps()})
		}
	}
	return all
}
