package loader

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/bpf"
)

// Shared is what a rank has of an Executor, which may be another process's. It takes no privilege from Linux 5.19
// on. Its methods may be called from any goroutine; after Close they return net.ErrClosed.
type Shared struct {
	lifetime
	maps  []*ebpf.Map
	names []string // of the counters
	bell  []byte   // mapped
	tier  *Tier
}

// NewShared takes a rank's maps, as Member.Maps has them, in their order, and the memory of its windows. The maps
// are its own from then on, also if it fails.
func NewShared(maps []*ebpf.Map, chunks Chunks) (s *Shared, err error) {
	s = &Shared{maps: maps}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	spec, err := bpf.LoadShared()
	if err != nil {
		return nil, err
	}
	if len(maps) != numTables {
		return nil, fmt.Errorf("%d maps are not the %d of a rank", len(maps), numTables)
	}
	for i, m := range maps {
		if want := spec.Maps[tables[i]].InnerMap; m.Type() != want.Type || m.KeySize() != want.KeySize || m.ValueSize() != want.ValueSize {
			return nil, fmt.Errorf("%v is not the map %s of this version: it has keys of %d and values of %d bytes, not %d and %d",
				m, tables[i], m.KeySize(), m.ValueSize(), want.KeySize, want.ValueSize)
		}
	}
	if s.names, err = counterNames(); err != nil {
		return nil, err
	}
	if n := maps[countersTable].MaxEntries(); int(n) != len(s.names) {
		return nil, fmt.Errorf("the executor counts %d things and this library knows %d: they are of different versions", n, len(s.names))
	}
	if s.bell, err = mapShared(maps[bellTable], int(maps[bellTable].ValueSize())); err != nil {
		return nil, err
	}
	s.tier, err = newTier(chunks, maps[slotsTable], maps[windowsTable], maps[answersTable], maps[bellTable])
	return s, err
}

// Tier returns what the rank shares with the program.
func (s *Shared) Tier() *Tier { return s.tier }

// Maps returns the rank's maps, in their order, until Close.
func (s *Shared) Maps() []*ebpf.Map { return s.maps }

// AllowSession has the program execute requests of a session, which has a slot, or NoSlot: then it
// does not. It is otherwise as Program.AllowSession.
func (s *Shared) AllowSession(id uint64, slot int) error {
	if slot < 0 {
		return nil
	}
	return s.use(func() error { return putSession(s.maps[sessionsTable], id, slot) })
}

// ForgetSession ends what AllowSession began.
func (s *Shared) ForgetSession(id uint64) {
	_ = s.use(func() error { return s.maps[sessionsTable].Delete(id) })
}

// Counters is as Program.Counters.
func (s *Shared) Counters() (sums map[string]uint64, err error) {
	err = s.use(func() error {
		sums, err = countAll(s.maps[countersTable], s.names)
		return err
	})
	return sums, err
}

// Doorbell is as Program.Doorbell.
func (s *Shared) Doorbell() *atomic.Uint64 { return wordOf(s.bell) }

// Close gives the maps up, but for the tier's tables: see Tier.Release. It may be called again.
func (s *Shared) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	closeMaps(s.maps)
	if s.bell == nil {
		return nil
	}
	return unix.Munmap(s.bell)
}
