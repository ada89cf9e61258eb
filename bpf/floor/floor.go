// Package floor has the kernel answer bare requests: the least that XDP does to fetch
// a word, add to it and send the old value back. Measurements compare with it.
// It is no API.
package floor

import (
	"fmt"

	"github.com/cilium/ebpf"
)

//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel program ../floor.c -- -O2 -Wall -Werror -mcpu=v3

// Target is the program, loaded, and the word that it adds to.
type Target struct{ objects programObjects }

// Load loads the program. It is for an XDP link of any mode. The caller must Close the
// Target.
func Load() (*Target, error) {
	t := &Target{}
	if err := loadProgramObjects(&t.objects, nil); err != nil {
		return nil, fmt.Errorf("load the program that fetches and adds: %w", err)
	}
	return t, nil
}

// Program returns the program, which belongs to the Target.
func (t *Target) Program() *ebpf.Program { return t.objects.XdprmaFetchAdd }

// Word returns the present value of the word.
func (t *Target) Word() (uint64, error) {
	var word uint64
	if err := t.objects.Word.Lookup(uint32(0), &word); err != nil {
		return 0, fmt.Errorf("read the word of the program that fetches and adds: %w", err)
	}
	return word, nil
}

// Close gives the program up. A link keeps it as long as it is attached.
func (t *Target) Close() error { return t.objects.Close() }
