// Command progress carries out a `go test` and says what it does: a line for each package as soon as
// it is done, and before it the output of one that failed, as `go test` has them; every ten seconds, which packages
// run, with the test of each that has run for longest; and at the end a summary. `go test` itself holds a package's
// line back until the packages before it are done. The exit status is that of `go test`.
//
//	go tool progress go test ./...
//
// Beside it, still.sh says of any other command that it is still at work.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// every is how often to say what runs.
const every = 10 * time.Second

func main() {
	if len(os.Args) < 3 || os.Args[2] != "test" {
		fmt.Fprintln(os.Stderr, "usage: progress go test ARGUMENTS")
		os.Exit(2)
	}
	// The terminal sends these to go test too. It ends with its tests, and tells of them.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGQUIT)
	status, err := run(os.Args[1:], time.Tick(every), os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "progress:", err)
	}
	os.Exit(status)
}

// run carries out a go test, follows it, and returns its exit status.
func run(args []string, ticks <-chan time.Time, out, status io.Writer) (int, error) {
	c := exec.Command(args[0], slices.Insert(slices.Clone(args[1:]), 1, "-json")...)
	c.Stderr = os.Stderr
	stream, err := c.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := c.Start(); err != nil {
		return 1, err
	}
	p := progress{begin: time.Now(), packages: map[string]*tests{}}
	for _, a := range args {
		if strings.HasPrefix(a, module) {
			p.total++
		}
	}
	err = p.follow(stream, ticks, out, status)
	ended := c.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](ended); ok {
		return max(1, exit.ExitCode()), err // -1 if a signal ended it
	}
	if err = errors.Join(err, ended); err != nil {
		return 1, err
	}
	return 0, nil
}

// follow reads what go test -json writes until it ends. It prints to out what go test would, and to
// status, at each tick, what runs.
func (p *progress) follow(stream io.Reader, ticks <-chan time.Time, out, status io.Writer) error {
	lines, failed := make(chan []byte, 64), make(chan error, 1)
	go func() {
		defer close(lines)
		r := bufio.NewReader(stream)
		for {
			line, err := r.ReadBytes('\n')
			if len(line) > 0 {
				lines <- line
			}
			if err != nil {
				failed <- err
				return
			}
		}
	}()
	for {
		select {
		case line, more := <-lines:
			if !more {
				io.WriteString(status, p.summary(time.Now()))
				if err := <-failed; err != io.EOF {
					return err
				}
				return nil
			}
			var e event
			if json.Unmarshal(line, &e) != nil {
				out.Write(line) // go test itself says something
				continue
			}
			io.WriteString(out, p.add(e, time.Now()))
		case now := <-ticks:
			io.WriteString(status, p.status(now))
		}
	}
}
