package poller

import (
	"context"
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// TestUseAfterClose uses the engine once Close has unmapped the memory of the device, as a
// call does that was under way: it ends, and leaves that memory and the device alone.
func TestUseAfterClose(t *testing.T) {
	for name, use := range map[string]func(p *Poller) error{
		"wait":       func(p *Poller) error { p.Lock(); return p.WaitLocked(context.Background(), &flag{}) },
		"a met wait": func(p *Poller) error { met := &flag{}; met.Store(true); return p.Wait(context.Background(), met) },
		"an old session": func(p *Poller) error {
			e := p.Lock()
			e.Session(1).Expect()
			p.Tick()
			p.Unlock()
			return net.ErrClosed
		},
		"a new session": func(p *Poller) error { dial(p, 2); return net.ErrClosed },
		"goodbye":       func(p *Poller) error { p.Lock().Bye(""); p.Unlock(); return net.ErrClosed },
	} {
		t.Run(name, func(t *testing.T) {
			d := newStage(t)
			mem, err := unix.Mmap(-1, 0, len(d.facts.Slab.Mem), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
			if err != nil {
				t.Fatal(err)
			}
			d.facts.Slab.Mem = mem
			d.closing = func() {
				if err := unix.Munmap(mem); err != nil {
					t.Error(err)
				}
			}
			p := newStaged(t, d, Config{})
			dial(p, 1) // its hello is with the device, and due again soon
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			testenv.Await(t, "something is due", func() bool { return p.Now() > p.deadline.Load() })
			if err := use(p); !errors.Is(err, net.ErrClosed) {
				t.Errorf("got %v", err)
			}
		})
	}
}
