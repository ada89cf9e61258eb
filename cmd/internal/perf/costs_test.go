package perf

import (
	"bytes"
	"errors"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// costPlan has every step of Costs.
func costPlan(device FloorDevice) *Plan {
	plan := &Plan{Device: device, Duration: 5 * time.Millisecond}
	for _, c := range Costs {
		plan.Floors = append(plan.Floors, FloorPoint{Kind: c.Kind})
	}
	return plan
}

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// costLines opens the two ends of a step over the loopback interface.
func costLines(t *testing.T, payload, step int) (ends [2]*costLine) {
	t.Helper()
	for i := range ends {
		l, err := openUDPLine(loopback, payload)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := l.close(); err != nil {
				t.Error(err)
			}
		})
		if ends[i], err = newCostLine(l, step); err != nil {
			t.Fatal(err)
		}
	}
	for i, l := range ends {
		if err := l.connect(ends[1-i].address()); err != nil {
			t.Fatal(err)
		}
	}
	return ends
}

// carry sends a message and returns when its frames have arrived with their number.
func carry(t *testing.T, ends [2]*costLine, number uint64, n, length int) {
	t.Helper()
	if err := ends[0].send(number, n, length); err != nil {
		t.Fatal(err)
	}
	for arrived := 0; arrived < n; {
		var numbers [receiveMax]uint64
		got, err := ends[1].receive(numbers[:])
		if err != nil {
			t.Fatal(err)
		}
		for _, of := range numbers[:got] {
			if of != number {
				t.Fatalf("step %d: number %d, want %d", ends[0].step, of, number)
			}
		}
		arrived += got
	}
}

// A step does all that it says: frames arrive whole from pieces of memory, both ends compute
// the same checksums, and the bytes come from the sender's memory and get to the receiver's.
func TestCostsAreIncurred(t *testing.T) {
	for step := range Costs {
		for _, payload := range []int{1472, 8952} {
			ends := costLines(t, payload, step)
			from, to := &ends[0].bulk, &ends[1].bulk
			if step >= costCopySent {
				for i := range from.mem {
					from.mem[i] = byte(i * 7 >> 3)
				}
			}
			clear(to.mem)
			for i, n := range []int{ends[0].burst(), 1, ends[0].burst(), ends[0].burst() - 1} {
				for _, length := range []int{payload, replyLen, payload - 1} {
					carry(t, ends, uint64(i+1), n, length)
				}
			}
			if n := ends[0].messages.count(); n != 9 { // one frame alone is no message
				t.Errorf("step %d: the sender was busy with %d messages, want 9", step, n)
			}
			if summed := from.sum != 0; summed != (step >= costSumSent) {
				t.Errorf("step %d: the sender's checksums are %#x", step, from.sum)
			}
			if want := map[bool]uint32{true: from.sum}[step >= costSumReceived]; to.sum != want {
				t.Errorf("step %d: the receiver's checksums are %#x, want %#x", step, to.sum, want)
			}
			if copied := from.at > 0; copied != (step >= costCopySent) {
				t.Errorf("step %d: %d bytes copied from memory", step, from.at)
			}
			if step >= costCopyReceived && (to.at != from.at || !bytes.Equal(to.mem[:to.at], from.mem[:from.at])) {
				t.Errorf("step %d: other bytes than were sent", step)
			} else if step < costCopyReceived && to.at != 0 {
				t.Errorf("step %d: %d bytes copied to memory", step, to.at)
			}
		}
	}
}

// The pieces of cold steps go through all slots.
func TestColdFramesGoThroughAllSlots(t *testing.T) {
	for step, slots := range map[int]int{costPieces: 0, costCold: coldSlots} {
		ends := costLines(t, 1472, step)
		if slots == 0 {
			slots = ends[0].burst()
		}
		used := map[*byte]bool{}
		for range 2 * coldSlots / ends[0].burst() {
			carry(t, ends, 1, ends[0].burst(), 1472)
			for _, p := range ends[0].pieces {
				used[p.Base] = true
			}
		}
		if len(used) != slots {
			t.Errorf("step %d: frames were in %d slots, want %d", step, len(used), slots)
		}
	}
}

// The last step keeps at most 128 frames in flight and acknowledges each message.
func TestCostsOfAcknowledgement(t *testing.T) {
	wide := &udpLine{most: 1472, segments: 44, room: 8 << 20}
	for step := range Costs {
		l, err := newCostLine(wide, step)
		if err != nil {
			t.Fatal(err)
		}
		window, every := windowBursts*44, windowBursts*44/acksPerWindow
		if step == costAcknowledged {
			window, every = 128, 44
		}
		if l.window() != window || l.every() != every || l.burst() != 44 {
			t.Errorf("step %d: %d frames in flight, acknowledged by %d, sent by %d; want %d, %d and 44", step, l.window(), l.every(), l.burst(), window, every)
		}
	}
	narrow := &udpLine{most: 8952, segments: 7, room: 106496}
	for step := range Costs {
		if l, err := newCostLine(narrow, step); err != nil || l.burst() != 2 || l.window() != 10 || l.every() != 2 {
			t.Errorf("step %d, small socket: %d frames in flight, acknowledged by %d, sent by %d: %v", step, l.window(), l.every(), l.burst(), err)
		}
	}
}

// Messages share the time of the call that received them, and the next one bears that of an
// acknowledgement.
func TestTimesOfMessages(t *testing.T) {
	l, err := newCostLine(&udpLine{most: 1472, segments: 44, room: 8 << 20}, costAcknowledged)
	if err != nil {
		t.Fatal(err)
	}
	l.got = 2 // of which receive hands out one after the other
	for i, d := range []time.Duration{30 * time.Microsecond, 10 * time.Microsecond} {
		l.next++
		if l.spend(d, 44); l.messages.count() != int64(i) {
			t.Errorf("%d times after message %d", l.messages.count(), i)
		}
	}
	if us := l.spent(); us < 19.9 || us > 20.1 {
		t.Errorf("%v µs for each of two messages, want 20", us)
	}
	l.messages.reset()
	l.spend(5*time.Microsecond, 1)
	l.spend(35*time.Microsecond, 44)
	if us := l.spent(); us < 39.9 || us > 40.1 || l.messages.count() != 1 {
		t.Errorf("%v µs for a message and an acknowledgement, want 40", us)
	}
}

func TestCostsUDP(t *testing.T) {
	at := FloorPlace{Address: loopback, Payload: 1472}
	plan := costPlan(FloorUDP)
	samples := bothSides(t, plan, [2]FloorPlace{at, at}, func(_ int, f func() error) error { return f() })
	checkFloors(t, plan, samples, 1500)
}

// The steps run where ranks in generic mode do, and not over AF_XDP.
func TestCostsJoined(t *testing.T) {
	testenv.NeedsRoot(t)
	for mtu, message := range map[int]int{1500: 44 * 1472, 9000: 7 * 8972} {
		lab, places := floorLab(t, netlab.Config{Ranks: 2, MTU: mtu})
		plan := costPlan(FloorJoined)
		samples := bothSides(t, plan, places, lab.Do)
		checkFloors(t, plan, samples, mtu)
		for _, s := range samples {
			if s.Message != message || s.Mode != string(FloorJoined) {
				t.Errorf("%s: messages of %d bytes, want %d; mode %q", s.Point.Kind, s.Message, message, s.Mode)
			}
			if s.SenderTime <= 0 || s.ReceiverTime <= 0 {
				t.Errorf("%s: the sides are busy for %v and %v µs", s.Point.Kind, s.SenderTime, s.ReceiverTime)
			}
		}
		err := lab.Do(0, func() error {
			l, err := openLine(FloorXDP, places[0])
			if err != nil {
				return err
			}
			if _, err := newCostLine(l, costJoined); err == nil {
				t.Error("costs over AF_XDP")
			}
			return l.close()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestSummarizeCosts(t *testing.T) {
	var samples []*FloorSample
	for round := range 3 { // the second round is fast
		for i, c := range Costs {
			us := float64(10 + i*i)
			if round == 1 {
				us /= 2
			}
			samples = append(samples, &FloorSample{Point: FloorPoint{Kind: c.Kind}, Message: 64000, SenderTime: us - 1, ReceiverTime: us - 2, MBPerS: 64000 / us, Mode: "udp", MTU: 1500})
		}
	}
	results, err := SummarizeCosts(samples)
	if err != nil {
		t.Fatal(err)
	}
	same := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
	for i, r := range results {
		us := float64(10 + i*i)
		if r.Test != string(Costs[i].Kind) || r.Bytes != 64000 || !same(r.MessageTime, us) || !same(r.NsPerByte, us/64) || !same(r.MBPerS, 64000/us) {
			t.Errorf("step %d: %+v", i, r)
		}
		if !same(r.SenderTime, us-1) || !same(r.ReceiverTime, us-2) {
			t.Errorf("step %d: the sides are busy for %v and %v µs", i, r.SenderTime, r.ReceiverTime)
		}
		if i == 0 != (r.Added == nil) || i > 0 && !same(*r.Added, float64(i*i-(i-1)*(i-1))) {
			t.Errorf("step %d adds %v", i, r.Added)
		}
	}
	_, missing := SummarizeCosts(samples[1:len(Costs)])
	_, silent := SummarizeCosts(append([]*FloorSample{{Point: FloorPoint{Kind: Costs[0].Kind}}}, samples[1:len(Costs)]...))
	if err := errors.Join(missing, silent); missing == nil || silent == nil {
		t.Errorf("a step without a figure: %v", err)
	}
}
