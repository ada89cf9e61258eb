package memnet

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/xdprma/xdprma/internal/device"
)

// pair returns two devices of a network with faults.
func pair(t *testing.T, f Faults) (n *Network, from, to device.Device) {
	t.Helper()
	n = New(2, f)
	var devices [2]device.Device
	for rank := range devices {
		var err error
		if devices[rank], err = n.Open(rank, device.Config{Slots: 32}); err != nil {
			t.Fatal(err)
		}
	}
	return n, devices[0], devices[1]
}

// send sends frames that carry their numbers, and returns those that arrive, when all are due.
func send(t *testing.T, from, to device.Device, count int) (got []byte) {
	t.Helper()
	path, err := from.Path(context.Background(), to.Facts().Local)
	if err != nil {
		t.Fatal(err)
	}
	slots := make([]int32, 32)
	for i := range count {
		from.Facts().Slab.Payload(0)[0] = byte(i)
		if from.Enqueue([]device.Out{{Slot: 0, Len: 1, Path: path}}) != 1 || from.Reap(slots) != 1 || slots[0] != 0 {
			t.Fatalf("frame %d was not taken, or its slot not given back", i)
		}
	}
	frames := make([]device.Frame, 8)
	for {
		n := to.Receive(frames)
		for _, f := range frames[:n] {
			got = append(got, f.Payload[0])
		}
		to.Release()
		d := to.(*Device)
		d.mu.Lock()
		left := d.inbox.len()
		d.mu.Unlock()
		if left == 0 {
			return got
		}
		to.Sleep(time.Minute)
	}
}

func TestFaults(t *testing.T) {
	const count = 200
	var all []byte
	for i := range count {
		all = append(all, byte(i))
	}
	for name, test := range map[string]struct {
		faults Faults
		fine   func(got []byte) bool
	}{
		"none":        {Faults{}, func(got []byte) bool { return slices.Equal(got, all) }},
		"loss":        {Faults{Loss: 0.5}, func(got []byte) bool { return len(got) > 50 && len(got) < 150 && slices.IsSorted(got) }},
		"duplication": {Faults{Duplication: 0.5}, func(got []byte) bool { return len(got) > 250 && len(got) < 350 }},
		"reordering": {Faults{Reordering: 0.5}, func(got []byte) bool {
			return !slices.IsSorted(got) && slices.Equal(slices.Sorted(slices.Values(got)), all)
		}},
		"delay": {Faults{Delay: 2 * time.Millisecond}, func(got []byte) bool {
			return !slices.IsSorted(got) && slices.Equal(slices.Sorted(slices.Values(got)), all)
		}},
	} {
		test.faults.Seed = 1
		_, from, to := pair(t, test.faults)
		if got := send(t, from, to, count); !test.fine(got) {
			t.Errorf("%s: %d frames, %v", name, len(got), got)
		}
	}
}

// A seed loses and doubles the same frames each time, whatever other faults there are.
func TestSeed(t *testing.T) {
	run := func(f Faults) []byte {
		_, from, to := pair(t, f)
		return slices.Sorted(slices.Values(send(t, from, to, 200)))
	}
	first := run(Faults{Seed: 7, Loss: 0.3, Duplication: 0.3})
	if again := run(Faults{Seed: 7, Loss: 0.3, Duplication: 0.3, Reordering: 0.5, Delay: time.Millisecond}); !slices.Equal(again, first) {
		t.Errorf("%v, and then %v", first, again)
	}
	if other := run(Faults{Seed: 8, Loss: 0.3, Duplication: 0.3}); slices.Equal(other, first) {
		t.Error("another seed does the same")
	}
}

func TestStopAndKill(t *testing.T) {
	n, from, to := pair(t, Faults{})
	n.Stop(1)
	got := make(chan int)
	go func() { got <- to.Receive(make([]device.Frame, 8)) }()
	path, _ := from.Path(context.Background(), to.Facts().Local)
	from.Enqueue([]device.Out{{Slot: 0, Len: 1, Path: path}})
	from.Reap(make([]int32, 1))
	select {
	case <-got:
		t.Error("a rank that is stopped has received")
	default:
	}
	n.Resume(1)
	if frames := <-got; frames != 1 {
		t.Errorf("it has received %d frames", frames)
	}
	reason := errors.New("a reason")
	n.Kill(1, reason)
	if told := context.Cause(to.Facts().Alive); told != reason {
		t.Errorf("it was told %v", told)
	}
	if frames := send(t, from, to, 3); len(frames) > 0 {
		t.Errorf("a dead rank has received %v", frames)
	}
	if frames := send(t, to, from, 3); len(frames) > 0 {
		t.Errorf("a dead rank has sent %v", frames)
	}
}

func TestPathToNobody(t *testing.T) {
	_, from, _ := pair(t, Faults{})
	for _, addr := range []netip.AddrPort{{}, netip.AddrPortFrom(Address(2), port), netip.AddrPortFrom(Address(1), 1), netip.MustParseAddrPort("[::1]:7770")} {
		if _, err := from.Path(context.Background(), addr); err == nil {
			t.Errorf("there is a path to %v", addr)
		}
	}
}

// A receiver that does not look keeps a bounded number of frames.
func TestFullInbox(t *testing.T) {
	_, from, to := pair(t, Faults{})
	if got := send(t, from, to, mostWaiting+5); len(got) != mostWaiting {
		t.Errorf("%d frames arrived", len(got))
	}
}
