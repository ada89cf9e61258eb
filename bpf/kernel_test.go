package bpf_test

import (
	"testing"

	"github.com/xdprma/xdprma/bpf"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// The UDP socket that holds the port receives what is too long for one frame, if it is of
// a known session.
func TestJoinedFramesGoToTheKernel(t *testing.T) {
	c := load(t)
	known, stranger := message(wire.KindData, session), message(wire.KindData, session+1)
	for longest, want := range map[int]bpf.ClassifierCounter{0: redirected, len(known): redirected, len(known) - 1: joined} {
		c.cfg.Longest = uint32(longest)
		c.configure(t)
		if got := c.run(t, packet{payload: known}.bytes(), nil); got != want {
			t.Errorf("%d bytes, of at most %d: counter %d, want %d", len(known), longest, got, want)
		}
		if got := c.run(t, packet{payload: stranger}.bytes(), nil); got != unknownSession {
			t.Errorf("%d bytes of a stranger, of at most %d: counter %d", len(stranger), longest, got)
		}
	}
}

// The UDP socket that holds the port receives what arrives on a queue without a
// socket.
func TestFrameOfQueueWithoutSocketGoesToTheKernel(t *testing.T) {
	c := load(t)
	if err := c.Xsks.Delete(uint32(0)); err != nil {
		t.Fatal(err)
	}
	frame := packet{payload: message(wire.KindData, session)}.bytes()
	if got := c.run(t, frame, nil); got != noSocket {
		t.Errorf("counter %d, want %d", got, noSocket)
	}
}
