package netlab

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// Program returns the id of the XDP program that rank's interface has, or 0. Each program of the machine
// has an id of its own.
func (l *Lab) Program(rank int) (id uint32, err error) {
	err = l.Do(rank, func() error {
		_, id, err = l.attached(rank)
		return err
	})
	return id, err
}

// attached returns the index of rank's interface and the id of its XDP program, or 0, on a thread in
// rank's namespace.
func (l *Lab) attached(rank int) (index int, id uint32, err error) {
	nic, err := netlink.LinkByName(l.Interface(rank))
	if err != nil {
		return 0, 0, fmt.Errorf("interface %s: %w", l.Interface(rank), err)
	}
	if xdp := nic.Attrs().Xdp; xdp != nil && xdp.Attached {
		id = xdp.ProgId
	}
	return nic.Attrs().Index, id, nil
}

// TakeProgram detaches the XDP program of rank's interface behind the back of the process that has it,
// which keeps a link that attaches nothing. The machine's links show all labs and jobs, and an index of an
// interface is one in every namespace. So the link is that of the interface's program.
func (l *Lab) TakeProgram(rank int) error {
	return l.Do(rank, func() error {
		index, id, err := l.attached(rank)
		if err != nil {
			return err
		}
		if id == 0 {
			return fmt.Errorf("interface %s has no XDP program, or several", l.Interface(rank))
		}
		links := &link.Iterator{}
		defer links.Close()
		for links.Next() {
			info, err := links.Link.Info()
			if err != nil {
				return fmt.Errorf("link %d: %w", links.ID, err)
			}
			if x := info.XDP(); x != nil && uint32(info.Program) == id && int(x.Ifindex) == index {
				return links.Link.(interface{ Detach() error }).Detach()
			}
		}
		if err := links.Err(); err != nil {
			return err
		}
		return fmt.Errorf("interface %s: no link attaches its XDP program %d", l.Interface(rank), id)
	})
}

// Switches returns the links of the programs that tc runs first on rank's interface.
func (l *Lab) Switches(rank int) (ids []link.ID, err error) {
	err = l.Do(rank, func() error {
		index, _, err := l.attached(rank)
		if err != nil {
			return err
		}
		r, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			return fmt.Errorf("interface %s: %w", l.Interface(rank), err)
		}
		for _, p := range r.Programs {
			if id, ok := p.LinkID(); ok {
				ids = append(ids, id)
			}
		}
		return nil
	})
	return ids, err
}

// TakeSwitch detaches the only program that tc runs first on rank's interface, as TakeProgram does it with that of XDP.
func (l *Lab) TakeSwitch(rank int) error {
	ids, err := l.Switches(rank)
	if err != nil {
		return err
	}
	if len(ids) != 1 {
		return fmt.Errorf("interface %s has %d programs at tc, and not one", l.Interface(rank), len(ids))
	}
	one, err := link.NewFromID(ids[0])
	if err != nil {
		return err
	}
	return errors.Join(one.Detach(), one.Close())
}
