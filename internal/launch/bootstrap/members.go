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
	now   func() time.Time
	limit time.Duration // leaveLimit
	log   *slog.Logger
	alone string // why other hosts do not reach the rendezvous; empty: they do

	mu      sync.Mutex
	size    int // 0 until the first rank has come
	ranks   map[int]*entry
	refused int       // how often a process was refused what it wanted
	refusal string    // the last time
	told    time.Time // when the log was last told so
}

// refusalPause is the least time between two lines of the log of processes that were refused:
// whoever reaches the rendezvous can be refused as often as he likes.
const refusalPause = time.Second

// entry is one rank.
type entry struct {
	incarnation uint64        // of the last process that had this rank; 0: none
	from        string        // where that process is
	gone        chan struct{} // closed when its connection ends; nil if it has ended
	ended       bool          // no other process will come
}

func newMembers(log *slog.Logger) *members {
	return &members{now: time.Now, limit: leaveLimit, log: log, ranks: map[int]*entry{}}
}

// enter takes a process in as a rank of the job, until leave is called, and returns its
// incarnation. Two processes cannot have one rank at a time: an earlier one has some time
// to go.
func (m *members) enter(rank, size int, from string, stopped <-chan struct{}) (incarnation uint64, leave func(), err error) {
	limit := time.NewTimer(m.limit)
	defer limit.Stop()
	for {
		incarnation, leave, before, err := m.tryEnter(rank, size, from)
		if err != nil {
			return 0, nil, m.refuse(rank, from, err.Error())
		}
		if before == nil {
			return incarnation, leave, nil
		}
		select {
		case <-before:
		case <-stopped:
			return 0, nil, m.refuse(rank, from, "the rendezvous is being closed")
		case <-limit.C:
			return 0, nil, m.refuse(rank, from, "another process, at "+m.place(rank)+", has this rank and is still connected")
		}
	}
}

// tryEnter is enter without waiting: before is closed when the earlier process has gone.
func (m *members) tryEnter(rank, size int, from string) (incarnation uint64, leave func(), before <-chan struct{}, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.ranks[rank]
	switch {
	case m.size != 0 && size != m.size:
		return 0, nil, nil, fmt.Errorf("it was told that the job has %d ranks, and others that it has %d", size, m.size)
	case size > MaxRanks:
		return 0, nil, nil, fmt.Errorf("it was told that the job has %d ranks, and at most %d are possible", size, MaxRanks)
	case rank < 0 || rank >= size:
		return 0, nil, nil, fmt.Errorf("a job of %d ranks has none of that number", size)
	case r != nil && r.ended:
		return 0, nil, nil, errors.New("this rank has ended")
	case r != nil && r.gone != nil:
		return 0, nil, r.gone, nil
	case r == nil:
		r = &entry{}
		m.ranks[rank] = r
	}
	m.size = size
	gone := make(chan struct{})
	// The clock may have been set back since the last process with this rank started.
	r.incarnation = max(r.incarnation+1, uint64(max(0, m.now().UnixNano())))
	r.from, r.gone = from, gone
	return r.incarnation, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		r.gone = nil
		close(gone)
	}, nil, nil
}

// end takes in that no other process will have a rank.
func (m *members) end(rank int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ranks[rank] == nil {
		m.ranks[rank] = &entry{}
	}
	m.ranks[rank].ended = true
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

func (m *members) place(rank int) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ranks[rank].from
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
		case r.gone == nil:
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
