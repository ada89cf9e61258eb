package loader

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Answers are those to this process's requests, as the program hands them over: it has looked
// whether they came as the peer has sent them, and along the path of their session. They lie in a BPF ring
// buffer, which the kernel writes and this process reads. One goroutine at a time calls Next and Release, and
// one Doze and Rise.
type Answers struct {
	fd       int
	control  []byte         // the page of consumed
	ring     []byte         // the page of produced, and the data; read only
	bell     []byte         // the memory of sleeps
	consumed *atomic.Uint64 // up to where the kernel may use the memory again
	produced *atomic.Uint64 // where it makes its next record
	sleeps   *atomic.Uint64 // 1: the program wakes who sleeps
	data     []byte         // that of the ring, twice, so that each record is in one piece
	mask     uint64         // from a position to a place in it
	next     uint64         // position of the next record
}

// A record begins with the length of the rest, and a flag while the program is at it.
const (
	recordLen  = 8
	recordBusy = 1 << 31
)

// shortLen is how many bytes of the ring most answers take: struct express_short in a record.
const shortLen = recordLen + 8 + 112

// answersLen returns the length of a ring for so many sessions, each of which has one answer on its
// way, or a few that come twice.
func answersLen(sessions int) uint32 {
	const least, most = 1 << 16, 1 << 19
	return uint32(min(max(1<<bits.Len(uint(sessions*shortLen-1)), least), most))
}

// asleepAt is where in a bell the word is that says whether its rank sleeps.
const asleepAt = 64

// newAnswers maps the ring and the bell.
func newAnswers(ring, bell *ebpf.Map) (a *Answers, err error) {
	page, size := os.Getpagesize(), int(ring.MaxEntries())
	a = &Answers{fd: ring.FD(), mask: uint64(size - 1)}
	if a.bell, err = mapShared(bell, int(bell.ValueSize())); err != nil {
		return nil, err
	}
	if a.control, err = mapShared(ring, page); err != nil {
		return nil, errors.Join(err, a.unmap())
	}
	if a.ring, err = unix.Mmap(a.fd, int64(page), page+2*size, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return nil, errors.Join(fmt.Errorf("map %v: %w", ring, err), a.unmap())
	}
	a.sleeps, a.consumed, a.produced, a.data = wordOf(a.bell[asleepAt:]), wordOf(a.control), wordOf(a.ring), a.ring[page:]
	return a, nil
}

// FD returns a descriptor that can be read, as poll has it, while there is a record that is not released.
func (a *Answers) FD() int { return a.fd }

// Next returns the payload of the next answer, nil if there is none yet. It stays until Release, and must
// not be written to.
func (a *Answers) Next() []byte {
	if a.next == a.produced.Load() {
		return nil
	}
	record := a.data[a.next&a.mask:]
	n := headOf(record).Load()
	if n&recordBusy != 0 {
		return nil
	}
	a.next += recordLen + uint64(n)
	answer := record[recordLen : recordLen+n]
	return answer[8 : 8+wordOf(answer).Load()]
}

// Release gives the memory of all answers that Next returned back to the kernel.
func (a *Answers) Release() {
	if a.next != a.consumed.Load() {
		a.consumed.Store(a.next)
	}
}

// Doze has the program wake who waits for FD from now on, until Rise. It returns false if there is a
// record by now, of which nobody will be told: then look again.
func (a *Answers) Doze() bool {
	a.sleeps.Store(1)
	return a.produced.Load() == a.consumed.Load()
}

// Rise ends what Doze began.
func (a *Answers) Rise() { a.sleeps.Store(0) }

func (a *Answers) unmap() error {
	if a == nil {
		return nil
	}
	var errs []error
	for _, mem := range []*[]byte{&a.bell, &a.control, &a.ring} {
		if *mem != nil {
			errs = append(errs, unix.Munmap(*mem))
			*mem = nil
		}
	}
	return errors.Join(errs...)
}
