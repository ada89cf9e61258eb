package device

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// watch is the goroutine of an XDP device that looks now and then: whether frames come to its
// sockets, until one has (see trial), and whether its program is on the interface (see presence).
type watch struct {
	end   chan struct{} // nil while there is no goroutine
	trial *trial
	tried chan struct{} // closed when the trial is over
	work  sync.WaitGroup
}

const (
	lookFirst = 100 * time.Millisecond // between looks, at first
	lookMost  = 500 * time.Millisecond // between looks, later; far less than what a rank may be silent for
)

// start starts the goroutine, which runs in the caller's network namespace. The sockets of all queues are in
// the program's map.
func (w *watch) start(x *XDP) {
	namespace, err := ownNamespace()
	w.trial = newTrial(x)
	w.end, w.tried = make(chan struct{}), make(chan struct{})
	entered := make(chan error)
	w.work.Go(func() {
		if err == nil {
			err = enter(namespace)
			namespace.Close()
		}
		entered <- err
		w.run(x)
	})
	if err := <-entered; err != nil {
		x.log.Debug("the interface is in a network namespace that this process cannot enter again: if another tool takes the XDP program, it stays away",
			"interface", x.ifi.Name, "error", err)
	}
}

// ownNamespace opens the network namespace of the calling thread.
func ownNamespace() (*os.File, error) {
	f, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("find the network namespace: %w", err)
	}
	return f, nil
}

// enter has the goroutine run in a network namespace. If its thread is in another one, the goroutine has
// the thread to itself from then on, and the thread ends with it.
func enter(namespace *os.File) error {
	runtime.LockOSThread()
	own, err := ownNamespace()
	if err != nil {
		return err
	}
	defer own.Close()
	var here, there unix.Stat_t
	if err := unix.Fstat(int(own.Fd()), &here); err != nil {
		return err
	}
	if err := unix.Fstat(int(namespace.Fd()), &there); err != nil {
		return err
	}
	if here.Dev == there.Dev && here.Ino == there.Ino {
		runtime.UnlockOSThread()
		return nil
	}
	return unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET)
}

func (w *watch) run(x *XDP) {
	tried := false
	for pause := lookFirst; !tried || x.presence.known(); pause = min(2*pause, lookMost) {
		select {
		case <-w.end:
			return
		case <-time.After(pause):
		}
		if x.link.lost() {
			return
		}
		x.presence.look()
		if !tried && w.trial.look() {
			tried = true
			close(w.tried)
		}
	}
}

// stop ends the goroutine.
func (w *watch) stop() {
	if w.end == nil {
		return
	}
	close(w.end)
	w.work.Wait()
	w.end = nil
}
