// Package foreign makes XDP programs of others for tests: each counts the frames that it gets, and
// passes them.
package foreign

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

// Program is an XDP program.
type Program struct {
	*ebpf.Program
	frames *ebpf.Map
	parts  []*ebpf.Program
	links  []link.Link
}

const (
	pass       = 2  // XDP_PASS
	unattached = 31 // what a function of a dispatcher returns that is not replaced
)

// New makes a program. Parts are the programs that replace its functions prog0, prog1 and so on,
// as libxdp has them do in its dispatcher.
func New(name string, parts ...string) (*Program, error) {
	frames, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return nil, err
	}
	p := &Program{frames: frames}
	body := asm.Instructions{
		btf.WithFuncMetadata(asm.Mov.Reg(asm.R6, asm.R1).WithSymbol(name), function(name)),
		asm.LoadMapValue(asm.R1, frames.FD(), 0),
		asm.Mov.Imm(asm.R2, 1),
		asm.StoreXAdd(asm.R1, asm.R2, asm.DWord),
	}
	var functions asm.Instructions
	for i := range parts { // the first that does not pass a frame on decides
		slot, next := fmt.Sprint("prog", i), fmt.Sprint("after", i)
		body = append(body, asm.Mov.Reg(asm.R1, asm.R6), asm.Call.Label(slot),
			asm.JEq.Imm(asm.R0, pass, next), asm.JEq.Imm(asm.R0, unattached, next), asm.Return(),
			asm.Mov.Imm(asm.R0, pass).WithSymbol(next))
		functions = append(functions, stub(slot)...)
	}
	body = append(body, asm.Mov.Imm(asm.R0, pass), asm.Return())
	if p.Program, err = ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, Name: name, License: "GPL", Instructions: append(body, functions...)}); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	for i, part := range parts {
		if err := p.replace(fmt.Sprint("prog", i), part); err != nil {
			return nil, errors.Join(fmt.Errorf("part %s: %w", part, err), p.Close())
		}
	}
	return p, nil
}

// replace has a new program take the place of a function.
func (p *Program) replace(slot, name string) error {
	part, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Extension, Name: name, License: "GPL", AttachTarget: p.Program, AttachTo: slot, Instructions: returns(name, pass)})
	if err != nil {
		return err
	}
	p.parts = append(p.parts, part)
	l, err := link.AttachFreplace(p.Program, slot, part)
	if err == nil {
		p.links = append(p.links, l)
	}
	return err
}

// function describes a function that takes what an XDP program takes.
func function(name string) *btf.Func {
	return &btf.Func{Name: name, Linkage: btf.GlobalFunc, Type: &btf.FuncProto{
		Return: &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed},
		Params: []btf.FuncParam{{Name: "ctx", Type: &btf.Pointer{Target: &btf.Struct{Name: "xdp_md", Size: 24}}}},
	}}
}

// stub is a function that a part can replace. It changes the frame's end by 0 bytes, as in libxdp since
// 1.5.5: a kernel that asks lets a part change frames only where the function says that it does.
func stub(name string) asm.Instructions {
	return asm.Instructions{
		btf.WithFuncMetadata(asm.Mov.Imm(asm.R2, 0).WithSymbol(name), function(name)),
		asm.FnXdpAdjustTail.Call(), asm.Mov.Imm(asm.R0, unattached), asm.Return(),
	}
}

// returns is a function that returns a number.
func returns(name string, number int32) asm.Instructions {
	return asm.Instructions{btf.WithFuncMetadata(asm.Mov.Imm(asm.R0, number).WithSymbol(name), function(name)), asm.Return()}
}

// Pin pins the parts in a directory, under libxdp's names. From then on the pins alone keep them in
// their places.
func (p *Program) Pin(dir string) error {
	errs := []error{os.MkdirAll(dir, 0o700)}
	for i, part := range p.parts {
		errs = append(errs, part.Pin(filepath.Join(dir, fmt.Sprintf("prog%d-prog", i))),
			p.links[i].Pin(filepath.Join(dir, fmt.Sprintf("prog%d-link", i))), p.links[i].Close())
	}
	p.links = nil
	return errors.Join(errs...)
}

// Frames returns how many frames the program has had.
func (p *Program) Frames() (n uint64, err error) {
	err = p.frames.Lookup(uint32(0), &n)
	return n, err
}

// Close forgets the program and its parts. Where it is attached it stays.
func (p *Program) Close() error {
	errs := []error{p.Program.Close(), p.frames.Close()}
	for _, l := range p.links {
		errs = append(errs, l.Close())
	}
	for _, part := range p.parts {
		errs = append(errs, part.Close())
	}
	return errors.Join(errs...)
}
