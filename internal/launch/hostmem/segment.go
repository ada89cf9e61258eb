// Package hostmem is memory that several processes of a host map: a file without
// a name, which one of them makes and hands to the others. Nothing is left behind when
// they end, however they end.
package hostmem

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Place says where a process of the host finds a segment.
type Place struct {
	PID, FD uint32
	Size    uint64 // bytes of the segment, with its head
	Align   uint64 // of the segment's address, a power of two; at least a page
	Nonce   uint64 // what the segment begins with
	Kernel  bool   // it is a BPF array
}

// PlaceLen is the length of a marshalled Place.
const PlaceLen = 33

// Marshal returns p as bytes.
func (p *Place) Marshal() []byte {
	b := make([]byte, PlaceLen)
	le := binary.LittleEndian
	le.PutUint32(b[0:], p.PID)
	le.PutUint32(b[4:], p.FD)
	le.PutUint64(b[8:], p.Size)
	le.PutUint64(b[16:], p.Align)
	le.PutUint64(b[24:], p.Nonce)
	if p.Kernel {
		b[32] = 1
	}
	return b
}

// Unmarshal reads what Marshal has written; b is PlaceLen long.
func (p *Place) Unmarshal(b []byte) {
	le := binary.LittleEndian
	p.PID, p.FD = le.Uint32(b[0:]), le.Uint32(b[4:])
	p.Size, p.Align, p.Nonce, p.Kernel = le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:]), b[32] != 0
}

// HeadLen is the bytes at the start of a segment that belong to this package.
const HeadLen = 64

// Segment is memory that this process maps.
type Segment struct {
	place   Place
	file    int    // -1 once it is sealed
	bytes   []byte // the segment
	mapping []byte // what was mapped round it

	offering *net.UnixListener // nil if the file is not offered
	offered  chan struct{}     // closed when the offer has ended
}

// New makes a segment of size bytes of zeroes, its head included, at an address
// that is a multiple of align, a power of two. Others can open it until Seal. Pages
// take memory when they are first touched.
func New(size, align int) (*Segment, error) {
	page := os.Getpagesize()
	align = max(align, page)
	if size < HeadLen || size > math.MaxInt-align-page {
		return nil, fmt.Errorf("a segment of %d bytes: %w", size, unix.ENOMEM)
	}
	size = (size + page - 1) / page * page
	// The file reserves nothing. The probe refuses here a size that the process could
	// never have. Otherwise a signal would, at some later access.
	probe, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("a segment of %d bytes: %w", size, err)
	}
	_ = unix.Munmap(probe)
	fd, err := unix.MemfdCreate("xdprma", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	var nonce [8]byte
	_, _ = rand.Read(nonce[:]) // never fails
	s := &Segment{file: fd, place: Place{
		PID: uint32(os.Getpid()), FD: uint32(fd), Size: uint64(size), Align: uint64(align), Nonce: binary.LittleEndian.Uint64(nonce[:]),
	}}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		s.Seal()
		return nil, fmt.Errorf("%d bytes: %w", size, err)
	}
	// A file that cannot shrink cannot raise SIGBUS in a process that maps it.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sealed); err != nil {
		s.Seal()
		return nil, fmt.Errorf("sealing memory: %w", err)
	}
	if err := s.mapFile(); err != nil {
		s.Seal()
		return nil, err
	}
	copy(s.bytes, nonce[:])
	s.offer()
	return s, nil
}

const sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Open maps the segment that another process of the host, or this one, has made, and keeps
// its file until Seal. It blocks for some seconds at most, if that process has stopped.
func Open(p Place) (*Segment, error) {
	name := p.socket().Name
	fd, err := ask(&p)
	if err != nil {
		var e error
		name = fmt.Sprintf("/proc/%d/fd/%d", p.PID, p.FD)
		if fd, e = p.reopen(name); e != nil {
			return nil, fmt.Errorf("%w, and %s: %w", err, name, e)
		}
	}
	unix.CloseOnExec(fd)
	s := &Segment{place: p, file: fd}
	size, err := fileSize(fd)
	if p.Kernel {
		size, err = arraySize(fd)
	}
	if err != nil {
		s.Seal()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if size != p.Size || p.Size < HeadLen || p.Align < uint64(os.Getpagesize()) || p.Align&(p.Align-1) != 0 {
		s.Seal()
		return nil, fmt.Errorf("%s: %w", name, errOther)
	}
	if err := s.mapFile(); err != nil {
		s.Seal()
		return nil, err
	}
	if binary.LittleEndian.Uint64(s.bytes) != p.Nonce {
		_ = s.Close()
		return nil, fmt.Errorf("%s: %w", name, errOther)
	}
	return s, nil
}

// fileSize returns the bytes of a file that has its size for good; errOther for another one.
func fileSize(fd int) (size uint64, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	if seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err != nil || seals&sealed != sealed {
		return 0, errOther
	}
	return uint64(st.Size), nil
}

var errOther = errors.New("it is not the memory that was announced")

// mapFile maps the file at an aligned address.
func (s *Segment) mapFile() error {
	size, align := int(s.place.Size), int(s.place.Align)
	whole, err := unix.Mmap(-1, 0, size+align, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return fmt.Errorf("mapping %d bytes: %w", size, err)
	}
	at := int(-address(whole) & uintptr(align-1))
	s.mapping, s.bytes = whole, whole[at:at+size:at+size]
	if err := mapOver(s.bytes, s.file); err != nil {
		_ = s.Close()
		return fmt.Errorf("mapping %d bytes: %w", size, err)
	}
	return nil
}

// Place returns where others find the segment.
func (s *Segment) Place() Place { return s.place }

// Bytes returns the memory, nil once the segment is closed. The first HeadLen bytes
// belong to this package.
func (s *Segment) Bytes() []byte { return s.bytes }

// Seal ends the time in which others can open the segment, and closes its file. Processes
// that have opened it keep the memory.
func (s *Segment) Seal() {
	s.withdraw()
	if s.file >= 0 {
		_ = unix.Close(s.file)
		s.file = -1
	}
}

// Close unmaps the segment; an access is a fault from then on. A second Close does
// nothing.
func (s *Segment) Close() error {
	s.Seal()
	whole := s.mapping
	s.mapping, s.bytes = nil, nil
	if whole == nil {
		return nil
	}
	return unix.Munmap(whole)
}
