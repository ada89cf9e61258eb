package agent

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/xdprma/xdprma/mpierr"
)

// Limits are what each user may have of a server; 0: as much as there is. Memory counts until the kernel has freed
// it, also after its rank has left.
type Limits struct {
	Ranks    int   // in one network namespace
	Memory   int64 // bytes of windows and tables, in one network namespace
	Switches int   // in all network namespaces, and how many of these it may have ranks or memory in
}

// owner is who a rank belongs to.
type owner struct {
	user       uint32
	dev, inode uint64 // of the network namespace
}

// accounts is what owners have.
type accounts struct {
	limits Limits

	mu   sync.Mutex // guards what follows
	each map[owner]*account
}

type account struct {
	ranks  int
	memory int64 // of maps, and what is reserved
	maps   map[ebpf.MapID]int64
	rests  time.Time // until when prune does nothing
}

// enter counts one more rank.
func (a *accounts) enter(o owner) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.each[o]
	if c == nil {
		if n := a.elsewhere(o.user); a.limits.Switches > 0 && n >= a.limits.Switches {
			return refuse("user %d has ranks or memory in %d other network namespaces, and may be at as many interfaces", o.user, n)
		}
		c = &account{maps: map[ebpf.MapID]int64{}}
		a.each[o] = c
	}
	if a.limits.Ranks > 0 && c.ranks >= a.limits.Ranks {
		return refuse("user %d has %d ranks in this network namespace, as many as the agent allows", o.user, c.ranks)
	}
	c.ranks++
	return nil
}

// leave ends what enter began. Accounts without ranks stay for as long as there is memory.
func (a *accounts) leave(o owner) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.each[o].ranks--
	a.tidy()
}

// tidy forgets the accounts of owners that have nothing any more.
func (a *accounts) tidy() {
	for o, c := range a.each {
		if c.ranks > 0 {
			continue
		}
		if c.prune(); len(c.maps) == 0 && c.memory == 0 {
			delete(a.each, o)
		}
	}
}

// elsewhere returns in how many network namespaces a user has something.
func (a *accounts) elsewhere(user uint32) (n int) {
	a.tidy()
	for o := range a.each {
		if o.user == user {
			n++
		}
	}
	return n
}

// reserve counts memory that is about to be made, until release. The owner has a rank.
func (a *accounts) reserve(o owner, size int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.each[o]
	limit := a.limits.Memory
	if limit > 0 && (size > limit || c.memory > limit-size) {
		if c.prune(); size > limit || c.memory > limit-size {
			return refuse("user %d has %d of the %d bytes of memory that the agent allows in this network namespace: %d more do not fit", o.user, c.memory, limit, size)
		}
	}
	c.memory += size
	return nil
}

func (a *accounts) release(o owner, size int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.each[o].memory -= size
}

// made counts a map, until it is gone.
func (a *accounts) made(o owner, m *ebpf.Map) {
	id, err := idOf(m)
	if err != nil {
		return
	}
	size := int64(m.MaxEntries()) * int64(max(1, m.KeySize()+m.ValueSize()))
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.each[o]; c.maps[id] == 0 {
		c.maps[id] = size
		c.memory += size
	}
}

func idOf(m *ebpf.Map) (ebpf.MapID, error) {
	info, err := m.Info()
	if err != nil {
		return 0, err
	}
	id, ok := info.ID()
	if !ok {
		return 0, errors.New("the kernel does not tell its id")
	}
	return id, nil
}

// prune forgets the maps that are gone, unless it has just done so. A user may have tens of thousands, and others wait
// meanwhile: so it opens none of them, as the kernel tells the next id behind a number, and takes a small part of the time.
func (c *account) prune() {
	begin := time.Now()
	if begin.Before(c.rests) {
		return
	}
	for id, size := range c.maps {
		if next, err := ebpf.MapGetNextID(id - 1); (err == nil && next != id) || errors.Is(err, os.ErrNotExist) {
			delete(c.maps, id)
			c.memory -= size
		}
	}
	end := time.Now()
	c.rests = end.Add(pruneShare * end.Sub(begin))
}

// pruneShare is how many times as long as prune takes it then rests.
const pruneShare = 16

func refuse(format string, args ...any) error {
	return mpierr.New("enter", mpierr.NoMem, mpierr.NoRank, format, args...)
}
