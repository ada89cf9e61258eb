// Package floor has the kernel answer bare requests, and take the answers: the least that
// XDP does to fetch a word, add to it, send the old value back and write it to the memory of
// who asked. Measurements compare with it. It is no API.
package floor

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel program ../floor.c -- -O2 -Wall -Werror -mcpu=v3

// Programs are the programs of both sides, loaded, and their memory.
type Programs struct {
	objects programObjects
	memory  []byte // of the answer
}

// Load loads the programs. They are for XDP links of any mode. The caller must Close them.
func Load() (*Programs, error) {
	p := &Programs{}
	if err := loadProgramObjects(&p.objects, nil); err != nil {
		return nil, fmt.Errorf("load the programs of a floor: %w", err)
	}
	var err error
	p.memory, err = unix.Mmap(p.objects.programMaps.Answer.FD(), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map the memory for a floor's answer: %w", err), p.objects.Close())
	}
	return p, nil
}

// FetchAdd returns the program that answers. It belongs to the Programs.
func (p *Programs) FetchAdd() *ebpf.Program { return p.objects.XdprmaFetchAdd }

// KeepAnswer returns the program that writes answers to Answer. It belongs to the Programs.
func (p *Programs) KeepAnswer() *ebpf.Program { return p.objects.XdprmaKeepAnswer }

// Word returns the present value of the word that FetchAdd adds to.
func (p *Programs) Word() (uint64, error) {
	var word uint64
	if err := p.objects.Word.Lookup(uint32(0), &word); err != nil {
		return 0, fmt.Errorf("read the word of the program that fetches and adds: %w", err)
	}
	return word, nil
}

// Answer returns the memory that KeepAnswer writes to, until Close.
func (p *Programs) Answer() *Answer { return answerIn(p.memory) }

// Close gives the programs up. A link keeps its own as long as it is attached.
func (p *Programs) Close() error { return errors.Join(unix.Munmap(p.memory), p.objects.Close()) }
