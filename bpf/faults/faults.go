// Package faults makes a wire that loses, damages and duplicates frames by a
// schedule. It serves the tests of this module, and is no API. It takes a topology in which
// a relay stands between two hosts with one port to each:
//
//	host A --- from [relay] to --- host B
//
// A Relay carries frames in one direction; two of them make a whole wire.
package faults

import (
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf/link"
)

//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -type fault -type relay_state -type ports program ../faults.c -- -O2 -Wall -Werror -mcpu=v3

// Action is what happens to a frame. Duplicate delivers it twice if it fits one
// of the kernel's buffers (some 3000 bytes), and otherwise counts as Pass.
type Action uint8

// The actions, as the program numbers them.
const (
	Pass Action = iota
	Drop
	Corrupt
	Duplicate
	actions
)

// String returns the action's name.
func (a Action) String() string {
	if a >= actions {
		return fmt.Sprintf("action %d", uint8(a))
	}
	return [...]string{"pass", "drop", "corrupt", "duplicate"}[a]
}

// Fault is one entry of a schedule. Corrupt flips the bits of Mask in byte
// Offset of the UDP payload; a frame too short for that stays as it is. A
// receiving UDP socket whose kernel checks UDP checksums drops what was
// corrupted; an AF_XDP socket gets it.
type Fault struct {
	Action Action
	Mask   uint8
	Offset uint16
}

// Options describe a Relay.
type Options struct {
	From, To string // interfaces in the caller's network namespace
	PortBase uint16 // first UDP port whose frames the schedule applies to
	Ports    int    // number of such ports
	// Generic runs the program on socket buffers. Native mode needs an XDP
	// program, or GRO, at the far end of To when To is a veth.
	Generic bool
}

// Relay carries all frames that arrive on one interface out of another. It must
// stay reachable until Close: what is garbage-collected detaches.
type Relay struct {
	objects programObjects
	link    link.Link
	ports   programPorts
}

// Attach starts a relay that lets every frame pass until SetSchedule. The caller
// must Close it.
func Attach(o Options) (*Relay, error) {
	from, err := net.InterfaceByName(o.From)
	if err != nil {
		return nil, fmt.Errorf("faults: interface %s: %w", o.From, err)
	}
	to, err := net.InterfaceByName(o.To)
	if err != nil {
		return nil, fmt.Errorf("faults: interface %s: %w", o.To, err)
	}
	if o.Ports < 1 || int(o.PortBase)+o.Ports > 1<<16 {
		return nil, fmt.Errorf("faults: %d ports from %d", o.Ports, o.PortBase)
	}
	r := &Relay{ports: programPorts{Base: o.PortBase, Count: uint16(o.Ports)}}
	if err := loadProgramObjects(&r.objects, nil); err != nil {
		return nil, fmt.Errorf("faults: load: %w", err)
	}
	if err := r.attach(from.Index, to.Index, o.Generic); err != nil {
		return nil, errors.Join(fmt.Errorf("faults: %s to %s: %w", o.From, o.To, err), r.Close())
	}
	return r, nil
}

func (r *Relay) attach(from, to int, generic bool) error {
	for key := range uint32(2) {
		if err := r.objects.Out.Put(key, uint32(to)); err != nil {
			return fmt.Errorf("device map: %w", err)
		}
	}
	if err := r.SetSchedule(nil); err != nil {
		return err
	}
	mode := link.XDPDriverMode
	if generic {
		mode = link.XDPGenericMode
	}
	l, err := link.AttachXDP(link.XDPOptions{Program: r.objects.XdprmaFaults, Interface: from, Flags: mode})
	r.link = l
	return err
}

// SetSchedule makes the relay take the actions of s in order, one a frame to the
// relay's ports, and over again after the last. An empty schedule passes all.
func (r *Relay) SetSchedule(s []Fault) error {
	if limit := int(r.objects.Schedule.MaxEntries()); len(s) > limit {
		return fmt.Errorf("faults: schedule of %d entries, the limit is %d", len(s), limit)
	}
	state := programRelayState{Ports: r.ports}
	if err := r.objects.Relay.Put(uint32(0), state); err != nil {
		return fmt.Errorf("faults: reset the schedule: %w", err)
	}
	for i, f := range s {
		if f.Action >= actions {
			return fmt.Errorf("faults: entry %d of the schedule: %v", i, f.Action)
		}
		e := programFault{Action: uint8(f.Action), Mask: f.Mask, Offset: f.Offset}
		if err := r.objects.Schedule.Put(uint32(i), e); err != nil {
			return fmt.Errorf("faults: entry %d of the schedule: %w", i, err)
		}
	}
	state.Length = uint32(len(s))
	if err := r.objects.Relay.Put(uint32(0), state); err != nil {
		return fmt.Errorf("faults: set the schedule: %w", err)
	}
	return nil
}

// Taken returns how often the schedule's actions were taken since Attach.
func (r *Relay) Taken() (map[Action]uint64, error) {
	taken := make(map[Action]uint64, actions)
	for a := range actions {
		var perCPU []uint64
		if err := r.objects.Taken.Lookup(uint32(a), &perCPU); err != nil {
			return nil, fmt.Errorf("faults: read the count of %v: %w", a, err)
		}
		for _, n := range perCPU {
			taken[a] += n
		}
	}
	return taken, nil
}

// Close detaches the relay; nothing crosses it afterwards. It may be called again.
func (r *Relay) Close() error {
	var err error
	if r.link != nil {
		err = r.link.Close()
		r.link = nil
	}
	return errors.Join(err, r.objects.Close())
}
