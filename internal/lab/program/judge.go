package program

import (
	"cmp"
	"fmt"
	"slices"
)

// Judge says whether what all ranks saw of shared words, by rank, can have come of
// some order of the changes that keeps each rank's own.
func Judge(p *Program, records [][]Record) error {
	views := make([][]view, len(p.Shared))
	finals := map[int]uint64{}
	for rank, script := range p.Scripts {
		seen := map[int]*Record{}
		for i := range records[rank] {
			seen[records[rank][i].Step] = &records[rank][i]
		}
		for i := range script {
			s := &script[i]
			if s.Code != Check && (s.Code != Transfer || s.Call.Shared < 0) {
				continue
			}
			r := seen[i]
			if s.Code == Check {
				for k, n := range s.Shared {
					if r == nil || len(r.Values) != len(s.Shared) {
						return fmt.Errorf("rank %d recorded nothing in step %d", rank, i)
					}
					finals[n] = r.Values[k]
				}
				continue
			}
			if s.Call.Fetches() && (r == nil || len(r.Values) != s.Call.Result.Count) {
				return fmt.Errorf("rank %d recorded nothing in step %d, %v", rank, i, s)
			}
			views[s.Call.Shared] = append(views[s.Call.Shared], view{rank, s.Call, r})
		}
	}
	for n := range p.Shared {
		s := &p.Shared[n]
		var err error
		if s.Kind == Swapped {
			err = s.judgeSwaps(views[n], finals[n])
		} else {
			err = s.judgeCounts(p.Ranks, views[n])
		}
		if err != nil {
			return fmt.Errorf("program %d: words shared at byte %d of window %d of rank %d: %w", p.Seed, s.Offset, s.Win, s.Target, err)
		}
	}
	return nil
}

// view is a call on shared words, and what its rank saw.
type view struct {
	rank   int
	call   *Call
	record *Record // nil if it fetches nothing
}

// judgeSwaps holds the swaps that succeeded to be one chain from the word's first
// value to its last, and what the others saw to be on it.
func (s *Shared) judgeSwaps(views []view, final uint64) error {
	next, was := map[uint64]uint64{}, map[uint64]bool{s.Init[0]: true}
	for _, v := range views {
		if v.record.Values[0] != v.record.Compare {
			continue
		}
		if by, twice := next[v.record.Compare]; twice {
			return fmt.Errorf("%#x was replaced twice, by %#x and %#x", v.record.Compare, by, le.Uint64(v.call.Data))
		}
		next[v.record.Compare] = le.Uint64(v.call.Data)
	}
	last, length := s.Init[0], 0
	for value, ok := next[last]; ok; value, ok = next[last] {
		last, length = value, length+1
		was[last] = true
	}
	if length != len(next) || last != final {
		return fmt.Errorf("%d of %d swaps lead from %#x to %#x, and %#x is there", length, len(next), s.Init[0], last, final)
	}
	for _, v := range views {
		if !was[v.record.Values[0]] {
			return fmt.Errorf("rank %d saw %#x, which never was there", v.rank, v.record.Values[0])
		}
	}
	return nil
}

// state is a word as it was seen: how many changes of each rank had been made.
type state struct {
	counts  []int
	total   int
	by      int
	changed bool // by the call that saw it
}

// judgeCounts holds the states of each word that were seen to follow one another,
// and each to have just those changes of the rank that saw it which it had made.
func (s *Shared) judgeCounts(ranks int, views []view) error {
	own, states := make([][]int, ranks), make([][]state, len(s.Init))
	for r := range own {
		own[r] = make([]int, len(s.Init))
	}
	for _, v := range views {
		changes := s.Kind != Guarded && v.call.Reads() || v.call.Code == Put
		n := v.call.Where().Count
		first := v.call.Word
		for i := range n {
			if v.record == nil {
				own[v.rank][first+i]++
				continue
			}
			t, err := s.decode(first+i, v.record.Values[i], ranks)
			if err != nil {
				return fmt.Errorf("rank %d saw %w", v.rank, err)
			}
			if t.counts[v.rank] != own[v.rank][first+i] {
				return fmt.Errorf("rank %d, %v: word %d has %d of its own changes, not %d", v.rank, v.call, first+i, t.counts[v.rank], own[v.rank][first+i])
			}
			if s.Kind == Guarded && i > 0 && !slices.Equal(t.counts, states[first+i-1][len(states[first+i-1])-1].counts) {
				return fmt.Errorf("rank %d saw word %d with the changes %d and the one before with others, under the exclusive lock", v.rank, first+i, t.counts)
			}
			if changes {
				t.changed = true
				own[v.rank][first+i]++
			}
			t.by = v.rank
			states[first+i] = append(states[first+i], t)
		}
	}
	for word := range states {
		if err := inOrder(word, states[word], own); err != nil {
			return err
		}
	}
	return nil
}

func (s *Shared) decode(word int, value uint64, ranks int) (t state, err error) {
	changes := value - s.Init[word]
	if s.Kind == Flipped {
		changes = value ^ s.Init[word]
	}
	for range ranks {
		n := int(changes & (1<<fieldBits - 1))
		t.counts, t.total = append(t.counts, n), t.total+n
		changes >>= fieldBits
	}
	if changes != 0 {
		return t, fmt.Errorf("%#x in word %d, which began as %#x", value, word, s.Init[word])
	}
	return t, nil
}

// inOrder holds the states of a word, in each rank's order, to be a chain.
func inOrder(word int, states []state, own [][]int) error {
	latest := make([]int, len(own))
	for _, t := range states {
		if t.total < latest[t.by] {
			return fmt.Errorf("rank %d saw word %d with %d changes, and then with %d", t.by, word, latest[t.by], t.total)
		}
		latest[t.by] = t.total
	}
	slices.SortStableFunc(states, func(a, b state) int { return cmp.Compare(a.total, b.total) })
	before := state{counts: make([]int, len(own))}
	for i, t := range states {
		for r := range own {
			if t.counts[r] < before.counts[r] || t.counts[r] > own[r][word] {
				return fmt.Errorf("word %d was seen with the changes %d and with %d, of %d changes of rank %d in all", word, before.counts, t.counts, own[r][word], r)
			}
		}
		if i > 0 && t.changed && before.changed && t.total == before.total {
			return fmt.Errorf("ranks %d and %d changed word %d from the same value, %d changes", before.by, t.by, word, t.counts)
		}
		if before.total < t.total || !before.changed {
			before = t
		}
	}
	return nil
}
