package seat

// Rest is the state of a sleeper in the kernel and those who may wake it, so that a
// system call wakes it only if it sleeps, and no wake is lost on the way to sleep. Its
// zero value says that nobody sleeps.
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
