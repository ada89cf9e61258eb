package hostmem

import (
	"bytes"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

func segment(t *testing.T, size, align int) *Segment {
	t.Helper()
	s, err := New(size, align)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestMappingsShareMemoryUntilTheLastIsClosed writes at one mapping and reads at another,
// also after the file has been closed.
func TestMappingsShareMemoryUntilTheLastIsClosed(t *testing.T) {
	segment(t, 100, 0).Close() // what the runtime opens once and for all
	files := testenv.OpenFiles(t)
	for _, align := range []int{0, 1 << 12, 1 << 21} {
		a := segment(t, 5000, align)
		var p Place
		here := a.Place()
		p.Unmarshal(here.Marshal())
		if p != here || len(here.Marshal()) != PlaceLen {
			t.Fatalf("%+v became %+v", here, p)
		}
		b, err := Open(p)
		if err != nil {
			t.Fatal(err)
		}
		a.Seal()
		if _, err := Open(p); err == nil {
			t.Error("opened after Seal")
		}
		for _, s := range []*Segment{a, b} {
			if at := address(s.Bytes()); align > 0 && at%uintptr(align) != 0 {
				t.Errorf("at %#x, not aligned to %d", at, align)
			}
			if len(s.Bytes()) < 5000 {
				t.Errorf("%d bytes", len(s.Bytes()))
			}
		}
		copy(a.Bytes()[HeadLen:], "shared")
		if !bytes.HasPrefix(b.Bytes()[HeadLen:], []byte("shared\x00")) {
			t.Errorf("the other mapping has %q", b.Bytes()[HeadLen:HeadLen+8])
		}
		for range 2 {
			if err := a.Close(); err != nil || a.Bytes() != nil {
				t.Error("close:", err)
			}
		}
		if b.Bytes()[HeadLen] != 's' {
			t.Error("the memory went with the first mapping")
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := testenv.OpenFiles(t); n != files {
		t.Errorf("%d files open, %d before", n, files)
	}
}

// TestOtherMemoryThanAnnouncedIsRefused opens what is not the segment that was announced.
func TestOtherMemoryThanAnnouncedIsRefused(t *testing.T) {
	segment(t, 100, 0).Close() // what the runtime opens once and for all
	files := testenv.OpenFiles(t)
	s, other := segment(t, 100, 0), segment(t, 1<<20, 0)
	plain, err := unix.MemfdCreate("plain", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(plain)
	if err := unix.Ftruncate(plain, int64(s.Place().Size)); err != nil {
		t.Fatal(err)
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	s.withdraw() // what /proc has is looked at
	for name, change := range map[string]func(p *Place){
		"no such file":     func(p *Place) { p.FD = 1 << 20 },
		"no such process":  func(p *Place) { p.PID = math.MaxInt32 },
		"can shrink":       func(p *Place) { p.FD = uint32(plain) },
		"a pipe":           func(p *Place) { p.FD = uint32(pipe[0]) },
		"another size":     func(p *Place) { p.Size *= 2 },
		"another segment":  func(p *Place) { p.Nonce++ },
		"offered, smaller": func(p *Place) { *p = other.Place(); p.Size = 4096 },
		"a bad alignment":  func(p *Place) { p.Align = 12345 },
		"no alignment":     func(p *Place) { p.Align = 0 },
		"too much to map":  func(p *Place) { p.Align = 1 << 62 },
		"without any size": func(p *Place) { p.Size = 0 },
	} {
		p := s.Place()
		change(&p)
		o, err := Open(p)
		if err == nil {
			o.Close()
			t.Errorf("%s: opened", name)
		} else if !strings.Contains(err.Error(), "/proc/") && !strings.Contains(err.Error(), "@xdprma-") && !strings.Contains(err.Error(), "mapping") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, size := range []int{-1, 0, HeadLen - 1, math.MaxInt, 1 << 60} {
		if s, err := New(size, 0); err == nil {
			s.Close()
			t.Errorf("made %d bytes", size)
		}
	}
	other.withdraw() // and with it the ends that are closed when Open has its file
	const held = 5   // of both segments, the plain file and the pipe
	if n := testenv.OpenFiles(t); n != files+held {
		t.Errorf("%d files open, expected %d", n, files+held)
	}
}

// TestSegmentIsFoundBySocketOrByProc opens a segment through the socket alone, and through
// /proc alone.
func TestSegmentIsFoundBySocketOrByProc(t *testing.T) {
	s := segment(t, 100, 0)
	p := s.Place()
	p.PID = math.MaxInt32
	files := testenv.OpenFiles(t)
	for range 3 {
		o, err := Open(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
	s.withdraw() // and with it the ends that are closed when Open has its file
	const listener = 1
	if n := testenv.OpenFiles(t); n != files-listener {
		t.Errorf("%d files open, expected %d", n, files-listener)
	}
	if o, err := Open(p); err == nil {
		o.Close()
		t.Error("opened a segment that is not offered any more")
	}
	o, err := Open(s.Place())
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}

// TestMemoryOfAnotherUserIsNotTaken has another user listen at the name of a socket that
// has become free: the file that comes from there is not mapped, although it is right in
// all else.
func TestMemoryOfAnotherUserIsNotTaken(t *testing.T) {
	testenv.NeedsRoot(t) // to be another user
	s := segment(t, 100, 0)
	s.withdraw()
	p := s.Place()
	l, err := listenAs(1, p.socket().Name)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(l)
	given := make(chan struct{})
	go func() {
		defer close(given)
		c, _, err := unix.Accept4(l, unix.SOCK_CLOEXEC)
		if err != nil {
			return
		}
		defer unix.Close(c)
		_ = unix.Sendmsg(c, []byte{0}, unix.UnixRights(s.file), nil, unix.MSG_NOSIGNAL)
	}()
	if fd, err := ask(&p); !errors.Is(err, errStranger) {
		unix.Close(fd)
		t.Errorf("got %v, want %v", err, errStranger)
	}
	<-given
}

// listenAs returns a socket at which a process of another user seems to listen. The
// thread that was that user ends with its goroutine.
func listenAs(uid int, name string) (fd int, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return
		}
		if err = unix.Bind(fd, &unix.SockaddrUnix{Name: name}); err != nil {
			return
		}
		// The package's own call changes all threads.
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
			err = e
			return
		}
		err = unix.Listen(fd, 1)
	}()
	<-done
	return fd, err
}
