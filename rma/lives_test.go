package rma_test

import (
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/internal/lab/testjob"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	launched "github.com/xdprma/xdprma/internal/launch/job"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/userspace"
)

// TestLaterLifeHasNoOldWindow starts a rank of a window anew. Its later life knows the
// window's id and is refused, whoever would execute its requests: an owner that knew the
// rank's earlier life, or one that the earlier life never spoke to.
func TestLaterLifeHasNoOldWindow(t *testing.T) {
	once(t)
	t.Run("udp", func(t *testing.T) {
		places, stop, err := testjob.Places(3)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		laterLife(t, places, func(_ int, f func() error) error { return f() })
	})
	t.Run("xdp-native", func(t *testing.T) {
		lab := newLab(t, 3)
		if err := lab.AcceptAnswers(); err != nil {
			t.Fatal(err)
		}
		laterLife(t, placesIn(t, lab, userspace.XDPNative), lab.Do)
	})
}

func laterLife(t *testing.T, places []bootstrap.Config, within func(rank int, f func() error) error) {
	const reborn = 2
	j := joined(t, places, within, rma.Config{})
	wins := j.windows(64, 8)
	one := int64(1)
	j.must(wins[reborn].Lock(j.ctx, rma.LockShared, 0, 0), wins[reborn].Put(buffer.Value(&one), 0, rma.At(0)), wins[reborn].Unlock(j.ctx, 0))
	id := rma.IDOf(wins[0])
	j.must(j.nodes[reborn].Close())
	var again *launched.Job
	if err := within(reborn, func() (err error) {
		again, err = launched.Join(j.ctx, launched.Config{Place: places[reborn]})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for owner := range reborn {
		e := again.Poller().Lock()
		a := e.OpenAccess(e.Connect(owner), id)
		a.SetReach(true)
		c := onesided.Call{Access: a, Code: wire.CodePut, Origin: []byte{9, 9, 9, 9, 9, 9, 9, 9}}
		done, err := e.Issue(&c)
		if err != nil || !done {
			t.Fatalf("owner %d: issued %t, %v", owner, done, err)
		}
		e.Flush(a)
		again.Poller().Unlock()
		if err := again.Poller().Wait(j.ctx, (*onesided.FlushWait)(a)); err != nil {
			t.Fatal(err)
		}
		again.Poller().Lock()
		err = a.TakeError()
		again.Poller().Unlock()
		if mpierr.ClassOf(err) != mpierr.Group {
			t.Errorf("owner %d: got %v, want class group", owner, err)
		}
		if got := wins[owner].Memory()[0]; got == 9 {
			t.Errorf("owner %d: the later life has written into the window", owner)
		}
	}
	// The other members go on.
	j.must(wins[1].Lock(j.ctx, rma.LockShared, 0, 0), wins[1].Put(buffer.Value(&one), 0, rma.At(1)), wins[1].Unlock(j.ctx, 0))
}
