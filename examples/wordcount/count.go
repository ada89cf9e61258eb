package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/rma"
)

// Places in the control window of rank 0, in elements of 8 bytes.
const (
	nextChunk = 0 // the next chunk to hand out
	wordsDone = 1 // words counted so far, for the progress line
	controls  = 2
)

// counter is one rank's part in the count.
type counter struct {
	corpus  *corpus
	table   *table
	control *rma.Win
	words   map[string]*word // every word that this rank has met, and where its slot is
}

// run counts the corpus with all ranks. Rank 0 reads the result, holds it against
// a count of its own, and reports. It is collective.
func run(ctx context.Context, node *rma.Node, c *corpus, slots int64, out io.Writer) error {
	world := node.World()
	if err := sameCorpus(ctx, node, c); err != nil {
		return err
	}
	table, err := newTable(ctx, world, slots)
	if err != nil {
		return err
	}
	control, err := rma.Allocate(ctx, world, controls*8, 8, nil)
	if err != nil {
		return err
	}
	n := &counter{corpus: c, table: table, control: control, words: map[string]*word{}}
	// One epoch for everything: it lets each rank access all others, shared.
	if err := errors.Join(table.win.LockAll(ctx, 0), control.LockAll(ctx, 0)); err != nil {
		return err
	}
	stop := func() {}
	if node.Rank() == 0 {
		stop = n.showProgress(ctx, out)
	}
	err = n.count(ctx)
	stop()
	if err != nil {
		return err
	}
	// Each rank has flushed before this barrier, so after it the table is complete.
	if err := world.Barrier(ctx); err != nil {
		return err
	}
	var wrong error
	if node.Rank() == 0 {
		wrong = report(ctx, node, c, table, out)
	}
	err = errors.Join(table.win.UnlockAll(ctx), control.UnlockAll(ctx))
	if err == nil {
		err = errors.Join(control.Free(ctx), table.win.Free(ctx))
	}
	return errors.Join(wrong, err)
}

// sameCorpus checks that all ranks see the same files: chunks go by number.
func sameCorpus(ctx context.Context, node *rma.Node, c *corpus) error {
	mine := fmt.Sprintf("%016x", c.print)
	all, err := node.World().AllgatherBytes(ctx, []byte(mine))
	if err != nil {
		return err
	}
	for rank, theirs := range all {
		if string(theirs) != mine {
			return fmt.Errorf("rank %d sees other files than rank %d", rank, node.Rank())
		}
	}
	return nil
}

// count takes chunks from the common counter until there are no more.
func (n *counter) count(ctx context.Context) error {
	one, chunk := int64(1), int64(0)
	for {
		// The counter is an element in rank 0's memory; rank 0 does nothing for it.
		if err := n.control.FetchAndOp(buffer.Value(&one), buffer.Value(&chunk), 0, rma.At(nextChunk), rma.Sum); err != nil {
			return err
		}
		if err := n.control.Flush(ctx, 0); err != nil {
			return err
		}
		if chunk >= int64(len(n.corpus.chunks)) {
			return n.table.win.FlushAll(ctx)
		}
		if err := n.countChunk(ctx, n.corpus.chunks[chunk]); err != nil {
			return err
		}
	}
}

// countChunk counts the words of some files here, and then adds each distinct
// word once to the table.
func (n *counter) countChunk(ctx context.Context, files []string) error {
	var met []*word
	total := int64(0)
	for _, path := range files {
		text, err := readText(path)
		if err != nil {
			return err
		}
		eachWord(text, func(b []byte) {
			w := n.words[string(b)]
			if w == nil {
				w = &word{text: string(b), disp: -1}
				n.words[w.text] = w
			}
			if w.count == 0 {
				met = append(met, w)
			}
			w.count++
			total++
		})
	}
	if err := n.table.add(ctx, met); err != nil {
		return err
	}
	return n.control.Accumulate(buffer.Value(&total), 0, rma.At(wordsDone), rma.Sum)
}

// showProgress prints a line a second until the function that it returns is called.
func (n *counter) showProgress(ctx context.Context, out io.Writer) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-quit:
				return
			case <-ticker.C:
			}
			var now [controls]int64
			if n.control.GetAccumulate(buffer.Buffer{}, buffer.Of(now[:]), 0, rma.At(0), rma.NoOp) != nil || n.control.Flush(ctx, 0) != nil {
				return // the count itself meets the same error
			}
			chunks := len(n.corpus.chunks)
			fmt.Fprintf(out, "chunk %d of %d, %d words\n", min(int(now[nextChunk]), chunks), chunks, now[wordsDone])
		}
	}()
	return func() { close(quit); <-done }
}
