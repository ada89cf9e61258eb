package bootstrap

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"
)

// leaveLimit bounds how long a process waits for an earlier one with its rank to go. A
// connection ends with its process, and the server learns of it a moment later.
const leaveLimit = 2 * time.Second

// Times of a process whose connection was lost.
const (
	returnLimit = 50 * time.Millisecond // in which it opens another one, or is asked for
	askPause    = time.Second           // between two such questions
)

// members are the ranks of a job, as the server of its rendezvous knows them.
type members struct {
	now     func() time.Time
	limit   time.Duration // leaveLimit
	silence time.Duration // after which a process that nobody hears of is gone
	log     *slog.Logger
	alone   string // why other hosts do not reach the rendezvous; empty: they do
	server  int    // the rank that serves it, or noRank

	mu       sync.Mutex
	size     int // 0 until the first rank has come
	ranks    map[int]*entry
	lost     int       // connections, without a word
	reopened int       // by the process that had lost one
	refused  int       // how often a process was refused what it wanted
	refusal  string    // the last time
	told     time.Time // when the log was last told so
}

// refusalPause is the least time between two lines of the log of processes that were refused:
// whoever reaches the rendezvous can be refused as often as he likes.
const refusalPause = time.Second

// entry is one rank.
type entry struct {
	incarnation uint64   // of the last process that had this rank; 0: none
	identity    identity // of that process
	from        string   // where it is
	visit       *visit   // its connection; nil: it has none
	ended       bool     // no other process will come
	left        bool     // it has said that it leaves
	free        bool     // it has gone for certain: another may have the rank
	change      chan struct{}

	suspected time.Time // when it was lost, or was last asked for
	posted    time.Time // when members were last told to ask for it
	heard     time.Time // when somebody has last told that it answers
	silent    bool      // the rank that serves the rendezvous has told since then that it does not
}

// visit is a connection of a process.
type visit struct {
	from   string // where the process is
	hangUp func() // closes it
}

func newMembers(log *slog.Logger, silence time.Duration, server int) *members {
	return &members{now: time.Now, limit: leaveLimit, silence: silence, log: log, server: server, ranks: map[int]*entry{}}
}

// changed tells those who wait for something of the rank. It is called with the lock held.
func (r *entry) changed() {
	close(r.change)
	r.change = make(chan struct{})
}

// enter takes a process in as a rank of the job, until leave is called, and returns its
// incarnation. Two processes cannot have one rank at a time: an earlier one has some time
// to go, and one whose connection was lost is asked for first, by doubt.
func (m *members) enter(rank, size int, who identity, v *visit, doubt func(incarnation uint64), stopped <-chan struct{}) (incarnation uint64, err error) {
	begun, asked := m.now(), false
	for {
		incarnation, before, err := m.tryEnter(rank, size, who, v)
		if err != nil {
			return 0, m.refuse(rank, v.from, err.Error())
		}
		if before == nil {
			return incarnation, nil
		}
		left := m.limit - m.now().Sub(begun)
		if before.lost {
			if left = before.left; !asked && before.heard {
				asked = true
				doubt(before.incarnation)
				continue
			}
			if before.heard {
				return 0, m.refuse(rank, v.from, "another process, at "+before.from+", has this rank, and lives: its connection to the rendezvous was lost, and it answers other ranks")
			}
		} else if left <= 0 {
			return 0, m.refuse(rank, v.from, "another process, at "+before.from+", has this rank and is still connected")
		}
		select {
		case <-before.change:
		case <-time.After(max(left, 0)):
		case <-stopped:
			return 0, m.refuse(rank, v.from, "the rendezvous is being closed")
		}
	}
}

// predecessor is a process that has a rank which another one wants.
type predecessor struct {
	incarnation uint64
	from        string
	change      <-chan struct{} // closed when something changes
	lost        bool            // its connection, without a word
	heard       bool            // somebody has heard of it since it was last asked for
	left        time.Duration   // for somebody to do so
}

// tryEnter is enter without waiting: before is the process that has the rank.
func (m *members) tryEnter(rank, size int, who identity, v *visit) (incarnation uint64, before *predecessor, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.ranks[rank]
	switch {
	case m.size != 0 && size != m.size:
		return 0, nil, fmt.Errorf("it was told that the job has %d ranks, and others that it has %d", size, m.size)
	case size > MaxRanks:
		return 0, nil, fmt.Errorf("it was told that the job has %d ranks, and at most %d are possible", size, MaxRanks)
	case rank < 0 || rank >= size:
		return 0, nil, fmt.Errorf("a job of %d ranks has none of that number", size)
	case r != nil && r.ended:
		return 0, nil, errors.New("this rank has ended")
	case r != nil && !r.free:
		p := &predecessor{incarnation: r.incarnation, from: r.from, change: r.change, lost: r.visit == nil}
		p.left, p.heard = m.silence-m.now().Sub(r.suspected), !r.heard.Before(r.suspected)
		if !p.lost || p.heard || p.left > 0 {
			return 0, p, nil
		}
	case r == nil:
		r = &entry{change: make(chan struct{})}
		m.ranks[rank] = r
	}
	m.size = size
	// The clock may have been set back since the last process with this rank started.
	*r = entry{incarnation: max(r.incarnation+1, uint64(max(0, m.now().UnixNano()))), identity: who, from: v.from, visit: v, change: r.change}
	r.changed()
	return r.incarnation, nil, nil
}

// reenter takes a process in again that was admitted before, and whose connection was lost, and closes that if this rank
// does not know so yet.
func (m *members) reenter(rank int, incarnation uint64, who identity, v *visit) error {
	m.mu.Lock()
	r := m.ranks[rank]
	var why string
	switch {
	case r == nil || r.incarnation < incarnation:
		why = "the rendezvous has never admitted it"
	case r.ended:
		why = "this rank has ended"
	case r.incarnation > incarnation || r.identity != who:
		why = "another process, at " + r.from + ", has its rank now"
	}
	if why != "" {
		m.mu.Unlock()
		return m.refuse(rank, v.from, why)
	}
	before := r.visit
	r.visit, r.from, r.free = v, v.from, false
	m.reopened++
	r.changed()
	m.mu.Unlock()
	if before != nil {
		before.hangUp()
	}
	return nil
}

// leave takes in that a connection has ended, for certain because its process has, or not. It reports whether it
// was the last one of the process, and whether nobody knows what has become of that: it has not said that it leaves.
func (m *members) leave(rank int, v *visit, certain bool) (last, lost bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.ranks[rank]
	if r.visit != v {
		return false, false
	}
	r.visit, r.free = nil, r.left || certain
	if !r.free {
		m.lost++
		r.suspected, r.silent = m.now(), false
	}
	r.changed()
	return true, !r.free
}

// left takes in that a process says that it leaves, or does not join.
func (m *members) left(rank int, incarnation uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.ranks[rank]; r != nil && r.incarnation == incarnation {
		r.left = true
	}
}

// suspect takes in that a process is asked for from now on, and returns the rank that asks in any case.
func (m *members) suspect(rank int, incarnation uint64) (asker int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.ranks[rank]; r.incarnation == incarnation {
		r.suspected, r.silent = m.now(), false
		r.posted = r.suspected
		r.changed()
	}
	if asker = m.server; asker != noRank {
		return asker
	}
	for other, r := range m.ranks {
		if r.visit != nil && other != rank && (asker == noRank || other < asker) {
			asker = other
		}
	}
	return asker
}

// patience returns how long a process whose connection was lost has for another one before members are told to ask for
// it: a moment, and longer where they were told so a moment ago.
func (m *members) patience(rank int) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(returnLimit, askPause-m.now().Sub(m.ranks[rank].posted))
}

// asked takes in what a member tells of a process that it has asked.
func (m *members) asked(by, rank int, incarnation uint64, lives bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.ranks[rank]
	if r == nil || r.incarnation != incarnation {
		return
	}
	switch {
	case lives:
		r.heard = m.now()
	case by == m.server:
		r.silent = true
	default:
		return // others may hear it
	}
	r.changed()
}

// fate is what has become of a process whose connection was lost.
type fate int

const (
	unknown  fate = iota
	returned      // it has another connection, or another process has its rank, or it is over with the rank
	answers
	silent
)

// await returns what has become of a process whose connection was lost, once that is known, or unknown after a limit.
func (m *members) await(rank int, incarnation uint64, limit time.Duration, stopped <-chan struct{}) fate {
	end := time.After(limit)
	for {
		m.mu.Lock()
		r := m.ranks[rank]
		over, heard, quiet, change := r.visit != nil || r.free || r.ended || r.incarnation != incarnation, !r.heard.Before(r.suspected), r.silent, r.change
		m.mu.Unlock()
		switch {
		case over:
			return returned
		case heard:
			return answers
		case quiet:
			return silent
		}
		select {
		case <-change:
		case <-end:
			return unknown
		case <-stopped:
			return returned
		}
	}
}

// end takes in that no other process will have a rank.
func (m *members) end(rank int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ranks[rank] == nil {
		m.ranks[rank] = &entry{change: make(chan struct{})}
	}
	m.ranks[rank].ended = true
	m.ranks[rank].changed()
}

// absent reports whether no process has had a rank of the job yet.
func (m *members) absent(rank int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ranks[rank] == nil
}

// complete reports whether all ranks of the job have come.
func (m *members) complete() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.ranks) == m.size
}

// refuse is turnAway for a process that has said which rank it is, and returns what it is told.
func (m *members) refuse(rank int, from, why string) error {
	m.turnAway(fmt.Sprintf("%s as rank %d", from, rank), why)
	return fmt.Errorf("rank %d: %s", rank, why)
}

// turnAway takes in that a process was refused.
func (m *members) turnAway(from, why string) {
	m.mu.Lock()
	m.refused++
	m.refusal = fmt.Sprintf("a process at %s: %s", from, why)
	refused, now := m.refused, m.now()
	tell := now.Sub(m.told) >= refusalPause
	if tell {
		m.told = now
	}
	m.mu.Unlock()
	if tell {
		m.log.Warn("a process was turned away from the rendezvous", "process", from, "reason", why, "turned_away", refused)
	}
}

// describe says who is there and who is not, for somebody who waits.
func (m *members) describe() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var missing, left, ended []int
	for rank := range m.size {
		switch r := m.ranks[rank]; {
		case r == nil:
			missing = append(missing, rank)
		case r.ended:
			ended = append(ended, rank)
		case r.visit == nil:
			left = append(left, rank)
		}
	}
	text := fmt.Sprintf("%d of %d ranks are connected", m.size-len(missing)-len(left)-len(ended), m.size)
	for _, list := range []struct {
		name  string
		ranks []int
	}{{"never seen", missing}, {"not connected any more", left}, {"ended", ended}} {
		if len(list.ranks) > 0 {
			text += "; " + list.name + ": " + listRanks(list.ranks)
		}
	}
	if len(missing) > 0 && m.alone != "" {
		text += "; " + m.alone
	}
	if m.lost > 0 {
		text += fmt.Sprintf("; %d connections were lost, and %d opened again by the same processes", m.lost, m.reopened)
	}
	if m.refused > 0 {
		text += fmt.Sprintf("; refused %d times, the last time: %s", m.refused, m.refusal)
	}
	return text
}

// listRanks lists the first of some ranks.
func listRanks(ranks []int) string {
	const most = 16
	var b strings.Builder
	for i, rank := range ranks {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(ranks)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(rank))
	}
	return b.String()
}
