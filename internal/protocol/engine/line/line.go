// Package line holds what waits in order.
package line

import "slices"

// Line is what waits in order. Members leave from its head mostly, and sometimes from its
// middle; leaving costs no more than the way from the head.
type Line[T any] struct {
	items []*T
	first int // of items; those before it have left
}

// Len returns how many wait.
func (l *Line[T]) Len() int { return len(l.items) - l.first }

// Empty reports whether nobody waits.
func (l *Line[T]) Empty() bool { return l.Len() == 0 }

// All returns the members, until the line changes.
func (l *Line[T]) All() []*T { return l.items[l.first:] }

// At returns member i.
func (l *Line[T]) At(i int) *T { return l.items[l.first+i] }

// Head returns the first member.
func (l *Line[T]) Head() *T { return l.items[l.first] }

// Join adds v at the end. Room that those who left have made is used again once it is
// half of all there is.
func (l *Line[T]) Join(v *T) {
	if len(l.items) == cap(l.items) && l.first > len(l.items)/2 {
		n := copy(l.items, l.All())
		clear(l.items[n:])
		l.items, l.first = l.items[:n], 0
	}
	l.items = append(l.items, v)
}

// Leave takes member i out.
func (l *Line[T]) Leave(i int) *T {
	v, way := l.At(i), l.items[l.first:l.first+i+1]
	copy(way[1:], way[:i])
	way[0] = nil
	if l.first++; l.first == len(l.items) {
		l.items, l.first = l.items[:0], 0
	}
	return v
}

// Drop takes out all members that leaves is true for.
func (l *Line[T]) Drop(leaves func(*T) bool) {
	l.items = l.items[:l.first+len(slices.DeleteFunc(l.All(), leaves))]
}
