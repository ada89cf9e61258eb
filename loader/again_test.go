package loader

import (
	"errors"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/foreign"
)

// detached attaches a program and has its link detach it, behind its back.
func (l *lab) detached(t *testing.T, mode Mode) *Program {
	t.Helper()
	p := l.attach(t, Options{Mode: mode})
	must(t, p.link.(interface{ Detach() error }).Detach())
	if now := l.attached(t); now != nil {
		t.Fatalf("%v is still attached", now)
	}
	return p
}

// A program that was detached is attached again, with its id and mode, and the link is another one.
func TestAttachAgain(t *testing.T) {
	l := newLab(t, shape{})
	for _, mode := range []Mode{Native, Generic} {
		p := l.detached(t, mode)
		info, err := p.objects.XdprmaClassify.Info()
		must(t, err)
		id, _ := info.ID()
		old := p.link
		l.inB(t, func() { must(t, p.AttachAgain()) })
		now := l.attached(t)
		if now == nil || now.ID != uint32(id) || now.Mode != mode.String() || p.link == old || p.LinkFD() < 0 {
			t.Errorf("attached: %v, want program %d in %v mode; link %v was %v", now, id, mode, p.link, old)
		}
		before, err := p.Counters()
		must(t, err)
		l.ping(t)
		if after, err := p.Counters(); err != nil || after["passed"] <= before["passed"] {
			t.Errorf("%v mode: the program has passed %d frames, and %d before: %v", mode, after["passed"], before["passed"], err)
		}
		must(t, p.Close())
		if now := l.attached(t); now != nil {
			t.Errorf("%v is attached after Close", now)
		}
	}
}

// It is attached in no other namespace, over no other program, and not after Close. None of that leaves
// anything open.
func TestAttachAgainFails(t *testing.T) {
	l := newLab(t, shape{})
	p := l.detached(t, Native)
	stranger, err := foreign.New("stranger")
	must(t, err)
	defer stranger.Close()
	foreigners, err := FromMaps(p.Maps(), Native)
	must(t, err)
	defer foreigners.Close()
	open := func() int { return len(namesIn("/proc/self/fd")) }
	before := open()

	l.in(t, l.a, func() {
		if err := p.AttachAgain(); err == nil || !strings.Contains(err.Error(), "in another network namespace") {
			t.Errorf("in another namespace: %v", err)
		}
	})
	l.inB(t, func() {
		for flags, mode := range map[link.XDPAttachFlags]uint32{link.XDPDriverMode: nl.XDP_ATTACHED_DRV, link.XDPGenericMode: nl.XDP_ATTACHED_SKB} {
			detach := attachForeign(t, stranger, flags)
			id := l.idOfB(t)
			if err := p.AttachAgain(); !isOccupied(err) {
				t.Errorf("beside another program: %v", err)
			}
			if now := l.idOfB(t); now != id {
				t.Errorf("program %d was attached, and now %d", id, now)
			}
			about, process := Describe(id, mode)
			if about.Name != "stranger" || about.Mode != attachModes[mode] || !strings.HasPrefix(process, strconv.Itoa(os.Getpid())+" (") {
				t.Errorf("described as %v of %q", about, process)
			}
			detach()
		}
		if err := foreigners.AttachAgain(); err == nil || err.Error() != foreigners.CanAttachAgain().Error() {
			t.Errorf("a program from outside: %v", err)
		}
		if after := open(); after != before {
			t.Errorf("%d files are open, and %d before", after, before)
		}
		must(t, p.Close())
		if err := p.AttachAgain(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		if id := l.idOfB(t); id != 0 {
			t.Errorf("program %d is attached", id)
		}
	})
}

// idOfB returns the id of the program on the interface of namespace b, where the thread is.
func (l *lab) idOfB(t *testing.T) uint32 {
	t.Helper()
	f, err := Probe("b")
	must(t, err)
	if f.Program == nil {
		return 0
	}
	return f.Program.ID
}

// It takes no capability at all, from Linux 5.19 on.
func TestAttachAgainTakesNoCapability(t *testing.T) {
	l := newLab(t, shape{})
	p := l.detached(t, Generic)
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		err := unix.Setns(int(l.b), unix.CLONE_NEWNET)
		if err == nil {
			var none [2]unix.CapUserData
			err = unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0])
		}
		if err == nil {
			err = p.AttachAgain()
		}
		result <- err
	}()
	err := <-result
	if caps, probeErr := Capabilities(); probeErr == nil && strings.HasPrefix(caps.Kernel, "5.18") && errors.Is(err, unix.EPERM) {
		return
	}
	must(t, err)
	if l.attached(t) == nil {
		t.Error("nothing is attached")
	}
	must(t, p.Close())
}
