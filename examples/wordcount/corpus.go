package main

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
)

// chunkBytes is how much text is handed out at a time: enough that most words of
// a chunk occur several times and are added to the table once.
const chunkBytes = 64 << 10

// corpus is the files to count, cut into chunks of whole files.
type corpus struct {
	files  []string
	chunks [][]string // files, in pieces of about chunkBytes
	bytes  int64
	print  uint64 // a fingerprint: equal at ranks that see the same files
}

// openCorpus lists the regular files under dir, in the same order everywhere.
func openCorpus(dir string) (*corpus, error) {
	c := &corpus{}
	h := fnv.New64a()
	start, size := 0, int64(0)
	cut := func() {
		if len(c.files) > start {
			c.chunks = append(c.chunks, c.files[start:])
		}
		start, size = len(c.files), 0
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		c.files = append(c.files, path)
		c.bytes += info.Size()
		fmt.Fprintf(h, "%s %d\n", path, info.Size())
		if size += info.Size(); size >= chunkBytes {
			cut()
		}
		return nil
	})
	cut()
	if err == nil && len(c.files) == 0 {
		err = errors.New("there are no files to count")
	}
	c.print = h.Sum64()
	return c, err
}

// readText returns a file's content, or nothing if it is not text: if there is
// a zero byte in its first 8 KiB.
func readText(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil || bytes.IndexByte(b[:min(len(b), 8<<10)], 0) >= 0 {
		return nil, err
	}
	return b, nil
}
