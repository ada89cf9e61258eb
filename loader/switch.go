package loader

import (
	"errors"
	"math/bits"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/xdprma/xdprma/bpf"
	"github.com/xdprma/xdprma/mpierr"
)

// Switch is the program on an interface that finds out to which rank of an Executor a frame is. It leaves frames to
// others as they are, and so the frames to a rank whose socket is closed.
type Switch struct {
	in      *Executor
	program *ebpf.Program
	places  *ebpf.Map
	link    link.Link
	index   int // of the interface
}

// NewSwitch puts a switch on an interface. At TCX it comes before the programs that are there. For XDP the interface
// must have no program: errors.As finds an InUseError. The goroutine must run in the network namespace of
// the interface.
func (e *Executor) NewSwitch(ifname string) (*Switch, error) {
	f, err := Probe(ifname)
	if err != nil {
		return nil, err
	}
	if e.mode != TCX {
		if err := f.Free(); err != nil {
			return nil, err
		}
	}
	s := &Switch{in: e, index: f.Index}
	if err := e.use(func() error { return s.open(f) }); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Switch) open(f Features) error {
	if err := needsFiles(2 + filesForLoading); err != nil {
		return err
	}
	var o struct {
		Switch *ebpf.Program `ebpf:"xdprma_switch"`
		Places *ebpf.Map     `ebpf:"places"`
	}
	m := &s.in.maps
	if err := s.in.spec.Copy().LoadAndAssign(&o, &ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{
		bpf.SharedMapErrands: m.Errands, bpf.SharedMapExecutor: m.Executor, bpf.SharedMapSockets: m.Sockets,
	}}); err != nil {
		return mpierr.New("load a switch", mpierr.Unsupported, mpierr.NoRank, "%w", plain{err})
	}
	s.program, s.places = o.Switch, o.Places
	return s.attach(f)
}

func (s *Switch) attach(f Features) (err error) {
	if s.in.mode == TCX {
		s.link, err = link.AttachTCX(link.TCXOptions{Interface: s.index, Program: s.program, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
		if err != nil {
			return mpierr.New("attach", mpierr.Unsupported, mpierr.NoRank, "tcx on interface %s: %w", f.Interface, err)
		}
		return nil
	}
	if s.in.mode == Native {
		if err := f.NoNative(); err != nil {
			return mpierr.New("attach", mpierr.Unsupported, mpierr.NoRank, "%w", err)
		}
	}
	flags := link.XDPGenericMode
	if s.in.mode == Native {
		flags = link.XDPDriverMode
	}
	s.link, err = link.AttachXDP(link.XDPOptions{Program: s.program, Interface: s.index, Flags: flags})
	if err != nil {
		return explain("attach", err, circumstances(s.in.mode, f))
	}
	return nil
}

// IsAttached reports whether the switch is on its interface, as far as can be known. Other tools can take it away.
func (s *Switch) IsAttached() bool {
	info, err := s.link.Info()
	if err != nil {
		return true
	}
	switch {
	case info.TCX() != nil:
		return info.TCX().Ifindex != 0
	case info.XDP() != nil:
		return info.XDP().Ifindex != 0
	}
	return true
}

// AttachAgain puts the switch on its interface again, after somebody has taken it away. It never replaces an XDP
// program: if the interface has one, an error is returned. The goroutine must run in the network namespace of the
// interface.
func (s *Switch) AttachAgain() error {
	old := s.link
	ifi, err := net.InterfaceByIndex(s.index)
	if err != nil {
		return mpierr.New("attach", mpierr.Arg, mpierr.NoRank, "interface %d: %w", s.index, err)
	}
	f, err := Probe(ifi.Name)
	if err != nil {
		return err
	}
	if s.in.mode != TCX {
		if err := f.Free(); err != nil {
			return err
		}
	}
	if err := s.in.use(func() error { return s.attach(f) }); err != nil {
		s.link = old
		return err
	}
	return old.Close()
}

// Index returns the index of the interface.
func (s *Switch) Index() int { return s.index }

// Close takes the switch from its interface. Frames to its ranks go to their sockets from then on.
func (s *Switch) Close() error {
	var errs []error
	if s.link != nil {
		errs = append(errs, s.link.Close())
	}
	if s.program != nil {
		errs = append(errs, s.program.Close(), s.places.Close())
	}
	s.link, s.program = nil, nil
	return errors.Join(errs...)
}

// placeFor is an address and port as the switch looks for them.
func placeFor(a netip.Addr, port uint16) (p bpf.SharedPlace) {
	in := addressFor(a)
	p.Address.Words, p.Address.Protocol, p.Port = in.Words, in.Protocol, bits.ReverseBytes16(port)
	return p
}
