package hostmem

import (
	"bytes"
	"math"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

const page = 1 << 16

// bpfMap returns a descriptor of a map that the caller closes.
func bpfMap(t *testing.T, spec ebpf.MapSpec) int {
	t.Helper()
	testenv.NeedsRoot(t)
	m, err := ebpf.NewMap(&spec)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	fd, err := unix.FcntlInt(uintptr(m.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func arraySpec(pages uint32) ebpf.MapSpec {
	return ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: page, MaxEntries: pages, Flags: unix.BPF_F_MMAPABLE | unix.BPF_F_INNER_MAP}
}

func adopt(t *testing.T, spec ebpf.MapSpec, align int) *Segment {
	t.Helper()
	s, err := Adopt(bpfMap(t, spec), align)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// A BPF array is handed over by the socket and, where that is not in reach, from process
// to process, and is the same memory.
func TestArrayIsShared(t *testing.T) {
	adopt(t, arraySpec(1), 0).Close() // what the runtime opens once and for all
	files := testenv.OpenFiles(t)
	for _, align := range []int{0, 1 << 21} {
		a := adopt(t, arraySpec(2), align)
		var p Place
		here := a.Place()
		p.Unmarshal(here.Marshal())
		if p != here || !p.Kernel || p.Size != 2*page {
			t.Fatalf("%+v became %+v", here, p)
		}
		p.PID = math.MaxInt32
		b, err := Open(p)
		if err != nil {
			t.Fatal("by the socket:", err)
		}
		a.withdraw()
		c, err := Open(a.Place())
		if err != nil {
			t.Fatal("from the process:", err)
		}
		if size, err := arraySize(b.File()); err != nil || size != 2*page {
			t.Errorf("the file of the other mapping has %d bytes", size)
		}
		copy(a.Bytes()[page:], "shared")
		for _, s := range []*Segment{a, b, c} {
			if at := address(s.Bytes()); align > 0 && at%uintptr(align) != 0 {
				t.Errorf("at %#x, not aligned to %d", at, align)
			}
			s.Seal()
			if s.File() != -1 || !bytes.HasPrefix(s.Bytes()[page:], []byte("shared\x00")) {
				t.Errorf("a mapping has %q", s.Bytes()[page:page+8])
			}
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if c.Bytes()[page] != 's' {
			t.Error("the memory went with the first mapping")
		}
		b.Close()
		c.Close()
	}
	if n := testenv.OpenFiles(t); n != files {
		t.Errorf("%d files open, %d before", n, files)
	}
}

// Anything but the array that was announced is neither made a segment nor opened.
func TestOtherArrayThanAnnouncedIsRefused(t *testing.T) {
	adopt(t, arraySpec(1), 0).Close() // what the runtime opens once and for all
	files := testenv.OpenFiles(t)
	for name, spec := range map[string]ebpf.MapSpec{
		"a hash":             {Type: ebpf.Hash, KeySize: 4, ValueSize: page, MaxEntries: 1},
		"not to be mapped":   {Type: ebpf.Array, KeySize: 4, ValueSize: page, MaxEntries: 1},
		"less than its page": {Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE},
	} {
		fd := bpfMap(t, spec)
		kept, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := Adopt(fd, 0); err == nil {
			s.Close()
			t.Errorf("%s: adopted", name)
		}
		s := segment(t, page, 0)
		s.withdraw()
		p := s.Place()
		p.FD, p.Kernel = uint32(kept), true
		if o, err := Open(p); err == nil {
			o.Close()
			t.Errorf("%s: opened", name)
		}
		s.Close()
		unix.Close(kept)
	}
	a, file := adopt(t, arraySpec(1), 0), segment(t, page, 0)
	a.withdraw()
	file.withdraw()
	for name, change := range map[string]func(p *Place){
		"another size":     func(p *Place) { p.Size *= 2 },
		"another array":    func(p *Place) { p.Nonce++ },
		"a file":           func(p *Place) { p.FD = file.Place().FD },
		"no such file":     func(p *Place) { p.FD = 1 << 20 },
		"no such process":  func(p *Place) { p.PID = math.MaxInt32 },
		"called a file":    func(p *Place) { p.Kernel = false },
		"without any size": func(p *Place) { p.Size = 0 },
	} {
		p := a.Place()
		change(&p)
		if o, err := Open(p); err == nil {
			o.Close()
			t.Errorf("%s: opened", name)
		}
	}
	a.Close()
	file.Close()
	if n := testenv.OpenFiles(t); n != files {
		t.Errorf("%d files open, %d before", n, files)
	}
}
