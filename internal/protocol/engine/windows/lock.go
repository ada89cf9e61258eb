package windows

import (
	"github.com/xdprma/xdprma/mpierr"

	"github.com/xdprma/xdprma/window"
)

// Lock is the lock of one window at its owner (section 11.5.3). Requests are
// granted in the order they came: a shared request waits behind an exclusive
// one that waits, so nobody starves; but Pass does not wait behind those. A holder
// is whatever key the caller gives an origin, a new one for each incarnation; it
// holds the lock or waits for it once at most, which bounds the queue by the number
// of holders. T is what the caller notes with a request, which the lock gives back when the
// request is granted, and for as long as it holds or waits.
//
// The zero value is a free lock. With Share it is the owner's side of a lock that
// other processes of the host take without asking.
type Lock[T any] struct {
	word   *LockWord            // nil if the lock is not shared
	gone   func(index int) bool // reports who has died
	closed bool                 // word is

	nodes     map[uint64]*node[T] // every holder that holds or waits
	exclusive bool                // held exclusively, by one
	holders   list[T]
	queue     list[T]
	free      *node[T] // nodes to use again, linked by next
}

// Grant is a request that waited and now holds the lock.
type Grant[T any] struct {
	Holder uint64
	Ticket T
}

type node[T any] struct {
	Grant[T]
	kind       window.LockType
	waits      bool // stands in the queue, not among the holders
	prev, next *node[T]
}

// Share makes word part of a lock that nobody holds. gone reports which processes,
// by their index, hold it no more when they are found to: the owner has taken them for
// dead, though they may not know.
func (l *Lock[T]) Share(word *LockWord, gone func(index int) bool) { l.word, l.gone = word, gone }

// Acquire asks for the lock. It returns true if holder holds it from now on, and
// false if the request waits; a later call of Release or Drop then returns its
// grant. Classes: Locktype; RMASync if holder holds the lock or waits already.
func (l *Lock[T]) Acquire(holder uint64, kind window.LockType, ticket T) (granted bool, class mpierr.Class) {
	return l.acquire(holder, kind, ticket, false)
}

// Pass is Acquire of the shared lock, ahead of requests that wait. Otherwise two lock_all
// epochs, each holding the lock of one target, could wait for each other behind exclusive
// requests.
func (l *Lock[T]) Pass(holder uint64, ticket T) (granted bool, class mpierr.Class) {
	return l.acquire(holder, window.LockShared, ticket, true)
}

func (l *Lock[T]) acquire(holder uint64, kind window.LockType, ticket T, passing bool) (granted bool, class mpierr.Class) {
	if !kind.Valid() {
		return false, mpierr.Locktype
	}
	if l.nodes[holder] != nil {
		return false, mpierr.RMASync
	}
	n := l.newNode()
	n.Holder, n.Ticket, n.kind = holder, ticket, kind
	l.nodes[holder] = n
	if (l.queue.head == nil || passing) && l.admits(kind) {
		l.hold(n)
		return true, mpierr.Success
	}
	n.waits = true
	if passing {
		l.queue.insert(nil, n, l.queue.head)
	} else {
		l.queue.insert(l.queue.tail, n, nil)
	}
	if l.word == nil || l.closed {
		return false, mpierr.Success
	}
	// Whoever had the word may have given it up before it was closed, and tells nobody.
	l.word.close()
	l.closed = true
	l.evict()
	if !l.admits(kind) {
		return false, mpierr.Success
	}
	l.queue.remove(n)
	l.hold(n)
	l.reopen()
	return true, mpierr.Success
}

// Release gives the lock up, appends to granted the requests that hold it now,
// in the order they came, and returns the extended slice. The class is RMASync
// if holder does not hold the lock; a request that waits is not affected.
func (l *Lock[T]) Release(holder uint64, granted []Grant[T]) ([]Grant[T], mpierr.Class) {
	n := l.nodes[holder]
	if n == nil || n.waits {
		return granted, mpierr.RMASync
	}
	return l.remove(n, granted), mpierr.Success
}

// Drop forgets a holder that died or gave up, whether it holds the lock, waits
// or is unknown, and returns the grants that follow, as Release does.
func (l *Lock[T]) Drop(holder uint64, granted []Grant[T]) []Grant[T] {
	n := l.nodes[holder]
	if n == nil {
		return granted
	}
	return l.remove(n, granted)
}

// Holders returns the number of holders, which is 1 if the lock is held exclusively.
func (l *Lock[T]) Holders() int {
	if l.exclusive {
		return 1
	}
	return l.holders.n
}

// Waiting returns the number of requests that wait.
func (l *Lock[T]) Waiting() int { return l.queue.n }

// EachHolder calls f with the ticket of each request that holds the lock, the oldest first.
func (l *Lock[T]) EachHolder(f func(ticket *T)) { l.holders.each(f) }

// EachWaiter calls f with the ticket of each request that waits, in order.
func (l *Lock[T]) EachWaiter(f func(ticket *T)) { l.queue.each(f) }

// Waiter returns the ticket of holder's request if that waits, nil if not.
func (l *Lock[T]) Waiter(holder uint64) *T {
	if n := l.nodes[holder]; n != nil && n.waits {
		return &n.Ticket
	}
	return nil
}

// Block takes a lock that is free for nobody, until Unblock; it returns false if it
// is not free.
func (l *Lock[T]) Block() bool {
	if l.word != nil {
		l.evict()
	}
	if l.queue.head != nil || !l.admits(window.LockExclusive) {
		return false
	}
	l.exclusive = true
	return true
}

// evict takes the word from processes that have died.
func (l *Lock[T]) evict() {
	l.word.Holders(func(index int) {
		if index != ownerIndex && l.gone(index) {
			l.word.Give(index)
		}
	})
}

// Unblock ends what Block began, and returns the grants that follow, as Release does.
func (l *Lock[T]) Unblock(granted []Grant[T]) []Grant[T] {
	l.exclusive = false
	l.give()
	return l.Retry(granted)
}

// Retry returns the grants that follow from what other processes have given up, as
// Release does.
func (l *Lock[T]) Retry(granted []Grant[T]) []Grant[T] {
	for l.queue.head != nil && l.admits(l.queue.head.kind) {
		first := l.queue.head
		l.queue.remove(first)
		l.hold(first)
		granted = append(granted, first.Grant)
	}
	l.reopen()
	return granted
}

// reopen lets other processes take the lock again once nobody waits here.
func (l *Lock[T]) reopen() {
	if l.closed && l.queue.head == nil {
		l.closed = false
		l.word.open()
	}
}

// give gives the word up once nobody here holds the lock.
func (l *Lock[T]) give() {
	if l.word != nil && l.Holders() == 0 {
		l.word.Give(ownerIndex)
	}
}

// admits reports whether a request of this kind is compatible with the holders,
// and takes the word for it, which the caller then holds.
func (l *Lock[T]) admits(kind window.LockType) bool {
	switch {
	case l.exclusive || kind == window.LockExclusive && l.holders.n > 0:
		return false
	case l.holders.n > 0 || l.word == nil:
		return true
	}
	return l.word.take(ownerIndex, kind, 0)
}

func (l *Lock[T]) hold(n *node[T]) {
	n.waits = false
	l.exclusive = n.kind == window.LockExclusive
	l.holders.insert(l.holders.tail, n, nil)
}

// remove forgets n and grants what its departure makes possible.
func (l *Lock[T]) remove(n *node[T], granted []Grant[T]) []Grant[T] {
	delete(l.nodes, n.Holder)
	if n.waits {
		l.queue.remove(n)
	} else {
		l.holders.remove(n)
		l.exclusive = false // if it was, n was the only holder
		l.give()
	}
	*n = node[T]{next: l.free}
	l.free = n
	return l.Retry(granted)
}

func (l *Lock[T]) newNode() *node[T] {
	if l.nodes == nil {
		l.nodes = make(map[uint64]*node[T])
	}
	n := l.free
	if n == nil {
		return new(node[T])
	}
	l.free, n.next = n.next, nil
	return n
}

// list is a list of requests, in order.
type list[T any] struct {
	head, tail *node[T]
	n          int
}

func (q *list[T]) each(f func(*T)) {
	for n := q.head; n != nil; n = n.next {
		f(&n.Ticket)
	}
}

// insert puts n between two neighbours; nil is an end.
func (q *list[T]) insert(prev, n, next *node[T]) {
	q.link(prev, n)
	q.link(n, next)
	q.n++
}

func (q *list[T]) remove(n *node[T]) {
	q.link(n.prev, n.next)
	n.prev, n.next = nil, nil
	q.n--
}

// link makes b follow a; nil is an end.
func (q *list[T]) link(a, b *node[T]) {
	if a == nil {
		q.head = b
	} else {
		a.next = b
	}
	if b == nil {
		q.tail = a
	} else {
		b.prev = a
	}
}
