package device

import (
	"errors"
	"net/netip"

	"github.com/xdprma/xdprma/loader"
)

// A trial of an XDP device lasts until the first frame is in one of its AF_XDP sockets. On some
// devices none ever is, although all of them were bound: where a device below this one runs
// the program, as with a bond, the kernel drops what it redirects; a driver may drop that,
// too; or frames come by a way where the program is not.
//
// Nothing that this rank could send itself on opening would tell. An interface does not
// receive what it sends. In a test run of the program (BPF_PROG_TEST_RUN with live frames)
// the caller names the device and the queue: it would succeed on a bond, since only real
// frames come with the device below. So the frames of peers are the test. It works on every
// device and needs no luck, because nothing is lost for good: the UDP socket that holds the
// port receives what the program leaves to the kernel, and peers repeat what was dropped.
//
// The device's watch looks now and then, and the way of frames is not touched. A look is
// two system calls, and one more for each further socket.
type trial struct {
	device *XDP

	before     uint64 // frames that the program had redirected when the trial began
	redirected uint64 // those since, at the last look
	paths      int    // of the UDP socket on which peers were heard, that were looked at
	peer       netip.AddrPort
	told       bool // that peers are heard by the UDP socket
}

// trialPaths are the paths of the UDP socket that one look asks the kernel about.
const trialPaths = 64

// newTrial begins a trial. The sockets of all queues are in the program's map.
func newTrial(x *XDP) *trial {
	t := &trial{device: x}
	t.before, _ = x.program.Redirected() // an error comes again
	return t
}

// look reports whether the trial is over. It judges the program's count of the look before:
// a frame that was counted then is in a socket by now, if it ever is.
func (t *trial) look() (over bool) {
	x := t.device
	if x.link.lost() {
		return true
	}
	for _, s := range x.sockets {
		if s.HasReceived() {
			return true
		}
	}
	if t.redirected > 0 {
		x.passToKernel(t.redirected)
		return true
	}
	n, err := x.program.Redirected()
	if err != nil {
		return true
	}
	t.redirected = n - t.before
	switch {
	case x.facts.Mode.away.Load():
		t.peer, t.paths = netip.AddrPort{}, x.stack.detours.len() // that peers are heard there has another reason
	case t.redirected == 0 && !t.told:
		t.detour()
	}
	return false
}

// detour warns, once, of peers on other machines that are heard by the UDP socket, if that
// was so at the look before, too.
func (t *trial) detour() {
	x := t.device
	if t.peer.IsValid() {
		t.told = true
		c, _ := x.program.Counters() // without them the advice is the same
		x.log.Warn("frames of peers come through the kernel and none by XDP, which is slower: check that they arrive at this interface (`ip route get` at the peer) "+
			"and at a queue that has an AF_XDP socket, or use the UDP transport",
			"interface", x.ifi.Name, "mode", x.facts.Mode.String(), "peer", t.peer, "without_socket", c["no_socket"])
		return
	}
	for range trialPaths {
		if t.paths == x.stack.detours.len() {
			return
		}
		peer := x.stack.peer(*x.stack.detours.get(PathID(t.paths)))
		t.paths++
		if _, err := x.nextHop(peer.Addr()); !errors.Is(err, errLocal) {
			t.peer = peer
			return
		}
	}
}

// passToKernel has the program leave all frames to the kernel, after it has redirected some
// that reached no socket. The UDP socket receives them from now on. Another mode could be
// tried in place of this, but not without losing sessions.
func (x *XDP) passToKernel(lost uint64) {
	mode := x.facts.Mode.String()
	for q := range x.sockets {
		x.program.ForgetSocket(q)
	}
	x.facts.Mode.passes.Store(true)
	advice := "use the UDP transport"
	if x.program.Mode() == loader.Native {
		advice = "use the transport xdp-generic, or an interface below this one"
	}
	x.log.Warn("the frames that XDP redirects reach no socket: they come through the kernel from now on, which is slower; "+advice,
		"interface", x.ifi.Name, "mode", mode, "lost", lost)
}
