// Package attribute keeps the values that programs and libraries cache with a
// communicator or a window under keys of their own. Packages comm and rma give it
// types.
package attribute

import (
	"errors"
	"slices"
	"sync"
)

// Key is what a value is kept under; its address is its identity. The callbacks
// get the object that holds the value, and may be nil: then nothing is copied,
// and deleting does nothing else.
type Key struct {
	Copy   func(holder, value any) (copied any, ok bool, err error) // ok: the new object gets copied
	Delete func(holder, value any) error
}

// Set is the attributes of one object. The zero value is empty. Any goroutine may
// use it; callbacks run without its lock, so they may use it too.
type Set struct {
	mu   sync.Mutex
	list []item // in the order in which they were first set
}

type item struct {
	key   *Key
	value any
}

func (s *Set) find(k *Key) int {
	return slices.IndexFunc(s.list, func(i item) bool { return i.key == k })
}

// Get returns the value under k; ok is false if there is none.
func (s *Set) Get(k *Key) (value any, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.find(k); i >= 0 {
		return s.list[i].value, true
	}
	return nil, false
}

// Set keeps value under k. A value that is there already is deleted first; if its
// callback fails, it stays, and the error is returned.
func (s *Set) Set(holder any, k *Key, value any) error {
	if old, ok := s.Get(k); ok && k.Delete != nil {
		if err := k.Delete(holder, old); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.find(k); i >= 0 {
		s.list[i].value = value
	} else {
		s.list = append(s.list, item{k, value})
	}
	return nil
}

// Delete removes the value under k, if there is one, once its callback has
// succeeded; if that fails, the value stays, and the error is returned.
func (s *Set) Delete(holder any, k *Key) error {
	old, ok := s.Get(k)
	if ok && k.Delete != nil {
		if err := k.Delete(holder, old); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.find(k); i >= 0 {
		s.list = slices.Delete(s.list, i, i+1)
	}
	return nil
}

// CopyTo gives another object, a duplicate of holder, the values that their keys'
// callbacks pass on, in the order in which they were set. If a callback fails, what
// has been copied is deleted again, and the error is returned.
func (s *Set) CopyTo(holder, duplicate any, to *Set) error {
	s.mu.Lock()
	list := slices.Clone(s.list)
	s.mu.Unlock()
	for _, i := range list {
		if i.key.Copy == nil {
			continue
		}
		value, ok, err := i.key.Copy(holder, i.value)
		if err != nil {
			return errors.Join(err, to.Clear(duplicate))
		}
		if !ok {
			continue
		}
		if err := to.Set(duplicate, i.key, value); err != nil {
			return errors.Join(err, to.Clear(duplicate))
		}
	}
	return nil
}

// Clear removes all values, the youngest first, for an object that ends. Every
// callback runs, and their errors are returned together; the values go all the same.
func (s *Set) Clear(holder any) error {
	var errs []error
	for {
		s.mu.Lock()
		last := len(s.list) - 1
		if last < 0 {
			s.mu.Unlock()
			return errors.Join(errs...)
		}
		i := s.list[last]
		s.list = s.list[:last]
		s.mu.Unlock()
		if i.key.Delete != nil {
			errs = append(errs, i.key.Delete(holder, i.value))
		}
	}
}
