package bootstrap

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/xdprma/xdprma/internal/lastwords"
)

// Wait is that a call of a rank has waited for another rank for long.
type Wait struct {
	Rank, For int    // who waits, and for whom
	What      string // for what, in words
	Waited    time.Duration
	Told      slog.Level // at which it is to be told of; QuietWait: not yet
}

// QuietWait is the level of a wait that is not to be told of yet: the rank that is waited for may wait
// itself, and say so a moment later.
const QuietWait = slog.LevelDebug

const (
	maxWaits     = 16  // that a rank says at a time
	maxWaitWords = 200 // bytes
	waitHead     = 4 + 4 + 8 + 1 + 1
)

// waits are what ranks say that they wait for. No rank knows by itself who keeps the others waiting: a rank that waits for
// nobody, and that others wait for, or wait for others that do.
type waits struct {
	log     *slog.Logger
	members *members

	mu   sync.Mutex
	said map[int][]Wait        // by the rank that has said it
	told map[int]time.Duration // how long it was waited for the ranks that the log has told of

	// These follow from said, and are made when needed: many ranks say at once that they still wait.
	next   chain         // nil: not made
	ends   map[int]int   // see chain.ends
	behind map[int][]int // the ranks that wait, by the one that keeps them waiting
}

func newWaits(log *slog.Logger, members *members) *waits {
	return &waits{log: log, members: members, said: map[int][]Wait{}, told: map[int]time.Duration{}}
}

// say takes in what a rank says now, in place of what it has said before, and has the log tell who keeps
// others waiting.
func (w *waits) say(from int, now []Wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	same := slices.EqualFunc(now, w.said[from], func(a, b Wait) bool {
		return a.Rank == b.Rank && a.For == b.For && a.What == b.What && a.Waited >= b.Waited
	})
	if w.said[from] = now; len(now) == 0 {
		delete(w.said, from)
	}
	if !same {
		w.next = nil
		w.forget()
	}
	if !slices.ContainsFunc(now, func(wait Wait) bool { return wait.Told > QuietWait }) {
		return
	}
	if w.next == nil {
		w.next = w.chain()
		w.ends, w.behind = w.next.ends(), map[int][]int{}
		for rank, last := range w.ends {
			w.behind[last] = append(w.behind[last], rank)
		}
		maps.DeleteFunc(w.told, func(rank int, _ time.Duration) bool { return w.behind[rank] == nil })
	}
	for _, wait := range now {
		if wait.Told > QuietWait {
			last := w.ends[wait.Rank]
			w.tell(last, wait, w.next, w.behind[last])
		}
	}
}

// forget forgets that the log has told of ranks for which nobody waits any more.
func (w *waits) forget() {
	maps.DeleteFunc(w.told, func(last int, _ time.Duration) bool {
		for _, list := range w.said {
			if slices.ContainsFunc(list, func(wait Wait) bool { return wait.For == last }) {
				return false
			}
		}
		return true
	})
}

// tell has the log say that a rank keeps others waiting, of which one is to be told of, unless that was said lately.
func (w *waits) tell(last int, wait Wait, next chain, behind []int) {
	const lately = 1.4 // times as long as then
	if told, ok := w.told[last]; ok && float64(wait.Waited) < lately*float64(told) {
		return
	}
	w.told[last] = wait.Waited
	waited := slog.Duration("waited", wait.Waited.Round(time.Millisecond))
	ctx := context.Background()
	if next[last].What != "" {
		w.log.Log(ctx, wait.Told, "ranks wait for each other", "waits", next.ring(last), waited)
		return
	}
	slices.Sort(behind)
	about := []any{"rank", last, "waiting", listRanks(behind), "for", next.at(last, behind).What, waited}
	if w.members.absent(last) {
		w.log.Warn("a rank has not joined the job, and others wait for it", append(about, "job", w.members.describe())...)
		return
	}
	w.log.Log(ctx, wait.Told, "a rank keeps others waiting, and does not wait itself", about...)
}

// chain returns for each rank that waits what it has waited for longest. The word of another rank, at which it waits for
// a lock that a third holds, goes before its own.
func (w *waits) chain() chain {
	next, byOther := chain{}, map[int]bool{}
	for from, list := range w.said {
		for _, wait := range list {
			other, rank := from != wait.Rank, wait.Rank
			if best, ok := next[rank]; !ok || other && !byOther[rank] || other == byOther[rank] && wait.Waited > best.Waited {
				next[rank], byOther[rank] = wait, other
			}
		}
	}
	return next
}

// chain has for each rank that waits which one it waits for.
type chain map[int]Wait

// ends returns for each rank that waits the one at the end of its chain, or if that ends in a ring, the lowest rank
// of the ring.
func (c chain) ends() map[int]int {
	ends := make(map[int]int, len(c))
	for rank := range c {
		var path []int
		on := map[int]bool{}
		last, known := ends[rank]
		for at := rank; !known; at = c[at].For {
			_, waits := c[at]
			switch end, ok := ends[at]; {
			case ok:
				last, known = end, true
			case !waits:
				last, known = at, true
			case on[at]:
				last, known = c.lowest(at), true
			default:
				path, on[at] = append(path, at), true
			}
		}
		for _, at := range path {
			ends[at] = last
		}
	}
	return ends
}

// lowest returns the lowest rank of a ring.
func (c chain) lowest(rank int) int {
	lowest := rank
	for at := c[rank].For; at != rank; at = c[at].For {
		lowest = min(lowest, at)
	}
	return lowest
}

// at returns what a rank is waited for longest, by those that wait.
func (c chain) at(rank int, waiting []int) (longest Wait) {
	for _, r := range waiting {
		if wait := c[r]; wait.For == rank && wait.Waited >= longest.Waited {
			longest = wait
		}
	}
	return longest
}

// ring says in words how ranks wait for each other.
func (c chain) ring(from int) string {
	const most = 8
	var text []string
	for rank := from; len(text) < most; {
		wait := c[rank]
		text = append(text, fmt.Sprintf("rank %d for rank %d: %s", rank, wait.For, wait.What))
		if rank = wait.For; rank == from {
			break
		}
	}
	return strings.Join(text, "; ")
}

// appendWaits appends what a rank waits for to b.
func appendWaits(b []byte, list []Wait) []byte {
	for _, w := range list[:min(len(list), maxWaits)] {
		words := w.What[:min(len(w.What), maxWaitWords)]
		b = binary.LittleEndian.AppendUint32(b, uint32(w.Rank))
		b = binary.LittleEndian.AppendUint32(b, uint32(w.For))
		b = binary.LittleEndian.AppendUint64(b, uint64(w.Waited))
		b = append(b, byte(int8(w.Told)), byte(len(words)))
		b = append(b, words...)
	}
	return b
}

// parseWaits reads what a rank of a job of size ranks waits for.
func parseWaits(b []byte, size int) (list []Wait, err error) {
	for len(b) > 0 {
		if len(b) < waitHead || len(b) < waitHead+int(b[waitHead-1]) || len(list) == maxWaits {
			return nil, fmt.Errorf("%w: %d bytes of what a rank waits for", errMalformed, len(b))
		}
		end := waitHead + int(b[waitHead-1])
		w := Wait{Rank: int(binary.LittleEndian.Uint32(b)), For: int(binary.LittleEndian.Uint32(b[4:])), Told: slog.Level(int8(b[16])),
			Waited: time.Duration(binary.LittleEndian.Uint64(b[8:])), What: lastwords.Of(string(b[waitHead:end]))}
		known := w.Told == QuietWait || w.Told == slog.LevelInfo || w.Told == slog.LevelWarn
		if w.Rank >= size || w.For >= size || w.Waited < 0 || !known {
			return nil, fmt.Errorf("%w: rank %d of %d waits for rank %d for %v, to be told at level %v", errMalformed, w.Rank, size, w.For, w.Waited, w.Told)
		}
		list, b = append(list, w), b[end:]
	}
	return list, nil
}
