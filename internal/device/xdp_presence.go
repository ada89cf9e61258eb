package device

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/loader"
)

// presence knows whether the program is on the interface. Other tools can detach it, as `bpftool link
// detach` does, and libxdp makes another dispatcher when it loads a program. Nobody is told of either. So
// the device's watch compares the id of the interface's program with the one at the start. That
// serves for all ways in which a program is attached, and takes no privilege.
//
// A program that was taken is attached again once the interface has been free for a look: whoever took it
// may be about to attach another one, which would fail otherwise. Another one is never replaced. If the
// program is taken again and again, each attempt waits for longer, and ever fewer lines tell of it, unless it
// is away for long.
type presence struct {
	device *XDP
	socket *nl.SocketHandle // asks the kernel
	id     uint32           // of the interface's program at the start; 0: ours runs elsewhere

	times atomic.Uint64 // that it was taken

	// The watch's.
	recent int  // times that it was taken, with no minute between that it stayed
	stayed int  // looks since it was attached again
	waited int  // looks since it was taken
	free   int  // looks one after the other at which the interface had no program
	tell   bool // what happens until the program has stayed
	told   bool // why it is not attached again
}

const (
	stayLooks  = int(time.Minute / lookMost) // after which what happened before does not count
	mostRecent = 7                           // an attempt waits for no more than 64 looks
	longAway   = int(time.Minute / lookMost) // after so many looks an absence is told of, however many there were
)

// IFLA_XDP_ATTACHED and others of linux/if_link.h, XDP_ATTACHED_NONE, and RTEXT_FILTER_SKIP_STATS.
const (
	xdpAttached    = 2
	xdpProgID      = 4
	xdpNativeID    = 5
	xdpGenericID   = 6
	attachedNone   = 0
	skipStatistics = 1 << 3
)

// open notes which program the interface has.
func (p *presence) open(x *XDP) error {
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open a route netlink socket: %w", err)
	}
	p.device, p.socket = x, &nl.SocketHandle{Socket: s}
	now, err := p.ask()
	p.id = now.ours
	return err
}

func (p *presence) close() {
	if p.socket != nil {
		p.socket.Close()
	}
}

// mode is that of the device, which is "udp" while the program is away.
func (p *presence) mode() *Mode { return p.device.facts.Mode }

// known reports whether the program was on the interface at the start.
func (p *presence) known() bool { return p.id != 0 }

// attached is what the kernel says that an interface has.
type attached struct {
	ours uint32 // the id of the program in the mode of ours, or 0
	id   uint32 // that of the only program, in whatever mode, or 0
	mode uint32 // XDP_ATTACHED_NONE and the like
}

// ask asks the kernel what the interface has, which is two system calls.
func (p *presence) ask() (now attached, err error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: p.socket}
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(p.device.ifi.Index)
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStatistics)))
	answers, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err == nil && (len(answers) != 1 || len(answers[0]) < unix.SizeofIfInfomsg) {
		err = errors.New("there is no answer")
	}
	if err != nil {
		return now, fmt.Errorf("ask which XDP program interface %s has: %w", p.device.ifi.Name, err)
	}
	ours := uint16(xdpGenericID)
	if p.device.program.Mode() == loader.Native {
		ours = xdpNativeID
	}
	attributes, _ := nl.ParseRouteAttr(answers[0][unix.SizeofIfInfomsg:]) // the kernel's are well formed
	for _, a := range attributes {
		if a.Attr.Type&^unix.NLA_F_NESTED == unix.IFLA_XDP {
			now.read(a.Value, ours)
		}
	}
	return now, nil
}

// read reads the attributes within IFLA_XDP. ours has the id of the program in the mode of ours.
func (now *attached) read(data []byte, ours uint16) {
	attributes, _ := nl.ParseRouteAttr(data)
	for _, a := range attributes {
		switch {
		case a.Attr.Type == xdpAttached && len(a.Value) == 1:
			now.mode = uint32(a.Value[0])
		case len(a.Value) != 4:
		case a.Attr.Type == xdpProgID:
			now.id = binary.NativeEndian.Uint32(a.Value)
		case a.Attr.Type == ours:
			now.ours = binary.NativeEndian.Uint32(a.Value)
		}
	}
}

// look looks whether the program is on the interface, and attaches it again when it is time.
func (p *presence) look() {
	if !p.known() {
		return
	}
	now, err := p.ask()
	switch {
	case err != nil: // the interface may be gone, of which its link tells
	case now.ours == p.id:
		p.stays()
	case !p.mode().away.Load():
		p.taken(now)
	default:
		p.waits(now)
	}
}

// stays takes in that the program is on the interface.
func (p *presence) stays() {
	if p.mode().away.Load() {
		p.mode().away.Store(false)
		p.stayed = 0
		p.say("the XDP program of this rank is on its interface again", "mode", p.mode().String())
	}
	if p.stayed++; p.stayed >= stayLooks {
		p.recent = 0
	}
}

// taken takes in that the program is no longer on the interface.
func (p *presence) taken(now attached) {
	p.recent++
	p.tell = p.recent&(p.recent-1) == 0
	p.waited, p.free = 0, 0
	p.times.Add(1)
	p.mode().seenAway()
	p.sayTaken(now)
}

// sayTaken says that the program is away, and what is there.
func (p *presence) sayTaken(now attached) {
	p.told = now.mode != attachedNone
	by, next := []any{"by", "somebody who attached no other, as `bpftool link detach` does"}, "it is attached again"
	if now.mode != attachedNone {
		by, next = p.other(now), "another one is there, which stays, and this rank's is attached again once that is gone"
	}
	if err := p.device.program.CanAttachAgain(); err != nil {
		next, p.told = err.Error(), true
	}
	p.say("the XDP program of this rank was taken from its interface, and frames come through the kernel meanwhile, which is slower: "+next,
		append(by, "mode", p.mode().opened, "times", p.times.Load())...)
}

// waits takes in that the program is still away, and attaches it again when it is time.
func (p *presence) waits(now attached) {
	p.mode().seenAway()
	if p.waited++; p.waited == longAway && !p.tell {
		p.tell = true
		p.sayTaken(now)
	}
	if p.device.program.CanAttachAgain() != nil {
		return
	}
	if now.mode != attachedNone {
		p.free = 0
		if !p.told {
			p.told = true
			p.say("another XDP program is on the interface in place of this rank's: it stays, and this rank's is attached again once that is gone", p.other(now)...)
		}
		return
	}
	if p.free++; p.free < 1<<min(p.recent-1, mostRecent-1) {
		return
	}
	p.free = 0
	err := p.device.program.AttachAgain()
	switch {
	case err == nil:
		p.stays()
	case errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST): // the next look sees by what
	case !p.told:
		p.told = true
		p.say("the XDP program of this rank cannot be attached again, and is tried now and then: start the rank again", "error", err)
	}
}

// other describes the program that is on the interface now, for the log.
func (p *presence) other(now attached) []any {
	if !p.tell {
		return nil
	}
	program, process := loader.Describe(now.id, now.mode)
	return []any{"by", program.String(), "process", process}
}

// say warns of something, unless the log has had enough of it.
func (p *presence) say(text string, attributes ...any) {
	if p.tell {
		p.device.log.Warn(text, append([]any{"interface", p.device.ifi.Name}, attributes...)...)
	}
}
