package loader

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/xdprma/xdprma/bpf"
	"github.com/xdprma/xdprma/mpierr"
)

// Executor is one program that executes small requests for several ranks, on any number of interfaces. A Switch on
// each interface finds out whose a frame is. Each rank has tables of its own, which another process may be given: it
// cannot reach those of others by them. The process that makes an Executor owns it: no other one needs a privilege, nor can it
// enter a rank.
//
// Its methods may be called from any goroutine. Enter and Leave wait for all that runs in the kernel's network code,
// some ten milliseconds for any number of ranks at a time.
type Executor struct {
	lifetime
	mode    Mode
	spec    *ebpf.CollectionSpec
	program *ebpf.Program
	maps    bpf.SharedMaps
	spares  []*ebpf.Map // of the ranks' maps, in their order: what an index has that no rank has
	spare   *ebpf.Map   // of the chunks

	entering sync.Mutex // and leaving
	taken    []bool     // indices of ranks
}

// chunksOfRank is EXPRESS_CHUNKS of the program.
const chunksOfRank = 256

// DefaultRanks is how many ranks an Executor serves unless told otherwise.
const DefaultRanks = 256

const maxRanks = 4096

// NewExecutor loads the program, for a number of ranks at a time; 0 means DefaultRanks. It takes CAP_BPF, CAP_NET_ADMIN and
// CAP_PERFMON, some 0.1 s of processor time, and mode TCX Linux 6.6. The error has class mpierr.Unsupported if this machine
// or process cannot do it. The caller must keep the Executor and Close it.
func NewExecutor(mode Mode, ranks int) (*Executor, error) {
	if ranks == 0 {
		ranks = DefaultRanks
	}
	if ranks < 1 || ranks > maxRanks {
		return nil, mpierr.New("make an executor", mpierr.Arg, mpierr.NoRank, "%d ranks are not within 1 and %d", ranks, maxRanks)
	}
	e := &Executor{mode: mode, taken: make([]bool, ranks)}
	if err := e.load(); err != nil {
		return nil, errors.Join(mpierr.New("make an executor", mpierr.Unsupported, mpierr.NoRank, "%w", whyNoTier(err)), e.Close())
	}
	return e, nil
}

func (e *Executor) load() (err error) {
	read := bpf.LoadShared
	if e.mode == TCX {
		read = bpf.LoadSharedTCX
	}
	if e.spec, err = read(); err != nil {
		return err
	}
	if err := needsFiles(2*len(e.spec.Maps) + filesForLoading); err != nil {
		return err
	}
	ranks := uint32(len(e.taken))
	for name, m := range e.spec.Maps {
		switch {
		case name == bpf.SharedMapChunks:
			m.MaxEntries = ranks*chunksOfRank + 1
		case m.Type == ebpf.ArrayOfMaps || name == bpf.SharedMapSockets || name == bpf.SharedMapPlaces:
			m.MaxEntries = ranks
		}
	}
	if e.mode != TCX {
		for _, p := range e.spec.Programs {
			p.Flags = programFlags(e.mode)
		}
	}
	if e.mode == Native {
		if err := e.spec.Variables[bpf.SharedVarGeneric].Set(uint64(0)); err != nil {
			return err
		}
	}
	var o struct {
		bpf.SharedMaps
		Execute *ebpf.Program `ebpf:"xdprma_execute"`
	}
	options := &ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats}}
	if err := e.spec.LoadAndAssign(&o, options); err != nil {
		return err
	}
	e.program, e.maps = o.Execute, o.SharedMaps
	if err := e.maps.Executor.Put(uint32(0), e.program); err != nil {
		return fmt.Errorf("let switches call the executor: %w", err)
	}
	if e.mode == TCX {
		if err := e.canAttach(); err != nil {
			return err
		}
	}
	if e.spare, err = newSpare(e.spec, bpf.SharedMapChunks); err != nil {
		return err
	}
	e.spares, err = e.rankMaps(1)
	return err
}

// canAttach says whether this kernel has tcx, by an interface that does not exist.
func (e *Executor) canAttach() error {
	_, err := link.AttachTCX(link.TCXOptions{Interface: math.MaxInt32, Program: e.program, Attach: ebpf.AttachTCXIngress})
	if errors.Is(err, ebpf.ErrNotSupported) {
		return fmt.Errorf("tcx, which takes Linux 6.6: %w", err)
	}
	return nil
}

// Mode returns where the program runs.
func (e *Executor) Mode() Mode { return e.mode }

// tables are the maps of each rank.
var tables = []string{
	bpf.SharedMapSlots, bpf.SharedMapWindows, bpf.SharedMapAnswers, bpf.SharedMapBell, bpf.SharedMapSessions, bpf.SharedMapCounters,
}

// The places of maps in tables.
const (
	slotsTable = iota
	windowsTable
	answersTable
	bellTable
	sessionsTable
	countersTable
	numTables
)

// outer are the maps of the ranks' maps.
func (e *Executor) outer() []*ebpf.Map {
	m := &e.maps
	return []*ebpf.Map{m.Slots, m.Windows, m.Answers, m.Bell, m.Sessions, m.Counters}
}

// Memory returns how many bytes the maps of a rank have that has so many slots.
func (e *Executor) Memory(slots int) (bytes int64) {
	for _, name := range tables {
		m := e.rankMap(name, slots)
		bytes += int64(m.MaxEntries) * int64(max(1, m.KeySize+m.ValueSize)) // a ring has bytes
	}
	return bytes
}

// rankMap describes a map of a rank that has so many slots.
func (e *Executor) rankMap(name string, slots int) *ebpf.MapSpec {
	inner := e.spec.Maps[name].InnerMap.Copy()
	inner.Name = "xdprma_" + name
	switch name {
	case bpf.SharedMapSlots:
		inner.MaxEntries = uint32(slots)
	case bpf.SharedMapSessions: // a slot may be another session's before the last one is forgotten
		inner.MaxEntries = uint32(2 * slots)
	case bpf.SharedMapAnswers:
		inner.MaxEntries = answersLen(slots)
	}
	return inner
}

// rankMaps makes the maps of a rank that has so many slots.
func (e *Executor) rankMaps(slots int) (made []*ebpf.Map, err error) {
	for _, name := range tables {
		m, err := ebpf.NewMap(e.rankMap(name, slots))
		if err != nil {
			closeMaps(made)
			return nil, err
		}
		made = append(made, m)
	}
	return made, nil
}

// areMaps returns an error unless maps are such as those of a rank with so many slots.
func (e *Executor) areMaps(maps []*ebpf.Map, slots int) error {
	if len(maps) != numTables {
		return fmt.Errorf("%d maps are not the %d of a rank", len(maps), numTables)
	}
	for i, m := range maps {
		if want := e.rankMap(tables[i], slots); m.Type() != want.Type || m.KeySize() != want.KeySize || m.ValueSize() != want.ValueSize || m.MaxEntries() != want.MaxEntries {
			return fmt.Errorf("%v is not the map %s of a rank with %d slots", m, tables[i], slots)
		}
	}
	return nil
}

func closeMaps(maps []*ebpf.Map) {
	for _, m := range maps {
		_ = m.Close()
	}
}

// Entry is a rank that asks to be served.
type Entry struct {
	Switch  *Switch    // on whose interface its frames arrive
	Address netip.Addr // to which they go
	Port    uint16     // likewise
	Socket  int        // its UDP socket, bound to Address and Port; the caller has looked that it is so
	Slots   int        // sessions whose requests are executed, up to MaxSlots

	// Maps are those of a rank that another Executor has served, with so many slots, in their order; nil: it has none.
	// They are the Executor's own from then on, also if the rank may not enter.
	Maps []*ebpf.Map
}

// Member is a rank that an Executor serves, until Leave.
type Member struct {
	in     *Executor
	at     *Switch
	key    bpf.SharedPlace
	index  int
	maps   []*ebpf.Map
	chunks *chunkMap
}

// Enter lets ranks in. Members and errors have the order of entries: where there is an error, there is no member.
func (e *Executor) Enter(entries []Entry) (members []*Member, errs []error) {
	e.entering.Lock()
	defer e.entering.Unlock()
	members, errs = make([]*Member, len(entries)), make([]error, len(entries))
	for i := range entries {
		members[i], errs[i] = e.prepare(&entries[i])
	}
	if err := e.use(func() error { return e.install(slices.DeleteFunc(slices.Clone(members), isNil)) }); err != nil {
		for i, p := range members {
			if p != nil {
				errs[i] = enterError(mpierr.Unsupported, err)
				p.abandon()
				members[i] = nil
			}
		}
		return members, errs
	}
	for i, p := range members {
		if p == nil {
			continue
		}
		if errs[i] = e.use(func() error { return p.open(entries[i].Socket) }); errs[i] != nil {
			errs[i] = errors.Join(errs[i], e.use(func() error { return e.leave([]*Member{p}) }))
			members[i] = nil
		}
	}
	return members, errs
}

func isNil(p *Member) bool { return p == nil }

func enterError(class mpierr.Class, err error) error {
	return mpierr.New("enter a rank", class, mpierr.NoRank, "%w", err)
}

// prepare sees to the maps of a rank, of which no program knows yet.
func (e *Executor) prepare(entry *Entry) (p *Member, err error) {
	p = &Member{in: e, at: entry.Switch, key: placeFor(entry.Address, entry.Port), maps: entry.Maps}
	defer func() {
		if err != nil {
			closeMaps(p.maps)
			p = nil
		}
	}()
	if entry.Slots < 1 || entry.Slots > MaxSlots {
		return p, enterError(mpierr.Arg, fmt.Errorf("%d slots are not within 1 and %d", entry.Slots, MaxSlots))
	}
	if p.index = slices.Index(e.taken, false); p.index < 0 {
		return p, enterError(mpierr.NoMem, fmt.Errorf("%d ranks have entered, and there is room for no more", len(e.taken)))
	}
	if p.maps != nil {
		if err := e.areMaps(p.maps, entry.Slots); err != nil {
			return p, enterError(mpierr.Arg, err)
		}
	} else if err := e.use(func() (err error) {
		p.maps, err = e.rankMaps(entry.Slots)
		return err
	}); err != nil {
		return p, enterError(mpierr.NoMem, err)
	}
	e.taken[p.index] = true
	p.chunks = &chunkMap{use: e.use, outer: e.maps.Chunks, spare: e.spare, base: p.index * chunksOfRank, most: chunksOfRank, page: int(e.spare.ValueSize())}
	return p, nil
}

// install lets the program reach the ranks' maps.
func (e *Executor) install(members []*Member) error {
	for i, outer := range e.outer() {
		keys, values := make([]uint32, len(members)), make([]uint32, len(members))
		for k, p := range members {
			keys[k], values[k] = uint32(p.index), uint32(p.maps[i].FD())
		}
		if err := update(outer, keys, values); err != nil {
			return err
		}
	}
	return nil
}

// update sets entries of a map of maps. The kernel waits once for them all.
func update(outer *ebpf.Map, keys, values []uint32) error {
	if len(keys) == 0 {
		return nil
	}
	if _, err := outer.BatchUpdate(keys, values, nil); err != nil {
		return fmt.Errorf("update %d entries of %v: %w", len(keys), outer, err)
	}
	return nil
}

// open lets the switch find the rank.
func (p *Member) open(socket int) error {
	if err := p.in.maps.Sockets.Put(uint32(p.index), uint64(socket)); err != nil {
		return enterError(mpierr.Arg, fmt.Errorf("note file descriptor %d, its socket: %w", socket, err))
	}
	// Whoever has that place already has closed its socket and is about to leave, or its socket has given the place up: no
	// two sockets have it. But a socket may come twice.
	var before uint32
	if err := p.at.places.Lookup(&p.key, &before); err == nil && p.in.cookie(before) == p.in.cookie(uint32(p.index)) {
		return enterError(mpierr.Arg, errors.New("another rank has its socket"))
	}
	if err := p.at.places.Put(&p.key, uint32(p.index)); err != nil {
		return enterError(mpierr.NoMem, fmt.Errorf("note its address and port: %w", err))
	}
	return nil
}

// cookie returns the kernel's number of the socket of the rank with an index, 0 if it is closed.
func (e *Executor) cookie(index uint32) (cookie uint64) {
	_ = e.maps.Sockets.Lookup(index, &cookie)
	return cookie
}

// Maps returns the rank's maps, which NewShared takes. They stay valid until Leave.
func (p *Member) Maps() []*ebpf.Map { return p.maps }

// Chunks returns the memory of the rank's windows, until Leave.
func (p *Member) Chunks() Chunks { return p.chunks }

// Counters is as Program.Counters. After Leave it returns net.ErrClosed.
func (p *Member) Counters() (sums map[string]uint64, err error) {
	p.in.entering.Lock()
	defer p.in.entering.Unlock()
	if p.maps == nil {
		return nil, net.ErrClosed
	}
	names, err := counterNames()
	if err != nil {
		return nil, err
	}
	return countAll(p.maps[countersTable], names)
}

// abandon gives up what prepare made.
func (p *Member) abandon() {
	p.in.taken[p.index] = false
	closeMaps(p.maps)
	p.maps = nil
}

// Leave ends the service of ranks, whose Chunks nobody uses any more. Frames to them go on to their sockets at once.
func (e *Executor) Leave(members []*Member) error {
	e.entering.Lock()
	defer e.entering.Unlock()
	return e.use(func() error { return e.leave(members) })
}

func (e *Executor) leave(members []*Member) error {
	if len(members) == 0 {
		return nil
	}
	for _, p := range members {
		var index uint32
		if err := p.at.places.Lookup(&p.key, &index); err == nil && index == uint32(p.index) {
			_ = p.at.places.Delete(&p.key)
		}
		_ = e.maps.Sockets.Delete(uint32(p.index)) // the kernel has done it if the socket is closed
	}
	var errs []error
	for i, outer := range e.outer() {
		keys, values := make([]uint32, len(members)), make([]uint32, len(members))
		for k, p := range members {
			keys[k], values[k] = uint32(p.index), uint32(e.spares[i].FD())
		}
		errs = append(errs, update(outer, keys, values))
	}
	var keys, values []uint32
	for _, p := range members {
		for _, i := range p.chunks.installed() {
			keys, values = append(keys, uint32(i)), append(values, uint32(e.spare.FD()))
		}
	}
	keys, values = append(keys, e.maps.Chunks.MaxEntries()-1), append(values, uint32(e.spare.FD())) // as Quiesce
	if errs = append(errs, update(e.maps.Chunks, keys, values)); errors.Join(errs...) != nil {
		return errors.Join(errs...) // the indices are not given on
	}
	for _, p := range members {
		p.abandon()
	}
	return nil
}

// Close unloads the program, once its switches are closed. It may be called again.
func (e *Executor) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	closeMaps(e.spares)
	var errs []error
	if e.spare != nil {
		errs = append(errs, e.spare.Close())
	}
	if e.program != nil {
		errs = append(errs, e.program.Close(), e.maps.Close())
	}
	return errors.Join(errs...)
}
