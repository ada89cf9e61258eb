package perf

import (
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// joinedLine is a UDP socket on an interface whose program, in generic mode, passes all
// frames. Ranks in generic mode have such a socket beside AF_XDP. The program does not say
// that it takes frames of several buffers, which on a busy machine halves what arrives.
type joinedLine struct {
	*udpLine
	link link.Link
}

func openJoinedLine(at FloorPlace) (_ *joinedLine, err error) {
	udp, err := openUDPLine(at.Address, at.Payload)
	if err != nil {
		return nil, err
	}
	l := &joinedLine{udpLine: udp}
	if l.link, err = attachPassing(at.Interface); err != nil {
		return nil, errors.Join(fmt.Errorf("UDP floor behind a program on %s: %w", at.Interface, err), udp.close())
	}
	return l, nil
}

// attachPassing puts a program that passes all frames on an interface, in generic mode.
func attachPassing(ifname string) (link.Link, error) {
	ifi, err := net.InterfaceByName(ifname)
	if err != nil {
		return nil, err
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "xdprma_pass", Type: ebpf.XDP, License: "MIT",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()},
	})
	if err != nil {
		return nil, err
	}
	defer program.Close() // the link keeps it
	return link.AttachXDP(link.XDPOptions{Program: program, Interface: ifi.Index, Flags: link.XDPGenericMode})
}

func (l *joinedLine) mode() string { return string(FloorJoined) }

func (l *joinedLine) close() error { return errors.Join(l.link.Close(), l.udpLine.close()) }
