package main

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// archive writes files in the form in which Linux takes its first file system (cpio, "newc":
// Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	w     *bufio.Writer
	inode int
	made  map[string]bool // folders
	err   error
}

func newArchive(w io.Writer) *archive {
	return &archive{w: bufio.NewWriterSize(w, 1<<20), made: map[string]bool{}}
}

func (a *archive) header(name string, mode fs.FileMode, kind, size int) {
	a.inode++
	// Magic, inode, mode, user, group, links, time, size, device (2), special device (2), length
	// of the name, checksum.
	_, err := fmt.Fprintf(a.w, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", a.inode, kind|int(mode.Perm()),
		0, 0, 1, 0, size, 0, 0, 0, 0, len(name)+1, 0)
	if err == nil {
		_, err = a.w.WriteString(name + "\x00" + padding(len(name)+1+110))
	}
	a.note(err)
}

// padding follows n bytes up to a multiple of four.
func padding(n int) string { return strings.Repeat("\x00", -n&3) }

func (a *archive) note(err error) {
	if a.err == nil {
		a.err = err
	}
}

// parents adds the folders above a name.
func (a *archive) parents(name string) {
	dir := filepath.Dir(name)
	if dir == "." || a.made[dir] {
		return
	}
	a.parents(dir)
	a.made[dir] = true
	a.header(dir, 0o755, 0o040000, 0)
}

// data adds a file.
func (a *archive) data(name string, mode fs.FileMode, content []byte) {
	name = strings.TrimPrefix(name, "/")
	a.parents(name)
	a.header(name, mode, 0o100000, len(content))
	_, err := a.w.Write(content)
	a.note(err)
	_, err = a.w.WriteString(padding(len(content)))
	a.note(err)
}

// file adds a copy of a file.
func (a *archive) file(name, from string) {
	content, err := os.ReadFile(from)
	if err != nil {
		a.note(err)
		return
	}
	about, err := os.Stat(from)
	if err != nil {
		a.note(err)
		return
	}
	a.data(name, about.Mode(), content)
}

func (a *archive) link(name, to string) {
	name = strings.TrimPrefix(name, "/")
	a.parents(name)
	a.header(name, 0o777, 0o120000, len(to))
	_, err := a.w.WriteString(to + padding(len(to)))
	a.note(err)
}

// tree adds all files below a folder, in dir.
func (a *archive) tree(dir, root string) {
	a.note(filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.Join(dir, name)
		if d.Type()&fs.ModeSymlink != 0 {
			to, err := os.Readlink(path)
			a.link(name, to)
			return err
		}
		a.file(name, path)
		return a.err
	}))
}

// close ends the archive and returns the first error of all. Others may follow in the same file.
func (a *archive) close() error {
	a.header("TRAILER!!!", 0, 0, 0)
	a.note(a.w.Flush())
	return a.err
}
