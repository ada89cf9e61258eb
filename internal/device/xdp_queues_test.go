package device

import (
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/protocol/siphash"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/userspace"
)

// pathThrough returns x's path to y through one queue of both.
func pathThrough(x, y *XDP, queue int) PathID {
	p := newPath(x.local, y.local, queue)
	return x.paths.intern(&p, maxPaths)
}

// A handshake and a message that arrive on any queue are received and can be
// answered: with sockets on all queues, and with a limit that leaves most of them to
// the UDP socket.
func TestEveryQueueIsServed(t *testing.T) {
	for _, queues := range []int{4, 16} {
		if testing.Short() && queues > 4 {
			break
		}
		for _, transport := range []userspace.Transport{userspace.XDPNative, userspace.XDPGeneric} {
			t.Run(fmt.Sprintf("%d queues, %v", queues, transport), func(t *testing.T) {
				t.Parallel() // the most of it is waiting
				l := labtest.New(t, netlab.Config{Ranks: 2, Queues: queues})
				for _, limit := range []int{0, 1, 3, maxQueues} {
					for _, v6 := range []bool{false, true} {
						t.Run(fmt.Sprintf("limit %d, IPv6 %v", limit, v6), func(t *testing.T) {
							var dev Device
							err := l.Do(1, func() (err error) {
								dev, err = OpenXDP(t.Context(), Config{Config: userspace.Config{Interface: "xr1", Address: address(l, 1, v6), Queues: limit, Transport: transport}, Slots: 128})
								return err
							})
							b := newEnd(t, dev, err)
							a := openEnd(t, l, 0, userspace.XDPNative, v6)
							served := queues
							if limit != 0 {
								served = min(limit, queues)
							}
							x, y := a.dev.(*XDP), dev.(*XDP)
							if len(x.sockets) != queues || len(y.sockets) != served {
								t.Fatalf("%d and %d sockets, want %d and %d", len(x.sockets), len(y.sockets), queues, served)
							}
							for q := range queues {
								comesAndIsAnswered(t, a, b, pathThrough(x, y, q))
							}
							// With a generic program the kernel numbers the queues of a veth otherwise.
							c := b.stats().Filter
							if transport == userspace.XDPNative && (c["redirected"] != uint64(2*served) || c["no_socket"] != uint64(2*(queues-served))) {
								t.Errorf("of %d frames %d went to sockets and %d to the kernel", 2*queues, c["redirected"], c["no_socket"])
							}
							a.close()
							// Which queue a UDP socket's frames come to is up to the kernel.
							for range 2 * queues {
								u := openEnd(t, l, 0, userspace.UDP, v6)
								comesAndIsAnswered(t, u, b, u.path(dev.Facts().Local))
								u.close()
							}
							b.close()
						})
					}
				}
			})
		}
	}
}

// comesAndIsAnswered sends a handshake and a message from a to b, and the answer back.
func comesAndIsAnswered(t *testing.T, a, b *end, path PathID) {
	t.Helper()
	hello, data := message(wire.KindHello, 300), message(wire.KindData, 1400)
	a.send(path, hello, data)
	got := b.receive(2)
	sameMessages(t, got, [][]byte{hello, data})
	back := max(got[0].Path, got[1].Path) // the message has none
	answer := message(wire.KindData, 1400)
	b.send(back, answer)
	sameMessages(t, a.receive(1), [][]byte{answer})
}

// The room of a queue is bounded by the number of queues of its device, and holds at
// least the frames that peers may have on their way.
func TestMemoryOfQueuesIsBounded(t *testing.T) {
	for _, c := range []struct{ rxFrames, queues, each int }{
		{1024, 1, 1024}, {1024, 4, 1024}, {1024, 5, 819}, {1024, 8, 512}, {1024, 64, 512},
		{64, 1, 64}, {64, 64, 64}, {65536, 1, 65536}, {65536, 64, 32768},
	} {
		if got := framesPerQueue(c.rxFrames, c.queues); got != c.each {
			t.Errorf("%d frames, %d queues: %d each, want %d", c.rxFrames, c.queues, got, c.each)
		}
	}
}

// helloOf returns a hello of a job.
func helloOf(job uint64) []byte {
	m := message(wire.KindHello, wire.HeaderLen+wire.HelloLen)
	(&wire.Hello{Job: job}).Encode(m[wire.HeaderLen:])
	return m
}

// Each hello of the job is heard, though a thousand hellos of strangers come to the
// same queue before it.
func TestXDPHearsItsJobAmongStrangers(t *testing.T) {
	const job, each, strangers = 0x5eed, 20, 1024
	onOneCPU(t)
	l := labtest.New(t, netlab.Config{Ranks: 2})
	for _, transport := range []userspace.Transport{userspace.XDPNative, userspace.XDPGeneric} {
		var dev Device
		err := l.Do(1, func() (err error) {
			dev, err = Open(t.Context(), Config{Config: userspace.Config{Transport: transport, Interface: "xr1"}, Job: job, Slots: 128})
			return err
		})
		b := newEnd(t, dev, err)
		ends := forge(dev.(*XDP), "10.77.0.9:7")
		link := newPacketSocket(t, l, 0)
		own := helloOf(job)
		for range each {
			for n := range strangers {
				link.send(buildFrame(ends, helloOf(job+1+uint64(n))))
			}
			link.send(buildFrame(ends, own))
			sameMessages(t, b.receive(1), [][]byte{own})
		}
		if f := b.stats().Filter; f["other_job"] != each*strangers || f["hello_limited"] != 0 {
			t.Errorf("%s: the filter counted %v", transport, f)
		}
		b.close()
	}
}

// With a key, the program lets handshakes with the right code through, and no path is learned
// from them.
func TestXDPLearnsNothingWithAKey(t *testing.T) {
	const job = 0x5eed
	key := siphash.Key{1}
	l := labtest.New(t, netlab.Config{Ranks: 2})
	for _, transport := range []userspace.Transport{userspace.XDPNative, userspace.XDPGeneric} {
		var dev Device
		err := l.Do(1, func() (err error) {
			dev, err = Open(t.Context(), Config{Config: userspace.Config{Transport: transport, Interface: "xr1"}, Job: job, HelloKey: &key, Slots: 128})
			return err
		})
		b := newEnd(t, dev, err)
		from := forge(dev.(*XDP), "10.77.0.9:7")
		link := newPacketSocket(t, l, 0)
		link.send(buildFrame(from, keyedHello(job, &siphash.Key{2})))
		link.send(buildFrame(from, keyedHello(job, &key)))
		if got := b.receive(1); got[0].Path != NoPath || dev.(*XDP).paths.len() != 0 {
			t.Errorf("%s: a path was learned", transport)
		}
		if f := b.stats().Filter; f["bad_code"] != 1 || f["redirected"] != 1 {
			t.Errorf("%s: the filter counted %v", transport, f)
		}
		b.close()
	}
}

// onOneCPU keeps the test, and what the kernel does in its system calls, on one CPU.
func onOneCPU(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	var old, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		t.Fatal(err)
	}
	for cpu := range 1024 {
		if old.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.SchedSetaffinity(0, &old) })
}
