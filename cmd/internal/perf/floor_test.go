package perf

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// floorLab makes namespaces, and returns what a floor needs to know of two of them.
func floorLab(t *testing.T, c netlab.Config) (lab *netlab.Lab, places [2]FloorPlace) {
	t.Helper()
	lab = labtest.New(t, c)
	for i := range places {
		places[i] = FloorPlace{Interface: lab.Interface(i), Address: lab.Addr(i), Payload: c.MTU - ipUDP}
	}
	return lab, places
}

// bothSides runs a floor with its two sides in this process, each where enter puts it.
func bothSides(t *testing.T, plan *Plan, places [2]FloorPlace, enter func(side int, f func() error) error) []*FloorSample {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit)
	defer cancel()
	streams, err := FloorStreams()
	if err != nil {
		t.Fatal(err)
	}
	var samples []*FloorSample
	var errs [2]error
	var sides sync.WaitGroup
	for i, at := range places {
		at.Side = i
		sides.Go(func() {
			errs[i] = enter(i, func() error {
				return RunFloor(ctx, streams[i], at, plan, func(s *FloorSample) error {
					samples = append(samples, s)
					return nil
				})
			})
		})
	}
	sides.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return samples
}

// checkFloors asserts that each point has a figure, which says nothing of its value.
func checkFloors(t *testing.T, plan *Plan, samples []*FloorSample, mtu int) {
	t.Helper()
	if len(samples) != len(plan.Floors) {
		t.Fatalf("%d samples of %d points", len(samples), len(plan.Floors))
	}
	for i, s := range samples {
		r, err := SummarizeFloor([]*FloorSample{s})
		if err != nil {
			t.Fatal(err)
		}
		figure := r.P50
		if !s.Point.roundTrips() {
			figure = r.MBPerS
		}
		if s.Point != plan.Floors[i] || figure <= 0 || r.MTU != mtu {
			t.Errorf("%+v: %+v", plan.Floors[i], r)
		}
	}
}

func floorPlan(device FloorDevice) *Plan {
	plan := &Plan{Device: device, Duration: 10 * time.Millisecond, Floors: []FloorPoint{
		{Kind: Echo, Bytes: 8}, {Kind: Echo, Bytes: 100_000}, {Kind: Stream}, {Kind: Stream, Bytes: 8}}}
	if device != FloorUDP {
		plan.Floors = append(plan.Floors, FloorPoint{Kind: Kernel, Bytes: 8}, FloorPoint{Kind: Memory, Bytes: 8})
	}
	plan.Floors = append(plan.Floors, FloorPoint{Kind: Echo, Bytes: 8}) // processes take frames again
	return plan
}

func TestFloorUDP(t *testing.T) {
	at := FloorPlace{Address: netip.AddrFrom4([4]byte{127, 0, 0, 1}), Payload: 1472}
	plan := floorPlan(FloorUDP)
	samples := bothSides(t, plan, [2]FloorPlace{at, at}, func(_ int, f func() error) error { return f() })
	checkFloors(t, plan, samples, 1500)
}

func TestFloorXDP(t *testing.T) {
	testenv.NeedsRoot(t)
	for _, test := range []struct {
		device FloorDevice
		ranks  int
		mtu    int
		mode   string
	}{
		{FloorXDP, 2, 1500, "xdp-native"}, {FloorXDP, 2, 9000, "xdp-native"}, {FloorXDPGeneric, 2, 1500, "xdp-generic"},
		{FloorXDP, 3, 1500, "xdp-native"}, {FloorXDPGeneric, 3, 9000, "xdp-generic"},
	} {
		lab, places := floorLab(t, netlab.Config{Ranks: test.ranks, MTU: test.mtu})
		if test.device == FloorXDP {
			if err := lab.AcceptAnswers(); err != nil {
				t.Fatal(err)
			}
		}
		plan := floorPlan(test.device)
		samples := bothSides(t, plan, places, lab.Do)
		checkFloors(t, plan, samples, test.mtu)
		if samples[0].Mode != test.mode {
			t.Errorf("mode %q, want %q", samples[0].Mode, test.mode)
		}
	}
}

// The floor of bandwidths in generic mode runs with a program at each side, which goes with
// it.
func TestFloorJoined(t *testing.T) {
	testenv.NeedsRoot(t)
	for _, mtu := range []int{1500, 9000} {
		lab, places := floorLab(t, netlab.Config{Ranks: 2, MTU: mtu})
		plan := &Plan{Device: FloorJoined, Duration: 10 * time.Millisecond, Floors: []FloorPoint{{Kind: JoinedStream}}}
		samples := bothSides(t, plan, places, lab.Do)
		checkFloors(t, plan, samples, mtu)
		if samples[0].Mode != "udp behind xdp-generic" {
			t.Errorf("mode %q", samples[0].Mode)
		}
		err := lab.Do(1, func() error {
			l, err := openJoinedLine(places[1])
			if err != nil {
				return err
			}
			nic, err := netlink.LinkByName(lab.Interface(1))
			if xdp := nic.Attrs().Xdp; xdp == nil || xdp.AttachMode != nl.XDP_ATTACHED_SKB {
				t.Errorf("the interface has the program %+v, want one in generic mode", xdp)
			}
			if err = errors.Join(err, l.close()); err != nil {
				return err
			}
			if nic, err = netlink.LinkByName(lab.Interface(1)); err == nil && nic.Attrs().Xdp != nil && nic.Attrs().Xdp.Attached {
				t.Error("the program is still there")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Frames arrive with their numbers whether several go at once or not, of any length.
func TestUDPLineCarriesFrames(t *testing.T) {
	for _, most := range []int{1472, 8952} {
		for _, joined := range []bool{false, true} {
			var ends [2]*udpLine
			for i := range ends {
				l, err := openUDPLine(netip.AddrFrom4([4]byte{127, 0, 0, 1}), most)
				if err != nil {
					t.Fatal(err)
				}
				defer l.close()
				if l.checking(true); joined {
					l.protecting(secure.Seal)
				}
				ends[i] = l
			}
			for i, l := range ends {
				if err := l.connect(ends[1-i].address()); err != nil {
					t.Fatal(err)
				}
				if !joined {
					l.segments = 1
				}
			}
			number := uint64(0)
			for _, length := range []int{most, 80, most, udpMarkLen, most - 1} {
				for _, n := range []int{1, ends[0].burst(), 2, 1} {
					number++
					if err := ends[0].send(number, n, length); err != nil {
						t.Fatal(err)
					}
					var numbers [receiveMax]uint64
					for arrived := 0; arrived < n; {
						got, err := ends[1].receive(numbers[:])
						if err != nil {
							t.Fatal(err)
						}
						for _, of := range numbers[:got] {
							if of != number {
								t.Fatalf("frame of %d bytes: number %d, want %d", length, of, number)
							}
						}
						arrived += got
					}
				}
			}
			if ends[1].forged > 0 {
				t.Errorf("%d frames were refused", ends[1].forged)
			}
		}
	}
}

// The floor in memory leaves nothing to the sockets of both sides.
func TestAnswerComesToMemory(t *testing.T) {
	testenv.NeedsRoot(t)
	lab, places := floorLab(t, netlab.Config{Ranks: 2, MTU: 1500})
	var ends [2]*xdpLine
	for i, at := range places {
		err := lab.Do(i, func() (err error) {
			ends[i], err = openXDPLine(at.Interface, true)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer ends[i].close()
	}
	for i, l := range ends {
		if err := errors.Join(l.connect(ends[1-i].address()), l.taking(FloorPoint{Kind: Memory}.taker(i))); err != nil {
			t.Fatal(err)
		}
	}
	l := ends[0]
	for number := uint64(1); number <= 3; number++ {
		if err := l.send(number, 1, replyLen); err != nil {
			t.Fatal(err)
		}
		var numbers [2]uint64
		n := 0
		for deadline := time.Now().Add(testenv.Limit); n == 0 && time.Now().Before(deadline); {
			n, _ = l.receive(numbers[:])
		}
		again, _ := l.receive(numbers[1:])
		if _, word := l.answer.Take(); n != 1 || numbers[0] != number || word != number-1 || again != 0 {
			t.Fatalf("%d answers, numbers %v, word %d, and %d answers again; want one of number %d and word %d", n, numbers, word, again, number, number-1)
		}
	}
	for i, l := range ends {
		if s, err := l.socket.Stats(); err != nil || s.RxFrames+s.KernelRxDropped+s.KernelRxRingFull > 0 {
			t.Errorf("side %d: %+v, %v", i, s, err)
		}
	}
}

func TestNoFloorInTheKernelOverUDP(t *testing.T) {
	l, err := openUDPLine(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 1472)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if l.taking(socketTakes) != nil || l.taking(kernelAnswers) == nil || l.taking(kernelKeeps) == nil {
		t.Error("the kernel takes frames of a UDP socket")
	}
}

func TestFloorRefusesWhatCannotBeMeasured(t *testing.T) {
	for _, test := range []struct {
		device FloorDevice
		at     FloorPlace
	}{
		{"smoke", FloorPlace{}},
		{FloorUDP, FloorPlace{}},
		{FloorUDP, FloorPlace{Address: netip.IPv6Loopback(), Payload: 1000}},
		{FloorUDP, FloorPlace{Address: netip.AddrFrom4([4]byte{127, 0, 0, 1}), Payload: 1}},
		{FloorXDP, FloorPlace{Interface: "no-such-link"}},
		{FloorJoined, FloorPlace{}},
		{FloorJoined, FloorPlace{Interface: "no-such-link", Address: netip.AddrFrom4([4]byte{127, 0, 0, 1}), Payload: 1472}},
	} {
		streams, err := FloorStreams()
		if err != nil {
			t.Fatal(err)
		}
		defer streams[1].Close()
		if err := RunFloor(t.Context(), streams[0], test.at, floorPlan(test.device), nil); err == nil {
			t.Errorf("%q at %+v: no error", test.device, test.at)
		}
	}
}
