package vmtests

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/rma"
)

// self is a rank as its program sees it.
type self struct {
	ctx   context.Context
	node  *rma.Node
	world *comm.Comm
	rank  int
	size  int
	in    *bufio.Reader
}

// programs are what ranks can run. Each has joined the job when it is called.
var programs = map[string]func(*self) error{}

// runProgram is main of a rank. It returns the exit status.
func runProgram(name string) int {
	ctx := context.Background() // the test ends what hangs
	limits := rma.Limits{}
	limits.DeadAfter, _ = time.ParseDuration(os.Getenv(envDeadAfter))
	node, err := rma.Join(ctx, rma.Config{Limits: limits})
	if err != nil {
		fmt.Println("join:", err)
		return 3
	}
	if err := confine(); err != nil {
		fmt.Println("confine:", err)
		return 4
	}
	s := &self{ctx: ctx, node: node, world: node.World(), rank: node.Rank(), size: node.Size(), in: bufio.NewReader(os.Stdin)}
	fmt.Println("joined", node.Mode())
	fmt.Println("pid", os.Getpid())
	program, known := programs[name]
	if !known {
		fmt.Println("unknown program", name)
		return 4
	}
	err = program(s)
	c := counters{Mode: node.Mode()}
	c.Stats = node.Stats()
	text, _ := json.Marshal(c)
	fmt.Println("counters", string(text))
	if err != nil {
		fmt.Println("failed:", err)
	}
	if err := node.Close(); err != nil {
		fmt.Println("close:", err)
		return 5
	}
	if err != nil {
		return 1
	}
	return 0
}

// listen waits for a line from the test.
func (s *self) listen(want string) error {
	line, err := s.in.ReadString('\n')
	if err != nil {
		return err
	}
	if line = strings.TrimSpace(line); line != want {
		return fmt.Errorf("the test said %q, not %q", line, want)
	}
	return nil
}

// lines returns a channel of the lines that the test says from now on.
func (s *self) lines() <-chan string {
	said := make(chan string)
	go func() {
		for {
			line, err := s.in.ReadString('\n')
			if err != nil {
				return // nobody will ever say anything
			}
			said <- strings.TrimSpace(line)
		}
	}()
	return said
}

// all runs steps until one fails.
func all(steps ...func() error) error {
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

// lookupEnv is os.LookupEnv, for what a test tells a program.
func lookupEnv(name string) (string, bool) { return os.LookupEnv(name) }
