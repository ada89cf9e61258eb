package device

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// Limits of a device's paths. Paths that peers make a device remember have a bound apart
// from paths that the process asks for, so that forged handshakes cannot keep the device
// from resolving an address.
const (
	maxLearned = 1 << 16 // paths when one more is learned from a handshake
	maxPaths   = 1 << 17 // paths in all
)

// teaches reports whether a frame is a handshake of the job that a device serves, from which it
// learns the way back, so that strangers cannot fill its table of paths. The engine counts those
// that are not. Where the job has a key, it asks for the way to a rank by Path, and nothing is learned:
// others can send a captured handshake.
func (b *base) teaches(payload []byte) bool {
	return !b.keyed && wire.IsHandshake(payload) && (b.job == 0 || wire.IsHandshakeOf(b.job, payload))
}

// pathTable gives each distinct way to a peer a PathID. A path is never changed
// or forgotten, so reading one takes no lock.
type pathTable[T comparable] struct {
	mu    sync.Mutex
	ids   map[T]PathID
	paths atomic.Pointer[[]*T]
}

// intern returns the id of path, or NoPath if it is new and there are limit
// paths already. It allocates only for a new path.
func (t *pathTable[T]) intern(path *T, limit int) PathID {
	t.mu.Lock()
	defer t.mu.Unlock()
	if id, known := t.ids[*path]; known {
		return id
	}
	return t.add(*path, limit)
}

func (t *pathTable[T]) add(path T, limit int) PathID {
	var paths []*T
	if t.ids == nil {
		t.ids = make(map[T]PathID)
	} else {
		paths = *t.paths.Load()
	}
	if len(paths) >= limit {
		return NoPath
	}
	id := PathID(len(paths))
	// Readers of the old slice do not look beyond its length.
	paths = append(paths, &path)
	t.paths.Store(&paths)
	t.ids[path] = id
	return id
}

// len returns how many paths there are.
func (t *pathTable[T]) len() int {
	if paths := t.paths.Load(); paths != nil {
		return len(*paths)
	}
	return 0
}

// get returns the path that id names. It panics if there is none.
func (t *pathTable[T]) get(id PathID) *T {
	if paths := t.paths.Load(); paths != nil && uint(id) < uint(len(*paths)) {
		return (*paths)[id]
	}
	panic(fmt.Sprintf("device: a frame for path %d, which the device did not give out", id))
}

// Ends returns where the frames of a path come from and arrive, for the XDP program.
func Ends(dev Device, id PathID) (peer, local express.Endpoint) {
	return endOf(dev.Peer(id)), endOf(dev.Facts().Local)
}

func endOf(a netip.AddrPort) (e express.Endpoint) {
	copy(e.IP[:], a.Addr().AsSlice())
	e.Port = a.Port()
	return e
}
