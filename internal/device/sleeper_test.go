package device

import (
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// newSleeper returns a sleeper over descriptors, or fails the test.
func newSleeper(t *testing.T, fds ...int) *sleeper {
	t.Helper()
	s := new(sleeper)
	if err := s.open(fds...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.close() })
	return s
}

// newEvent returns an eventfd.
func newEvent(t *testing.T) int {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

func signal(t *testing.T, fd int) {
	t.Helper()
	if _, err := unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
}

// TestSleepEnds has sleeps short and long end by a descriptor that was ready before, by one that becomes
// ready, by wake, and by time.
func TestSleepEnds(t *testing.T) {
	const long = time.Minute
	for _, way := range []string{"gate", "ppoll", "no gate"} {
		fd, short := newEvent(t), way == "ppoll"
		s := newSleeper(t, fd)
		if way == "no gate" {
			_ = s.gate.close()
			s.gate.file = nil
		}
		d := 5 * time.Millisecond
		if short {
			d = 500 * time.Microsecond
		}
		if n := s.sleep(d, unix.POLLIN); n != 0 {
			t.Errorf("%d descriptors are ready after %v, not 0", n, d)
		}
		events := int16(unix.POLLIN)
		if short {
			events |= unix.POLLPRI // has it go by ppoll, however long
		}
		asleep := func() bool { return s.state.Load() != 0 }
		for what, end := range map[string]func(){
			"a descriptor becomes ready": func() { signal(t, fd) },
			"somebody wakes it":          s.wake,
		} {
			ended := make(chan int, 1)
			go func() { ended <- s.sleep(long, events) }()
			testenv.Await(t, "the sleep", asleep)
			end()
			if n := <-ended; n != 1 {
				t.Errorf("%s: %d descriptors are ready, not 1", what, n)
			}
			var count [8]byte
			_, _ = unix.Read(fd, count[:])
		}
		signal(t, fd)
		if n := s.sleep(long, events); n != 1 || s.polls[1].Revents != unix.POLLIN {
			t.Errorf("%d descriptors are ready, the second with %x, not 1 and %x", n, s.polls[1].Revents, unix.POLLIN)
		}
	}
}

// TestSignalEndsNoSleep sends signals to a thread that sleeps for less than a gate can, as the
// runtime does that wants a goroutine to make room.
func TestSignalEndsNoSleep(t *testing.T) {
	const d = longSleep - 100*time.Microsecond
	s := newSleeper(t, newEvent(t))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread, over := unix.Gettid(), make(chan struct{})
	var signals sync.WaitGroup
	defer signals.Wait()
	defer close(over)
	signals.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(50 * time.Microsecond):
				_ = unix.Tgkill(os.Getpid(), thread, unix.SIGURG)
			}
		}
	})
	for range 100 {
		begin := time.Now()
		if n, slept := s.sleep(d, unix.POLLIN), time.Since(begin); n != 0 || slept < d {
			t.Fatalf("a sleep of %v ended with %d descriptors after %v", d, n, slept)
		}
	}
}

// TestSleepersLeaveThreadsAlone has many goroutines sleep for long: none of them needs a thread.
func TestSleepersLeaveThreadsAlone(t *testing.T) {
	const sleepers = 100
	threads := func() int {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		return len(tasks)
	}
	before := threads()
	var all sync.WaitGroup
	var s []*sleeper
	for range sleepers {
		one := newSleeper(t, newEvent(t))
		s = append(s, one)
		all.Go(func() { one.sleep(time.Minute, unix.POLLIN) })
	}
	for _, one := range s {
		testenv.Await(t, "the sleep", func() bool { return one.state.Load() != 0 })
	}
	time.Sleep(20 * time.Millisecond) // longer than the monitor of the runtime takes to start threads
	if n := threads() - before; n > sleepers/2 {
		t.Errorf("%d sleepers take %d threads", sleepers, n)
	}
	for _, one := range s {
		one.wake()
	}
	all.Wait()
}

// TestShutGateIsSilent sees that what comes while nobody sleeps does not wake a thread of Go's poller.
func TestShutGateIsSilent(t *testing.T) {
	fd := newEvent(t)
	s := newSleeper(t, fd)
	ready := func() int {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(s.gate.epoll), Events: unix.POLLIN}}, 0)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	signal(t, fd)
	if ready() != 0 {
		t.Error("a frame shows through the shut gate of a sleeper that never slept")
	}
	for range 3 {
		if s.sleep(time.Second, unix.POLLIN) != 1 {
			t.Error("what is there does not end a sleep")
		}
		if ready() != 0 {
			t.Error("a frame shows through the gate after a sleep")
		}
	}
	if !addTo(s.gate.epoll, fd) || ready() != 1 {
		t.Error("a frame does not show through the open gate")
	}
	if s.sleep(time.Second, unix.POLLIN) != 1 {
		t.Error("a gate that cannot be opened keeps a sleep from ending")
	}
}

func TestSleepAllocatesNothing(t *testing.T) {
	fd := newEvent(t)
	s := newSleeper(t, fd)
	signal(t, fd)
	if n := testing.AllocsPerRun(100, func() { s.sleep(time.Second, unix.POLLIN) }); n != 0 {
		t.Errorf("a sleep that ends at once allocates %v times", n)
	}
	var count [8]byte
	_, _ = unix.Read(fd, count[:])
	if n := testing.AllocsPerRun(10, func() { s.sleep(2*time.Millisecond, unix.POLLIN) }); n != 0 {
		t.Errorf("a sleep of 2 ms allocates %v times", n)
	}
}
