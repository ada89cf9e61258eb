package comm_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/launch/job"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// handMade is a rank without an engine: a test reads and writes its frames.
type handMade struct {
	*net.UDPConn
	*bootstrap.Member
}

// joinByHand makes a rank of places a handMade one, whose address is published.
func joinByHand(ctx context.Context, t *testing.T, place bootstrap.Config) *handMade {
	t.Helper()
	m, err := bootstrap.Open(ctx, place, nil, nil)
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
	if err := m.Publish(ctx, job.PlaceOf(c.LocalAddr().(*net.UDPAddr).AddrPort())); err != nil {
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
	ctx, places, _ := serve(t, 2)
	j, err := comm.Join(ctx, job.Config{Place: places[0]})
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

// TestForgedHelloTakesNoRanksPlace has somebody who has seen a hello of each rank of a job
// claim their places, from elsewhere: in the same life and in a later one, before and after
// the two have met. They do not notice. The later life of a rank that was really started
// again is let in.
func TestForgedHelloTakesNoRanksPlace(t *testing.T) {
	ctx, places, _ := serve(t, 2)
	jobs := make([]*comm.Job, 2)
	join := func(rank int) {
		t.Helper()
		j, err := comm.Join(ctx, job.Config{Place: places[rank]})
		if err != nil {
			t.Fatal(err)
		}
		jobs[rank] = j
	}
	closed := func(rank int) {
		t.Helper()
		if err := jobs[rank].Close(); err != nil {
			t.Error(err)
		}
	}
	join(0)
	join(1)
	defer func() { closed(0) }()
	defer func() { closed(1) }()
	elsewhere, err := net.ListenUDP("udp4", &net.UDPAddr{IP: places[0].Address.AsSlice()})
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	counted := func(rank int) uint64 {
		e := jobs[rank].Poller().Lock()
		defer jobs[rank].Poller().Unlock()
		return e.Stats.Refuted + e.Stats.Unverified
	}
	forge := func(when string) {
		t.Helper()
		for rank := range jobs {
			for _, life := range []uint64{jobs[1-rank].Incarnation(), jobs[1-rank].Incarnation() + 1, 1 << 63} {
				h := wire.Hello{Job: places[0].FrameJob(), Incarnation: life, Session: life, Rank: uint32(1 - rank), Target: uint32(rank),
					MaxPayload: wire.MinPayload, Credits: 16}
				to := net.UDPAddrFromAddrPort(jobs[rank].Poller().Facts().Local)
				before := counted(rank)
				if _, err := elsewhere.WriteTo(frameOf(wire.KindHello, 0, h), to); err != nil {
					t.Fatal(err)
				}
				testenv.Await(t, "the verdict on a forged hello "+when, func() bool { return counted(rank) > before })
			}
		}
	}
	talk := func(when string) {
		t.Helper()
		if err := errors.Join(each(jobs, func(j *comm.Job) error {
			peer, in := 1-j.Rank(), make([]byte, 1)
			if err := comm.Send(ctx, j.World(), in, peer, 0); err != nil {
				return err
			}
			_, err := comm.Recv(ctx, j.World(), in, peer, 0)
			return err
		})...); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	forge("at first")
	talk("after forged hellos")
	forge("afterwards")
	talk("after more of them")
	for _, j := range jobs {
		if n := j.World().Failed().Size(); n != 0 {
			t.Errorf("rank %d takes %d ranks for dead", j.Rank(), n)
		}
	}
	closed(1)
	join(1)
	sent := make(chan error, 1)
	go func() { sent <- comm.Send(ctx, jobs[1].World(), make([]byte, 1<<20), 0, 1) }() // long: it takes an answer
	testenv.Await(t, "the next life of rank 1", func() bool {
		e := jobs[0].Poller().Lock()
		defer jobs[0].Poller().Unlock()
		return e.Session(1).Life() == jobs[1].Incarnation()
	})
	if _, err := comm.Recv(ctx, jobs[0].World(), make([]byte, 1<<20), 1, 1); err != nil {
		t.Errorf("a message of the next life: %v", err)
	}
	if err := <-sent; err != nil {
		t.Errorf("the next life: %v", err)
	}
}
