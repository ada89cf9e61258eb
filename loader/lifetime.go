package loader

import (
	"net"
	"sync"
)

// lifetime is that of what is closed once, while others may use it.
type lifetime struct {
	mu     sync.RWMutex // closing excludes all uses
	closed bool
}

// use runs f, or returns net.ErrClosed.
func (l *lifetime) use(f func() error) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return net.ErrClosed
	}
	return f()
}
