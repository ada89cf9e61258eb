package reliable

// Liveness is whether a peer owes a sign of life, since when, and when it is to be asked for one.
// Times are in nanoseconds, on a clock that has passed zero: 0 stands for no time at all. The
// zero value belongs to a peer that owes nothing and was never heard.
type Liveness struct {
	heard   int64 // when it was last heard
	since   int64 // since when it owes; 0: it owes nothing
	askAt   int64 // when it is to be asked; 0: never
	expired int32 // timeouts since it was last heard, or began to owe

	// Of a peer that owes, and lives, but may have stopped to apply anything:
	moved  bool // it has gone on since the last look
	seenAt int64
	looks  int32 // since then
}

// expirations is how many timeouts must have passed before silence is taken for death, so that
// a pause of this process is not taken for the silence of all others.
const expirations = 3

// vainLooks is how many looks must have been in vain before a peer counts as stuck, likewise.
const vainLooks = 4

// Heard takes in that the peer was heard.
func (v *Liveness) Heard(now int64) { v.heard, v.expired = now, 0 }

// Works takes in that the peer is at work at what it owes. Timeouts go on to be counted.
func (v *Liveness) Works(now int64) { v.heard = now }

// Owes reports whether the peer owes a sign of life.
func (v *Liveness) Owes() bool { return v.since != 0 }

// Owe has the peer, which owes nothing, owe a sign of life from now on, and be asked for one
// after some patience.
func (v *Liveness) Owe(now, patience int64) { v.since, v.expired, v.askAt = now, 0, now+patience }

// Restart has the peer owe from now on: it has heard nothing before.
func (v *Liveness) Restart(now int64) { v.since = now }

// Settle ends what the peer owes.
func (v *Liveness) Settle() { v.since, v.askAt = 0, 0 }

// Expired counts a timeout.
func (v *Liveness) Expired() { v.expired++ }

// Expirations returns how many timeouts there were since the peer was last heard, or began to
// owe.
func (v *Liveness) Expirations() int32 { return v.expired }

// Ask has the peer asked at a time.
func (v *Liveness) Ask(at int64) { v.askAt = at }

// AskAt returns when the peer is to be asked, 0 if never.
func (v *Liveness) AskAt() int64 { return v.askAt }

// Due reports whether the peer is to be asked by now.
func (v *Liveness) Due(now int64) bool { return v.askAt != 0 && now >= v.askAt }

// Silence returns for how long the peer was not heard.
func (v *Liveness) Silence(now int64) int64 { return now - v.heard }

// Owing returns for how long the peer owes.
func (v *Liveness) Owing(now int64) int64 { return now - v.since }

// HeardAfter reports whether the peer was heard after a time.
func (v *Liveness) HeardAfter(t int64) bool { return v.heard > t }

// HeardSince reports whether the peer was heard after it began to owe.
func (v *Liveness) HeardSince() bool { return v.heard > v.since }

// Dead reports whether the peer, which owes, was silent for the limit.
func (v *Liveness) Dead(now, limit int64) bool {
	return v.expired >= expirations && now-max(v.since, v.heard) >= limit
}

// Moved takes in that the peer has applied something.
func (v *Liveness) Moved() { v.moved = true }

// Stuck reports whether the peer, which is looked at now and then, has applied nothing for the
// limit; busy says whether it has anything to apply.
func (v *Liveness) Stuck(now, limit int64, busy bool) bool {
	if !busy || v.moved || v.seenAt < v.since {
		v.moved, v.seenAt, v.looks = false, now, 0
		return false
	}
	v.looks++
	return v.looks >= vainLooks && now-v.seenAt >= limit
}

// Excuse has some time in which this process could do nothing not count against the peer.
func (v *Liveness) Excuse(late, now int64) {
	for _, t := range [...]*int64{&v.heard, &v.since, &v.seenAt} {
		Excuse(t, late, now)
	}
}

// Excuse moves the time t, unless it is 0, so that some time in which this process could do
// nothing does not count.
func Excuse(t *int64, late, now int64) {
	if *t != 0 {
		*t = min(*t+late, now)
	}
}
