package afxdp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// etherType marks the frames of these tests (local experimental).
const etherType = 0x88b5

// stamp writes a broadcast Ethernet frame with a number and content that
// follows from it.
func stamp(frame []byte, serial uint64) {
	copy(frame, "\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01")
	binary.BigEndian.PutUint16(frame[12:], etherType)
	binary.LittleEndian.PutUint64(frame[14:], serial)
	for i := 22; i < len(frame); i++ {
		frame[i] = byte(i*7 + i>>8 + int(serial))
	}
}

// slotsOf cuts the transmit area into slots of whole chunks that hold size bytes.
func slotsOf(s *Socket, size int) (offsets []uint64) {
	chunk := s.Info().ChunkSize
	slot := (size + chunk - 1) / chunk * chunk
	for at := 0; at+slot <= len(s.TxArea()); at += slot {
		offsets = append(offsets, uint64(at))
	}
	return offsets
}

// port sends and receives on one socket from one goroutine.
type port struct {
	*Socket
	free   []uint64
	frames [][]byte
}

func newPort(s *Socket, size int) *port {
	return &port{Socket: s, free: slotsOf(s, size), frames: make([][]byte, 32)}
}

// slot returns a free transmit slot's offset, or false.
func (p *port) slot() (uint64, bool) {
	var done [64]uint64
	p.free = append(p.free, done[:p.Reap(done[:])]...)
	if len(p.free) == 0 {
		return 0, false
	}
	return p.free[len(p.free)-1], true
}

// send enqueues the frame that was written at the slot.
func (p *port) send(length int) bool {
	last := len(p.free) - 1
	if !p.Enqueue(p.free[last], length) {
		return false
	}
	p.free = p.free[:last]
	return true
}

// reflect sends every received frame back once, as far as there are slots.
func (p *port) reflect() error {
	n := p.Receive(p.frames)
	for _, frame := range p.frames[:n] {
		if at, ok := p.slot(); ok {
			p.send(copy(p.TxArea()[at:], frame))
		}
	}
	p.Release()
	p.Publish()
	_, err := p.Kick()
	return err
}

func TestFramesComeBackWhole(t *testing.T) {
	for _, c := range []struct {
		name   string
		mtu    int
		mode   link.XDPAttachFlags
		config Config
	}{
		{"1500 bytes in chunks of 2048", 1500, link.XDPDriverMode, Config{ChunkSize: 2048}},
		{"3498 bytes in chunks of 4096", 3498, link.XDPDriverMode, Config{}},
		{"9000 bytes in chunks of 4096", 9000, link.XDPDriverMode, Config{MultiBuffer: true}},
		{"9000 bytes in chunks of 2048", 9000, link.XDPDriverMode, Config{MultiBuffer: true, ChunkSize: 2048}},
		{"generic", 1500, link.XDPGenericMode, Config{ZeroCopy: Copy, NoNeedWakeup: true}},
		{"generic, 9000 bytes", 9000, link.XDPGenericMode, Config{MultiBuffer: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			pair := newVethPair(t, c.mtu)
			c.config.RxChunks, c.config.TxChunks = 512, 512
			a, b := endIn(t, pair[0], c.config, c.mode), endIn(t, pair[1], c.config, c.mode)
			echo(t, a, b, c.mtu+14)
		})
	}
}

// echo sends thousands of frames of up to largest bytes from a to b and back, and
// checks what arrives.
func echo(t *testing.T, a, b *Socket, largest int) {
	const window = 32
	total := testenv.Seeds(10000, 2000)
	origin, mirror := newPort(a, largest), newPort(b, largest)
	want := make([]byte, largest)
	length := func(serial uint64) int { return 60 + int(serial*997)%(largest-59) }
	sent, received := uint64(0), uint64(0)
	for last := time.Now(); received < total; {
		if time.Since(last) > testenv.Limit {
			t.Fatalf("%d sent, %d received, then nothing", sent, received)
		}
		for sent < total && sent < received+window {
			at, ok := origin.slot()
			if !ok {
				break
			}
			n := length(sent)
			stamp(a.TxArea()[at:at+uint64(n)], sent)
			if !origin.send(n) {
				break
			}
			sent++
		}
		a.Publish()
		if r, err := a.Kick(); err != nil {
			t.Fatal(r, err)
		}
		if err := mirror.reflect(); err != nil {
			t.Fatal(err)
		}
		n := a.Receive(origin.frames)
		if n > 0 {
			last = time.Now()
		}
		for _, got := range origin.frames[:n] {
			if binary.BigEndian.Uint16(got[12:]) != etherType {
				continue
			}
			n := length(received)
			stamp(want[:n], received)
			if !bytes.Equal(got, want[:n]) {
				t.Fatalf("frame %d came back with %d bytes, want %d, or other content", received, len(got), n)
			}
			received++
		}
		a.Release()
	}
	for _, s := range []*Socket{a, b} {
		var offsets [64]uint64
		for range 100 {
			s.Reap(offsets[:])
		}
		st, err := s.Stats()
		if err != nil {
			t.Fatal(err)
		}
		if st.RxFrames < total || st.TxFrames != total || st.TxCompleted != total || st.TxLost+st.RxInvalid+st.TxInvalid+st.RxOversize+st.KernelRxDropped+st.KernelTxInvalid+st.KernelRxFillEmpty != 0 {
			t.Errorf("counters %+v", st)
		}
		if !s.HasReceived() {
			t.Error("no frame has reached the socket")
		}
		if i := s.Info(); i.ZeroCopy || i.SendBuffer < 1<<20 {
			t.Errorf("info %+v", i)
		}
	}
}

// A frame longer than a chunk's room is dropped by the kernel and counted.
func TestLongFrameWithoutMultiBuffer(t *testing.T) {
	pair := newVethPair(t, 1900)
	a := end(t, pair[0], Config{ChunkSize: 2048})
	b := end(t, pair[1], Config{ChunkSize: 2048})
	if a.HasReceived() || b.HasReceived() {
		t.Error("a socket was reached by nothing")
	}
	stamp(a.TxArea()[:1900], 1)
	a.Enqueue(0, 1900)
	a.Publish()
	if r, err := a.Kick(); r != KickDone || err != nil {
		t.Fatal(r, err)
	}
	if n := b.Receive(make([][]byte, 1)); n != 0 {
		t.Errorf("received %d frames", n)
	}
	if st, err := b.Stats(); err != nil || st.KernelRxDropped != 1 {
		t.Errorf("%+v, %v", st, err)
	}
	if a.HasReceived() || !b.HasReceived() {
		t.Errorf("reached: the sender %v, the receiver %v", a.HasReceived(), b.HasReceived())
	}
}

// TestBusyQueueAndClose opens a socket on a queue that another one has: in vain while that
// is open, then while it is being closed, and once it is.
func TestBusyQueueAndClose(t *testing.T) {
	pair := newVethPair(t, 1500)
	s, err := openIn(t, pair[0], Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openIn(t, pair[0], Config{Patience: 1}); !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), "another AF_XDP socket") {
		t.Errorf("second socket on the queue: %v", err)
	}
	brief, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	inNamespace(t, pair[0], func() error {
		if _, err := Open(brief, Config{Interface: vethName, Patience: testenv.Limit}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a context that ends: %v", err)
		}
		return nil
	})
	closed := make(chan struct{})
	time.AfterFunc(20*time.Millisecond, func() {
		defer close(closed)
		for range 2 {
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
	})
	for _, c := range []Config{{Patience: testenv.Limit}, {HugePages: true, NoNeedWakeup: true, Patience: testenv.Limit}} {
		next, err := openIn(t, pair[0], c)
		<-closed
		if err != nil {
			t.Fatalf("open while the queue is being freed: %v", err)
		}
		_ = next.Close()
	}
}

func TestOpenErrors(t *testing.T) {
	pair := newVethPair(t, 1500)
	for _, c := range []struct {
		name   string
		config Config
		errno  error
		text   string
	}{
		{"zero-copy on veth", Config{ZeroCopy: Force}, unix.EOPNOTSUPP, "no zero-copy"},
		{"queue", Config{Queue: 5}, unix.EINVAL, "no such queue"},
		{"interface", Config{IfIndex: 12345}, unix.ENODEV, "no such interface"},
		{"descriptor", Config{FD: 1}, nil, "AF_XDP"},
	} {
		_, err := openIn(t, pair[0], c.config)
		if err == nil || c.errno != nil && !errors.Is(err, c.errno) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A socket that someone else created works, and stays theirs if Open fails.
func TestGivenDescriptor(t *testing.T) {
	pair := newVethPair(t, 1500)
	var fd int
	inNamespace(t, pair[0], func() (err error) {
		fd, err = unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if _, err := openIn(t, pair[0], Config{FD: fd, RxChunks: -1}); err == nil {
		t.Fatal("opened with a bad config")
	}
	s, err := openIn(t, pair[0], Config{FD: fd})
	if err != nil {
		t.Fatal(err)
	}
	if s.FD() != fd {
		t.Errorf("descriptor %d, want %d", s.FD(), fd)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
		t.Errorf("the descriptor outlived Close: %v", err)
	}
}

func TestTxBudget(t *testing.T) {
	testenv.NeedsRoot(t)
	testenv.NeedsFeature(t, testenv.TxBudget)
	pair := newVethPair(t, 1500)
	a := end(t, pair[0], Config{TxBudget: 256})
	end(t, pair[1], Config{})
	if b := a.Info().TxBudget; b != 256 {
		t.Fatalf("a budget of %d descriptors, want 256", b)
	}
	for i := range uint64(200) {
		stamp(a.TxArea()[i*4096:i*4096+60], i)
		a.Enqueue(i*4096, 60)
	}
	a.Publish()
	if r, err := a.Kick(); r != KickDone || err != nil {
		t.Fatal(r, err)
	}
	if st, err := a.Stats(); err != nil || st.Kicks != 1 {
		t.Errorf("%d calls for 200 frames, %v", st.Kicks, err)
	}
}

func TestWaitEndsForFramesAndWakes(t *testing.T) {
	pair := newVethPair(t, 1500)
	a, b := end(t, pair[0], Config{}), end(t, pair[1], Config{})
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(wake)
	if readable, err := b.Wait(0, wake); readable || err != nil {
		t.Fatalf("nothing there: %v, %v", readable, err)
	}
	one := binary.NativeEndian.AppendUint64(nil, 1)
	if _, err := unix.Write(wake, one); err != nil {
		t.Fatal(err)
	}
	if readable, err := b.Wait(time.Minute, wake); readable || err != nil {
		t.Fatalf("woken: %v, %v", readable, err)
	}
	stamp(a.TxArea()[:60], 1)
	a.Enqueue(0, 60)
	a.Publish()
	if _, err := a.Kick(); err != nil {
		t.Fatal(err)
	}
	readable := false
	for range 100 { // signals may end a wait early
		if readable, err = b.Wait(time.Minute, -1); readable || err != nil {
			break
		}
	}
	if !readable || err != nil {
		t.Fatalf("a frame there: %v, %v", readable, err)
	}
	if n := testing.AllocsPerRun(50, func() { _, _ = b.Wait(0, wake) }); n != 0 {
		t.Errorf("Wait allocates %v times", n)
	}
}

// Frames that the kernel drops while it sends are counted, and complete.
func TestLostFrames(t *testing.T) {
	pair := newVethPair(t, 1500)
	a := end(t, pair[0], Config{})
	inNamespace(t, pair[1], func() error { return changeLink("down") }) // a loses its carrier
	const frames = 10
	for i := range uint64(frames) {
		stamp(a.TxArea()[i*4096:i*4096+60], i)
		a.Enqueue(i*4096, 60)
	}
	a.Publish()
	done := false
	for range frames {
		r, err := a.Kick()
		if err != nil {
			t.Fatal(err)
		}
		done = done || r == KickDone
	}
	reaped := a.Reap(make([]uint64, 2*frames))
	if st, err := a.Stats(); err != nil || !done || st.TxLost != frames || reaped != frames {
		t.Errorf("done %v, %d reaped, %+v, %v", done, reaped, st, err)
	}
}

func TestKickDoesNotAllocate(t *testing.T) {
	pair := newVethPair(t, 1500)
	a := end(t, pair[0], Config{})
	end(t, pair[1], Config{})
	stamp(a.TxArea()[:60], 1)
	offsets := make([]uint64, 8)
	if n := testing.AllocsPerRun(50, func() {
		a.Enqueue(0, 60)
		a.Publish()
		_, _ = a.Kick()
		// The kernel may leave the other end of the veth, and with it the completion, to a
		// thread of its own.
		for start := time.Now(); a.Reap(offsets) == 0; _, _ = a.Kick() {
			if time.Since(start) > testenv.Limit {
				t.Fatalf("the frame has not completed in %v", testenv.Limit)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Once the interface is gone, Kick and Wait say so and keep saying it.
func TestDeviceGone(t *testing.T) {
	pair := newVethPair(t, 1500)
	a := end(t, pair[0], Config{})
	inNamespace(t, pair[0], func() error { return changeLink("removed") })
	if _, err := a.Wait(0, -1); !errors.Is(err, ErrDeviceGone) {
		t.Errorf("wait: %v", err)
	}
	stamp(a.TxArea()[:60], 1)
	a.Enqueue(0, 60)
	a.Publish()
	for range 2 {
		if r, err := a.Kick(); r != KickFailed || !errors.Is(err, ErrDeviceGone) {
			t.Errorf("kick: %v, %v", r, err)
		}
	}
}

// A signal that ends Wait early does not keep it from telling of the removal.
func TestInterruptedWaitTellsOfDeviceGone(t *testing.T) {
	pair := newVethPair(t, 1500)
	a := end(t, pair[0], Config{})
	inNamespace(t, pair[0], func() error { return changeLink("removed") })
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	over, thread := make(chan struct{}), unix.Gettid()
	var signals sync.WaitGroup
	signals.Go(func() {
		for tick := time.NewTicker(time.Millisecond); ; {
			select {
			case <-tick.C:
				_ = unix.Tgkill(unix.Getpid(), thread, unix.SIGURG) // the runtime's own, which it takes any number of
			case <-over:
				tick.Stop()
				return
			}
		}
	})
	_, err := a.Wait(time.Hour, -1)
	close(over)
	signals.Wait()
	if !errors.Is(err, ErrDeviceGone) {
		t.Errorf("wait: %v", err)
	}
}

// An interface that is down keeps the frames, and sends them when it is up again.
func TestDeviceDown(t *testing.T) {
	pair := newVethPair(t, 1500)
	a := end(t, pair[0], Config{})
	end(t, pair[1], Config{})
	inNamespace(t, pair[0], func() error { return changeLink("down") })
	stamp(a.TxArea()[:60], 1)
	a.Enqueue(0, 60)
	a.Publish()
	for range 2 {
		if r, err := a.Kick(); r != KickLater || err != nil {
			t.Errorf("kick while the interface is down: %v, %v", r, err)
		}
	}
	inNamespace(t, pair[0], func() error { return changeLink("up") })
	if r, err := a.Kick(); r != KickDone || err != nil {
		t.Errorf("kick when it is up again: %v, %v", r, err)
	}
	if n := a.Reap(make([]uint64, 1)); n != 1 {
		t.Errorf("%d frames sent", n)
	}
}

// Open, failed or not, and Close leave no descriptor behind.
func TestNoDescriptorLeaks(t *testing.T) {
	pair := newVethPair(t, 1500)
	before := testenv.OpenFiles(t)
	for range 5 {
		s, err := openIn(t, pair[0], Config{RxChunks: 64, TxChunks: 64})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := openIn(t, pair[0], Config{Queue: 9}); err == nil {
			t.Fatal("opened a queue that does not exist")
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if after := testenv.OpenFiles(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}
