package comm_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/bootstrap"
	"github.com/xdprma/xdprma/internal/testenv"
	"github.com/xdprma/xdprma/internal/testjob"
	"github.com/xdprma/xdprma/internal/wire"
)

// handMade is a rank without an engine: a test reads and writes its frames.
type handMade struct {
	*net.UDPConn
	*bootstrap.Member
}

// joinByHand makes a rank of places a handMade one, whose address is published.
func joinByHand(ctx context.Context, t *testing.T, place bootstrap.Config) *handMade {
	t.Helper()
	m, err := bootstrap.Open(ctx, place, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: place.Address.AsSlice()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Close(), m.Close() })
	if err := c.SetDeadline(time.Now().Add(testenv.Limit)); err != nil {
		t.Fatal(err)
	}
	if err := m.Publish(ctx, []byte(c.LocalAddr().String())); err != nil {
		t.Fatal(err)
	}
	return &handMade{c, m}
}

// read returns the next frame, and where it is from.
func (h *handMade) read(t *testing.T) (payload []byte, from net.Addr) {
	t.Helper()
	b := make([]byte, 1<<16)
	n, from, err := h.UDPConn.ReadFrom(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n], from
}

// readHello reads until a hello arrives.
func (h *handMade) readHello(t *testing.T) (payload []byte, hello wire.Hello, from net.Addr) {
	t.Helper()
	for {
		payload, from = h.read(t)
		if payload[5] == byte(wire.KindHello) && hello.Decode(payload[wire.HeaderLen:]) {
			return payload, hello, from
		}
	}
}

// frameOf returns a handshake.
func frameOf(kind wire.Kind, session uint64, h wire.Hello) []byte {
	b := make([]byte, wire.HeaderLen+wire.HelloLen)
	h.Encode(b[wire.HeaderLen:])
	head := wire.Header{Kind: kind, Session: session, Credits: h.Credits}
	head.Encode(b)
	return b
}

// TestNoFrameHasTheToken has a rank greet another one, answer its hello, and send data: who
// sees this knows nothing that the rendezvous takes for the token.
func TestNoFrameHasTheToken(t *testing.T) {
	places, stop, err := testjob.Places(2)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Limit)
	defer cancel()
	j, err := comm.Join(ctx, comm.Options{Place: places[0]})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	peer := joinByHand(ctx, t, places[1])
	sent := make(chan error, 1)
	text := []byte("some data")
	go func() { sent <- comm.Send(ctx, j.World(), text, 1, 0) }()

	token := places[0].Job
	little, big := binary.LittleEndian.AppendUint64(nil, token), binary.BigEndian.AppendUint64(nil, token)
	seen := map[wire.Kind]bool{}
	check := func(frame []byte) {
		t.Helper()
		kind := wire.Kind(frame[5])
		if bytes.Contains(frame, little) || bytes.Contains(frame, big) || bytes.Contains(frame, []byte(places[0].Token())) {
			t.Errorf("a frame of kind %d has the token: %x", kind, frame)
		}
		seen[kind] = true
	}
	frame, theirs, from := peer.readHello(t)
	check(frame)
	ours := wire.Hello{Job: theirs.Job, Incarnation: peer.Incarnation, Session: 7, Rank: 1, Target: 0,
		MaxPayload: wire.MinPayload, Credits: 16, Echo: theirs.Session}
	for _, answer := range [][]byte{frameOf(wire.KindHello, 0, ours), frameOf(wire.KindHelloAck, theirs.Session, ours)} {
		if _, err := peer.WriteTo(answer, from); err != nil {
			t.Fatal(err)
		}
	}
	for !seen[wire.KindHelloAck] || !seen[wire.KindData] {
		frame, _ := peer.read(t)
		check(frame)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}
