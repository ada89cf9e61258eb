package rma_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testjob"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/userspace"
)

// TestProgramAndSocketsAreHandedOver has a rank join with an XDP program that somebody else
// attached and with sockets that somebody else made. They stay that one's.
func TestProgramAndSocketsAreHandedOver(t *testing.T) {
	lab := newLab(t, 2)
	places := placesIn(t, lab, userspace.XDPNative)
	at := &places[1]
	var theirs *loader.Program
	var sockets []int
	if err := lab.Do(1, func() (err error) {
		if theirs, err = loader.Attach(loader.Options{Interface: at.Interface, Address: at.Address, Port: at.Port}); err != nil {
			return err
		}
		if at.Program, err = loader.FromMaps(theirs.Maps(), theirs.Mode()); err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		sockets = append(sockets, fd)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	at.SocketFDs, at.Queues = sockets, 1

	for want, change := range map[string]func(p *bootstrap.Config){
		"of no use to the transport udp":    func(p *bootstrap.Config) { p.Transport = userspace.UDP },
		"of no use to the transport shared": func(p *bootstrap.Config) { p.Transport = userspace.Shared },
		"2 sockets from outside for 1":      func(p *bootstrap.Config) { p.SocketFDs = []int{sockets[0], sockets[0]} },
		"file descriptor 99999":             func(p *bootstrap.Config) { p.SocketFDs = []int{99999} },
		"takes frames to":                   func(p *bootstrap.Config) { p.Port++ },
	} {
		wrong := *at
		change(&wrong)
		if err := lab.Do(1, func() error { return only(rma.Join(t.Context(), testjob.Config(&wrong))) }); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}

	j := joined(t, places, lab.Do, rma.Config{})
	if mode := j.nodes[1].Mode(); mode != "xdp-native" {
		t.Errorf("mode %s", mode)
	}
	wins := j.windows(64, 8)
	j.each(func(n *rma.Node) error {
		w, to := rma.View[int64](wins[n.Rank()]), 1-n.Rank()
		former, err := int64(0), w.LockAll(j.ctx)
		for range 100 {
			if _, err2 := w.Fetch(j.ctx, 1, to, rma.At(0), rma.Sum); err2 != nil {
				err = errors.Join(err, err2)
			}
		}
		former, err2 := w.Load(j.ctx, to, rma.At(0))
		if former != 100 {
			t.Errorf("rank %d counted %d", n.Rank(), former)
		}
		return errors.Join(err, err2, w.UnlockAll(j.ctx), n.World().Barrier(j.ctx))
	})
	if device := j.nodes[1].Stats().Device; device.RxFrames == 0 {
		t.Errorf("no frames came by the socket: %+v", device)
	}
	freeAll(j, wins)
	j.must(j.nodes[1].Close())
	// Theirs go on: the socket is open, and the program is attached.
	if err := unix.Close(sockets[0]); err != nil {
		t.Error(err)
	}
	if f, err := theirs.Counters(); err != nil || len(f) == 0 {
		t.Errorf("their program: %v, %v", f, err)
	}
}
