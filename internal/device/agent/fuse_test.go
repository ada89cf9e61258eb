package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// slowFile returns a file of a file system in user space. To close a copy of it takes until release is called, and may be done
// then; flushed gets a value when somebody has begun.
func slowFile(t *testing.T) (fd int, flushed chan struct{}, release func()) {
	t.Helper()
	testenv.NeedsRoot(t)
	testenv.NeedsFeature(t, testenv.FUSE)
	at := filepath.Join(t.TempDir(), "slow")
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	device, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("slow", at, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=100644,user_id=0,group_id=0", device)); err != nil {
		_ = unix.Close(device)
		t.Fatal(err)
	}
	flushed, released := make(chan struct{}, 16), make(chan struct{})
	release = sync.OnceFunc(func() { close(released) })
	var serving sync.WaitGroup
	serving.Go(func() { serveFile(device, flushed, released) })
	t.Cleanup(func() {
		release()
		_ = unix.Close(fd)
		serving.Wait()
		_ = unix.Close(device)
	})
	fd, err = unix.Open(at, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	// From here on it is there as long as copies of the file are, also if this process is killed.
	if err := errors.Join(err, unix.Unmount(at, unix.MNT_DETACH)); err != nil {
		t.Fatal(err)
	}
	return fd, flushed, release
}

// serveFile is the file system, until all copies of the file are closed.
func serveFile(device int, flushed, released chan struct{}) {
	const (
		getattr = 3
		open    = 14
		flush   = 25
		begin   = 26
		forget  = 2
	)
	le, b := binary.LittleEndian, make([]byte, 1<<20)
	for {
		if _, err := unix.Read(device, b); err != nil {
			return
		}
		unique, body := le.Uint64(b[8:]), []byte(nil)
		reply := func() {
			out := binary.LittleEndian.AppendUint32(nil, uint32(16+len(body)))
			out = append(le.AppendUint64(append(out, 0, 0, 0, 0), unique), body...)
			_, _ = unix.Write(device, out)
		}
		switch le.Uint32(b[4:]) {
		case begin: // of version 7.31, with writes of a page
			body = make([]byte, 64)
			le.PutUint32(body, 7)
			le.PutUint32(body[4:], 31)
			le.PutUint32(body[20:], 4096)
		case getattr: // a regular file
			body = make([]byte, 104)
			le.PutUint64(body[16:], 1)
			le.PutUint32(body[76:], unix.S_IFREG|0o644)
			le.PutUint32(body[80:], 1)
		case open:
			body = make([]byte, 16)
		case forget: // has no reply
			continue
		case flush:
			flushed <- struct{}{}
			go func() { <-released; reply() }()
			continue
		}
		reply()
	}
}

// A file that takes as long to close as its file system likes keeps nobody waiting but who has passed it, wherever it is
// passed, and the server can be closed.
func TestFileThatIsNotClosed(t *testing.T) {
	h := newHouse(t)
	slow, flushed, release := slowFile(t)
	socket := h.socket(t, unix.SOCK_DGRAM, h.at(7000))
	for _, test := range []struct {
		name  string
		bytes []byte
		files []int
	}{
		{"for a map", put(request{ABI: abi, Kind: enter, Interface: uint32(h.index), Slots: 4}), []int{socket, slow}},
		{"for a socket", put(request{ABI: abi, Kind: probe, Interface: uint32(h.index)}), []int{slow}},
		{"with no request", []byte("x"), []int{slow}},
		{"with an empty packet", nil, []int{slow}},
	} {
		l, err := dial(t.Context(), h.path)
		if err != nil {
			t.Fatal(err)
		}
		defer l.fail()
		if err := send(l.conn, test.bytes, test.files); err != nil {
			t.Fatal(err)
		}
		select {
		case <-flushed:
		case <-time.After(testenv.Limit):
			t.Fatalf("%s: nobody closes it", test.name)
		}
		e, err := h.enter(t, h.socket(t, unix.SOCK_DGRAM, h.at(7001)))
		if err != nil {
			t.Fatalf("%s: another rank: %v", test.name, err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		closeFiles(h.sockets[1:])
		h.sockets = h.sockets[:1]
	}
	if err := testenv.Ends(t, "closing the server", testenv.Start(h.Server.Close)); err != nil {
		t.Error(err)
	}
	release()
}
