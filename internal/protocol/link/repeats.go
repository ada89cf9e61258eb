package link

// Where many ranks share few processors, all are slow, and each that sends again what its peers
// have not come to yet makes them slower: without a limit, they end by doing nothing else. So timers send
// again at the expense of what arrives. A rank whose peers are all gone still does so now and then.
const (
	mostRepeats   = 64
	repeatsEarned = 10 * millisecond // for one without anything that arrives: enough for twenty sessions that back off
)

// repeats is how often timers may have something sent again.
type repeats struct {
	spent  int64 // of mostRepeats
	earned int64 // when the last one was earned by time
}

// arrived takes in that something that was sent has arrived.
func (r *repeats) arrived() { r.spent = max(0, r.spent-1) }

// take takes one, and reports whether there was one left.
func (r *repeats) take(now int64) bool {
	if n := (now - r.earned) / repeatsEarned; n > 0 {
		r.spent, r.earned = max(0, r.spent-n), r.earned+n*repeatsEarned
	}
	if r.spent == mostRepeats {
		return false
	}
	r.spent++
	return true
}
