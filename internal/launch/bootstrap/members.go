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
	over        bool     // the others were told that it has ended
	free        bool     // another may have the rank
	change      chan struct{}

	// Of a process whose connection was lost:
	question uint32    // the number of the last one to members, whether it lives
	asked    time.Time // when that was
	heard    time.Time // when somebody has last told that it answers one
	quiet    time.Time // since when nobody has heard of it
	silent   bool      // it has not answered the last one of the rank that serves the rendezvous

	wanter             identity  // the process that last asked for the rank in vain
	wanted, wantedLast time.Time // when it did so first, and last
}

// visit is a connection of a process.
type visit struct {
	from   string        // where the process is
	hangUp func()        // closes it
	over   chan struct{} // closed when nothing that has come by it counts any more
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
// to go, and nobody must hear of one whose connection was lost. Until then the error is a *busy: the process comes again. doubt is called
// to have members ask for an earlier one.
func (m *members) enter(rank, size int, who identity, v *visit, doubt func(incarnation uint64)) (incarnation uint64, err error) {
	incarnation, wait, refused := m.tryEnter(rank, size, who, v)
	switch {
	case refused != nil:
		return 0, m.refuse(rank, v.from, refused.Error())
	case wait == nil:
		return incarnation, nil
	case wait.ask:
		doubt(incarnation)
	}
	return 0, wait
}

// busy is that a process is not admitted yet, and is to come again.
type busy struct {
	why string
	ask bool // whether the process that has the rank lives
}

func (b *busy) Error() string { return b.why }

// tryEnter is enter, but for the questions. With a *busy it returns the incarnation of the process that has the rank.
func (m *members) tryEnter(rank, size int, who identity, v *visit) (incarnation uint64, wait *busy, refused error) {
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
	case r != nil && r.identity == who && who != (identity{}) && !r.over && !r.left: // it has not got the answer to its hello
		if r.visit != nil {
			r.visit.hangUp()
		}
		r.visit, r.from, r.free = v, v.from, false
		r.changed()
		return r.incarnation, nil, nil
	case r != nil && !r.free:
		if over, wait := m.occupied(r, who); over {
			return 0, nil, wait
		} else if wait != nil {
			return r.incarnation, wait, nil
		}
	case r == nil:
		r = &entry{change: make(chan struct{})}
		m.ranks[rank] = r
	}
	m.size = size
	// The clock may have been set back since the last process with this rank started.
	before := r.incarnation
	*r = entry{incarnation: max(before+1, uint64(max(0, m.now().UnixNano()))), identity: who, from: v.from, visit: v, change: r.change, question: r.question}
	r.changed()
	return r.incarnation, nil, nil
}

// occupied returns why another process cannot have the rank, nil if it can, and whether it has come again for long
// enough. It is called with the lock held.
func (m *members) occupied(r *entry, by identity) (over bool, _ *busy) {
	now := m.now()
	if r.wanter != by || now.Sub(r.wantedLast) > tryTimeout+dialPauseMax {
		r.wanter, r.wanted = by, now
	}
	r.wantedLast = now
	over = now.Sub(r.wanted) > m.limit
	who := "another process, at " + r.from
	late := r.quiet.Add(m.silence / 2) // from when on it is to be asked once more
	lives := !r.asked.IsZero() && !r.heard.Before(r.asked)
	switch {
	case r.visit != nil:
		return over, &busy{why: who + ", has this rank and is still connected"}
	case lives && now.Sub(r.heard) < askPause:
		return over, &busy{why: who + ", has this rank, and lives: its connection to the rendezvous was lost, and it answers other ranks"}
	case lives, now.After(late) && r.asked.Before(late):
		return false, &busy{who + ", has this rank; its connection to the rendezvous was lost, and it is asked whether it lives", true}
	case now.Sub(r.quiet) < m.silence || now.Sub(r.asked) < max(m.silence/4, min(m.silence, answerLimit)):
		return false, &busy{why: fmt.Sprintf("%s, has this rank; its connection to the rendezvous was lost, and nobody must have heard of it for %v", who, m.silence)}
	}
	return false, nil
}

// reenter takes a process in again that was admitted before, and whose connection was lost. If this end does not know
// so yet, it closes that, and waits until nothing counts any more that came by it.
func (m *members) reenter(rank int, incarnation uint64, who identity, v *visit) error {
	m.mu.Lock()
	r := m.ranks[rank]
	var why string
	switch {
	case r == nil || r.incarnation < incarnation || rank == m.server:
		why = "the rendezvous has never admitted it"
	case r.ended:
		why = "this rank has ended"
	case r.incarnation > incarnation || r.identity != who:
		why = "another process, at " + r.from + ", has its rank now"
	case r.over:
		why = "the others were told that it has ended, as it was not heard of in time"
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
		<-before.over
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
	r.visit, r.free, r.over = nil, r.left || certain, certain && !r.left
	if !r.free {
		m.lost++
		r.quiet = m.now()
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
