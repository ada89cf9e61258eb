package device

import (
	"net"
	"strings"
	"testing"
	"time"

	ebpflink "github.com/cilium/ebpf/link"

	"github.com/xdprma/xdprma/internal/lab/foreign"
	"github.com/xdprma/xdprma/internal/lab/logs"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/userspace"
)

// The texts of what befalls a program.
const (
	wasTaken  = "was taken from its interface"
	isBack    = "is on its interface again"
	isAnother = "in place of this rank's"
)

// watched is a device of rank 1 whose program is taken, and a peer.
type watched struct {
	t    *testing.T
	lab  *netlab.Lab
	log  logs.Log
	a, b *end
	x    *XDP
}

func newWatched(t *testing.T, transport userspace.Transport) *watched {
	t.Helper()
	w := &watched{t: t, lab: labtest.New(t, netlab.Config{Ranks: 2})}
	var dev Device
	err := w.lab.Do(1, func() (err error) {
		dev, err = Open(t.Context(), Config{Config: userspace.Config{Transport: transport, Interface: "xr1", Address: w.lab.Addr(1)}, Slots: 128, Logger: w.log.Logger()})
		return err
	})
	w.b = newEnd(t, dev, err)
	w.x = dev.(*XDP)
	w.a = openEnd(t, w.lab, 0, userspace.UDP, false)
	return w
}

// byHand ends the looks of the device's own.
func (w *watched) byHand() { w.x.watch.stop() }

// look looks n times.
func (w *watched) look(n int) {
	w.t.Helper()
	err := w.lab.Do(1, func() error {
		for range n {
			w.x.presence.look()
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *watched) take() {
	w.t.Helper()
	if err := w.lab.TakeProgram(1); err != nil {
		w.t.Fatal(err)
	}
}

func (w *watched) id() uint32 {
	w.t.Helper()
	id, err := w.lab.Program(1)
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// attach puts a program of somebody else on the interface.
func (w *watched) attach(p *foreign.Program, flags ebpflink.XDPAttachFlags) (l ebpflink.Link) {
	w.t.Helper()
	err := w.lab.Do(1, func() error {
		nic, err := net.InterfaceByName("xr1")
		if err == nil {
			l, err = ebpflink.AttachXDP(ebpflink.XDPOptions{Program: p.Program, Interface: nic.Index, Flags: flags})
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

// says checks how often the log warns of each text.
func (w *watched) says(taken, another, back int) {
	w.t.Helper()
	if w.log.Lines("level=WARN", wasTaken) != taken || w.log.Lines("level=WARN", isAnother) != another || w.log.Lines("level=WARN", isBack) != back ||
		w.log.Lines("level=WARN") != taken+another+back {
		w.t.Errorf("want %d, %d and %d lines, and no more:\n%s", taken, another, back, w.log.String())
	}
}

// redirects checks whether frames come by XDP.
func (w *watched) redirects(want bool) {
	w.t.Helper()
	before := w.b.stats().Filter["redirected"]
	comesAndIsAnswered(w.t, w.a, w.b, w.a.path(w.b.dev.Facts().Local))
	if got := w.b.stats().Filter["redirected"] > before; got != want {
		w.t.Errorf("frames come by XDP: %v, want %v", got, want)
	}
}

// A program that was detached is attached again by the device itself, whose mode follows, and the
// frames come by XDP again.
func TestProgramIsTakenAndComesBack(t *testing.T) {
	for _, transport := range []userspace.Transport{userspace.XDPNative, userspace.XDPGeneric} {
		t.Run(string(transport), func(t *testing.T) {
			w := newWatched(t, transport)
			id := w.id()
			w.redirects(true)
			w.take()
			testenv.Await(t, "a program that is back", func() bool { return w.log.Lines(isBack) > 0 })
			if now := w.id(); now != id || w.b.dev.Facts().Mode.String() != string(transport) || w.b.stats().FilterTaken != 1 {
				t.Errorf("program %d, was %d; mode %s; taken %d times", now, id, w.b.dev.Facts().Mode.String(), w.b.stats().FilterTaken)
			}
			w.says(1, 0, 1)
			w.redirects(true)
		})
	}
}

// While the interface has another program, the device's stays away, and frames come through the kernel. The
// log names the other one, once, whether it comes at once or later.
func TestProgramGivesWay(t *testing.T) {
	stranger, err := foreign.New("stranger")
	if err != nil {
		testenv.NeedsRoot(t)
		t.Fatal(err)
	}
	defer stranger.Close()
	for _, c := range []struct {
		transport userspace.Transport
		other     ebpflink.XDPAttachFlags
		later     bool
		mode      string
	}{
		{userspace.XDPNative, ebpflink.XDPDriverMode, false, "native"}, {userspace.XDPNative, ebpflink.XDPGenericMode, true, "generic"},
		{userspace.XDPGeneric, ebpflink.XDPGenericMode, true, "generic"}, {userspace.XDPGeneric, ebpflink.XDPDriverMode, false, "native"},
	} {
		t.Run(string(c.transport)+" to "+c.mode, func(t *testing.T) {
			w := newWatched(t, c.transport)
			w.byHand()
			id := w.id()
			w.redirects(true)
			w.take()
			if c.later {
				w.look(1)
				w.says(1, 0, 0)
			}
			theirs := w.attach(stranger, c.other)
			w.look(3)
			if w.b.dev.Facts().Mode.String() != "udp" || w.b.dev.Facts().Mode.Trouble(0) == "" || w.id() == id || w.log.Lines(`\"stranger\" in `+c.mode+" mode", "process=", "interface=xr1") != 1 {
				t.Errorf("mode %s, program %d, was %d:\n%s", w.b.dev.Facts().Mode.String(), w.id(), id, w.log.String())
			}
			if c.later {
				w.says(1, 1, 0)
			} else {
				w.says(1, 0, 0)
			}
			w.redirects(false)
			if err := theirs.Close(); err != nil {
				t.Fatal(err)
			}
			w.look(2)
			if w.id() != id || w.b.dev.Facts().Mode.String() != string(c.transport) || w.log.Lines(isBack) != 1 {
				t.Errorf("program %d, was %d; mode %s:\n%s", w.id(), id, w.b.dev.Facts().Mode.String(), w.log.String())
			}
			w.redirects(true)
		})
	}
}

// A tool that takes the program again and again meets attempts that come ever later, and does not fill
// the log. A program that has stayed for long is told of as at first.
func TestProgramIsTakenAgainAndAgain(t *testing.T) {
	const times = 20
	w := newWatched(t, userspace.XDPGeneric)
	w.byHand()
	waited := []int{}
	for range times {
		w.take()
		w.look(1)
		n := 0
		for ; w.b.dev.Facts().Mode.String() == "udp" && n < 1000; n++ {
			w.look(1)
		}
		waited = append(waited, n)
	}
	if waited[0] != 1 || waited[1] != 2 || waited[5] != 32 || waited[times-1] != 64 {
		t.Errorf("looks before an attempt: %d", waited)
	}
	w.says(5, 0, 5) // the times 1, 2, 4, 8 and 16
	if n := w.b.stats().FilterTaken; n != times {
		t.Errorf("taken %d times, want %d", n, times)
	}
	w.look(stayLooks)
	w.take()
	w.look(2)
	w.says(6, 0, 6)
	if w.log.Lines(wasTaken, "times=21") != 1 {
		t.Errorf("log:\n%s", w.log.String())
	}
}

// A program that was taken for good is told of, even if it was taken before and lines are spared. An absence that
// is over is trouble for who has been silent since then.
func TestProgramStaysAway(t *testing.T) {
	stranger, err := foreign.New("stranger")
	if err != nil {
		testenv.NeedsRoot(t)
		t.Fatal(err)
	}
	defer stranger.Close()
	w := newWatched(t, userspace.XDPGeneric)
	w.byHand()
	for range 2 {
		w.take()
		w.look(4)
	}
	w.says(2, 0, 2)
	if now, before := w.b.dev.Facts().Mode.Trouble(0), w.b.dev.Facts().Mode.Trouble(time.Hour); now != "" || !strings.Contains(before, "was taken from its interface until 0.") {
		t.Errorf("trouble of now: %q, of an hour: %q", now, before)
	}
	w.take()
	theirs := w.attach(stranger, ebpflink.XDPGenericMode)
	defer theirs.Close()
	w.look(longAway)
	w.says(2, 0, 2)
	w.look(1)
	w.says(3, 0, 2)
	w.look(10 * longAway)
	w.says(3, 0, 2)
	if w.log.Lines(wasTaken, "stranger", "times=3") != 1 {
		t.Errorf("log:\n%s", w.log.String())
	}
}

// A program that another process has attached stays away, which the log says, until that one attaches
// it again.
func TestProgramFromOutsideIsTaken(t *testing.T) {
	w := &watched{t: t, lab: labtest.New(t, netlab.Config{Ranks: 2})}
	var dev Device
	var keep *loader.Program
	err := w.lab.Do(1, func() (err error) {
		if keep, err = loader.Attach(loader.Options{Interface: "xr1", Address: w.lab.Addr(1), Port: 4000, Mode: loader.Generic}); err != nil {
			return err
		}
		t.Cleanup(func() { keep.Close() })
		program, err := loader.FromMaps(keep.Maps(), keep.Mode())
		if err == nil {
			dev, err = OpenXDP(t.Context(), Config{Config: userspace.Config{Interface: "xr1", Port: 4000, Program: program}, Slots: 128, Logger: w.log.Logger()})
		}
		return err
	})
	w.b = newEnd(t, dev, err)
	w.x, w.a = dev.(*XDP), openEnd(t, w.lab, 0, userspace.UDP, false)
	w.byHand()
	w.redirects(true)
	w.take()
	w.look(5)
	w.says(1, 0, 0)
	if w.b.dev.Facts().Mode.String() != "udp" || !strings.Contains(w.log.String(), "start the rank again") {
		t.Errorf("mode %s:\n%s", w.b.dev.Facts().Mode.String(), w.log.String())
	}
	w.redirects(false)
	if err := w.lab.Do(1, keep.AttachAgain); err != nil {
		t.Fatal(err)
	}
	w.look(1)
	w.says(1, 0, 1)
	w.redirects(true)
}

// Whether frames that come through the kernel come another way is not asked while the program is away, nor of
// peers that were heard then.
func TestAbsenceIsNoDetour(t *testing.T) {
	w := newWatched(t, userspace.XDPGeneric)
	w.byHand()
	w.take()
	w.look(1)
	looks := func() {
		if err := w.lab.Do(1, func() error {
			for range 3 {
				if w.x.watch.trial.look() {
					t.Error("the trial is over")
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	looks()
	w.redirects(false)
	looks()
	w.look(1)
	looks()
	w.says(1, 0, 1)
	w.redirects(true)
}

// A device that cannot attach its program again says why, once, and goes on trying.
func TestProgramCannotComeBack(t *testing.T) {
	w := newWatched(t, userspace.XDPGeneric)
	w.byHand()
	w.take()
	for range 3 { // in this test's own namespace, where no attempt is made
		w.x.presence.look()
	}
	if w.log.Lines("cannot be attached again", "another network namespace") != 1 || w.b.dev.Facts().Mode.String() != "udp" {
		t.Errorf("mode %s:\n%s", w.b.dev.Facts().Mode.String(), w.log.String())
	}
	w.look(1)
	if w.log.Lines(isBack) != 1 {
		t.Errorf("log:\n%s", w.log.String())
	}
}

// BenchmarkPresence is a look at the program.
func BenchmarkPresence(b *testing.B) {
	l := labtest.New(b, netlab.Config{Ranks: 2})
	x := openEnd(b, l, 1, userspace.XDPGeneric, false).dev.(*XDP)
	x.watch.stop()
	for b.Loop() {
		x.presence.look()
	}
}
