// Chapter runs the examples of the standard's one-sided chapter on the ranks of a
// job, and checks what each of them promises:
//
//	xdprma run -n 4 -- ./chapter all
//	xdprma run -n 2 -- ./chapter 11.13 11.20
//
// Without an argument it lists them. Where the chapter shows what is not
// guaranteed, the corrected program runs, and its comment says what is wrong with
// the other one. In examples of two processes, A is rank 0 and B is rank 1; other
// ranks take part in what is collective.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/rma"
)

// example is a program that all ranks of a communicator run. It calls check and
// equal for what must hold.
type example struct {
	number string // in the chapter
	shows  string
	run    func(ctx context.Context, c *comm.Comm)
}

var examples = []example{
	{"11.1", "indirect assignment: one get a process, with derived datatypes", gatherByDatatype},
	{"11.2", "indirect assignment: one get an element", gatherByElement},
	{"11.3", "sums by an indirect index, with accumulate", sumByIndex},
	{"11.4", "start, put, complete", startPutComplete},
	{"11.5", "lock, put, unlock", lockPutUnlock},
	{"11.6", "a store that others read: under the owner's lock", storeUnderLock},
	{"11.7", "a store before a barrier: with sync", storeBeforeBarrier},
	{"11.8", "a load of what others put: under the owner's lock", loadUnderLock},
	{"11.9", "a load after a barrier: with sync", loadAfterBarrier},
	{"11.10", "a store before a lock: with sync", storeBeforeLock},
	{"11.11", "an update while exposed: by put", updateWhileExposed},
	{"11.12", "a read while exposed: by get, or after wait", readWhileExposed},
	{"11.13", "relaxation: fences and puts", relaxByFenceAndPut},
	{"11.14", "relaxation: fences and gets, while the core is computed", relaxByFenceAndGet},
	{"11.15", "relaxation: post, start, puts, complete, wait", relaxByPostAndPut},
	{"11.16", "relaxation: the same with gets, while the core is computed", relaxByPostAndGet},
	{"11.17", "two arrays that take turns, without handshakes", checkerboard},
	{"11.18", "a counting semaphore", semaphore},
	{"11.19", "a critical region of two processes, by Peterson", peterson},
	{"11.20", "a critical region of many, by compare and swap", spinLock},
	{"11.21", "stores to shared memory, and messages: with sync", sharedStores},
	{"11.22", "requests that overlap transfers with computation", pipeline},
	{"11.23", "a linked list in dynamic windows of all processes", linkedList},
}

func main() {
	limit := flag.Duration("limit", time.Minute, "how long the examples may take")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "chapter [-limit time] all | number ...")
		for _, e := range examples {
			fmt.Fprintf(flag.CommandLine.Output(), "  %-6s %s\n", e.number, e.shows)
		}
	}
	flag.Parse()
	chosen, err := choose(flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		flag.Usage()
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), *limit)
	defer cancel()
	if err := start(ctx, chosen); err != nil {
		fmt.Fprintln(os.Stderr, "chapter:", err)
		os.Exit(1)
	}
}

// choose returns the examples with the given numbers, or all.
func choose(numbers []string) ([]example, error) {
	if slices.Equal(numbers, []string{"all"}) {
		return examples, nil
	}
	if len(numbers) == 0 {
		return nil, fmt.Errorf("chapter: which example?")
	}
	var chosen []example
	for _, number := range numbers {
		i := slices.IndexFunc(examples, func(e example) bool { return e.number == number })
		if i < 0 {
			return nil, fmt.Errorf("chapter: there is no example %s", number)
		}
		chosen = append(chosen, examples[i])
	}
	return chosen, nil
}

// start joins the job that the environment describes and runs the examples.
func start(ctx context.Context, chosen []example) error {
	node, err := rma.Join(ctx, rma.Config{})
	if err != nil {
		return err
	}
	if err := runAll(ctx, node, chosen, os.Stdout); err != nil {
		node.Abort(1, err) // says why, here and to the others
	}
	return node.Close()
}

// runAll runs examples on the world communicator, up to the first that fails.
// Rank 0 says what it has run.
func runAll(ctx context.Context, node *rma.Node, chosen []example, out io.Writer) error {
	if node.Rank() != 0 {
		out = io.Discard
	}
	if node.Size() < 2 {
		return fmt.Errorf("the examples take two ranks or more, not one (xdprma run -n 2)")
	}
	for _, e := range chosen {
		if err := e.try(ctx, node.World()); err != nil {
			return fmt.Errorf("example %s, rank %d: %w", e.number, node.Rank(), err)
		}
		fmt.Fprintf(out, "%-6s %s\n", e.number, e.shows)
	}
	fmt.Fprintf(out, "chapter: OK examples=%d ranks=%d mode=%s\n", len(chosen), node.Size(), node.Mode())
	return nil
}

// failure is what check and equal panic with, so that the examples are not hidden
// behind the handling of errors.
type failure struct{ err error }

// try runs an example and returns what check or equal did not accept. No rank
// returns without an error before all have succeeded.
func (e *example) try(ctx context.Context, c *comm.Comm) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case failure:
			err = v.err
		default:
			panic(v)
		}
	}()
	e.run(ctx, c)
	return c.Barrier(ctx)
}

// check ends the example if err is not nil.
func check(err error) {
	if err != nil {
		panic(failure{fmt.Errorf("%s: %w", caller(), err)})
	}
}

// equal ends the example unless got is what was promised.
func equal[T comparable](got, promised T) {
	if got != promised {
		panic(failure{fmt.Errorf("%s: got %v, not %v", caller(), got, promised)})
	}
}

// caller names the line that has called check or equal.
func caller() string {
	_, file, line, _ := runtime.Caller(2)
	return fmt.Sprintf("%s:%d", filepath.Base(file), line)
}
