// Command peers knows which tests MPI libraries and xdprma have in common, and
// prints their figures beside each other. run.sh, which measures, calls it:
//
//	peers list             the tests, one a line: ranks in each of two
//	                       namespaces, name, bytes, window, name in xdprma perf
//	peers table MTU DIR [OUT]  the table of what lies in the files figures, ours and
//	                       failures of DIR; into OUT the same as JSON
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, args []string) error {
	switch {
	case len(args) == 1 && args[0] == "list":
		return list(out)
	case (len(args) == 3 || len(args) == 4) && args[0] == "table":
		mtu, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		c, err := read(args[2])
		if err != nil {
			return err
		}
		if err := c.print(out, mtu); err != nil || len(args) == 3 {
			return err
		}
		return save(c, mtu, args[3])
	}
	return errors.New("usage: peers list, or peers table MTU DIR [OUT]; cmd/peers/run.sh calls both")
}

// list prints the tests that run.sh is to run.
func list(out io.Writer) error {
	for _, t := range tests {
		each := max(t.ranks/2, 1)
		if _, err := fmt.Fprintln(out, each, t.theirs(), max(t.bytes, least), max(t.window, 1), t.ours()); err != nil {
			return err
		}
	}
	return nil
}

// read reads the three files of run.sh.
func read(dir string) (*comparison, error) {
	c := newComparison()
	for _, f := range []struct {
		name string
		line func(string) error
	}{{"figures", c.peer}, {"ours", c.own}, {"failures", c.failure}} {
		in, err := os.Open(filepath.Join(dir, f.name))
		if err != nil {
			return nil, err
		}
		err = lines(in, f.line)
		in.Close()
		if err != nil {
			return nil, err
		}
	}
	return c, nil
}

func save(c *comparison, mtu int, name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(c.json(f, mtu), f.Close())
}
