package poller

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/logs"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/userspace"
)

// ended is met when the session with a rank is.
type ended struct {
	e    *engine.Engine
	rank int
}

func (c ended) Met() bool { return c.e.Session(c.rank).Err() != nil }

// Sessions end with a device that is lost, for the reason that it tells, and so do later ones.
func TestLostDeviceEndsSessions(t *testing.T) {
	d := newStage(t)
	p := newStaged(t, d, Config{})
	why := errors.New("somebody has pulled the plug")
	dial(p, 1)
	d.lose(why)
	var err error
	testenv.Await(t, "the session to end", func() bool { // because of its peer's silence, if not before
		e := p.Lock()
		defer p.UnlockQuiet()
		err = e.Session(1).Err()
		return err != nil
	})
	dial(p, 2)
	e := p.Lock()
	later := e.Session(2).Err()
	p.UnlockQuiet()
	for _, err := range []error{err, later} {
		if !errors.Is(err, why) || !errors.Is(err, mpierr.ProcFailed) {
			t.Errorf("a session ended with %v", err)
		}
	}
}

// A call that waits for a peer fails at once when the interface is removed, though
// peers may be silent for long, and so do later ones. The log says it once.
func TestRemovedInterfaceIsReportedForGood(t *testing.T) {
	for _, transport := range []userspace.Transport{userspace.XDPNative, userspace.XDPGeneric, userspace.UDP} {
		t.Run(string(transport), func(t *testing.T) {
			l := labtest.New(t, netlab.Config{Ranks: 2})
			var log logs.Log
			dev := openDevice(t, l, 0, transport, log.Logger())
			p := New(dev, engine.New(engine.Config{Windows: &windows.Table{}, LinkConfig: engine.LinkConfig{Size: 8, Job: 1, Incarnation: 1, Slab: dev.Facts().Slab,
				DeadAfter: 60e9, Rand: func() func() uint64 { id := uint64(0); return func() uint64 { id++; return id } }()}}), Config{})
			defer p.Close()
			peer := openDevice(t, l, 1, userspace.UDP, nil).Facts().Local
			path, err := p.Path(context.Background(), peer)
			if err != nil {
				t.Fatal(err)
			}
			e := p.Lock()
			e.Dial(1, path, 1)
			p.Unlock()
			var waits []<-chan error
			for range 3 { // one drives, and the others are parked
				waits = append(waits, testenv.Start(func() error { return p.Wait(context.Background(), ended{e, 1}) }))
			}
			if out, err := l.Command(0, "ip", "link", "delete", l.Interface(0)).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, w := range waits {
				if err := testenv.Ends(t, "a wait", w); err != nil {
					t.Error(err)
				}
			}
			_, pathErr := p.Path(context.Background(), peer)
			e = p.Lock()
			e.Dial(2, path, 1)
			p.Unlock()
			p.Lock()
			errs := []error{pathErr, e.Session(1).Err(), e.Session(2).Err()}
			p.UnlockQuiet()
			for i, err := range errs {
				if err == nil || !strings.Contains(err.Error(), "its interface "+l.Interface(0)) || !strings.Contains(err.Error(), "removed") {
					t.Errorf("error %d: %v", i, err)
				}
			}
			if !errors.Is(errs[1], mpierr.ProcFailed) {
				t.Errorf("class of %v", errs[1])
			}
			if err := p.Close(); err != nil { // and the log is complete
				t.Error(err)
			}
			// The kernel sets an interface down before it removes it.
			if log.Lines("the device is lost") != 1 || log.Lines("the link of the interface is down") > 1 {
				t.Errorf("the log: %v", &log)
			}
		})
	}
}
