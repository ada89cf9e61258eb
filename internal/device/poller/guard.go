package poller

import (
	"fmt"
	"runtime/debug"
	"time"
)

// A lock that is held whenever somebody looks, so often and with such pauses between, will never be given back.
// Others hold it for microseconds, or while a device is closed.
const (
	looksAtLock  = 200
	betweenLooks = 10 * time.Millisecond
)

// Guard is deferred by functions that use the engine. After a panic with its lock held nobody knows the engine's state,
// and the lock is never given back. A caller that recovers, as servers do for each request, would
// leave a rank that hangs, and its peers would learn of that by silence. So Guard ends the process with the text of the
// panic, which nothing recovers then, and the launcher tells the peers at once. Other panics, as those of a handler of the program, go on.
// A function under a Guard does not defer the engine's Unlock: that would send what a broken engine has.
func (p *Poller) Guard() {
	why := recover()
	if why == nil {
		return
	}
	if p != nil && p.lockIsLost() {
		die(why)
	}
	panic(why)
}

// lockIsLost reports that nobody will ever give the lock back.
func (p *Poller) lockIsLost() bool {
	for range looksAtLock { // and not until some time has passed: the process may be stopped meanwhile
		if p.mu.TryLock() {
			p.mu.Unlock()
			return false
		}
		time.Sleep(betweenLooks)
	}
	return true
}

// guardSeat is Guard for functions that have the seat or are inside, which nobody would give back either.
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
