package comm

import (
	"github.com/xdprma/xdprma/internal/attribute"
	"github.com/xdprma/xdprma/internal/protocol/calls/collective"
	"github.com/xdprma/xdprma/mpierr"
)

// Keyval is a key of its own under which values of type T are cached with
// communicators (MPI_Comm_create_keyval). Any number of communicators may hold a
// value under it. It needs no freeing.
type Keyval[T any] struct{ key attribute.Key }

// NewKeyval returns a new key. If copied is not nil, it is called when a
// communicator that has a value is duplicated, and returns the duplicate's value;
// with ok false, or without copied, the duplicate gets none. If deleted is not nil,
// it is called with a communicator and the value that is about to go: by Delete, by
// Set for the former value, and when the communicator ends.
func NewKeyval[T any](copied func(c *Comm, value T) (copy T, ok bool, err error), deleted func(c *Comm, value T) error) *Keyval[T] {
	k := &Keyval[T]{}
	if copied != nil {
		k.key.Copy = func(c, value any) (any, bool, error) {
			v, ok, err := copied(c.(*Comm), *value.(*T))
			return &v, ok, err
		}
	}
	if deleted != nil {
		k.key.Delete = func(c, value any) error { return deleted(c.(*Comm), *value.(*T)) }
	}
	return k
}

// Set caches value with c (MPI_Comm_set_attr). It replaces a former value, once the
// key's callback has deleted that. Classes: ErrOther if the callback fails: then
// the former value stays; ErrComm after Comm.Free.
func (k *Keyval[T]) Set(c *Comm, value T) (err error) {
	defer c.handle(&err)
	if c.freed.Load() {
		return errFreed("set_attr")
	}
	return callbackError("set_attr", c.attributes.Set(c, &k.key, &value))
}

// Get returns the value that is cached with c (MPI_Comm_get_attr); ok is false if
// there is none.
func (k *Keyval[T]) Get(c *Comm) (value T, ok bool) {
	if v, ok := c.attributes.Get(&k.key); ok {
		return *v.(*T), true
	}
	return value, false
}

// Delete removes the value that is cached with c, if there is one
// (MPI_Comm_delete_attr). Class: ErrOther if the key's callback fails: then the value
// stays.
func (k *Keyval[T]) Delete(c *Comm) (err error) {
	defer c.handle(&err)
	return callbackError("delete_attr", c.attributes.Delete(c, &k.key))
}

// callbackError returns the error of a callback of the program as that of a call.
func callbackError(op string, err error) error {
	if err == nil {
		return nil
	}
	return mpierr.New(op, mpierr.Other, mpierr.NoRank, "the callback of an attribute: %w", err)
}

// SetName gives the communicator a name for messages and tools (MPI_Comm_set_name).
// It is local.
func (c *Comm) SetName(name string) { c.name.Store(&name) }

// Name returns the communicator's name (MPI_Comm_get_name): that of the world is
// MPI_COMM_WORLD, that of rma.Node.Self MPI_COMM_SELF, others have none, unless they were
// given one.
func (c *Comm) Name() string {
	if name := c.name.Load(); name != nil {
		return *name
	}
	switch {
	case c.members.Context == collective.WorldContext:
		return "MPI_COMM_WORLD"
	case c.self:
		return "MPI_COMM_SELF"
	}
	return ""
}
