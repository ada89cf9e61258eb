package job

import (
	"strings"

	"github.com/xdprma/xdprma/internal/launch/capability"
	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/userspace"
)

// dropCapabilities takes from this process what the rank needed to set up XDP, and needs no more. A
// rank that has used none of it takes nothing.
//
// CAP_BPF is for the maps of windows that are made later. CAP_SYS_ADMIN serves in place of it and of
// CAP_PERFMON. It stays, because it is for many other things, for which the program may have it.
func (j *Job) dropCapabilities(c *userspace.Config) {
	handedOver := c.Program != nil && c.SocketFDs != nil
	facts := j.poller.Facts()
	xdp := facts.Queues > 0 // its mode may be another, as while its program is away
	if handedOver || !xdp {
		return
	}
	unwanted := []capability.Capability{capability.NetAdmin, capability.NetRaw, capability.Perfmon}
	if facts.Tier == nil && !mapsNeedBPF() {
		unwanted = append(unwanted, capability.BPF)
	}
	dropped, err := capability.Drop(unwanted...)
	switch {
	case err != nil:
		j.log.Warn("this rank keeps privileges that it does not need any more", "error", err)
	case len(dropped) > 0:
		j.log.Debug("this rank has set up XDP, and its process has given up capabilities", "capabilities", dropped)
	}
}

// mapsNeedBPF reports whether the kernel may ask for CAP_BPF where a process uses a map that it has.
// Later ones than 5.18 ask for it where a map is made.
func mapsNeedBPF() bool {
	caps, err := loader.Capabilities()
	return err != nil || strings.HasPrefix(caps.Kernel, "5.18")
}
