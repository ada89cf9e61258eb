package bootstrap

import (
	"context"
	"time"
)

// drainTimeout bounds how long a rank that serves the rendezvous stays for the others.
const drainTimeout = 5 * time.Second

// Open returns the exchange that c names. It blocks until the rendezvous is
// reached, at most until ctx ends (or a minute, if ctx has no deadline).
func Open(ctx context.Context, c Config) (Store, error) {
	if c.Rendezvous == "" {
		return NewMemory(), nil
	}
	if !c.Serve {
		return Dial(ctx, c.Rendezvous, c.Token())
	}
	l, err := Listen(c.Rendezvous)
	if err != nil {
		return nil, err
	}
	s := Serve(l, c.Token())
	return &serving{Memory: s.Store(), server: s}, nil
}

// serving is the store of the rank that serves the rendezvous itself.
type serving struct {
	*Memory
	server *Server
}

// Close waits until the other ranks have closed theirs, at most five seconds,
// because the exchange ends with this process.
func (s *serving) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	s.server.drain(ctx)
	return s.server.Close()
}
