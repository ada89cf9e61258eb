package seat

// Rest is the state that a sleeper in the kernel shares with the goroutines that may
// wake it. It makes two promises: a system call is spent on waking only if the sleeper
// sleeps, and no wake is lost on the way to sleep. The zero value says that nobody
// sleeps.
type Rest uint32

// The states of a Rest.
const (
	Awake  Rest = iota // nobody sleeps; the sleeper sets it when it gets up
	asleep             // in the kernel, or about to be
	woken              // the sleep that finds this ends
)

// LiesDown is for the sleeper, before it sleeps. It reports whether there is reason to.
func (r Rest) LiesDown() (Rest, bool) {
	if r == woken {
		return Awake, false
	}
	return asleep, true
}

// Wakes is for others. It reports whether the sleeper is to be told in the kernel.
func (r Rest) Wakes() (Rest, bool) { return woken, r == asleep }
