package netlab

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink/nl"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// programs counts the XDP programs at the bridge's ports.
func (l *Lab) programs(t *testing.T) (n int) {
	t.Helper()
	if l.bridge == nil {
		return 0
	}
	for rank := range l.nodes {
		port, err := l.bridge.handle.LinkByName(l.Interface(rank))
		if err != nil {
			t.Fatal(err)
		}
		if xdp := port.Attrs().Xdp; xdp != nil && xdp.Attached && xdp.AttachMode == nl.XDP_ATTACHED_DRV {
			n++
		}
	}
	return n
}

// Frames of every size pass a bridge whose ports have programs, and a lab without a
// bridge has none.
func TestPortsPassFramesBesideAcceptingAnswers(t *testing.T) {
	for _, c := range []struct {
		config Config
		ports  int
	}{
		{Config{Ranks: 1}, 0}, {Config{Ranks: 2}, 0}, {Config{Ranks: 3}, 3}, {Config{Ranks: 4, RanksPerHost: 2, MTU: 9000, Queues: 2}, 4},
		{Config{Ranks: 3, MTU: MaxMTU}, 3},
	} {
		t.Run(fmt.Sprintf("%+v", c.config), func(t *testing.T) {
			l := newLab(t, c.config)
			if err := l.AcceptAnswers(); err != nil {
				t.Fatal(err)
			}
			if got := l.programs(t); got != c.ports {
				t.Errorf("%d ports have programs, want %d", got, c.ports)
			}
			last := l.Ranks() - 1
			server, from := echo(t, l, last, l.Addr(last)), listen(t, l, 0, l.Addr(0))
			for _, size := range []int{1, l.MTU() - 28} {
				if err := from.SetDeadline(time.Now().Add(testenv.Limit)); err != nil {
					t.Fatal(err)
				}
				if _, err := from.WriteToUDPAddrPort(make([]byte, size), server); err != nil {
					t.Fatal(err)
				}
				if n, err := from.Read(make([]byte, 1<<16)); err != nil || n != size {
					t.Errorf("%d bytes came back of %d, %v", n, size, err)
				}
			}
		})
	}
}

// The programs that AcceptAnswers attached go with the lab.
func TestCloseDetachesPrograms(t *testing.T) {
	testenv.NeedsRoot(t)
	l := newLab(t, Config{Ranks: 3})
	if err := l.AcceptAnswers(); err != nil {
		t.Fatal(err)
	}
	attached := l.passing
	ids := make(map[link.ID]bool)
	for _, a := range attached {
		info, err := a.Info()
		if err != nil {
			t.Fatal(err)
		}
		ids[info.ID] = true
	}
	if len(ids) != 3 {
		t.Fatalf("%d links at 3 ports", len(ids))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for id := range ids {
		if a, err := link.NewFromID(id); err == nil {
			t.Errorf("link %d is still there: %v", id, a.Close())
		}
	}
}

// A port that already has a program makes AcceptAnswers fail, and it leaves none of its own.
func TestAcceptAnswersLeavesNothingWhenItFails(t *testing.T) {
	testenv.NeedsRoot(t)
	l := newLab(t, Config{Ranks: 3})
	if err := l.AcceptAnswers(); err != nil {
		t.Fatal(err)
	}
	taken := l.passing[2]
	if err := errors.Join(l.passing[0].Close(), l.passing[1].Close()); err != nil {
		t.Fatal(err)
	}
	l.passing = nil
	if err := l.AcceptAnswers(); err == nil {
		t.Error("no error, although port 2 has a program")
	}
	if got := l.programs(t); got != 1 {
		t.Errorf("%d ports have programs, want the one from before", got)
	}
	if err := taken.Close(); err != nil {
		t.Error(err)
	}
}
