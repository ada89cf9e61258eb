package netlab

import (
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// AcceptAnswers lets ranks answer by XDP_TX in native mode. A veth takes such frames
// only if its own end has an XDP program, which starts NAPI there. So AcceptAnswers
// attaches a program to every port of the bridge, and that program passes all frames.
// Without a bridge the ranks' own programs are at both ends, and it does nothing.
// Close detaches the program, and so does the end of this process. AcceptAnswers needs
// CAP_BPF. It must not run beside Close, nor twice.
func (l *Lab) AcceptAnswers() error {
	if l.bridge == nil {
		return nil
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "xdprma_pass", Type: ebpf.XDP, License: "MIT", Flags: unix.BPF_F_XDP_HAS_FRAGS,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()},
	})
	if err != nil {
		return fmt.Errorf("load a program that passes all frames: %w", err)
	}
	defer program.Close() // the ports keep it
	err = within(l.bridge.ns, func() error {
		for rank := range l.nodes {
			if err := l.acceptAt(l.Interface(rank), program); err != nil {
				return fmt.Errorf("port %s of the bridge: attach a program that passes all frames: %w", l.Interface(rank), err)
			}
		}
		return nil
	})
	if err != nil {
		return errors.Join(err, l.refuseAnswers())
	}
	return nil
}

const xdpPass = 2 // of enum xdp_action

// acceptAt attaches the program to a port, in the namespace of the thread.
func (l *Lab) acceptAt(port string, program *ebpf.Program) error {
	at, err := net.InterfaceByName(port)
	if err != nil {
		return err
	}
	attached, err := link.AttachXDP(link.XDPOptions{Program: program, Interface: at.Index, Flags: link.XDPDriverMode})
	if err == nil {
		l.passing = append(l.passing, attached)
	}
	return err
}

// refuseAnswers detaches what AcceptAnswers attached.
func (l *Lab) refuseAnswers() error {
	var errs []error
	for _, attached := range l.passing {
		errs = append(errs, attached.Close())
	}
	l.passing = nil
	return errors.Join(errs...)
}
