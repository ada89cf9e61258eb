package afxdp

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netns"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// openShared opens a socket for each queue of the veth in ns, with one UMEM.
func openShared(t *testing.T, ns netns.NsHandle, queues int, c Config) (sockets []*Socket) {
	t.Helper()
	needs(t, c)
	t.Cleanup(func() {
		for i := len(sockets) - 1; i >= 0; i-- {
			if err := sockets[i].Close(); err != nil {
				t.Error(err)
			}
		}
	})
	c.Sharers = queues - 1
	for queue := range queues {
		if queue > 0 {
			c = Config{Share: sockets[0]}
		}
		c.Queue = queue
		s, err := openIn(t, ns, c)
		if err != nil {
			t.Fatal(err)
		}
		sockets = append(sockets, s)
	}
	return sockets
}

// receiveOne waits for one frame and returns a copy.
func receiveOne(t *testing.T, s *Socket) []byte {
	t.Helper()
	frames := make([][]byte, 1)
	for end := time.Now().Add(testenv.Limit); time.Now().Before(end); {
		if s.Receive(frames) == 1 {
			frame := bytes.Clone(frames[0])
			s.Release()
			return frame
		}
		if _, err := s.Wait(50*time.Millisecond, -1); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("no frame arrived")
	return nil
}

// Sockets that share a UMEM send out of one transmit area and receive each into
// its own part, over and over, with frames of one chunk and of several.
func TestSharedMemory(t *testing.T) {
	const queues, rounds = 3, 200
	for _, c := range []struct {
		mtu, length int
		multi       bool
	}{{1500, 1000, false}, {9000, 9000, true}} {
		t.Run(fmt.Sprint(c.length), func(t *testing.T) {
			pair := newWideVethPair(t, c.mtu, queues)
			config := Config{RxChunks: 64, TxChunks: 16, MultiBuffer: c.multi}
			out, in := openShared(t, pair[0], queues, config), openShared(t, pair[1], queues, config)
			attach(t, pair[1], link.XDPDriverMode, in...)
			area := out[0].TxArea()
			for i, s := range out {
				if &s.TxArea()[0] != &area[0] || s.Info().Queue != i || s.Info().MultiBuffer != c.multi {
					t.Fatalf("socket %d: %+v", i, s.Info())
				}
			}
			offsets := make([]uint64, 4)
			for i := range rounds {
				through, frame := out[i%queues], area[i%2*4*4096:][:c.length]
				for j := range frame {
					frame[j] = byte(i + j*7)
				}
				if !through.Enqueue(uint64(i%2*4*4096), c.length) {
					t.Fatal("no room")
				}
				through.Publish()
				if result, err := through.Kick(); result != KickDone {
					t.Fatal(result, err)
				}
				if got := receiveOne(t, in[i%queues]); !bytes.Equal(got, frame) {
					t.Fatalf("round %d: another frame arrived, of %d bytes", i, len(got))
				}
				if n := through.Reap(offsets); n != 1 || offsets[0] != uint64(i%2*4*4096) {
					t.Fatalf("reaped %d, %v", n, offsets)
				}
			}
		})
	}
}

func TestSharedMemoryIsGuarded(t *testing.T) {
	pair := newWideVethPair(t, 1500, 2)
	sockets := openShared(t, pair[0], 2, Config{RxChunks: 64, TxChunks: 16})
	if _, err := openIn(t, pair[0], Config{Queue: 1, Share: sockets[0]}); err == nil || !strings.Contains(err.Error(), "room for 1 sharers") {
		t.Errorf("a sharer too many: %v", err)
	}
	sockets[0].Enqueue(0, 100)
	defer func() {
		if p := fmt.Sprint(recover()); !strings.Contains(p, "before it was reaped") {
			t.Errorf("a chunk in flight sent through another socket: %v", p)
		}
	}()
	sockets[1].Enqueue(0, 100)
}

// A socket that could not be bound leaves its part of the memory to the next.
func TestSharerThatFailed(t *testing.T) {
	pair := newWideVethPair(t, 1500, 2)
	first, err := openIn(t, pair[0], Config{RxChunks: 64, TxChunks: 16, Sharers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := openIn(t, pair[0], Config{Queue: 7, Share: first}); err == nil || !strings.Contains(err.Error(), "no such queue") {
		t.Errorf("queue 7 of 2: %v", err)
	}
	second, err := openIn(t, pair[0], Config{Queue: 1, Share: first})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}
