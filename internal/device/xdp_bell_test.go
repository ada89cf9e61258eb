package device

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/userspace"
)

// The program wakes only who sleeps: once a sleep has ended, or did not begin because an answer was there,
// answers come without it. An edge of the ring's descriptor tells of each wake.
func TestAnswersWakeNobodyAfterASleep(t *testing.T) {
	a := newAnswered(t, labtest.New(t, netlab.Config{Ranks: 2}), userspace.XDPGeneric, false, nil)
	edges, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(edges) }()
	if err := unix.EpollCtl(edges, unix.EPOLL_CTL_ADD, a.x.answers.ring.FD(), &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}); err != nil {
		t.Fatal(err)
	}
	exchange := uint64(0)
	comes := func() { // an answer, to the ring
		exchange++
		a.peer.send(a.path, a.answer(exchange, 8))
		testenv.Await(t, "an answer in the ring", func() bool {
			counters, err := a.x.program.Counters()
			return err == nil && counters[handedOver] == exchange
		})
	}
	woken := func(wait time.Duration) bool { // by the next answer, which is taken then
		comes()
		n, err := 0, error(unix.EINTR)
		for err == unix.EINTR {
			n, err = unix.EpollWait(edges, make([]unix.EpollEvent, 1), int(wait.Milliseconds()))
		}
		a.receive(1)
		return n > 0
	}
	a.x.answers.doze()
	if !woken(testenv.Limit) {
		t.Fatal("the program does not wake who sleeps")
	}
	a.dev.Sleep(time.Millisecond)
	if woken(0) {
		t.Error("an answer wakes though the sleep has ended")
	}
	comes()
	a.dev.Sleep(testenv.Limit)
	a.receive(1)
	if woken(0) {
		t.Error("an answer wakes though there was no sleep")
	}
}
