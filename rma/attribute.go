package rma

import (
	"github.com/xdprma/xdprma/internal/attribute"
)

// Keyval is a key of its own under which values of type T are cached with windows
// (MPI_Win_create_keyval). Any number of windows may hold a value under it. It
// needs no freeing.
type Keyval[T any] struct{ key attribute.Key }

// NewKeyval returns a new key. If deleted is not nil, it is called with a window
// and the value that is about to go: by Delete, by Set for the former value, and
// by Win.Free before the window ends, the youngest value first. There is no copy
// callback: a duplicate has no attributes.
func NewKeyval[T any](deleted func(w *Win, value T) error) *Keyval[T] {
	k := &Keyval[T]{}
	if deleted != nil {
		k.key.Delete = func(w, value any) error { return deleted(w.(*Win), *value.(*T)) }
	}
	return k
}

// Set caches value with w (MPI_Win_set_attr). It replaces a former value, once
// the key's callback has deleted that. Classes: ErrWin; ErrOther if the callback
// fails: then the former value stays.
func (k *Keyval[T]) Set(w *Win, value T) (err error) {
	defer w.handle(&err)
	if err := w.alive("set_attr"); err != nil {
		return err
	}
	return callbackError("set_attr", w.attributes.Set(w, &k.key, &value))
}

// Get returns the value that is cached with w (MPI_Win_get_attr); ok is false if
// there is none.
func (k *Keyval[T]) Get(w *Win) (value T, ok bool) {
	if v, ok := w.attributes.Get(&k.key); ok {
		return *v.(*T), true
	}
	return value, false
}

// Delete removes the value that is cached with w, if there is one
// (MPI_Win_delete_attr). Classes: ErrWin; ErrOther if the key's callback fails:
// then the value stays.
func (k *Keyval[T]) Delete(w *Win) (err error) {
	defer w.handle(&err)
	if err := w.alive("delete_attr"); err != nil {
		return err
	}
	return callbackError("delete_attr", w.attributes.Delete(w, &k.key))
}

// callbackError returns the error of a callback of the program as that of a call.
func callbackError(op string, err error) error {
	if err == nil {
		return nil
	}
	return newError(op, ErrOther, NoRank, "the callback of an attribute: %w", err)
}

// SetName gives the window a name for messages and tools (MPI_Win_set_name). It is
// local. Class: ErrWin.
func (w *Win) SetName(name string) (err error) {
	defer w.handle(&err)
	w.poller.Lock()
	defer w.poller.UnlockQuiet()
	if err := w.epochs.Usable("set_name"); err != nil {
		return err
	}
	w.own.SetName(name)
	return nil
}

// Name returns the window's name, empty if it was given none (MPI_Win_get_name).
func (w *Win) Name() string {
	w.poller.Lock()
	defer w.poller.UnlockQuiet()
	return w.own.Name()
}

// alive returns nil unless the window has been freed.
func (w *Win) alive(op string) error {
	w.poller.Lock()
	defer w.poller.UnlockQuiet()
	return w.epochs.Usable(op)
}
