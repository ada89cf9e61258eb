package device

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/protocol/siphash"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/userspace"
)

// A program from outside, which knew no job when it was attached, lets through what one does that the rank
// has attached: handshakes and tickets with the job's codes. Strangers do not use up the limit on them.
func TestProgramFromOutsideKnowsTheJob(t *testing.T) {
	const port, job, strangers = 4000, 0x5eed, 1500 // more than the burst without a key
	l := labtest.New(t, netlab.Config{Ranks: 2})
	key := siphash.Key{7}
	var dev Device
	var keep *loader.Program
	err := l.Do(1, func() (err error) {
		if keep, err = loader.Attach(loader.Options{Interface: "xr1", Address: l.Addr(1), Port: port}); err != nil {
			return err
		}
		program, err := loader.FromMaps(keep.Maps(), keep.Mode())
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		dev, err = OpenXDP(t.Context(), Config{Config: userspace.Config{Interface: "xr1", Port: port, Program: program, SocketFDs: []int{fd}},
			Job: job, HelloKey: &key, Slots: 128})
		return err
	})
	if keep != nil {
		defer keep.Close()
	}
	b := newEnd(t, dev, err)
	defer b.close()
	greeting := func(kind wire.Kind, n int, key siphash.Key) []byte {
		p := make([]byte, wire.GreetingLen)
		(&wire.Header{Kind: kind}).Encode(p[:wire.HeaderLen])
		binary.LittleEndian.PutUint64(p[wire.HeaderLen:], job)
		binary.LittleEndian.PutUint64(p[232:], uint64(n))
		wire.SignHandshake(p, &key)
		return p
	}
	ends := forge(b.dev.(*XDP), "10.77.0.9:7")
	wire1 := newPacketSocket(t, l, 0)
	for n := range strangers {
		wire1.send(buildFrame(ends, greeting(wire.KindHello, n, siphash.Key{8})))
		wire1.send(buildFrame(ends, message(wire.KindHello, 200)))
	}
	own := [][]byte{greeting(wire.KindTicket, 1, key), greeting(wire.KindHello, 1, key)}
	for _, p := range own {
		wire1.send(buildFrame(ends, p))
	}
	for i, got := range b.receive(len(own)) {
		if !bytes.Equal(got.Payload, own[i]) {
			t.Errorf("message %d is %x, want %x", i, got.Payload, own[i])
		}
	}
	if f := b.stats().Filter; f["bad_code"] != strangers || f["other_job"] != strangers || f["hello_limited"] != 0 {
		t.Errorf("%v", f)
	}
}
