package main

import (
	"context"
	"fmt"
	"os"

	"github.com/urfave/cli/v3"

	"github.com/xdprma/xdprma/internal/protocol/secure"
)

const keyDescription = `Prints a random key for a job whose ranks are on several hosts:
  xdprma key > job.key
If the standard output is a file, nobody but its owner can read it from then on.
Give the file to all ranks, and to nobody else, and its name by XDPRMA_KEY_FILE.`

func keyCommand() *cli.Command {
	return &cli.Command{
		Name:        "key",
		Usage:       "make a key, by which the ranks of a job know each other",
		Description: keyDescription,
		Action: func(_ context.Context, c *cli.Command) error {
			if c.Args().Present() {
				return usageError("key takes no argument, and was given %q", c.Args().First())
			}
			return printKey(os.Stdout)
		},
	}
}

// printKey writes a new key to a file. A file that a shell has made for it may be open to all.
func printKey(out *os.File) error {
	if info, err := out.Stat(); err == nil && info.Mode().IsRegular() {
		if err := out.Chmod(0o600); err != nil {
			return fmt.Errorf("others may read the file, so no key was written: %w", err)
		}
	}
	_, err := fmt.Fprintln(out, secure.NewKey().Text())
	return err
}
