package afxdp

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

var small = Config{ChunkSize: 2048, RxChunks: 16, TxChunks: 16, TxSize: 32}

// Frames of any segmentation arrive whole and in order, in any batches, and
// every chunk goes round for ever.
func TestReceiveAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		config := small
		config.MultiBuffer = true
		s, k := newFake(t, config, rapid.Uint32Range(nearWrap-40, nearWrap+5).Draw(rt, "start"))
		random := rand.New(rand.NewPCG(1, rapid.Uint64().Draw(rt, "seed")))
		var want [][]byte
		batch := make([][]byte, 8)
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			if rapid.Bool().Draw(rt, "deliver") {
				frame := make([]byte, rapid.IntRange(1, 5000).Draw(rt, "length"))
				for i := range frame {
					frame[i] = byte(random.Uint32())
				}
				segment := rapid.IntRange(1000, 1792).Draw(rt, "segment")
				need := (len(frame) + segment - 1) / segment
				if int(*k.fill.producer-k.fill.next) < need {
					continue // the kernel would drop it
				}
				k.deliver(frame, segment)
				want = append(want, frame)
				continue
			}
			n := s.Receive(batch[:rapid.IntRange(1, len(batch)).Draw(rt, "batch")])
			for _, got := range batch[:n] {
				if !bytes.Equal(got, want[0]) {
					rt.Fatalf("frame of %d bytes, want %d, or other content", len(got), len(want[0]))
				}
				want = want[1:]
			}
			if rapid.Bool().Draw(rt, "release") {
				s.Release()
			}
		}
		for range 200 {
			n := s.Receive(batch)
			want = want[n:]
			s.Release()
		}
		if len(want) != 0 || int(*k.fill.producer-k.fill.next) != config.RxChunks {
			rt.Fatalf("%d frames missing, %d of %d chunks in the fill ring", len(want), *k.fill.producer-k.fill.next, config.RxChunks)
		}
	})
}

// A frame's tail may come in a later batch, after a Release.
func TestReceiveTailLater(t *testing.T) {
	config := small
	config.MultiBuffer = true
	s, k := newFake(t, config, nearWrap)
	frames := make([][]byte, 4)
	first, _ := k.fill.take()
	copy(k.mem[first:], "head ")
	k.rx.give(desc{addr: first, length: 5, options: contd})
	if n := s.Receive(frames); n != 0 {
		t.Fatalf("%d frames out of half a frame", n)
	}
	s.Release()
	second, _ := k.fill.take()
	copy(k.mem[second:], "tail")
	k.rx.give(desc{addr: second, length: 4})
	k.deliver([]byte("next"), 100)
	if n := s.Receive(frames); n != 2 || string(frames[0]) != "head tail" || string(frames[1]) != "next" {
		t.Fatalf("received %d: %q", n, frames[:n])
	}
}

func TestReceiveIgnoresBadDescriptors(t *testing.T) {
	config := small
	config.MultiBuffer = true
	base := uint64(config.TxChunks * config.ChunkSize)
	end := base + uint64(config.RxChunks*config.ChunkSize)
	for name, d := range map[string]desc{
		"in the transmit area": {addr: 0, length: 10},
		"behind the UMEM":      {addr: end, length: 10},
		"far away":             {addr: 1 << 63, length: 10},
		"wraps":                {addr: ^uint64(0) - 4, length: 10},
		"crosses a chunk":      {addr: base + 2040, length: 10},
		"huge":                 {addr: base, length: 1<<32 - 1},
		"in a chain":           {addr: 0, length: 10, options: contd},
	} {
		t.Run(name, func(t *testing.T) {
			s, k := newFake(t, config, 0)
			k.rx.give(d)
			if d.options == contd { // the rest of the damaged frame goes too
				k.deliver([]byte("rest"), 100)
			}
			k.deliver([]byte("good"), 100)
			frames := make([][]byte, 4)
			if n := s.Receive(frames); n != 1 || string(frames[0]) != "good" {
				t.Errorf("received %d: %q", n, frames[:n])
			}
			if got := s.rx.invalid.Load(); got != 1 {
				t.Errorf("%d invalid descriptors counted", got)
			}
		})
	}
	t.Run("twice", func(t *testing.T) {
		s, k := newFake(t, config, 0)
		addr, _ := k.fill.take()
		k.rx.give(desc{addr: addr, length: 10})
		k.rx.give(desc{addr: addr, length: 10})
		if n := s.Receive(make([][]byte, 4)); n != 1 || s.rx.invalid.Load() != 1 {
			t.Errorf("received %d, %d invalid", n, s.rx.invalid.Load())
		}
	})
}

func TestReceiveDropsOversize(t *testing.T) {
	for _, multi := range []bool{false, true} {
		config := small
		config.MultiBuffer, config.MaxFrame = multi, 3000
		s, k := newFake(t, config, 0)
		k.deliver(make([]byte, 3001), 1700)
		k.deliver([]byte("good"), 100)
		frames := make([][]byte, 4)
		if n := s.Receive(frames); n != 1 || string(frames[0]) != "good" {
			t.Errorf("multi-buffer %v: received %d: %q", multi, n, frames[:n])
		}
		s.Release()
		if got := s.rx.oversize.Load(); got != 1 {
			t.Errorf("multi-buffer %v: %d oversize frames counted", multi, got)
		}
		if n := *k.fill.producer - k.fill.next; int(n) != config.RxChunks {
			t.Errorf("multi-buffer %v: %d chunks came back", multi, n)
		}
	}
}

// No more frames out of several chunks are delivered than there are buffers.
func TestReceiveLimitsLinear(t *testing.T) {
	s, k := newFake(t, Config{MultiBuffer: true, RxChunks: 256, TxChunks: 1}, 0)
	for i := range MaxLinear + 1 {
		k.deliver(bytes.Repeat([]byte{byte(i)}, 200), 100)
	}
	frames := make([][]byte, 128)
	if n := s.Receive(frames); n != MaxLinear {
		t.Fatalf("received %d", n)
	}
	for i := range MaxLinear {
		if frames[i][0] != byte(i) || len(frames[i]) != 200 {
			t.Fatalf("frame %d was overwritten", i)
		}
	}
	if n := s.Receive(frames); n != 0 {
		t.Fatalf("received %d more without a release", n)
	}
	s.Release()
	if n := s.Receive(frames); n != 1 || frames[0][199] != MaxLinear {
		t.Fatalf("received %d after the release", n)
	}
}

func TestDoubleReleasePanics(t *testing.T) {
	s, k := newFake(t, small, 0)
	k.deliver([]byte("frame"), 100)
	s.Receive(make([][]byte, 1))
	s.rx.held = append(s.rx.held, s.rx.held[0])
	mustPanic(t, "a chunk released twice", s.Release)
}

// Whatever is enqueued reaches the kernel as written, in order, and comes back
// once, in any order of completions.
func TestTransmitAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		config := small
		config.MultiBuffer = true
		config.TxSize = 16
		s, k := newFake(t, config, rapid.Uint32Range(nearWrap-40, nearWrap+5).Draw(rt, "start"))
		const slot = 4 * 2048
		var free = []uint64{0, slot, 2 * slot, 3 * slot}
		type sent struct {
			offset uint64
			frame  []byte
		}
		var queued, unpublished []sent
		var inFlight []uint64
		var toComplete []uint64
		offsets := make([]uint64, 2)
		for range rapid.IntRange(1, 150).Draw(rt, "steps") {
			switch rapid.IntRange(0, 4).Draw(rt, "step") {
			case 0:
				if len(free) == 0 {
					continue
				}
				offset := free[0] + uint64(rapid.IntRange(0, 200).Draw(rt, "headroom"))
				frame := s.TxArea()[offset:][:rapid.IntRange(minFrame, slot-200).Draw(rt, "length")]
				for i := range frame {
					frame[i] = byte(i) ^ byte(len(frame))
				}
				if s.Enqueue(offset, len(frame)) {
					free = free[1:]
					inFlight = append(inFlight, offset)
					unpublished = append(unpublished, sent{offset, bytes.Clone(frame)})
				}
			case 1:
				s.Publish()
				queued, unpublished = append(queued, unpublished...), nil
			case 2:
				frame, addrs := k.transmit()
				if len(queued) == 0 {
					if frame != nil {
						rt.Fatal("the kernel got a frame that was not published")
					}
					continue
				}
				if !bytes.Equal(frame, queued[0].frame) || addrs[0] != queued[0].offset {
					rt.Fatalf("the kernel got %d bytes at %d, want %d at %d", len(frame), addrs[0], len(queued[0].frame), queued[0].offset)
				}
				queued = queued[1:]
				toComplete = append(toComplete, addrs...)
			case 3:
				if len(toComplete) > 0 {
					i := rapid.IntRange(0, len(toComplete)-1).Draw(rt, "which")
					if !k.completion.give(toComplete[i]) {
						rt.Fatal("completion ring is full")
					}
					toComplete = slices.Delete(toComplete, i, i+1)
				}
			case 4:
				for _, offset := range offsets[:s.Reap(offsets)] {
					i := slices.Index(inFlight, offset)
					if i < 0 {
						rt.Fatalf("reaped %d, which is not in flight", offset)
					}
					inFlight = slices.Delete(inFlight, i, i+1)
					free = append(free, offset/slot*slot)
				}
			}
		}
		s.Publish()
		for frame, addrs := k.transmit(); frame != nil; frame, addrs = k.transmit() {
			toComplete = append(toComplete, addrs...)
		}
		for _, addr := range toComplete {
			k.completion.give(addr)
		}
		for range 50 {
			s.Reap(offsets)
		}
		if s.tx.completed.Load() != s.tx.tx.next || s.tx.invalid.Load() != 0 {
			rt.Fatalf("%d descriptors never completed", s.tx.tx.next-s.tx.completed.Load())
		}
	})
}

func TestEnqueueRefusesWhenFull(t *testing.T) {
	config := small
	config.TxChunks, config.TxSize = 64, 32
	s, k := newFake(t, config, nearWrap)
	for i := range 32 {
		if !s.Enqueue(uint64(i*2048), 60) {
			t.Fatalf("no room for frame %d", i)
		}
	}
	if s.Enqueue(40*2048, 60) {
		t.Fatal("room for a 33rd frame in a ring of 32")
	}
	s.Publish()
	_, addrs := k.transmit()
	if s.Enqueue(40*2048, 60) {
		t.Fatal("room before the completion")
	}
	k.completion.give(addrs[0])
	offsets := make([]uint64, 4)
	if n := s.Reap(offsets); n != 1 || offsets[0] != 0 {
		t.Fatalf("reaped %d, %v", n, offsets)
	}
	if !s.Enqueue(40*2048, 60) {
		t.Fatal("no room after the completion")
	}
}

func TestEnqueuePanics(t *testing.T) {
	multi := small
	multi.MultiBuffer, multi.TxChunks = true, 32
	size := uint64(small.TxChunks * small.ChunkSize)
	for _, c := range []struct {
		why    string
		config Config
		offset uint64
		length int
	}{
		{"empty", small, 0, 0},
		{"negative", small, 0, -1},
		{"shorter than a header", small, 0, minFrame - 1},
		{"past the area", small, size - 10, 60},
		{"outside the area", small, size, 60},
		{"wrapping", small, ^uint64(0) - 9, 60},
		{"two chunks without multi-buffer", small, 2000, 60},
		{"too many chunks", multi, 2000, (MaxSegments-1)*2048 + 60},
	} {
		s, _ := newFake(t, c.config, 0)
		mustPanic(t, c.why, func() { s.Enqueue(c.offset, c.length) })
	}
	s, _ := newFake(t, small, 0)
	s.Enqueue(0, 60)
	mustPanic(t, "enqueued twice", func() { s.Enqueue(100, 60) })
}

func TestReapIgnoresBadCompletions(t *testing.T) {
	s, k := newFake(t, small, 0)
	s.Enqueue(0, 60)
	s.Publish()
	for _, addr := range []uint64{2048, uint64(small.TxChunks * small.ChunkSize), ^uint64(0), 0, 0} {
		k.completion.give(addr)
	}
	offsets := make([]uint64, 8)
	if n := s.Reap(offsets); n != 1 || offsets[0] != 0 {
		t.Errorf("reaped %d", n)
	}
	if got := s.tx.invalid.Load(); got != 4 {
		t.Errorf("%d invalid completions counted, want 4", got)
	}
}

func TestDataPathDoesNotAllocate(t *testing.T) {
	config := small
	config.MultiBuffer = true
	s, k := newFake(t, config, nearWrap)
	s.kick.fake = func() unix.Errno { return 0 }
	frame := make([]byte, 3000)
	frames, offsets := make([][]byte, 8), make([]uint64, 8)
	received, reaped := 0, 0
	allocs := testing.AllocsPerRun(100, func() {
		k.deliver(frame, 1700)
		k.deliver(frame[:100], 1700)
		received += s.Receive(frames)
		s.Release()
		s.Enqueue(0, 3000)
		s.Enqueue(8192, 100)
		s.Publish()
		_, _ = s.Kick()
		for d, ok := k.tx.take(); ok; d, ok = k.tx.take() {
			k.completion.give(d.addr)
		}
		reaped += s.Reap(offsets)
		s.Refill()
	})
	if allocs != 0 || received != 202 || reaped != 202 {
		t.Errorf("%v allocations; received %d, reaped %d, want 202", allocs, received, reaped)
	}
}
