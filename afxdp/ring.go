package afxdp

import "sync/atomic"

// desc is one entry of the receive and transmit rings, as the kernel lays it out.
type desc struct {
	addr    uint64
	length  uint32
	options uint32
}

// contd in a descriptor's options says that the frame goes on in the next one.
const contd = 1

// shared is the part of a ring that both sides see. Indices run freely over all
// of uint32 and are masked on access.
type shared[T uint64 | desc] struct {
	producer *uint32
	consumer *uint32
	flags    *uint32
	entries  []T // a power of two of them
}

func (r *shared[T]) size() uint32 { return uint32(len(r.entries)) }

// wantsWakeup reports whether the kernel asked for a system call to go on.
func (r *shared[T]) wantsWakeup() bool { return atomic.LoadUint32(r.flags)&1 != 0 }

// producer is this side of a ring that the kernel consumes: fill and transmit.
// It does not read the consumer's index: the fill ring has room for every
// chunk, and the transmit ring's index is published late, so its user counts
// completions.
type producer[T uint64 | desc] struct {
	shared[T]
	next uint32 // index of the next entry to write; those before it may be unpublished
}

// put writes one entry, which the kernel sees after publish.
func (p *producer[T]) put(v T) {
	p.entries[p.next&(p.size()-1)] = v
	p.next++
}

// publish makes all entries put so far visible to the kernel.
func (p *producer[T]) publish() { atomic.StoreUint32(p.producer, p.next) }

// consumer is this side of a ring that the kernel produces: receive and
// completion.
type consumer[T uint64 | desc] struct {
	shared[T]
	next  uint32 // index of the next entry to read
	known uint32 // the kernel's index when last looked at
}

// available returns how many entries are ready; it looks at the kernel's index
// only when the ones known of are used up.
func (c *consumer[T]) available() uint32 {
	if c.known == c.next {
		c.known = atomic.LoadUint32(c.producer)
		if c.known-c.next > c.size() {
			// No sane kernel gets here; read nothing that was not written.
			c.known = c.next
		}
	}
	return c.known - c.next
}

// get returns the next entry; there must be one available.
func (c *consumer[T]) get() T {
	v := c.entries[c.next&(c.size()-1)]
	c.next++
	return v
}

// release gives the entries read so far back to the kernel.
func (c *consumer[T]) release() { atomic.StoreUint32(c.consumer, c.next) }
