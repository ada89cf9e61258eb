package bootstrap

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
)

// Memory is a Store within one process: what a Server keeps, and all that a job
// of one rank, or a test with its ranks in one process, needs.
type Memory struct {
	mu      sync.Mutex
	values  map[string][]byte
	final   map[string]bool // keys whose value stays
	bytes   int
	waiters map[string]*waiter
	ended   chan struct{} // closed when err is set
	err     error
}

// waiter is the calls blocked on one key.
type waiter struct {
	ready chan struct{} // closed by the Put
	calls int
}

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{
		values:  make(map[string][]byte),
		final:   make(map[string]bool),
		waiters: make(map[string]*waiter),
		ended:   make(chan struct{}),
	}
}

// Put sets key to a copy of value. It does not block.
func (m *Memory) Put(ctx context.Context, key string, value []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if len(value) > MaxValueBytes {
		return fmt.Errorf("a value of %d bytes, the longest is %d: %w", len(value), MaxValueBytes, ErrLimit)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	if m.final[key] {
		return fmt.Errorf("the value of key %q is final", key)
	}
	old, exists := m.values[key]
	grow := len(value) - len(old)
	if !exists {
		grow += len(key)
		if len(m.values) >= MaxKeys {
			return fmt.Errorf("more than %d keys: %w", MaxKeys, ErrLimit)
		}
	}
	if m.bytes+grow > MaxTotalBytes {
		return fmt.Errorf("more than %d bytes in all: %w", MaxTotalBytes, ErrLimit)
	}
	m.bytes += grow
	m.set(key, value)
	return nil
}

// finish sets key to a value that later calls of Put do not change. It is for the few
// words that the server itself has to say, whatever others have put.
func (m *Memory) finish(key string, value []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bytes += len(value) - len(m.values[key])
	m.final[key] = true
	m.set(key, value)
}

func (m *Memory) set(key string, value []byte) {
	m.values[key] = append([]byte{}, value...)
	if w := m.waiters[key]; w != nil {
		close(w.ready)
		delete(m.waiters, key)
	}
}

// Get returns a copy of the newest value of key, blocking until there is one.
func (m *Memory) Get(ctx context.Context, key string) ([]byte, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	for {
		value, w, err := m.lookup(key)
		if w == nil {
			return value, err
		}
		select {
		case <-w.ready:
		case <-m.ended:
		case <-ctx.Done():
			m.abandon(key, w)
			return nil, fmt.Errorf("waiting for key %q: %w", key, ctx.Err())
		}
	}
}

// Look returns a copy of the newest value of key, if there is one. It does not block.
func (m *Memory) Look(ctx context.Context, key string) (value []byte, found bool, err error) {
	if err := cmp.Or(checkKey(key), ctx.Err()); err != nil {
		return nil, false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	value, found = m.values[key]
	if m.err != nil || !found {
		return nil, false, m.err
	}
	return slices.Clone(value), true, nil
}

// lookup returns the value or error that a Get ends with, or what it has to wait for.
func (m *Memory) lookup(key string) ([]byte, *waiter, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return nil, nil, m.err
	}
	if value, ok := m.values[key]; ok {
		return slices.Clone(value), nil, nil
	}
	w := m.waiters[key]
	if w == nil {
		w = &waiter{ready: make(chan struct{})}
		m.waiters[key] = w
	}
	w.calls++
	return nil, w, nil
}

// abandon forgets a key that nobody waits for any more.
func (m *Memory) abandon(key string, w *waiter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w.calls--; w.calls == 0 && m.waiters[key] == w {
		delete(m.waiters, key)
	}
}

// Abort makes every present and later call return an *AbortError. It does not block.
func (m *Memory) Abort(reason string) { m.end(&AbortError{Reason: truncate(reason)}) }

// Close makes every present and later call return net.ErrClosed, unless the
// store was aborted before. It does not block.
func (m *Memory) Close() error {
	m.end(fmt.Errorf("the rendezvous store: %w", net.ErrClosed))
	return nil
}

func (m *Memory) end(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = err
		close(m.ended)
	}
}

func checkKey(key string) error {
	if key == "" || len(key) > MaxKeyBytes {
		return fmt.Errorf("a key of %d bytes, it must have 1 to %d: %w", len(key), MaxKeyBytes, ErrLimit)
	}
	return nil
}

// truncate keeps a reason within the length of a message.
func truncate(reason string) string {
	const most = 1024
	if len(reason) > most {
		return reason[:most]
	}
	return reason
}
