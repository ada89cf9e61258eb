package device

import (
	"fmt"
	"runtime/debug"
	"time"
)

// lockLost is how long a lock is out of reach that nobody will ever give back. Others hold it for microseconds.
const lockLost = 2 * time.Second

// Guard is deferred by functions that use the engine. After a panic with its lock held nobody knows the engine's state,
// and the lock is never given back. A caller that recovers, as servers do for each request, would
// leave a rank that hangs, and its peers would learn of that by silence. So Guard ends the process with the text of the
// panic, which nothing recovers then, and the launcher tells the peers at once. Other panics, as those of a handler of the program, go on.
func (p *Poller) Guard() {
	why := recover()
	if why == nil {
		return
	}
	taken := make(chan struct{})
	go func() {
		p.mu.Lock()
		close(taken)
		p.mu.Unlock()
	}()
	select {
	case <-taken:
		panic(why)
	case <-time.After(lockLost):
		die(why)
	}
}

// guardSeat is Guard for functions that have the seat, which nobody would give back either.
func guardSeat() {
	if why := recover(); why != nil {
		die(why)
	}
}

func die(why any) {
	stack := debug.Stack()
	go func() { panic(fmt.Sprintf("xdprma: panic in the engine, which ends this rank: %v\n\n%s", why, stack)) }()
	select {}
}
