package hostmem

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A segment can also be a BPF array: memory of the kernel, which the XDP programs of the
// host's ranks reach. It cannot shrink, and is there at once.

// Adopt makes a segment of a BPF array of zeroes, whose descriptor is file, in the way that
// New does. It takes file over, also if it fails.
func Adopt(file, align int) (*Segment, error) {
	s := &Segment{file: file}
	var nonce [8]byte
	_, _ = rand.Read(nonce[:]) // never fails
	size, err := arraySize(file)
	if err != nil {
		s.Seal()
		return nil, fmt.Errorf("descriptor %d: %w", file, err)
	}
	s.place = Place{
		PID: uint32(os.Getpid()), FD: uint32(file), Size: size, Align: uint64(max(align, os.Getpagesize())),
		Nonce: binary.LittleEndian.Uint64(nonce[:]), Kernel: true,
	}
	if err := s.mapFile(); err != nil {
		s.Seal()
		return nil, err
	}
	copy(s.bytes, nonce[:])
	s.offer()
	return s, nil
}

// File returns the segment's file, -1 once it is sealed.
func (s *Segment) File() int { return s.file }

// reopen opens the file that another process has, which is called name in /proc. A BPF
// array cannot be opened so: its descriptor is taken over from the process.
func (p *Place) reopen(name string) (int, error) {
	if !p.Kernel {
		return unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	}
	process, err := unix.PidfdOpen(int(p.PID), 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(process)
	return unix.PidfdGetfd(process, int(p.FD), 0)
}

// arraySize returns the bytes of a BPF array that can be mapped, in whole pages; errOther for
// any other file. Reading it so takes no privilege, as the system call bpf may.
func arraySize(file int) (size uint64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", file))
	if err != nil {
		return 0, err
	}
	has := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if n, err := strconv.ParseUint(strings.TrimSpace(value), 0, 32); err == nil {
			has[name] = n
		}
	}
	size = has["value_size"] * has["max_entries"]
	if has["map_type"] != unix.BPF_MAP_TYPE_ARRAY || has["map_flags"]&unix.BPF_F_MMAPABLE == 0 ||
		size == 0 || size%uint64(os.Getpagesize()) != 0 {
		return 0, errOther
	}
	return size, nil
}
