package engine

import "slices"

// line is what waits in order. Members leave from its head mostly, and sometimes from its
// middle; leaving costs no more than the way from the head.
type line[T any] struct {
	items []*T
	first int // of items; those before it have left
}

func (l *line[T]) len() int { return len(l.items) - l.first }

func (l *line[T]) empty() bool { return l.len() == 0 }

// all returns the members, until the line changes.
func (l *line[T]) all() []*T { return l.items[l.first:] }

func (l *line[T]) at(i int) *T { return l.items[l.first+i] }

func (l *line[T]) head() *T { return l.items[l.first] }

// join adds v at the end. Room that those who left have made is used again once it is
// half of all there is.
func (l *line[T]) join(v *T) {
	if len(l.items) == cap(l.items) && l.first > len(l.items)/2 {
		n := copy(l.items, l.all())
		clear(l.items[n:])
		l.items, l.first = l.items[:n], 0
	}
	l.items = append(l.items, v)
}

// leave takes member i out.
func (l *line[T]) leave(i int) *T {
	v, way := l.at(i), l.items[l.first:l.first+i+1]
	copy(way[1:], way[:i])
	way[0] = nil
	if l.first++; l.first == len(l.items) {
		l.items, l.first = l.items[:0], 0
	}
	return v
}

// drop takes out all members that leaves is true for.
func (l *line[T]) drop(leaves func(*T) bool) {
	l.items = l.items[:l.first+len(slices.DeleteFunc(l.all(), leaves))]
}
