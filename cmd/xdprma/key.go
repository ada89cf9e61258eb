package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/urfave/cli/v3"

	"github.com/xdprma/xdprma/internal/protocol/secure"
)

const keyDescription = `Makes a random key for a job whose ranks are on several hosts:
  xdprma key job.key
The file must not be there yet, and is made such that its owner alone can read it. Without a
name the key is printed, but not into a file that others may read, as a shell makes it.
Give the file to all ranks, and to nobody else, and its name by XDPRMA_KEY_FILE.`

func keyCommand() *cli.Command {
	return &cli.Command{
		Name:        "key",
		Usage:       "make a key, by which the ranks of a job know each other",
		ArgsUsage:   "[file]",
		Description: keyDescription,
		Action: func(_ context.Context, c *cli.Command) error {
			switch c.Args().Len() {
			case 0:
				return printKey(os.Stdout)
			case 1:
				return makeKeyFile(c.Args().First())
			}
			return usageError("key makes one file, and was also given %q", c.Args().Get(1))
		},
	}
}

// makeKeyFile writes a new key to a file that nobody has opened before.
func makeKeyFile(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w, and may have the key of a job: name another file, or remove it first", err)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(printKey(f), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// printKey writes a new key to a file, unless others may read it. To change its mode would be too
// late: they may have opened it.
func printKey(out *os.File) error {
	info, err := out.Stat()
	if err != nil {
		return err
	}
	if mode := info.Mode(); mode.IsRegular() && mode.Perm()&0o077 != 0 {
		return fmt.Errorf("others than its owner may open %s, a file of mode %#o, so no key was written: "+
			"`xdprma key FILE` makes a file for its owner alone, on a file system that keeps modes", out.Name(), mode.Perm())
	}
	_, err = fmt.Fprintln(out, secure.NewKey().Text())
	return err
}
