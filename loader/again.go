package loader

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// site is where a program was attached.
type site struct {
	index      int    // of the interface, in its network namespace
	namespace  string // names that network namespace; empty where /proc does not
	dispatcher bool   // it is a place in libxdp's dispatcher instead
}

// siteOf returns an interface of the thread's network namespace as a site.
func siteOf(f Features) site {
	namespace, _ := ownNamespace() // only AttachAgain needs it
	return site{index: f.Index, namespace: namespace}
}

// ownNamespace names the network namespace of the calling thread.
func ownNamespace() (string, error) {
	name, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return "", fmt.Errorf("find the network namespace: %w", err)
	}
	return name, nil
}

// attach puts a program on an interface of the thread's network namespace.
func (s site) attach(p *Program) (link.Link, error) {
	flags := link.XDPGenericMode
	if p.mode == Native {
		flags = link.XDPDriverMode
	}
	return link.AttachXDP(link.XDPOptions{Program: p.objects.XdprmaClassify, Interface: s.index, Flags: flags})
}

// isOccupied reports whether an attempt to attach failed because the interface has a program.
func isOccupied(err error) bool { return errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) }

var (
	errLent       = errors.New("another process has attached it, and this one cannot: start the rank again")
	errNoProc     = errors.New("/proc did not tell in which network namespace it was, when it was attached: start the rank again")
	errDispatcher = errors.New("it was in libxdp's dispatcher, in the place of which is another one: start the rank again once the programs of others are loaded")
)

// CanAttachAgain returns why AttachAgain never attaches the program again, or nil.
func (p *Program) CanAttachAgain() error {
	switch {
	case p.objects == nil:
		return errLent
	case p.at.dispatcher:
		return errDispatcher
	case p.at.namespace == "":
		return errNoProc
	}
	return nil
}

// AttachAgain attaches the program again after somebody has detached it from its interface. Its maps have
// what they had. It takes no capability from Linux 5.19 on, and never replaces a program: if the interface
// has one, an error is returned. The goroutine's thread must be in the network namespace in which Attach
// was called.
func (p *Program) AttachAgain() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.CanAttachAgain(); err != nil {
		return err
	}
	if here, err := ownNamespace(); err != nil {
		return err
	} else if here != p.at.namespace {
		return errors.New("this thread is in another network namespace than the interface")
	}
	var l link.Link
	err := p.use(func() (err error) {
		l, err = p.at.attach(p)
		return err
	})
	switch {
	case isOccupied(err):
		return fmt.Errorf("the interface has another XDP program: %w", err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("this process may not do it any more: %w", err)
	case err != nil:
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errors.Join(net.ErrClosed, l.Close())
	}
	old := p.link
	p.link = l
	return old.Close()
}
