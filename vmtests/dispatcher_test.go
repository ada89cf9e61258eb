package vmtests

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/foreign"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/userspace"
)

// envDispatcher has a rank start on an interface that has libxdp's dispatcher, in the mode of
// this transport and with a place for the rank.
const envDispatcher = "VMTESTS_DISPATCHER"

// dispatch makes the dispatcher, in mounts that are this process's own and go with it, and starts
// the process again in them.
func dispatch() error {
	transport := os.Getenv(envDispatcher)
	if transport == "" {
		return nil
	}
	os.Unsetenv(envDispatcher)
	runtime.LockOSThread()   // the mounts of the thread that execs are those that count
	const dir = "/run/netns" // a folder that is there; in these mounts nobody looks for namespaces
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		return err
	}
	if err := pinDispatcher(dir, os.Getenv("XDPRMA_INTERFACE"), transport); err != nil {
		return fmt.Errorf("make a dispatcher: %w", err)
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(exe, os.Args, append(os.Environ(), "LIBXDP_BPFFS="+dir))
}

// pinDispatcher puts a dispatcher on an interface without a link, which this process could not keep.
func pinDispatcher(dir, on, transport string) error {
	d, err := foreign.New("xdp_dispatcher", "filter", "xdprma_slot")
	if err != nil {
		return err
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	id, _ := info.ID()
	nic, err := net.InterfaceByName(on)
	if err != nil {
		return err
	}
	if err := d.Pin(filepath.Join(dir, "xdp", fmt.Sprintf("dispatch-%d-%d", nic.Index, id))); err != nil {
		return err
	}
	mode := link.XDPGenericMode
	if transport == string(userspace.XDPNative) {
		mode = link.XDPDriverMode
	}
	at, err := netlink.LinkByIndex(nic.Index)
	if err != nil {
		return err
	}
	return netlink.LinkSetXdpFdWithFlags(at, d.FD(), int(mode))
}

// Ranks run in the place that a dispatcher keeps for them, and their programs execute requests
// there.
func TestRanksInADispatcher(t *testing.T) {
	testenv.NeedsRoot(t)
	testenv.NeedsFeature(t, testenv.Replacement)
	for _, transport := range []string{"xdp-native", "xdp-generic"} {
		t.Run(transport, func(t *testing.T) {
			lab := labtest.New(t, netlab.Config{Ranks: 2})
			j := start(t, lab, spec{program: "exclusive", transports: []string{transport}, env: []string{envDispatcher + "=" + transport}})
			j.finish()
			checkNothingLost(j)
			for _, r := range j.ranks {
				r.rewind()
				if c := j.counters(r); !strings.HasPrefix(c.Mode, transport) || c.Device.Filter["express_executed"] == 0 {
					t.Errorf("rank %d: mode %s, %v", r.n, c.Mode, c.Device.Filter)
				}
			}
		})
	}
}
