package device

import (
	"fmt"
	"runtime/debug"
)

// Guard is deferred by functions that use the engine, or drive. After a panic there nobody knows the engine's state, and
// its lock or the seat is never given back. A caller that recovers, as servers do for each request, would
// leave a rank that hangs, and its peers would learn of that by silence. So Guard ends the process with the text of the
// panic, which nothing recovers then: peers learn of that at once.
func Guard() {
	if why := recover(); why != nil {
		stack := debug.Stack()
		go func() { panic(fmt.Sprintf("xdprma: panic in the engine, which ends this rank: %v\n\n%s", why, stack)) }()
		select {}
	}
}
