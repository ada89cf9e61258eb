package loader

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/bpf"
	"github.com/xdprma/xdprma/mpierr"
)

// Maps are the maps through which a process controls the program. They can be
// pinned, or handed as file descriptors to a process without privileges, which
// then calls FromMaps.
type Maps struct {
	Sockets  *ebpf.Map // receive queue to AF_XDP socket
	Sessions *ebpf.Map // session ids to let through
	Counters *ebpf.Map // frames by what became of them
	Config   *ebpf.Map // which frames the program was told to take; nobody writes to it
	Hellos   *ebpf.Map // which hellos it lets through; see SetJob
}

// Program is the classifier on an interface. Its methods may be called from any
// goroutine; each is a system call or a few and does not block. After Close they
// return net.ErrClosed.
//
// A Program must stay reachable while frames are expected: the program detaches
// when its link is closed or garbage-collected.
type Program struct {
	lifetime

	maps  Maps
	names []string // of the counters, by index
	local netip.AddrPort
	mode  Mode
	// These keep the program alive, too. Both are nil after FromMaps.
	link    link.Link
	objects *bpf.ClassifierObjects

	at site // where Attach has attached it

	bell []byte // mapped; nil after FromMaps

	spare  *ebpf.Map // of the chunks
	tier   *Tier     // nil if the program executes no requests
	noTier error     // then why
}

// newProgram checks that the maps are those of this version's program.
func newProgram(m Maps, mode Mode) (*Program, error) {
	names, err := counterNames()
	if err != nil {
		return nil, err
	}
	for _, want := range []struct {
		name       string
		m          *ebpf.Map
		kind       ebpf.MapType
		key, value uint32
	}{
		{bpf.ClassifierMapXsks, m.Sockets, ebpf.XSKMap, 4, 4},
		{bpf.ClassifierMapSessions, m.Sessions, ebpf.Hash, 8, 4},
		{bpf.ClassifierMapCounters, m.Counters, ebpf.PerCPUArray, 4, 8},
		{bpf.ClassifierMapConfigMap, m.Config, ebpf.Array, 4, uint32(binary.Size(bpf.ClassifierConfig{}))},
		{bpf.ClassifierMapHelloMap, m.Hellos, ebpf.Array, 4, uint32(binary.Size(bpf.ClassifierHelloConfig{}))},
	} {
		if want.m == nil {
			return nil, fmt.Errorf("map %s is missing", want.name)
		}
		if want.m.Type() != want.kind || want.m.KeySize() != want.key || want.m.ValueSize() != want.value {
			return nil, fmt.Errorf("map %s is a %v with keys of %d and values of %d bytes, not a %v with %d and %d",
				want.name, want.m.Type(), want.m.KeySize(), want.m.ValueSize(), want.kind, want.key, want.value)
		}
	}
	if n := m.Counters.MaxEntries(); int(n) != len(names) {
		return nil, fmt.Errorf("the program counts %d things and this library knows %d: they are of different versions", n, len(names))
	}
	var told bpf.ClassifierConfig
	if err := m.Config.Lookup(uint32(0), &told); err != nil {
		return nil, fmt.Errorf("read what the program was told: %w", err)
	}
	local := netip.AddrPortFrom(addressOf(told.Address), told.Ports.Base)
	return &Program{maps: m, names: names, local: local, mode: mode, noTier: errForeign}, nil
}

// counterNames reads the names of the counters out of the program's BTF.
func counterNames() ([]string, error) {
	spec, err := bpf.LoadClassifier()
	if err != nil {
		return nil, err
	}
	var counter *btf.Enum
	if err := spec.Types.TypeByName("counter", &counter); err != nil {
		return nil, err
	}
	names := make([]string, bpf.ClassifierCounterCOUNTERS)
	for _, v := range counter.Values {
		if v.Value < uint64(len(names)) {
			names[v.Value] = strings.ToLower(strings.TrimPrefix(v.Name, "COUNTER_"))
		}
	}
	return names, nil
}

// SetJob makes the program let through hellos of a job alone, with codes by a key unless that is nil, as
// Attach does by Options.Job and Options.HelloKey without limits of the caller's own. Of job 0 it is as without
// a job. A process that was lent the program may call it, too.
func (p *Program) SetJob(job uint64, key *[16]byte) error {
	o := Options{Job: job, HelloKey: key}.withHelloLimits()
	return p.use(func() error {
		if err := p.maps.Hellos.Put(uint32(0), o.hellos()); err != nil {
			return mpierr.New("set job", mpierr.Unsupported, mpierr.NoRank, "tell the XDP program which hellos to let through: %w", err)
		}
		return nil
	})
}

// SetSocket makes the program redirect frames of a receive queue to the AF_XDP
// socket fd, which must be bound to that queue of this interface. The entry
// disappears when the socket is closed; without one the frames go to the kernel.
func (p *Program) SetSocket(queue int, fd int) error {
	return p.use(func() error {
		if n := int(p.maps.Sockets.MaxEntries()); queue < 0 || queue >= n {
			return mpierr.New("set socket", mpierr.Arg, mpierr.NoRank, "queue %d is outside 0 to %d", queue, n-1)
		}
		if fd < 0 {
			return mpierr.New("set socket", mpierr.Arg, mpierr.NoRank, "file descriptor %d", fd)
		}
		if err := p.maps.Sockets.Put(uint32(queue), uint32(fd)); err != nil {
			return mpierr.New("set socket", mpierr.Unsupported, mpierr.NoRank,
				"file descriptor %d for queue %d (is it an AF_XDP socket?): %w", fd, queue, err)
		}
		return nil
	})
}

// ForgetSocket makes the program leave frames of a receive queue to the kernel. A queue
// without a socket is no error, nor is a closed Program.
func (p *Program) ForgetSocket(queue int) {
	_ = p.use(func() error { return p.maps.Sockets.Delete(uint32(queue)) })
}

// NoSlot is the slot of a session whose requests the program does not execute.
const NoSlot = -1

// AllowSession lets frames with a session id through. slot is the session's place among
// the Options.Slots, or NoSlot. To take a slot from a session, close it in the table of slots before:
// the program remembers which one a session has. AllowSession panics if id is 0, which is the id of handshakes. The limit is 65536
// sessions; beyond it the error has class mpierr.NoMem.
func (p *Program) AllowSession(id uint64, slot int) error {
	if id == 0 {
		panic("loader: AllowSession(0): session id 0 belongs to handshakes")
	}
	return p.use(func() error { return putSession(p.maps.Sessions, id, slot) })
}

func putSession(sessions *ebpf.Map, id uint64, slot int) error {
	err := sessions.Put(id, uint32(slot+1))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ENOMEM):
		return mpierr.New("open session", mpierr.NoMem, mpierr.NoRank,
			"the filter takes at most %d sessions: %w", sessions.MaxEntries(), err)
	}
	return mpierr.New("open session", mpierr.Unsupported, mpierr.NoRank, "update the filter: %w", err)
}

// ForgetSession stops frames with a session id. An id that was not allowed is
// no error, nor is a closed Program.
func (p *Program) ForgetSession(id uint64) {
	_ = p.use(func() error { return p.maps.Sessions.Delete(id) })
}

// Counters returns how many frames met each fate since the program was loaded,
// summed over the CPUs. The names are those of enum counter in bpf/counter.h, which explains
// them, in lower case without prefix: "passed", "redirected", "unknown_session".
func (p *Program) Counters() (sums map[string]uint64, err error) {
	err = p.use(func() error {
		sums, err = countAll(p.maps.Counters, p.names)
		return err
	})
	return sums, err
}

// countAll reads all counters, by their names.
func countAll(counters *ebpf.Map, names []string) (map[string]uint64, error) {
	sums := make(map[string]uint64, len(names))
	for i, name := range names {
		n, err := count(counters, i)
		if err != nil {
			return nil, fmt.Errorf("read the filter's counter %q: %w", name, err)
		}
		sums[name] = n
	}
	return sums, nil
}

// Redirected returns how many frames the program has handed to a socket, by its own account,
// save express frames. Whether they came there the program does not learn.
func (p *Program) Redirected() (n uint64, err error) {
	err = p.use(func() error {
		n, err = count(p.maps.Counters, int(bpf.ClassifierCounterCOUNTER_REDIRECTED))
		return err
	})
	return n, err
}

// count reads one counter, which is a system call.
func count(counters *ebpf.Map, i int) (sum uint64, err error) {
	var perCPU []uint64
	if err := counters.Lookup(uint32(i), &perCPU); err != nil {
		return 0, err
	}
	for _, n := range perCPU {
		sum += n
	}
	return sum, nil
}

// Doorbell returns a word that the program adds 1 to whenever it leaves a frame to the UDP
// socket of its port, shortly before it is there. It is nil after FromMaps, and must not be
// read after Close.
func (p *Program) Doorbell() *atomic.Uint64 { return wordOf(p.bell) }

// LocalAddr returns the address and UDP port whose frames the program judges. All others
// pass to the kernel.
func (p *Program) LocalAddr() netip.AddrPort { return p.local }

// Mode returns how the program runs: as Attach or FromMaps was told.
func (p *Program) Mode() Mode { return p.mode }

// Maps returns the program's maps. They belong to p and end with Close; a map
// that was cloned, pinned or passed to another process lives on, but no program
// reads it.
func (p *Program) Maps() Maps { return p.maps }

// LinkFD returns the file descriptor of the link by which the program is attached, -1 after
// FromMaps. It belongs to p, and AttachAgain replaces it. The program stays attached for as long as somebody has a duplicate.
func (p *Program) LinkFD() int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if l, ok := p.link.(interface{ FD() int }); ok {
		return l.FD()
	}
	return -1
}

// Close detaches what Attach attached, and releases everything. It may be called
// again.
func (p *Program) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	var errs []error
	if p.spare != nil {
		errs = append(errs, p.spare.Close())
	}
	if p.bell != nil {
		errs = append(errs, unix.Munmap(p.bell))
	}
	if p.link != nil {
		errs = append(errs, p.link.Close())
	}
	if p.objects != nil {
		return errors.Join(append(errs, p.objects.Close())...) // these own the maps
	}
	return errors.Join(append(errs, p.maps.close())...)
}

func (m Maps) close() error {
	return errors.Join(m.Sockets.Close(), m.Sessions.Close(), m.Counters.Close(), m.Config.Close())
}
