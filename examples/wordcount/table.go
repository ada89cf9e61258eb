package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/rma"
)

// A table is a hash table of words and counts that is spread over the windows of
// all ranks. Every rank enters words in every other rank's part with one-sided
// operations only: no rank ever answers for its part.
//
// A slot is 64 bytes: a tag, the count, the word's length and its letters. A tag
// goes through free, claimed and the word's hash, in this order and never back:
//
//  1. claim: CompareAndSwap of the tag from free to claimed. One rank wins.
//  2. write: the winner Puts length and letters, and flushes.
//  3. publish: the winner replaces the tag by the hash.
//
// A rank that finds the hash may therefore read the letters; one that finds
// claimed reads the tag again until it is published. Step 3 must not overtake
// step 2, which is what the flush between them is for. The tag is only ever
// accessed with atomic operations, the letters only with Put and Get.
type table struct {
	win   *rma.Win
	ranks int
	slots int64 // of each rank
}

const (
	slotBytes = 64
	tagAt     = 0
	countAt   = 8
	textAt    = 16 // one byte of length, then the letters
	textBytes = 1 + maxWord

	free    = 0
	claimed = 1
	hashed  = 1 << 63 // set in every tag that is a hash
)

// newTable makes a table of that many slots on each rank. It is collective.
func newTable(ctx context.Context, c *comm.Comm, slots int64) (*table, error) {
	win, err := rma.Allocate(ctx, c, int(slots*slotBytes), 1, nil)
	return &table{win: win, ranks: c.Size(), slots: slots}, err
}

// word is what a rank knows of one word.
type word struct {
	text  string
	count int64 // occurrences not yet added to the table
	rank  int   // where its slot is
	disp  int64 // of its slot; -1 until it has been found
}

func (w *word) at(field int64) rma.Location { return rma.At(w.disp + field) }

// add adds the counts of words to the table, and sets them to zero. Slots of
// words seen for the first time are found first, all together.
func (t *table) add(ctx context.Context, words []*word) error {
	if err := t.find(ctx, words); err != nil {
		return err
	}
	for _, w := range words {
		if err := t.win.Accumulate(buffer.Value(&w.count), w.rank, w.at(countAt), rma.Sum); err != nil {
			return err
		}
		w.count = 0 // the origin buffer is ours again
	}
	return nil
}

// step is what a search does next.
type step int

const (
	claim step = iota
	write
	publish
	compare
	found
)

// search is the way of one word to its slot.
type search struct {
	*word
	next   step
	hash   uint64
	tried  int64  // slots that hold other words
	old    uint64 // result of the claim
	text   [textBytes]byte
	result [textBytes]byte
}

// find finds or makes the slots of words that have none yet. All searches take a
// step at a time together, so that a round costs one flush and not one a word.
func (t *table) find(ctx context.Context, words []*word) error {
	var active []*search
	for _, w := range words {
		if w.disp < 0 {
			active = append(active, t.begin(w))
		}
	}
	for len(active) > 0 {
		for _, s := range active {
			if err := t.issue(s); err != nil {
				return err
			}
		}
		if err := t.win.FlushAll(ctx); err != nil {
			return err
		}
		going := active[:0]
		for _, s := range active {
			if err := t.advance(s); err != nil {
				return err
			}
			if s.next != found {
				going = append(going, s)
			}
		}
		active = going
	}
	return nil
}

// begin prepares the search for w at the slot that its hash names.
func (t *table) begin(w *word) *search {
	s := &search{word: w, hash: hash(w.text)}
	w.rank = int(s.hash % uint64(t.ranks))
	w.disp = t.firstSlot(s.hash) * slotBytes
	s.text[0] = byte(len(w.text))
	copy(s.text[1:], w.text)
	return s
}

// firstSlot spreads hashes over the slots by their upper bits.
func (t *table) firstSlot(hash uint64) int64 {
	upper, _ := bits.Mul64(hash<<1, uint64(t.slots)) // the highest bit is the same in all
	return int64(upper)
}

var (
	freeTag    uint64 = free
	claimedTag uint64 = claimed
)

// issue starts the operation of the next step; the flush completes it.
func (t *table) issue(s *search) error {
	switch s.next {
	case claim:
		return t.win.CompareAndSwap(buffer.Value(&claimedTag), buffer.Value(&freeTag), buffer.Value(&s.old), s.rank, s.at(tagAt))
	case write:
		return t.win.Put(buffer.Bytes(s.text[:]), s.rank, s.at(textAt))
	case publish:
		return t.win.Accumulate(buffer.Value(&s.hash), s.rank, s.at(tagAt), rma.Replace)
	default:
		return t.win.Get(buffer.Bytes(s.result[:]), s.rank, s.at(textAt))
	}
}

// advance decides from the outcome of a step which one is next.
func (t *table) advance(s *search) error {
	switch {
	case s.next == claim && s.old == free:
		s.next = write
	case s.next == claim && s.old == claimed:
		// Another rank is writing: look again.
	case s.next == claim && s.old == s.hash:
		s.next = compare
	case s.next == write:
		s.next = publish
	case s.next == publish, s.next == compare && s.result == s.text:
		s.next = found
	default:
		return t.probe(s)
	}
	return nil
}

// probe goes on to the next slot of the same rank.
func (t *table) probe(s *search) error {
	if s.tried++; s.tried == t.slots {
		return fmt.Errorf("the table is full: all %d slots of rank %d are taken (-slots sets their number)", t.slots, s.rank)
	}
	s.next = claim
	s.disp = (s.disp/slotBytes + 1) % t.slots * slotBytes
	return nil
}

// hash returns the tag of a word. All ranks must agree on it.
func hash(text string) uint64 {
	// FNV-1a, with a final mix because its upper bits alone are poor.
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	h ^= h >> 32
	h *= 0x9e3779b97f4a7c15
	return h | hashed
}

// read returns all words of the table with their counts. Nobody may add
// meanwhile. It reads the ranks' parts in pieces.
func (t *table) read(ctx context.Context) (map[string]int64, error) {
	counts := map[string]int64{}
	piece := make([]byte, min(t.slots, 1<<14)*slotBytes)
	for rank := range t.ranks {
		for at := int64(0); at < t.slots*slotBytes; at += int64(len(piece)) {
			part := piece[:min(int64(len(piece)), t.slots*slotBytes-at)]
			if err := t.win.Get(buffer.Bytes(part), rank, rma.At(at)); err != nil {
				return nil, err
			}
			if err := t.win.Flush(ctx, rank); err != nil {
				return nil, err
			}
			for ; len(part) > 0; part = part[slotBytes:] {
				if tag := binary.LittleEndian.Uint64(part[tagAt:]); tag == free {
					continue
				}
				text := string(part[textAt+1 : textAt+1+int(part[textAt])])
				if _, twice := counts[text]; twice {
					return nil, fmt.Errorf("%q has two slots", text)
				}
				counts[text] = int64(binary.LittleEndian.Uint64(part[countAt:]))
			}
		}
	}
	return counts, nil
}
