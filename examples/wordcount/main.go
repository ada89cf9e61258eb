// Wordcount counts the words of all text files under a folder in a hash table
// that is spread over the memory of all ranks. Run it with
//
//	xdprma run -n 4 -- wordcount [-slots n] [dir]
//
// Without dir it counts the source tree of the installed Go toolchain. Ranks take
// files from a shared counter (fetch and add), claim slots of the table with
// compare and swap, and add counts with accumulate, while the owners of the slots
// count files themselves. At the end rank 0 compares the whole table with a count
// of its own; the exit status is 1 if anything differs.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/xdprma/xdprma/rma"
)

func main() {
	slots := flag.Int64("slots", 0, "slots of the table on each rank; 0: plenty for the size of the text")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := start(ctx, flag.Arg(0), *slots); err != nil {
		fmt.Fprintln(os.Stderr, "wordcount:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, dir string, slots int64) error {
	if dir == "" {
		var err error
		if dir, err = goSource(); err != nil {
			return err
		}
	}
	c, err := openCorpus(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	node, err := rma.Join(ctx, rma.Config{})
	if err != nil {
		return err
	}
	if slots <= 0 {
		slots = defaultSlots(c.bytes, node.Size())
	}
	if err := run(ctx, node, c, slots, os.Stdout); err != nil {
		node.Abort(1, err) // says why, here and to the others
	}
	return node.Close()
}

// defaultSlots returns how many slots of each rank are plenty: even text in which
// every sixteenth word is a new one leaves the table half empty.
func defaultSlots(textBytes int64, ranks int) int64 {
	return (1<<16+textBytes/64)/int64(ranks) + 1
}

// goSource returns the folder of the Go toolchain's source.
func goSource() (string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w (or name a folder to count)", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "src"), nil
}
