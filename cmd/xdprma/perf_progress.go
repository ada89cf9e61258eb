package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// perfProgress says on the error stream what is being measured, if that is a
// terminal. The line is overwritten.
type perfProgress struct {
	total, done int
	terminal    bool
}

func newPerfProgress(total int) *perfProgress {
	_, err := unix.IoctlGetTermios(int(os.Stderr.Fd()), unix.TCGETS)
	return &perfProgress{total: total, terminal: err == nil}
}

// next says that the next step has begun.
func (p *perfProgress) next(name string) {
	p.done++
	if p.terminal {
		fmt.Fprintf(os.Stderr, "\r\033[K[%d/%d] %s", p.done, p.total, name)
	}
}

// clear makes room for other output.
func (p *perfProgress) clear() {
	if p.terminal {
		fmt.Fprint(os.Stderr, "\r\033[K")
	}
}
